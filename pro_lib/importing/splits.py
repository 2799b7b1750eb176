"""The validation and test splits of an imported run."""

from dataclasses import replace

from pro_lib.common.files import RunError
from pro_lib.questions.question_sets import lend_validation
from pro_lib.runs.run import Run

# `split_records` draws this many times `n_validation` questions, so that α can be chosen again on
# others.
POOL = 5


def split_records(run: Run, *, n_validation: int | None = 100, seed: int = 0) -> Run:
    """Return the run with every question in the split `validation` or `test`.

    The splits are those of the records if these have any. Otherwise `POOL` times `n_validation`
    questions are drawn for validation, so that α can be chosen again on other questions, but at
    most half of all questions. Questions with the same text stay in one split and count as one.

    Args:
        run: the run, with one row per question in `run.questions`.
        n_validation: the number of questions that α is chosen on; None for half of all questions.
        seed: the seed of the draw.

    Raises:
        RunError: only some questions have a split, or there are fewer than two questions.

    Example:
        >>> from pro_lib.importing import import_answers
        >>> records = [{"question_id": name, "answers": [{"log_prob": -1.0}]} for name in "abcd"]
        >>> run = split_records(import_answers(records), n_validation=None)
        >>> run.questions["split"].value_counts().to_dict()
        {'validation': 2, 'test': 2}
    """
    splits = run.questions["split"]
    if splits.notna().all():
        return run
    if splits.notna().any():
        raise RunError(
            f"run {run.name} has a split for some of its questions only; give one to all or to none"
        )
    if len(splits) < 2:
        raise RunError(
            f"run {run.name} has {len(splits)} questions, too few to draw some for validation"
        )
    table = run.questions.assign(split="test")
    table = lend_validation(table, n_validation, seed, lender=f"run {run.name}", pool=POOL)
    return replace(run, questions=table)
