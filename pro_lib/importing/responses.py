"""Find the responses in an entry of a file, with the question and the answers of each."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pro_lib.common.files import RunError
from pro_lib.common.nested import as_items, as_mapping, first_value
from pro_lib.common.validation import SentenceError
from pro_lib.importing.asked import (
    Conversation,
    conversations_of,
    listed_texts,
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
# The type of a result of Anthropic's batches without a response.
_FAILED_RESULTS = ("errored", "expired", "canceled")
# Fields that only an entry of a file has, not a response.
_ENTRY_NAMES = ("response", "question_id", "custom_id", "question")


class StreamError(RunError):
    """The error for a file with the pieces of a stream, none of which has a whole answer."""


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


class _ParsedBody(NamedTuple):
    """A body of an entry after it was parsed.

    `failure` is the message if it has no answers.
    """

    response_format: ResponseFormat | None
    served_id: str | int | None
    failure: str | None
    answers: list[ParsedAnswer]


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
    """Return the entries in a list.

    A list may contain several entries, the messages of a LangChain conversation, or the responses
    to one question.
    """
    parts = [as_mapping(decoded(value)) for value in values]
    if not all(parts):
        raise _unrecognized(where)
    prompts = [part for part in parts if langchain_message(part) is None]
    answers = [part for part in parts if langchain_message(part) is not None]
    if answers:
        return [{"messages": prompts, "response": answers[-1:] if prompts else answers}]
    if any(name in part for part in parts for name in _ENTRY_NAMES):
        return parts
    return [{"response": parts}]


def _responses_of_entry(where: str, entry: dict) -> Iterator[Response]:
    """Yield the responses of an entry: one for each body, or one for each of several prompts."""
    bodies, is_wrapped = _bodies(entry)
    question_fields = _question_fields(entry, is_wrapped)
    parsed_bodies = [_parsed(where, entry, body) for body in bodies]
    conversations = conversations_of(entry, bodies[0] if bodies else None)
    questions = listed_texts(entry.get("question"))
    if max(len(questions), len(conversations)) > 1:
        prompts = _Prompts(questions, conversations)
        yield from _responses_to_prompts(where, question_fields, parsed_bodies, prompts)
        return
    if question_fields["question"] is None and conversations:
        texts = [answer.text for body in parsed_bodies for answer in body.answers]
        question_fields["conversation"] = without_answer(conversations[0], texts)
    for body in parsed_bodies:
        if body.response_format is not None and body.response_format.name == "lm-eval":
            question_fields |= harness_question(entry, body.answers)
        yield Response(
            where,
            body.response_format,
            body.served_id,
            answers=body.answers,
            failure=body.failure,
            **question_fields,
        )


# --- Several prompts in one request ---


class _Prompts(NamedTuple):
    """The prompts of an entry that has several: their questions, their conversations, or both."""

    questions: list[str]
    conversations: list[Conversation]

    @property
    def number(self) -> int:
        return max(len(self.questions), len(self.conversations))


def _responses_to_prompts(
    where: str,
    question_fields: dict[str, Any],
    parsed_bodies: list[_ParsedBody],
    prompts: _Prompts,
) -> Iterator[Response]:
    """Yield a response for each of several prompts.

    Each prompt has the same number of answers. Those to the first prompt come first, in the order
    of `index` if the answers have it.
    """
    first_body = parsed_bodies[0]
    response_format = first_body.response_format
    if first_body.failure is not None:
        fields = question_fields | {"question": None}
        yield Response(where, response_format, None, failure=first_body.failure, **fields)
        return
    answers = [answer for body in parsed_bodies for answer in body.answers]
    if not answers or len(answers) % prompts.number:
        counts = f"{len(answers)} answers to {prompts.number} prompts"
        raise RunError(f"{where}: {counts}; each prompt needs equally many")
    if len(parsed_bodies) == 1 and all(answer.position is not None for answer in answers):
        answers.sort(key=lambda answer: answer.position or 0)
    n_per_prompt = len(answers) // prompts.number
    for n in range(prompts.number):
        yield Response(
            f"{where}, prompt {n}",
            response_format,
            None,
            answers=answers[n * n_per_prompt : (n + 1) * n_per_prompt],
            part=n,
            **_fields_of_prompt(question_fields, prompts, n),
        )


def _fields_of_prompt(question_fields: dict[str, Any], prompts: _Prompts, n: int) -> dict[str, Any]:
    """Return the fields of a `Response` to prompt `n`.

    A field may list a value for each prompt.
    """
    fields = question_fields | {"question": prompts.questions[n] if prompts.questions else None}
    for name in ("question_id", "references", "split"):
        values = question_fields[name]
        if isinstance(values, list) and len(values) == prompts.number:
            fields[name] = values[n]
    if isinstance(question_fields["question_id"], (str, int)):
        fields["question_id"] = f"{question_fields['question_id']}-{n}"
    if len(prompts.conversations) == prompts.number:
        fields["conversation"] = prompts.conversations[n]
    return fields


# --- The bodies of an entry ---


def _bodies(entry: dict) -> tuple[list[object], bool]:
    """Return the responses in an entry, and whether they are in a field of it.

    The entry may be a response itself. An empty response is replaced by an error.
    """
    if "response" in entry and not _is_ollama_text(entry):
        body = _body_in_response(entry)
        if isinstance(body, str):
            return [entry], False
        return as_items(body), True
    if response_format_of(entry) is not None:
        return [entry], False
    bodies = _last_langchain_message(entry) or _bodies_in_wrapper(entry)
    if bodies:
        return bodies, True
    return [entry], False


def _is_ollama_text(entry: dict) -> bool:
    return isinstance(entry["response"], str) and entry.get("done") is not None


def _body_in_response(entry: dict) -> object:
    """Return the value in the field `response`, or an error if it is empty."""
    body = decoded(entry["response"])
    status = as_mapping(body).get("status_code")
    if isinstance(body, dict) and "body" in body:  # a line of OpenAI's batches
        body = decoded(body["body"])
        is_error = isinstance(status, int) and status >= 400
        if is_error and not isinstance(body, dict):
            body = None
    if body in ("", {}, [], None):
        return _failure_of(entry, status)
    return body


def _failure_of(entry: dict, status: object) -> dict:
    """Return an error that says why an entry has an empty response."""
    state = entry.get("status")  # of Vertex
    if isinstance(state, str) and state:
        return {"error": state[:100]}
    if status is None:
        return {"error": "the response is empty"}
    return {"error": f"an empty response with status {status}"}


def _last_langchain_message(entry: dict) -> list[object]:
    """Return the last answer in a conversation of LangGraph as a list, empty without one."""
    messages = as_items(entry.get("messages"))
    answers = [message for message in messages if langchain_message(message) is not None]
    return answers[-1:]


def _bodies_in_wrapper(entry: dict) -> list[object]:
    """Return the responses in the first field that contains any, or the error of a failed one."""
    for name in _WRAPPERS:
        value = decoded(entry.get(name))
        is_result = name == "result"  # of Anthropic's batches
        if is_result and isinstance(as_mapping(value).get("message"), dict):
            value = as_mapping(value)["message"]
        bodies = as_items(value)
        if bodies and all(_has_known_format(body) for body in bodies):
            return bodies
        fields = as_mapping(value)
        if is_result and fields.get("type") in _FAILED_RESULTS:
            return [{"error": failure(fields) or fields["type"]}]
    return []


def _has_known_format(body: object) -> bool:
    return isinstance(body, dict) and response_format_of(body) is not None


def _parsed(where: str, entry: dict, body: object) -> _ParsedBody:
    """Return the answers in a body, or raise `RunError` if its format is unknown."""
    fields = as_mapping(decoded(body))
    if is_stream_piece(fields):
        words = "a piece of a stream, which holds a part of an answer"
        remedy = "save the whole response that the client joins"
        raise StreamError(f"{where}: this is {words}; {remedy}")
    served_id = _served_id(fields)
    message = failure(entry)
    if message is None:
        message = failure(fields)
    response_format = response_format_of(fields)
    if message is not None:
        return _ParsedBody(response_format, served_id, message, [])
    if response_format is None:
        raise _unrecognized(where)
    try:
        answers = response_format.parse(fields)
    except SentenceError as error:
        raise RunError(f"{where}: {error}") from None
    no_answer = None if answers else "it holds no answers"
    return _ParsedBody(response_format, served_id, no_answer, answers)


def _served_id(fields: dict) -> str | int | None:
    """Return the id that the server gave a response."""
    served_id = first_value(fields, _SERVED_IDS)
    if served_id is None:
        served_id = as_mapping(fields.get("meta_info")).get("id")
    return served_id if isinstance(served_id, (str, int)) else None


# --- The question of an entry ---


def _question_fields(entry: dict, is_wrapped: bool) -> dict[str, Any]:
    """Return the fields of a `Response` that say which question an entry is about."""
    names = ["question_id", "custom_id", "recordId"]
    if is_wrapped or entry.get("epoch") is not None:
        names += ["key", "id"]
    question = entry.get("question")
    return {
        "question_id": first_value(entry, names),
        "question": None if isinstance(question, list) else question,
        "references": _references(entry, is_wrapped),
        "split": entry.get("split"),
        "filter": entry.get("filter"),
    }


def _references(entry: dict, is_wrapped: bool) -> Any:
    """Return the right answers that an entry has, perhaps as the row of a dataset.

    A text at `answer` may be the model's own answer, copied from the response. Therefore it is used
    only if it is a rationale as in GSM8K, or if the entry also has aliases.
    """
    references = first_value(entry, ("references", "target"))
    if references is not None:
        return references
    answer = entry.get("answer")
    is_plain_text = isinstance(answer, str) and "####" not in answer
    may_be_response = is_plain_text and not entry.get("aliases")
    return None if not is_wrapped or may_be_response else references_beside(entry)
