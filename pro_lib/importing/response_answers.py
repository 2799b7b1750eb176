"""Read the answers of a response by the paths of its format."""

from collections.abc import Iterator, Sequence
from typing import Any

from pro_lib.common.nested import as_items, as_mapping, first_value, inner_value, value_at
from pro_lib.common.thoughts import without_thoughts
from pro_lib.importing.parsed_answers import RUN_COLUMNS, ParsedAnswer
from pro_lib.importing.response_formats import (
    BLOCKED,
    GEMINI_ENDINGS,
    HIDDEN_TOKENS,
    THOUGHT_FIELDS,
    THOUGHT_TYPES,
    USAGE,
    ResponseFormat,
)

_ONLY_TOP = (
    "logprobs have top_logprobs (the likeliest tokens of each step), but not the log-probability "
    "of the chosen token; save the whole logprobs object"
)
_AFTER_SAMPLING = (
    "the probabilities are those after the sampling filters, not the model's; "
    "ask a llama.cpp server of the last two years for n_probs=1 without post_sampling_probs"
)
# The names of the parts of a token, by format.
_LOG_PROB_NAMES = ("logProbability", "log_probability")
_TEXT_NAMES = ("token", "decoded_token", "text")
_SAMPLED_NAMES = frozenset(("prob", "probs", "top_probs"))


def answers_of(body: dict, response_format: ResponseFormat) -> Iterator[ParsedAnswer]:
    """Yield the answers of a response of a format. Their values are not checked."""
    choices = response_format.answers_in(body)
    if response_format.is_record:
        for choice in choices:
            names = [name for name in RUN_COLUMNS if choice.get(name) is not None]
            fields = {name: choice[name] for name in names}
            fields["log_prob"] = value_at(choice, response_format.log_prob)
            fields["text"] = value_at(choice, response_format.text)
            reason = "stop" if fields.get("finished", True) is True else "length"
            yield ParsedAnswer(**fields, token_texts=choice.get("tokens"), finish_reason=reason)
        return
    if not choices and value_at(body, BLOCKED):
        yield ParsedAnswer(finish_reason="content_filter")
    usage = as_mapping(value_at(body, USAGE))
    has_hidden_thoughts = bool(usage and value_at(usage, HIDDEN_TOKENS))
    # The counts of several choices are those of all together.
    items = usage.items() if len(choices) == 1 else ()
    usage = {name: count for name, count in items if type(count) is int}
    for choice in choices:
        yield _answer(choice, response_format, usage, has_hidden_thoughts)


def _answer(
    choice: dict, response_format: ResponseFormat, usage: dict, has_hidden_thoughts: bool
) -> ParsedAnswer:
    """Return the answer of a choice. Thoughts at the beginning of its text are removed."""
    message = choice.get("message")
    text, has_thoughts = _text_of_parts(value_at(choice, response_format.text))
    reason = value_at(choice, response_format.finish_reason)
    stop = choice.get("stop_reason") or choice.get("stopping_word")
    if isinstance(reason, dict):  # of SGLang
        stop = reason.get("matched")
        reason = reason.get("type")
    if inner_value(message, "refusal"):
        reason = "refusal"
    if isinstance(text, str):
        text, thought_in_text = without_thoughts(text)
        has_thoughts = has_thoughts or thought_in_text
    specific = inner_value(message, "provider_specific_fields")
    for place in (choice, message, choice.get("additional_kwargs"), specific):
        # Few messages have a field with a thought, and this is asked of every answer.
        if isinstance(place, dict) and not THOUGHT_FIELDS.isdisjoint(place):
            has_thoughts = has_thoughts or any(place.get(name) for name in THOUGHT_FIELDS)
    position = choice.get("index")
    return ParsedAnswer(
        text,
        finish_reason=_finish_reason(reason),
        log_prob=value_at(choice, response_format.log_prob),
        position=position if type(position) is int else None,
        stop=stop if isinstance(stop, str) and stop else None,
        n_generated=choice.get("generated_tokens", usage.get("completion_tokens")),
        n_prompt_tokens=usage.get("prompt_tokens") or None,
        has_thoughts=has_thoughts or has_hidden_thoughts,
        **_token_fields(value_at(choice, response_format.tokens)),
    )


