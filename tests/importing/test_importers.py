"""Records and responses in memory and in files, field by field.

Every response format as a whole is in test_response_formats.py."""

import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from test_damaged_input import choice, vllm_output
from test_response_formats import as_objects
from test_run import means, records_run

from pro_lib.common.files import RunError
from pro_lib.importing.importers import from_openai, from_vllm, import_answers
from pro_lib.importing.records import from_records
from pro_lib.importing.response_formats import RESPONSE_FORMATS

PARIS_ANSWER = {
    "text": "Paris",
    "token_ids": [5, 6],
    "token_log_probs": [-0.25, -0.5],
    "log_prob": -0.75,
}
PARIS_ANSWER |= {"end_log_prob": -0.25, "mean_log_prob": -0.3, "rouge_l": 1.0, "correct": True}
LYON_ANSWER = {
    "text": "Lyon",
    "log_prob": -3,
    "end_log_prob": -1,
    "correct": False,
    "finished": False,
}
FULL = {
    "question_id": "q1",
    "question": "Capital of France?",
    "references": ["Paris"],
    "split": "test",
}


def record(*answers, **fields):
    return {"question_id": "q1", "answers": list(answers), **fields}


def test_every_field_is_kept(write):
    run = from_records(write(FULL | {"answers": [PARIS_ANSWER, LYON_ANSWER]}))
    assert (run.questions.to_dict("records"), run.name) == ([FULL], "answers/records/records")
    paris, lyon = run.answers.to_dict("records")
    assert paris == PARIS_ANSWER | {
        "question_id": "q1",
        "rank": 0,
        "finished": True,
        "closed": False,
    }
    assert lyon.items() >= (LYON_ANSWER | {"rank": 1, "token_ids": None}).items()
    assert math.isnan(lyon["rouge_l"])


def test_a_line_without_more_than_it_must_have(write):
    run = from_records(
        write({"question_id": 7, "references": "Paris", "answers": [{"log_prob": -1.5}]}, record())
    )
    nothing = {"question": None, "split": None}
    expected = [
        {"question_id": "7", "references": ["Paris"]},
        {"question_id": "q1", "references": None},
    ]
    assert run.questions.to_dict("records") == [row | nothing for row in expected]
    assert run.answers["question_id"].tolist() == ["7"]
    assert not {"mean_log_prob", "rouge_l", "correct"} & set(run.answers)
    # That of the complete answer
    np.testing.assert_array_equal(run.log_probs(), [[-1.5], [np.nan]])


LOG_PROBS = [
    ([{"log_prob": -1.5}, {"log_prob": -0.5}], [-0.5, -1.5]),
    (
        [{"token_log_probs": [-0.5, -0.25, -1]}, {"token_log_probs": [-2], "end_log_prob": -1}],
        [-1.75, -3.0],
    ),
    # As probable as its ending
    (
        [{"text": "", "token_log_probs": [], "end_log_prob": -0.5}],
        [-0.5],
    ),
    ([{"logprob": -1, "text": "x"}, {"cumulative_logprob": -2}], [-1.0, -2.0]),  # as in CSV
    ([{"log_prob": 5e-5, "end_log_prob": 1e-6}], [0.0]),  # rounding above zero is trimmed
    (
        [{"log_prob": -1}, {"log_prob": -2}, {"log_prob": -2}, {"log_prob": -3, "text": "x"}],
        [-1.0, -2.0, -3.0],
    ),
]


@pytest.mark.parametrize(("answers", "log_probs"), LOG_PROBS)
def test_log_probabilities_of_an_answer_are_taken_or_summed(answers, log_probs):
    np.testing.assert_array_equal(records_run(*answers).log_probs(), [log_probs])


def test_means_are_given_or_those_of_the_tokens_where_there_are_any():
    answers = [{"log_prob": -1, "mean_log_prob": -0.4}, {"token_log_probs": [-0.5, -0.25, -1]}]
    answers += [{"token_log_probs": [-2], "end_log_prob": -1}, {"log_prob": -5}]
    np.testing.assert_array_equal(means(records_run(*answers)), [[-0.4, -1.75 / 3, -1.5, np.nan]])


def response(*choices, identity="chatcmpl-1"):
    return {"id": identity, "choices": list(choices)}


PARIS = (("Par", -0.25), ("is", -0.5))
ANSWERED = response(choice("Paris", *PARIS), identity="good")


def test_every_token_returned_counts_and_an_ending_that_is_not_is_missing(write):
    lyon = choice("Lyon", ("Lyon", -2.0), ("<|eot|>", -0.125))
    cut = choice("Nan", ("Nan", -0.125), finish_reason="length")
    run = from_openai(write(response(choice("Paris", *PARIS), lyon, cut)))
    assert run.answers["token_log_probs"].tolist() == [[-0.25, -0.5], [-2.0, -0.125], [-0.125]]
    np.testing.assert_array_equal(run.answers["end_log_prob"], [np.nan, np.nan, 0.0])
    np.testing.assert_array_equal(run.log_probs(), [[-0.75, -2.125]])
    np.testing.assert_array_equal(means(run), [[-0.375, -2.125 / 2]])
    assert run.name == "answers/openai/openai"
    with pytest.raises(RunError, match="has no separate log-probability for the endings"):
        run.log_probs(convention="answer_tokens")


