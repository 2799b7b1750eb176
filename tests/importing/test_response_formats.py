"""Test the response formats of servers: every one leads to the same answer or an error."""

import contextlib
import copy
import gzip
import json
from functools import reduce
from operator import getitem
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import create_model
from test_damaged_input import places_of, vllm_output

from pro_lib.common.files import RunError
from pro_lib.importing.importers import import_answers
from pro_lib.importing.response_formats import NATURAL, NOT_ENDED

TOKENS = [(" Par", -0.25), ("is", -0.5)]


def listed(name="logprob"):
    return [
        {"token": token, name: value, "bytes": list(token.encode()), "top_logprobs": []}
        for token, value in TOKENS
    ]


def chat(reason="stop", **more):
    message = {"role": "assistant", "content": " Paris", "refusal": None}
    choice = {
        "index": 0,
        "message": message,
        "logprobs": {"content": listed()},
        "finish_reason": reason,
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [choice],
        **more,
    }


def completion(reason="stop"):
    logprobs = {
        "tokens": [" Par", "is"],
        "token_logprobs": [-0.25, -0.5],
        "text_offset": [0, 4],
        "top_logprobs": None,
    }
    choice = {"index": 0, "text": " Paris", "logprobs": logprobs, "finish_reason": reason}
    return {"id": "cmpl-1", "object": "text_completion", "model": "m", "choices": [choice]}


def responses_api(reason="completed"):
    part = {"type": "output_text", "text": " Paris", "annotations": [], "logprobs": listed()}
    output = [{"type": "reasoning", "id": "rs_1", "summary": []}]
    output += [
        {"type": "message", "id": "msg_1", "status": reason, "role": "assistant", "content": [part]}
    ]
    return {
        "id": "resp_1",
        "object": "response",
        "status": reason,
        "error": None,
        "output": output,
        "model": "m",
    }


def ollama_chat(reason="stop"):
    message = {"role": "assistant", "content": " Paris"}
    return {
        "model": "m",
        "message": message,
        "done": True,
        "done_reason": reason,
        "logprobs": listed(),
    }


def ollama_generate(reason="stop"):
    return {
        "model": "m",
        "response": " Paris",
        "done": True,
        "done_reason": reason,
        "logprobs": listed(),
    }


def llama_cpp(reason="eos"):
    tokens = [{"id": n, **token} for n, token in enumerate(listed())]
    more = {"stop": True, "stop_type": reason, "prompt": "Q: Capital?\nA:", "tokens_predicted": 2}
    return {"index": 0, "content": " Paris", "completion_probabilities": tokens, **more}


def tgi(reason="eos_token"):
    tokens = [
        {"id": n, "text": text, "logprob": value, "special": False}
        for n, (text, value) in enumerate(TOKENS)
    ]
    return {
        "generated_text": " Paris",
        "details": {"finish_reason": reason, "generated_tokens": 2, "tokens": tokens},
    }


def sglang(reason="stop"):
    values = [[value, n, text] for n, (text, value) in enumerate(TOKENS)]
    meta = {
        "id": "ab12",
        "finish_reason": {"type": reason, "matched": 2},
        "output_token_logprobs": values,
    }
    return {"text": " Paris", "output_ids": [0, 1], "meta_info": meta}


def gemini(reason="STOP"):
    content = {"role": "model", "parts": [{"text": " Par"}, {"text": "is"}]}
    chosen = [{"token": token, "tokenId": 5, "logProbability": value} for token, value in TOKENS]
    result = {"topCandidates": [], "chosenCandidates": chosen}
    candidate = {
        "content": content,
        "finishReason": reason,
        "avgLogprobs": -0.375,
        "logprobsResult": result,
    }
    return {"candidates": [candidate], "modelVersion": "m", "responseId": "xyz"}


def gemini_client(reason="FinishReason.STOP"):
    result = {
        "chosen_candidates": [{"token": token, "log_probability": value} for token, value in TOKENS]
    }
    content = {"parts": [{"text": " Paris"}]}
    return {
        "candidates": [{"content": content, "finish_reason": reason, "logprobs_result": result}]
    }


def cohere(reason="COMPLETE"):
    message = {"role": "assistant", "content": [{"type": "text", "text": " Paris"}]}
    logprobs = [{"text": token, "token_ids": [1], "logprobs": [value]} for token, value in TOKENS]
    return {"id": "c1", "finish_reason": reason, "message": message, "logprobs": logprobs}