def _finish_reason(reason: object) -> object:
    """Return a finish reason in lower case, without the name of its enumeration."""
    if type(reason) is int:
        return GEMINI_ENDINGS.get(reason, reason)
    if not isinstance(reason, str):
        return reason
    word = reason.rpartition(".")[2].lower().removeprefix("finish_reason_")
    return None if word in ("", "none", "unspecified") else word


def _text_of_parts(content: object) -> tuple[object, bool]:
    """Return the text of a message's content, and whether a part of it is a thought.

    Content is a text, or a list of texts and parts (`{"type": "text", "text": …}`). Any other value
    is returned unchanged, so that the check of the answer refuses it.
    """
    if not isinstance(content, (list, tuple)):
        return content, False
    has_thoughts = False
    texts = []
    for part in content:
        if isinstance(part, dict):
            kind = part.get("type")
            is_thought = part.get("thought") is True or "reasoningContent" in part
            if is_thought or (isinstance(kind, str) and kind in THOUGHT_TYPES):
                has_thoughts = True
            elif part.get("text") is not None:
                texts.append(part["text"])
        else:
            texts.append(part)
    if not all(isinstance(text, str) for text in texts):
        return texts, has_thoughts
    return "".join(texts) if texts else None, has_thoughts


# --- Tokens ---


def _token_fields(logprobs: Any) -> dict[str, Any]:
    """Return the fields of an answer that its tokens give.

    The tokens are a list of steps, an object with such a list (`content`, of a chat), or an object
    with a list for each field (`token_logprobs`, of a text). Any other value is kept, so that the
    check of the answer refuses it.
    """
    steps = logprobs
    if isinstance(logprobs, dict):
        steps = logprobs.get("content")
        values = logprobs.get("token_logprobs")
        if steps is None and isinstance(values, list):
            texts = logprobs.get("tokens")
            is_complete = isinstance(texts, list) and len(texts) == len(values)
            if not is_complete or not all(isinstance(text, str) for text in as_items(texts)):
                texts = None
            return {"token_texts": texts, "token_log_probs": values}
        if steps is None and values is None:
            return {"problem": _ONLY_TOP if logprobs.get("top_logprobs") else None}
        steps = values if steps is None else steps
    if not isinstance(steps, (list, tuple)):
        return {"token_log_probs": steps}
    if steps and isinstance(steps[0], dict) and not _SAMPLED_NAMES.isdisjoint(steps[0]):
        return {"problem": _AFTER_SAMPLING}
    return _fields_of_steps(steps)


def _fields_of_steps(steps: Sequence[Any]) -> dict[str, Any]:
    """Return the fields of an answer that a list of steps gives, one a token."""
    texts: list[str | bytes | None] = []
    log_probs: list[Any] = []
    specials: list[bool] = []
    for step in steps:
        fields = step
        if isinstance(step, (list, tuple)):  # of SGLang: log-probability, id and text
            fields = {"logprob": inner_value(step, 0), "text": inner_value(step, 2)}
        elif not isinstance(step, dict):
            fields = {"logprob": step if isinstance(step, (int, float)) else None}
        log_prob = fields.get("logprob")
        log_probs.append(first_value(fields, _LOG_PROB_NAMES) if log_prob is None else log_prob)
        texts.append(_token_text(fields))
        specials.append(fields.get("special") is True)
        if "logprobs" in fields:  # of Cohere, with one or more tokens in a step
            log_probs[-1:] = as_items(fields["logprobs"]) or [None]
            n_more = len(log_probs) - len(texts)
            texts += [""] * n_more
            specials += [False] * n_more
    if all(value is None for value in log_probs):
        has_top = any(as_mapping(step).get("top_logprobs") for step in steps)
        return {"problem": _ONLY_TOP if has_top else None, "token_log_probs": log_probs}
    return {
        "token_texts": texts if texts.count(None) < len(texts) else None,
        "token_log_probs": log_probs,
        "token_specials": specials if any(specials) else None,
    }


def _token_text(step: dict) -> str | bytes | None:
    """Return the bytes of a token, since it may be a part of a character, or else its text."""
    byte_values = step.get("bytes")
    if isinstance(byte_values, list) and byte_values:
        try:
            return bytes(byte_values)
        except (TypeError, ValueError):
            pass  # not bytes; the text is used
    text = first_value(step, _TEXT_NAMES)
    return text if isinstance(text, str) else None
