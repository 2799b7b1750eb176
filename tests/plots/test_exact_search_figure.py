"""Test the figure of exact search, on searches whose trees are worked by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from figure_checks import check_figure, finding

from pro_lib.common.validation import SentenceError
from pro_lib.plots import exact_search
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
    return exact_search.SearchRuns(search, beams, greedy, samples)


@pytest.fixture(scope="module")
def found():
    return exact_search.table([search_runs()]).set_index("alpha")


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
    table = exact_search.table([replace(runs, search=replace(runs.search, answers=answers))])
    assert table["share_undecided"].tolist() == [0.0, 0.5]
    assert table["share_certified"].tolist() == [0.5, 0.5]


def test_bounds_are_means_over_certified_questions():
    table = exact_search.bounds([search_runs()]).set_index("alpha")
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
    table = exact_search.bounds([replace(runs, search=broken)])
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
    return exact_search.SearchRuns(**parts)


def invented(settings):
    """Return what a search found, at three αs in each setting."""
    alphas = pd.DataFrame({"alpha": [0.4, 0.1, 0.005]})
    table = settings.merge(alphas, how="cross").assign(n_questions=1000, n_with_answers=400)
    forwards = ("token_forwards", "beam_forwards", "greedy_forwards")
    for number, name in enumerate(("recall", "share_all_recalled", *forwards)):
        table[name] = 0.1 * number + table["alpha"]
    return table


ONE = pd.DataFrame({"dataset": ["world-facts"], "model": "facts-2m"})


def test_it_can_be_read_at_both_widths():
    check_figure(exact_search.draw, invented(ONE), n_panels=1)
    two = pd.DataFrame({"dataset": ["world-facts", "mine"], "model": "facts-2m"})
    check_figure(exact_search.draw, invented(two), n_panels=2)


def test_lines_are_the_shares_that_beams_find():
    table = invented(ONE)
    answers, questions = exact_search.draw(table).axes[0].lines
    np.testing.assert_array_equal(answers.get_xydata(), table[["alpha", "recall"]])
    np.testing.assert_array_equal(questions.get_xydata(), table[["alpha", "share_all_recalled"]])


def test_a_missing_column_is_named():
    table = invented(ONE)
    assert len(exact_search.draw(table.drop(columns=["dataset", "model"])).axes) == 1
    with pytest.raises(SentenceError, match=r"^The table has no column 'recall'; plots.exact_sea"):
        exact_search.draw(table.drop(columns="recall"))


def test_the_caption_says_what_beams_find_and_what_a_search_costs():
    table = invented(ONE)
    caption = exact_search.caption(table.assign(token_forwards=7.2), n_beams=7)
    assert "diverse beam search with 7 beams finds" in caption
    assert finding(caption) == (
        "Beams find 0.5 % of the answers at α = 0.005 and 40.0 % of the answers at α = 0.4. The "
        "search puts 7 tokens per question through the model on average at the smallest α, and "
        "beam search 0 (not drawn)."
    )


def test_the_caption_says_which_setting_has_no_probable_answers():
    table = invented(pd.DataFrame({"dataset": ["world-facts", "mine"], "model": "facts-2m"}))
    is_empty = (table["dataset"] == "mine") & (table["alpha"] == 0.4)
    caption = exact_search.caption(table.assign(recall=table["recall"].mask(is_empty)))
    assert "of the answers at α = 0.4 (there are none for facts-2m on mine)." in caption
