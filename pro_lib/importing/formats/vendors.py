"""Responses of vendors' own APIs: Gemini, Cohere, Anthropic and Amazon Bedrock."""

from typing import Any

from pro_lib.common.nested import as_items, as_mapping, inner_value
from pro_lib.importing.formats.parsed import (
    ParsedAnswer,
    ResponseFormat,
    Tokens,
    TokenText,
    choices_of,
    parsed_answer,
    text_of_parts,
    token_list,
)

# --- Gemini, in the names of its JSON and of its Python client ---

_FINISH_NUMBERS = {1: "stop", 2: "max_tokens", 3: "safety", 4: "recitation", 5: "other"}


def _is_gemini(body: dict) -> bool:
    return any(
        body.get(name) is not None for name in ("candidates", "promptFeedback", "prompt_feedback")
    )


def _parse_gemini(body: dict) -> list[ParsedAnswer]:
    usage = as_mapping(body.get("usageMetadata", body.get("usage_metadata")))
    n_hidden = usage.get("thoughtsTokenCount") or usage.get("thoughts_token_count")
    has_hidden = bool(n_hidden)
    answers = []
    for candidate in choices_of(body.get("candidates")):
        text, has_thoughts = text_of_parts(inner_value(candidate, "content", "parts"))
        reason = candidate.get("finishReason", candidate.get("finish_reason"))
        reason = _FINISH_NUMBERS.get(reason, reason) if type(reason) is int else reason
        result = as_mapping(candidate.get("logprobsResult", candidate.get("logprobs_result")))
        steps = result.get("chosenCandidates", result.get("chosen_candidates"))
        tokens = token_list(steps, log_prob=("logProbability", "log_probability"))
        answers.append(parsed_answer(text, reason, tokens, has_thoughts=has_thoughts or has_hidden))
    feedback = as_mapping(body.get("promptFeedback", body.get("prompt_feedback")))
    is_blocked = bool(feedback.get("blockReason", feedback.get("block_reason")))
    if is_blocked and not answers:
        answers.append(parsed_answer(None, "content_filter", Tokens()))
    return answers


# --- Cohere ---


def _is_cohere(body: dict) -> bool:
    return (
        isinstance(body.get("message"), dict)
        and "content" in body["message"]
        and "finish_reason" in body
    )


def _parse_cohere(body: dict) -> list[ParsedAnswer]:
    text, has_thoughts = text_of_parts(body["message"]["content"])
    tokens = _cohere_tokens(body.get("logprobs"))
    return [parsed_answer(text, body["finish_reason"], tokens, has_thoughts=has_thoughts)]


def _cohere_tokens(steps: Any) -> Tokens:
    """Return the tokens of steps with a text and the log-probabilities of one or more tokens."""
    if not isinstance(steps, (list, tuple)):
        return Tokens(log_probs=steps)
    texts: list[TokenText] = []
    log_probs: list[Any] = []
    for step in map(as_mapping, steps):
        values = as_items(step.get("logprobs")) or [None]
        text = step.get("text")
        texts += [text if isinstance(text, str) else None, *[""] * (len(values) - 1)]
        log_probs += values
    return Tokens(texts, log_probs)


# --- Anthropic and Bedrock, which return no log-probabilities ---


def _is_anthropic(body: dict) -> bool:
    return body.get("type") == "message" and "content" in body and "stop_reason" in body


def _parse_anthropic(body: dict) -> list[ParsedAnswer]:
    text, has_thoughts = text_of_parts(body["content"])
    reason = body["stop_reason"]
    return [parsed_answer(text, reason, Tokens(), has_thoughts=has_thoughts, lacks_log_probs=True)]


def _is_bedrock(body: dict) -> bool:
    return isinstance(inner_value(body, "output", "message"), dict) and "stopReason" in body


def _parse_bedrock(body: dict) -> list[ParsedAnswer]:
    parts = as_items(body["output"]["message"].get("content"))
    text, _ = text_of_parts(parts)
    has_thoughts = any("reasoningContent" in as_mapping(part) for part in parts)
    reason = body["stopReason"]
    return [parsed_answer(text, reason, Tokens(), has_thoughts=has_thoughts, lacks_log_probs=True)]


GEMINI = ResponseFormat("gemini", "responseLogprobs=true", _is_gemini, _parse_gemini)
COHERE = ResponseFormat("cohere", "logprobs=true", _is_cohere, _parse_cohere)
ANTHROPIC = ResponseFormat("anthropic", "", _is_anthropic, _parse_anthropic)
BEDROCK = ResponseFormat("bedrock", "", _is_bedrock, _parse_bedrock)
