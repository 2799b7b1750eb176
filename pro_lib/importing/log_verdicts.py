"""The verdicts of logs on their answers."""

from pathlib import Path
from typing import Any

from pro_lib.common.files import RunError
from pro_lib.importing import harness
from pro_lib.importing.collected_answers import CollectedAnswers

# The values of verdicts; partly right (P) is neither right nor wrong.
_VERDICTS = {"C": True, "I": False, "N": False, "P": None, 1: True, 0: False, None: None}


def set_verdicts(collected: CollectedAnswers, name: str | None, path: Path) -> str | None:
    """Set the column `correct` of answers to a verdict of their log, if it has any.

    A metric is a verdict if all its values are 0 or 1, or the letters of inspect_ai.

    Args:
        collected: the answers.
        name: the name of the verdict; None for the first one.
        path: the file, for messages.

    Returns:
        A message if the first metric is no verdict.

    Raises:
        RunError: the log has no verdict of this name.
    """
    values: dict[str, list[Any]] = {}
    for response in collected.responses:
        for metric, value in (response.verdicts or {}).items():
            values.setdefault(metric, []).append(value)
    verdicts = [metric for metric, of_metric in values.items() if _are_verdicts(of_metric)]
    choices = ", ".join(verdicts) or "none"
    chosen = name or next(iter(verdicts), None)
    if chosen is not None:
        if chosen not in verdicts:
            words = f"has no verdicts {chosen!r}; metrics and scorers of 0 and 1 are: {choices}"
            raise RunError(f"{path} {words}")
        _set_correct(collected, chosen)
    first = next(iter(values), None)
    if first is None or first == chosen or name is not None:
        return None
    note = f"{first!r} of the log has other values than 0 and 1, so it is no verdict"
    if chosen is not None:
        remedy = f"choose with --correctness log:NAME among {choices}"
        note += f"; {chosen!r} is used instead; {remedy}"
    return note


def _are_verdicts(values: list[Any]) -> bool:
    """Return whether all values of a metric say right or wrong, and some are given."""
    if any(isinstance(value, (list, dict)) for value in values):
        return False
    return set(values) != {None} and set(values) <= set(_VERDICTS)


def _set_correct(collected: CollectedAnswers, metric: str) -> None:
    """Set the column `correct` of the answers of each response to its value of a metric."""
    rows_by_owner: dict[int, list[int]] = {}
    for row, owner in enumerate(collected.owners):
        rows_by_owner.setdefault(owner, []).append(row)
    for owner, rows in rows_by_owner.items():
        response = collected.responses[owner]
        if response.is_of("lm-eval"):
            rows = harness.judged_rows(metric, rows, collected.columns)
        for row in rows:
            verdict = (response.verdicts or {}).get(metric)
            collected.columns["correct"][row] = _VERDICTS[verdict]
