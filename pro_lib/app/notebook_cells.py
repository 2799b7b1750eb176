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
    """
    declared: dict[str, Any] = {}
    injected: list[str] = []
    for cell in cells:
        with suppress(SyntaxError):
            statements: list[Any] = ast.parse(cell).body
            if cell.startswith("# Parameters\n"):
                injected = [statement.targets[0].id for statement in statements]
            elif statements and all(isinstance(each, ast.AnnAssign) for each in statements):
                declared = {each.target.id: _literal(each.value) for each in statements}
                injected = []
    return CellParameters(declared, injected)


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
