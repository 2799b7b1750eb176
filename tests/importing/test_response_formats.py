"""Test the response formats of servers: every one leads to the same answer or an error."""

import contextlib
import copy
import gzip
import itertools
import json
from functools import reduce
from operator import getitem
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from pandas.testing import assert_frame_equal
from pydantic import create_model
from test_damaged_input import places_of

from pro_lib.common.files import RunError
from pro_lib.importing.answer_files import import_answers
from pro_lib.importing.response_formats import NATURAL, NOT_ENDED

# By file of tests/data/answers, each of one response format: the server's words for an answer that
# ended and for one that was cut.
FORMATS = {
    "openai_chat": ("stop", "length"),
    "openai_completion": ("stop", "length"),
    "openai_responses": ("completed", "incomplete"),
    "ollama": ("stop", "length"),
    "ollama_generate": ("stop", "length"),
    "llama_cpp": ("eos", "limit"),
    "tgi": ("eos_token", "length"),
    "sglang": ("stop", "length"),
    "gemini_batch": ("STOP", "MAX_TOKENS"),
    "cohere": ("COMPLETE", "MAX_TOKENS"),
    "vllm": ("stop", "length"),
}
UNMARKED = ("openai_completion", "sglang", "gemini_batch", "vllm")  # pieces of their streams
COLUMNS = ["text", "token_log_probs", "log_prob", "finished"]
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*repeat the text of an earlier question"),
    pytest.mark.filterwarnings("ignore:.*had thoughts"),
]


def response_of(name):
    """Return the first response in a file, as the server sends it."""
    path = ROOT / "tests" / "data" / "answers" / f"{name}.jsonl"
    first = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    if isinstance(first, list):
        return first[0]
    first.pop("question_id", None)
    inner = first.get("response")
    return inner if isinstance(inner, dict) else first


def ended(name, reason):
    """Return the response with another reason why its answer ended."""
    natural = json.dumps(FORMATS[name][0])
    return json.loads(json.dumps(response_of(name)).replace(natural, json.dumps(reason)))


def answers(entries):
    return import_answers(entries).answers[COLUMNS]


def of_pydantic(**fields):
    return create_model("Response", **{name: (Any, value) for name, value in fields.items()})()


def as_objects(value, kind):
    """Return the objects that a client returns, with every field that it has."""
    if isinstance(value, list):
        return [as_objects(inner, kind) for inner in value]
    if not isinstance(value, dict):
        return value
    fields = {name: as_objects(inner, kind) for name, inner in value.items()}
    is_step = all(name.isdecimal() for name in fields)
    return {int(name): inner for name, inner in fields.items()} if is_step else kind(**fields)


@pytest.mark.parametrize("name", FORMATS)
def test_a_response_of_every_server_is_read_in_every_wrapping_and_from_a_client(write, name):
    response = response_of(name)
    expected = answers([response])
    assert not expected["log_prob"].isna().any()
    wrapped = {"question_id": 7, "question": "Capital?", "references": "Oslo"}
    reply = {"status_code": 200, "body": response}
    batch = {"id": "batch_req_1", "custom_id": "q8", "response": reply, "error": None}
    run = import_answers(write(wrapped | {"response": response}, batch, name="r.jsonl.gz"))
    names = run.answers["question_id"]
    for question_id in ("7", "q8"):
        found = run.answers.loc[names == question_id, COLUMNS]
        assert_frame_equal(found.reset_index(drop=True), expected)
    assert run.questions.loc[0, ["question", "references"]].tolist() == ["Capital?", ["Oslo"]]
    assert run.info.dataset == "r"
    for kind in (SimpleNamespace, of_pydantic):
        given = as_objects(response, kind)
        assert_frame_equal(answers([given]), expected)
        assert_frame_equal(answers([wrapped | {"response": given}]), expected)


def test_only_a_log_has_a_filter_that_leaves_out_answers():
    response = response_of("openai_chat")
    entries = [
        {"question_id": "q", "filter": n, "response": response | {"id": n}} for n in range(2)
    ]
    assert len(import_answers(entries).answers) == 2


