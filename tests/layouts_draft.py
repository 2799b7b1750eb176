"""Responses in every layout that servers write today, each file as its server writes it: what is read, what refused."""

import gzip
import itertools
import json
import warnings

import pandas as pd
import pytest

from pro_lib.files import RunError
from pro_lib.imports import from_file

TEXTS = {"peru": "Capital of Peru?", "chad": "Capital of Chad?"}
QUESTIONS = pd.DataFrame({"question_id": TEXTS.keys(), "question": TEXTS.values(), "references": [["Lima"], ["x"]]})
QUESTIONS = QUESTIONS.assign(split="test")
# Of a question its samples: text, tokens with log-probabilities, and whether the answer ended by itself.
SAMPLES = {
    "peru": [("Lima", [("Li", -0.25), ("ma", -0.125)], True), ("Cus", [("Cus", -2.0)], False)],
    "chad": [("N'Djamena", [("N'", -0.5), ("Djamena", -0.25)], True), ("Abéché", [("Ab", -1.0), ("éché", -2.0)], True)],
}
END = ("</s>", -0.0625)  # what servers that return the ending say of it
NUMBER = itertools.count()


# --- Bodies: of one question's samples, what its server answers ---


def entries(tokens):
    return [{"token": t, "logprob": p, "bytes": [*t.encode()], "top_logprobs": []} for t, p in tokens]


def ended(tokens, finished):
    return tokens + [END] * finished


def chat(samples):
    """A chat completion of OpenAI, and of whoever is compatible."""
    choices = [
        {
            "index": n,
            "message": {"role": "assistant", "content": text, "refusal": None, "annotations": []},
            "logprobs": {"content": entries(tokens), "refusal": None},
            "finish_reason": "stop" if finished else "length",
        }
        for n, (text, tokens, finished) in enumerate(samples)
    ]
    return [
        {
            "id": f"chatcmpl-{next(NUMBER)}",
            "object": "chat.completion",
            "model": "gpt-4.1",
            "choices": choices,
            "usage": {},
        }
    ]


def completion(samples):
    choices = []
    for n, (text, tokens, finished) in enumerate(samples):
        names, values = map(list, zip(*tokens, strict=True))
        logprobs = {"tokens": names, "token_logprobs": values, "top_logprobs": None, "text_offset": [0] * len(names)}
        choices.append(
            {"index": n, "text": text, "logprobs": logprobs, "finish_reason": "stop" if finished else "length"}
        )
    return [{"id": f"cmpl-{next(NUMBER)}", "object": "text_completion", "model": "davinci-002", "choices": choices}]


def responses(samples):
    """OpenAI's Responses API with include=["message.output_text.logprobs"]; before the message, what it reasoned."""
    bodies = []
    for n, (text, tokens, finished) in enumerate(samples):
        part = {"type": "output_text", "annotations": [], "text": text, "logprobs": entries(tokens)}
        status = "completed" if finished else "incomplete"
        message = {"id": f"msg_{n}", "type": "message", "status": status, "role": "assistant", "content": [part]}
        body = {"id": f"resp_{next(NUMBER)}", "object": "response", "status": status, "error": None, "model": "gpt-4.1"}
        body |= {"incomplete_details": None if finished else {"reason": "max_output_tokens"}, "instructions": None}
        body |= {"output": [{"id": f"rs_{n}", "type": "reasoning", "summary": []}, message], "text": {}, "tools": []}
        bodies.append(body)
    return bodies


def ollama(text, tokens, finished, **body):
    done = {"done": True, "done_reason": "stop" if finished else "length", "eval_count": len(tokens)}
    return {"model": "gemma3", "created_at": "2026-01-05T10:00:00Z"} | body | done | {"logprobs": entries(tokens)}


def ollama_chat(samples):
    return [ollama(*sample, message={"role": "assistant", "content": sample[0]}) for sample in samples]