def request(*outputs):
    return {
        "request_id": "0",
        "prompt": "Question: Capital?\nAnswer:",
        "outputs": list(outputs),
        "finished": True,
    }


TOKENS = ((5, " Par", -0.25), (6, "is", -0.5))
END = (2, "</s>", -0.125)
ENDED = vllm_output("a", (2, "a", -0.125))
VLLM = [
    vllm_output(" Paris", *TOKENS, END),
    # A stop string was removed from the text
    vllm_output(" Paris", *TOKENS, (13, "\n", -0.125), (14, "Q:", -1.0)),
    vllm_output("", END),
]


@pytest.mark.parametrize("output", VLLM)
def test_everything_generated_counts_in_whatever_form_it_comes(write, output):
    record = request(output)
    served = as_objects(
        request(output | {"token_ids": np.array(output["token_ids"])}), SimpleNamespace
    )
    question = {"question_id": "0", "question": record["prompt"], "references": None, "split": None}
    steps = zip(output["logprobs"], output["token_ids"], strict=True)
    log_probs = [step[str(token)]["logprob"] for step, token in steps]
    for source in ([served], write(record), write(json.dumps([record]), name="list.json")):
        run = from_vllm(source)
        assert run.answers["token_log_probs"].tolist() == [log_probs]
        assert run.answers["end_log_prob"].isna().all()
        np.testing.assert_array_equal(run.log_probs(), [[output["cumulative_logprob"]]])
        assert run.questions.to_dict("records") == [question]


@pytest.mark.parametrize("lost", [{}, {"logprobs": None}])
def test_an_output_that_was_cut_keeps_all_its_tokens_and_equal_answers_count_once(lost):
    run = from_vllm(
        [request(ENDED, vllm_output(" Paris", *TOKENS, finish_reason="length", **lost), ENDED)]
    )
    assert run.answers[["log_prob", "end_log_prob", "finished"]].iloc[1].tolist() == [
        -0.75,
        0.0,
        False,
    ]
    np.testing.assert_array_equal(run.log_probs(), [[-0.125]])
    assert (run.log_probs(distinct=False).shape, run.name) == ((1, 2), "responses/vllm/vllm")


def test_records_in_memory_are_read_as_a_file_of_them(write):
    first = {"log_prob": -0.5, "text": "a", "token_ids": [3]}
    second = {"token_log_probs": [-1.0, -2.0], "end_log_prob": -0.25}
    records = [
        {"question_id": 1, "question": "A?", "references": ["a"], "answers": [first, second]}
    ]
    records += [{"question_id": "b", "answers": [first]}]
    expected = from_records(write(*records))
    numbers = [
        {"log_prob": np.float32(-0.5), "token_ids": np.array([3])},
        {"token_log_probs": np.array([-1.0, -2.0])},
    ]
    in_numpy = records[0] | {"answers": [first | numbers[0], second | numbers[1]]}
    flat = pd.DataFrame(
        [record | answer for record in records for answer in record["answers"]]
    ).drop(columns="answers")
    for source in (records, [in_numpy, records[1]], pd.DataFrame(records), flat):
        run = from_records(source)
        pd.testing.assert_frame_equal(run.answers, expected.answers)
        pd.testing.assert_frame_equal(run.questions, expected.questions)
        assert run.name == "records/records/records"


GOOD = {"question_id": "good", "answers": [{"log_prob": -1}]}
KNOWN = ", ".join(response_format.name for response_format in RESPONSE_FORMATS)
# By reader: a good line, and bad ones with the field that is named.
REFUSED = {
    from_records: (GOOD, [
        ("[" * 100_000, "must be JSON"),
        ("[1]", "1] should be a valid dictionary"),
        ({"question_id": "a"}, "answers is missing"),
        (GOOD, "question_id 'good' was already used"),
        (record({"log_prob": -1}, {}), "answers[1].log_prob=None"),
        (record({"token_log_probs": []}), "answers[0].log_prob=None"),  # else of probability 1
        (record({"token_log_probs": [-3, 0.5]}), "token_log_probs[1]=0.5"),
        (record({"token_log_probs": [-1e308, -1e308]}), "log_prob=-inf"),
        (record({"log_prob": -(10**400)}), "log_prob=-1000"),
        (record({"log_prob": -1, "rouge_l": 55}), "rouge_l=55"),
    ]),
    from_openai: (ANSWERED, [
        (response(choice("a", logprobs=None)), "logprobs"),
        (response(choice("a", ("a", -1.0), finish_reason=None)), "finish_reason"),
        (response({"index": 0, **choice("a"), "logprobs": {"content": [{"logprob": None}]}}),
            "log_probs[0]=None"),
        ({"question_id": "a", "answers": []},
            f"unrecognized response format; supported are {KNOWN}"),
    ]),
    from_vllm: (request(ENDED), [
        (request(ENDED | {"token_ids": [3]}), "log_probs[0]=None"),
        (request(ENDED | {"token_ids": [2, 2]}), "log_probs[0]=None"),
        (request(vllm_output("a", (2, "a", -math.inf))), "log_probs[0]=-inf"),
    ]),
}  # fmt: skip
CASES = [(read, good, *bad) for read, (good, lines) in REFUSED.items() for bad in lines]


