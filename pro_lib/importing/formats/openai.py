"""Responses of OpenAI's APIs, which vLLM, SGLang, llama.cpp, LiteLLM and others also return."""

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
    "logprobs have top_logprobs (the likeliest tokens of each step), but not the log-probability "
    "of the chosen token; save the whole logprobs object"
)


def _is_completion(body: dict) -> bool:
    return body.get("choices") is not None


def _parse_completion(body: dict) -> list[ParsedAnswer]:
    """Return the answers of a chat completion or a text completion."""
    n_hidden = inner_value(body, "usage", "completion_tokens_details", "reasoning_tokens")
    has_hidden_thoughts = (n_hidden or 0) != 0
    choices = choices_of(body["choices"])
    # The counts are those of all choices together.
    usage = as_mapping(body.get("usage")) if len(choices) == 1 else {}
    answers = []
    for choice in choices:
        text, has_thoughts = _text_of_choice(choice)
        index = choice.get("index")
        finish_reason = choice.get("finish_reason")
        answers.append(
            parsed_answer(
                text,
                "refusal" if inner_value(choice, "message", "refusal") else finish_reason,
                completion_tokens(choice.get("logprobs")),
                has_thoughts=has_thoughts or has_hidden_thoughts,
                position=index if type(index) is int else None,
                log_prob=choice.get("cumulative_logprob"),
                stop=text_or_none(choice.get("stop_reason")),  # of vLLM's server
                n_generated=count_or_none(usage.get("completion_tokens")),
                n_prompt_tokens=count_or_none(usage.get("prompt_tokens")),
            )
        )
    return answers


def _text_of_choice(choice: dict) -> tuple[Any, bool]:
    """Return the text of a choice, and whether it has a thought besides those in the text."""
    message = choice.get("message")
    if not isinstance(message, dict):
        return choice.get("text"), has_thought_field(choice)
    text, has_thoughts = text_of_parts(message.get("content"))
    if has_thought_field(message, message.get("provider_specific_fields")):
        has_thoughts = True
    return text, has_thoughts


def completion_tokens(logprobs: object) -> Tokens:
    """Return the tokens of a choice's `logprobs`.

    Those of a chat are in `content`, those of a text in `token_logprobs`.
    """
    if isinstance(logprobs, (list, tuple)):
        return token_list(logprobs)
    if not isinstance(logprobs, dict):
        return Tokens()
    content = logprobs.get("content")
    if content is not None:
        return _chat_tokens(content)
    values = logprobs.get("token_logprobs")
    if values is None:
        return Tokens(problem=_ONLY_TOP if logprobs.get("top_logprobs") else None)
    if not isinstance(values, list):
        return Tokens(log_probs=values)
    texts = logprobs.get("tokens")
    offsets = logprobs.get("text_offset")
    return Tokens(
        texts=texts if _is_list_of(texts, str, len(values)) else None,
        log_probs=values,
        offsets=offsets if _is_list_of(offsets, int, len(values)) else None,
    )


def _chat_tokens(content: Any) -> Tokens:
    """Return the tokens of a chat, or the problem if only `top_logprobs` are given."""
    steps = as_items(content)
    for step in steps:
        if as_mapping(step).get("logprob") is not None:
            return token_list(content)
    if any(as_mapping(step).get("top_logprobs") for step in steps):
        return Tokens(problem=_ONLY_TOP)
    return token_list(content)


def _is_list_of(value: Any, kind: type, length: int) -> bool:
    """Return whether a value is a list of this length, with values of a type."""
    if not isinstance(value, list) or len(value) != length:
        return False
    return all(isinstance(part, kind) for part in value)


def _is_response(body: dict) -> bool:
    if body.get("object") == "response":
        return True
    output = body.get("output")
    return isinstance(output, (list, str)) and bool("status" in body or output)


def _parse_response(body: dict) -> list[ParsedAnswer]:
    """Return the answer of the Responses API: the text of its messages, without its reasoning."""
    texts: list[Any] = []
    tokens: list[Tokens] = []
    is_refused = False
    has_thoughts = bool(inner_value(body, "usage", "output_tokens_details", "reasoning_tokens"))
    for item in choices_of(body.get("output")):
        if item.get("type") == "reasoning":
            if any(item.get(name) for name in ("content", "summary", "encrypted_content")):
                has_thoughts = True
            continue
        for part in as_items(item.get("content")):
            if is_thought(part):
                has_thoughts = True
                continue
            fields = as_mapping(part)
            is_refused = is_refused or fields.get("type") == "refusal"
            if fields.get("text") is not None:
                texts.append(fields["text"])
                tokens.append(token_list(fields.get("logprobs")))
    text, _ = text_of_parts(texts)
    reason = inner_value(body, "incomplete_details", "reason") or body.get("status")
    reason = "refusal" if is_refused else reason
    return [parsed_answer(text, reason, joined_tokens(tokens), has_thoughts=has_thoughts)]


CHAT_OR_TEXT = ResponseFormat(
    "openai", "logprobs=true (chat) or logprobs=1 (text)", _is_completion, _parse_completion
)
RESPONSES = ResponseFormat(
    "responses", 'include=["message.output_text.logprobs"]', _is_response, _parse_response
)
