"""Messages of LangChain, and the logs of inspect_ai and lm-evaluation-harness."""

import re
from typing import Any

from pydantic import ValidationError

from pro_lib.common.nested import as_items, as_mapping, first_value, inner_value
from pro_lib.common.validation import Format, SentenceError, Text, sentence
from pro_lib.importing.formats.openai import completion_tokens
from pro_lib.importing.formats.parsed import (
    ParsedAnswer,
    ResponseFormat,
    choices_of,
    has_thought_field,
    parsed_answer,
    text_of_parts,
    token_list,
    verdict,
)

# --- LangChain ---

_REASON_NAMES = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")
_AI_TYPES = ("ai", "AIMessage", "AIMessageChunk")


def langchain_message(value: object) -> dict | None:
    """Return the fields of a model's message in one of LangChain's three forms, else None."""
    fields = as_mapping(value)
    if fields.get("lc") is not None and isinstance(fields.get("kwargs"), dict):
        class_name = as_items(fields.get("id"))[-1:]
        return fields["kwargs"] if class_name and class_name[0] in _AI_TYPES else None
    if fields.get("type") in _AI_TYPES and isinstance(fields.get("data"), dict):
        return fields["data"]
    has_metadata = "response_metadata" in fields or "additional_kwargs" in fields
    is_message = "content" in fields and has_metadata
    return fields if is_message and fields.get("type") in (None, *_AI_TYPES) else None


def _is_langchain(body: dict) -> bool:
    return langchain_message(body) is not None or isinstance(body.get("generations"), list)


def _parse_langchain(body: dict) -> list[ParsedAnswer]:
    """Return the answers of a message, or of the generations of an `LLMResult`."""
    message = langchain_message(body)
    if message is not None:
        return [_langchain_answer(message, {})]
    answers = []
    for group in as_items(body["generations"]):
        for generation in choices_of(group):
            message = langchain_message(generation.get("message"))
            if message is None:
                message = {"content": generation.get("text")}
            info = as_mapping(generation.get("generation_info"))
            answers.append(_langchain_answer(message, info))
    return answers


def _langchain_answer(message: dict, info: dict) -> ParsedAnswer:
    """Return the answer of a message.

    `info` is the metadata of its generation.
    """
    metadata = info | as_mapping(message.get("response_metadata"))
    text, has_thoughts = text_of_parts(message.get("content"))
    n_hidden = inner_value(message, "usage_metadata", "output_token_details", "reasoning")
    if n_hidden or has_thought_field(message.get("additional_kwargs")):
        has_thoughts = True
    steps = metadata.get("logprobs_result")  # of Gemini
    tokens = completion_tokens(metadata.get("logprobs")) if steps is None else token_list(steps)
    # Anthropic and Bedrock have these fields, but no log-probabilities.
    has_stop_reason = first_value(metadata, ("stop_reason", "stopReason")) is not None
    return parsed_answer(
        text,
        first_value(metadata, _REASON_NAMES),
        tokens,
        has_thoughts=has_thoughts,
        lacks_log_probs=has_stop_reason and tokens.log_probs is None,
    )


# --- inspect_ai ---


def _is_inspect(body: dict) -> bool:
    return body.get("epoch") is not None


def _parse_inspect(body: dict) -> list[ParsedAnswer]:
    """Return the answers of a sample, with the verdict of its first scorer."""
    scores = as_mapping(body.get("scores")).values()
    values = [as_mapping(score).get("value") for score in scores]
    first_score = next((value for value in values if value is not None), None)
    answers = []
    for choice in choices_of(inner_value(body, "output", "choices")):
        message = as_mapping(choice.get("message"))
        text, has_thoughts = text_of_parts(message.get("content"))
        answers.append(
            parsed_answer(
                text,
                choice.get("stop_reason"),
                completion_tokens(choice.get("logprobs")),
                has_thoughts=has_thoughts or has_thought_field(message),
                correct=verdict(first_score),
            )
        )
    return answers


# --- lm-evaluation-harness ---


class _Line(Format):
    """The fields of a line of lm-evaluation-harness that are used."""

    doc_id: int | Text
    resps: list[list[Text | list]]


def _is_harness(body: dict) -> bool:
    return body.get("resps") is not None


def _parse_harness(line: dict) -> list[ParsedAnswer]:
    """Return the texts of a line, or its choices with their log-probabilities."""
    requests = _requests(line)
    try:
        replies_by_request = _Line.model_validate(line).resps
    except ValidationError as error:
        raise SentenceError(sentence(error)) from None
    if len(replies_by_request) != len(requests):
        raise SentenceError(
            f"resps has {len(replies_by_request)} entries, but arguments has {len(requests)}; each "
            "request needs one"
        )
    answers = []
    for n, (request, replies) in enumerate(zip(requests, replies_by_request, strict=True)):
        for reply in replies:
            if isinstance(reply, list):
                answers.append(_choice(n, request, reply, line.get("target")))
            else:  # of several samples only one was judged
                correct = _first_metric(line) if len(replies) == 1 else None
                answers.append(ParsedAnswer(reply, "stop", correct=verdict(correct)))
    return answers


def _choice(n: int, request: Any, reply: list, target: object) -> ParsedAnswer:
    """Return choice n, whose reply contains the log-probability as text."""
    text = request.get("arg_1") if isinstance(request, dict) else inner_value(request, 1)
    if not isinstance(text, str):
        raise SentenceError(f"the text of choice {n} is missing")
    text = text.strip()
    value = str(inner_value(reply, 0))
    is_number = re.fullmatch(r"-?\d+(\.\d+)?(e-\d+)?", value)
    log_prob = float(value) if is_number else value
    is_correct = str(target) in (str(n), text)
    return ParsedAnswer(text, "stop", log_prob=log_prob, correct=is_correct)


def _first_metric(line: dict) -> Any:
    name = inner_value(line, "metrics", 0)
    return line.get(name) if isinstance(name, str) else None


def _requests(line: dict) -> list:
    arguments = line.get("arguments")
    return list(arguments.values()) if isinstance(arguments, dict) else as_items(arguments)


def harness_question(line: dict, answers: list[ParsedAnswer]) -> dict[str, Any]:
    """Return the id, the question and the references of a line.

    The references are the right choices, or the target if there are no choices.
    """
    request = inner_value(_requests(line), 0)
    prompt = request.get("arg_0") if isinstance(request, dict) else inner_value(request, 0)
    question = inner_value(line, "doc", "question")
    choices = [answer for answer in answers if answer.log_prob is not None]
    right_texts = [choice.text for choice in choices if choice.correct]
    return {
        "question_id": line.get("doc_id"),
        "question": prompt if question is None else question,
        "references": right_texts or line.get("target"),
    }


LANGCHAIN = ResponseFormat(
    "langchain", "logprobs=True of the model", _is_langchain, _parse_langchain
)
INSPECT = ResponseFormat("inspect_ai", "", _is_inspect, _parse_inspect)
HARNESS = ResponseFormat("lm-eval", "", _is_harness, _parse_harness)
