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


@pytest.mark.parametrize(("gain", "p_value", "won"), [(0.02, 1e-9, 1), (-0.02, 1e-9, 0), (0.02, 0.03, 0)])
def test_08_counts_a_world_once_and_corrects_for_all(gain, p_value, won):
    world = {"accuracy": 0.5, "nll": 0.7, "score": ["K = 2", "K = 5"], "gain": [gain, -0.1], "level": "1"}
    base = pd.DataFrame(world | {"p_value": [p_value, 0.5]})
    other = base.assign(accuracy=0.6, nll=0.6, gain=-0.01, p_value=0.5)
    worlds = [base.assign(panel="sharpness"), base.assign(panel="answers"), other.assign(panel="spellings")]
    causes = pd.DataFrame({"cause": ["as it is"], "gain": [0.0]})
    assert f"In {won} of 2 worlds" in concluded("08", table=pd.concat(worlds, ignore_index=True), causes=causes)


def test_01_says_ranges_of_means():
    rows = {"dataset": ["d", "e"], "model": "m", "answers": [10.0, 8.0], "distinct": [5.0, 4.0], "mass": [0.5, 0.9]}
    table = pd.DataFrame(rows | {"mass_with_repeats": [0.5, 2.0], "kept": [1, 2]})
    said = concluded("01", table=table, experiment=SimpleNamespace(alpha=0.4))
    assert "Of 8.0 to 10.0 answers 4.0 to 5.0 are distinct (means, by setting) and hold 0.50 to 0.90" in said
    assert "more than all the probability for 0% to 100% of the questions" in said


NAN = float("nan")
WORLD = pd.DataFrame({"accuracy": 0.5, "nll": 0.7, "score": ["K = 2"], "gain": 0.1, "p_value": 0.5, "level": "1"})
# By notebook, tables of which a part is unknown, and what is said instead of the number.
UNKNOWN = {
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
