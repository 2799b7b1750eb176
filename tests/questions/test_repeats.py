"""Test that questions with the same text are found, counted and kept in one split."""

import pytest

from pro_lib import import_answers, load_questions
from pro_lib.importing.splits import split_records
from pro_lib.questions.repeats import (
    count_shared_texts,
    normalized_question,
    one_per_text,
    text_groups,
)

SPELLINGS = (
    "Who wrote book {}?",
    "who wrote  book {}",
    "Who wrote book {} ?",
    "WHO WROTE BOOK {}.",
    "who wrote book {}",
)


def copies(n_texts, *, n_copies=5, **columns):
    """Rows with five spellings of each of so many questions, each row under an id of its own."""
    rows = []
    for copy, spelling in enumerate(SPELLINGS[:n_copies]):
        for text in range(n_texts):
            row = {"question_id": f"q{copy}-{text}", "question": spelling.format(text)}
            rows.append(row | {"references": ["x"], **columns})
    return rows


def test_case_spaces_and_the_last_question_mark_do_not_matter_and_other_signs_do():
    texts = ["Who wrote Emma?", " who wrote\tEmma", "5?", "-5?", "C?", "C#?", "?", "!"]
    assert text_groups(texts).tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


def test_questions_without_a_text_are_like_no_other():
    assert text_groups([None, "a", float("nan"), "a", None]).tolist() == [0, 1, 2, 1, 3]


def test_one_question_of_each_text_is_drawn_by_the_seed_alone():
    texts = list("abc") * 5
    first, again, other = (one_per_text(texts, seed=seed).tolist() for seed in (0, 0, 1))
    assert sorted(texts[row] for row in first) == ["a", "b", "c"]
    assert first == again != other
    assert one_per_text(["a", "b", "c"]).tolist() == [0, 1, 2]


def test_equal_texts_stay_in_one_split_of_a_file_that_has_none():
    both = ["validation", "test"]
    with pytest.warns(
        UserWarning, match="of its 60 questions repeat the text of an earlier question"
    ):
        table = load_questions(path=copies(12), split=both, n_shots=0, n_validation=6).table
    assert count_shared_texts(table) == 0
    assert (table["split"] == "validation").sum() == 30


def test_equal_texts_stay_in_one_split_of_records():
    answers = [{"text": "x", "log_prob": -1.0}]
    with pytest.warns(
        UserWarning, match="48 of its 60 questions repeat the text of an earlier question"
    ):
        run = import_answers([row | {"answers": answers} for row in copies(12)])
    split = split_records(run, n_validation=None)
    assert count_shared_texts(split.questions) == 0
    assert set(split.questions["split"]) == {"validation", "test"}


def test_texts_that_the_splits_of_a_file_share_are_counted_in_a_warning():
    rows = copies(12, n_copies=1, split="validation")
    rows += [row | {"question_id": f"t{row['question_id']}", "split": "test"} for row in rows]
    rows.append({"question_id": "other", "question": "?", "references": ["x"], "split": "test"})
    with pytest.warns(UserWarning, match="12 texts are in more than one split"):
        load_questions(path=rows, split=None, n_shots=0)


def test_a_shot_is_not_asked_in_another_spelling():
    with pytest.warns(UserWarning, match="repeat the text"):
        asked = load_questions(path=copies(12, n_copies=2), split=None, n_shots=3)
    shots = {normalized_question(shot) for shot, _ in asked.shots}
    assert not shots & set(map(normalized_question, asked.table["question"]))
