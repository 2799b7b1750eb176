"""The parameters of a shipped notebook: their stored values, and what its user has changed.

A notebook of the package stores its own values in its metadata, under `pro`:

- `parameters`: the values in its parameters cell.
- `uses`: the parameters that it reads, besides those of its questions, runs and figures.
- `fixes`: values that belong to the notebook and that its user cannot change.
"""

from __future__ import annotations

import ast
import difflib
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pro_lib.app.parameters import NOT_FOR_USERS, NotebookUse, default_values, same_value
from pro_lib.common import catalog
from pro_lib.common.validation import SentenceError


@dataclass(frozen=True)
class ShippedNotebook:
    """The parameters that a notebook ships with, from its metadata.

    Attributes:
        name: the name of the notebook, such as `02_alpha_sweep`.
        parameters: the values in its parameters cell.
        uses: the parameters that it reads, besides those of its questions, runs and figures.
        fixes: values that its user cannot change.
    """

    name: str
    parameters: dict[str, Any]
    uses: tuple[str, ...]
    fixes: dict[str, Any]


def read_shipped(name: str) -> ShippedNotebook:
    """Return the parameters that a notebook of the package ships with.

    Raises:
        SentenceError: if the package has no such notebook, or the notebook stores no parameters.
    """
    path = catalog.ROOT / "notebooks" / f"{name}.ipynb"
    if not path.is_file():
        remedy = "in your own notebook, remove the argument notebook="
        raise SentenceError(f"notebook={name!r} is not a notebook of the package; {remedy}")
    stored = json.loads(path.read_text(encoding="utf-8"))["metadata"].get("pro")
    if stored is None:
        raise SentenceError(f"notebook={name!r} stores no parameters in its metadata")
    return ShippedNotebook(name, stored["parameters"], tuple(stored["uses"]), stored["fixes"])


def notebook_values(
    shipped: ShippedNotebook,
    arguments: Mapping[str, Any],
    options: Mapping[str, Any] | None,
    injected: Sequence[str],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of an experiment in a notebook, and those that its user has changed.

    Args:
        shipped: the parameters that the notebook ships with.
        arguments: the parameters that the notebook passes to `Experiment` by name.
        options: parameters that the notebook does not declare.
        injected: the names that papermill has injected.

    Raises:
        SentenceError: if an injected parameter is not passed on, or an option cannot be given.
    """
    declared = [name for name in arguments if name not in NOT_FOR_USERS]
    _check_injected(injected, declared)
    options = dict(options or {})
    _check_options(options, declared)
    values = {**shipped.fixes, **arguments, **options}
    original = default_values() | shipped.parameters
    changed = {}
    for name in (*declared, *options):
        if name not in original or not same_value(values[name], original[name]):
            changed[name] = values[name]
    return values, changed


def notebook_use(shipped: ShippedNotebook, changed: Mapping[str, Any]) -> NotebookUse:
    """Return the parameters that a notebook uses, and those that its user has changed."""
    return NotebookUse(uses=shipped.uses, changed=tuple(changed))


def injected_names() -> list[str]:
    """Return the names in the latest cell that papermill has injected into the running notebook.

    The result is empty outside IPython.
    """
    if "IPython" not in sys.modules:
        return []
    from IPython import get_ipython

    shell = get_ipython()
    cells = [] if shell is None else shell.user_ns.get("In", [])
    for cell in reversed(cells):
        if cell.startswith("# Parameters\n"):
            with suppress(SyntaxError):
                return [statement.targets[0].id for statement in ast.parse(cell).body]
    return []


def _check_injected(injected: Sequence[str], declared: Sequence[str]) -> None:
    """Check that the notebook passes every injected parameter to `Experiment`."""
    for name in injected:
        if name in declared or name == "options":
            continue
        _check_known(name)
        remedy = f"pass it in options, as in options: {{{name}: ...}}, or use `pro run`"
        raise SentenceError(f"{name} is not declared in the parameters cell; {remedy}")


def _check_options(options: Mapping[str, Any], declared: Sequence[str]) -> None:
    for name in options:
        if name in declared:
            remedy = f"set {name} itself, not in options"
            raise SentenceError(f"options has {name!r}, but the parameters cell has it; {remedy}")
        _check_known(name)


def _check_known(name: str) -> None:
    names = list(default_values())
    if name not in names:
        [nearest] = difflib.get_close_matches(name, names, n=1, cutoff=0)
        raise SentenceError(f"{name} is not a parameter; the nearest is {nearest}")
