"""Responses of servers and libraries that run open models, in their own formats."""

import math
from typing import Any

from pro_lib.common.nested import as_items, as_mapping, inner_value
from pro_lib.importing.formats.parsed import (
    ParsedAnswer,
    ResponseFormat,
    Tokens,
    TokenText,
    choices_of,
    count_or_none,
    has_thought_field,
    parsed_answer,
    text_of_parts,
    text_or_none,
    token_list,
)

# --- vLLM in Python ---


def _is_vllm(body: dict) -> bool:
    return body.get("outputs") is not None


def _parse_vllm(body: dict) -> list[ParsedAnswer]:
    answers = []
    for output in choices_of(body["outputs"]):
        answers.append(
            parsed_answer(
                output.get("text"),
                output.get("finish_reason"),
                _vllm_tokens(output.get("logprobs"), output.get("token_ids")),
                log_prob=output.get("cumulative_logprob"),
                stop=text_or_none(output.get("stop_reason")),
                n_generated=count_or_none(len(as_items(output.get("token_ids")))),
                has_thoughts=has_thought_field(output),
            )
        )
    return answers


def _vllm_tokens(steps: Any, token_ids: Any) -> Tokens:
    """Return the chosen tokens of vLLM's steps.

    A step lists several tokens by id.
    """
    if not isinstance(steps, (list, tuple)) or not isinstance(token_ids, (list, tuple)):
        return token_list(steps)
    if len(steps) != len(token_ids):
        return token_list(steps)
    chosen_tokens = [
        as_mapping(as_mapping(step).get(str(token_id)))
        for step, token_id in zip(steps, token_ids, strict=True)
    ]
    return token_list(chosen_tokens, text=("decoded_token",))


# --- Ollama ---


def _is_ollama(body: dict) -> bool:
    return body.get("done") is not None


def _parse_ollama(body: dict) -> list[ParsedAnswer]:
    message = as_mapping(body.get("message"))
    text, has_thoughts = text_of_parts(message.get("content", body.get("response")))
    has_thoughts = has_thoughts or has_thought_field(body, message)
    tokens = token_list(body.get("logprobs"))
    return [parsed_answer(text, body.get("done_reason"), tokens, has_thoughts=has_thoughts)]


# --- SGLang's /generate ---


def _is_sglang(body: dict) -> bool:
    return body.get("meta_info") is not None


def _parse_sglang(body: dict) -> list[ParsedAnswer]:
    meta = as_mapping(body["meta_info"])
    reason = meta.get("finish_reason")
    stop = text_or_none(as_mapping(reason).get("matched"))
    reason = reason.get("type") if isinstance(reason, dict) else reason
    tokens = _sglang_tokens(meta.get("output_token_logprobs"))
    return [parsed_answer(body.get("text"), reason, tokens, stop=stop)]


def _sglang_tokens(steps: Any) -> Tokens:
    """Return the tokens of steps `[log-probability, id, text]`.

    The text may be None.
    """
    if not isinstance(steps, (list, tuple)):
        return Tokens(log_probs=steps)
    texts: list[TokenText] = []
    log_probs: list[Any] = []
    for step in steps:
        text = inner_value(step, 2)
        texts.append(text if isinstance(text, str) else None)
        log_probs.append(inner_value(step, 0) if isinstance(step, (list, tuple)) else None)
    has_texts = any(text is not None for text in texts)
    return Tokens(texts if has_texts else None, log_probs)


# --- Text Generation Inference ---


def _is_tgi(body: dict) -> bool:
    return body.get("generated_text") is not None or body.get("details") is not None


def _parse_tgi(body: dict) -> list[ParsedAnswer]:
    details = as_mapping(body.get("details"))
    answers = [_tgi_answer(body, details)]
    for sequence in choices_of(details.get("best_of_sequences")):
        answers.append(_tgi_answer(sequence, sequence))
    return answers


def _tgi_answer(sequence: dict, details: dict) -> ParsedAnswer:
    steps = details.get("tokens")
    reason = details.get("finish_reason", sequence.get("finish_reason"))
    tokens = token_list(steps, text=("text",))
    if isinstance(steps, list) and isinstance(tokens.log_probs, list):
        specials = [as_mapping(step).get("special") is True for step in steps]
        tokens = Tokens(tokens.texts, tokens.log_probs, specials)
    n_generated = count_or_none(details.get("generated_tokens"))
    return parsed_answer(sequence.get("generated_text"), reason, tokens, n_generated=n_generated)


# --- llama.cpp's /completion ---

