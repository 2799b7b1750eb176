"""Decide which question each response answers, by its id, request, text or place."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import pandas as pd

from pro_lib.common import reasons
from pro_lib.common.files import RunError
from pro_lib.common.validation import is_damaged
from pro_lib.importing.conversations import question_texts
from pro_lib.importing.parsed_answers import Problem
from pro_lib.importing.responses import Response
from pro_lib.metrics.correctness import normalized_words
from pro_lib.questions.file_readers import unzipped
from pro_lib.questions.question_sets import QuestionSet, rename_reserved
from pro_lib.questions.repeats import folded

_DAMAGED_REQUEST = Problem(reasons.UNREADABLE, "its request has an unpaired surrogate")
_NOT_GIVEN = Problem("", words="whose question is not among the given questions")
_AMBIGUOUS = "whose text is that of several given questions; give question_id"
_OTHER_TEXT = "whose question has another text in the given questions"
_OTHER_CONTEXT = "with other words around the question than most prompts, so one may be a shot"
# An id with a number at its end, such as q0-1.
_NUMBERED = re.compile(r"(.+)[-_.:#/](\d{1,9})")


def run_questions(
    responses: Sequence[Response],
    questions: QuestionSet | pd.DataFrame | None,
    path: Path,
    notes: list[str],
) -> pd.DataFrame:
    """Set the question ids of responses, and return their questions or the given ones.

    A response whose question cannot be used, or is not given, is rejected.

    Args:
        responses: the responses of a file.
        questions: the questions that replace those of the file.
        path: the file, for messages.
        notes: gets a message about each decision that the file does not state.

    Raises:
        RunError: the given questions cannot be used.
    """
    texts = question_texts([response.conversation for response in responses])
    for response, text in zip(responses, texts, strict=True):
        if text is not None and is_damaged(text):
            response.reject(_DAMAGED_REQUEST)
        elif response.question is None:
            response.question = text
    if questions is not None:
        return _given_questions(responses, questions, path, notes)
    _set_own_ids(responses, set(), notes)
    _set_missing_ids(responses, path)
    return _questions_of_file(responses)


# --- The questions of a file ---


def _questions_of_file(responses: Sequence[Response]) -> pd.DataFrame:
    """Return the questions of responses, and reject those that contradict an earlier one."""
    rows: dict[str, dict[str, Any]] = {}
    first_uses: dict[str, Response] = {}
    for response in responses:
        name = response.question_id
        if name is None:
            continue
        row = {
            "question_id": name,
            "question": response.question,
            "references": response.references,
            "split": response.split,
            "relation": response.relation,
            **response.score_columns,
        }
        first = first_uses.setdefault(name, response)
        first_row = rows.setdefault(name, row)
        if first is response or response.problem is not None:
            continue
        for column, value in row.items():
            if first_row.get(column) is None:
                first_row[column] = value
        is_other = any(value not in (None, first_row[column]) for column, value in row.items())
        if is_other or (first.is_of("records") and response.is_of("records")):
            words = f"question_id {name!r} was already used ({first.where})"
            words += ", by another question" if is_other else ""
            response.reject(Problem(reasons.UNREADABLE, words, is_detail=True))
    table = pd.DataFrame(list(rows.values()))
    if "relation" in table and table["relation"].isna().all():
        table = table.drop(columns="relation")
    return table


def _set_own_ids(responses: Sequence[Response], known_ids: Set[str], notes: list[str]) -> None:
    """Set the ids that the file gives the questions of its responses.

    `q0-0` and `q0-1` become `q0` if both answer one question. A note says so, unless the ids
    without numbers are those of the given questions.

    Args:
        responses: the responses of a file; their `question_id` is set.
        known_ids: the ids of the questions that the caller gives.
        notes: gets the note.
    """
    _use_call_ids(responses)
    numbered = [response for response in responses if response.problem is None]
    matches = [_NUMBERED.fullmatch(str(response.question_id)) for response in numbered]
    if not all(matches) or known_ids & {response.question_id for response in responses}:
        return
    stems = [match[1] for match in matches if match]
    numbers = [int(match[2]) for match in matches if match]
    questions = [response.conversation or response.question or "" for response in numbered]
    stems_are_known = bool(stems) and set(stems) <= known_ids
    if not stems_are_known and not _are_numbered_samples(stems, numbers, questions):
        return
    if not stems_are_known:
        words = "the ids of some answers look like numbered samples of one question"
        counts = Counter(stems)
        example = next(n for n, stem in enumerate(stems) if counts[stem] > 1)
        sample = f"{numbered[example].question_id!r} counts as a sample of {stems[example]!r}"
        notes.append(f"{words}, so {sample}")
    for response in responses:
        match = _NUMBERED.fullmatch(str(response.question_id))
        response.question_id = match[1] if match else response.question_id


def _use_call_ids(responses: Sequence[Response]) -> None:
    """Use the ids of entries as ids of their questions, unless a request has several of them."""
    calls = [response for response in responses if response.call_id is not None]
    requests = {response.conversation or response.where for response in calls}
    if len(requests) < len({str(response.call_id) for response in calls}):
        return
    for response in calls:
        if response.question_id is None and isinstance(response.call_id, (str, int)):
            response.question_id = str(response.call_id)


def _are_numbered_samples(
    stems: Sequence[str], numbers: Sequence[int], questions: Sequence[object]
) -> bool:
    """Return whether ids such as `q0-0` and `q0-1` are those of samples of one question `q0`.

    Some ids must share a stem. If all questions are known, each stem must have one question. If
    none is known, several stems must have the same numbers, which begin with 0 and 1, or with 1 and
    2.

    Args:
        stems: the id of each response without its number.
        numbers: the number of each id.
        questions: the conversation or the question of each response, "" if unknown.
    """
    numbers_by_stem: dict[str, list[int]] = {}
    for stem, number in zip(stems, numbers, strict=True):
        numbers_by_stem.setdefault(stem, []).append(number)
    groups = {tuple(sorted(group)) for group in numbers_by_stem.values()}
    if not any(len(set(group)) > 1 for group in groups):
        return False
    if all(questions):
        return len(set(zip(stems, questions, strict=True))) == len(numbers_by_stem)
    if any(questions) or len(numbers_by_stem) < 2 or len(groups) > 1:
        return False
    if all(stem.isdecimal() for stem in stems):  # 2021-01 may be a month, and 1.2 a section
        return False
    return groups.pop()[:2] in ((0, 1), (1, 2))


def _set_missing_ids(responses: Sequence[Response], path: Path) -> None:
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
        new_id = f"{unzipped(path).stem}-{response.number}"
        if response.part is not None:
            new_id += f"-{response.part}"
        elif response.served_id is not None and str(response.served_id) not in used_ids:
            new_id = str(response.served_id)
        response.question_id = ids_by_request.setdefault(request or response.where, new_id)
        used_ids.add(response.question_id)


# --- Given questions ---


def _given_questions(
    responses: Sequence[Response],
    questions: QuestionSet | pd.DataFrame,
    path: Path,
    notes: list[str],
) -> pd.DataFrame:
    """Return the given questions with the scores of the file, after pairing the responses."""
    has_own_ids = not isinstance(questions, QuestionSet) or questions.has_own_ids
    table = rename_reserved(questions.table if isinstance(questions, QuestionSet) else questions)
    has_columns = {"question_id", "question"} <= set(table)
    if not has_columns or table["question_id"].duplicated().any():
        raise RunError("questions= must have columns question_id and question, and each id once")
    _set_own_ids(responses, set(table["question_id"]), notes)
    table = _pair(responses, table, path, notes, has_own_ids=has_own_ids)
    rows = {each.question_id: each.score_columns for each in responses if each.scores}
    scores = pd.DataFrame.from_dict(rows, orient="index").reindex(table["question_id"])
    missing = dict.fromkeys({"references", "split"} - set(table))
    return table.assign(**missing, **scores.reset_index(drop=True))


def _pair(
    responses: Sequence[Response],
    table: pd.DataFrame,
    path: Path,
    notes: list[str],
    *,
    has_own_ids: bool,
) -> pd.DataFrame:
    """Set the ids of responses to those of the given questions, and return these questions.

    A response is paired with the given question that has its id, otherwise with the one that has
    its text. If the file has neither ids nor texts, the order decides, and a note says so. A
    response whose question is not given is rejected, and so is one whose text is another. Without
    `has_own_ids`, the given ids are made of row numbers.
    """
    texts_by_id: dict[str, str] = dict(zip(table["question_id"], table["question"], strict=True))
    texts = [each.question if isinstance(each.question, str) else "" for each in responses]
    ids = [response.question_id for response in responses]
    if not any(texts) and all(name is None for name in ids):
        targets = _by_order(responses, list(texts_by_id), path)
        notes.append(
            "there are neither ids nor texts of questions; answers are assigned to the given "
            "questions in the order of both"
        )
    else:
        targets = [name if name in texts_by_id else None for name in ids]
        has_text = [bool(text) for text, target in zip(texts, targets, strict=True) if target]
        if not has_own_ids and not all(has_text):
            notes.append(
                "there are no texts of questions, and the ids of the given questions are row "
                "numbers; if rows were moved, answers belong to the wrong questions"
            )
    by_text = [n for n, target in enumerate(targets) if target is None and texts[n]]
    ids_by_words: dict[str, list[str]] = {}
    for name, text in texts_by_id.items():
        ids_by_words.setdefault(normalized_words(text), []).append(name)
    for n in by_text:
        targets[n] = _target_of_text(responses[n], texts[n], texts_by_id, ids_by_words)
    for response, target in zip(responses, targets, strict=True):
        if target is None:
            response.reject(_NOT_GIVEN)
    _check_texts(responses, texts, targets, texts_by_id, set(by_text))
    new_ids = {} if has_own_ids else _ids_of_file(responses, targets)
    for response, target in zip(responses, targets, strict=True):
        response.question_id = new_ids.get(str(target), target)
    question_ids = [new_ids.get(name, name) for name in texts_by_id]
    return table.assign(question_id=question_ids).reset_index(drop=True)


def _ids_of_file(responses: Sequence[Response], targets: Sequence[str | None]) -> dict[str, str]:
    """Return the ids that the file gives the paired questions, if each has one of its own."""
    pairs = set()
    for response, target in zip(responses, targets, strict=True):
        name = response.served_id if response.question_id is None else response.question_id
        if target is not None and name is not None:
            pairs.add((target, str(name)))
    own_ids = dict(pairs)
    return own_ids if len(pairs) == len(own_ids) == len(set(own_ids.values())) else {}


def _by_order(responses: Sequence[Response], given_ids: list[str], path: Path) -> list[str | None]:
    """Return the given id of each response in the order of both.

    A line that cannot be read keeps its place, and so does a blank line.
    """
    served_ids = [str(response.served_id) for response in responses]
    if set(served_ids) == set(given_ids) and served_ids != given_ids:
        raise RunError(
            f"{path}: the server's ids are those of questions=, in another order; give question_id"
        )
    numbers = [response.number - 1 for response in responses]
    if len(responses) == len(given_ids):
        numbers = list(range(len(given_ids)))
    elif max(numbers, default=0) + 1 != len(given_ids):
        raise RunError(
            f"{path} has neither ids nor texts of questions, and {len(responses):,} responses for "
            f"{len(given_ids):,} questions, so their order does not tell which belong together; "
            "give question_id"
        )
    return [given_ids[number] for number in numbers]


def _target_of_text(
    response: Response,
    text: str,
    texts_by_id: Mapping[str, str],
    ids_by_words: Mapping[str, list[str]],
) -> str | None:
    """Return the given question that a text is or contains.

    If a prompt contains several given questions, the last one counts, since the others may be
    shots. A text of several given questions becomes the problem of its response.
    """
    question = _last_question(normalized_words(text), ids_by_words)
    candidates = ids_by_words.get(question or "", [])
    if len(candidates) > 1:
        candidates = [name for name in candidates if texts_by_id[name] == text]
        if len(candidates) != 1:
            message = f"{text!r} is the text of several questions"
            response.reject(_contradiction(_AMBIGUOUS, message))
    return candidates[0] if len(candidates) == 1 else None


def _contradiction(words: str, message: str) -> Problem:
    return Problem(reasons.CONTRADICTORY, message, is_detail=True, words=words)


def _last_question(words: str, questions: Collection[str]) -> str | None:
    """Return the question that a prompt contains last, or None.

    If several questions end at the same place, the longest one counts. Prompt and questions are
    normalized words.
    """
    if words in questions:
        return words
    prompt = f" {words} "  # so that only whole words match
    contained = [question for question in questions if f" {question} " in prompt]
    ends = {each: prompt.rfind(f" {each} ") + len(each) for each in contained}
    return max(contained, key=lambda question: (ends[question], len(question)), default=None)


def _check_texts(
    responses: Sequence[Response],
    texts: Sequence[str],
    targets: Sequence[str | None],
    texts_by_id: Mapping[str, str],
    by_text: Set[int],
) -> None:
    """Set the problems of responses whose texts show that they answer another question.

    A text that came with answers must be the question, or a prompt that contains it. If most
    prompts put the question between the same words, a prompt with other words around it is about
    another question: one that was edited afterwards, or one after the given question as a shot. If
    the words differ without a usual form, only an id can tell.
    """
    questions = {
        n: texts_by_id[target]
        for n, target in enumerate(targets)
        if target and texts[n] and texts_by_id[target]
    }
    contexts = [_context(folded(texts[n]), folded(question)) for n, question in questions.items()]
    counts = Counter(filter(None, contexts))
    usual = next((name for name, count in counts.items() if 2 * count > len(contexts)), None)
    word_contexts = [
        _context(f" {normalized_words(texts[n])} ", f" {normalized_words(question)} ")
        for n, question in questions.items()
    ]
    differ = len(set(word_contexts)) > 1
    for n, context, word_context in zip(questions, contexts, word_contexts, strict=True):
        name = responses[n].question_id
        subject = "it" if name is None else f"question_id {name!r}"
        message = f"{subject} has the text {texts[n]!r} here, but {questions[n]!r} in questions="
        is_other = context != usual if usual else differ and n in by_text
        if word_context is None:
            responses[n].reject(_contradiction(_OTHER_TEXT, message))
        elif is_other:
            responses[n].reject(_contradiction(_OTHER_CONTEXT, message))


def _context(prompt: str, question: str) -> tuple[str, str] | None:
    """Return the word before a question in a prompt and all text after it, or None without it."""
    before, separator, after = prompt.rpartition(question)
    return (" ".join(before.split()[-1:]), after) if separator else None
