"""Test the parsers of response formats: tokens, thoughts, and missing log-probabilities."""

import contextlib
import copy
import json

import numpy as np
import pytest
from test_response_formats import (
    BARE,
    chat,
    cohere,
    completion,
    gemini,
    listed,
    llama_cpp,
    ollama_chat,
    responses_api,
    sglang,
    tgi,
    vllm,
)

from pro_lib.common.files import RunError
from pro_lib.importing.importers import from_openai, import_answers
from pro_lib.importing.response_formats import response_format_of

# --- Tokens ---


@pytest.mark.parametrize("response_format", BARE)
def test_the_parsed_answer_keeps_the_texts_of_its_tokens(response_format):
    body = response_format()
    [answer] = response_format_of(body).parse(body)
    texts = [part.decode() if isinstance(part, bytes) else part for part in answer.token_texts]
    assert (texts, answer.token_log_probs) == ([" Par", "is"], [-0.25, -0.5])
    assert (answer.text, answer.has_thoughts) == (" Paris", False)


def test_offsets_special_tokens_and_bytes_are_kept():
    [answer] = response_format_of(completion()).parse(completion())
    assert answer.text_offsets == [0, 4]
    body = tgi()
    body["details"]["tokens"].append({"id": 2, "text": "</s>", "logprob": -0.1, "special": True})
    [answer] = response_format_of(body).parse(body)
    assert answer.token_specials == [False, False, True]
    body = chat()
    body["choices"][0]["logprobs"]["content"][0] |= {"token": "\ufffd", "bytes": [0xF0, 0x9F]}
    [answer] = response_format_of(body).parse(body)
    assert answer.token_texts == [b"\xf0\x9f", b"is"]


def test_older_llama_cpp_lists_probabilities_of_which_the_chosen_one_counts():
    steps = [
        {
            "content": " Par",
            "probs": [{"prob": 0.05, "tok_str": " R"}, {"prob": 0.9, "tok_str": " Par"}],
        },
        {"content": "is", "probs": [{"prob": 0.8, "tok_str": "is"}]},
    ]
    body = {
        "content": " Paris",
        "stop": True,
        "stopped_eos": True,
        "completion_probabilities": steps,
    }
    np.testing.assert_allclose(from_openai([body]).log_probs(), [[np.log(0.9) + np.log(0.8)]])
    after_sampling = llama_cpp() | {
        "completion_probabilities": [{"token": " Paris", "prob": 1.0, "top_probs": []}]
    }
    with pytest.raises(
        RunError, match=r"after the sampling filters \(post_sampling_probs\).* ask without"
    ):
        from_openai([after_sampling])


@pytest.mark.parametrize("is_chat", [True, False])
def test_likeliest_tokens_alone_are_said_to_be_what_is_there(is_chat):
    body = chat() if is_chat else completion()
    step = {"token": " Paris", "top_logprobs": [{"token": " Paris", "logprob": -0.75}]}
    only_top = {"content": [step]} if is_chat else {"top_logprobs": [{" Paris": -0.75}]}
    body["choices"][0]["logprobs"] = only_top
    with pytest.raises(
        RunError, match=r"have top_logprobs.*but not the log-probability of the chosen token"
    ):
        from_openai([body])


# --- Thoughts ---


def with_thoughts(place):
    """Return a response with a thought, whose tokens are those of the answer ` Paris`."""
    thought = "The largest town is Lyon."
    body = {
        "responses": responses_api,
        "gemini": gemini,
        "ollama": ollama_chat,
        "cohere": cohere,
    }.get(place, chat)()
    if place == "responses":
        body["output"][0]["content"] = [{"type": "reasoning_text", "text": thought}]
    elif place == "gemini":
        body["candidates"][0]["content"]["parts"].insert(0, {"text": thought, "thought": True})
    elif place == "ollama":
        body["message"]["thinking"] = thought
    elif place == "cohere":
        body["message"]["content"].insert(0, {"type": "thinking", "thinking": thought})
    elif place == "parts":
        parts = [
            {"type": "thinking", "thinking": [{"type": "text", "text": thought}]},
            {"type": "text", "text": " Paris"},
        ]
        body["choices"][0]["message"]["content"] = parts
    elif place == "counted":
        body["usage"] = {"completion_tokens_details": {"reasoning_tokens": 7}}
    else:
        body["choices"][0]["message"][place] = thought
    return body


PLACES = [
    "responses",
    "gemini",
    "ollama",
    "cohere",
    "parts",
    "counted",
    "reasoning_content",
    "reasoning",
]


