"""Decide which responses answer the same question, by their ids, their requests or their places."""

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pro_lib.common.files import RunError
from pro_lib.importing.read_responses import ReadResponse
from pro_lib.questions.file_readers import unzipped

# An id with a number at its end, such as q0-1.
_NUMBERED = re.compile(r"(.+)[-_.:#/](\d{1,9})")


def set_own_ids(responses: Sequence[ReadResponse], known_ids: set[str]) -> None:
    """Set the ids of the responses.

    `q0-0` and `q0-1` become `q0` if both answer one question.

    A warning says so, unless the ids without numbers are those of the given questions.

    Args:
        responses: the responses of a file; their `own_id` is set.
        known_ids: the ids of the questions that the caller gives.
    """
    ids = [_id_as_text(read.response.question_id) for read in responses]
    for read, own_id in zip(responses, ids, strict=True):
        read.own_id = own_id
    if known_ids & set(ids):
        return
    stems, numbers = _stems_and_numbers(ids)
    stems_are_known = set(stems) <= known_ids
    questions = [read.response.conversation or read.question or "" for read in responses]
    if not stems or not (stems_are_known or _are_samples(stems, numbers, questions)):
        return
    for read, stem in zip(responses, stems, strict=True):
        read.own_id = stem
    if not stems_are_known:
        example = next(n for n, stem in enumerate(stems) if len(set(numbers[stem])) > 1)
        words = "the ids of some answers look like numbered samples of one question"
        message = f"{words}, so {ids[example]!r} counts as a sample of {stems[example]!r}"
        warnings.warn(message, UserWarning, stacklevel=3)


def _stems_and_numbers(ids: Sequence[Any]) -> tuple[list[str], dict[str, list[int]]]:
    """Return the ids without the numbers at their ends, and the numbers by id without number.

    Both are empty if an id does not have a number at its end.
    """
    stems: list[str] = []
    numbers: dict[str, list[int]] = {}
    for question_id in ids:
        match = _NUMBERED.fullmatch(str(question_id))
        if match is None:
            return [], {}
        stems.append(match[1])
        numbers.setdefault(match[1], []).append(int(match[2]))
    return stems, numbers


def _id_as_text(question_id: Any) -> Any:
    """Return a whole number as text, and any other id as it is."""
    return str(question_id) if type(question_id) is int else question_id


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


def question_ids(responses: Sequence[ReadResponse], path: Path) -> list[Any]:
    """Return the question_id of each response.

    Responses with the same id, or without ids and with the same request, answer the same question.

    Raises:
        RunError: two responses with the same id are about different questions.
    """
    ids: list[Any] = []
    ids_by_request: dict[object, Any] = {}
    first_uses: dict[str, tuple[str, tuple]] = {}
    for read in responses:
        response = read.response
        text = read.question if isinstance(read.question, str) else ""
        question_id = read.own_id
        if question_id is None:
            # The same words may be another question in another conversation.
            request = response.conversation or text or response.where
            new_id = _place_id(read, path)
            if response.served_id is not None and str(response.served_id) not in first_uses:
                new_id = response.served_id
            question_id = ids_by_request.setdefault(request, new_id)
        content = (text, response.references, response.split)
        place, first_content = first_uses.setdefault(str(question_id), (response.where, content))
        if content != first_content:
            words = f"was already used ({place}), by another question"
            raise RunError(f"{response.where}: question_id {question_id!r} {words}")
        ids.append(question_id)
    return ids


def _place_id(read: ReadResponse, path: Path) -> str:
    """Return an id made of the file's name and the place in it, such as `answers-12`."""
    response = read.response
    number = response.where.partition(", prompt ")[0].rsplit(" ", 1)[1]
    place_id = f"{unzipped(path).stem}-{number}"
    return place_id if response.part is None else f"{place_id}-{response.part}"
