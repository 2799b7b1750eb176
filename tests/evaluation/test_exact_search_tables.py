"""The tables of exact search, on searches whose trees are worked by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pro_lib import metrics, scoring
from pro_lib.evaluation import tables
from pro_lib.runs.run import Run
from pro_lib.runs.storage import Cost, RunInfo

# The first question has answers of probability 0.5 and 0.3, the second 0.35 and 0.25. Each answer
# is one token that ends surely, and four further tokens share the rest.
PROBABILITIES = {"q0": {"a": 0.5, "b": 0.3}, "q1": {"c": 0.35, "d": 0.25}}
IDS = {text: (number,) for number, text in enumerate("abcd")}


def entropy(events):
    return float(-np.sum(events * np.log(events)))


ROOT_ENTROPY = {
    "q0": entropy(np.array([0.5, 0.3, *[0.05] * 4])),
    "q1": entropy(np.array([0.35, 0.25, *[0.1] * 4])),
}


def run_of(found, strategy, *, parameters=None, forwards=0, **columns):
    """A run with these answers of each question, by question id."""
    answers = []
    for question_id, texts in found.items():
        base = question_id.split("-")[0]
        for rank, text in enumerate(texts):
            log_prob = float(np.log(PROBABILITIES[base][text]))
            row = {"question_id": question_id, "rank": rank, "text": text, "token_ids": IDS[text]}
            row |= {"token_log_probs": (log_prob,), "log_prob": log_prob, "end_log_prob": 0.0}
            answers.append(row | {"finished": True, "path_entropy": 1.4 + 0.2 * rank})
    questions = pd.DataFrame(
        {"question_id": list(found), "question": [f"{each}?" for each in found]}
    )
    questions = questions.assign(references=[("a", "c")] * len(found), split="test", **columns)
    info = RunInfo(
        "d", "m", strategy, parameters or {}, {}, len(found), Cost(token_forwards=forwards)
    )
    return Run(pd.DataFrame(answers), questions, info)


def search_runs(ids=("q0", "q1")):
    """Return runs of these questions.

    A question id may have a suffix, so that there are several of each kind.
    """
    trees = {"tree_log_probs": [], "tree_entropies": [], "tree_greedy": []}
    bases = [each.split("-")[0] for each in ids]
    for base in bases:
        trees["tree_log_probs"].append([0.0, *np.log(list(PROBABILITIES[base].values()))])
        trees["tree_entropies"].append([ROOT_ENTROPY[base], 0.0, 0.0])
        trees["tree_greedy"].append([1, 1, 0])
    every = {each: list(PROBABILITIES[base]) for each, base in zip(ids, bases, strict=True)}
    of_beams = {
        each: texts[:1] if each.startswith("q0") else texts for each, texts in every.items()
    }
    first = {each: texts[:1] for each, texts in every.items()}
    alpha = {"search_alpha": 0.2}
    search = run_of(every, "threshold", parameters=alpha, **alpha, **trees)
    beams = run_of(of_beams, "diverse_beam", forwards=12 * len(ids))
    greedy = run_of(first, "greedy", forwards=2 * len(ids))
    samples = run_of(every, "multinomial")
    return tables.SearchRuns(search, beams, greedy, samples)


@pytest.fixture(scope="module")
def found():
    return tables.exact_search([search_runs()]).set_index("alpha")


def test_a_smaller_alpha_certifies_both_questions(found):
    assert found.index.tolist() == [0.4, 0.2]
    assert found["share_certified"].tolist() == [0.5, 1.0]
    assert found["share_fallback"].tolist() == [0.5, 0.0]
    assert found["share_undecided"].tolist() == [0.0, 0.0]
    assert found["mean_answers"].tolist() == [0.5, 2.0]
    np.testing.assert_allclose(found["found_mass"], [0.5 / 2, (0.8 + 0.6) / 2])


def test_the_cost_counts_the_prefixes_that_a_search_at_this_alpha_expands(found):
    # At 0.4 each question expands the root and the greedy answer, at 0.2 both answers.
    assert found["expanded_prefixes"].tolist() == [2, 3]
    assert found["token_forwards"].tolist() == [1, 2]
    assert found["beam_forwards"].tolist() == [12, 12]
    assert found["greedy_forwards"].tolist() == [2, 2]


def test_recall_is_of_the_answers_that_reach_alpha(found):
    # Beams miss the answer of probability 0.3 to the first question.
    assert found["n_recalled"].tolist() == [1, 3]
    assert found["recall"].tolist() == [1.0, 0.75]
    assert found["n_with_answers"].tolist() == [1, 2]
    assert found["share_all_recalled"].tolist() == [1.0, 0.5]


def test_an_open_prefix_leaves_the_question_undecided():
    runs = search_runs()
    is_open = runs.search.answers["text"] == "b"
    answers = runs.search.answers.assign(finished=~is_open)
    table = tables.exact_search([replace(runs, search=replace(runs.search, answers=answers))])
    assert table["share_undecided"].tolist() == [0.0, 0.5]
    assert table["share_certified"].tolist() == [0.5, 0.5]


def test_bounds_are_means_over_certified_questions():
    table = tables.entropy_bounds([search_runs()]).set_index("alpha")
    assert table["n_certified"].tolist() == [1, 2]
    assert table["n_ordered"].tolist() == [1, 2]
    single = table.loc[0.4]
    assert single["pro"] == pytest.approx(-np.log(0.5))
    assert single["alpha_floor"] == pytest.approx(-0.5 * np.log(0.5) - 0.5 * np.log(0.4))
    assert single["tree_bound"] == pytest.approx(ROOT_ENTROPY["q0"])
    assert single["entropy"] == pytest.approx((1.4 + 1.6) / 2)
    assert single["entropy_minus_tree_bound"] == pytest.approx(1.5 - ROOT_ENTROPY["q0"])
    assert np.isnan(single["entropy_low"])
    both = table.loc[0.2]
    assert both["tree_bound"] == pytest.approx(np.mean(list(ROOT_ENTROPY.values())))
    # The two differences are d0 and d1; the standard error of their mean is |d0 - d1| / 2 /
    # sqrt(2).
    differences = 1.5 - np.array(list(ROOT_ENTROPY.values()))
    half = 1.959964 * abs(differences[0] - differences[1]) / 2 / np.sqrt(2)
    assert both["entropy_minus_tree_bound_low"] == pytest.approx(
        differences.mean() - half, rel=1e-5
    )
    assert both["entropy_minus_tree_bound_high"] == pytest.approx(
        differences.mean() + half, rel=1e-5
    )


def test_a_violated_order_is_counted():
    runs = search_runs()
    no_entropy = [[0.0, 0.0, 0.0]] * 2
    broken = replace(runs.search, questions=runs.search.questions.assign(tree_entropies=no_entropy))
    table = tables.entropy_bounds([replace(runs, search=broken)])
    assert table["n_certified"].tolist() == [1, 2]
    assert table["n_ordered"].tolist() == [0, 0]


def judged_runs(n=24):
    """As many validation as test questions of both kinds, of which half are right."""
    ids = [f"q{number % 2}-{number}" for number in range(n)]
    runs = search_runs(ids)
    splits = ["validation" if number < n // 2 else "test" for number in range(n)]
    references = [("a", "c") if number % 4 < 2 else ("x",) for number in range(n)]
    parts = {}
    for name in ("search", "beams", "greedy", "samples"):
        run = getattr(runs, name)
        questions = run.questions.assign(split=splits, references=references)
        parts[name] = replace(run, questions=questions)
    return tables.SearchRuns(**parts)


def test_auroc_has_a_row_for_each_score_and_says_which_answers_it_uses():
    table = tables.exact_search_auroc([judged_runs()], n_validation=None)
    names = table[["method", "strategy", "alpha_choice"]].fillna("")
    assert list(names.itertuples(index=False, name=None)) == [
        ("PRO", "threshold", "validation"),
        ("PRO", "diverse_beam", "validation"),
        ("α-floor", "threshold", "validation"),
        ("tree bound", "threshold", "validation"),
        ("probability not found", "threshold", "validation"),
        ("NLL", "threshold", ""),
        ("ALL", "threshold", ""),
        ("PRO", "diverse_beam", "exact search"),
    ]
    assert table["n_questions"].tolist() == [12] * 8
    assert table["n_correct"].tolist() == [6] * 8
    assert table["alpha"].iloc[7] == table["alpha"].iloc[0]
    assert table["alpha"].isna().tolist() == [False] * 5 + [True, True, False]


def test_differences_are_paired_and_to_pro_of_the_exact_search():
    table = tables.exact_search_auroc([judged_runs()], n_validation=None)
    correct = np.array([number % 4 < 2 for number in range(12, 24)])
    of_search = np.log([[0.5, 0.3], [0.35, 0.25]] * 6)
    of_beams = np.log([[0.5, np.nan], [0.35, 0.25]] * 6)
    alpha = table["alpha"].iloc[0]
    exact = scoring.pro(of_search, alpha=alpha, search_alpha=0.2)
    same = scoring.pro(of_beams, alpha=alpha)
    assert table["auroc"].iloc[0] == metrics.auroc(exact, correct)
    assert table["auroc"].iloc[7] == metrics.auroc(same, correct)
    tests = metrics.delong(np.column_stack([exact, same]), correct)
    low, high = tests.low, tests.high
    columns = ["auroc_minus_pro", "auroc_minus_pro_low", "auroc_minus_pro_high", "p_value"]
    expected = [tests.difference[1], low[1], high[1], tests.p_value[1]]
    assert table.loc[7, columns].tolist() == expected
    assert table["n_differ"].iloc[0] == 0
    assert table["n_differ"].iloc[7] == (exact != same).sum()