def ollama_generate(samples):
    return [ollama(*sample, response=sample[0], context=[1, 2], total_duration=5) for sample in samples]


def llama_cpp(samples):
    """llama.cpp's own /completion with n_probs."""
    return [
        {
            "index": 0,
            "content": text,
            "tokens": [],
            "id_slot": 0,
            "stop": True,
            "model": "gpt-3.5-turbo",
            "tokens_predicted": len(tokens),
            "stop_type": "eos" if finished else "limit",
            "stopping_word": "",
            "truncated": False,
            "completion_probabilities": [{"id": 5} | entry for entry in entries(ended(tokens, finished))],
        }
        for text, tokens, finished in samples
    ]


def tgi_tokens(tokens):
    return [{"id": 5, "text": t, "logprob": p, "special": t == END[0]} for t, p in tokens]


def tgi(samples):
    """TGI's /generate with details=true."""
    bodies = []
    for text, tokens, finished in samples:
        details = {"finish_reason": "eos_token" if finished else "length", "generated_tokens": 2, "seed": 7}
        details |= {"prefill": [], "tokens": tgi_tokens(ended(tokens, finished))}
        bodies.append({"generated_text": text, "details": details})
    return bodies


def sglang(samples):
    """SGLang's /generate with return_logprob."""
    bodies = []
    for text, tokens, finished in samples:
        reason = {"type": "stop", "matched": 2} if finished else {"type": "length", "length": 16}
        listed = [[p, 5, None] for _, p in ended(tokens, finished)]
        meta = {"id": "a1", "finish_reason": reason, "prompt_tokens": 9, "completion_tokens": len(listed)}
        meta |= {"input_token_logprobs": [[None, 1, None], [-3.0, 4, None]], "output_token_logprobs": listed}
        bodies.append({"text": text, "output_ids": [5] * len(listed), "meta_info": meta})
    return bodies


def gemini(samples):
    """Gemini's generateContent with responseLogprobs; a model that thinks writes that as a part of its own."""
    candidates = []
    for n, (text, tokens, finished) in enumerate(samples):
        chosen = [{"token": t, "tokenId": 5, "logProbability": p} for t, p in tokens]
        top = [{"candidates": [entry, {"token": "x", "tokenId": 6, "logProbability": -9.0}]} for entry in chosen]
        content = {"parts": [{"text": text}], "role": "model"}
        candidates.append({"content": content, "finishReason": "STOP" if finished else "MAX_TOKENS", "index": n})
        candidates[-1] |= {"avgLogprobs": -1.0, "logprobsResult": {"chosenCandidates": chosen, "topCandidates": top}}
    return [{"candidates": candidates, "usageMetadata": {}, "modelVersion": "gemini-2.5-flash", "responseId": "Xy1"}]


def gemini_client(samples):
    """The same as `model_dump_json` of Google's Python client writes it."""
    snake = {"finishReason": "finish_reason", "logprobsResult": "logprobs_result", "avgLogprobs": "avg_logprobs"}
    snake |= {"chosenCandidates": "chosen_candidates", "topCandidates": "top_candidates", "tokenId": "token_id"}
    snake |= {"logProbability": "log_probability", "usageMetadata": "usage_metadata", "responseId": "response_id"}
    text = json.dumps(gemini(samples))
    for camel, name in snake.items():
        text = text.replace(f'"{camel}"', f'"{name}"')
    return json.loads(text)


def vllm(samples):
    outputs = []
    for n, (text, tokens, finished) in enumerate(samples):
        listed = ended(tokens, finished)
        steps = [{str(m): {"logprob": p, "rank": 1, "decoded_token": t}} for m, (t, p) in enumerate(listed)]
        output = {"index": n, "text": text, "token_ids": [*range(len(listed))], "logprobs": steps, "stop_reason": None}
        cumulative = sum(p for _, p in listed)
        outputs.append(output | {"cumulative_logprob": cumulative, "finish_reason": "stop" if finished else "length"})
    return [{"request_id": str(next(NUMBER)), "prompt_token_ids": [1], "outputs": outputs, "finished": True}]