@pytest.mark.parametrize("place", PLACES)
def test_thoughts_are_neither_scored_nor_judged_and_a_message_counts_them(place):
    with pytest.warns(
        UserWarning, match=r"1 answers had thoughts \(reasoning\).* conditional on the reasoning"
    ) as said:
        run = from_openai([with_thoughts(place), chat(id="other")])
    assert len(said) == 1
    assert run.answers["text"].tolist() == [" Paris", " Paris"]
    np.testing.assert_array_equal(run.log_probs(), [[-0.75], [-0.75]])


TEXTS = ["<think>Hm.</think>\n\n Paris", "Hm.</think> Paris", "[THINK]Hm.[/THINK] Paris"]


@pytest.mark.filterwarnings("ignore:.*1 answers had thoughts")
@pytest.mark.parametrize("text", TEXTS)
def test_a_thought_in_the_text_is_taken_off_and_never_scored_with_the_answer(text):
    body, samples = chat(), [chat(id="b"), chat(id="c")]
    body["choices"][0]["message"]["content"] = text
    thought = {"token": text.removesuffix(" Paris"), "logprob": -3.0}
    body["choices"][0]["logprobs"]["content"].insert(0, thought)
    [answer] = response_format_of(body).parse(body)
    assert (answer.text, answer.has_thoughts) == ("Paris", True)
    with contextlib.suppress(RunError):  # the tokens are those of the answer, or nothing is scored
        np.testing.assert_array_equal(from_openai([body]).log_probs(), [[-0.75]])
    without = copy.deepcopy(body)
    without["choices"][0] |= {"logprobs": None, "cumulative_logprob": -9.0}  # of thought and answer
    with pytest.warns(
        UserWarning,
        match="1 answers whose log-probabilities include those of a thought are left out",
    ):
        assert from_openai([without, *samples]).answers["log_prob"].tolist() == [-0.75, -0.75]


def test_a_thought_that_does_not_end_holds_no_answer():
    body = chat("length")
    body["choices"][0]["message"]["content"] = "<think>\nHm, Paris"
    with pytest.raises(
        RunError, match="the answer ends within a thought; raise the limit of tokens"
    ):
        from_openai([body])


# --- LangChain, LiteLLM ---

METADATA = {
    "model_name": "m",
    "finish_reason": "stop",
    "logprobs": {"content": listed(), "refusal": None},
}
MESSAGE = {
    "content": " Paris",
    "additional_kwargs": {},
    "response_metadata": METADATA,
    "type": "ai",
    "id": "run-1",
}
HUMAN = {"content": "Capital?", "type": "human", "additional_kwargs": {}, "response_metadata": {}}
CONSTRUCTED = {
    "lc": 1,
    "type": "constructor",
    "id": ["langchain", "schema", "messages", "AIMessage"],
    "kwargs": MESSAGE,
}
GENERATION = {"text": " Paris", "message": MESSAGE, "generation_info": {"finish_reason": "stop"}}
OF_LANGCHAIN = {
    "model_dump": MESSAGE,
    "dumpd": CONSTRUCTED,
    "message_to_dict": {"type": "ai", "data": MESSAGE},
    "result": {"generations": [[GENERATION]], "llm_output": {}},
    "text result": {"generations": [[{"text": " Paris", "generation_info": METADATA}]]},
    "wrapped": {"question": "Capital?", "response": MESSAGE},
    "conversation": [HUMAN, MESSAGE],
    "graph": {"messages": [HUMAN, MESSAGE]},
    "to_dict conversation": [{"type": "human", "data": HUMAN}, {"type": "ai", "data": MESSAGE}],
}


@pytest.mark.parametrize("form", OF_LANGCHAIN)
def test_messages_of_langchain_are_read(write, form):
    run = import_answers(write(OF_LANGCHAIN[form], OF_LANGCHAIN[form]))
    assert run.info.model == "langchain"
    assert run.answers["text"].tolist() == [" Paris"] * 2
    if form in ("wrapped", "graph") or "conversation" in form:
        assert run.questions["question"].tolist() == ["Capital?"]
        np.testing.assert_array_equal(run.log_probs(), [[-0.75]])
    else:
        np.testing.assert_array_equal(run.log_probs(), [[-0.75]] * 2)


def test_a_message_of_langchain_that_could_have_log_probabilities_is_refused_without():
    message = MESSAGE | {"response_metadata": {"finish_reason": "stop"}}
    with pytest.raises(
        RunError, match="logprobs are missing; ask for them with logprobs=True of the model"
    ):
        from_openai([message])


def test_a_log_of_litellm_is_read_with_its_question(write):
    line = {
        "call_type": "completion",
        "messages": [{"role": "user", "content": "Capital?"}],
        "status": "success",
    }
    run = import_answers(write(line | {"response": chat(), "error_str": None}))
    np.testing.assert_array_equal(run.log_probs(), [[-0.75]])
    assert run.questions["question"].tolist() == ["Capital?"]