def vllm(reason="stop"):
    output = vllm_output(
        " Paris", *((n, *token) for n, token in enumerate(TOKENS)), finish_reason=reason
    )
    return {"request_id": "0", "prompt": "Q: Capital?\nA:", "outputs": [output]}


# By response format: a response, and the server's word for an answer that was cut.
BARE = {
    chat: "length",
    completion: "length",
    responses_api: "incomplete",
    ollama_chat: "length",
    ollama_generate: "length",
    llama_cpp: "limit",
    tgi: "length",
    sglang: "length",
    gemini: "MAX_TOKENS",
    gemini_client: "FinishReason.MAX_TOKENS",
    cohere: "MAX_TOKENS",
    vllm: "length",
}


def streamed():
    """Streams of every server, by name: lines as they come."""

    def chunk(kind, **choice):
        return {"id": "s1", "object": kind, "choices": [{"index": 0, **choice}]}

    deltas = [{"content": token} for token, _ in TOKENS]
    logprobs = [{"content": [step]} for step in listed()]
    steps = zip(deltas, logprobs, strict=True)
    chats = [chunk("chat.completion.chunk", delta=delta, logprobs=of) for delta, of in steps]
    first = chunk("chat.completion.chunk", delta={"role": "assistant", "content": ""})
    last = chunk("chat.completion.chunk", delta={}, finish_reason="stop")
    pieces = [{"token": token, "logprob": value} for token, value in TOKENS]
    ollama = [{"response": piece["token"], "done": False, "logprobs": [piece]} for piece in pieces]
    llama = [
        {"content": piece["token"], "stop": False, "completion_probabilities": [piece]}
        for piece in pieces
    ]
    end = {"content": "", "stop": True, "stop_type": "eos", "completion_probabilities": []}
    texts, generated, candidates = [], [], []
    for (token, value), reason in zip(TOKENS, (None, "stop"), strict=True):
        of_text = {"token_logprobs": [value]}
        texts.append(chunk("text_completion", text=token, logprobs=of_text, finish_reason=reason))
        step = {"id": 1, "text": token, "logprob": value, "special": False}
        generated.append({"token": step, "generated_text": None})
        candidate = {"content": {"parts": [{"text": token}]}, "finishReason": reason}
        candidate["logprobsResult"] = {"chosenCandidates": [{"logProbability": value}]}
        candidates.append({"responseId": "g", "candidates": [candidate]})
    details = {"finish_reason": "eos_token", "generated_tokens": 2}
    generated[1] |= {"generated_text": " Paris", "details": details}
    started = responses_api("in_progress") | {"output": []}
    return {
        "chat": [first, *chats, last],
        "text": texts,
        "ollama": [*ollama, {"response": "", "done": True, "done_reason": "stop"}],
        "llama.cpp": [*llama, end],
        "tgi": generated,
        "responses": [
            {"type": "response.created", "response": started},
            {"type": "response.output_text.delta", "delta": " Par", "logprobs": listed()[:1]},
            {"type": "response.completed", "response": responses_api()},
        ],
        "gemini": candidates,
    }


def check(run, n=1):
    assert run.answers["text"].tolist() == [" Paris"] * n
    assert run.answers["token_log_probs"].tolist() == [[-0.25, -0.5]] * n
    assert run.answers["finished"].all()
    np.testing.assert_array_equal(run.log_probs(), [[-0.75]] * n)


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


@pytest.mark.parametrize("response_format", BARE)
@pytest.mark.parametrize("form", ["bare", "wrapped", "batch", "gz"])
def test_a_response_of_every_server_is_read_in_every_wrapping(write, response_format, form):
    wrapped = {
        "question_id": 7,
        "question": "Capital?",
        "references": "Paris",
        "response": response_format(),
    }
    batch = {
        "id": "batch_req_1",
        "custom_id": "q8",
        "response": {"status_code": 200, "body": response_format()},
        "error": None,
    }
    entry = {"wrapped": wrapped, "batch": batch}.get(form, response_format())
    run = import_answers(write(entry, name="r.jsonl" + ".gz" * (form == "gz")))
    check(run)
    names = {"wrapped": "7", "batch": "q8"}
    assert form not in names or run.questions["question_id"].tolist() == [names[form]]
    assert run.info.dataset == "r"