# Of each layout its bodies, and whether the ending is among the tokens.
LAYOUTS = {
    "chat": (chat, False),
    "completion": (completion, False),
    "responses": (responses, False),
    "ollama chat": (ollama_chat, False),
    "ollama generate": (ollama_generate, False),
    "llama.cpp": (llama_cpp, True),
    "tgi": (tgi, True),
    "sglang": (sglang, True),
    "gemini": (gemini, False),
    "gemini's client": (gemini_client, False),
    "vllm": (vllm, True),
}
LAYOUT = pytest.mark.parametrize("name", LAYOUTS)


# --- Reading ---


@pytest.fixture
def write(tmp_path):
    def file(*lines, name="responses.jsonl"):
        path = tmp_path / name
        data = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return file


def read(path, *, questions=QUESTIONS, quiet=True):
    """Of every question its answers: text, log-probability of all that was returned, and whether it is finished."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "error")
        run = from_file(path, questions=questions)
    table = run.answers.assign(total=run.answers["log_prob"] + run.answers["end_log_prob"].fillna(0.0))
    grouped = dict(iter(table.groupby("question_id", sort=False)))
    assert sorted(grouped) == sorted(set(table["question_id"]))
    return {
        identity: [(row.text, round(row.total, 9), bool(row.finished)) for row in rows.sort_values("rank").itertuples()]
        for identity, rows in grouped.items()
    }


def expected(ends, which=slice(None)):
    """What `read` must return, in base e, where the ending is among the tokens or not."""
    return {
        identity: [
            (text, sum(p for _, p in (ended(tokens, finished) if ends else tokens)), finished)
            for text, tokens, finished in samples[which]
        ]
        for identity, samples in SAMPLES.items()
    }


@LAYOUT
def test_wrapped_responses_belong_to_the_question_whose_id_they_carry(write, name):
    bodies, ends = LAYOUTS[name]
    lines = [{"question_id": i, "response": body} for i, samples in SAMPLES.items() for body in bodies(samples)]
    assert read(write(*lines), quiet=False) == expected(ends)
    assert read(write(*lines[::-1])).keys() == SAMPLES.keys()
    assert read(write(*lines), questions=None, quiet=False) == expected(ends)


@LAYOUT
def test_a_response_may_carry_its_id_itself(write, name):
    bodies, ends = LAYOUTS[name]
    lines = [{"question_id": i} | body for i, samples in SAMPLES.items() for body in bodies(samples)]
    assert read(write(*lines), quiet=False) == expected(ends)


@LAYOUT
def test_bare_responses_are_met_in_their_place_and_a_warning_says_so(write, name):
    bodies, ends = LAYOUTS[name]
    lines = [body for samples in SAMPLES.values() for body in bodies(samples[:1])]
    if name == "llama.cpp":
        lines = [line | {"prompt": f"Q: {text}\nA:"} for line, text in zip(lines, TEXTS.values(), strict=True)]
        assert read(write(*lines)) == expected(ends, slice(1))
        return
    with pytest.warns(UserWarning, match="place"):
        from_file(write(*lines), questions=QUESTIONS)
    assert read(write(*lines)) == expected(ends, slice(1))
    with pytest.raises(RunError, match=r"responses\.jsonl"):
        read(write(*lines[:1]))


@pytest.mark.parametrize("name", ["chat", "completion", "responses"])
@pytest.mark.parametrize("numbered", [False, True])
def test_the_batch_api_repeats_an_id_or_numbers_it(write, name, numbered):
    """A line a sample, `peru` twice or `peru-0` and `peru-1`, out of order as the batch API returns them."""
    lines = []
    for identity, samples in SAMPLES.items():
        for n, sample in enumerate(samples):
            response = {"status_code": 200, "request_id": "7", "body": LAYOUTS[name][0]([sample])[0]}
            custom = f"{identity}-{n}" if numbered else identity
            lines.append({"id": f"batch_req_{n}", "custom_id": custom, "response": response, "error": None})
    assert read(write(lines[2], lines[0], lines[3], lines[1]), quiet=False) == expected(False)


def test_numbers_that_belong_to_an_id_stay_with_it(write):
    numbered = QUESTIONS.assign(question_id=["mine-0", "mine-1"])
    lines = [{"question_id": f"mine-{n}"} | chat(samples)[0] for n, samples in enumerate(SAMPLES.values())]
    mine = dict(zip(["mine-0", "mine-1"], expected(False).values(), strict=True))
    assert read(write(*lines), questions=numbered) == mine
    assert read(write(*lines), questions=None) == mine


@pytest.mark.parametrize("questions", [QUESTIONS, None])
def test_numbered_ids_with_one_text_are_one_question(write, questions):
    lines = [
        {"question_id": f"{identity}-{n}", "question": TEXTS[identity]} | chat([sample])[0]
        for identity, samples in SAMPLES.items()
        for n, sample in enumerate(samples)
    ]
    assert list(read(write(*lines), questions=questions).values()) == list(expected(False).values())


# --- Streams: the chunks of one response after another ---


def sse(*chunks, space=" "):
    return [line for chunk in chunks for line in (f"data:{space}{json.dumps(chunk)}", "")]


def chat_chunks(identity, samples):
    """Chunks of n choices, taking turns; before and after them one without text, and one of the usage."""

    def chunk(n, delta, logprobs=None, reason=None):
        choice = {"index": n, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return {"id": identity, "object": "chat.completion.chunk", "model": "gpt-4.1", "choices": [choice]}

    turns = []
    for n, (_, tokens, finished) in enumerate(samples):
        turns.append((0, chunk(n, {"role": "assistant", "content": "", "refusal": None})))
        for turn, entry in enumerate(entries(tokens), start=1):
            turns.append((turn, chunk(n, {"content": entry["token"]}, {"content": [entry], "refusal": None})))
        turns.append((9, chunk(n, {}, reason="stop" if finished else "length")))
    usage = {"id": identity, "object": "chat.completion.chunk", "choices": [], "usage": {"completion_tokens": 3}}
    return [chunk for _, chunk in sorted(turns, key=lambda turn: turn[0])] + [usage]


def completion_chunks(identity, samples):
    lines = []
    for n, (_, tokens, finished) in enumerate(samples):
        for place, (token, value) in enumerate(tokens, start=1):
            reason = ("stop" if finished else "length") if place == len(tokens) else None
            logprobs = {"tokens": [token], "token_logprobs": [value], "top_logprobs": None, "text_offset": [0]}
            choice = {"index": n, "text": token, "logprobs": logprobs, "finish_reason": reason}
            lines.append({"id": identity, "object": "text_completion", "choices": [choice]})
    return lines


def ollama_chunks(samples, key):
    """Lines until the one that is done; the last has no text, and no id joins them."""
    lines = []
    for _, tokens, finished in samples:
        for entry in entries(tokens):
            part = entry["token"] if key == "response" else {"role": "assistant", "content": entry["token"]}
            lines.append({"model": "gemma3", key: part, "done": False, "logprobs": [entry]})
        part = "" if key == "response" else {"role": "assistant", "content": ""}
        reason = "stop" if finished else "length"
        lines.append({"model": "gemma3", key: part, "done": True, "done_reason": reason, "eval_count": 2})
    return lines


def llama_chunks(samples):
    lines = []
    for _, tokens, finished in samples:
        for entry in entries(tokens):
            body = {"index": 0, "content": entry["token"], "tokens": [5], "stop": False, "id_slot": 0}
            lines.append(body | {"completion_probabilities": [{"id": 5} | entry]})
        lines.append({"index": 0, "content": "", "stop": True, "stop_type": "eos" if finished else "limit"})
    return lines


def tgi_chunks(samples):
    """As TGI's /generate_stream writes them; the last chunk has the whole text, and why it ended."""
    lines = []
    for text, tokens, finished in samples:
        listed = tgi_tokens(ended(tokens, finished))
        lines += [
            {"index": n, "token": token, "generated_text": None, "details": None} for n, token in enumerate(listed)
        ]
        reason = "eos_token" if finished else "length"
        details = {"finish_reason": reason, "generated_tokens": 2, "input_length": 9, "seed": None}
        lines[-1] |= {"generated_text": text, "details": details}
    return lines


