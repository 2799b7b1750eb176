"""Find and read the answers that a command is given: a file, a run folder or the name of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pro_lib.common import catalog
from pro_lib.common.validation import SentenceError

if TYPE_CHECKING:
    from pro_lib.metrics.correctness import Choices
    from pro_lib.runs.run import Run


def locate_answers(path: str) -> str | None:
    """Return the path of a file or folder, or the folder of a run that `pro generate` printed.

    The name of a run, such as `world-facts/facts-2m/greedy`, is its path below data/generations.
    The result is None if there is nothing.
    """
    if os.path.exists(path):
        return path
    folder = catalog.HOME / "data" / "generations" / Path(path)
    return str(folder) if (folder / "run.json").is_file() else None


def read_answers(
    path: str,
    *,
    questions: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    strict: bool = False,
) -> Run:
    """Return the answers of a run folder, or of a file in any supported format.

    Args:
        path: the run folder or the file.
        questions: a file of questions, which replace those of the answers.
        columns: names of the columns of this file.
        strict: whether a line, a row or an answer that cannot be used is an error.
    """
    from pro_lib import importing, runs
    from pro_lib.questions.question_sets import load_questions

    if not os.path.isdir(path):
        return importing.import_answers(path, questions=questions, columns=columns, strict=strict)
    if questions is None:
        return runs.read_run(path)
    settings: dict[str, Any] = {"columns": columns, "strict": strict, "split": None, "n_shots": 0}
    return runs.read_run(path, questions=load_questions(path=questions, **settings).table)


def read_choices(correctness: str) -> Choices:
    """Return the rule for right answers: the name of a rule, or a file of labels.

    Raises:
        SentenceError: if there is neither a rule nor a file of this name.
    """
    from pro_lib import importing
    from pro_lib.metrics.correctness import CORRECTNESS, Choices

    if correctness in CORRECTNESS:
        return Choices(correctness=correctness)
    if not os.path.isfile(correctness):
        raise SentenceError(
            f"correctness={correctness!r} is unknown. Choose {', '.join(CORRECTNESS)} or a file of "
            "labels."
        )
    return Choices(labels=importing.read_labels(correctness))