@pytest.mark.parametrize("response_format", BARE)
@pytest.mark.parametrize("kind", [dict, SimpleNamespace, of_pydantic])
def test_what_a_client_gives_back_is_read_as_a_file_of_it(response_format, kind):
    wrapped = {"question_id": "7", "question": "Capital?", "references": ["Paris"], "split": "test"}
    run = import_answers(
        [
            as_objects(response_format(), kind),
            wrapped | {"response": as_objects(response_format(), kind)},
        ]
    )
    check(run, n=2)
    assert run.questions.iloc[1].to_dict() == wrapped
    assert run.info.dataset == "responses"


def test_only_a_log_has_a_filter_that_leaves_out_answers():
    entries = [{"question_id": "q", "filter": n, "response": chat() | {"id": n}} for n in range(2)]
    assert len(import_answers(entries).answers) == 2


@pytest.mark.filterwarnings("ignore:.*repeat the text of an earlier question")
@pytest.mark.parametrize("response_format", BARE)
def test_what_was_cut_is_not_finished_and_a_run_without_a_finished_answer_is_refused(
    write, response_format
):
    cut = response_format(BARE[response_format])
    run = import_answers(
        write(
            {"question_id": "a", "response": response_format()},
            {"question_id": "b", "response": cut},
        )
    )
    assert run.answers["finished"].tolist() == [True, False]
    np.testing.assert_array_equal(run.log_probs(), [[-0.75], [np.nan]])
    with pytest.raises(
        RunError, match=r"none of the 1 answers is finished; their finish reasons are (?i:[a-z_]+)$"
    ):
        import_answers([cut])


@pytest.mark.parametrize(
    "word",
    [*sorted(NATURAL.union(NOT_ENDED)), "STOP", "FinishReason.STOP", "FINISH_REASON_STOP", "gone"],
)
def test_every_word_for_an_ending_is_known_or_said(word):
    entries = [
        {"question_id": "a", "response": chat()},
        {"question_id": "b", "response": chat(word)},
    ]
    is_natural = word.rpartition(".")[2].lower().removeprefix("finish_reason_") in NATURAL
    reason = "" if is_natural else NOT_ENDED.get(word, "cut")
    said = contextlib.nullcontext()
    if word == "gone":
        message = r"endings gone \(1\) are unknown; such an answer counts as cut"
        said = pytest.warns(UserWarning, match=message)
    elif reason not in ("", "cut"):
        said = pytest.warns(UserWarning, match="^1 answers .* are left out: entry 2, choice 0$")
    with said:
        run = import_answers(entries)
    assert run.reasons().tolist() == ["", reason]
    assert run.answers["finished"].tolist() == [True] + [is_natural] * (reason in ("", "cut"))
    assert run.log_probs()[0, 0] == -0.75


STREAMS = streamed() | {
    response_format.__name__: [response_format(None), response_format()]
    for response_format in (vllm, sglang)
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("line", ["{}", "data: {}\n"])
def test_a_stream_is_refused_with_its_place_and_not_read_in_pieces(write, name, line):
    wrapped = [{"question_id": "q", "response": piece} for piece in STREAMS[name]]
    for pieces in (STREAMS[name], wrapped):
        path = write(*(line.format(json.dumps(piece)) for piece in pieces), name="r.jsonl")
        texts = [" Paris"]  # the last piece may have the whole answer
        with contextlib.suppress(RunError):
            texts = import_answers(path).answers["text"].tolist()
        assert texts == [" Paris"]


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


def damage(response):
    """Yield copies of a response in each of which one thing is gone or of another kind."""
    for *path, last in places_of(response):
        for other in (None, "text", 5, [], {}, [None], float("nan"), True):
            copied = copy.deepcopy(response)
            reduce(getitem, path, copied)[last] = other
            yield copied


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("response_format", BARE)
def test_damage_leads_to_one_sentence_and_to_no_other_number(write, response_format):
    n_refused = 0
    for response in damage(response_format()):
        try:
            run = import_answers([response])
        except RunError:
            n_refused += 1
        else:
            [log_prob] = run.answers["log_prob"]
            assert np.isnan(log_prob) or log_prob in (-0.75, -0.25, -0.5)
    assert n_refused > 10


def test_output_ids_are_those_of_the_responses_if_the_questions_have_none(write):
    lines = []
    for n in range(2):
        request = {"messages": [{"role": "user", "content": f"Capital {n}?"}]}
        lines.append(chat(id=f"chatcmpl-{n}", request=request))
    questions = write("question,answer", "Capital 0?,Paris", "Capital 1?,Oslo", name="set.csv")
    run = import_answers(write(*lines), questions=questions)
    assert list(run.questions["question_id"]) == ["chatcmpl-0", "chatcmpl-1"]
