"""What the cells of a notebook declare, and an error of ours as one sentence there; knows no parameter by its name."""

import ast
import builtins
import hashlib
import re
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from pro_lib.checks import SentenceError, check_known


def parameters(cells: Iterable[str] | None, *, first: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters that cells declare and those replaced, given by their sources in the order in which they were run.

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
    left, given = ({name: eval(ast.unparse(each[name]), names) for name in each} for each in (declared, replaced))
    return left, given


def trial(changed: Mapping[str, Any]) -> str:
    """A name for what differs from a notebook as it comes, which does as that of a folder: `alpha=0.3,limit=200`.

    A checksum stands for what is too long, or written with letters that folders seldom have.
    """
    listed = {name: value if isinstance(value, list) else [value] for name, value in changed.items()}
    written = {name: [re.sub(r"[^\w.-]", "_", str(each), flags=re.ASCII) for each in listed[name]] for name in listed}
    said = ",".join(f"{name}={'+'.join(values)}" for name, values in written.items())
    as_it_is = len(said) <= 60 and all(written[name] == list(map(str, listed[name])) for name in listed)
    return said if as_it_is else f"{said[:60]}-{hashlib.sha256(repr(changed).encode()).hexdigest()[:6]}"


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
