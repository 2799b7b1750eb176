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


@pytest.mark.parametrize(("gain", "p_value", "won"), [(0.02, 1e-9, 1), (-0.02, 1e-9, 0), (0.02, 0.03, 0)])
def test_08_counts_a_world_once_and_corrects_for_all(gain, p_value, won):
    world = {"accuracy": 0.5, "nll": 0.7, "score": ["K = 2", "K = 5"], "gain": [gain, -0.1], "level": "1"}
    base = pd.DataFrame(world | {"p_value": [p_value, 0.5]})
    other = base.assign(accuracy=0.6, nll=0.6, gain=-0.01, p_value=0.5)
    worlds = [base.assign(panel="sharpness"), base.assign(panel="answers"), other.assign(panel="spellings")]
    causes = pd.DataFrame({"cause": ["as it is"], "gain": [0.0]})
    assert f"In {won} of 2 worlds" in concluded("08", table=pd.concat(worlds, ignore_index=True), causes=causes)


@pytest.mark.parametrize(("last", "verb"), [([0.9, 0.8], "stays"), ([0.6, 0.7], "changes")])
def test_05_says_whether_the_order_stays(last, verb):
    rows = {"method": ["PRO", "NLL"] * 2, "threshold": [0.1, 0.1, 0.5, 0.5], "auroc": [0.8, 0.7, *last]}
    sweep = pd.DataFrame({**rows, **SETTING})
    assert f"The order of the methods {verb}" in concluded("05", sweep=sweep)
    assert concluded("05", sweep=sweep, n_rarer=19).endswith("nothing is said.")


NAN = float("nan")
REDRAWS = pd.DataFrame({**SETTING, "better_than_nll": [0.25, 0.75]})
WORLD = pd.DataFrame({"accuracy": 0.5, "nll": 0.7, "score": ["K = 2"], "gain": 0.1, "p_value": 0.5, "level": "1"})
BARS = {"method": ["PRO", "NLL"] * 2, "threshold": [0.1, 0.1, 0.5, 0.5], "auroc": [0.8, 0.8, 0.9, 0.7]}
# By notebook, tables of which a part is unknown, and what is said instead of the number.
UNKNOWN = {
    "06": (
        {"table": benchmark(0.1, significant=False), "redraws": REDRAWS.assign(better_than_nll=NAN)},
        "The validation questions cannot be redrawn",
    ),
    "05": ({"sweep": pd.DataFrame({**BARS, **SETTING})}, "The order of the methods cannot be compared"),
    "08": (
        {"table": WORLD.assign(panel="sharpness"), "causes": pd.DataFrame({"cause": ["none"], "gain": NAN})},
        "no difference is known",
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
