"""Decide which question each response answers: by its id, its request, its text or its place."""

import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pro_lib.common import reasons
from pro_lib.common.files import RunError
from pro_lib.importing.left_out import Problem
from pro_lib.importing.responses import Response
from pro_lib.metrics.correctness import normalized_words
from pro_lib.questions.file_readers import unzipped
from pro_lib.questions.question_sets import QuestionSet, rename_reserved

_NOT_GIVEN = Problem("", words="whose question is not among the given questions")
_AMBIGUOUS = "whose text is that of several given questions; give question_id"
_OTHER_TEXT = "whose question has another text in the given questions"
_OTHER_CONTEXT = "with other words around the question than most prompts, so one may be a shot"
# An id with a number at its end, such as q0-1.
_NUMBERED = re.compile(r"(.+)[-_.:#/](\d{1,9})")


# --- The questions of a file ---


def set_own_ids(responses: Sequence[Response], known_ids: Set[str]) -> None:
    """Set the ids that the file gives the questions of its responses.

    `q0-0` and `q0-1` become `q0` if both answer one question. A warning says so, unless the ids
    without numbers are those of the given questions.

    Args:
        responses: the responses of a file; their `question_id` is set.
        known_ids: the ids of the questions that the caller gives.
    """
    _use_call_ids(responses)
    ids = [response.question_id for response in responses]
    if known_ids & set(ids):
        return
    numbered = [response for response in responses if response.problem is None]
    matches = [_NUMBERED.fullmatch(str(response.question_id)) for response in numbered]
    numbers: dict[str, list[int]] = {}
    for match in matches:
        if match is None:
            return
        numbers.setdefault(match[1], []).append(int(match[2]))
    questions = [response.conversation or response.question or "" for response in numbered]
    stems = [match[1] for match in matches if match]
    stems_are_known = set(stems) <= known_ids
    if not stems or not (stems_are_known or _are_samples(stems, numbers, questions)):
        return
    example = next(n for n, stem in enumerate(stems) if len(set(numbers[stem])) > 1)
    if not stems_are_known:
        words = "the ids of some answers look like numbered samples of one question"
        sample = f"{numbered[example].question_id!r} counts as a sample of {stems[example]!r}"
        warnings.warn(f"{words}, so {sample}", UserWarning, stacklevel=4)
    for response in responses:
        match = _NUMBERED.fullmatch(str(response.question_id))
        response.question_id = match[1] if match else response.question_id


def _use_call_ids(responses: Sequence[Response]) -> None:
    """Use the ids of entries as ids of their questions, unless requests show that they are not."""
    asked = [response for response in responses if response.call_id is not None]
    requests = {response.conversation or response.where for response in asked}
    if len(requests) < len({str(response.call_id) for response in asked}):
        return  # several calls with one request
    for response in asked:
        if response.question_id is None and isinstance(response.call_id, (str, int)):
            response.question_id = str(response.call_id)


def _are_samples(
    stems: Sequence[str], numbers: Mapping[str, Sequence[int]], questions: Sequence[object]
) -> bool:
    """Return whether ids such as `q0-0` and `q0-1` are those of samples of one question `q0`.

    Some ids must share a stem. If all questions are known, each stem must have one question. If
    none is known, several stems must have the same numbers, which begin with 0 and 1, or with 1 and
    2.

    Args:
        stems: the id of each response without its number.
        numbers: the numbers of each stem.
        questions: the conversation or the question of each response, "" if unknown.
    """
    if not any(len(set(group)) > 1 for group in numbers.values()):
        return False
    if all(questions):
        return len(set(zip(stems, questions, strict=True))) == len(numbers)
    different_groups = {tuple(sorted(group)) for group in numbers.values()}
    if any(questions) or len(numbers) < 2 or len(different_groups) > 1:
        return False
    if all(stem.isdecimal() for stem in stems):  # 2021-01 may be a month, and 1.2 a section
        return False
    return different_groups.pop()[:2] in ((0, 1), (1, 2))


def set_missing_ids(responses: Sequence[Response], path: Path) -> None:
    """Set the ids of questions that the file does not give.

    Responses with the same request answer the same question. A failed response without an id and
    without a request belongs to no question.
    """
    ids_by_request: dict[object, str] = {}
    used_ids = {response.question_id for response in responses}
    for response in responses:
        request = response.conversation or response.question
        if response.question_id is not None or (response.problem and request is None):
            continue
        served_id = str(response.served_id)
        new_id = f"{unzipped(path).stem}-{response.number}"
        if response.part is not None:
            new_id += f"-{response.part}"
        elif response.served_id is not None and served_id not in used_ids:
            new_id = served_id
        response.question_id = ids_by_request.setdefault(request or response.where, new_id)
        used_ids.add(response.question_id)


