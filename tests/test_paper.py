"""The paper's printed numbers: whole, consistent, and as data/paper/README.md says when computed anew."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pro_lib import scores

PAPER = Path(__file__).resolve().parents[1] / "data" / "paper"
METHODS = ["SD", "SE", "Deg", "NE", "PE", "ALL", "NLL", "PRO"]
DATASETS = ["TriviaQA", "SciQ", "NQ"]
MODELS = ["Gemma-2B", "Gemma-7B", "Llama2-13B", "Falcon-11B", "Falcon-40B"]


def read(name):
    return pd.read_csv(PAPER / f"{name}.csv", dtype={"k": "Int64"})


def main_table():
    cells = read("main_table").pivot_table(index=["dataset", "model"], columns="method", values="auroc")
    return cells[METHODS].reindex(pd.MultiIndex.from_product([DATASETS, MODELS]))


def rounded(values):
    """Three digits, halves upwards, as one rounds by hand; the cells are whole thousandths."""
    return np.floor(values * 1000 + 0.5 + 1e-6) / 1000


@pytest.mark.parametrize(
    ("name", "columns", "rows"),
    [
        ("main_table", "dataset model method auroc", 120),
        ("main_table_printed", "method average best_count", 8),
        ("fixed_k", "dataset model selection k auroc", 33),
        ("alpha_per_setting", "dataset model alpha", 15),
        ("rouge_thresholds", "dataset model method threshold auroc", 40),
        ("appendix_examples", "question truth answer count probability", 21),
        ("appendix_scores", "question selection k alpha pro", 12),
        ("settings", "kind name id", 9),
    ],
)
def test_the_files_are_those_the_readme_names(name, columns, rows):
    table = read(name)
    assert table.columns.tolist() == columns.split()
    assert len(table) == rows
    assert not table.duplicated(subset=[c for c in table if c not in ("auroc", "average", "pro")]).any()
    line = next(line for line in (PAPER / "README.md").read_text().splitlines() if line.startswith(f"| `{name}.csv`"))
    assert line.endswith(f"| {rows} |")


def test_no_file_is_left_unsaid():
    readme = (PAPER / "README.md").read_text()
    assert all(f"`{path.name}`" in readme for path in PAPER.glob("*.csv"))


def test_every_setting_has_every_value():
    table = main_table()
    assert table.shape == (15, 8)
    assert table.notna().all(axis=None)
    assert read("main_table")["auroc"].between(0.45, 0.9).all()
    alphas = read("alpha_per_setting").set_index(["dataset", "model"])["alpha"]
    assert set(alphas.index) == set(table.index)
    thresholds = read("rouge_thresholds").pivot_table(index="method", columns="threshold", values="auroc")
    assert thresholds.notna().all(axis=None)
    assert thresholds.shape == (8, 5)


def test_all_printed_averages_are_those_of_the_cells():
    printed = read("main_table_printed").set_index("method")["average"]
    assert printed.index.tolist() == METHODS
    np.testing.assert_allclose(rounded(main_table().mean()), printed, rtol=0, atol=1e-9)


def test_all_printed_best_counts_come_out_if_ties_count_for_everyone():
    table = main_table()
    best = table.eq(table.max(axis=1), axis=0)
    printed = read("main_table_printed").set_index("method")["best_count"]
    assert best.sum().to_dict() == printed.to_dict()
    assert printed.sum() == 17
    alone = best["PRO"] & (best.sum(axis=1) == 1)
    assert alone.sum() == 9
    assert table.index[best["PRO"] & ~alone].tolist() == [("TriviaQA", "Falcon-40B"), ("SciQ", "Falcon-40B")]
    assert best.loc[best["PRO"] & ~alone, "NLL"].all()


def test_pro_never_falls_below_nll():
    table = main_table()
    assert (table["PRO"] >= table["NLL"]).all()
    equal = table.index[table["PRO"] == table["NLL"]]
    assert equal.tolist() == [("TriviaQA", "Falcon-11B"), ("TriviaQA", "Falcon-40B"), ("SciQ", "Falcon-40B")]
    alphas = read("alpha_per_setting").set_index(["dataset", "model"])["alpha"]
    assert alphas[equal].tolist() == [0.85, 0.65, 0.9]


def test_the_tables_agree_with_one_another():
    table, fixed, thresholds = main_table(), read("fixed_k"), read("rouge_thresholds")
    for model, rows in fixed.groupby("model"):
        assert rows.loc[rows["k"] == 1, "auroc"].item() == table.loc[("TriviaQA", model), "NLL"]
        assert rows.loc[rows["selection"] == "adaptive", "auroc"].item() == table.loc[("TriviaQA", model), "PRO"]
    at_default = thresholds[thresholds["threshold"] == 0.3].set_index("method")["auroc"]
    assert at_default.to_dict() == table.loc[("SciQ", "Gemma-7B")].to_dict()


def test_fixed_k_beats_adaptive_pro_for_one_model():
    fixed = read("fixed_k")
    above, equal = {}, {}
    for model, rows in fixed.groupby("model"):
        adaptive = rows.loc[rows["selection"] == "adaptive", "auroc"].item()
        by_k = rows[rows["selection"] == "fixed"].set_index("k")["auroc"]
        assert by_k.index.tolist() == list(range(1, 11))
        above[model] = by_k[by_k > adaptive].to_dict()
        equal[model] = by_k.index[by_k == adaptive].tolist()
    assert above == {"Gemma-2B": {}, "Gemma-7B": {}, "Llama2-13B": {8: 0.809, 9: 0.803, 10: 0.806}}
    assert equal == {"Gemma-2B": [], "Gemma-7B": [], "Llama2-13B": [7]}


def test_half_of_the_chosen_alphas_lie_in_the_recommended_range():
    alphas = read("alpha_per_setting")["alpha"]
    assert alphas.between(0.3, 0.5).sum() == 8
    assert (alphas == 0.4).sum() == 2
    assert (alphas.min(), alphas.median(), alphas.max()) == (0.05, 0.4, 0.9)


def test_three_settings_with_alpha_of_a_half_or_more_differ_from_nll():
    table, alphas = main_table(), read("alpha_per_setting").set_index(["dataset", "model"])["alpha"]
    gain = (table["PRO"] - table["NLL"]).round(3)[alphas.reindex(table.index) >= 0.5]
    assert len(gain) == 6
    assert gain[gain != 0].to_dict() == {
        ("SciQ", "Gemma-7B"): 0.032,
        ("SciQ", "Falcon-11B"): 0.002,
        ("NQ", "Gemma-2B"): 0.002,
    }
    assert alphas[gain.index[gain != 0]].tolist() == [0.5, 0.8, 0.7]


def test_one_model_on_two_datasets_has_two_thirds_of_the_gain_over_nll():
    gain = main_table()["PRO"] - main_table()["NLL"]
    most = gain.round(3).nlargest(2)
    assert most.to_dict() == {("TriviaQA", "Llama2-13B"): 0.118, ("SciQ", "Llama2-13B"): 0.116}
    assert (round(gain.sum(), 3), round(gain.mean(), 3), round(most.sum() / gain.sum(), 2)) == (0.354, 0.024, 0.66)
    assert round(gain.drop(most.index).mean(), 3) == 0.009


@given(st.lists(st.integers(1, 64), min_size=1, max_size=6), st.sampled_from([0.5, 0.6, 0.95, 1.0]))
@example([1, 1], 0.5)
@example([3, 1], 0.5)
def test_with_distinct_complete_answers_pro_is_nll_from_a_half_on(weights, alpha):
    log_probs = np.log(np.sort(weights)[None, ::-1] / np.sum(weights))
    assert scores.pro(log_probs, alpha=alpha).item() == pytest.approx(scores.nll(log_probs).item(), abs=1e-12)


def test_a_repeat_is_enough_for_pro_to_differ_from_nll_above_a_half():
    with pytest.warns(scores.PremiseWarning):
        assert scores.pro(np.log([[0.9, 0.6, 0.01]]), alpha=0.5).item() != pytest.approx(-np.log(0.9), abs=0.01)


def test_a_weaker_second_answer_adds_more_than_an_equal_one():
    added = []
    for p, q in ((0.4, 0.4), (0.4, 0.1)):
        pro = scores.pro_at_k(np.log([[p, q]]), 2).item()
        assert pro == pytest.approx(-np.log(p) + (1 - p) * np.log(p / q), abs=1e-12)
        added.append(round(pro, 3))
    assert added == [0.916, 1.748]


def test_pro_is_best_at_every_rouge_threshold():
    table = read("rouge_thresholds").pivot_table(index="method", columns="threshold", values="auroc")
    lead = (table.loc["PRO"] - table.drop(index="PRO").max()).round(3)
    assert lead.to_dict() == {0.1: 0.006, 0.2: 0.008, 0.3: 0.022, 0.4: 0.01, 0.5: 0.009}


def appendix_log_probs(question, *, repeats):
    examples = read("appendix_examples")
    rows = examples[examples["question"] == question]
    return np.log(np.sort(np.repeat(rows["probability"], rows["count"] if repeats else 1)))[None, ::-1]


@pytest.mark.filterwarnings("ignore::pro_lib.scores.PremiseWarning")
def test_the_appendix_counts_an_answer_as_often_as_it_was_found():
    printed = read("appendix_scores")
    once = []
    for row in printed.itertuples():
        log_probs = appendix_log_probs(row.question, repeats=True)
        assert log_probs.shape == (1, 10)
        fixed = row.selection == "fixed"
        found = scores.pro_at_k(log_probs, row.k) if fixed else scores.pro(log_probs, alpha=row.alpha)
        assert found.item() == pytest.approx(row.pro, abs=0.005)
        if not fixed:
            distinct = scores.pro(appendix_log_probs(row.question, repeats=False), alpha=row.alpha).item()
            once.append((row.pro, round(distinct, 3)))
    assert once == [(0.404, 1.36), (2.142, 2.209), (2.087, 2.110)]


def test_a_mass_above_one_stands_in_the_appendix():
    masses = {q: np.exp(appendix_log_probs(q, repeats=True)).sum() for q in read("appendix_scores")["question"]}
    assert [round(mass, 3) for mass in masses.values()] == [1.739, 0.797, 0.754]
    with pytest.warns(scores.PremiseWarning, match="sum to more than 1"):
        scores.pro(appendix_log_probs(next(iter(masses)), repeats=True), alpha=0.1)


def test_the_gain_over_sd_on_nq_is_not_what_the_text_says():
    means = main_table().loc["NQ"].mean().round(4)
    assert (means["PRO"], means["SD"], means["Deg"]) == (0.6914, 0.6366, 0.6366)
    assert round(means["PRO"] - means["SD"], 3) == 0.055
    assert round(means["PRO"] / means["SD"] - 1, 3) == 0.086  # the text: 6.5 %


def test_gemma_2b_is_ahead_of_gemma_7b_on_nq_only():
    table = main_table()
    lead = (table.xs("Gemma-2B", level=1) - table.xs("Gemma-7B", level=1)).round(3)
    assert lead["PRO"].to_dict() == {"TriviaQA": -0.022, "SciQ": -0.036, "NQ": 0.005}
    assert (lead > 0).sum(axis=1).to_dict() == {"TriviaQA": 1, "SciQ": 1, "NQ": 3}


def test_sd_has_the_higher_average_on_trivia_qa():
    table = main_table().loc["TriviaQA"]
    assert table[["SD", "PRO"]].mean().round(4).to_dict() == {"SD": 0.7796, "PRO": 0.779}
    assert round(table.loc["Llama2-13B", "SD"] - table.loc["Llama2-13B", "PRO"], 3) == 0.06
    others = table.drop(index="Llama2-13B").mean()
    assert others["PRO"] > others["SD"]


def test_every_setting_says_what_it_is_on_the_hub():
    settings = read("settings")
    for kind, names in (("dataset", DATASETS), ("model", MODELS)):
        assert list(dict.fromkeys(settings.loc[settings["kind"] == kind, "name"])) == names
