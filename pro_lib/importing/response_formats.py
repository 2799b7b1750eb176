"""List the response formats, and recognise responses, failures and pieces of streams."""

from typing import Any

from pro_lib.common import reasons
from pro_lib.common.nested import as_items, as_mapping
from pro_lib.importing.formats import ResponseFormat, libraries, openai, servers, vendors

# The first format that recognises a response reads it. Formats with unique fields come first.
RESPONSE_FORMATS: tuple[ResponseFormat, ...] = (
    libraries.INSPECT,
    libraries.HARNESS,
    openai.CHAT_OR_TEXT,
    servers.VLLM,
    vendors.GEMINI,
    vendors.BEDROCK,
    libraries.LANGCHAIN,
    openai.RESPONSES,
    servers.OLLAMA,
    servers.SGLANG,
    servers.TGI,
    servers.LLAMA_CPP,
    vendors.COHERE,
    vendors.ANTHROPIC,
)

# Finish reasons in lower case: of an answer that the model ended.
NATURAL = {
    "complete",
    "completed",
    "end_turn",
    "eos",
    "eos_token",
    "stop",
    "stop_sequence",
    "stop_token",
    "word",
}
# The others, by the reason why such an answer is not used.
_ENDINGS_BY_REASON = {
    reasons.CUT: (
        "error_limit incomplete length limit max_length max_output_tokens max_tokens "
        "model_context_window_exceeded model_length other pause_turn"
    ),
    reasons.FAILED: "abort aborted cancelled error failed",
    reasons.FILTERED: (
        "blocklist content_filter content_filtered error_toxic guardrail_intervened image_safety "
        "language prohibited_content recitation refusal safety spii"
    ),
    reasons.TOOL_CALL: (
        "function_call malformed_function_call tool_call tool_calls tool_use unexpected_tool_call"
    ),
}
NOT_ENDED = {
    ending: reason for reason, endings in _ENDINGS_BY_REASON.items() for ending in endings.split()
}

# The beginnings of the event types in streams of the Responses API, Anthropic and Cohere.
_EVENT_TYPES = (
    "response.",
    "message_start",
    "message_delta",
    "message_stop",
    "message-",
    "content_block",
    "content-",
)


def response_format_of(body: dict) -> ResponseFormat | None:
    """Return the format of a response, or None if no format recognises it."""
    for response_format in RESPONSE_FORMATS:
        if response_format.recognises(body):
            return response_format
    return None


def failure(body: dict) -> str | None:
    """Return the message of a failed response, "" if it has none, or None if it did not fail.

    OpenAI has an object at `error`; vLLM, SGLang and Mistral return the error itself; FastAPI has
    `detail`.
    """
    error = body.get("error") or body.get("errors")
    if error:
        return _message(error)
    if body.get("object") == "error" or body.get("type") == "error":
        return _message(body)
    status = body.get("status_code", body.get("code"))
    if isinstance(status, int) and status >= 400 and response_format_of(body) is None:
        return _message(body) or f"status {status}"
    has_only_message = set(body) <= {"detail", "message", "status", "request_id"}
    if has_only_message and response_format_of(body) is None:
        return _message(body)
    return None


def _message(error: Any) -> str:
    """Return the first message in an error, or "" if it has none."""
    for entry in as_items(error):
        fields = as_mapping(entry)
        message = fields.get("message") or fields.get("detail") or fields.get("code")
        if message is None and isinstance(entry, str):
            message = entry
        if message:
            return str(message)[:100]
    return ""


def is_stream_piece(body: dict) -> bool:
    """Return whether a response is a piece of a stream, with only a part of an answer."""
    kind = body.get("object")
    if isinstance(kind, str) and kind.endswith(".chunk"):
        return True
    event = body.get("type")
    if isinstance(event, str) and event.startswith(_EVENT_TYPES):
        return True
    if body.get("done") is False:  # of Ollama
        return True
    if body.get("stop") is False and "content" in body:  # of llama.cpp
        return True
    if isinstance(body.get("token"), dict) and "generated_text" in body:  # of TGI
        return True
    return any("delta" in as_mapping(choice) for choice in as_items(body.get("choices")))