# --- Given questions ---


@dataclass(frozen=True)
class GivenQuestions:
    """The questions that the caller gives.

    Attributes:
        table: a row per question, with question_id and question.
        has_own_ids: whether their source has the ids; otherwise these are made of row numbers.
    """

    table: pd.DataFrame
    has_own_ids: bool = True

    @classmethod
    def of(cls, questions: QuestionSet | pd.DataFrame) -> "GivenQuestions":
        """Return given questions, or raise `RunError` without ids and texts."""
        is_set = isinstance(questions, QuestionSet)
        table = rename_reserved(
            questions.table if isinstance(questions, QuestionSet) else questions
        )
        has_columns = {"question_id", "question"} <= set(table)
        if not has_columns or table["question_id"].duplicated().any():
            raise RunError(
                "questions= must have columns question_id and question, and each id once"
            )
        return cls(table, not is_set or questions.has_own_ids)  # type: ignore[union-attr]

    @property
    def texts(self) -> dict[str, str]:
        """The text of each question by its id."""
        return dict(zip(self.table["question_id"], self.table["question"], strict=True))


def pair(responses: Sequence[Response], given: GivenQuestions, path: Path) -> pd.DataFrame:
    """Set the ids of responses to those of the given questions, and return these questions.

    A response is paired with the given question that has its id, otherwise with the one that has
    its text. If the file has neither ids nor texts, the order decides, and a warning says so. A
    response whose question is not given gets a problem, and so does one whose text is another.

    Args:
        responses: the responses of a file, with the ids that the file gives.
        given: the given questions.
        path: the file, for messages.

    Raises:
        RunError: the order decides, but the numbers of responses and questions differ.
    """
    texts = given.texts
    file_texts = [_text_of(response) for response in responses]
    is_known = [response.question_id is not None for response in responses]
    targets: list[str | None]
    if not any(is_known) and not any(file_texts):
        targets = _by_order(responses, list(texts), path)
    else:
        targets = [
            response.question_id if response.question_id in texts else None
            for response in responses
        ]
        if not given.has_own_ids and any(
            target and not text for target, text in zip(targets, file_texts, strict=True)
        ):
            words = "has no texts of questions, and the ids of the given questions are row numbers"
            risk = "if rows were moved, answers belong to the wrong questions"
            warnings.warn(f"{path} {words}; {risk}", UserWarning, stacklevel=4)
    by_id = list(targets)
    find = _finder(texts)
    for n, (response, text) in enumerate(zip(responses, file_texts, strict=True)):
        if targets[n] is None and text:
            targets[n] = find(response, text)
        if targets[n] is None and response.problem is None:
            response.problem = _NOT_GIVEN
    pairs = [
        _Pair(response, text, texts[target], is_by_id=own is not None)
        for response, text, target, own in zip(responses, file_texts, targets, by_id, strict=True)
        if text and target is not None
    ]
    _check_texts(pairs)
    new_ids = {} if given.has_own_ids else _ids_of_file(responses, targets)
    for response, target in zip(responses, targets, strict=True):
        response.question_id = new_ids.get(str(target), target)
    return given.table.assign(
        question_id=[new_ids.get(name, name) for name in given.table["question_id"]]
    ).reset_index(drop=True)


@dataclass(frozen=True)
class _Pair:
    """A response with the text of its question, and the given question that it is paired with."""

    response: Response
    text: str
    question: str
    is_by_id: bool


def _text_of(response: Response) -> str:
    return response.question if isinstance(response.question, str) else ""


def _ids_of_file(responses: Sequence[Response], targets: Sequence[str | None]) -> dict[str, str]:
    """Return the ids that the file gives the paired questions, if each has one of its own."""
    ids: dict[str, str] = {}
    for response, target in zip(responses, targets, strict=True):
        own_id = response.question_id
        if target is not None and own_id is not None and ids.setdefault(target, own_id) != own_id:
            return {}
    return ids if len(set(ids.values())) == len(ids) else {}


