"""Decide which responses answer the same question, by their ids, their requests or their places."""

import re
import warnings
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from pro_lib.importing.responses import Response
from pro_lib.questions.file_readers import unzipped

# An id with a number at its end, such as q0-1.
_NUMBERED = re.compile(r"(.+)[-_.:#/](\d{1,9})")


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
