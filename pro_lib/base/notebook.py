"""What the cells of a notebook declare, and an error of ours as one sentence there; knows no parameter by its name."""

import ast
import builtins
import traceback
from collections.abc import Iterable
from typing import Any

from pro_lib.base.checks import SentenceError, check_known


def parameters(cells: Iterable[str] | None, *, first: str) -> dict[str, Any]:
    """The parameters that cells leave, given by their sources in the order in which they were run.

    The latest cell of nothing but typed names (`alpha: float = 0.4`) declares them; the latest that papermill put after
    it replaces values. No other cell counts, whatever it left in the kernel. In a notebook, an error that this package
    raises is shown as its sentence from here on.

    Args:
        cells: None for those of this kernel.
        first: a parameter that every notebook declares, so that half a parameters cell is not taken for one.

    Raises:
        SentenceError: there is no such cell, or papermill was given a name that it does not declare.
    """
    # IPython puts the function there for as long as a cell runs.
    shell = getattr(builtins, "get_ipython", lambda: None)()
    if shell:
        # Anything else is a fault of the program, and keeps its traceback.
        shell.set_custom_exc((ValueError, OSError, ImportError, MemoryError), _show)
    names = dict(shell.user_ns) if shell else {"In": ()}
    declared, replaced = {}, {}
    for cell in names["In"] if cells is None else cells:
        statements = _statements(cell)
        if statements and all(isinstance(each, ast.AnnAssign) and each.value for each in statements):
            declared, replaced = {each.target.id: each.value for each in statements}, {}
        elif cell.startswith("# Parameters\n"):
            replaced = {each.targets[0].id: each.value for each in statements}
    if first not in declared:
        raise SentenceError(f"no parameters cell has been run: one cell that declares {first} and the others by type")
    check_known(replaced, declared, " of this notebook")
    return {name: eval(ast.unparse(value), names) for name, value in (declared | replaced).items()}


def _statements(cell: str) -> list[ast.stmt]:
    try:
        return ast.parse(cell).body
    except SyntaxError:
        return []


def _show(shell: Any, kind: type, error: BaseException, trace: Any, tb_offset: int | None = None) -> list[str]:
    *_, (frame, _) = traceback.walk_tb(trace)
    ours = frame.f_globals.get("__name__", "").startswith("pro_lib.")
    whole = shell.InteractiveTB.structured_traceback
    shown = [f"{kind.__name__}: {error}"] if ours else whole(kind, error, trace, tb_offset=tb_offset)
    shell._showtraceback(kind, error, shown)
    return shown
