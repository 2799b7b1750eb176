"""Read the answers of a response by its format: texts, tokens, thoughts and finish reasons."""

from collections.abc import Iterator, Sequence
from typing import Any

from pro_lib.common.nested import as_items, as_mapping, first_value, inner_value
from pro_lib.common.thoughts import without_thoughts
from pro_lib.importing.answers import RUN_COLUMNS, Answer
from pro_lib.importing.response_formats import GEMINI_ENDINGS, ResponseFormat, value_at

_ONLY_TOP = (
    "logprobs have top_logprobs (the likeliest tokens of each step), but not the log-probability "
    "of the chosen token; save the whole logprobs object"
)
_AFTER_SAMPLING = (
    "the probabilities are those after the sampling filters, not the model's; "
    "ask a llama.cpp server of the last two years for n_probs=1 without post_sampling_probs"
)
# Types of the parts of a message that are thoughts.
_THOUGHT_TYPES = {
    "reasoning",
    "reasoning_content",
    "reasoning_text",
    "redacted_thinking",
    "thinking",
    "thought",
}
# Fields of a message or a choice in which servers return the thought.
_THOUGHT_FIELDS = frozenset(
    (
        "reasoning_content",
        "reasoning",
        "reasoning_details",
        "thinking",
        "thinking_blocks",
        "reasoning_text",
    )
)
# The numbers of tokens in hidden thoughts, and the reason why a prompt has no answer.
_USAGE = "usage || usageMetadata || usage_metadata"
_HIDDEN_TOKENS = (
    "completion_tokens_details.reasoning_tokens || output_tokens_details.reasoning_tokens || "
    "thoughtsTokenCount || thoughts_token_count || output_token_details.reasoning"
)
_BLOCKED = "promptFeedback.blockReason || prompt_feedback.block_reason"
# The names of the parts of a token, by format.
_LOG_PROB_NAMES = ("logprob", "logProbability", "log_probability")
_TEXT_NAMES = ("token", "decoded_token", "text")
_SAMPLED_NAMES = frozenset(("prob", "probs", "top_probs"))


def answers_of(body: dict, response_format: ResponseFormat) -> Iterator[Answer]:
    """Yield the answers of a response of a format. Their values are not checked."""
    choices = response_format.answers_in(body)
    if response_format.is_record:
        for choice in choices:
            yield _recorded_answer(choice, response_format)
        return
    if not choices and value_at(body, _BLOCKED):
        yield Answer(reason="content_filter")
    usage = as_mapping(value_at(body, _USAGE))
    has_hidden_thoughts = bool(usage and value_at(usage, _HIDDEN_TOKENS))
    if len(choices) > 1:
        usage = {}  # the counts are those of all choices together
    for choice in choices:
        yield _answer(choice, response_format, usage, has_hidden_thoughts)


def _recorded_answer(choice: dict, response_format: ResponseFormat) -> Answer:
    """Return an answer of a record, whose fields are those of a run."""
    names = [name for name in RUN_COLUMNS if name in choice and choice[name] is not None]
    fields = {name: choice[name] for name in names}
    fields["log_prob"] = value_at(choice, response_format.log_prob)
    is_finished = fields.get("finished", True)
    reason = "stop" if is_finished is True else "length"
    return Answer(**fields, token_texts=choice.get("tokens"), reason=reason)


def _answer(
    choice: dict, response_format: ResponseFormat, usage: dict, has_hidden_thoughts: bool
) -> Answer:
    """Return the answer of a choice. Thoughts at the beginning of its text are removed."""
    message = choice.get("message")
    text, has_thoughts = _text_of_parts(value_at(choice, response_format.text))
    reason = value_at(choice, response_format.reason)
    stop = choice.get("stop_reason") or choice.get("stopping_word")
    if isinstance(reason, dict):  # of SGLang
        stop = reason.get("matched")
        reason = reason.get("type")
    if inner_value(message, "refusal"):
        reason = "refusal"
    if isinstance(text, str):
        text, thought_in_text = without_thoughts(text)
        has_thoughts = has_thoughts or thought_in_text
    places = [choice, message, choice.get("additional_kwargs")]
    places.append(inner_value(message, "provider_specific_fields"))
    position = choice.get("index")
    return Answer(
        text,
        reason=_finish_reason(reason),
        log_prob=value_at(choice, response_format.log_prob),
        position=position if type(position) is int else None,
        stop=stop if isinstance(stop, str) and stop else None,
        n_generated=_count(choice.get("generated_tokens", usage.get("completion_tokens"))),
        n_prompt_tokens=_count(usage.get("prompt_tokens")),
        has_thoughts=bool(
            has_thoughts or has_hidden_thoughts or any(map(_has_thought_field, places))
        ),
        **_token_fields(value_at(choice, response_format.tokens)),
    )