# --- APIs without log-probabilities ---

TEXT = [{"type": "text", "text": "Paris"}]
ANTHROPIC = {
    "id": "msg",
    "type": "message",
    "role": "assistant",
    "content": TEXT,
    "stop_reason": "end_turn",
}
TEXT_ONLY = {
    "anthropic": ANTHROPIC,
    "bedrock": {
        "output": {"message": {"role": "assistant", "content": [{"text": "Paris"}]}},
        "stopReason": "end_turn",
    },
    "langchain": {"content": TEXT, "type": "ai", "response_metadata": {"stop_reason": "end_turn"}},
}


@pytest.mark.parametrize("name", TEXT_ONLY)
def test_an_api_without_log_probabilities_is_read_as_texts_which_a_message_says(name):
    entries = [{"question": "Capital?", "response": TEXT_ONLY[name]}] * 3
    with pytest.warns(
        UserWarning, match=rf"the API \({name}\) gives no log-probabilities of 3 answers"
    ):
        run = from_openai(entries)
    assert run.is_texts
    assert run.info.model == name
    assert run.answers["text"].tolist() == ["Paris"] * 3
    assert run.answers["finished"].all()


@pytest.mark.filterwarnings("ignore:.*gives no log-probabilities")
def test_a_batch_of_anthropic_is_read_with_its_failures():
    params = {"messages": [{"role": "user", "content": "Capital?"}]}
    entries = [
        {"custom_id": "a", "params": params, "result": {"type": "succeeded", "message": ANTHROPIC}}
    ]
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "bad"}}
    entries += [{"custom_id": "b", "result": {"type": "errored", "error": error}}]
    entries += [{"custom_id": "c", "result": {"type": "expired"}}]
    with pytest.warns(UserWarning, match="left out") as said:
        run = from_openai(entries)
    assert "2 answers that failed are left out: entry 2; entry 3" in [
        str(warning.message) for warning in said
    ]
    assert run.questions["question_id"].tolist() == ["a", "b", "c"]
    assert run.reasons().tolist() == ["", "failed", "failed"]


# --- Layouts of the file ---


def test_a_line_that_is_a_list_holds_the_answers_to_one_question(write):
    for body in (sglang, tgi):
        other = json.loads(json.dumps(body()).replace("-0.25", "-1.25"))
        run = import_answers(write([body(), other], [body()]))
        np.testing.assert_array_equal(
            run.log_probs(distinct=False), [[-0.75, -1.75], [-0.75, np.nan]]
        )


def test_a_line_that_is_a_list_of_rows_with_their_own_questions_holds_several(write):
    rows = [{"question": f"Q{n}?", "response": chat()} for n in range(2)]
    path = write(rows, [{"question": "Q2?", "response": chat()}])
    assert import_answers(path).questions["question"].tolist() == ["Q0?", "Q1?", "Q2?"]


def test_json_in_json_is_read(write):
    rows = [chat(id="a"), chat(id="b")]
    forms = [
        write(*(json.dumps(json.dumps(row)) for row in rows), name="lines.jsonl"),
        write(json.dumps(json.dumps(rows)), name="list.json"),
        write(
            *({"question": row["id"], "response": json.dumps(row)} for row in rows),
            name="wrapped.jsonl",
        ),
    ]
    for path in forms:
        np.testing.assert_array_equal(import_answers(path).log_probs(), [[-0.75], [-0.75]])


def test_a_response_over_several_lines_is_read(write):
    np.testing.assert_array_equal(
        import_answers(write(json.dumps(vllm(), indent=2))).log_probs(), [[-0.75]]
    )


def test_a_row_of_a_dataset_with_its_response_is_a_response(write):
    squad = {
        "id": "57",
        "title": "T",
        "question": "Capital?",
        "answers": {"text": ["Paris", "Paris"], "answer_start": [1]},
    }
    nq = {"question": "Capital?", "answer": ["Paris", "City of Light"]}
    trivia = {"question": "Capital?", "answer": {"value": "Paris", "aliases": ["City of Light"]}}
    texts = {"question": "Capital?", "answer": " Paris"}  # may be the model's own
    expected = [["Paris"], ["Paris", "City of Light"], ["Paris", "City of Light"], None]
    for row, references in zip((squad, nq, trivia, texts), expected, strict=True):
        run = import_answers(write(row | {"response": chat()}))
        assert run.questions["references"].tolist() == [references]
        np.testing.assert_array_equal(run.log_probs(), [[-0.75]])
