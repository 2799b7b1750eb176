"""Read a file of responses: the answers that can be used, and counts for the warnings."""

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pro_lib.common import reasons
from pro_lib.common.files import RunError
from pro_lib.common.nested import plain
from pro_lib.importing.answer_records import record_of
from pro_lib.importing.formats import ParsedAnswer, ResponseFormat
from pro_lib.importing.left_out import NO_FINISH_REASON, LeftOut, LeftOutAnswer, Problem
from pro_lib.importing.records import CheckedAnswer
from pro_lib.importing.response_formats import NATURAL, NOT_ENDED
from pro_lib.importing.responses import Response, StreamError, responses_in
from pro_lib.questions.file_readers import Source, json_lines
from pro_lib.questions.json_values import decoded


@dataclass
class ReadResponse:
    """A response whose answers were read.

    Attributes:
        response: the response, without its answers.
        question: the text of its question, if it is known.
        own_id: the id that its entry gives the question, if there is one.
        records: the records of its answers.
        left_out: its answers that cannot be used, or the response itself if it failed.
    """

    response: Response
    question: Any
    own_id: Any = None
    records: list[CheckedAnswer] = field(default_factory=list)
    left_out: list[LeftOutAnswer] = field(default_factory=list)


@dataclass
class Reading:
    """The content of a file of responses, as far as it was read.

    Attributes:
        left_out: the entries and answers that cannot be used.
        has_masked_tokens: whether the texts of tokens are ignored.
        responses: the responses, in the order of the file.
        format_name: the name of the first response format.
        endings: the number of answers with each finish reason.
        notes: the number of answers that are scored on some of their tokens, by message.
        n_with_thoughts: the number of answers that have thoughts before them.
        n_without_log_probs: the number of answers of an API that returns no log-probabilities.
        unfinished: the server's id of each answer without a finish reason, by its place.
        answer_texts: the first two different texts of answers.
        token_texts: the first two different texts of tokens.
    """

    left_out: LeftOut
    has_masked_tokens: bool = False
    responses: list[ReadResponse] = field(default_factory=list)
    format_name: str | None = None
    endings: Counter = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    n_with_thoughts: int = 0
    n_without_log_probs: int = 0
    unfinished: dict[str, str] = field(default_factory=dict)
    answer_texts: set[str] = field(default_factory=set)
    token_texts: set[Any] = field(default_factory=set)

    def seems_masked(self) -> bool:
        """Return whether all tokens have the same text and no answer can be used.

        This is so in a log in which the texts of the tokens are masked.
        """
        have_one_text = len(self.token_texts) == 1 and len(self.answer_texts) > 1
        return have_one_text and not any(read.records for read in self.responses)

    def add_response(self, response: Response) -> None:
        """Add a response and those of its answers that can be used."""
        read = ReadResponse(replace(response, answers=[]), response.question)
        self.responses.append(read)
        if response.response_format is not None and self.format_name is None:
            self.format_name = response.response_format.name
        if response.failure is not None:
            message = f" ({response.failure})" if response.failure else ""
            problem = Problem(reasons.FAILED, f"the response failed{message}")
            read.left_out.append(self.left_out.add(response.where, problem))
        elif response.response_format is not None:
            self._add_answers(response, response.response_format, read)

    def _add_answers(
        self, response: Response, response_format: ResponseFormat, read: ReadResponse
    ) -> None:
        """Add the answers that can be used to `read`, and leave out the others."""
        prompt = _prompt_text(response)
        for n, parsed_answer in enumerate(response.answers):
            answer = parsed_answer
            if self.has_masked_tokens:
                answer = answer._replace(token_texts=None)
            else:
                self._note_texts(answer)
            self.n_with_thoughts += answer.has_thoughts
            record = record_of(answer, response_format, self.notes, prompt)
            place = f"{response.where}, choice {n}"
            if isinstance(record, Problem):
                read.left_out.append(self.left_out.add(place, record))
                if record.kind == NO_FINISH_REASON:
                    self.unfinished[place] = str(response.served_id)
                continue
            if not record.finished:
                self.left_out.check_cut(place, answer.reason)
            read.records.append(record)
            self.n_without_log_probs += answer.lacks_log_probs
            self.endings[answer.reason] += 1

    def _note_texts(self, answer: ParsedAnswer) -> None:
        """Keep the first two different texts of answers, and of tokens."""
        if len(self.token_texts) < 2 and answer.token_texts:
            first_texts = answer.token_texts[:2]
            self.token_texts.update(text for text in first_texts if text is not None)
        if len(self.answer_texts) < 2 and isinstance(answer.text, str):
            self.answer_texts.add(answer.text)