def _count(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None


def _finish_reason(reason: object) -> object:
    """Return a finish reason in lower case, without the name of its enumeration."""
    if type(reason) is int:
        return GEMINI_ENDINGS.get(reason, reason)
    if not isinstance(reason, str):
        return reason
    word = reason.rpartition(".")[2].lower().removeprefix("finish_reason_")
    return None if word in ("", "none", "unspecified") else word


# --- Texts ---


def _text_of_parts(content: object) -> tuple[object, bool]:
    """Return the text of a message's content, and whether a part of it is a thought.

    Content is a text, or a list of texts and parts (`{"type": "text", "text": …}`). Any other value
    is returned unchanged, so that the check of the answer refuses it.
    """
    if not isinstance(content, (list, tuple)):
        return content, False
    has_thoughts = any(map(_is_thought, content))
    texts = []
    for part in content:
        if isinstance(part, dict) and not _is_thought(part):
            texts += [] if part.get("text") is None else [part["text"]]
        elif isinstance(part, str):
            texts.append(part)
        elif not isinstance(part, dict):
            return content, has_thoughts
    if not texts:
        return None, has_thoughts
    if not all(isinstance(text, str) for text in texts):
        return texts, has_thoughts
    return "".join(texts), has_thoughts


def _is_thought(part: object) -> bool:
    """Return whether a part of a message is a thought."""
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    is_of_type = isinstance(kind, str) and kind in _THOUGHT_TYPES
    return is_of_type or part.get("thought") is True or "reasoningContent" in part


def _has_thought_field(value: object) -> bool:
    """Return whether a message, or another part of its choice, has a field with a thought."""
    # Few messages have such a field, and this is asked of every answer.
    if not isinstance(value, dict) or _THOUGHT_FIELDS.isdisjoint(value):
        return False
    return any(value.get(name) for name in _THOUGHT_FIELDS)


# --- Tokens ---


def _token_fields(logprobs: Any) -> dict[str, Any]:
    """Return the fields of an answer that its tokens give.

    The tokens are a list of steps, an object with such a list (`content`, of a chat), or an object
    with a list for each field (`token_logprobs`, of a text). Any other value is kept, so that the
    check of the answer refuses it.
    """
    steps = logprobs
    if isinstance(logprobs, dict):
        values = logprobs.get("token_logprobs")
        steps = logprobs.get("content")
        if steps is None and isinstance(values, list):
            return {
                "token_texts": _list_of(str, logprobs.get("tokens"), len(values)),
                "token_log_probs": values,
                "text_offsets": _list_of(int, logprobs.get("text_offset"), len(values)),
            }
        if steps is None and values is None:
            return {"problem": _ONLY_TOP if logprobs.get("top_logprobs") else None}
        steps = values if steps is None else steps
    if not isinstance(steps, (list, tuple)):
        return {"token_log_probs": steps}
    if steps and isinstance(steps[0], dict) and not _SAMPLED_NAMES.isdisjoint(steps[0]):
        return {"problem": _AFTER_SAMPLING}
    return _fields_of_steps(steps)


def _list_of(kind: type, value: Any, length: int) -> list | None:
    """Return a list of this length with values of a type, or None for any other value."""
    if not isinstance(value, list) or len(value) != length:
        return None
    return value if all(isinstance(part, kind) for part in value) else None


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
        log_probs.append(first_value(fields, _LOG_PROB_NAMES))
        texts.append(_token_text(fields))
        specials.append(fields.get("special") is True)
        if "logprobs" in fields:  # of Cohere, with one or more tokens in a step
            others = as_items(fields["logprobs"]) or [None]
            log_probs[-1:] = others
            texts += [""] * (len(others) - 1)
            specials += [False] * (len(others) - 1)
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
