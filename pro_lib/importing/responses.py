"""Find the responses in an entry of a file, with the question and the answers of each."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from pro_lib.common import reasons
from pro_lib.common.files import RunError
from pro_lib.common.nested import as_items, as_mapping, first_value, value_at
from pro_lib.common.validation import Format, SentenceError, Text, sentence
from pro_lib.importing.conversations import (
    Conversation,
    conversations_of,
    without_answer,
)
from pro_lib.importing.parsed_answers import ParsedAnswer, Problem
from pro_lib.importing.response_answers import answers_of
from pro_lib.importing.response_formats import (
    MODELS,
    RESPONSE_FORMATS,
    SERVED_IDS,
    ResponseFormat,
    is_stream_piece,
    langchain_message,
    response_format_of,
)
from pro_lib.questions.csv_files import BadRow
from pro_lib.questions.file_readers import Identity, TextList, decoded
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
# The type of a result of Anthropic's batches without a response.
_FAILED_RESULTS = ("errored", "expired", "canceled")
# Fields that only an entry of a file has, not a response.
_ENTRY_NAMES = ("response", "question_id", "custom_id", "question")
# Fields of a response that says no more than that it failed.
_MESSAGE_NAMES = {"detail", "message", "status", "request_id", "status_code", "code"}
# Formats without responses, by a field that only they have, and what to do with them.
FOREIGN = {
    "model_response": "details of lighteval, which is not read; write records of its answers",
    "attributes.llm.output_messages": "spans of Phoenix as a table; export them as JSON responses",
    "run_type": "a run of LangSmith without generations; export its LLM runs with their outputs",
}


@dataclass(slots=True)
class Response:
    """A response, from the line of a file to the run.

    Attributes:
        where: its place, for messages.
        response_format: its format; None if it failed.
        question_id: the id that the entry gives the question.
        call_id: an id of the entry that may be that of the call or that of the question.
        served_id: the id that the server gave it.
        question: the text of the question, if the entry has it beside the request.
        conversation: all turns of the request, if they are known.
        references, split, relation, scores: the fields of the entry with these names.
        model, dataset: the model that answered, and the questions that a record names.
        filter: the filter of lm-evaluation-harness.
        log_metrics: the values of the metrics or scorers of a log by name.
        answers: its answers, until they are in the run.
        problem: why it is not used; None if it is used.
        part: which of several prompts of the entry it answers; None if there is one.
    """

    where: str
    response_format: ResponseFormat | None = None
    question_id: Any = None
    call_id: Any = None
    served_id: Any = None
    question: Any = None
    conversation: Conversation | None = None
    references: Any = None
    split: Any = None
    relation: Any = None
    scores: Any = None
    model: Any = None
    dataset: Any = None
    filter: Any = None
    log_metrics: dict[str, Any] | None = None
    answers: Sequence[ParsedAnswer] = ()
    problem: Problem | None = None
    part: int | None = None

    @property
    def is_record(self) -> bool:
        """Whether it is of a format of this project."""
        return self.response_format is not None and self.response_format.is_record

    def is_of(self, name: str) -> bool:
        """Return whether it has the format of this name."""
        return self.response_format is not None and self.response_format.name == name

    @property
    def number(self) -> int:
        """The number of its line or entry."""
        numbers = re.findall(r"\d+", self.where.partition(", prompt ")[0])
        return int(numbers[-1]) if numbers else 0

    @property
    def prompt(self) -> str | None:
        """The text of the prompt, or of the question in it, if it is known."""
        if self.conversation is not None and len(self.conversation) == 1:
            return self.conversation[0].text or None
        return self.question if isinstance(self.question, str) else None

    def place_of(self, position: int) -> str:
        """Return the place of one of its answers, for messages."""
        name = f"answers[{position}]" if self.is_record else f"choice {position}"
        return f"{self.where}, {name}"

    @property
    def score_columns(self) -> dict[str, float]:
        """The scores that a record contains, by their columns in a run."""
        return {f"score_{method}": score for method, score in (self.scores or {}).items()}

    @property
    def content_key(self) -> int | None:
        """A hash of its id, question, texts and numbers, or None if it cannot be a copy."""
        if self.served_id is None or self.problem is not None or self.log_metrics:
            return None
        question = (self.question_id, self.question, self.conversation)
        try:
            contents = tuple(
                (
                    answer.position,
                    answer.finish_reason,
                    answer.text,
                    tuple(answer.token_log_probs or ()),
                )
                for answer in self.answers
            )
            return hash((self.served_id, question, contents))
        except TypeError:  # a value of another kind, which the check refuses
            return None

    def reject(self, problem: Problem) -> None:
        """Set why the response is not used, unless it has a problem already."""
        if self.problem is None:
            self.problem = problem

    def share_values(self, previous: "Response") -> None:
        """Use the values of the previous response where they are equal, which saves memory."""
        for name in ("question_id", "question", "references", "model"):
            value = getattr(previous, name)
            if value == getattr(self, name):
                setattr(self, name, value)


class _CheckedFields(Format):
    """The fields of a response that a run has."""

    question_id: Identity | None
    question: Text | None
    references: TextList | None
    split: Text | None
    relation: Text | None
    scores: dict[Text, float] | None


def responses_in(where: str, entry: object) -> list[Response]:
    """Return the responses of an entry, which may contain one response or a list of them.

    An entry that cannot be used is a response with a problem.
    """
    if isinstance(entry, BadRow):
        return [Response(where, problem=_unreadable(entry.reason))]
    value = decoded(entry)
    try:
        if not isinstance(value, (list, dict)):
            raise _unrecognized({})
        entries = _entries_of_list(value) if isinstance(value, list) else [value]
        return [response for part in entries for response in _responses_of_entry(where, part)]
    except (SentenceError, TypeError) as error:
        return [Response(where, problem=_unreadable(str(error)))]


STREAM_PIECE = Problem(
    reasons.UNREADABLE,
    "this is a piece of a stream, which holds a part of an answer",
    "save the whole response that the client joins",
    words="that are pieces of a stream",
)


def _unreadable(words: str) -> Problem:
    return Problem(reasons.UNREADABLE, words, is_detail=True)


def _unrecognized(entry: dict) -> RunError:
    for name, words in FOREIGN.items():
        if name in entry:
            return RunError(f"this is {words}")
    names = ", ".join(each.name for each in RESPONSE_FORMATS if not each.is_record)
    return RunError(f"unrecognized response format; supported are {names}, and records")


def _entries_of_list(values: list) -> list[dict]:
    """Return the entries in a list.

    A list may contain several entries, the messages of a LangChain conversation, or the responses
    to one question.
    """
    parts = [as_mapping(decoded(value)) for value in values]
    if not all(parts):
        raise _unrecognized({})
    prompts = [part for part in parts if langchain_message(part) is None]
    answers = [part for part in parts if langchain_message(part) is not None]
    if answers:
        return [{"messages": prompts, "response": answers[-1:] if prompts else answers}]
    if any(name in part for part in parts for name in _ENTRY_NAMES):
        return parts
    return [{"response": parts}]


def _responses_of_entry(where: str, entry: dict) -> list[Response]:
    """Return the responses of an entry: one for each body, or one for each of several prompts."""
    bodies, is_wrapped = _bodies(entry)
    responses = [
        _with_answers(_empty_response(where, entry, is_wrapped), body, entry) for body in bodies
    ]
    prompts: list = _listed_questions(entry)
    if responses[0].question is None and not prompts:
        prompts = conversations_of(entry, bodies[0])
    if len(prompts) > 1:
        return _responses_to_prompts(responses, prompts)
    if prompts:
        for response in responses:
            _set_prompt(response, prompts[0])
    return list(map(_with_checked_fields, responses))


def _set_prompt(response: Response, prompt: str | Conversation) -> None:
    """Set the text of the question or the conversation that a response answers."""
    if isinstance(prompt, str):
        response.question = prompt
    else:
        texts = [answer.text for answer in response.answers]
        response.conversation = without_answer(prompt, texts)


def _listed_questions(entry: dict) -> list:
    """Return the texts in a list of questions, or an empty list for any other question."""
    question = entry.get("question")
    texts = question if isinstance(question, list) else []
    return texts if all(isinstance(text, str) for text in texts) else []


def _with_checked_fields(response: Response) -> Response:
    """Return a response with checked fields, or only with the problem of a wrong one."""
    try:
        values = _CheckedFields.model_validate(response)
    except ValidationError as error:
        name = response.question_id
        own_id = str(name) if isinstance(name, (str, int)) else None
        return Response(response.where, question_id=own_id, problem=_unreadable(sentence(error)))
    for name, value in vars(values).items():
        setattr(response, name, value)
    return response


def _responses_to_prompts(responses: list[Response], prompts: list) -> list[Response]:
    """Return a response for each of several prompts of one request.

    Each prompt has the same number of answers. Those to the first prompt come first, in the order
    of `index` if the answers have it. A field may list a value for each prompt.
    """
    first = responses[0]
    if first.problem is not None:
        return [_with_checked_fields(first)]
    answers = [answer for response in responses for answer in response.answers]
    if not answers or len(answers) % len(prompts):
        raise RunError(
            f"{len(answers)} answers to {len(prompts)} prompts; each prompt needs equally many"
        )
    if len(responses) == 1 and all(answer.position is not None for answer in answers):
        answers.sort(key=lambda answer: answer.position or 0)
    size = len(answers) // len(prompts)
    parts = []
    for n, prompt in enumerate(prompts):
        part = replace(first, where=f"{first.where}, prompt {n}", served_id=None, part=n)
        part.answers = answers[n * size : (n + 1) * size]
        _set_prompt(part, prompt)
        for name in ("question_id", "references", "split"):
            values = getattr(first, name)
            if isinstance(values, list) and len(values) == len(prompts):
                setattr(part, name, values[n])
        if isinstance(first.question_id, (str, int)):
            part.question_id = f"{first.question_id}-{n}"
        parts.append(_with_checked_fields(part))
    return parts


# --- The bodies of an entry ---


def _bodies(entry: dict) -> tuple[list[object], bool]:
    """Return the responses in an entry, and whether they are in a field of it.

    The entry may be a response itself. An empty response is replaced by an error.
    """
    if "response" in entry and entry.get("done") is None:
        body = _body_in_response(entry)
        if not isinstance(body, str):
            return as_items(body), True
    elif response_format_of(entry) is None:
        messages = as_items(entry.get("messages"))
        answers = [message for message in messages if langchain_message(message) is not None]
        bodies = answers[-1:] or _bodies_in_wrapper(entry)  # the last answer of LangGraph
        if bodies:
            return bodies, True
    return [entry], False


def _body_in_response(entry: dict) -> object:
    """Return the value in the field `response`, or an error if it is empty."""
    body = decoded(entry["response"])
    status = as_mapping(body).get("status_code")
    is_failed = isinstance(status, int) and status >= 400
    if isinstance(body, dict) and "body" in body:  # a line of OpenAI's batches
        body = decoded(body["body"])
        if is_failed and not isinstance(body, dict):
            body = None
    if body not in ("", {}, [], None):
        return body
    words = "the response is empty" if status is None else f"an empty response with status {status}"
    state = entry.get("status")  # of Vertex
    return {"error": state[:100] if isinstance(state, str) and state else words}


def _bodies_in_wrapper(entry: dict) -> list[object]:
    """Return the responses in the first field that contains any, or the error of a failed one."""
    for name in _WRAPPERS:
        value = decoded(entry.get(name))
        fields = as_mapping(value)
        is_result = name == "result"  # of Anthropic's batches
        if is_result and isinstance(fields.get("message"), dict):
            value = fields["message"]
        bodies = as_items(value)
        if bodies and all(isinstance(body, dict) and response_format_of(body) for body in bodies):
            return bodies
        if is_result and fields.get("type") in _FAILED_RESULTS:
            return [{"error": _failure(fields) or fields["type"]}]
    return []


def _with_answers(response: Response, body: object, entry: dict) -> Response:
    """Set the answers of the response in a body, or the reason why it has none."""
    fields = as_mapping(decoded(body))
    if is_stream_piece(fields):
        response.reject(STREAM_PIECE)
        return response
    served_id = value_at(fields, SERVED_IDS)
    response.served_id = served_id if isinstance(served_id, (str, int)) else None
    response.model = value_at(fields, MODELS)
    response_format = response_format_of(fields)
    response.response_format = response_format
    message = _failure(entry)
    message = _failure(fields) if message is None else message
    if message is None:
        if response_format is None:
            raise _unrecognized(fields)
        response.answers = list(answers_of(fields, response_format))
        is_empty = not response.answers and not response_format.is_record
        message = "it holds no answers" if is_empty else None
    if message is not None:
        words = "the response failed" + (f" ({message})" if message else "")
        response.reject(Problem(reasons.FAILED, words))
    if response_format is not None and response_format.log is not None:
        log = response_format.log(fields)
        if response.question is not None:
            log["question"] = response.question  # that of the entry comes first
        return replace(response, **log)
    return response


def _failure(body: dict) -> str | None:
    """Return the message of a failed response, "" if it has none, or None if it did not fail.

    OpenAI has an object at `error`; vLLM, SGLang and Mistral return the error itself; FastAPI has
    `detail`.
    """
    error = body.get("error") or body.get("errors")
    if error:
        return _message(error)
    if body.get("object") == "error" or body.get("type") == "error":
        return _message(body)
    if not body:
        return "the response is empty"
    return _message(body) if set(body) <= _MESSAGE_NAMES else None


def _message(error: Any) -> str:
    """Return the first message in an error, or "" if it has none."""
    for entry in as_items(error):
        message = first_value(as_mapping(entry), ("message", "detail", "code"))
        if message or isinstance(entry, str):
            return str(message or entry)[:100]
    return ""


# --- The question of an entry ---


def _empty_response(where: str, entry: dict, is_wrapped: bool) -> Response:
    """Return a response without answers that has what an entry says about its question.

    The references may be those of the row of a dataset. A text at `answer` may be the model's own
    answer, copied from the response. Therefore it is used only if it is a rationale as in GSM8K, or
    if the entry also has aliases.
    """
    split = entry.get("split")
    references = first_value(entry, ("references", "target"))
    answer = entry.get("answer")
    is_own_answer = isinstance(answer, str) and "####" not in answer and not entry.get("aliases")
    if references is None and is_wrapped and not is_own_answer:
        references = references_beside(entry)
    names: tuple[str, ...] = ("question_id", "custom_id", "recordId", "key", "doc_id")
    if entry.get("epoch") is not None:  # of inspect_ai
        names = ("id",)
    return Response(
        where,
        question_id=first_value(entry, names),
        call_id=entry.get("id") if is_wrapped else None,
        question=None if _listed_questions(entry) else entry.get("question"),
        references=references,
        split=str(split) if type(split) is int else split,
        relation=entry.get("relation"),
        scores=entry.get("scores") if "answers" in entry else None,
        dataset=entry.get("dataset"),
    )
