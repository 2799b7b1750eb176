"""Compute the tables of a folder of figures anew, and compare every cell with the stored one.

    python benchmarks/recompute.py figures
    python benchmarks/recompute.py figures/real_models --files data/published --notebooks 06 12

The notebooks run with the parameters in the folder's `made_from.json`, on stored runs if there are
any. A cell differs if its text does, or its number by more than a unit in the sixth digit.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from pro_lib.app.made_from import NAME
from pro_lib.app.notebook_parameters import cell_values
from pro_lib.common import catalog


def count_differences(stored: pd.DataFrame, computed: pd.DataFrame) -> dict[str, float]:
    """Return the number of cells, how many differ, and the largest difference of two numbers."""
    if list(stored.columns) != list(computed.columns) or len(stored) != len(computed):
        return {"n_cells": stored.size, "n_different": stored.size, "largest": np.nan}
    n_different = 0
    largest = 0.0
    for name in stored:
        one, other = stored[name], computed[name]
        if pd.api.types.is_numeric_dtype(one) and pd.api.types.is_numeric_dtype(other):
            one, other = one.astype(float), other.astype(float)
            is_same = np.isclose(one, other, rtol=1.01e-5, atol=1e-9, equal_nan=True)
            largest = max(largest, np.nan_to_num((one - other).abs()).max(initial=0))
        else:
            is_same = one.fillna("").astype(str) == other.fillna("").astype(str)
        n_different += int((~is_same).sum())
    return {"n_cells": stored.size, "n_different": n_different, "largest": largest}


def notebook_parameters(entries: dict, files: Path) -> dict[str, dict]:
    """Return the parameters of each notebook by its number; paths of files are below a folder."""
    parameters: dict[str, dict] = {}
    for name, entry in entries.items():
        given = parameters.setdefault(name[:2], {})
        notebook = catalog.notebook(name[:2])
        source = notebook.read_text(encoding="utf-8")
        for key, value in entry["parameters"].items():
            if key not in cell_values(notebook) and f" {key}=" in source:
                continue  # the notebook fixes it
            values = value if isinstance(value, list) else [value]
            found = [_path(each, files) for each in values]
            given[key] = found if isinstance(value, list) else found[0]
    return parameters


def _path(value: object, files: Path) -> object:
    """Return the path of a file below a folder, or another value as it is."""
    path = files / str(value)
    return str(path.resolve()) if isinstance(value, str) and path.is_file() else value


def main() -> None:
    """Run the notebooks of a folder, and print a row for each table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=Path, default=Path(), help="folder of the input files")
    parser.add_argument("--notebooks", nargs="*", help="their numbers; all if left out")
    arguments = parser.parse_args()
    entries = json.loads((arguments.folder / NAME).read_text(encoding="utf-8"))
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, parameters in notebook_parameters(entries, arguments.files).items():
            if arguments.notebooks and number not in arguments.notebooks:
                continue
            command = [sys.executable, "-m", "pro_lib", "run", number, "--executed", scratch]
            for key, value in {**parameters, "figures_dir": scratch}.items():
                command += ["-p", key, value if isinstance(value, str) else repr(value)]
            subprocess.run(command, check=True)
        for path in sorted(Path(scratch).glob("*.csv")):
            tables = [pd.read_csv(each) for each in (arguments.folder / path.name, path)]
            rows.append({"table": path.stem, **count_differences(*tables)})
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    print(f"{table['n_different'].sum()} of {table['n_cells'].sum()} cells differ")


if __name__ == "__main__":
    main()
