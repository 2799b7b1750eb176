"""The parameters of a shipped notebook: their values, and what its user has changed."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pro_lib.app.parameters import check_names, default_values
from pro_lib.common import catalog
from pro_lib.common.validation import SentenceError


def cell_values(notebook: Path) -> dict[str, Any]:
    """Return the values in the parameters cell of a notebook, by name; empty without the cell."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if "parameters" in cell["metadata"].get("tags", []):
            statements = ast.parse("".join(cell["source"])).body
            return {
                ast.unparse(each.target): ast.literal_eval(each.value)
                for each in statements
                if isinstance(each, ast.AnnAssign) and each.value
            }
    return {}


def notebook_values(
    name: str, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of an experiment in a shipped notebook, and those without any change.

    A parameter that papermill has injected and that the parameters cell does not have is taken from
    the injected cell. An argument that the cell does not have is fixed by the notebook.

    Args:
        name: the name of the notebook, such as `02_alpha_sweep`.
        arguments: the parameters that the notebook passes to `Experiment`.

    Raises:
        SentenceError: if the package has no such notebook, or an injected parameter is unknown or
            fixed.
    """
    path = catalog.ROOT / "notebooks" / f"{name}.ipynb"
    if not path.is_file():
        remedy = "in your own notebook, remove the argument notebook="
        raise SentenceError(f"notebook={name!r} is not a notebook of the package; {remedy}")
    shipped = cell_values(path)
    others = {key: value for key, value in injected_values().items() if key not in shipped}
    check_names(others)
    for key in others:
        if key in arguments:
            raise SentenceError(f"{key} is fixed by notebook {name}")
    return {**arguments, **others}, {**default_values(), **arguments, **shipped}


def injected_values() -> dict[str, Any]:
    """Return the values in the latest cell that papermill has injected into the running notebook.

    The result is empty outside IPython.
    """
    if "IPython" not in sys.modules:
        return {}
    from IPython import get_ipython

    shell = get_ipython()
    namespace: dict[str, Any] = {} if shell is None else shell.user_ns
    for cell in reversed(namespace.get("In", [])):
        if cell.startswith("# Parameters\n"):
            names = [ast.unparse(each.targets[0]) for each in ast.parse(cell).body]
            return {name: namespace[name] for name in names}
    return {}
