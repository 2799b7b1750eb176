"""The verdicts of logs on their answers."""

from pathlib import Path
from typing import Any

from pro_lib.common.files import RunError
from pro_lib.importing.collected_answers import CollectedAnswers

# The values of verdicts; partly right (P) is neither right nor wrong.
_VERDICTS = {"C": True, "I": False, "N": False, "P": None, 1: True, 0: False, None: None}


def set_verdicts(collected: CollectedAnswers, metric: str | None, path: Path) -> list[str]:
    """Set the column `correct` of answers to the verdicts of their log, if it has any.

    The values of a metric are verdicts if all of them are 0 or 1, or the letters of inspect_ai.

    Args:
        collected: the answers.
        metric: the name of the metric; None for the first one whose values are verdicts.
        path: the file, for messages.

    Returns:
        Messages: one if the values of the first metric are not verdicts.

    Raises:
        RunError: the log has no such metric.
    """
    values: dict[str, list[Any]] = {}
    for response in collected.responses:
        for name, value in (response.log_metrics or {}).items():
            values.setdefault(name, []).append(value)
    names = [name for name, all_values in values.items() if _are_verdicts(all_values)]
    choices = ", ".join(names) or "none"
    chosen = metric or next(iter(names), None)
    if chosen is not None:
        if chosen not in names:
            raise RunError(
                f"{path} has no verdicts {chosen!r}; metrics and scorers of 0 and 1 are: {choices}"
            )
        _set_correct(collected, chosen)
    first = next(iter(values), None)
    if first is None or first == chosen or metric is not None:
        return []
    note = f"{first!r} of the log has other values than 0 and 1, so it is no verdict"
    if chosen is not None:
        note += f"; {chosen!r} is used instead; choose with --correctness log:NAME among {choices}"
    return [note]


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
        judged_rows = response.response_format and response.response_format.judged_rows
        if judged_rows:
            rows = judged_rows(metric, rows, collected.columns)
        verdict = _VERDICTS[(response.log_metrics or {}).get(metric)]
        for row in rows:
            collected.columns["correct"][row] = verdict
