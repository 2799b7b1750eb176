"""Records made elsewhere: what is read, what is refused, and that damage leads to nothing but a RunError."""

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import create_model
from test_runs import means

from pro_lib.files import RunError
from pro_lib.imports import from_openai, from_records, from_vllm

FULL = {
    "question_id": "q1",
    "question": "Capital of France?",
    "references": ["Paris"],
    "split": "test",
    "answers": [
        {
            "text": "Paris",
            "token_ids": [5, 6],
            "token_log_probs": [-0.25, -0.5],
            "log_prob": -0.75,
            "end_log_prob": -0.25,
            "mean_log_prob": -0.3,
            "rouge_l": 1.0,
            "correct": True,
        },
        {"text": "Lyon", "log_prob": -3, "end_log_prob": -1, "correct": False, "finished": False},
    ],
}


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
    run = from_records(write(FULL))
    assert run.questions.to_dict("records") == [{name: FULL[name] for name in FULL if name != "answers"}]
    paris, lyon = run.answers.to_dict("records")
    assert paris == {**FULL["answers"][0], "question_id": "q1", "rank": 0, "finished": True, "closed": False}
    assert (lyon["rank"], lyon["log_prob"], lyon["correct"], lyon["finished"]) == (1, -3.0, False, False)
    assert lyon["token_ids"] is None
    assert math.isnan(lyon["rouge_l"])
    assert run.name == "answers/records/records"


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
    ([{"log_prob": 5e-5, "end_log_prob": 1e-6}], [0.0]),  # rounding above zero is trimmed
    ([{"log_prob": -1}, {"log_prob": -2}, {"log_prob": -2}, {"log_prob": -3, "text": "x"}], [-1.0, -2.0, -3.0]),
]


@pytest.mark.parametrize(("answers", "log_probs"), LOG_PROBS)
def test_log_probabilities_of_an_answer_are_taken_or_summed(write, answers, log_probs):
    np.testing.assert_array_equal(from_records(write(record(*answers))).log_probs(), [log_probs])


def test_means_are_given_or_those_of_the_tokens_where_there_are_any(write):
    answers = [{"log_prob": -1, "mean_log_prob": -0.4}, {"token_log_probs": [-2, -1]}, {"log_prob": -5}]
    run = from_records(write(record(*answers)))
    np.testing.assert_array_equal(means(run), [[-0.4, -1.5, np.nan]])
    summed = [{"token_log_probs": [-0.5, -0.25, -1]}, {"token_log_probs": [-2], "end_log_prob": -1}]
    np.testing.assert_array_equal(means(from_records(write(record(*summed)))), [[-1.75 / 3, -1.5]])


