"""Find the responses in an entry of a file, with the question and the answers of each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from pro_lib.common.files import RunError
from pro_lib.common.nested import as_items, as_mapping
from pro_lib.common.validation import SentenceError
from pro_lib.importing.asked import (
    Conversation,
    conversations_of,
    listed_texts,
    prompt_of,
    without_answer,
)
from pro_lib.importing.formats import ParsedAnswer, ResponseFormat
from pro_lib.importing.formats.libraries import harness_question, langchain_message
from pro_lib.importing.response_formats import (
    RESPONSE_FORMATS,
    failure,
    is_stream_piece,
    response_format_of,
)
from pro_lib.questions.json_values import decoded
from pro_lib.questions.question_files import references_beside

# Fields of an entry that may hold a response, besides `response`.
_WRAPPERS = (
    "result",
    "modelOutput",
    "output",
    "completion",
    "raw_response",
    "api_response",
    "generation",
    "message",
)
_SERVED_IDS = ("request_id", "id", "responseId", "response_id")
_MOST_DEPTH = 60


class StreamError(RunError):
    """A file holds the pieces of a stream, none of which has a whole answer."""


@dataclass(frozen=True)
class Response:
    """A response, with its question and its answers. A response that failed has no answers.

    Attributes:
        where: its place, for messages.
        response_format: its format; None if it failed.
        served_id: the id that the server gave it.
        question_id: the id that the entry gives the question.
        question: the text of the question, if the entry has it beside the request.
        conversation: all turns of the request, if they are known.
        references, split, filter: the fields of the entry with these names.
        answers: its answers.
        failure: the message of the failure; None if it did not fail.
        part: which of several prompts of the entry it answers; None if there is one.
    """

    where: str
    response_format: ResponseFormat | None
    served_id: Any
    question_id: Any = None
    question: Any = None
    conversation: Conversation | None = None
    references: Any = None
    split: Any = None
    filter: Any = None
    answers: list[ParsedAnswer] = field(default_factory=list)
    failure: str | None = None
    part: int | None = None


def responses_in(where: str, entry: object) -> Iterator[Response]:
    """Yield the responses of an entry, which may contain one response or a list of them.

    Raises:
        StreamError: the entry is a piece of a stream.
        RunError: the entry has no known response format.
    """
    value = decoded(entry)
    if isinstance(value, list):
        for part in _entries_of_list(where, value):
            yield from _responses_of_entry(where, part)
    elif isinstance(value, dict):
        yield from _responses_of_entry(where, value)
    else:
        raise _unrecognized(where)


def _unrecognized(where: str) -> RunError:
    names = ", ".join(response_format.name for response_format in RESPONSE_FORMATS)
    return RunError(f"{where}: unrecognized response format; supported are {names}, and records")


def _entries_of_list(where: str, values: list) -> list[dict]:
    """Return the entries in a list: several entries, a conversation of LangChain, or the answers to one question."""
    parts = [as_mapping(decoded(value)) for value in values]
    if not all(parts):
        raise _unrecognized(where)
    if any(langchain_message(part) is not None for part in parts):
        messages = [part for part in parts if langchain_message(part) is None]
        said = [part for part in parts if langchain_message(part) is not None]
        return [{"messages": messages, "response": said[-1:] if messages else said}]
    if any(
        "response" in part or "question_id" in part or "custom_id" in part or "question" in part
        for part in parts
    ):
        return parts
    return [{"response": parts}]


def _responses_of_entry(where: str, entry: dict) -> Iterator[Response]:
    bodies, is_wrapped = _bodies(entry)
    about = _about(entry, is_wrapped)
    parsed = [_parsed(where, entry, body) for body in bodies]
    answers = [answer for *_, found in parsed for answer in found]
    conversations = conversations_of(entry, bodies[0] if bodies else None)
    questions = listed_texts(entry.get("question"))
    n_prompts = max(len(questions), len(conversations))
    if n_prompts > 1:
        yield from _of_several_prompts(where, about, parsed, answers, conversations, questions)
        return
    if about["question"] is None and conversations:
        about["conversation"] = without_answer(
            conversations[0], (answer.text for answer in answers)
        )
    for response_format, served_id, failed, found in parsed:
        if response_format is not None and response_format.name == "lm-eval":
            about |= harness_question(entry, found)
        yield Response(where, response_format, served_id, answers=found, failure=failed, **about)


def _of_several_prompts(
    where: str,
    about: dict,
    parsed: list,
    answers: list[ParsedAnswer],
    conversations: list,
    questions: list[str],
) -> Iterator[Response]:
    """Yield a response for each of several prompts; the answers to each stand together, in the order of `index`."""
    n_prompts = max(len(questions), len(conversations))
    response_format, _, failed, _ = parsed[0]
    if failed is not None:
        yield Response(where, response_format, None, failure=failed, **about | {"question": None})
        return
    if prompt_of(0, len(answers), n_prompts) is None or not answers:
        raise RunError(
            f"{where}: {len(answers)} answers to {n_prompts} prompts; each prompt needs equally many"
        )
    if len(parsed) == 1 and all(answer.index is not None for answer in answers):
        answers = sorted(answers, key=lambda answer: answer.index or 0)
    for part in range(n_prompts):
        own = [
            answer
            for n, answer in enumerate(answers)
            if prompt_of(n, len(answers), n_prompts) == part
        ]
        fields = about | {"question": questions[part] if questions else None}
        for name in ("question_id", "references", "split"):
            if isinstance(about[name], list) and len(about[name]) == n_prompts:
                fields[name] = about[name][part]
        if isinstance(about["question_id"], (str, int)):
            fields["question_id"] = f"{about['question_id']}-{part}"
        if conversations and len(conversations) == n_prompts:
            fields["conversation"] = conversations[part]
        yield Response(
            f"{where}, prompt {part}", response_format, None, answers=own, part=part, **fields
        )


def _bodies(entry: dict) -> tuple[list[object], bool]:
    """Return the bodies of an entry, and whether it wraps them; an empty one is replaced by an error."""
    if "response" in entry and not _is_ollama_text(entry):
        inner = decoded(entry["response"])
        status = as_mapping(inner).get("status_code")
        if "body" in as_mapping(inner):  # a line of OpenAI's batches
            inner = decoded(as_mapping(inner)["body"])
            if isinstance(status, int) and status >= 400 and not isinstance(inner, dict):
                inner = None
        if isinstance(inner, str) and inner:
            return [entry], False
        return as_items(
            inner if inner not in ("", {}, [], None) else _failure_of(entry, status)
        ), True
    if response_format_of(entry) is None:
        said = [
            message
            for message in as_items(entry.get("messages"))
            if langchain_message(message) is not None
        ]
        if said:  # a conversation of LangGraph, whose last answer counts
            return said[-1:], True
        for name in _WRAPPERS:
            inner = decoded(entry.get(name))
            if name == "result" and isinstance(
                as_mapping(inner).get("message"), dict
            ):  # Anthropic's batches
                inner = as_mapping(inner)["message"]
            items = as_items(inner)
            if items and all(
                isinstance(body, dict) and response_format_of(body) is not None for body in items
            ):
                return items, True
            if name == "result" and as_mapping(inner).get("type") in (
                "errored",
                "expired",
                "canceled",
            ):
                return [{"error": failure(as_mapping(inner)) or as_mapping(inner)["type"]}], True
    return [entry], False


def _is_ollama_text(entry: dict) -> bool:
    return isinstance(entry["response"], str) and entry.get("done") is not None


def _failure_of(entry: dict, status: object) -> dict:
    """Return an error that says why an entry has an empty response."""
    words = entry.get("status")  # of Vertex
    if isinstance(words, str) and words:
        return {"error": words[:100]}
    return {
        "error": "the response is empty"
        if status is None
        else f"an empty response with status {status}"
    }


def _parsed(
    where: str, entry: dict, body: object
) -> tuple[ResponseFormat | None, Any, str | None, list[ParsedAnswer]]:
    """Return a body's format, the server's id, the message of a failure, and the answers."""
    fields = as_mapping(decoded(body))
    if is_stream_piece(fields):
        words = "a piece of a stream, which holds a part of an answer; save the whole response that the client joins"
        raise StreamError(f"{where}: this is {words}")
    served_id = next((fields[name] for name in _SERVED_IDS if fields.get(name) is not None), None)
    if served_id is None:
        served_id = as_mapping(fields.get("meta_info")).get("id")
    served_id = served_id if isinstance(served_id, (str, int)) else None
    failed = failure(entry)
    failed = failure(fields) if failed is None else failed
    response_format = response_format_of(fields)
    if failed is not None:
        return response_format, served_id, failed, []
    if response_format is None:
        raise _unrecognized(where)
    try:
        answers = response_format.parse(fields)
    except SentenceError as error:
        raise RunError(f"{where}: {error}") from None
    no_answer = None if answers else "it holds no answers"
    return response_format, served_id, no_answer, answers


def _about(entry: dict, is_wrapped: bool) -> dict[str, Any]:
    """Return the fields of a `Response` that an entry has about its question."""
    names = ["question_id", "custom_id", "recordId"]
    if is_wrapped or entry.get("epoch") is not None:
        names += ["key", "id"]
    question = entry.get("question")
    return {
        "question_id": next((entry[name] for name in names if entry.get(name) is not None), None),
        "question": None if isinstance(question, list) else question,
        "references": _references(entry, is_wrapped),
        "split": entry.get("split"),
        "filter": entry.get("filter"),
    }


def _references(entry: dict, is_wrapped: bool) -> Any:
    """Return the references of an entry, or the right answers of a dataset's row to which a response was added.

    A text at `answer` may be the model's own, taken from the response, so it is used only if it is a rationale
    as in GSM8K or has aliases beside it.
    """
    for name in ("references", "target"):
        if entry.get(name) is not None:
            return entry[name]
    answer = entry.get("answer")
    may_be_the_models = (
        isinstance(answer, str) and "####" not in answer and not entry.get("aliases")
    )
    return None if not is_wrapped or may_be_the_models else references_beside(entry)


def plain(value: Any, depth: int = 0) -> Any:
    """Return a client's objects as dictionaries and lists, as their JSON would be, also inside containers."""
    if value is None or isinstance(value, (str, int, float)) or depth > _MOST_DEPTH:
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict(), depth + 1)
    if isinstance(value, (list, tuple)):
        return [plain(inner, depth + 1) for inner in value]
    for name in ("model_dump", "to_dict", "tolist"):
        if callable(getattr(value, name, None)):
            return plain(getattr(value, name)(), depth + 1)
    if is_dataclass(value) or hasattr(value, "__dict__"):
        return {name: plain(inner, depth + 1) for name, inner in vars(value).items()}
    return value