@pytest.mark.parametrize(("read", "good", "line", "words"), CASES)
def test_a_malformed_line_is_refused_with_its_place_and_field_if_read_strictly(
    write, read, good, line, words
):
    path = write(good, "", line)
    with pytest.raises(RunError, match=re.escape(words)) as caught:
        read(path, strict=True)
    assert str(caught.value).startswith(f"{path}, line 3")
    if isinstance(line, dict):
        with pytest.raises(RunError, match=re.escape(words)) as caught:
            read([good, line], strict=True)
        assert str(caught.value).startswith("entry 2")


@pytest.mark.parametrize(
    ("read", "good", "line", "words"), [case for case in CASES if case[1] is not case[2]]
)
def test_a_malformed_line_is_left_out_counted_and_named_with_the_reason(
    write, read, good, line, words
):
    path = write(good, "", line)
    with pytest.warns(UserWarning, match=r"^1 answers .* are left out: line 3") as caught:
        run = read(path)
    assert run.log_probs()[0, 0] == read([good]).log_probs()[0, 0]
    if "cannot be read" in str(caught[0].message):
        assert words in str(caught[0].message)
    if line != "[1]" and (
        isinstance(line, str) or len(line.get("answers", ())) < 2
    ):  # else something is left
        with pytest.raises(RunError, match=re.escape(words)) as error:
            read(write(line))
        assert str(error.value).startswith(f"{path}, ")


@pytest.mark.parametrize("source", [None, 5, b"x", {}, [5], [None], ["text"], []])
def test_what_is_no_list_of_outputs_is_refused(source):
    with pytest.raises(
        RunError,
        match=r"a value of type .* is unsupported|unrecognized response format|contains no answers",
    ):
        from_vllm(source)


def test_half_a_character_is_named():
    with pytest.raises(
        RunError, match=r"^entry 1, choice 0: text='.ud800' should be a valid string"
    ):
        from_vllm([request(vllm_output("\ud800", END))])


def test_questions_may_be_a_file_whose_rows_are_all_read(tmp_path):
    rows = [
        {"question_id": n, "question": f"Q{n}?", "references": [f"A{n}"], "split": "train_shots"}
        for n in range(3)
    ]
    answers = [
        {"question_id": n, "answers": [{"text": f"A{n}", "log_prob": -0.1}]} for n in range(3)
    ]
    questions, records = tmp_path / "questions.jsonl", tmp_path / "records.jsonl"
    for path, lines in ((questions, rows), (records, answers)):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for given in (questions, str(questions)):
        run = import_answers(records, questions=given)
        assert run.questions["question"].tolist() == ["Q0?", "Q1?", "Q2?"]
        assert run.questions["references"].tolist() == [["A0"], ["A1"], ["A2"]]


QUESTION_FILES = {
    "questions.csv": "question,references\n0?,Paris\n",
    "questions.jsonl": '{"question": "0?", "answer": "Paris"}',
    "lists.jsonl": '{"question": "0?", "answers": ["Paris"]}',
    "squad.json": '{"data": [{"question": "0?", "answers": {"text": ["Paris"]}}]}',
}


@pytest.mark.parametrize("name", QUESTION_FILES)
def test_a_question_file_in_the_place_of_answers_is_named(name, tmp_path):
    (tmp_path / name).write_text(QUESTION_FILES[name])
    words = f"{name} is a question file: .* pro generate MODEL STRATEGY --dataset .*--questions"
    with pytest.raises(RunError, match=words):
        import_answers(tmp_path / name)


NO_QUESTION_FILES = {
    "log_prob=1 must be": {"answers": [{"text": "Paris", "log_prob": 1}]},
    "logprobs are missing": {"response": {"choices": [{"text": "Paris", "finish_reason": "stop"}]}},
}


@pytest.mark.parametrize("words", NO_QUESTION_FILES)
def test_a_file_of_damaged_answers_is_not_called_a_question_file(words, tmp_path):
    entry = {"question": "0?", "references": ["Paris"], **NO_QUESTION_FILES[words]}
    (tmp_path / "answers.jsonl").write_text(json.dumps(entry))
    with pytest.raises(RunError, match=words):
        import_answers(tmp_path / "answers.jsonl")
