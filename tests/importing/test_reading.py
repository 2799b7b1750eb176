"""Read the small files of tests/data, whose expected values stand beside them."""

import json
import math
import warnings

import pytest
from conftest import ROOT

from pro_lib.importing import import_answers
from pro_lib.questions.question_sets import load_questions

ANSWERS = ROOT / "tests" / "data" / "answers"
QUESTIONS = ROOT / "tests" / "data" / "questions"
EXPECTED_ANSWERS = json.loads((ANSWERS / "expected.json").read_text(encoding="utf-8"))
EXPECTED_QUESTIONS = json.loads((QUESTIONS / "expected.json").read_text(encoding="utf-8"))


def known(value):
    """A value of a table, None if it is missing."""
    is_missing = isinstance(value, float) and math.isnan(value)
    return None if is_missing else value


def answer_rows(run):
    columns = ["question_id", "text", "log_prob", "finished"]
    columns += ["correct"] * ("correct" in run.answers)
    rows = run.answers[columns].astype(object).to_numpy().tolist()
    return [[known(value) for value in row] for row in rows]


def question_rows(table, columns):
    return [[known(value) for value in row] for row in table[columns].to_numpy(object).tolist()]


def attempt(read, folder):
    """What a reader returns or its error, and its messages, without the names of folders."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result, error = read(), None
        except ValueError as problem:
            result, error = None, str(problem).replace(f"{folder}/", "")
    return result, error, [str(each.message).replace(f"{folder}/", "") for each in caught]


@pytest.mark.parametrize("name", EXPECTED_ANSWERS)
def test_a_file_of_answers_is_read_as_expected(name):
    expected = EXPECTED_ANSWERS[name]
    options = dict(expected.get("options", {}))
    if "questions" in expected:
        options["questions"] = ANSWERS / expected["questions"]
    run, error, messages = attempt(
        lambda: import_answers(ANSWERS / expected["file"], **options), ANSWERS
    )
    assert error == expected.get("error")
    assert messages == expected["messages"]
    if run is not None:
        assert answer_rows(run) == [
            [value if column != 2 or value is None else pytest.approx(value) for column, value in
             enumerate(row)] for row in expected["answers"]
        ]  # fmt: skip
        columns = ["question_id", "question", "references"]
        assert question_rows(run.questions, columns) == expected["questions_read"]
        assert (run.unused_answers(), run.info.model) == (expected["reasons"], expected["model"])


@pytest.mark.parametrize("name", EXPECTED_QUESTIONS)
def test_a_file_of_questions_is_read_as_expected(name):
    expected = EXPECTED_QUESTIONS[name]
    questions, error, messages = attempt(
        lambda: load_questions(
            path=QUESTIONS / expected["file"], n_shots=0, **expected.get("options", {})
        ),
        QUESTIONS,
    )
    assert (error, messages) == (expected.get("error"), expected["messages"])
    if questions is not None:
        columns = ["question_id", "question", "references", "split"]
        assert question_rows(questions.table, columns) == expected["questions"]


def test_a_function_makes_questions_of_rows():
    def question(row):
        if row["skip"]:
            return None
        return {"question": row["q"], "references": [row["a"][row["right"]]]}

    rows = [{"q": f"Q{n}?", "a": ["x", "y"], "right": n, "skip": n > 2} for n in range(4)]
    with pytest.warns(UserWarning, match=r"entry 3: row= raised IndexError.*row= returned None"):
        table = load_questions(path=rows, row=question, n_shots=0).table
    assert table["references"].tolist() == [["x"], ["y"]]
