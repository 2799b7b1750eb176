"""Test answers to questions of other tools' files: rows left out, SQuAD, decimal commas."""

import warnings

import numpy as np
import pytest

from pro_lib.common.files import RunError
from pro_lib.importing import from_records, import_answers

CAPITALS = {"q0": "Paris", "q1": "Lima", "q2": "Gao"}


def response(text, log_prob=-0.5):
    token = {"token": text, "logprob": log_prob, "bytes": list(text.encode())}
    return {
        "choices": [
            {
                "message": {"content": text},
                "logprobs": {"content": [token]},
                "finish_reason": "stop",
            }
        ]
    }


def imported(path, **options):
    """The run of a file of answers, and the warnings about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = import_answers(path, **options)
    return run, [str(warning.message) for warning in caught]


def test_answers_to_questions_that_were_left_out_are_left_out_too(write):
    answers = write(
        *({"question_id": name, "response": response(text)} for name, text in CAPITALS.items())
    )
    rows = [
        {"id": name, "question": f"{name}?", "answers": {"text": [text]}}
        for name, text in CAPITALS.items()
    ]
    rows[1]["answers"]["text"] = []
    questions = write(*rows, name="squad.jsonl")
    run, said = imported(answers, questions=questions)
    assert run.questions["question_id"].tolist() == ["q0", "q2"]
    assert run.answers["text"].tolist() == ["Paris", "Gao"]
    assert len(said) == 2
    assert "1 of 3 rows cannot be used" in said[0]
    assert said[1].endswith("that were left out of the question file are left out too: q1")
    with pytest.raises(
        RunError, match=r"squad\.jsonl: 1 of 3 rows cannot be used: line 2: .* \(strict\)$"
    ):
        import_answers(answers, questions=questions, strict=True)


def test_answers_are_left_out_by_the_text_of_their_question_too(write):
    answers = write(
        *({"question": f"{name}?", "response": response(text)} for name, text in CAPITALS.items())
    )
    rows = [{"Frage": f"{name}?", "Antwort": text} for name, text in CAPITALS.items()]
    rows[2]["Antwort"] = ""
    questions = write(*rows, name="set.jsonl")
    columns = {"question": "Frage", "references": "Antwort"}
    run, said = imported(answers, questions=questions, columns=columns)
    assert len(said) == 2
    assert run.questions["question"].tolist() == ["q0?", "q1?"]


BESIDE = [
    (
        {"answers": {"text": ["Paris", "City of Paris"], "answer_start": [1, 2]}},
        ["Paris", "City of Paris"],
    ),
    ({"answer": {"value": "Paris", "aliases": ["Lutetia"]}}, ["Paris", "Lutetia"]),
    ({"correct_answer": "Paris", "distractor1": "Rome"}, ["Paris"]),
    ({"references": ["Paris"], "answers": {"text": ["Rome"]}}, ["Paris"]),
    # One row does not tell from where places count
    (
        {"answer": 1, "choices": ["Rome", "Paris"]},
        None,
    ),
    ({"answers": {"text": []}}, None),
]


@pytest.mark.parametrize(("columns", "references"), BESIDE)
def test_a_row_of_a_dataset_with_its_response_has_its_references(write, columns, references):
    row = {
        "id": "57",
        "title": "Capitals",
        "question": "Capital of France?",
        **columns,
        "response": response("Paris"),
    }
    run = import_answers(write(row))
    assert run.questions[["question_id", "references"]].to_numpy().tolist() == [["57", references]]
    assert run.answers["text"].tolist() == ["Paris"]


def test_a_table_of_answers_may_have_semicolons_and_decimal_commas(write):
    path = write(
        "\ufeffquestion_id;text;log_prob", "q0;Paris;-0,25", 'q1;"Lima; Peru";-1', name="a.csv"
    )
    with pytest.warns(UserWarning, match="fields separated by ';'"):
        run = from_records(path)
    np.testing.assert_array_equal(run.log_probs(), [[-0.25], [-1.0]])
    assert run.answers["text"].tolist() == ["Paris", "Lima; Peru"]
