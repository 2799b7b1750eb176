"""Where servers keep an answer's text, its ending and its log-probabilities, format by format; knows no file."""

import re
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any, NamedTuple

from pro_lib.common.files import RunError, parse
from pro_lib.common.validation import Format, Text
from pro_lib.importing.records import AnswerRecord
from pro_lib.questions.question_files import references_beside

# What servers write for a log-probability that they do not give; vLLM also for -inf and for places not filled.
NOT_GIVEN = -9999.0
# How servers call an ending that the model chose, and one that it did not; in small letters.
NATURAL = {"complete", "completed", "end_turn", "eos", "eos_token", "stop", "stop_sequence", "stop_token", "word"}
CUT = {
    "abort", "aborted", "blocklist", "cancelled", "content_filter", "error", "error_limit", "error_toxic",
    "function_call", "incomplete", "length", "limit", "max_length", "max_output_tokens", "max_tokens", "model_length",
    "other", "prohibited_content", "recitation", "safety", "spii", "tool_call", "tool_calls", "tool_use",
}  # fmt: skip


class ResponseFormat(NamedTuple):
    """A response format by its paths: `a.b` is b within a, or within each of a list; `|` stands before another path.

    A response has something at `key`; `answers` lead to its answers ("" is itself), from there `text`, `reason` and
    `tokens`. `request` asks the server for log-probabilities; a log, which has none, may hold texts alone.
    """

    name: str
    key: str
    request: str
    answers: tuple[str, ...] = ("",)
    text: str = "text"
    reason: str = "finish_reason"
    tokens: str = "logprobs"


RESPONSE_FORMATS = (
    ResponseFormat("inspect_ai", "epoch", "", ("output.choices",), "message.content.text|message.content",
                   "stop_reason", "logprobs.content"),
    ResponseFormat("lm-eval", "replies", "", ("replies",)),
    ResponseFormat("openai", "choices", "logprobs=true (chat) or logprobs=1 (text)", ("choices",),
                   "message.content.text|message.content|text", "finish_reason",
                   "logprobs.content|logprobs.token_logprobs"),
    ResponseFormat("vllm", "outputs", "SamplingParams(logprobs=0)", ("outputs",)),
    ResponseFormat("gemini", "candidates|promptFeedback|prompt_feedback", "responseLogprobs=true", ("candidates",),
                   "content.parts.text", "finishReason|finish_reason",
                   "logprobsResult.chosenCandidates|logprobs_result.chosen_candidates"),
    ResponseFormat("responses", "output", 'include=["message.output_text.logprobs"]', text="output.content.text",
                   reason="status", tokens="output.content.logprobs"),
    ResponseFormat("ollama", "done", "logprobs=true", text="message.content|response", reason="done_reason"),
    ResponseFormat("sglang", "meta_info", "return_logprob=true", reason="meta_info.finish_reason.type",
                   tokens="meta_info.output_token_logprobs"),
    ResponseFormat("tgi", "generated_text|details", "details=true", ("", "details.best_of_sequences"), "generated_text",
                   "details.finish_reason|finish_reason", "details.tokens|tokens"),
    ResponseFormat("llama.cpp", "stop_type|completion_probabilities", "n_probs=1", text="content", reason="stop_type",
                   tokens="completion_probabilities"),
    ResponseFormat("cohere", "message", "logprobs", text="message.content.text", tokens="logprobs.logprobs"),
)  # fmt: skip
# What logs call a right answer, and a wrong one; no other is judged.
_VERDICTS = (("C", True), ("I", False), ("N", False), (1, True), (0, False))
_NUMBER = "logprob|logProbability|log_probability|0"


class _Line(Format):
    """A line of lm-evaluation-harness, as far as it is relied upon."""

    doc_id: int | Text
    resps: list[list[Text | list]]


class Completion(NamedTuple):
    """An answer as a server returned it; None is what it does not say."""

    text: Any
    reason: Any  # how it ended
    log_probs: Any  # of its tokens
    log_prob: Any  # of all its tokens together
    correct: bool | None


class Response(NamedTuple):
    """A response: what it says of its question, and its answers; none of one that failed."""

    where: str
    response_format: Any  # a `ResponseFormat`; None of what failed
    served_id: object
    question: dict[str, Any]
    answers: list[Completion]


def record_of(completion: Completion, response_format: ResponseFormat, where: str) -> AnswerRecord | str:
    """Return a record's answer, or words for what is not scored; `RunError` with the place for what is neither."""
    text, reason, tokens, whole, correct = completion
    if text is None and reason is not None:
        return "without text, such as a refusal"
    if not isinstance(reason, str):
        words = "must be text: it says whether the answer is complete, and no chunk of a stream has it"
        raise RunError(f"{where}: finish_reason={reason!r} {words}")
    if whole is None and (tokens is None or (text and not tokens)):
        if response_format.request:
            raise RunError(f"{where}: logprobs are missing; ask for them with {response_format.request}")
        tokens = None
    finished, whole = reason in NATURAL, whole if tokens is None else None
    if finished and tokens == []:
        return "whose probability was not returned"
    end = None if finished or tokens is whole is None else 0.0
    fields = {"text": text, "finished": finished, "end_log_prob": end, "correct": correct}
    record: AnswerRecord = parse(AnswerRecord, fields | {"log_prob": whole, "token_log_probs": tokens}, where)
    is_given = all(value > NOT_GIVEN for value in record.token_log_probs or [])
    return record if is_given else "whose probability was not returned"


