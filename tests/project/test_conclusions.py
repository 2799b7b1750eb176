"""What notebooks conclude, on made tables that point either way, and on tables of which nothing can be said."""

from types import SimpleNamespace

import nbformat
import numpy as np
import pandas as pd
from conftest import ROOT

from pro_lib import evaluation, metrics

SETTING = {"dataset": "d", "model": "m", "protocol": "paper"}


def concluded(number: str, *, n_rarer: int = 20, **names) -> str:
    """Run the last cell of a notebook on these tables and so many rarer answers; return what it says."""
    [path] = (ROOT / "notebooks").glob(f"{number}*.ipynb")
    cell = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"][-1]
    *body, last = cell.source.rpartition("\nMarkdown(")
    reported = SimpleNamespace(n_rarer=n_rarer, labels=lambda: SETTING)
    names |= {"np": np, "pd": pd, "metrics": metrics, "evaluation": evaluation}
    names |= {"splits": [SimpleNamespace(reported=reported)]}
    exec(body[0], names)
    return eval(f"str({last}", names)


def test_01_says_ranges_of_means():
    rows = {"dataset": ["d", "e"], "model": "m", "answers": [10.0, 8.0], "distinct": [5.0, 4.0], "mass": [0.5, 0.9]}
    table = pd.DataFrame(rows | {"mass_with_repeats": [0.5, 2.0], "kept": [1, 2]})
    said = concluded("01", table=table, experiment=SimpleNamespace(alpha=0.4))
    assert "Of 8.0 to 10.0 answers 4.0 to 5.0 are distinct (means, by setting) and hold 0.50 to 0.90" in said
    assert "more than all the probability for 0% to 100% of the questions" in said