def _prompt_text(response: Response) -> str | None:
    """Return the text of a response's prompt or question, or None if the file does not have it."""
    if response.conversation is not None and len(response.conversation) == 1:
        return response.conversation[0].text or None
    return response.question if isinstance(response.question, str) else None


def read_responses(
    source: Source, path: Path, *, strict: bool, has_masked_tokens: bool = False
) -> Reading:
    """Read the responses of a file or list, and keep the records of their answers.

    Args:
        source: the file or the list.
        path: the name of the source, for messages.
        strict: whether an entry or an answer that cannot be used is an error.
        has_masked_tokens: whether the texts of tokens are ignored.

    Raises:
        RunError: a stream of server-sent events, or with `strict` an entry that cannot be used.
    """
    left_out = LeftOut(path, strict)
    reading = Reading(left_out, has_masked_tokens)
    is_file = isinstance(source, (str, Path))
    entries = json_lines(source, on_error=None if strict else left_out.add_error)
    for where, entry in _without_outer_list(entries):
        value = entry if is_file else plain(entry, all_objects=True)
        try:
            responses = list(responses_in(where, value))
        except StreamError:
            raise
        except RunError as error:
            left_out.add_error(where, error)
            continue
        for response in responses:
            reading.add_response(response)
    return reading


def _without_outer_list(entries: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a file, or of the list in it if its only entry is a text of JSON."""
    first = next(entries, None)
    second = next(entries, None)
    if first is not None and second is None:
        where, entry = first
        values = decoded(entry) if isinstance(entry, str) else None
        if isinstance(values, list):
            file_name = where.rpartition(", ")[0]
            yield from ((f"{file_name}, entry {n}", value) for n, value in enumerate(values, 1))
            return
    for entry_with_place in (first, second):
        if entry_with_place is not None:
            yield entry_with_place
    yield from entries


def check_stream(reading: Reading) -> None:
    """Raise `RunError` for the pieces of a stream.

    They share an id, and only the last one has a finish reason.
    """
    responses = [read.response for read in reading.responses]
    counts = Counter(str(response.served_id) for response in responses if response.part is None)
    for place, served_id in reading.unfinished.items():
        if counts[served_id] > 1:
            words = "has no finish reason, as the pieces of a stream"
            remedy = "save the whole response that the client joins"
            raise RunError(f"{place}: the answer {words}; {remedy}")


def warn_of_answers(reading: Reading, path: Path) -> None:
    """Warn of unknown finish reasons, of thoughts, and of an API without log-probabilities."""
    for message in _messages(reading, path):
        warnings.warn(message, UserWarning, stacklevel=3)


def _messages(reading: Reading, path: Path) -> Iterator[str]:
    """Yield the messages of `warn_of_answers`."""
    known = NATURAL.union(NOT_ENDED)
    counts = {name: count for name, count in reading.endings.items() if name not in known}
    if counts:
        unknown = first_values(f"{name} ({count})" for name, count in counts.items())
        yield f"endings {unknown} are unknown; such an answer counts as cut"
    if reading.has_masked_tokens:
        words = "all tokens have the same text, which spells no answer"
        yield f"{path}: {words}; it is not compared with the answers"
    if reading.n_with_thoughts:
        words = "answers had thoughts (reasoning) before them, which are neither scored nor judged"
        meaning = "their values are conditional on the reasoning that was sampled"
        yield f"{path}: {reading.n_with_thoughts} {words}; {meaning}"
    for note, count in reading.notes.items():
        yield f"{path}: {count} answers {note}"
    if reading.n_without_log_probs:
        words = f"gives no log-probabilities of {reading.n_without_log_probs} answers"
        use = "their texts are read for SC, Deg and SE by counts"
        yield f"{path}: the API ({reading.format_name}) {words}; {use}"


def first_values(values: Iterable[object]) -> str:
    """Return the first five values as text, and the number of the others."""
    texts = [str(value) for value in values]
    shown = "; ".join(texts[:5])
    return shown if len(texts) <= 5 else f"{shown} and {len(texts) - 5} more"