def _by_order(responses: Sequence[Response], given_ids: list[str], path: Path) -> list[str | None]:
    """Return the given id of each response in the order of both, with a warning.

    A line that cannot be read keeps its place, and so does a blank line.
    """
    served_ids = [str(response.served_id) for response in responses]
    if set(served_ids) == set(given_ids) and served_ids != given_ids:
        words = "the server's ids are those of questions=, in another order; give question_id"
        raise RunError(f"{path}: {words}")
    numbers = [response.number - 1 for response in responses]
    if len(responses) == len(given_ids):
        numbers = list(range(len(given_ids)))
    elif max(numbers, default=0) + 1 != len(given_ids):
        raise RunError(
            f"{path} has neither ids nor texts of questions, and {len(responses):,} responses for "
            f"{len(given_ids):,} questions, so their order does not tell which belong together; "
            "give question_id"
        )
    words = "has neither ids nor texts of questions"
    meaning = "answers are assigned to the given questions in the order of both"
    warnings.warn(f"{path} {words}; {meaning}", UserWarning, stacklevel=5)
    return [given_ids[number] for number in numbers]


def _finder(given_texts: Mapping[str, str]) -> Callable[[Response, str], str | None]:
    """Return a function that finds the given question that a text is or contains.

    If a prompt contains several given questions, the last one counts, since the others may be
    shots. A text of several given questions becomes the problem of its response.
    """
    ids_by_words: dict[str, list[str]] = {}
    for given_id, text in given_texts.items():
        ids_by_words.setdefault(normalized_words(text), []).append(given_id)

    def find(response: Response, text: str) -> str | None:
        question = _last_question(f" {normalized_words(text)} ", ids_by_words)
        candidates = ids_by_words.get(question or "", [])
        if len(candidates) > 1:
            candidates = [given_id for given_id in candidates if given_texts[given_id] == text]
            if len(candidates) != 1:
                _set_problem(response, _AMBIGUOUS, f"{text!r} is the text of several questions")
        return candidates[0] if len(candidates) == 1 else None

    return find


def _set_problem(response: Response, words: str, message: str) -> None:
    if response.problem is None:
        response.problem = Problem(reasons.CONTRADICTORY, message, is_detail=True, words=words)


def _last_question(prompt: str, questions: Collection[str]) -> str | None:
    """Return the question that a prompt contains last, or None.

    If several questions end at the same place, the longest one counts. Prompt and questions are
    normalized words; the prompt has a space at each end, so that only whole words match.
    """
    words = prompt.strip()
    if words in questions:
        return words
    contained = [question for question in questions if f" {question} " in prompt]
    if not contained:
        return None

    def end_and_length(question: str) -> tuple[int, int]:
        return prompt.rfind(f" {question} ") + len(question), len(question)

    return max(contained, key=end_and_length)


def _check_texts(pairs: "Sequence[_Pair]") -> None:
    """Set the problems of responses whose texts show that they answer another question.

    A text that came with answers must be the question, or a prompt that contains it. If most
    prompts put the question between the same words, a prompt with other words around it is about
    another question: one that was edited afterwards, or one after the given question as a shot. If
    the words differ without a usual form, only an id can tell.
    """
    contexts = [_context(_folded(pair.text), _folded(pair.question)) for pair in pairs]
    counts = Counter(contexts)
    usual = next((name for name, count in counts.items() if name and 2 * count > len(pairs)), None)
    words = [(normalized_words(pair.text), normalized_words(pair.question)) for pair in pairs]
    word_contexts = [_context(f" {text} ", f" {question} ") for text, question in words]
    differ = len(set(word_contexts)) > 1
    for pair, context, word_context in zip(pairs, contexts, word_contexts, strict=True):
        name = pair.response.question_id
        subject = "it" if name is None else f"question_id {name!r}"
        message = f"{subject} has the text {pair.text!r} here, but {pair.question!r} in questions="
        if word_context is None:
            _set_problem(pair.response, _OTHER_TEXT, message)
        elif context != usual if usual else differ and not pair.is_by_id:
            _set_problem(pair.response, _OTHER_CONTEXT, message)


def _context(prompt: str, question: str) -> tuple[str, str] | None:
    """Return the word before a question in a prompt and all text after it, or None without it."""
    before, separator, after = prompt.rpartition(question)
    return (" ".join(before.split()[-1:]), after) if separator else None


def _folded(text: str) -> str:
    """Return a text in lower case and compatible letters (NFKC), with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
