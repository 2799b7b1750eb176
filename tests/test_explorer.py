import numpy as np
import pandas as pd
import pytest

from pro_lib import ask, explorer, qa, scores
from pro_lib.generations import Run
from pro_lib.run_files import Cost, RunInfo


def toy_run():
    answers = pd.DataFrame(
        {
            "question_id": ["a", "a", "a", "b"],
            "rank": [0, 1, 2, 0],
            "text": ["Paris", "Paris", "Lyon", "Emma"],
            "token_ids": [[1], [1], [2, 3], [4]],
            "token_log_probs": [[np.log(0.6)], [np.log(0.6)], [np.log(0.5), np.log(0.4)], [np.log(0.1)]],
            "log_prob": np.log([0.6, 0.6, 0.2, 0.1]),
            "end_log_prob": np.log([0.5, 0.5, 1.0, 1.0]),
            "finished": [True, True, True, True],
        }
    )
    questions = pd.DataFrame(
        {"question_id": ["a", "b"], "question": ["Capital?", "Book?"], "references": [["Paris"], ["Persuasion"]]}
    ).assign(split="test")
    info = RunInfo("toy", "none", "diverse_beam", cost=Cost(10, 30, 5, 2.0, 3 * 2**20))
    return Run(answers, questions, info)


def test_explained_says_what_pro_makes_of_every_answer():
    table = explorer.explained(toy_run(), alpha=0.25)
    assert list(table["text"]) == ["Paris", "Lyon", "Emma"]
    assert list(table["probability"]) == pytest.approx([0.3, 0.2, 0.1])
    assert list(table["kept"]) == [True, False, True]  # nothing of b reaches α, so its likeliest answer stands alone
    assert list(table["correct"]) == [True, False, False]
    pro_2 = -np.log(0.2) - 0.3 * np.log(0.3 / 0.2)
    assert list(table["running_pro"]) == pytest.approx([-np.log(0.3), pro_2, -np.log(0.1)])
    assert list(table["uncertainty"]) == pytest.approx([-np.log(0.3)] * 2 + [-np.log(0.1)])


def test_cost_counts_prompt_and_decoded_tokens_per_second():
    row = explorer.cost_table([toy_run()]).iloc[0]
    assert (row["run"], row["tokens_per_second"], row["peak_memory_mib"]) == ("toy/none/diverse_beam", 20, 3)


def test_found_counts_repeats_and_mass():
    table = explorer.found_table([toy_run()], alpha=0.15)
    assert list(table["answers"]) == [3, 1]
    assert list(table["distinct"]) == [2, 1]
    assert list(table["mass"]) == pytest.approx([0.5, 0.1])
    assert list(table["mass_with_repeats"]) == pytest.approx([0.8, 0.1])
    assert list(table["kept"]) == [2, 1]
    assert list(table["cut"]) == [0, 0]


def test_asking_the_bundled_model(facts_2m):
    questions = qa.load("world-facts", split="validation", limit=1)
    options = {"alpha": 0.4, "questions": questions, "strategy": "diverse_beam"}
    answer = ask(facts_2m, "What is the capital of France?", **options)
    assert answer.text == answer.answers[0].text
    probabilities = np.array([p for _, p in answer.answers])
    assert (np.diff(probabilities) <= 0).all()
    assert probabilities.sum() <= 1 + 1e-6
    assert answer.uncertainty == pytest.approx(scores.pro(np.log(probabilities)[None], alpha=0.4)[0])
    assert answer.kept == max(1, (probabilities >= 0.4).sum())
    assert (answer.status, answer.entropy_bounds) == (None, None)


@pytest.mark.parametrize("question", ["", "  \n", None])
def test_an_empty_question_is_refused(facts_2m, question):
    with pytest.raises(ValueError, match="question is empty"):
        ask(facts_2m, question)


def test_alpha_out_of_range_is_refused(facts_2m):
    with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\]"):
        ask(facts_2m, "What is the capital of France?", alpha=1.5)


def test_answers_that_do_not_end_are_refused_in_a_sentence(facts_2m):
    with pytest.raises(ValueError, match="no answer of facts-2m ended within 1 tokens"):
        ask(facts_2m, "What is the capital of France?", max_new_tokens=1)
