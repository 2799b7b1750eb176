"""Test that questions with the same text are found, counted and kept in one split."""

import warnings

import pytest

from pro_lib import importing
from pro_lib.importing.records import split_records
from pro_lib.questions.question_sets import load_questions
from pro_lib.questions.repeats import count_shared_texts, one_per_text, text_groups

SPELLINGS = (
    "Who wrote book {}?",
    "who wrote  book {}",
    "Who wrote book {} ?",
    "WHO WROTE BOOK {}.",
    "who wrote book {}",
)


def copies(n_texts, *, n_copies=5, **columns):
    """Rows with five spellings of each of so many questions, each row under an id of its own."""
    return [
        {
            "question_id": f"q{copy}-{text}",
            "question": SPELLINGS[copy].format(text),
            "references": ["x"],
            **columns,
        }
        for copy in range(n_copies)
        for text in range(n_texts)
    ]


def text_of(question_id):
    return question_id.split("-")[1]


def test_case_spaces_and_the_last_question_mark_do_not_matter_and_other_signs_do():
    texts = [
        "Who wrote Emma?",
        " who wrote\tEmma",
        "What is 5?",
        "What is -5?",
        "What is C?",
        "What is C#?",
        "?",
        "!",
    ]
    assert text_groups(texts).tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


def test_questions_without_a_text_are_like_no_other():
    assert text_groups([None, "a", float("nan"), "a", None]).tolist() == [0, 1, 2, 1, 3]


def test_one_question_of_each_text_is_drawn_by_the_seed_alone():
    texts = [text_of(row["question_id"]) for row in copies(12)]
    drawn = [one_per_text(texts, seed=seed) for seed in (0, 0, 1)]
    assert [sorted(texts[row] for row in rows) for rows in drawn] == [sorted(set(texts))] * 3
    assert drawn[0].tolist() == drawn[1].tolist() != drawn[2].tolist()
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
        run = importing.from_records([row | {"answers": answers} for row in copies(12)])
    split = split_records(run, n_validation=None)
    assert count_shared_texts(split.questions) == 0
    assert set(split.questions["split"]) == {"validation", "test"}


def test_texts_that_the_splits_of_a_file_share_are_counted_in_a_warning():
    rows = copies(12, n_copies=1, split="validation") + [
        row | {"question_id": f"t{n}", "split": "test"}
        for n, row in enumerate(copies(13, n_copies=1))
    ]
    with pytest.warns(UserWarning, match="12 texts are in more than one split"):
        load_questions(path=rows, split=None, n_shots=0)


def test_questions_without_repeats_are_read_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_questions(path=copies(30, n_copies=1), split=None, n_shots=0)


def test_a_shot_is_not_asked_in_another_spelling():
    with pytest.warns(UserWarning, match="repeat the text"):
        asked = load_questions(path=copies(12, n_copies=2), split=None, n_shots=3)
    shots = {text_groups([shot, *asked.table["question"]])[0] in text_groups([shot,
        *asked.table["question"]])[1:]
             for shot, _ in asked.shots}  # fmt: skip
    assert shots == {False}
