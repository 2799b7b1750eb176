"""Where servers keep an answer's text, its ending and its log-probabilities, layout by layout; knows no file."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pro_lib.checks import Format, Text, fitted, rule
from pro_lib.files import RunError

# What servers write for a log-probability that they do not give; vLLM also for -inf and for places not filled.
NOT_GIVEN = -9999.0
# How servers call an ending that the model chose, and one that it did not; in small letters.
NATURAL = {"complete", "completed", "end_turn", "eos", "eos_token", "stop", "stop_sequence", "stop_token", "word"}
CUT = {
    "abort", "aborted", "blocklist", "cancelled", "content_filter", "error", "error_limit", "error_toxic",
    "function_call", "incomplete", "length", "limit", "max_length", "max_output_tokens", "max_tokens", "model_length",
    "other", "prohibited_content", "recitation", "safety", "spii", "tool_call", "tool_calls", "tool_use",
}  # fmt: skip
# Of the events of a streamed response those that bring it whole.
_WHOLE = ("response.completed", "response.incomplete", "response.failed")


class Layout(NamedTuple):
    """A layout by its paths: `a.b` is b within a, `*` goes through a list, `|` stands before another path to try.

    A response has something at `key`. `answers` are the paths to its answers, "" the response itself; `text`, `reason`
    and `tokens` are paths from an answer. `request` asks the server for log-probabilities.
    """

    name: str
    key: str
    answers: tuple[str, ...]
    text: str
    reason: str
    tokens: str
    request: str


LAYOUTS = (
    Layout(
        "openai", "choices", ("choices",), "message.content|text|delta.content", "finish_reason",
        "logprobs.content|logprobs.token_logprobs", "logprobs=true (chat) or logprobs=1 (text)",
    ),
    Layout("vllm", "outputs", ("outputs",), "text", "finish_reason", "logprobs", "SamplingParams(logprobs=0)"),
    Layout(
        "gemini", "candidates", ("candidates",), "content.parts.*.text", "finishReason|finish_reason",
        "logprobsResult.chosenCandidates|logprobs_result.chosen_candidates", "responseLogprobs=true",
    ),
    Layout(
        "responses", "output", ("",), "output.*.content.*.text", "status",
        "output.*.content.*.logprobs.*", 'include=["message.output_text.logprobs"]',
    ),
    Layout("ollama", "done", ("",), "message.content|response", "done_reason", "logprobs", "logprobs=true"),
    Layout(
        "sglang", "meta_info", ("",), "text", "meta_info.finish_reason.type",
        "meta_info.output_token_logprobs", "return_logprob=true",
    ),
    Layout(
        "tgi", "generated_text|details|token", ("", "details.best_of_sequences"), "generated_text",
        "details.finish_reason|finish_reason", "details.tokens|tokens|token", "details=true",
    ),
    Layout(
        "llama.cpp", "stop_type|completion_probabilities", ("",), "content", "stop_type",
        "completion_probabilities", "n_probs=1",
    ),
    Layout("cohere", "message", ("",), "message.content.*.text", "finish_reason", "logprobs.*.logprobs.*", "logprobs"),
)  # fmt: skip
_NUMBER = "logprob|logProbability|log_probability|0"
_Finite = rule((int, float), lambda value: abs(value) < float("inf"), "must be a finite number")


class _Answer(Format):
    text: Text
    finish_reason: rule(str, lambda value: True, "must be text: it says whether the answer is complete")
    cumulative_logprob: _Finite | None
    logprobs: list[_Finite] | None


@dataclass
class Piece:
    """An answer as a server gives it, or as much of it as a stream has brought."""

    request: str
    text: object = None
    finish_reason: object = None
    logprobs: list | None = None
    cumulative_logprob: object = None

    def extend(self, more: "Piece") -> None:
        """Add what a stream brings next."""
        self.text = more.text if self.text is None else f"{self.text}{more.text or ''}"
        self.logprobs = self.logprobs if more.logprobs is None else [*(self.logprobs or []), *more.logprobs]
        self.finish_reason = more.finish_reason if self.finish_reason is None else self.finish_reason

    def record(self, where: str) -> dict | str:
        """Return a record's answer, or words for what is not scored; `RunError` with the place for what is neither."""
        if self.text is None and self.finish_reason is not None:
            return "without text, such as a refusal"
        if self.cumulative_logprob is None and (self.logprobs is None or (self.text and not self.logprobs)):
            raise RunError(f"{where}: logprobs are missing; ask for them with {self.request}")
        answer = fitted(_Answer, self, where, RunError)
        finished, log_probs = ending(answer.finish_reason) in NATURAL, answer.logprobs
        record = {"text": answer.text, "finished": finished, "end_log_prob": None if finished else 0.0}
        if log_probs is None:
            return record | {"log_prob": answer.cumulative_logprob}
        if any(value <= NOT_GIVEN for value in log_probs) or (finished and not log_probs):
            return "whose probability was not returned"
        return record | {"token_log_probs": log_probs}


