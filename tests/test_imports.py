"""Records and responses in memory and in files, field by field; every layout as a whole is in test_layouts.py."""

import json
import math
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import create_model
from test_runs import means

from pro_lib.files import RunError
from pro_lib.imports import from_openai, from_records, from_vllm
from pro_lib.layouts import LAYOUTS

PARIS_ANSWER = {"text": "Paris", "token_ids": [5, 6], "token_log_probs": [-0.25, -0.5], "log_prob": -0.75}
PARIS_ANSWER |= {"end_log_prob": -0.25, "mean_log_prob": -0.3, "rouge_l": 1.0, "correct": True}
LYON_ANSWER = {"text": "Lyon", "log_prob": -3, "end_log_prob": -1, "correct": False, "finished": False}
FULL = {"question_id": "q1", "question": "Capital of France?", "references": ["Paris"], "split": "test"}


@pytest.fixture(scope="module")
def write(tmp_path_factory):
    """Write a records file from objects, texts or bytes, a line each."""
    path = tmp_path_factory.mktemp("records") / "answers.jsonl"

    def file(*lines):
        texts = [json.dumps(line) if isinstance(line, dict) else line for line in lines]
        path.write_bytes(b"\n".join(text.encode() if isinstance(text, str) else text for text in texts))
        return path

    return file


def record(*answers, **fields):
    return {"question_id": "q1", "answers": list(answers), **fields}


def test_every_field_is_kept(write):
    run = from_records(write(FULL | {"answers": [PARIS_ANSWER, LYON_ANSWER]}))
    assert (run.questions.to_dict("records"), run.name) == ([FULL], "answers/records/records")
    paris, lyon = run.answers.to_dict("records")
    assert paris == PARIS_ANSWER | {"question_id": "q1", "rank": 0, "finished": True, "closed": False}
    assert lyon.items() >= (LYON_ANSWER | {"rank": 1, "token_ids": None}).items()
    assert math.isnan(lyon["rouge_l"])


def test_a_line_without_more_than_it_must_have(write):
    run = from_records(write({"question_id": 7, "references": "Paris", "answers": [{"log_prob": -1.5}]}, record()))
    nothing = {"question": None, "split": None}
    expected = [{"question_id": "7", "references": ["Paris"]}, {"question_id": "q1", "references": None}]
    assert run.questions.to_dict("records") == [row | nothing for row in expected]
    assert run.answers["question_id"].tolist() == ["7"]
    assert not {"mean_log_prob", "rouge_l", "correct"} & set(run.answers)
    np.testing.assert_array_equal(run.log_probs(), [[-1.5], [np.nan]])  # that of the complete answer


LOG_PROBS = [
    ([{"log_prob": -1.5}, {"log_prob": -0.5}], [-0.5, -1.5]),
    ([{"token_log_probs": [-0.5, -0.25, -1]}, {"token_log_probs": [-2], "end_log_prob": -1}], [-1.75, -3.0]),
    ([{"text": "", "token_log_probs": [], "end_log_prob": -0.5}], [-0.5]),  # as probable as its ending
    ([{"logprob": -1, "text": "x"}, {"cumulative_logprob": -2}], [-1.0, -2.0]),  # as in CSV
    ([{"log_prob": 5e-5, "end_log_prob": 1e-6}], [0.0]),  # rounding above zero is trimmed
    ([{"log_prob": -1}, {"log_prob": -2}, {"log_prob": -2}, {"log_prob": -3, "text": "x"}], [-1.0, -2.0, -3.0]),
]


@pytest.mark.parametrize(("answers", "log_probs"), LOG_PROBS)
def test_log_probabilities_of_an_answer_are_taken_or_summed(write, answers, log_probs):
    np.testing.assert_array_equal(from_records(write(record(*answers))).log_probs(), [log_probs])


def test_means_are_given_or_those_of_the_tokens_where_there_are_any(write):
    answers = [{"log_prob": -1, "mean_log_prob": -0.4}, {"token_log_probs": [-0.5, -0.25, -1]}]
    answers += [{"token_log_probs": [-2], "end_log_prob": -1}, {"log_prob": -5}]
    np.testing.assert_array_equal(means(from_records(write(record(*answers)))), [[-0.4, -1.75 / 3, -1.5, np.nan]])


def chat(text, *tokens, reason="stop"):
    """A choice of a chat completion; a token is (text, log-probability)."""
    content = [{"token": token, "logprob": value, "top_logprobs": []} for token, value in tokens]
    return {"message": {"content": text}, "logprobs": {"content": content}, "finish_reason": reason}


def response(*choices, identity="chatcmpl-1"):
    return {"id": identity, "choices": list(choices)}


PARIS = (("Par", -0.25), ("is", -0.5))
ANSWERED = response(chat("Paris", *PARIS), identity="good")