# The finish reasons of older servers, by the field that states them.
_ENDINGS = {"stopped_eos": "eos", "stopped_word": "word", "stopped_limit": "limit"}
_AFTER_SAMPLING = (
    "the probabilities are those after the sampling filters (post_sampling_probs), "
    "not the model's; ask without post_sampling_probs"
)
_FILTERED = (
    "the probabilities are those after the sampling filters{}, not the model's; "
    "ask with temperature=-1, or a newer server with n_probs=1"
)
# Values of llama.cpp's settings with which the probabilities of older servers are the model's.
_NEUTRAL_SETTINGS = {
    "temperature": 1,
    "dynatemp_range": 0,
    "top_k": 0,
    "top_p": 1,
    "min_p": 0,
    "tfs_z": 1,
    "typical_p": 1,
    "repeat_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "mirostat": 0,
    "xtc_probability": 0,
    "dry_multiplier": 0,
}


def _is_llama_cpp(body: dict) -> bool:
    names = ("stop_type", "completion_probabilities", "stopped_eos")
    return any(body.get(name) is not None for name in names)


def _parse_llama_cpp(body: dict) -> list[ParsedAnswer]:
    reason = body.get("stop_type")
    if reason is None:
        reason = next((word for name, word in _ENDINGS.items() if body.get(name) is True), None)
    tokens = _llama_cpp_tokens(
        body.get("completion_probabilities"), as_mapping(body.get("generation_settings"))
    )
    stop = text_or_none(body.get("stopping_word"))
    return [
        parsed_answer(
            body.get("content"), reason, tokens, stop=stop, has_thoughts=has_thought_field(body)
        )
    ]


def _llama_cpp_tokens(steps: Any, settings: dict) -> Tokens:
    """Return the tokens of llama.cpp, in the form of newer or of older servers."""
    dicts = [as_mapping(step) for step in as_items(steps)]
    if any("top_probs" in step or "prob" in step for step in dicts):
        return Tokens(problem=_AFTER_SAMPLING)
    if not any("probs" in step for step in dicts):
        return token_list(steps)
    return _older_llama_cpp_tokens(dicts, settings)


def _older_llama_cpp_tokens(dicts: list[dict], settings: dict) -> Tokens:
    """Return the tokens of an older server, which lists probabilities after sampling.

    They are the model's own only if no setting changes or filters them. The chosen token of a step
    is the listed token whose text is the step's content.
    """
    candidates_by_step = [choices_of(step.get("probs")) for step in dicts]
    changing = _changing_settings(settings)
    has_zero = any(token.get("prob") == 0 for tokens in candidates_by_step for token in tokens)
    if changing or has_zero:
        names = f" ({', '.join(changing)})" if changing else ""
        return Tokens(problem=_FILTERED.format(names))
    texts: list[TokenText] = []
    log_probs: list[float | None] = []
    for step, candidates in zip(dicts, candidates_by_step, strict=True):
        text = step.get("content")
        texts.append(text if isinstance(text, str) else None)
        probabilities = [token.get("prob") for token in candidates if token.get("tok_str") == text]
        log_probs.append(_log_of_only(probabilities))
    return Tokens(texts, log_probs)


def _log_of_only(probabilities: list[Any]) -> float | None:
    """Return the logarithm of a single valid probability, or None for anything else."""
    if len(probabilities) != 1:
        return None
    [probability] = probabilities
    is_valid = type(probability) in (int, float) and 0 < probability <= 1
    return math.log(probability) if is_valid else None


def _changing_settings(settings: dict) -> list[str]:
    """Return the sampling settings that change probabilities, as `name=value`.

    With a temperature below 0, no setting changes them.
    """
    temperature = settings.get("temperature")
    if isinstance(temperature, (int, float)) and temperature < 0:
        return []
    changing = []
    for name, neutral in _NEUTRAL_SETTINGS.items():
        value = settings.get(name)
        is_neutral = value is None or value == neutral or (name == "top_k" and value == -1)
        if not is_neutral:
            changing.append(f"{name}={value}")
    return changing


VLLM = ResponseFormat("vllm", "SamplingParams(logprobs=0)", _is_vllm, _parse_vllm)
OLLAMA = ResponseFormat("ollama", "logprobs=true", _is_ollama, _parse_ollama)
SGLANG = ResponseFormat("sglang", "return_logprob=true", _is_sglang, _parse_sglang)
TGI = ResponseFormat("tgi", "details=true", _is_tgi, _parse_tgi)
LLAMA_CPP = ResponseFormat("llama.cpp", "n_probs=1", _is_llama_cpp, _parse_llama_cpp)