@dataclass
class Response:
    """A response: what it says of its question, and its answers by their number, or the `error` in their place."""

    where: str
    layout: str
    served_id: object
    question: dict[str, object]
    answers: dict[object, Piece]
    error: object
    goes_on: bool

    def awaits(self, number: object) -> bool:
        """Return whether an answer has not ended, or not begun."""
        return number not in self.answers or self.answers[number].finish_reason is None


def responses(entries: Iterable[tuple[str, object]]) -> list[Response]:
    """Return the responses of entries given with their places, a stream as one; `RunError` names the place."""
    read, streams = [], {}
    for response in (response for where, entry in entries for response in _of_entry(where, entry)):
        begun = streams.pop(response.served_id, None)
        if begun is not None and not response.error and all(begun.awaits(number) for number in response.answers):
            for number, piece in response.answers.items():
                begun.answers.setdefault(number, Piece(piece.request)).extend(piece)
        else:
            read.append(response)
            begun = response
        if response.goes_on:
            streams[response.served_id] = begun
    return read


def _of_entry(where: str, entry: object) -> Iterator[Response]:
    """Yield the responses of an entry, which may wrap one or a list of them."""
    if not (isinstance(entry, Mapping) or hasattr(entry, "__dict__")):
        raise RunError(f"{where}: {entry!r} should be a valid dictionary")
    event = at(entry, "type")
    if isinstance(event, str) and event.startswith("response.") and event not in _WHOLE:
        return
    inner = at(entry, "response.body|response")
    is_wrapped = "response" in entry and not isinstance(inner, str) if isinstance(entry, Mapping) else False
    question = {name: at(entry, name) for name in ("references", "split")} | {"question": _question(entry)}
    question["question_id"] = at(entry, "question_id|custom_id|key|id" if is_wrapped else "question_id|custom_id")
    for body in (inner or [None]) if isinstance(inner, list) else [inner if is_wrapped else entry]:
        error = at(entry, "error") or at(body, "error") or (None if body or not is_wrapped else "nothing")
        layout = next((layout for layout in LAYOUTS if at(body, layout.key) is not None), None)
        if layout is None and not error:
            names = ", ".join(layout.name for layout in LAYOUTS)
            raise RunError(f"{where}: no response of a known layout ({names}), nor a record with answers")
        answers = {} if error else _answers(layout, body)
        served_id = at(body, "request_id|id|responseId|response_id|meta_info.id")
        served_id = served_id if isinstance(served_id, (str, int)) else None
        is_piece = False in (at(body, "done"), at(body, "stop")) or bool(at(body, "token") and not answers[0].text)
        goes_on = is_piece or served_id is not None
        yield Response(where, layout.name if layout else "", served_id, question, answers, error, goes_on)


def _answers(layout: Layout, body: object) -> dict[object, Piece]:
    answers: dict[object, Piece] = {}
    for value in (value for path in layout.answers for value in _listed(at(body, path))):
        text, reason = at(value, layout.text), at(value, layout.reason)
        if isinstance(text, list) and all(isinstance(part, str) for part in text):
            text = "".join(text) if text else None
        number = at(value, "index") if layout.name == "openai" else None
        reason = None if reason == "none" else reason
        piece = Piece(layout.request, text, reason, _log_probs(layout, value), at(value, "cumulative_logprob"))
        answers[len(answers) if type(number) is not int or number in answers else number] = piece
    return answers


def _log_probs(layout: Layout, answer: object) -> list | None:
    """Return the log-probability of each token; a step of vLLM lists several, of which the chosen one's is taken."""
    tokens, ids = at(answer, layout.tokens), at(answer, "token_ids")
    if tokens is None:
        return None
    if layout.name == "vllm" and hasattr(ids, "__len__") and len(ids) == len(_listed(tokens)):
        return [at(step, f"{token}.logprob") for step, token in zip(tokens, ids, strict=True)]
    return [token if isinstance(token, (int, float)) else at(token, _NUMBER) for token in _listed(tokens)]


def _question(entry: object) -> object:
    """Return the question's text, that of a conversation's last turn, or None."""
    value = at(entry, "question|prompt|messages|body.messages")
    return at(value[-1], "content") if isinstance(value, list) and value else value


def _listed(value: Any) -> list:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def ending(reason: str) -> str:
    """Return a server's word for an ending in small letters, without the enumeration that it comes from."""
    return reason.rpartition(".")[2].lower().removeprefix("finish_reason_")


def at(value: object, paths: str) -> Any:
    """Return what stands at the first of `paths` that leads to something; None where none does."""
    reached = (_follow(value, path.split(".") if path else []) for path in paths.split("|"))
    return next((end for end in reached if end is not None), None)


def _follow(value: object, path: list[str]) -> Any:
    """Return what stands at a path; through a `*`, what stands in each, in one list without what is missing."""
    for n, name in enumerate(path):
        if name == "*":
            if n + 1 == len(path):
                return _listed(value)
            return [end for inner in _listed(value) for end in _listed(_follow(inner, path[n + 1 :]))]
        if isinstance(value, Mapping):
            value = value.get(name, value.get(int(name)) if name.isdecimal() else None)
        elif isinstance(value, (list, tuple)):
            value = value[int(name)] if name.isdecimal() and int(name) < len(value) else None
        else:
            value = None if isinstance(value, str) else getattr(value, name, None)
    return value
