"""Test the response formats of servers: every one leads to the same answer or an error."""

import contextlib
import copy
import csv
import gzip
import json
import re
from functools import reduce
from operator import getitem
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import create_model
from test_damaged_input import choice, places_of, vllm_output

from pro_lib.common.files import RunError
from pro_lib.importing.importers import from_openai, import_answers
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
    chunks = [{"role": "assistant", "content": ""}, {"content": " Par"}, {"content": "is"}, {}]
    logprobs = [None, *({"content": [token]} for token in listed()), None]
    openai = [
        {
            "id": "s1",
            "object": "chat.completion.chunk",
            "choices": [
                {
                    "index": 0,
                    "delta": delta,
                    "logprobs": logprob,
                    "finish_reason": "stop" if delta == {} else None,
                }
            ],
        }
        for delta, logprob in zip(chunks, logprobs, strict=True)
    ]
    texts = [
        {
            "id": "t1",
            "object": "text_completion",
            "choices": [
                {
                    "index": 0,
                    "text": token,
                    "logprobs": {"token_logprobs": [value]},
                    "finish_reason": reason,
                }
            ],
        }
        for (token, value), reason in zip(TOKENS, (None, "stop"), strict=True)
    ]
    pieces = [{"token": token, "logprob": value} for token, value in TOKENS]
    ollama = [{"response": piece["token"], "done": False, "logprobs": [piece]} for piece in pieces]
    llama = [
        {"content": piece["token"], "stop": False, "completion_probabilities": [piece]}
        for piece in pieces
    ]
    end = {"content": "", "stop": True, "stop_type": "eos", "completion_probabilities": []}
    generated = [
        {
            "index": n,
            "token": {"id": n, "text": token, "logprob": value, "special": False},
            "generated_text": None,
        }
        for n, (token, value) in enumerate(TOKENS)
    ]
    generated[1] |= {
        "generated_text": " Paris",
        "details": {"finish_reason": "eos_token", "generated_tokens": 2},
    }
    events = [
        {"type": "response.created", "response": responses_api("in_progress") | {"output": []}}
    ]
    events += [{"type": "response.output_text.delta", "delta": " Par", "logprobs": listed()[:1]}]
    events += [{"type": "response.completed", "response": responses_api()}]
    parts = [
        {
            "responseId": "g",
            "candidates": [
                {
                    "content": {"parts": [{"text": token}]},
                    "finishReason": reason,
                    "logprobsResult": {"chosenCandidates": [{"logProbability": value}]},
                }
            ],
        }
        for (token, value), reason in zip(TOKENS, (None, "STOP"), strict=True)
    ]
    ollama.append({"response": "", "done": True, "done_reason": "stop"})
    return {
        "chat": openai,
        "text": texts,
        "ollama": ollama,
        "llama.cpp": [*llama, end],
        "tgi": generated,
        "responses": events,
        "gemini": parts,
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
    run = from_openai(
        [
            as_objects(response_format(), kind),
            wrapped | {"response": as_objects(response_format(), kind)},
        ]
    )
    check(run, n=2)
    assert run.questions.iloc[1].to_dict() == wrapped
    assert run.info.dataset == "responses"


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
        from_openai([cut])


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
        run = from_openai(entries)
    assert run.reasons().tolist() == ["", reason]
    assert run.answers["finished"].tolist() == [True] + [is_natural] * (reason in ("", "cut"))
    assert run.log_probs()[0, 0] == -0.75


STREAMS = streamed() | {
    response_format.__name__: [response_format(None), response_format()]
    for response_format in (vllm, sglang)
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("line", ["{}", "data: {}\n"])
def test_a_stream_is_refused_with_its_place_and_not_read_in_pieces(write, name, line):
    wrapped = [{"question_id": "q", "response": piece} for piece in STREAMS[name]]
    for pieces in (STREAMS[name], wrapped):
        with pytest.raises(RunError, match=r"r\.jsonl, line \d"):
            import_answers(
                write(*(line.format(json.dumps(piece)) for piece in pieces), name="r.jsonl")
            )


def test_every_sequence_of_tgi_counts():
    other = {
        "generated_text": " Lyon",
        "finish_reason": "eos_token",
        "tokens": [{"text": " Lyon", "logprob": -3.0}],
    }
    response = tgi()
    response["details"]["best_of_sequences"] = [other]
    np.testing.assert_array_equal(from_openai([response]).log_probs(), [[-0.75, -3.0]])


QUESTIONS = pd.DataFrame(
    {
        "question_id": ["q0", "q1"],
        "question": ["What is the capital of Peru?", "And of France, Zoë?"],
        "references": [["Lima"], ["Paris"]],
        "split": "test",
        "level": [1, 2],
    }
)


def answered(value, **fields):
    response = chat(id=f"r{value}")
    response["choices"][0] |= {
        "message": {"content": str(value)},
        "logprobs": {"content": [{"logprob": value}]},
    }
    return {**fields, "response": response}


def responses(*asked):
    """Responses with log-probabilities of -1, -2 and so on; each says this of its question."""
    return [answered(-float(n), **fields) for n, fields in enumerate(asked, start=1)]


PERU, FRANCE = QUESTIONS["question"]
# The questions that responses name, which may be one, and the log-probabilities that the two
# questions then have.
SAMPLES = [
    (
        [{"question_id": "q0"}, {"question_id": "q0"}, {"question_id": "q1"}],
        [[-1, -2], [-3, np.nan]],
    ),
    ([{"question": PERU}, {"question": PERU}, {"question": FRANCE}], [[-1, -2], [-3, np.nan]]),
    (
        [
            {"custom_id": "q0-0", "question": PERU},
            {"custom_id": "q0-1", "question": PERU},
            {"custom_id": "q1-0", "question": FRANCE},
        ],
        [[-1, -2], [-3, np.nan]],
    ),
]
MET = [
    *SAMPLES,
    ([{"custom_id": f"q{n // 2}-{n % 2}"} for n in range(4)], [[-1, -2], [-3, -4]]),
    ([{"custom_id": f"a-{n}", "question": PERU} for n in range(2)], [[-1, -2], [np.nan, np.nan]]),
    ([{"question_id": "q1"}, {"question_id": "q0"}], [[-2], [-1]]),
    ([{"question": "and of FRANCE , Zoe\u0308"}, {"question": PERU}], [[-2], [-1]]),
    (
        [{"prompt": f"Q: {PERU}\nA: Lima\nQ: {FRANCE}\nA:"}, {"prompt": f"Q: {PERU}\nA:"}],
        [[-2], [-1]],
    ),
    (
        [
            {
                "messages": [
                    {"role": "system", "content": "Short."},
                    {"role": "user", "content": FRANCE},
                ]
            },
            {"messages": [{"role": "user", "content": [{"type": "text", "text": PERU}]}]},
        ],
        [[-2], [-1]],
    ),
    (
        [{"question_id": "x", "question": FRANCE}, {"custom_id": "y", "question": PERU}],
        [[-2], [-1]],
    ),
    (
        [
            {"prompt": f"Answer.\nQ: Of Chile?\nA: Santiago\nQ: {FRANCE}\nA:"},
            {"prompt": f"Answer.\nQ: {FRANCE}\nA: Paris\nQ: {PERU}\nA:"},
        ],
        [[-2], [-1]],
    ),
    ([{"question_id": "q1", "question": FRANCE}, {"question": PERU}], [[-2], [-1]]),
]


@pytest.mark.filterwarnings("ignore:the ids of some answers .* so 'a-0' counts as a sample of 'a'")
@pytest.mark.parametrize(("asked", "log_probs"), MET)
def test_responses_meet_their_questions_by_id_else_by_text(write, asked, log_probs):
    run = import_answers(write(*responses(*asked)), questions=QUESTIONS)
    pd.testing.assert_frame_equal(run.questions, QUESTIONS)
    np.testing.assert_array_equal(run.log_probs(), log_probs)


@pytest.mark.filterwarnings(
    "ignore:the ids of some answers .* so 'q0-0' counts as a sample of 'q0'"
)
@pytest.mark.parametrize(("asked", "log_probs"), SAMPLES)
def test_single_answers_to_one_question_are_its_samples(asked, log_probs):
    np.testing.assert_array_equal(from_openai(responses(*asked)).log_probs(), log_probs)


def test_a_place_decides_only_where_nothing_else_does_and_a_warning_says_so(write):
    for first, value in ((answered(-1.0), -1.0), ({"error": "x"}, np.nan)):
        with pytest.warns(
            UserWarning, match="neither ids nor texts .* in the order of|that failed"
        ):
            run = import_answers(write(first, answered(-2.0)), questions=QUESTIONS)
        np.testing.assert_array_equal(run.log_probs(), [[value], [-2.0]])


TWICE = QUESTIONS.assign(question=PERU)
USED = "line 2: question_id 'q' was already used ("
# The questions that responses name, the questions that were asked, and the words of the error.
REFUSED = [
    (
        [{"question_id": "q0", "question": FRANCE}],
        QUESTIONS,
        f"'q0' has the text {FRANCE!r} here, but {PERU!r} in questions=",
    ),
    (
        [{"question": "Of Chile?"}],
        QUESTIONS,
        "'r-1.0' is not in questions=, and neither is its text 'Of Chile?'",
    ),
    ([{}], QUESTIONS, "question_id 'r-1.0' is not in questions=, and its question has no text"),
    ([{"question_id": "q7"}], QUESTIONS, "question_id 'q7' is not in questions="),
    (
        [{"question_id": "q7"}, {"question_id": "q0"}],
        QUESTIONS,
        "question_id 'q7' is not in questions=",
    ),
    (
        [{"question_id": "a", "question": PERU}, {"question_id": "b", "question": PERU}],
        QUESTIONS,
        "several of its questions match question 'q0' of questions=",
    ),
    (
        [{"question_id": "q0", "question": FRANCE}, {"question_id": "x", "question": PERU}],
        QUESTIONS,
        f"'q0' has the text {FRANCE!r} here, but {PERU!r} in questions=",
    ),
    (
        [{"prompt": f"Q: {PERU}\nA:"}, {"prompt": f"Q: {FRANCE}\nA: Paris\nQ: Of Chile?\nA:"}],
        QUESTIONS,
        "the prompts of 'r-1.0' and 'r-2.0' have different words around",
    ),
    ([{"question": PERU}, {"question": f"{FRANCE} And when?"}], QUESTIONS, "have different words"),
    (
        [{"question_id": "q", "question": PERU}, {"question_id": "q", "question": FRANCE}],
        QUESTIONS,
        USED,
    ),
    (
        [{"question_id": "q", "references": "x"}, {"question_id": "q", "references": "y"}],
        QUESTIONS,
        USED,
    ),
    ([{"question_id": "q", "split": "x"}, {"question_id": "q", "split": "y"}], QUESTIONS, USED),
    ([{"question": PERU}], TWICE, "is the text of several given questions; give"),
    (
        [{}, {}],
        QUESTIONS.assign(question_id=["r-2.0", "r-1.0"]),
        "ids are those of questions=, in another order",
    ),
    (
        [{}],
        QUESTIONS.assign(question_id="b"),
        "must have columns question_id and question, and each id once",
    ),
    (
        [{}],
        QUESTIONS.drop(columns="question"),
        "must have columns question_id and question, and each id once",
    ),
]


@pytest.mark.parametrize(("asked", "questions", "sentence"), REFUSED)
def test_responses_that_do_not_fit_the_questions_are_refused(write, asked, questions, sentence):
    with pytest.raises(RunError, match=re.escape(sentence)):
        import_answers(write(*responses(*asked)), questions=questions)


def test_an_id_or_every_word_decides_between_two_questions():
    some = TWICE.drop(columns="references")
    with pytest.warns(
        UserWarning, match="1 of its 2 questions repeat the text of an earlier question"
    ):
        run = from_openai(responses({"question": PERU, "question_id": "q1"}), questions=some)
    pd.testing.assert_frame_equal(run.questions[[*some]], some)
    np.testing.assert_array_equal(run.log_probs(), [[np.nan], [-1.0]])
    asked = responses({"question": "What is 5?"}, {"question": "What is -5?"})
    run = from_openai(asked, questions=QUESTIONS.assign(question=["What is -5?", "What is 5?"]))
    np.testing.assert_array_equal(run.log_probs(), [[-2.0], [-1.0]])


def test_numbers_in_ids_are_samples_where_the_questions_say_so_or_all_have_the_same():
    with pytest.warns(UserWarning, match="so 'q0-0' counts as a sample of 'q0'"):
        assert from_openai(responses(*MET[3][0])).log_probs().shape == (2, 2)
    for ids in (["nq-1", "nq-2", "nq-3", "sciq-1"], [f"nq-{n}" + "0" * 5000 for n in range(2)]):
        run = from_openai(responses(*({"custom_id": name} for name in ids)))
        assert run.questions["question_id"].tolist() == ids
    mine = responses({"custom_id": "mine-0"}, {"custom_id": "mine-1"})
    run = from_openai(mine, questions=QUESTIONS.assign(question_id=["mine-0", "mine-1"]))
    np.testing.assert_array_equal(run.log_probs(), [[-1], [-2]])
    texts = responses(
        {"custom_id": "q-0", "question": PERU}, {"custom_id": "q-1", "question": FRANCE}
    )
    assert from_openai(texts).questions["question_id"].tolist() == ["q-0", "q-1"]


def test_failures_and_refusals_are_left_out_counted_and_named(write):
    refusal = chat()
    refusal["choices"][0]["message"] = {"content": None, "refusal": "No."}
    failures = [
        {
            "custom_id": "b",
            "response": {"status_code": 400, "body": {"error": {"message": "bad"}}},
            "error": None,
        },
        {"custom_id": "c", "response": None, "error": {"code": "expired"}},
        {
            "custom_id": "d",
            "response": {"body": responses_api("failed") | {"error": {"code": "x"}}},
        },
    ]
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m"}
    lines = [answered(-1.0, custom_id="a"), *failures, {"custom_id": "e", "response": refusal}]
    lines += [{"question_id": "f", "response": blocked}]
    rare, empty = choice("Zug", ("Z", -0.5), ("ug", -9999.0)), choice("")
    lines += [{"question_id": "g", "response": {"choices": [empty, rare]}}]
    with pytest.warns(UserWarning, match="are left out") as caught:
        run = from_openai(write(*lines))
    assert sorted(str(warning.message) for warning in caught) == [
        "2 answers that a filter or a refusal stopped are left out: line 5, choice 0; line 6, "
        "choice 0",
        "2 answers whose probability was not returned are left out: line 7, choice 0; line 7, "
        "choice 1",
        "3 answers that failed are left out: line 2; line 3; line 4",
    ]
    assert {warning.filename for warning in caught} == {__file__}
    assert run.questions["question_id"].tolist() == list("abcdefg")
    assert run.reasons().tolist() == [
        "",
        *["failed"] * 3,
        *["filtered"] * 2,
        "no log-probabilities",
    ]
    assert run.log_probs()[0].tolist() == [-1.0]
    assert np.isnan(run.log_probs()[1:]).all()
    with pytest.raises(
        RunError,
        match=r"contains no answers.*\(4 questions\); left out are 3 that failed \(line 1.*bad",
    ):
        import_answers(write(*failures, lines[-1]))


@pytest.mark.parametrize(
    "names",
    [
        "question_id question text log_prob",
        "id prompt answer logprob",
        "id prompt completion log_probability",
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".tsv.csv"])
def test_a_table_of_texts_and_log_probabilities_is_read(tmp_path, names, suffix):
    header = [*names.split()[:2], "references", *names.split()[2:], "finished"]
    rows = [["1", "Capital of Peru?", "Lima; Ciudad de los Reyes", "Lima, Peru", "-0.5", "True"]]
    rows += [
        ["1", "Capital of Peru?", "", "Cusco", "-2", "true"],
        ["2", "Of France?", "Paris", "", "-1e0", "false"],
    ]
    path = tmp_path / f"answers{suffix}"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t" if suffix == ".tsv" else ",").writerows([header, *rows])
    run = import_answers(path)
    np.testing.assert_array_equal(run.log_probs(), [[-0.5, -2.0], [np.nan, np.nan]])
    assert run.answers["text"].dropna().tolist() == ["Lima, Peru", "Cusco"]
    assert run.questions["references"].tolist() == [["Lima", "Ciudad de los Reyes"], ["Paris"]]
    table = pd.read_csv(path, sep="\t" if suffix == ".tsv" else ",").drop(columns=header[2])
    table.to_parquet(tmp_path / "answers.parquet")
    (tmp_path / f"answers{suffix}.gz").write_bytes(gzip.compress(path.read_bytes()))
    for name in ("answers.parquet", f"answers{suffix}.gz"):
        np.testing.assert_array_equal(import_answers(tmp_path / name).log_probs(), run.log_probs())
    path.write_text(path.read_text().replace("-0.5", "half"))
    with pytest.raises(
        RunError, match=r"line 2: answers\[0\].log_prob='half' must be a log-probability"
    ):
        import_answers(path, strict=True)
    with pytest.warns(
        UserWarning, match=r"^1 answers that cannot be read are left out: .*log_prob='half' must be"
    ):
        run = import_answers(path)
    np.testing.assert_array_equal(run.log_probs(), [[-2.0], [np.nan]])


def test_rows_without_an_id_are_those_of_their_question(write):
    run = import_answers(
        write("question,text,log_prob", "A?,x,-1", "B?,y,-2", "A?,z,-3", name="a.csv")
    )
    np.testing.assert_array_equal(run.log_probs(), [[-1, -3], [-2, np.nan]])
    path = write("question_id,question,text,log_prob", "0,A?,x,-1", "0,B?,y,-2", name="a.csv")
    with pytest.raises(
        RunError,
        match=r"line 3: question_id '0' was already used \(.*line 2\), by another question",
    ):
        import_answers(path)
    assert from_openai([tgi(), tgi()]).questions["question_id"].tolist() == [
        "responses-1",
        "responses-2",
    ]


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
            run = from_openai([response])
        except RunError:
            n_refused += 1
        else:
            assert run.log_probs()[0, 0] in (-0.75, -0.25, -0.5)
    assert n_refused > 10
