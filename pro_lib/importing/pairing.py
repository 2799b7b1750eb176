"""Pair the questions of imported answers with those that the caller gives as `questions=`."""

import unicodedata
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from pro_lib.common.files import RunError
from pro_lib.metrics.correctness import normalized_words
from pro_lib.questions.question_sets import QuestionSet, rename_reserved
from pro_lib.runs.run import Run


def question_table(questions: QuestionSet | pd.DataFrame) -> pd.DataFrame:
    """Return the table of a question set, or the table itself."""
    return questions.table if isinstance(questions, QuestionSet) else questions


def paired(
    given_set: QuestionSet | pd.DataFrame, run: Run, path: Path, *, known_ids: Collection
) -> Run:
    """Return the run of the given questions, with their ids.

    A question of the file is paired with the given question that has its id, otherwise with the one
    that has its text. If the file has neither ids nor texts, the order decides, and a warning says
    so. A question whose answers are all left out need not be among the given ones.

    Args:
        given_set: the questions that were asked, with columns question_id and question.
        run: the questions and the answers in the file, with the file's question_id.
        path: the file, for messages.
        known_ids: the ids that are in the file. The other ids of the run are places in the file.

    Returns:
        The run of the given questions, with the scores and the empty columns that the file's
        questions have.

    Raises:
        RunError: a question of the file is not among the given ones, two are the same given
            question, or the two texts of a question disagree.
    """
    if isinstance(given_set, QuestionSet):
        run = _without_left_out(given_set, run, path)
    given_table = _checked_table(given_set)
    given_texts = dict(zip(given_table["question_id"], given_table["question"], strict=True))
    targets = _targets(given_texts, run, path, known_ids)
    has_row_numbers = isinstance(given_set, QuestionSet) and not given_set.has_own_ids
    if has_row_numbers and set(targets) - set(_texts_of(run)):
        words = "has no texts of questions, and the ids of the given questions are row numbers"
        risk = "if rows were moved, answers belong to the wrong questions"
        warnings.warn(f"{path} {words}; {risk}", UserWarning, stacklevel=3)
    # The id of a line that cannot be read is not among the questions of the file.
    all_targets = {name: name for name in given_texts} | targets
    left_out_ids = run.left_out["question_id"].map(all_targets)
    return replace(
        run,
        answers=run.answers.assign(question_id=run.answers["question_id"].map(targets)),
        questions=_with_file_columns(given_table, run.questions, targets),
        left_out=run.left_out.assign(question_id=left_out_ids.astype(object)),
    )


def _texts_of(run: Run) -> dict[str, str]:
    """Return the texts of the questions of a run that have one, by their ids."""
    texts = zip(run.questions["question_id"], run.questions["question"], strict=True)
    return {name: text for name, text in texts if isinstance(text, str)}


def _targets(
    given_texts: Mapping[str, str], run: Run, path: Path, known_ids: Collection
) -> dict[str, str]:
    """Return the id of the given question that each question of the file is paired with."""
    file_ids = list(run.questions["question_id"])
    texts = _texts_of(run)
    if not known_ids and not texts and len(file_ids) == len(given_texts):
        targets = _by_order(file_ids, list(given_texts), path)
    else:
        targets = {name: name for name in file_ids if name in given_texts and name in known_ids}
    unpaired = {name: text for name, text in texts.items() if name not in targets}
    targets |= _by_text(unpaired, given_texts, path)
    answered_ids = set(run.answers["question_id"])
    _check_all_paired([name for name in file_ids if name in answered_ids], texts, targets, path)
    paired_texts = {name: text for name, text in texts.items() if name in targets}
    pairs = [(name, text, given_texts[targets[name]]) for name, text in paired_texts.items()]
    _check_texts(pairs, path)
    _check_different(targets, path)
    return targets


def _checked_table(given_set: QuestionSet | pd.DataFrame) -> pd.DataFrame:
    """Return the table of the given questions, or raise `RunError` without ids and texts."""
    table = rename_reserved(question_table(given_set))
    has_columns = {"question_id", "question"} <= set(table)
    if not has_columns or table["question_id"].duplicated().any():
        raise RunError("questions= must have columns question_id and question, and each id once")
    return table


def _without_left_out(question_set: QuestionSet, run: Run, path: Path) -> Run:
    """Remove the answers to questions that were left out of the question set.

    `load_questions` leaves out questions that it cannot use. A warning names their ids.
    """
    questions = run.questions
    left_out_texts = {text for text in question_set.left_out.values() if text}
    has_left_out_id = questions["question_id"].isin(question_set.left_out)
    has_left_out_text = questions["question"].isin(left_out_texts)
    has_used_id = questions["question_id"].isin(question_set.table["question_id"])
    has_used_text = questions["question"].isin(question_set.table["question"])
    is_left_out = (has_left_out_id | has_left_out_text) & ~has_used_id & ~has_used_text
    if not is_left_out.any():
        return run
    names = questions.loc[is_left_out, "question_id"]
    words = "answers to questions that were left out of the question file are left out too"
    warnings.warn(f"{path}: {words}: {', '.join(map(str, names[:5]))}", UserWarning, stacklevel=4)
    return run.select(question_ids=list(questions.loc[~is_left_out, "question_id"]))


