"""What the cells of a notebook declare, and an error of ours as one sentence there; knows no parameter by its name."""

import ast
import builtins
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from pro_lib.base.checks import check_known

# What goes wrong with what we were given; anything else is a fault of the program and keeps its traceback.
_EXPECTED = (ValueError, OSError, ImportError, MemoryError)


def kernel() -> Any:
    """The IPython shell that runs the cell from which this is called; None outside of notebooks."""
    # IPython puts the function there for as long as a cell runs.
    return getattr(builtins, "get_ipython", lambda: None)()


def parameters(cells: Iterable[str], namespace: Mapping[str, Any], *, first: str) -> dict[str, Any]:
    """The parameters that cells leave, given by their sources in the order in which they were run.

    The latest cell of nothing but typed names (`alpha: float = 0.4`) declares them; the cell of its own that papermill
    puts after it replaces values. No other cell counts, whatever it left in the kernel.

    Args:
        namespace: where values are evaluated that are no literals.
        first: a parameter that every notebook declares, so that half a parameters cell is not taken for one.

    Raises:
        ValueError: there is no such cell, or papermill was given a name that it does not declare.
    """
    declared, injected = [], []
    for cell in cells:
        statements = _statements(cell)
        if statements and all(isinstance(each, ast.AnnAssign) and each.value for each in statements):
            declared, injected = statements, []
        elif cell.startswith("# Parameters\n"):
            injected = statements
    values = {each.target.id: _value(each, namespace) for each in declared}
    if first not in values:
        raise ValueError(f"no parameters cell has been run: one cell that declares {first} and the others by type")
    replaced = {each.targets[0].id: _value(each, namespace) for each in injected}
    check_known(replaced, values, " of this notebook")
    return values | replaced


def _statements(cell: str) -> list[ast.stmt]:
    try:
        return ast.parse(cell).body
    except SyntaxError:
        return []


def _value(statement: ast.AnnAssign | ast.Assign, namespace: Mapping[str, Any]) -> Any:
    return eval(ast.unparse(statement.value), dict(namespace))


def in_one_sentence(shell: Any) -> None:
    """From here on the shell shows an error that this package raises as its sentence, others with their traceback."""
    shell.set_custom_exc(_EXPECTED, _show)


def _show(shell: Any, kind: type, error: BaseException, trace: Any, tb_offset: int | None = None) -> list[str]:
    *_, (frame, _) = traceback.walk_tb(trace)
    ours = frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]
    whole = shell.InteractiveTB.structured_traceback
    shown = [f"{kind.__name__}: {error}"] if ours else whole(kind, error, trace, tb_offset=tb_offset)
    shell._showtraceback(kind, error, shown)
    return shown