def responses_events(samples):
    """As the Responses API streams: events around a response that the last of them repeats whole."""
    lines = []
    for body in responses(samples):
        lines.append({"type": "response.created", "response": body | {"status": "in_progress", "output": []}})
        for entry in body["output"][1]["content"][0]["logprobs"]:
            delta = {"type": "response.output_text.delta", "item_id": "msg_0", "delta": entry["token"]}
            lines.append(delta | {"logprobs": [entry], "output_index": 1, "sequence_number": 4})
        lines.append({"type": f"response.{body['status']}", "response": body, "sequence_number": 9})
    return lines


FIRSTS = [sample for samples in SAMPLES.values() for sample in samples[:1]]
CHAT_CHUNKS = [chunk for n, samples in enumerate(SAMPLES.values()) for chunk in chat_chunks(f"c{n}", samples)]
TEXT_CHUNKS = [chunk for n, samples in enumerate(SAMPLES.values()) for chunk in completion_chunks(f"c{n}", samples)]
EVENTS = [f"event: {event['type']}\n{line}" for event in responses_events(FIRSTS) for line in sse(event)[:1]]
# Of each stream its lines, whether the ending is among the tokens, and which samples are there.
STREAMS = {
    "chat, SSE": ([*sse(*CHAT_CHUNKS), "data: [DONE]", ""], False, slice(None)),
    "chat, lines": (CHAT_CHUNKS, False, slice(None)),
    "completion, SSE": ([*sse(*TEXT_CHUNKS), "data: [DONE]"], False, slice(None)),
    "ollama chat": (ollama_chunks(FIRSTS, "message"), False, slice(1)),
    "ollama generate": (ollama_chunks(FIRSTS, "response"), False, slice(1)),
    "llama.cpp": (sse(*llama_chunks(FIRSTS)), False, slice(1)),
    "tgi": (sse(*tgi_chunks(FIRSTS), space=""), True, slice(1)),
    "responses": (EVENTS, False, slice(1)),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streamed_chunks_are_joined(write, name):
    lines, ends, which = STREAMS[name]
    assert read(write(*lines)) == expected(ends, which)


def test_wrapped_chunks_are_joined_under_their_id(write):
    lines = [{"question_id": i, "response": c} for i, s in SAMPLES.items() for c in chat_chunks(f"x-{i}", s)]
    assert read(write(*lines), quiet=False) == expected(False)


# --- Other files ---


@pytest.mark.parametrize("name", ["chat", "ollama chat", "sglang"])
def test_a_compressed_file_is_read_as_it_is(write, name):
    bodies, ends = LAYOUTS[name]
    lines = [{"question_id": i} | body for i, samples in SAMPLES.items() for body in bodies(samples)]
    assert read(write(*lines, name="responses.jsonl.gz"), quiet=False) == expected(ends)


@pytest.mark.parametrize("header", ["question_id,text,log_prob", "question_id,answer,logprob"])
def test_a_csv_of_texts_and_log_probabilities_is_read(write, header):
    rows = [f'{i},"{text}",{sum(p for _, p in tokens)}' for i, s in SAMPLES.items() for text, tokens, _ in s]
    whole = {i: [(text, value, True) for text, value, _ in rows] for i, rows in expected(False).items()}
    assert read(write(header, *rows, name="answers.csv"), quiet=False) == whole


def test_a_csv_without_ids_is_met_by_the_questions_text(write):
    rows = [f'{TEXTS[i]},"{text}",{sum(p for _, p in t)}' for i in ("chad", "peru") for text, t, _ in SAMPLES[i]]
    whole = {i: [(text, value, True) for text, value, _ in rows] for i, rows in expected(False).items()}
    assert read(write("question,text,log_prob", *rows, name="answers.csv"), quiet=False) == whole


def test_texts_of_a_csv_stay_as_they_are_written(write):
    path = write("question_id,text,log_prob", "peru,007,-1", "peru,NA,-2", "peru,1.50,-3", name="answers.csv")
    assert [text for text, *_ in read(path)["peru"]] == ["007", "NA", "1.50"]


# --- What is left out, and said ---


GOOD = [
    {"custom_id": i, "response": {"status_code": 200, "body": chat(s)[0]}, "error": None} for i, s in SAMPLES.items()
]
EXPIRED = {"custom_id": "e", "response": None, "error": {"code": "batch_expired", "message": "This request expired."}}
PROBLEM = {"error": {"message": "Invalid 'temperature'", "type": "invalid_request_error", "param": None, "code": None}}
REFUSED = {"id": "b3", "custom_id": "f", "response": {"status_code": 400, "body": PROBLEM}, "error": None}


@pytest.mark.parametrize("failed", [[EXPIRED], [REFUSED], [EXPIRED, REFUSED]])
def test_failed_lines_of_a_batch_are_left_out_counted_and_named(write, failed):
    path = write(GOOD[0], *failed, GOOD[1])
    with pytest.warns(UserWarning, match=rf"(?s){len(failed)} .*line 2"):
        from_file(path, questions=QUESTIONS)
    assert read(path) == expected(False)
    with pytest.raises(RunError, match=r"responses\.jsonl"):
        read(write(*failed))


def refusal(name):
    body = LAYOUTS[name][0](SAMPLES["peru"][:1])[0]
    if name == "chat":
        message = {"role": "assistant", "content": None, "refusal": "I'm sorry, I can't help with that."}
        body["choices"][0] |= {"message": message, "logprobs": {"content": None, "refusal": entries([("I'm", -0.5)])}}
    elif name == "responses":
        body["output"][1]["content"] = [{"type": "refusal", "refusal": "I'm sorry, I can't help with that."}]
    else:
        body["candidates"] = [{"finishReason": "SAFETY", "index": 0, "safetyRatings": []}]
    return body


@pytest.mark.parametrize("name", ["chat", "responses", "gemini"])
def test_refusals_are_left_out_counted_and_named(write, name):
    lines = [{"question_id": i} | body for i, samples in SAMPLES.items() for body in LAYOUTS[name][0](samples)]
    path = write(*lines, {"question_id": "peru"} | refusal(name))
    with pytest.warns(UserWarning, match=rf"(?s)1 .*line {len(lines) + 1}"):
        from_file(path, questions=QUESTIONS)
    assert read(path) == expected(False)


# --- Endings ---

NATURAL = [
    "stop",
    "eos",
    "eos_token",
    "end_turn",
    "stop_sequence",
    "STOP",
    "COMPLETE",
    "word",
    "completed",
    "FINISH_REASON_STOP",
]
CUT = ["length", "MAX_TOKENS", "max_tokens", "limit", "max_output_tokens", "model_length", "content_filter", "SAFETY"]


def chosen(*reasons):
    choices = [{"text": str(n), "logprobs": {"token_logprobs": [-1.0 - n]}} for n, _ in enumerate(reasons)]
    choices = [choice | {"finish_reason": reason} for choice, reason in zip(choices, reasons, strict=True)]
    return {"question_id": "peru", "choices": choices}


@pytest.mark.parametrize("reason", NATURAL)
def test_every_natural_ending_is_finished(write, reason):
    assert read(write(chosen(reason, "length")), quiet=False)["peru"] == [("0", -1.0, True), ("1", -2.0, False)]


@pytest.mark.parametrize("reason", CUT)
def test_an_answer_that_was_cut_is_not_finished(write, reason):
    assert read(write(chosen(reason, "stop")), quiet=False)["peru"] == [("0", -1.0, False), ("1", -2.0, True)]


def test_an_unknown_ending_is_named_once_with_a_count(write):
    path = write(chosen("zebra", "stop", "zebra"))
    with pytest.warns(UserWarning, match="zebra") as caught:
        from_file(path, questions=QUESTIONS)
    named = [str(warning.message) for warning in caught if "zebra" in str(warning.message)]
    assert len(named) == 1
    assert "2" in named[0]
    assert [finished for *_, finished in read(path)["peru"]] == [False, True, False]


@pytest.mark.parametrize("reasons", [["length"], ["zebra", "length"]])
def test_if_nothing_is_finished_that_is_an_error(write, reasons):
    with pytest.raises(RunError, match=r"responses.jsonl.*finished"):
        read(write(chosen(*reasons)))


# --- Which question ---


def asked(texts, ids=None):
    """Responses to these questions, each of the log-probability of its place: -1, -2, …"""
    lines = []
    for n, text in enumerate(texts):
        line = {"question": text, "response": chat([(f"answer {n}", [("a", -1.0 - n)], True)])[0]}
        lines.append({key: value for key, value in line.items() if value is not None})
        if ids:
            lines[-1]["question_id"] = ids[n]
    return lines


def values(answers):
    return {identity: [value for _, value, _ in rows] for identity, rows in answers.items()}


PERU, CHAD = TEXTS.values()


def test_without_ids_the_questions_text_tells(write):
    for texts in (
        [CHAD, PERU],
        ["  capital of CHAD? ", "Capital\u00a0of  Peru?"],
        ["Capital of Chad", "capital of peru"],
    ):
        assert values(read(write(*asked(texts)), quiet=False)) == {"chad": [-1.0], "peru": [-2.0]}
    assert values(read(write(*asked([CHAD])), quiet=False)) == {"chad": [-1.0]}
    assert values(read(write(*asked([CHAD, CHAD, PERU])), quiet=False)) == {"chad": [-1.0, -2.0], "peru": [-3.0]}


def test_ids_come_before_texts_and_ids_on_one_side_only_fall_back_to_them(write):
    assert values(read(write(*asked([None, None], ["chad", "peru"])), quiet=False)) == {"chad": [-1.0], "peru": [-2.0]}
    assert values(read(write(*asked([CHAD, PERU], ["r1", "r2"])))) == {"chad": [-1.0], "peru": [-2.0]}


@pytest.mark.parametrize(
    ("texts", "ids"),
    [
        ([CHAD, PERU], ["peru", "chad"]),
        (["Capital of Mali?", CHAD], ["peru", "chad"]),
        (["Capital of Mali?", CHAD], None),
    ],
)
def test_texts_that_disagree_are_an_error_that_shows_them(write, texts, ids):
    with pytest.raises(RunError, match=texts[0].rstrip("?")) as caught:
        read(write(*asked(texts, ids)))
    if ids:
        assert PERU in str(caught.value)


def test_an_unknown_id_without_a_text_is_an_error(write):
    with pytest.raises(RunError, match="mali"):
        read(write(*asked([None, None], ["peru", "mali"])))


@pytest.mark.parametrize("order", [[PERU, CHAD], [CHAD, PERU]])
@pytest.mark.parametrize("name", ["vllm", "llama.cpp"])
def test_a_prompt_around_the_question_never_leads_to_another(write, name, order):
    """What was sent has a header and shots around the question: in another order, the right question or an error."""
    shot = "Answer briefly.\n\nQuestion: Capital of Mali?\nAnswer: Bamako\n\n"
    lines = []
    for text in order:
        identity = next(i for i, t in TEXTS.items() if t == text)
        body = LAYOUTS[name][0](SAMPLES[identity][:1])[0]
        lines.append(body | {"prompt": f"{shot}Question: {text}\nAnswer:"})
    try:
        answers = read(write(*lines))
    except RunError:
        assert order == [CHAD, PERU]
    else:
        assert answers == expected(True, slice(1))


# --- Damage: a sentence that names the file, and nothing else ---


def text_is_a_number(body, text):
    return json.loads(json.dumps(body).replace(json.dumps(text), "7"))


def changed(body, new):
    """The body with the first token's log-probability replaced."""
    return json.loads(json.dumps(body).replace("-0.25", json.dumps(new), 1))


def without(body):
    """The body without its log-probabilities."""
    if not isinstance(body, dict):
        return [without(part) for part in body] if isinstance(body, list) else body
    lost = ("logprobs", "completion_probabilities", "output_token_logprobs", "logprobsResult", "logprobs_result")
    lost += ("cumulative_logprob", "avgLogprobs", "avg_logprobs", "tokens")
    return {key: without(value) for key, value in body.items() if key not in lost}


DAMAGE = {
    "no log-probabilities": without,
    "above 0": lambda body: changed(body, 0.5),
    "a word": lambda body: changed(body, "much"),
    "a text that is none": lambda body: text_is_a_number(body, "Lima"),
    "cut in the middle": lambda body: json.dumps(body)[: len(json.dumps(body)) // 2],
}


def refused(path, **options):
    with pytest.raises(RunError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert path.name in message
    assert "\n" not in message
    assert len(message) <= 300
    return message


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "gemini's client"])
def test_damage_ends_in_one_sentence(write, name, damage):
    bodies, _ = LAYOUTS[name]
    good, bad = bodies(SAMPLES["chad"])[0], bodies(SAMPLES["peru"][:1])[0]
    bad = DAMAGE[damage](
        bad if name != "vllm" else bad | {"outputs": [bad["outputs"][0] | {"cumulative_logprob": None}]}
    )
    assert "line 2" in refused(write(good, bad), questions=None)


CSV = "question_id,text,log_prob"
OTHER_DAMAGE = {
    "probabilities after sampling": ("r.jsonl", [changed(llama_cpp(SAMPLES["peru"])[0], 0.5)]),
    "a message that is text": ("r.jsonl", [{"message": "Lima"}]),
    "a layout that nobody writes": ("r.jsonl", [{"foo": 1}]),
    "nothing but the end of a stream": ("r.jsonl", ["data: [DONE]"]),
    "a stream that was cut": ("r.jsonl", sse(*chat_chunks("c", SAMPLES["peru"])[:3])),
    "an answer that is not done": ("r.jsonl", ollama_chunks(SAMPLES["peru"], "message")[:1]),
    "an event that failed": (
        "r.jsonl",
        sse({"type": "response.failed", "response": {"error": {"code": "server_error"}}}),
    ),
    "CSV without log-probabilities": ("a.csv", ["question_id,text", "peru,Lima"]),
    "CSV of probabilities": ("a.csv", [CSV, "peru,Lima,0.9"]),
    "CSV of words": ("a.csv", [CSV, "peru,Lima,much"]),
    "CSV of nothing": ("a.csv", [CSV]),
    "CSV of infinity": ("a.csv", [CSV, "peru,Lima,-inf"]),
    "CSV of another width": ("a.csv", [CSV, "peru,Lima"]),
}


@pytest.mark.parametrize("damage", OTHER_DAMAGE)
def test_other_damage_ends_in_one_sentence(write, damage):
    name, lines = OTHER_DAMAGE[damage]
    refused(write(*lines, name=name))


@pytest.mark.parametrize("data", [b"not compressed", gzip.compress(b'{"a": 1}' * 99)[:-9], gzip.compress(b"\xff"), b""])
def test_damaged_compression_ends_in_one_sentence(tmp_path, data):
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(data)
    refused(path)