def _by_order(file_ids: list[str], given_ids: list[str], path: Path) -> dict[str, str]:
    """Return the given id of each id in the file, in their order, with a warning."""
    if set(file_ids) == set(given_ids) and file_ids != given_ids:
        words = "the server's ids are those of questions=, in another order; give question_id"
        raise RunError(f"{path}: {words}")
    words = "has neither ids nor texts of questions"
    meaning = "answers are assigned to the given questions in the order of both"
    warnings.warn(f"{path} {words}; {meaning}", UserWarning, stacklevel=4)
    return dict(zip(file_ids, given_ids, strict=True))


def _by_text(
    texts: Mapping[str, str], given_texts: Mapping[str, str], path: Path
) -> dict[str, str]:
    """Return the given id of each text that is or contains a given question.

    If a prompt contains several given questions, the last one counts, since the others may be
    shots. The word before the question and all text after it must be the same in all prompts.
    Otherwise the last given question of one of them may be a shot, before a question that is not
    among those given.

    Args:
        texts: the text of each question in the file, by its id.
        given_texts: the text of each given question, by its id.
        path: the file, for errors.
    """
    ids_by_words: dict[str, list[str]] = {}
    for given_id, text in given_texts.items():
        ids_by_words.setdefault(normalized_words(text), []).append(given_id)
    targets: dict[str, str] = {}
    names_by_context: dict[tuple[str, ...], str] = {}
    for name, text in texts.items():
        prompt = f" {normalized_words(text)} "
        question = _last_question(prompt, ids_by_words)
        if question is None:
            continue
        before, _, after = prompt.rpartition(f" {question} ")
        names_by_context.setdefault((*before.split()[-1:], after), name)
        candidates = ids_by_words[question]
        if len(candidates) > 1:
            candidates = [given_id for given_id in candidates if given_texts[given_id] == text]
        if len(candidates) != 1:
            words = "is the text of several given questions; give question_id"
            raise RunError(f"{path}: {text!r} {words}")
        targets[name] = candidates[0]
    if len(names_by_context) > 1:
        names = " and ".join(repr(name) for name in list(names_by_context.values())[:2])
        words = f"the prompts of {names} have different words around the question"
        raise RunError(f"{path}: {words}, so one may be a shot; give question_id")
    return targets


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


def _check_all_paired(
    file_ids: Collection[str], texts: Mapping[str, str], targets: Mapping[str, str], path: Path
) -> None:
    """Raise `RunError` for a question of the file that is not among the given questions."""
    for name in file_ids:
        if name not in targets:
            reason = "and its question has no text to find it by"
            if name in texts:
                reason = f"and neither is its text {texts[name]!r}"
            raise RunError(f"{path}: question_id {name!r} is not in questions=, {reason}")


def _check_different(targets: Mapping[str, str], path: Path) -> None:
    """Raise `RunError` if two questions of the file are the same given question."""
    for given_id, count in Counter(targets.values()).items():
        if count > 1:
            raise RunError(
                f"{path}: several of its questions match question {given_id!r} of questions=; give "
                "each its own question_id"
            )


def _check_texts(pairs: Sequence[tuple[str, str, str]], path: Path) -> None:
    """Raise `RunError` if a text shows that answers belong to another question than the paired one.

    A text that came with answers must be the question, or a prompt that contains it. If most
    prompts put the question between the same words, a prompt with other words around it is about
    another question: one that was edited afterwards.

    Args:
        pairs: for each question its id, its text in the file, and its text in `questions=`.
        path: the file of the answers, for the error.
    """
    contexts = [_context(prompt, question) for _, prompt, question in pairs]
    [(usual_context, count)] = Counter(contexts).most_common(1) or [(None, 0)]
    is_uniform = usual_context is not None and 2 * count > len(contexts)
    for (name, prompt, question), context in zip(pairs, contexts, strict=True):
        is_contained = f" {normalized_words(question)} " in f" {normalized_words(prompt)} "
        if not is_contained or (is_uniform and context != usual_context):
            words = f"has the text {prompt!r} here, but {question!r} in questions="
            raise RunError(f"{path}: question_id {name!r} {words}")


def _context(prompt: str, question: str) -> tuple[str, str] | None:
    """Return the word before a question in a prompt and all text after it, or None without it."""
    before, separator, after = _folded(prompt).rpartition(_folded(question))
    return (" ".join(before.split()[-1:]), after) if separator else None


def _folded(text: str) -> str:
    """Return a text in lower case and compatible letters (NFKC), with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _with_file_columns(
    given_table: pd.DataFrame, questions: pd.DataFrame, targets: Mapping[str, str]
) -> pd.DataFrame:
    """Return the given questions with the scores of the file, and its other columns empty."""
    questions = questions[questions["question_id"].isin(targets)]
    scores = questions.filter(like="score_")
    scores = scores.set_axis([targets[name] for name in questions["question_id"]])
    scores = scores.reindex(list(given_table["question_id"]))
    columns: dict = {name: None for name in questions if name not in given_table}
    columns |= scores.to_dict("list")
    return given_table.assign(**columns).reset_index(drop=True)