@pytest.mark.parametrize("name", FORMATS)
def test_what_was_cut_is_not_finished_and_a_run_without_a_finished_answer_is_refused(name):
    cut = ended(name, FORMATS[name][1])
    entries = [{"question_id": "a", "response": response_of(name)}]
    run = import_answers([*entries, {"question_id": "b", "response": cut}])
    is_finished = run.answers.groupby("question_id")["finished"].any()
    assert is_finished.to_dict() == {"a": True, "b": False}
    assert np.isnan(run.log_probs()).all(axis=1).tolist() == [False, True]
    with pytest.raises(RunError, match="is finished; their finish reasons are "):
        import_answers([cut])


@pytest.mark.parametrize(
    "word",
    [*sorted(NATURAL.union(NOT_ENDED)), "STOP", "FinishReason.STOP", "FINISH_REASON_STOP", "gone"],
)
def test_every_word_for_an_ending_is_known_or_said(word):
    responses = (response_of("openai_chat"), ended("openai_chat", word))
    entries = [{"question_id": n, "response": response} for n, response in enumerate(responses)]
    is_natural = word.rpartition(".")[2].lower().removeprefix("finish_reason_") in NATURAL
    reason = "" if is_natural else NOT_ENDED.get(word, "cut")
    said = contextlib.nullcontext()
    if word == "gone":
        said = pytest.warns(UserWarning, match=r"endings gone \(1\) are unknown")
    elif reason not in ("", "cut"):
        said = pytest.warns(UserWarning, match="^1 answers .* are left out: entry 2, choice 0$")
    with said:
        run = import_answers(entries)
    assert run.reasons().tolist() == ["", reason]
    assert run.answers["finished"].tolist() == [True] + [is_natural] * (reason in ("", "cut"))


# Pieces of streams of Chat Completions, of servers like it, of ollama, llama.cpp, TGI, and the
# Responses API.
PIECES = [
    {"object": "chat.completion.chunk", "choices": []},
    {"choices": [{"index": 0, "delta": {"content": "Os"}}]},
    {"response": "Os", "done": False, "logprobs": [{"token": "Os", "logprob": -0.25}]},
    {"content": "Os", "stop": False, "completion_probabilities": []},
    {"token": {"text": "Os", "logprob": -0.25}, "generated_text": None},
    {"type": "response.output_text.delta", "delta": "Os"},
]


@pytest.mark.parametrize("piece", PIECES, ids=str)
def test_a_piece_of_a_stream_is_refused(write, piece):
    for entry in (piece, {"question_id": "q", "response": piece}):
        with pytest.raises(RunError, match="line 1: this is a piece of a stream"):
            import_answers(write(entry))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", UNMARKED)
def test_a_stream_without_marks_is_not_read_in_pieces(write, name):
    whole = response_of(name)
    path = write(ended(name, None), whole)
    texts = answers([whole])["text"].tolist()  # the last piece may have the whole answer
    with contextlib.suppress(RunError):
        assert import_answers(path).answers["text"].tolist() == texts


# Compressed at no time: what names a trial has to be the same in every process that collects it.
@pytest.mark.parametrize(
    "data",
    [
        b"\x1f\x8b no",
        gzip.compress(b'{"a": 1}' * 99, mtime=0)[:-9],
        gzip.compress(b"\xff", mtime=0),
        b"",
    ],
)
def test_damaged_compression_ends_in_one_sentence(tmp_path, data):
    (tmp_path / "r.jsonl.gz").write_bytes(data)
    with pytest.raises(
        RunError, match=r"r\.jsonl\.gz.* (cannot be read|not JSON|contains no answers)"
    ):
        import_answers(tmp_path / "r.jsonl.gz")


OTHERS = (None, "text", {}, [None], float("nan"), True)


def damage(response, size):
    """Yield copies of a response in each of which one thing is gone or of another kind."""
    for n, (*path, last) in enumerate(places_of(response)):
        for other in OTHERS[n % 3 :: 3] if size == "quick" else OTHERS:
            copied = copy.deepcopy(response)
            reduce(getitem, path, copied)[last] = other
            yield copied


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FORMATS)
def test_damage_leads_to_one_sentence_and_to_no_other_number(name, size):
    allowed = set()
    for token_log_probs in answers([response_of(name)])["token_log_probs"]:
        for n in range(1, 1 + len(token_log_probs)):
            allowed |= set(map(sum, itertools.combinations(token_log_probs, n)))
    n_refused = 0
    for response in damage(response_of(name), size):
        try:
            found = answers([response])["log_prob"]
        except RunError:
            n_refused += 1
        else:
            assert set(found.dropna()) <= allowed
    assert n_refused > 10
