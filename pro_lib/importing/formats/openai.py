"""Responses of OpenAI's APIs, and of the many servers that answer as they do (vLLM, SGLang, llama.cpp, LiteLLM)."""

from typing import Any

from pro_lib.common.nested import as_items, as_mapping, inner_value
from pro_lib.importing.formats.parsed import (
    ParsedAnswer,
    ResponseFormat,
    Tokens,
    choices_of,
    count_or_none,
    has_thought_field,
    is_thought,
    joined_tokens,
    parsed_answer,
    text_of_parts,
    text_or_none,
    token_list,
)

_ONLY_TOP = (
    "logprobs have top_logprobs (the likeliest tokens of each step), but not the log-probability of the chosen "
    "token; save the whole logprobs object"
)


def _is_completion(body: dict) -> bool:
    return body.get("choices") is not None


def _parse_completion(body: dict) -> list[ParsedAnswer]:
    """Return the answers of a chat completion or a text completion."""
    hidden = (inner_value(body, "usage", "completion_tokens_details", "reasoning_tokens") or 0) != 0
    answers = []
    choices = choices_of(body["choices"])
    usage = as_mapping(body.get("usage")) if len(choices) == 1 else {}  # of all choices together
    for choice in choices:
        message, tokens = choice.get("message"), completion_tokens(choice.get("logprobs"))
        if isinstance(message, dict):
            text, has_thoughts = text_of_parts(message.get("content"))
            beside = has_thought_field(message, message.get("provider_specific_fields"))
            has_thoughts = has_thoughts or beside or hidden
        else:
            text, has_thoughts = choice.get("text"), has_thought_field(choice) or hidden
        index = choice.get("index")
        answers.append(
            parsed_answer(
                text,
                choice.get("finish_reason"),
                tokens,
                has_thoughts=has_thoughts,
                index=index if type(index) is int else None,
                log_prob=choice.get("cumulative_logprob"),
                stop=text_or_none(choice.get("stop_reason")),  # of vLLM's server
                n_generated=count_or_none(usage.get("completion_tokens")),
                n_prompt_tokens=count_or_none(usage.get("prompt_tokens")),
            )
        )
    return answers


def completion_tokens(logprobs: object) -> Tokens:
    """Return the tokens of a choice's `logprobs`: of a chat in `content`, of a text in `token_logprobs`."""
    if isinstance(logprobs, (list, tuple)):
        return token_list(logprobs)
    if not isinstance(logprobs, dict):
        return Tokens()
    content = logprobs.get("content")
    if content is not None:
        has_only_top = not any(
            as_mapping(step).get("logprob") is not None for step in as_items(content)
        )
        if has_only_top and any(as_mapping(step).get("top_logprobs") for step in as_items(content)):
            return Tokens(problem=_ONLY_TOP)
        return token_list(content)
    values = logprobs.get("token_logprobs")
    if values is None:
        return Tokens(problem=_ONLY_TOP if logprobs.get("top_logprobs") else None)
    texts, offsets = logprobs.get("tokens"), logprobs.get("text_offset")
    is_list = isinstance(values, list)
    return Tokens(
        texts=texts if is_list and _is_list_of(texts, str, len(values)) else None,
        log_probs=values,
        offsets=offsets if is_list and _is_list_of(offsets, int, len(values)) else None,
    )


def _is_list_of(value: Any, kind: type, length: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == length
        and all(isinstance(part, kind) for part in value)
    )


def _is_response(body: dict) -> bool:
    output = body.get("output")
    return body.get("object") == "response" or (
        isinstance(output, (list, str)) and bool("status" in body or output)
    )


def _parse_response(body: dict) -> list[ParsedAnswer]:
    """Return the answer of the Responses API: the text of its messages, without its reasoning items."""
    texts, tokens = [], []
    has_thoughts = bool(inner_value(body, "usage", "output_tokens_details", "reasoning_tokens"))
    for item in choices_of(body.get("output")):
        if item.get("type") == "reasoning":
            has_thoughts = has_thoughts or any(
                item.get(name) for name in ("content", "summary", "encrypted_content")
            )
            continue
        for part in as_items(item.get("content")):
            if is_thought(part):
                has_thoughts = True
                continue
            text = as_mapping(part).get("text")
            if text is not None:
                texts.append(text)
                tokens.append(token_list(as_mapping(part).get("logprobs")))
    text, _ = text_of_parts(texts)
    answer = parsed_answer(
        text, body.get("status"), joined_tokens(tokens), has_thoughts=has_thoughts
    )
    return [answer]


CHAT_OR_TEXT = ResponseFormat(
    "openai", "logprobs=true (chat) or logprobs=1 (text)", _is_completion, _parse_completion
)
RESPONSES = ResponseFormat(
    "responses", 'include=["message.output_text.logprobs"]', _is_response, _parse_response
)
