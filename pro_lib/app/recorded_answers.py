"""Answers that are read from the files of `records` instead of being generated."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from pro_lib import importing
from pro_lib.app.parameters import Parameters, as_list
from pro_lib.common import files
from pro_lib.questions import question_sets
from pro_lib.runs.run import Run


def read_records(
    parameters: Parameters, model: str, dataset: str, *, log_metric: str | None = None
) -> Run:
    """Return all answers in the records of a model and a dataset.

    If the parameter `dataset` is a question file, it completes the questions of the records.
    """
    dataset_path = as_list(parameters.dataset)[0]
    questions = None
    if dataset_path not in question_sets.NAMES and os.path.exists(dataset_path):
        questions = question_sets.load_questions(
            path=dataset_path,
            columns=parameters.columns,
            strict=parameters.strict,
            split=None,
            n_shots=0,
        )
        if "validation" not in set(questions.table["split"]):
            # The validation questions are then drawn.
            questions = replace(questions, table=questions.table.assign(split=None))
    path = parameters.record_files()[model, dataset]
    return importing.import_answers(
        path, questions=questions, strict=parameters.strict, log_metric=log_metric
    )


def select_records(parameters: Parameters, run: Run, splits: Sequence[str]) -> Run:
    """Return the answers to the questions of some splits.

    At most `limit` questions of each split and `n_answers` answers of each question are kept.
    A missing validation split is not an error if the records have another of the splits.

    Raises:
        RunError: if the records do not have a split.
    """
    if parameters.n_answers is not None:
        is_kept = run.answers["rank"] < parameters.n_answers
        run = replace(run, answers=run.answers[is_kept].reset_index(drop=True))
    if tuple(splits) == ("all",) and parameters.limit is None:
        return run  # it does not matter to which split a question belongs
    run = importing.split_records(run, n_validation=parameters.n_validation, seed=parameters.seed)
    existing = list(dict.fromkeys(run.questions["split"]))
    selected = existing if "all" in splits else [name for name in existing if name in splits]
    unknown = [name for name in splits if name not in (*existing, "all", "validation")]
    if unknown or not selected:
        name = [*unknown, *splits][0]
        choices = ", ".join(existing)
        raise files.RunError(f"split={name!r} is not in run {run.name}; it has {choices}")
    if parameters.limit is None and len(selected) == len(existing):
        return run
    rows = question_sets.limited_rows(run.questions, selected, parameters.limit, parameters.seed)
    return run.select(question_ids=list(run.questions["question_id"].iloc[sorted(rows)]))