def test_every_token_returned_counts_and_an_ending_that_is_not_is_missing(write):
    cut = chat("Nan", ("Nan", -0.125), reason="length")
    run = from_openai(write(response(chat("Paris", *PARIS), chat("Lyon", ("Lyon", -2.0), ("<|eot|>", -0.125)), cut)))
    assert run.answers["token_log_probs"].tolist() == [[-0.25, -0.5], [-2.0, -0.125], [-0.125]]
    np.testing.assert_array_equal(run.answers["end_log_prob"], [np.nan, np.nan, 0.0])
    np.testing.assert_array_equal(run.log_probs(), [[-0.75, -2.125]])
    np.testing.assert_array_equal(means(run), [[-0.375, -2.125 / 2]])
    assert run.name == "answers/openai/openai"
    with pytest.raises(RunError, match="does not say what its endings cost"):
        run.log_probs(convention="answer_tokens")


def test_given_questions_stay_as_they_are_and_have_each_an_id(write):
    questions = pd.DataFrame({"question_id": ["a", "b"], "question": ["A?", "B?"], "level": [1, 2]})
    path = write({"question_id": "b", "response": ANSWERED})
    run = from_openai(path, questions=questions)
    pd.testing.assert_frame_equal(run.questions[[*questions]], questions)
    np.testing.assert_array_equal(run.log_probs(), [[np.nan], [-0.75]])
    for damaged in (questions.assign(question_id="b"), questions.drop(columns="question")):
        with pytest.raises(RunError, match="must have columns question_id and question, and each id once"):
            from_openai(path, questions=damaged)


def test_answers_of_unknown_probability_are_left_out_and_counted(write):
    known, rare, empty = chat("Paris", *PARIS), chat("Zug", ("Z", -0.5), ("ug", -9999.0)), chat("")
    path = write(response(known, rare), response(empty, identity="r2"))
    with pytest.warns(UserWarning, match=r"^2 answers .*line 1, choice 1") as caught:
        run = from_openai(path)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(run.log_probs(), [[-0.75], [np.nan]])
    with pytest.warns(UserWarning, match="left out"), pytest.raises(RunError, match=r"holds no answers.*\(1 questions"):
        from_openai(write(response(rare)))


def vllm_output(text, *tokens, reason="stop"):
    """A CompletionOutput as JSON has it; a token is (id, text, log-probability). Runners-up are there too."""
    other = {"999": {"logprob": -7.5, "decoded_token": "other"}}
    steps = [{str(token): {"logprob": value, "decoded_token": name}} | other for token, name, value in tokens]
    ids, _, values = zip(*tokens, strict=True)
    output = {"text": text, "token_ids": list(ids), "cumulative_logprob": sum(values), "logprobs": steps}
    return output | {"finish_reason": reason, "stop_reason": None}


def request(*outputs):
    return {"request_id": "0", "prompt": "Question: Capital?\nAnswer:", "outputs": list(outputs), "finished": True}


def as_objects(record):
    """The same as vLLM's objects: ids are numbers, entries have attributes, token_ids an array."""
    outputs = []
    for output in record["outputs"]:
        steps = [{int(key): SimpleNamespace(**entry) for key, entry in step.items()} for step in output["logprobs"]]
        outputs.append(SimpleNamespace(**output | {"logprobs": steps, "token_ids": np.array(output["token_ids"])}))
    return SimpleNamespace(**record | {"outputs": outputs})


TOKENS = ((5, " Par", -0.25), (6, "is", -0.5))
END = (2, "</s>", -0.125)
OUTPUT = vllm_output("a", END)
VLLM = [
    vllm_output(" Paris", *TOKENS, END),
    vllm_output(" Paris", *TOKENS, (13, "\n", -0.125), (14, "Q:", -1.0)),  # what a stop string took off the text
    vllm_output("", END),
]


@pytest.mark.parametrize("form", ["objects", "dicts", "lines", "list"])
@pytest.mark.parametrize("output", VLLM)
def test_everything_generated_counts_in_whatever_form_it_comes(write, form, output):
    record = request(output)
    sources = {"objects": [as_objects(record)], "dicts": [record]}
    run = from_vllm(sources.get(form) or write(record if form == "lines" else json.dumps([record])))
    steps = zip(output["logprobs"], output["token_ids"], strict=True)
    assert run.answers["token_log_probs"].tolist() == [[step[str(token)]["logprob"] for step, token in steps]]
    assert run.answers["end_log_prob"].isna().all()
    np.testing.assert_array_equal(run.log_probs(), [[output["cumulative_logprob"]]])
    question = {"question_id": "0", "question": record["prompt"], "references": None, "split": None}
    assert run.questions.to_dict("records") == [question]


@pytest.mark.parametrize("lost", [{}, {"logprobs": None}])
def test_an_output_that_was_cut_keeps_all_its_tokens_and_equal_answers_count_once(lost):
    run = from_vllm([request(OUTPUT, vllm_output(" Paris", *TOKENS, reason="length") | lost, OUTPUT)])
    assert run.answers[["log_prob", "end_log_prob", "finished"]].iloc[1].tolist() == [-0.75, 0.0, False]
    np.testing.assert_array_equal(run.log_probs(), [[-0.125]])
    assert (run.log_probs(distinct=False).shape, run.name) == ((1, 2), "responses/vllm/vllm")