BAD_LINES = [
    ('{"question_id": ', "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("[1]", "not an object but list"),
    ('{"question_id": "é"}'.encode("latin-1"), "not JSON in UTF-8"),
    (r'{"question_id": "\ud800", "answers": []}', "not JSON in UTF-8 .*escape"),
    ({"answers": []}, "question_id is missing"),
    ({"question_id": "a"}, "answers is missing"),
    ({"question_id": 1.5, "answers": []}, "question_id=1.5 should be a valid string"),
    ({"question_id": "", "answers": []}, "question_id='' .* at least 1 "),
    (record(references=[]), r"references=\[\] .* at least 1 "),
    (record(references=[1]), r"references\[0\]=1 should be a valid string"),
    (record("Paris"), r"answers\[0\]='Paris' should be a valid dictionary"),
    (record({"log_prob": -1}, {}), r"answers\[1\].log_prob=None must be given, or token_log_probs"),
    (record({"mean_log_prob": -1}), r"answers\[0\].log_prob=None must be given, or token_log_probs"),
    (record({"token_log_probs": []}), r"answers\[0\].log_prob=None must be given, or token_log_probs"),
    (record({"log_prob": 0.1}), r"answers\[0\].log_prob=0.1 must be a log-probability, a finite number of at most 0"),
    (record({"token_log_probs": [-3, 0.5]}), r"token_log_probs\[1\]=0.5 must be a log-probability"),
    (record({"log_prob": math.nan}), "log_prob=nan must be a log-probability"),
    (record({"log_prob": "-1"}), "log_prob='-1' must be a log-probability"),
    (record({"log_prob": -(10**400)}), r"log_prob=-1000.*\.\.\..*000 must be a log-probability"),
    ('{"question_id": "a", "answers": [{"log_prob": -1' + "0" * 5000 + "}]}", "not JSON"),
    (record({"token_log_probs": [-1e308, -1e308]}), "log_prob=-inf must be"),
    (record({"token_log_probs": -1}), "token_log_probs=-1 should be a valid list"),
    (record({"log_prob": -1, "token_ids": [1.5]}), r"token_ids\[0\]=1.5 should be a valid integer"),
    (record({"log_prob": -1, "text": 5}), "text=5 should be a valid string"),
    (record({"log_prob": -1, "correct": 1}), "correct=1 should be a valid boolean"),
    (record({"log_prob": -1, "finished": None}), "finished=None should be a valid boolean"),
    (record({"log_prob": -1, "rouge_l": 55}), r"rouge_l=55 "),
]


@pytest.mark.parametrize(("line", "sentence"), BAD_LINES, ids=[sentence for _, sentence in BAD_LINES])
def test_a_malformed_line_is_refused_with_file_and_line(write, line, sentence):
    path = write({"question_id": "good", "answers": [{"log_prob": -1}]}, "", line)
    with pytest.raises(RunError, match=sentence) as caught:
        from_records(path)
    assert str(caught.value).startswith(f"{path}, line 3")


def test_a_repeated_id_is_refused_with_both_lines(write):
    path = write({"question_id": 1, "answers": []}, record(), {"question_id": "1", "answers": []})
    with pytest.raises(RunError, match=r"line 3: question_id '1' was already used \(.*line 1\)"):
        from_records(path)


@pytest.mark.parametrize("lines", [(), ("", " "), (record(),)])
def test_a_file_without_answers_is_refused(write, lines):
    with pytest.raises(RunError, match="holds no answers"):
        from_records(write(*lines))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(RunError, match=r"nowhere\.jsonl cannot be read: No such file"):
        from_records(tmp_path / "nowhere.jsonl")


def chat(text, *tokens, reason="stop", **fields):
    """A choice of a chat completion; a token is (text, log-probability)."""
    content = [
        {"token": token, "logprob": value, "bytes": list(token.encode()), "top_logprobs": []} for token, value in tokens
    ]
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": {"content": content, "refusal": None}}
    return choice | {"finish_reason": reason} | fields


def completion(text, *tokens, reason="stop", **fields):
    """A choice of a text completion."""
    names, values = ([token[place] for token in tokens] for place in (0, 1))
    logprobs = {"tokens": names, "token_logprobs": values, "top_logprobs": None, "text_offset": [0] * len(tokens)}
    return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": reason} | fields


def response(*choices, identity="chatcmpl-1", **fields):
    return {"id": identity, "object": "chat.completion", "model": "some-model", "choices": list(choices)} | fields


PARIS = (("Par", -0.25), ("is", -0.5))
BOTH = pytest.mark.parametrize("choice", [chat, completion])


@BOTH
def test_an_ending_that_is_not_returned_is_missing(write, choice):
    run = from_openai(write(response(choice("Paris", *PARIS), choice("Lyon", ("Lyon", -2.0)))))
    paris, lyon = run.answers.to_dict("records")
    assert (paris["text"], paris["log_prob"], paris["token_log_probs"], paris["finished"]) == (
        "Paris",
        -0.75,
        [-0.25, -0.5],
        True,
    )
    assert math.isnan(paris["end_log_prob"])
    assert (paris["rank"], lyon["rank"], paris["question_id"]) == (0, 1, "chatcmpl-1")
    np.testing.assert_array_equal(run.log_probs(), [[-0.75, -2.0]])
    np.testing.assert_array_equal(means(run), [[-0.375, -2.0]])
    with pytest.raises(RunError, match="does not say what its endings cost"):
        run.log_probs(convention="answer_tokens")


@BOTH
def test_every_token_returned_counts_the_one_that_ended_the_answer_too(write, choice):
    run = from_openai(write(response(choice("Paris", *PARIS, ("<|eot|>", -0.125)))))
    np.testing.assert_array_equal(run.log_probs(), [[-0.875]])
    np.testing.assert_allclose(means(run), [[-0.875 / 3]])


@BOTH
@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_choice_that_was_cut_is_not_finished(write, choice, reason):
    run = from_openai(write(response(choice("Par", ("Par", -0.25), reason=reason), choice("Lyon", ("Lyon", -2.0)))))
    assert run.answers["finished"].tolist() == [False, True]
    assert run.answers["end_log_prob"][0] == 0.0
    np.testing.assert_array_equal(run.log_probs(), [[-2.0]])


def test_wrapped_responses_and_those_of_the_batch_api_bring_their_ids(write):
    body = response(chat("Paris", *PARIS))
    wrapped = {"question_id": 7, "question": "Capital?", "references": "Paris", "split": "test", "response": body}
    batch = {"id": "batch_req_1", "custom_id": "q8", "response": {"status_code": 200, "body": body}, "error": None}
    run = from_openai(write(wrapped, batch, {"choices": [completion("Rome", ("Rome", -1.0))]}))
    assert run.questions["question_id"].tolist() == ["7", "q8", "answers-3"]
    first = {"question_id": "7", "question": "Capital?", "references": ["Paris"], "split": "test"}
    assert run.questions.iloc[0].to_dict() == first
    assert run.questions.iloc[1:, 1:].isna().all(axis=None)
    assert run.name == "answers/openai/openai"


def test_a_json_list_is_read_like_lines(write):
    records = [response(chat("Paris", *PARIS), identity=f"r{n}") for n in range(3)]
    lines = from_openai(write(*records)).answers
    pd.testing.assert_frame_equal(from_openai(write("\n " + json.dumps(records, indent=1))).answers, lines)


QUESTIONS = pd.DataFrame(
    {
        "question_id": ["a", "b"],
        "question": ["A?", "B?"],
        "references": [["x"], ["y"]],
        "split": "test",
        "level": [1, 2],
    }
)


def test_given_questions_are_met_by_place_or_by_the_ids_that_responses_carry(write):
    first, second = (response(chat("x", ("x", -value)), identity=f"r{value}") for value in (1.0, 2.0))
    by_place = from_openai(write(first, second), questions=QUESTIONS)
    by_id = from_openai(
        write({"custom_id": "b", "response": second}, {"custom_id": "a", "response": first}), questions=QUESTIONS
    )
    for run in (by_place, by_id):
        pd.testing.assert_frame_equal(run.questions, QUESTIONS)
        np.testing.assert_array_equal(run.log_probs(), [[-1.0], [-2.0]])
    only = from_openai(write({"question_id": "b", "response": second}), questions=QUESTIONS)
    np.testing.assert_array_equal(only.log_probs(), [[np.nan], [-2.0]])


@pytest.mark.parametrize(
    ("ids", "questions", "sentence"),
    [
        ([None], QUESTIONS, "has 1 responses, 0 of them with a question_id, and questions= has 2 rows"),
        (["a", "c"], QUESTIONS, "question_id 'c' is not in questions="),
        (["a", None], QUESTIONS, "has 2 responses, 1 of them with a question_id"),
        ([None, None], QUESTIONS.assign(question_id="a"), "each id once"),
        ([None, None], QUESTIONS.drop(columns="question"), "must have columns question_id and question"),
    ],
)
def test_questions_that_do_not_fit_the_responses_are_refused(write, ids, questions, sentence):
    lines = [
        {"question_id": identity, "response": response(chat("x", ("x", -1.0)), identity=f"r{n}")}
        for n, identity in enumerate(ids)
    ]
    with pytest.raises(RunError, match=sentence):
        from_openai(write(*lines), questions=questions)


@BOTH
def test_answers_of_unknown_probability_are_left_out_and_counted(write, choice):
    known, rare, empty = choice("Paris", *PARIS), choice("Zug", ("Z", -0.5), ("ug", -9999.0)), choice("")
    path = write(response(known, rare), response(empty, identity="r2"))
    with pytest.warns(UserWarning, match=r"^2 answers are left out, .* the first is .*line 1, choice 1$") as caught:
        run = from_openai(path)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(run.log_probs(), [[-0.75], [np.nan]])
    with pytest.raises(RunError, match=r"holds no answers whose probability is known \(1 questions"):
        from_openai(write(response(rare)))


BAD_RESPONSES = [
    (response(chat("a", ("a", -1.0), logprobs=None)), r"choices\[0\].logprobs=None is missing; ask for it"),
    (
        response(chat("a", ("a", -1.0)), chat("a", logprobs={"content": None})),
        r"choices\[1\].logprobs.content=None is missing",
    ),
    (response(completion("a", logprobs=None)), r"choices\[0\].logprobs=None is missing"),
    (response({"text": "a", "finish_reason": "stop"}), r"choices\[0\].logprobs=None is missing"),
    (response(chat("a", ("a", -1.0), reason=None)), r"choices\[0\].finish_reason=None must be text"),
    (response(chat(None, ("a", -1.0))), r"choices\[0\].message.content=None should be a valid string"),
    (response(completion("a", ("a", None))), r"choices\[0\].logprobs\[0\].logprob=None must be a finite number"),
    (response(chat("a", ("a", 0.5))), r"answers\[0\].token_log_probs\[0\]=0.5 must be a log-probability"),
    (
        response(chat("a", logprobs={"content": ["a"]})),
        r"choices\[0\].logprobs.content\[0\]='a' should be a valid dictionary",
    ),
    (response(chat("a", message="a")), r"choices\[0\].message.content is missing"),
    (response("a"), r"choices\[0\]='a' should be a valid dictionary"),
    ({"id": "r", "choices": {}}, "choices={} should be a valid list"),
    ({"custom_id": "a", "response": None, "error": {"code": "x"}}, "an error instead of a response: .*x"),
    ({"error": {"message": "quota"}}, "an error instead of a response: .*quota"),
    ({"question_id": "a", "answers": []}, "choices is missing$"),
    ("[1]", "not an object but list"),
    ("{", "not JSON"),
]


@pytest.mark.parametrize(("line", "sentence"), BAD_RESPONSES, ids=[sentence for _, sentence in BAD_RESPONSES])
def test_a_malformed_response_is_refused_with_file_line_and_choice(write, line, sentence):
    path = write(response(chat("Paris", *PARIS), identity="good"), "", line)
    with pytest.raises(RunError, match=sentence) as caught:
        from_openai(path)
    assert str(caught.value).startswith(f"{path}, line 3")


def test_a_malformed_list_is_refused_with_the_entry(write):
    with pytest.raises(RunError, match=r"answers\.jsonl, entry 2: choices is missing"):
        from_openai(write(json.dumps([response(chat("Paris", *PARIS)), {}])))
    with pytest.raises(RunError, match="not JSON"):
        from_openai(write("[{},"))


def vllm_output(text, *tokens, reason="stop", stop=None, decoded=True):
    """A CompletionOutput as JSON has it; a token is (id, text, log-probability). Runners-up are there too."""
    steps = [
        {
            str(token): {"logprob": value, "rank": 1, "decoded_token": name if decoded else None},
            "999": {"logprob": -7.5, "rank": 2, "decoded_token": "other"},
        }
        for token, name, value in tokens
    ]
    return {
        "index": 0,
        "text": text,
        "token_ids": [token for token, _, _ in tokens],
        "cumulative_logprob": sum(value for _, _, value in tokens),
        "logprobs": steps,
        "finish_reason": reason,
        "stop_reason": stop,
    }


def request(*outputs, request_id="0", prompt="Question: Capital?\nAnswer:", **fields):
    return {"request_id": request_id, "prompt": prompt, "outputs": list(outputs), "finished": True} | fields


def as_objects(record):
    """The same as vLLM's objects: ids are numbers, entries have attributes, sequences are tuples."""
    outputs = []
    for output in record["outputs"]:
        steps = [{int(key): SimpleNamespace(**entry) for key, entry in step.items()} for step in output["logprobs"]]
        outputs.append(SimpleNamespace(**output | {"logprobs": steps, "token_ids": tuple(output["token_ids"])}))
    return SimpleNamespace(**record | {"outputs": outputs})


TOKENS = ((5, " Par", -0.25), (6, "is", -0.5))
END = (2, "</s>", -0.125)
NEWLINE = (13, "\n", -0.125)
VLLM = [
    vllm_output(" Paris", *TOKENS, END),
    vllm_output(" Paris", *TOKENS, END, decoded=False),
    vllm_output(" Paris", *TOKENS, NEWLINE, stop=13, decoded=False),
    vllm_output(" Paris", *TOKENS, NEWLINE, stop="\n"),
    vllm_output(" Paris", *TOKENS, NEWLINE, (14, "Q:", -1.0), stop="\nQ:"),
    vllm_output(" Paris", TOKENS[0], (7, "is.", -0.5), stop="."),
    # Tokens decoded one by one lose the space before them with some tokenizers.
    vllm_output("New York", (8, "New", -0.5), (9, "York", -0.5), NEWLINE, stop="\n"),
    vllm_output(" Paris \n", *TOKENS, (10, " \n", -1.0), END),
    vllm_output("", END),
]


@pytest.mark.parametrize("form", ["objects", "dicts", "lines", "list"])
@pytest.mark.parametrize("output", VLLM)
def test_everything_generated_counts_in_whatever_form_it_comes(write, form, output):
    record = request(output)
    sources = {"objects": [as_objects(record)], "dicts": [record], "lines": None, "list": None}
    source = sources[form] or write(record if form == "lines" else json.dumps([record]))
    run = from_vllm(source)
    answer = run.answers.iloc[0]
    assert answer["token_log_probs"] == [entry["logprob"] for entry in expected_entries(output)]
    assert pd.isna(answer["end_log_prob"])
    np.testing.assert_array_equal(run.log_probs(), [[output["cumulative_logprob"]]])
    assert run.questions.to_dict("records") == [
        {"question_id": "0", "question": "Question: Capital?\nAnswer:", "references": None, "split": None}
    ]


def expected_entries(output):
    return [step[str(token)] for step, token in zip(output["logprobs"], output["token_ids"], strict=True)]


@pytest.mark.parametrize("lost", [{}, {"logprobs": None}])
def test_an_output_that_was_cut_keeps_all_its_tokens(lost):
    cut = vllm_output(" Paris", *TOKENS, reason="length") | lost
    answer = from_vllm([request(cut)]).answers.iloc[0]
    assert answer["log_prob"] == -0.75
    assert (answer["end_log_prob"], answer["finished"]) == (0.0, False)


def test_arrays_of_ids_are_read_and_equal_answers_count_once():
    record = as_objects(request(*(vllm_output(" Paris", *TOKENS, END) for _ in range(2))))
    record.outputs[0].token_ids = np.array(record.outputs[0].token_ids)
    record.outputs[1].token_ids = list(np.array(record.outputs[1].token_ids))
    run = from_vllm([record])
    np.testing.assert_array_equal(run.log_probs(), [[-0.875]])
    assert run.log_probs(distinct=False).shape == (1, 2)
    assert run.name == "vllm/vllm/vllm"


def as_pydantic(value):
    """What a client gives back: objects of pydantic, to their last detail."""
    if isinstance(value, list):
        return [as_pydantic(each) for each in value]
    if not isinstance(value, dict):
        return value
    fields = {name: as_pydantic(each) for name, each in value.items()}
    return create_model("Response", **{name: (Any, each) for name, each in fields.items()})()


CHAT_TOKEN = {"token": "Lima", "logprob": -0.5}
RESPONSE = {
    "id": "r1",
    "choices": [
        {"message": {"content": "Lima"}, "finish_reason": "stop", "logprobs": {"content": [CHAT_TOKEN]}},
        {"text": "Rome", "finish_reason": "stop", "logprobs": {"tokens": ["Rome"], "token_logprobs": [-2.0]}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", [dict, as_pydantic])
def test_a_list_of_responses_is_read_as_a_file_of_them(write, form):
    lines = [RESPONSE, {"question_id": 7, "references": ["Lima"], "response": RESPONSE}]
    expected = from_openai(write(*lines))
    run = from_openai([form(lines[0]), lines[1] | {"response": form(RESPONSE)}])
    pd.testing.assert_frame_equal(run.answers, expected.answers)
    pd.testing.assert_frame_equal(run.questions, expected.questions)
    assert (run.name, run.questions["question_id"].tolist()) == ("openai/openai/openai", ["r1", "7"])
    with pytest.raises(RunError, match=r"^entry 2: choices is missing"):
        from_openai([RESPONSE, {"id": "r2"}])
    nameless = {name: value for name, value in RESPONSE.items() if name != "id"}
    assert from_openai([nameless] * 2).questions["question_id"].tolist() == ["openai-1", "openai-2"]


def test_records_in_memory_are_read_as_a_file_of_them(write):
    answers = [
        {"log_prob": -0.5, "text": "a", "token_ids": [3]},
        {"token_log_probs": [-1.0, -2.0], "end_log_prob": -0.25},
    ]
    records = [{"question_id": 1, "question": "A?", "references": ["a"], "answers": answers}]
    records += [{"question_id": "b", "answers": answers[:1]}]
    expected = from_records(write(*records))
    in_numpy = [{"log_prob": np.float32(-0.5), "text": "a", "token_ids": np.array([3])}]
    in_numpy += [{"token_log_probs": np.array([-1.0, -2.0], np.float32), "end_log_prob": np.float64(-0.25)}]
    flat = [record | answer for record in records for answer in record["answers"]]
    flat = pd.DataFrame(flat).drop(columns="answers")
    for source in (records, [records[0] | {"answers": in_numpy}, records[1]], pd.DataFrame(records), flat):
        run = from_records(source)
        pd.testing.assert_frame_equal(run.answers, expected.answers)
        pd.testing.assert_frame_equal(run.questions, expected.questions)
        assert run.name == "records/records/records"
    with pytest.raises(RunError, match=r"^row 2: answers\[0\].log_prob=0.5 must be a log-probability"):
        from_records(pd.DataFrame({"question_id": [1, 2], "log_prob": [-1.0, 0.5]}))
    with pytest.raises(RunError, match=r"^entry 2: question_id '1' was already used \(entry 1\)"):
        from_records([records[0]] * 2)
    with pytest.raises(RunError, match=r"^records holds no answers"):
        from_records([])


def test_given_questions_are_met_by_the_order_of_requests():
    outputs = [request(vllm_output("x", (1, "x", -value), END), request_id=str(value)) for value in (7.0, 8.0)]
    run = from_vllm(outputs, questions=QUESTIONS)
    pd.testing.assert_frame_equal(run.questions, QUESTIONS)
    np.testing.assert_array_equal(run.log_probs(), [[-7.125], [-8.125]])


BAD_OUTPUTS = [
    (
        vllm_output("a", END) | {"logprobs": None, "cumulative_logprob": None},
        r"outputs\[0\].logprobs=None is missing; ask for it with .*\(vLLM\)",
    ),
    (vllm_output("a", END) | {"token_ids": None}, r"outputs\[0\].logprobs\[0\].logprob is missing"),
    (vllm_output("a", END) | {"token_ids": [[2]]}, r"outputs\[0\].token_ids\[0\]=\[2\] should be a valid integer"),
    (vllm_output("a", END) | {"token_ids": [3]}, r"outputs\[0\].logprobs\[0\].logprob is missing"),
    (
        vllm_output("a", END) | {"token_ids": [2, 2]},
        r"outputs\[0\].logprobs=.* must have an entry for each of 2 token_ids",
    ),
    (vllm_output("a", END) | {"logprobs": [None]}, r"outputs\[0\].logprobs\[0\]=None should be a valid dictionary"),
    (vllm_output("a", END) | {"logprobs": [{"2": {}}]}, r"outputs\[0\].logprobs\[0\].logprob is missing"),
    (vllm_output("a", (2, "a", -math.inf)), r"outputs\[0\].cumulative_logprob=-inf must be a finite number"),
    (vllm_output("a", (2, "a", 1.0), END), r"answers\[0\].token_log_probs\[0\]=1.0 must be"),
    (vllm_output("a", END, reason=None), r"outputs\[0\].finish_reason=None must be text"),
    (vllm_output(None, END), r"outputs\[0\].text=None should be a valid string"),
    ("a", r"outputs\[0\]='a' should be a valid dictionary"),
]


@pytest.mark.parametrize(("output", "sentence"), BAD_OUTPUTS)
def test_a_malformed_output_is_refused_with_its_place(write, output, sentence):
    good = request(vllm_output(" Paris", *TOKENS, END))
    with pytest.raises(RunError, match=sentence) as caught:
        from_vllm([good, request(output, request_id="1")])
    assert str(caught.value).startswith("entry 2")
    with pytest.raises(RunError, match=sentence) as caught:
        from_vllm(write(good, request(output, request_id="1")))
    assert "answers.jsonl, line 2" in str(caught.value)


@pytest.mark.parametrize("source", [None, 5, b"x", {}, [5], [None], ["text"], []])
def test_what_is_no_list_of_outputs_is_refused(source):
    with pytest.raises(RunError, match=r"neither a file nor a list|should be a valid dictionary|holds no answers"):
        from_vllm(source)


@pytest.mark.parametrize("damage", [{"prompt": "\ud800"}, {"request_id": "\ud800"}, {"outputs": "\ud800"}])
def test_half_a_character_in_an_object_is_refused(damage):
    damage = {name: [vllm_output(text, END)] if name == "outputs" else text for name, text in damage.items()}
    with pytest.raises(RunError, match=r"^entry 1: .*'.ud800' should be a valid string"):
        from_vllm([request(vllm_output("x", END)) | damage])
