"""What notebooks conclude, on made tables that point either way, and on tables of which nothing can be said."""

import re
from types import SimpleNamespace

import nbformat
import numpy as np
import pandas as pd
import pytest
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


def benchmark(difference: float, *, significant: bool, n_differ: int = 40) -> pd.DataFrame:
    """PRO at .8, its default tied with NLL, and NLL so much above it."""
    rows = {"method": ["PRO", "PRO, default", "NLL"], "auroc": [0.8, 0.8 + difference, 0.8 + difference]}
    rows |= {"difference": [0, difference, difference], "significant": [False, False, significant]}
    p_value = 0.01 if significant else 0.2
    rows |= {"n_differ": [0, n_differ, n_differ], "p_value": [np.nan, p_value, p_value]}
    rows |= {"p_holm": [np.nan, np.nan, p_value]}
    table = pd.DataFrame(rows).assign(**SETTING)
    return table.assign(low=table["auroc"] - 0.1, high=table["auroc"] + 0.1)


FEW = "Of 1 settings with fewer than 20 right or wrong answers nothing is said."
COUNTED = [
    (benchmark(-0.05, significant=True), "in 1 of 1 settings and below it in 0. "),
    (benchmark(0.05, significant=True), "in 0 of 1 settings and below it in 1. "),
    (benchmark(-0.05, significant=False), "in 0 of 1 settings and below it in 0. "),
    (benchmark(0.0, significant=False, n_differ=0), "differ on 0 to 0 questions; where on none (1 of 1 settings)"),
    (benchmark(0.0, significant=False), "Highest, by however little: NLL in 1 (paper)."),
    (benchmark(-0.05, significant=True), "Highest, by however little: PRO in 1 (paper)."),
]


def test_06_counts_what_is_beyond_chance_and_no_tie():
    redraws = pd.DataFrame({**SETTING, "better_than_nll": [0.25, 0.75]})
    for table, said in COUNTED:
        assert said in concluded("06", table=table, redraws=redraws)
        assert concluded("06", table=table, redraws=redraws, n_rarer=19) == FEW


NAN = float("nan")
REDRAWS = pd.DataFrame({**SETTING, "better_than_nll": [0.25, 0.75]})
# By notebook, tables of which a part is unknown, and what is said instead of the number.
UNKNOWN = {
    "06": (
        {"table": benchmark(0.1, significant=False), "redraws": REDRAWS.assign(better_than_nll=NAN)},
        "The validation questions cannot be redrawn",
    ),
}


@pytest.mark.parametrize("number", UNKNOWN)
def test_no_finding_says_nan(number):
    tables, said = UNKNOWN[number]
    text = concluded(number, **tables)
    assert said in text
    assert "nan" not in re.findall(r"[a-z]+", text.lower())


def test_06_says_redraws_of_the_settings_that_have_some():
    redraws = pd.concat([REDRAWS, REDRAWS.assign(model="other", better_than_nll=NAN)])
    said = concluded("06", table=benchmark(0.1, significant=False), redraws=redraws)
    assert "α beats NLL in 50% to 50% of the redraws." in said


def test_06_names_what_is_worse_than_chance():
    table = benchmark(0.1, significant=False)
    table.loc[table["method"] == "NLL", "high"] = 0.49
    said = concluded("06", table=table, redraws=REDRAWS)
    assert said.endswith("Worse than chance, with the whole interval below 0.5: NLL in 1.")
    assert "Worse than chance" not in concluded("06", table=benchmark(0.1, significant=False), redraws=REDRAWS)