def as_pydantic(value):
    """What a client gives back: objects of pydantic, to their last detail."""
    if isinstance(value, list):
        return [as_pydantic(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return create_model("Response", **{name: (Any, as_pydantic(inner)) for name, inner in value.items()})()


@pytest.mark.parametrize("form", [dict, as_pydantic])
def test_a_list_of_responses_is_read_as_a_file_of_them(write, form):
    bare = response(chat("Lima", ("Lima", -0.5)), chat("Rome", ("Rome", -2.0)), identity="r1")
    wrapped = {"question_id": 7, "question": "Capital?", "references": ["Lima"], "split": "test"}
    expected = from_openai(write(bare, wrapped | {"response": bare}))
    run = from_openai([form(bare), wrapped | {"response": form(bare)}])
    pd.testing.assert_frame_equal(run.answers, expected.answers)
    pd.testing.assert_frame_equal(run.questions, expected.questions)
    assert (run.name, run.questions["question_id"][0]) == ("responses/openai/openai", "r1")
    assert run.questions.iloc[1].to_dict() == wrapped | {"question_id": "7"}
    nameless = from_openai([{"choices": bare["choices"]}] * 2).questions
    assert nameless["question_id"].tolist() == ["responses-1", "responses-2"]


def test_records_in_memory_are_read_as_a_file_of_them(write):
    first = {"log_prob": -0.5, "text": "a", "token_ids": [3]}
    second = {"token_log_probs": [-1.0, -2.0], "end_log_prob": -0.25}
    records = [{"question_id": 1, "question": "A?", "references": ["a"], "answers": [first, second]}]
    records += [{"question_id": "b", "answers": [first]}]
    expected = from_records(write(*records))
    numbers = [{"log_prob": np.float32(-0.5), "token_ids": np.array([3])}, {"token_log_probs": np.array([-1.0, -2.0])}]
    in_numpy = records[0] | {"answers": [first | numbers[0], second | numbers[1]]}
    flat = pd.DataFrame([record | answer for record in records for answer in record["answers"]]).drop(columns="answers")
    for source in (records, [in_numpy, records[1]], pd.DataFrame(records), flat):
        run = from_records(source)
        pd.testing.assert_frame_equal(run.answers, expected.answers)
        pd.testing.assert_frame_equal(run.questions, expected.questions)
        assert run.name == "records/records/records"


GOOD = {"question_id": "good", "answers": [{"log_prob": -1}]}
KNOWN = ", ".join(layout.name for layout in LAYOUTS)
# By reader: a good line, and bad ones with the field that is named.
REFUSED = {
    from_records: (GOOD, [
        ("[" * 100_000, "must be JSON"),
        ("[1]", "[1] should be a valid dictionary"),
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
        (response(chat("a", ("a", -1.0)) | {"logprobs": None}), "logprobs"),
        (response(chat("a", ("a", -1.0), reason=None)), "finish_reason"),
        (response(chat("a", ("a", None))), "log_probs[0]=None"),
        ({"question_id": "a", "answers": []}, f"no response of a known layout ({KNOWN})"),
    ]),
    from_vllm: (request(OUTPUT), [
        (request(OUTPUT | {"token_ids": [3]}), "log_probs[0]=None"),
        (request(OUTPUT | {"token_ids": [2, 2]}), "log_probs[0]=None"),
        (request(vllm_output("a", (2, "a", -math.inf))), "log_probs[0]=-inf"),
    ]),
}  # fmt: skip
CASES = [(read, good, *bad) for read, (good, lines) in REFUSED.items() for bad in lines]


@pytest.mark.parametrize(("read", "good", "line", "words"), CASES)
def test_a_malformed_line_is_refused_with_its_place_and_field(write, read, good, line, words):
    path = write(good, "", line)
    with pytest.raises(RunError, match=re.escape(words)) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, line 3")
    if isinstance(line, dict):
        with pytest.raises(RunError, match=re.escape(words)) as caught:
            read([good, line])
        assert str(caught.value).startswith("entry 2")


@pytest.mark.parametrize("source", [None, 5, b"x", {}, [5], [None], ["text"], []])
def test_what_is_no_list_of_outputs_is_refused(source):
    with pytest.raises(RunError, match=r"neither a file nor a list|no response of a known layout|holds no answers"):
        from_vllm(source)


def test_a_missing_file_half_a_character_and_a_row_are_named(tmp_path):
    with pytest.raises(RunError, match=r"nowhere\.jsonl cannot be read: No such file"):
        from_records(tmp_path / "nowhere.jsonl")
    with pytest.raises(RunError, match=r"^entry 1, choice 0: text='.ud800' should be a valid string"):
        from_vllm([request(vllm_output("\ud800", END))])
    with pytest.raises(RunError, match=r"^row 2: answers\[0\].log_prob=0.5 must be a log-probability"):
        from_records(pd.DataFrame({"question_id": [1, 2], "log_prob": [-1.0, 0.5]}))
