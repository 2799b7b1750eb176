"""The paper's printed numbers: complete, consistent, and as data/paper/README.md describes."""

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from hypothesis import example, given
from hypothesis import strategies as st

from pro_lib import scoring

PAPER = ROOT / "data" / "paper"


def read(name):
    return pd.read_csv(PAPER / f"{name}.csv", dtype={"k": "Int64"})


NAMES = read("settings").groupby("kind")["name"].unique()
PRINTED = read("main_table_printed").set_index("method")
CELLS = read("main_table").pivot_table(index=["dataset", "model"], columns="method", values="auroc")
CELLS = CELLS[PRINTED.index].reindex(pd.MultiIndex.from_product([NAMES["dataset"], NAMES["model"]]))
ALPHAS = read("alpha_per_setting").set_index(["dataset", "model"])["alpha"].reindex(CELLS.index)
THRESHOLDS = read("rouge_thresholds").pivot_table(
    index="method", columns="threshold", values="auroc"
)
FIXED = read("fixed_k").pivot_table(index="model", columns="k", values="auroc")
ADAPTIVE = read("fixed_k").query("selection == 'adaptive'").set_index("model")["auroc"]


def test_the_files_are_whole_and_those_the_readme_names():
    readme = (PAPER / "README.md").read_text()
    for path in PAPER.glob("*.csv"):
        table = read(path.stem)
        assert not table.duplicated(
            subset=[c for c in table if c not in ("auroc", "average", "pro")]
        ).any()
        line = next(line for line in readme.splitlines() if line.startswith(f"| `{path.name}`"))
        assert line.endswith(f"| {len(table)} |")
    assert (CELLS.shape, THRESHOLDS.shape) == ((15, 8), (8, 5))
    assert all(
        table.notna().all(axis=None) for table in (CELLS, THRESHOLDS, ALPHAS, FIXED, ADAPTIVE)
    )


def test_all_printed_averages_and_best_counts_are_those_of_the_cells():
    # Three digits, halves upwards, as one rounds by hand; the cells are whole thousandths.
    rounded = np.floor(CELLS.mean() * 1000 + 0.5 + 1e-6) / 1000
    np.testing.assert_allclose(rounded, PRINTED["average"], rtol=0, atol=1e-9)
    best = CELLS.eq(CELLS.max(axis=1), axis=0)  # ties count for everyone
    assert best.sum().to_dict() == PRINTED["best_count"].to_dict()
    shared = best[best["PRO"] & (best.sum(axis=1) > 1)]
    assert shared.index.tolist() == [("TriviaQA", "Falcon-40B"), ("SciQ", "Falcon-40B")]
    assert shared["NLL"].all()


def test_the_tables_agree_with_one_another():
    of_trivia_qa = CELLS.loc["TriviaQA"].loc[FIXED.index]
    assert FIXED.columns.tolist() == list(range(1, 11))
    assert FIXED[1].tolist() == of_trivia_qa["NLL"].tolist()
    assert ADAPTIVE[FIXED.index].tolist() == of_trivia_qa["PRO"].tolist()
    assert THRESHOLDS[0.3].to_dict() == CELLS.loc[("SciQ", "Gemma-7B")].to_dict()


@given(st.lists(st.integers(1, 64), min_size=1, max_size=6), st.sampled_from([0.5, 0.6, 0.95, 1.0]))
@example([1, 1], 0.5)
@example([3, 1], 0.5)
def test_with_distinct_complete_answers_pro_is_nll_from_a_half_on(weights, alpha):
    log_probs = np.log(np.sort(weights)[None, ::-1] / np.sum(weights))
    assert scoring.pro(log_probs, alpha=alpha).item() == pytest.approx(
        scoring.nll(log_probs).item(), abs=1e-12
    )
