"""The response formats as a table: how each is recognized, and where its values are.

A format is one row, with paths for `value_at`. Paths that formats share are constants.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pro_lib.common import reasons
from pro_lib.common.nested import as_items, as_mapping, value_at
from pro_lib.importing import harness


@dataclass(frozen=True)
class ResponseFormat:
    """A response format.

    The paths below lead from an answer, except for `known_by` and `answers`.

    Attributes:
        name: the name of the format in docs and runs.
        source: what writes it, as Markdown for the docs.
        request: how to ask for log-probabilities; "" if this cannot be asked for.
        known_by: paths that all have a value in a response of this format.
        answers: the path to its answers, or a function that returns them; "" if it is an answer.
        text, finish_reason, tokens: the paths to the text, the finish reason and the tokens.
        log_prob: the path to the log-probability of the answer.
        log: a function that returns fields of the response that a log has besides its answers.
        judged_rows: a function that returns those of several answers that a metric of a log judges;
            None if it judges all.
        is_record: whether it is a format of this project, with values of a run in its answers.
    """

    name: str
    source: str
    request: str
    known_by: tuple[str, ...]
    answers: str | Callable[[dict], list] = ""
    text: str = "text"
    finish_reason: str = "finish_reason"
    tokens: str = "logprobs"
    log_prob: str = "cumulative_logprob"
    log: Callable[[dict], dict[str, Any]] | None = None
    judged_rows: Callable[[str, list[int], Mapping[str, list]], list[int]] | None = None
    is_record: bool = False

    def answers_in(self, body: dict) -> list[dict]:
        """Return the answers of a response as objects to which the paths apply."""
        if not self.answers:
            return [body]
        answers = (
            value_at(body, self.answers) if isinstance(self.answers, str) else self.answers(body)
        )
        return [as_mapping(answer) for answer in as_items(answers)]


# --- Formats whose answers are collected from several places ---


def message_fields(value: object) -> tuple[object, dict]:
    """Return the type and the fields of a message, also in one of LangChain's other two forms.

    They are `{"lc": 1, "id": [..., "HumanMessage"], "kwargs": {}}` and `{"type": …, "data": {}}`.
    """
    turn = as_mapping(value)
    if turn.get("lc") is not None and isinstance(turn.get("kwargs"), dict):
        class_name = as_items(turn.get("id"))[-1:] or [""]
        return class_name[0], turn["kwargs"]
    is_inner = isinstance(turn.get("data"), dict)
    return turn.get("type"), turn["data"] if is_inner else turn


def langchain_message(value: object) -> dict | None:
    """Return the fields of a model's message in one of LangChain's three forms, else None."""
    kind, fields = message_fields(value)
    has_metadata = "response_metadata" in fields or "additional_kwargs" in fields
    is_message = fields is not value or ("content" in fields and has_metadata)
    is_of_model = kind in _AI_TYPES or (kind is None and fields is value)
    return fields if is_message and is_of_model else None


_AI_TYPES = ("ai", "AIMessage", "AIMessageChunk")


def _langchain_answers(body: dict) -> list[dict]:
    """Return the message of a response with its metadata, or those of all generations."""
    message = langchain_message(body)
    if message is not None:
        return [{**message, **as_mapping(message.get("response_metadata"))}]
    answers = []
    for group in as_items(value_at(body, "generations || outputs.generations")):
        for generation in map(as_mapping, as_items(group)):
            message = langchain_message(generation.get("message"))
            if message is None:
                message = {"content": generation.get("text")}
            info = as_mapping(generation.get("generation_info"))
            metadata = as_mapping(message.get("response_metadata"))
            answers.append({**message, **info, **metadata})
    return answers


def _responses_answer(body: dict) -> list[dict]:
    """Return the parts of all messages of the Responses API as one answer."""
    parts: list[Any] = []
    steps: list[Any] = []
    for item in map(as_mapping, as_items(body.get("output"))):
        if item.get("type") == "reasoning":
            is_thought = any(item.get(name) for name in ("content", "summary", "encrypted_content"))
            parts += [item] * is_thought
            continue
        for part in map(as_mapping, as_items(item.get("content"))):
            parts.append(part)
            if part.get("text") is not None:
                steps += as_items(part.get("logprobs"))
    reason = value_at(body, "incomplete_details.reason || status")
    if any(part.get("type") == "refusal" for part in parts):
        reason = "refusal"
    return [{"content": parts, "logprobs": steps or None, "finish_reason": reason}]


def _vllm_answers(body: dict) -> list[dict]:
    """Return the outputs of vLLM with the chosen token of each step, which lists several by id."""
    answers = []
    for output in map(as_mapping, as_items(body["outputs"])):
        token_ids = as_items(output.get("token_ids"))
        steps = output.get("logprobs")
        if isinstance(steps, (list, tuple)) and len(steps) == len(token_ids):
            pairs = zip(steps, token_ids, strict=True)
            steps = [as_mapping(as_mapping(step).get(str(name))) for step, name in pairs]
        answers.append({**output, "logprobs": steps, "generated_tokens": len(token_ids)})
    return answers


def _tgi_answers(body: dict) -> list[dict]:
    details = as_mapping(body.get("details"))
    return [{**body, **details}, *as_items(details.get("best_of_sequences"))]


def _inspect_fields(log: dict) -> dict[str, Any]:
    scores = as_mapping(log.get("scores"))
    values = {name: as_mapping(score).get("value") for name, score in scores.items()}
    return {"log_metrics": values}


# The names of the log-probability of an answer in rows and records.
_LOG_PROB = "log_prob || logprob || log_probability || cumulative_logprob"
# The first format that recognizes a response reads it. Formats with unique fields come first.
RESPONSE_FORMATS: tuple[ResponseFormat, ...] = (
    ResponseFormat(
        "inspect_ai",
        "its logs as JSON, for example by `inspect log convert LOG --to json --output-dir FOLDER`",
        "GenerateConfig(logprobs=True)",
        ("epoch", "output"),
        "output.choices",
        text="message.content",
        finish_reason="stop_reason",
        log=_inspect_fields,
    ),
    ResponseFormat(
        "lm-eval",
        "`samples_*.jsonl` of lm-evaluation-harness; multiple choice has log-probabilities",
        "",
        ("resps",),
        harness.answers_in,
        log_prob="log_prob",
        log=harness.log_fields,
        judged_rows=harness.judged_rows,
    ),
    ResponseFormat(
        "openai",
        "chat, completions, batches; vLLM's, SGLang's and llama.cpp's servers; LiteLLM",
        "logprobs=true (chat) or logprobs=1 (text)",
        ("choices",),
        "choices",
        text="message.content || text",
    ),
    ResponseFormat(
        "langchain",
        "`AIMessage` (`model_dump`, `dumpd`, `message_to_dict`), `LLMResult`, conversations",
        "logprobs=True of the model",
        (
            "generations || outputs.generations || response_metadata || additional_kwargs || "
            "kwargs.content || data.content",
        ),
        _langchain_answers,
        text="content",
        finish_reason="finish_reason || stop_reason || stopReason || done_reason || status",
        tokens="logprobs_result || logprobs",
    ),
    ResponseFormat(
        "vllm",
        "`RequestOutput` objects, or their JSON",
        "SamplingParams(logprobs=0)",
        ("outputs.0",),
        _vllm_answers,
    ),
    ResponseFormat(
        "gemini",
        "`generateContent`; batches of Gemini and Vertex",
        "responseLogprobs=true",
        ("candidates || promptFeedback || prompt_feedback",),
        "candidates",
        text="content.parts",
        finish_reason="finishReason || finish_reason",
        tokens="logprobsResult.chosenCandidates || logprobs_result.chosen_candidates",
    ),
    ResponseFormat(
        "bedrock",
        "Converse",
        "",
        ("output.message", "stopReason"),
        text="output.message.content",
        finish_reason="stopReason",
    ),
    ResponseFormat(
        "responses",
        "OpenAI's Responses API",
        'include=["message.output_text.logprobs"]',
        ("output.0",),
        _responses_answer,
        text="content",
    ),
    ResponseFormat(
        "ollama",
        "chat, generate, without streaming",
        "logprobs=true",
        ("done",),
        text="message.content || response",
        finish_reason="done_reason",
    ),
    ResponseFormat(
        "sglang",
        "its own `/generate`",
        "return_logprob=true",
        ("meta_info",),
        finish_reason="meta_info.finish_reason",
        tokens="meta_info.output_token_logprobs",
    ),
    ResponseFormat(
        "tgi",
        "generate",
        "details=true",
        ("generated_text || details",),
        _tgi_answers,
        text="generated_text",
        tokens="tokens",
    ),
    ResponseFormat(
        "llama.cpp",
        "its own `/completion`",
        "n_probs=1",
        ("stop_type || completion_probabilities",),
        text="content",
        finish_reason="stop_type",
        tokens="completion_probabilities",
    ),
    ResponseFormat(
        "cohere",
        "chat",
        "logprobs=true",
        ("message.content", "finish_reason"),
        text="message.content",
    ),
    ResponseFormat(
        "anthropic",
        "messages, batches",
        "",
        ("content", "stop_reason"),
        text="content",
        finish_reason="stop_reason",
    ),
    ResponseFormat(
        "records",
        "the workbench's [own format](#records)",
        "",
        ("answers",),
        "answers",
        log_prob=_LOG_PROB,
        is_record=True,
    ),
    ResponseFormat(
        "rows",
        "CSV, Parquet or JSON lines with `question_id`, `text` and `log_prob`, a row per answer",
        "",
        ("question_id || question", "text || log_prob || token_log_probs"),
        text="text || response || completion || answer",
        log_prob=_LOG_PROB,
        is_record=True,
    ),
)

# --- What formats share ---

# The paths to the id of a response and to its model.
SERVED_IDS = "request_id || id || responseId || response_id || meta_info.id"
MODELS = "model || modelVersion || output.model || response_metadata.model_name"
# Types of the parts of a message that are thoughts.
THOUGHT_TYPES = {
    "reasoning",
    "reasoning_content",
    "reasoning_text",
    "redacted_thinking",
    "thinking",
    "thought",
}
# Fields of a message or a choice in which servers return the thought.
THOUGHT_FIELDS = frozenset(
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
USAGE = "usage || usageMetadata || usage_metadata"
HIDDEN_TOKENS = (
    "completion_tokens_details.reasoning_tokens || output_tokens_details.reasoning_tokens || "
    "thoughtsTokenCount || thoughts_token_count || output_token_details.reasoning"
)
BLOCKED = "promptFeedback.blockReason || prompt_feedback.block_reason"
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
# The finish reasons of Gemini that are numbers.
GEMINI_ENDINGS = {1: "stop", 2: "max_tokens", 3: "safety", 4: "recitation", 5: "other"}


def response_format_of(body: dict) -> ResponseFormat | None:
    """Return the format of a response, or None if no format recognizes it."""
    for response_format in RESPONSE_FORMATS:
        if all(value_at(body, path) is not None for path in response_format.known_by):
            return response_format
    return None


def is_stream_piece(body: dict) -> bool:
    """Return whether a response is a piece of a stream, with only a part of an answer."""
    kind = body.get("object")
    event = body.get("type")
    return (
        (isinstance(kind, str) and kind.endswith(".chunk"))
        or (isinstance(event, str) and event.startswith(_EVENT_TYPES))
        or body.get("done") is False  # of Ollama
        or (body.get("stop") is False and "content" in body)  # of llama.cpp
        or (isinstance(body.get("token"), dict) and "generated_text" in body)  # of TGI
        or any("delta" in as_mapping(choice) for choice in as_items(body.get("choices")))
    )