def responses(where: str, entry: object) -> Iterator[Response]:
    """Yield the responses of an entry at a place, which may wrap one or a list of them."""
    entry = entry if value_at(entry, "resps") is None else _of_harness(where, entry)
    inner = value_at(entry, "response.body|response")
    is_wrapped = inner is not None and not isinstance(inner, str)
    text = value_at(entry, "question|prompt|input|messages|body.messages")
    if isinstance(text, list):  # a conversation; its last turn asks
        text = value_at(text[-1:], "content.text|content")
        text = text and " ".join(map(str, text))
    question = {"question": text, "references": value_at(entry, "references|target"), "split": value_at(entry, "split")}
    if question["references"] is None and is_wrapped and isinstance(entry, Mapping):
        question["references"] = references_beside(entry)
    has_own_id, question["filter"] = is_wrapped or value_at(entry, "epoch") is not None, value_at(entry, "filter")
    question["question_id"] = value_at(entry, "question_id|custom_id" + "|key|id" * has_own_id)
    for body in (_listed(inner) or [{"error": "nothing"}]) if is_wrapped else [entry]:
        error = value_at(entry, "error") or value_at(body, "error")
        response_format = next(
            (
                response_format
                for response_format in RESPONSE_FORMATS
                if value_at(body, response_format.key) is not None
            ),
            None,
        )
        if response_format is None and not error:
            names = ", ".join(response_format.name for response_format in RESPONSE_FORMATS)
            raise RunError(f"{where}: unrecognized response format; supported are {names}, and records")
        answers = [] if error or response_format is None else _answers(response_format, body)
        served_id = value_at(body, "request_id|id|responseId|response_id|meta_info.id")
        served_id = served_id if isinstance(served_id, (str, int)) else None
        yield Response(where, response_format, served_id, question, answers)


def _answers(response_format: ResponseFormat, body: object) -> list[Completion]:
    """Return the answers of a response."""
    answers = []
    for value in (value for path in response_format.answers for value in _listed(value_at(body, path))):
        text, reason = value_at(value, response_format.text), value_at(value, response_format.reason)
        if isinstance(reason, str):  # in small letters, without the enumeration that it comes from
            reason = reason.rpartition(".")[2].lower().removeprefix("finish_reason_")
            reason = None if reason in ("", "none", "unspecified") else reason
        if isinstance(text, list) and all(isinstance(part, str) for part in text):
            text = "".join(text) if text else None
        tokens = steps = value_at(value, response_format.tokens)
        if isinstance(steps, (list, tuple)):  # else None, or refused
            ids = value_at(value, "token_ids")
            tokens = [step if isinstance(step, (int, float)) else value_at(step, _NUMBER) for step in steps]
            if response_format.name == "vllm" and hasattr(ids, "__len__") and len(ids) == len(steps):
                # Of the tokens that a step lists, the chosen one's counts.
                tokens = [value_at(step, f"{token}.logprob") for step, token in zip(steps, ids, strict=True)]
        verdict = _listed(value_at([value, body], "0.correct|1.scores.*.value"))[:1]
        correct = next((right for word, right in _VERDICTS if [word] == verdict), None)
        answers.append(Completion(text, reason, tokens, value_at(value, "cumulative_logprob"), correct))
    return answers


def _of_harness(where: str, line: object) -> dict:
    """Return a line of lm-evaluation-harness as a response: texts, or choices with their log-probabilities."""
    requests, replied = _listed(value_at(line, "arguments.*|arguments")), parse(_Line, line, where).resps
    if len(replied) != len(requests):
        raise RunError(f"{where}: {len(replied)} resps of {len(requests)} arguments")
    target, verdict, replies = value_at(line, "target"), value_at(line, str(value_at(line, "metrics.0"))), []
    for n, (request, texts) in enumerate(zip(requests, replied, strict=True)):
        for text in texts:
            reply = {"text": text, "finish_reason": "stop", "correct": verdict if len(texts) == 1 else None}
            if isinstance(text, list):  # of a choice: its log-probability as text, and whether it is the greedy one
                choice, value = value_at(request, "arg_1|1"), str(value_at(text, "0"))
                if not isinstance(choice, str):
                    raise RunError(f"{where}: the text of choice {n} is missing")
                number = float(value) if re.fullmatch(r"-?\d+(\.\d+)?(e-\d+)?", value) else value
                reply |= {"text": choice.strip(), "cumulative_logprob": number}
                reply["correct"] = str(target) in (str(n), reply["text"])
            replies.append(reply)
    choices = [reply["text"] for reply in replies if "cumulative_logprob" in reply and reply["correct"]]
    question = {
        "question_id": value_at(line, "doc_id"),
        "references": choices or target,
        "filter": value_at(line, "filter"),
    }
    return question | {"question": value_at(line, "doc.question|arguments.*.0.arg_0|arguments.0.0"), "replies": replies}


def _listed(value: Any) -> list:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def value_at(value: object, paths: str) -> Any:
    """Return what stands at the first of `paths` that leads to something; None where none does."""
    ends = (reduce(_within, path.split(".") if path else [], value) for path in paths.split("|"))
    return next((end for end in ends if end is not None), None)


def _within(value: Any, name: str) -> Any:
    """Return what is called `name`; of a list, what is in each, in one list without what is missing."""
    if name == "*":  # all that an object holds; of a list it would be what its entries hold, mixed up
        return list(value.values()) if isinstance(value, Mapping) else None
    if isinstance(value, Mapping):
        return value.get(name, value.get(int(name)) if name.isdecimal() else None)
    if not isinstance(value, (list, tuple)):
        return None if isinstance(value, str) else getattr(value, name, None)
    if name.isdecimal() and int(name) < len(value):
        return value[int(name)]
    return [end for inner in value for end in _listed(_within(inner, name))] or None
