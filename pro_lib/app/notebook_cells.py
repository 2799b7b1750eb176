"""The parameters that the cells of a notebook declare, and those that its user has changed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pro_lib.app.parameter_use import USED_BY_EVERY_NOTEBOOK
from pro_lib.app.parameters import EXACT, default_values, same_value
from pro_lib.common.validation import SentenceError

# Values that notebooks come with, besides the defaults. Their figures go to figures/ itself.
_NOTEBOOK_VALUES: dict[str, tuple] = {
    "model": (["facts-2m", "facts-1m"],),
    "dataset": (["world-facts", "world-facts-reworded"],),
    "similarity": (["lexical", "alias"], "alias"),
}
_EXACT_SEARCH_VALUES = {"search_alpha": (0.005,)}


@dataclass(frozen=True)
class CellParameters:
    """The parameters in the cells of a notebook.

    Attributes:
        declared: the values in the parameters cell, by name. A value that is not a literal is
            replaced by an object that differs from every other value.
        injected: the names that papermill has injected after that cell.
    """

    declared: dict[str, Any]
    injected: list[str]

    def names(self) -> list[str]:
        """Return the names of all parameters."""
        return [*self.declared, *self.injected]


def read_cells(cells: Iterable[str]) -> CellParameters:
    """Read the latest parameters cell, and the cell that papermill has injected after it.

    A parameters cell consists of annotated assignments only.

    Raises:
        SentenceError: if a cell declares parameters and has another line beside them.
    """
    declared: dict[str, Any] = {}
    injected: list[str] = []
    for cell in cells:
        statements = _statements(cell)
        if cell.startswith("# Parameters\n") and all(map(_is_plain_assignment, statements)):
            injected = [statement.targets[0].id for statement in statements]
        elif statements and all(map(_is_declaration, statements)):
            declared = {each.target.id: _literal(each.value) for each in statements}
            injected = []
        elif any(map(_declares_parameter, statements)):
            other = next(each for each in statements if not _is_declaration(each))
            raise SentenceError(_other_line(cell, other))
    return CellParameters(declared, injected)


def _statements(cell: str) -> list[Any]:
    """Return the statements of a cell; none if it is not valid Python, in which case it did not run.

    The lines of magic commands and shell commands are statements too.
    """
    first, _, rest = cell.partition("\n")
    if first.startswith("%%"):
        magic = ast.Expr(ast.Constant(first), lineno=1)
        others = _statements(rest)
        for statement in others:
            ast.increment_lineno(statement)
        return [magic, *others]
    with suppress(SyntaxError):
        return ast.parse(cell).body
    from IPython.core.inputtransformer2 import TransformerManager

    with suppress(SyntaxError):
        return ast.parse(TransformerManager().transform_cell(cell)).body
    return []


def _is_plain_assignment(statement: ast.stmt) -> bool:
    """Return whether a statement has the form `name = value`."""
    return isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)


def _is_declaration(statement: ast.stmt) -> bool:
    """Return whether a statement has the form `name: type = value`."""
    if not isinstance(statement, ast.AnnAssign):
        return False
    return isinstance(statement.target, ast.Name) and statement.value is not None


def _declares_parameter(statement: ast.stmt) -> bool:
    """Return whether a statement annotates the name of a parameter."""
    target = statement.target if isinstance(statement, ast.AnnAssign) else None
    return isinstance(target, ast.Name) and target.id in default_values()


def _other_line(cell: str, statement: ast.stmt) -> str:
    """Return the error for a statement of a parameters cell that is not a declaration."""
    line = cell.splitlines()[statement.lineno - 1].strip()
    expected = "expected only lines of the form `name: type = value`"
    return f"the parameters cell has the line {line!r}; {expected}; move it to another cell"


def _literal(expression: Any) -> object:
    try:
        return ast.literal_eval(expression)
    except (ValueError, TypeError):
        return object()


def check_constants(values: Mapping[str, Any], constants: Mapping[str, Any]) -> None:
    """Check that no value differs from the value that the notebook fixes."""
    for name, constant in constants.items():
        if name in values and not same_value(values[name], constant):
            reason = f"this notebook fixes {name}={constant!r}"
            raise SentenceError(f"{name}={values[name]!r} has no effect: {reason}; remove it")


def changed_values(
    values: Mapping[str, Any],
    cells: CellParameters,
    uses: Sequence[str] | None,
    constants: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the values that differ from those that the notebook comes with."""
    fixed_strategies = (constants.get("strategy"), *constants.get("other_strategies", ()))
    notebook_values = dict(_NOTEBOOK_VALUES)
    if EXACT in fixed_strategies:
        notebook_values |= _EXACT_SEARCH_VALUES
    original: dict[str, tuple] = {}
    for name, default in default_values().items():
        if name in cells.injected:
            # The parameters cell still has the value that the notebook comes with.
            original[name] = (cells.declared.get(name, default),)
        elif uses is None or name in (*uses, *USED_BY_EVERY_NOTEBOOK):
            original[name] = (default, *notebook_values.get(name, ()))
        else:
            original[name] = (default,)
    changes = {}
    for name, value in values.items():
        if not any(same_value(value, each) for each in original.get(name, ())):
            changes[name] = value
    return changes
