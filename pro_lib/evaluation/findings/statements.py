"""Statements that several findings share, and the rules by which they are made."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from scipy.special import ndtri

from pro_lib.common.judges import is_by_labels
from pro_lib.metrics.differences import holm

FEWEST = 20  # correct and wrong answers that a setting needs
LEVEL = 0.05  # of the tests, for all settings together
POWER = 0.8  # with which an effect is said to be detected
EFFECT = 0.02  # the difference in AUROC whose detection the texts report
PROTOCOLS = {
    "paper": "If repeats are counted (protocol `paper`)",
    "workbench": "If each answer counts once (protocol `workbench`)",
}


# --- Statements that several notebooks share ---


def comparison(
    rows: pd.DataFrame,
    subject: str,
    reference: str,
    quantity: str,
    *,
    family: pd.DataFrame | None = None,
) -> str:
    """Return one or two sentences about the paired differences between two methods.

    Args:
        rows: a row per setting, with n_questions, n_correct, dataset, model, p_value and the
            columns `<quantity>`, `<quantity>_low` and `<quantity>_high`.
        subject: the method, such as "PRO with α chosen on validation questions".
        reference: the method that it is compared with, such as "NLL".
        quantity: the column of the difference, subject minus reference, such as auroc_minus_nll.
        family: all comparisons that Holm's correction is over, a table that has `rows` by its
            index; None for these rows alone.
    """
    enough = rows[has_enough(rows)]
    kept = enough[has_interval(enough, quantity)]
    remarks = [
        _without_interval_sentence(enough.drop(index=kept.index), subject, reference),
        left_out_sentence(rows),
    ]
    sentences = []
    if len(kept):
        tests = kept if family is None else family[has_enough(family)]
        is_significant = significant_tests(tests).loc[kept.index]
        sentences.append(f"{subject} {_outcomes(kept, is_significant, reference, quantity)}.")
        others = kept[~is_significant]
        if len(others):
            sentences.append(_detectable_sentence(others, quantity, len(tests)))
    return " ".join(text for text in [*sentences, *remarks] if text)


def _outcomes(kept: pd.DataFrame, is_significant: pd.Series, reference: str, quantity: str) -> str:
    """Return in which settings a method is better, worse or not significantly different."""
    better = kept[is_significant & (kept[quantity] > 0)]
    worse = kept[is_significant & (kept[quantity] < 0)]
    others = kept[~is_significant]
    parts = []
    for comparative, shown in (("better", better), ("worse", worse)):
        if len(shown):
            where = in_settings(len(shown), len(kept))
            values = difference_values(shown, quantity)
            parts.append(f"is significantly {comparative} than {reference} {where} {values}")
    if len(others):
        where = in_settings(len(others), len(kept))
        if len(others) == len(kept) > 1:
            where = f"in any of the {len(kept)} settings"
        values = difference_values(others, quantity)
        parts.append(f"is not significantly different from {reference} {where} {values}")
    return ". It ".join(parts)


def by_protocol(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the rows of each protocol, with the words that begin a sentence about them.

    Example:
        >>> table = pd.DataFrame({"protocol": ["paper", "workbench"], "auroc": [0.7, 0.8]})
        >>> for words, rows in by_protocol(table):
        ...     print(words, rows["auroc"].tolist())
        If repeats are counted (protocol `paper`) [0.7]
        If each answer counts once (protocol `workbench`) [0.8]
    """
    parts = []
    for protocol, rows in table.groupby("protocol", sort=False):
        words = PROTOCOLS.get(str(protocol), f"In protocol `{protocol}`")
        parts.append((words, rows))
    return parts


def left_out_sentence(rows: pd.DataFrame) -> str:
    """Return the sentence about settings with too few answers, or nothing if there are none."""
    few = rows[~has_enough(rows)]
    if few.empty:
        return ""
    verb = "setting has" if len(few) == 1 else "settings have"
    reason = f"fewer than {FEWEST} correct or {FEWEST} wrong answers"
    names = _setting_names(few)
    return f"{len(few)} {verb} {reason}, too few for a statement ({names})."


def has_enough(rows: pd.DataFrame) -> pd.Series:
    """Return whether each setting has enough correct and enough wrong answers."""
    wrong = rows["n_questions"] - rows["n_correct"]
    return (rows["n_correct"] >= FEWEST) & (wrong >= FEWEST)


def has_interval(rows: pd.DataFrame, quantity: str) -> pd.Series:
    """Return whether the difference of each row has an interval, which needs five clusters."""
    return rows[f"{quantity}_low"].notna()


def significant_tests(tests: pd.DataFrame) -> pd.Series:
    """Return which of these tests are significant after Holm's correction over all of them."""
    return pd.Series(holm(tests["p_value"]) <= LEVEL, tests.index)


def missing_interval_reason(rows: pd.DataFrame) -> str:
    """Return why differences have no intervals, although there are enough right and wrong answers.

    Example:
        >>> missing_interval_reason(pd.DataFrame({"judge": ["labels"]}))
        'too few answers have labels'
    """
    if is_by_labels(rows):
        return "too few answers have labels"
    return "the questions are in too few clusters"


def _without_interval_sentence(rows: pd.DataFrame, subject: str, reference: str) -> str:
    """Return the sentence about differences without an interval, or nothing if there are none."""
    if rows.empty:
        return ""
    return (
        f"The difference between {subject} and {reference} has no interval in "
        f"{_number_of_settings(len(rows))}, because {missing_interval_reason(rows)} "
        f"({_setting_names(rows)})."
    )


def _number_of_settings(number: int) -> str:
    return "1 setting" if number == 1 else f"{number} settings"


def _setting_names(rows: pd.DataFrame) -> str:
    """Return the settings of rows as "model on dataset, model on dataset"."""
    return ", ".join(f"{row.model} on {row.dataset}" for row in rows.itertuples())


def in_settings(number: int, total: int) -> str:
    """Return in how many of the settings something holds, such as "in 2 of 4 settings"."""
    if total == 1:
        return "in the only setting"
    if number == total:
        return f"in all {total} settings"
    return f"in {number} of {total} settings"


def difference_values(rows: pd.DataFrame, quantity: str) -> str:
    """Return the differences with their confidence intervals, in parentheses."""
    if len(rows) == 1:
        [row] = rows.to_dict("records")
        low = signed(row[f"{quantity}_low"])
        high = signed(row[f"{quantity}_high"])
        text = f"difference {signed(row[quantity])}, 95 % confidence interval {low} to {high}"
    else:
        low = signed(rows[f"{quantity}_low"].min())
        high = signed(rows[f"{quantity}_high"].max())
        limits = f"95 % confidence intervals within {low} to {high}"
        text = f"differences {signed_span(rows[quantity])}, {limits}"
    return f"({text})"


def span(values: pd.Series, form: str = "{:.3f}") -> str:
    """Return the smallest and the largest value as text, or the only one.

    Example:
        >>> span(pd.Series([0.71234, 0.6, 0.8]))
        '0.600 to 0.800'
    """
    low, high = (form.format(value).replace("-", "−") for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def signed_span(values: pd.Series) -> str:
    """Return the smallest and the largest difference with their signs, or the only one.

    Example:
        >>> signed_span(pd.Series([0.012, -0.03]))
        '−0.030 to +0.012'
    """
    return span(values.round(3) + 0.0, "{:+z.3f}")


def percent_span(shares: pd.Series) -> str:
    """Return the smallest and the largest share in percent, with one decimal."""
    return f"{span(100 * shares, '{:.1f}')} %"


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.4g} %"


def percents(shares: pd.Series) -> str:
    """Return the smallest and the largest share in percent, or the only one."""
    return f"{span(100 * shares, '{:.0f}')} %"


def signed(value: float) -> str:
    """Return a difference with its sign and three decimals."""
    return f"{value:+z.3f}".replace("-", "−")


def listed(names: Iterable[str]) -> str:
    """Join names as "a, b and c"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _detectable_sentence(rows: pd.DataFrame, quantity: str, n_tests: int) -> str:
    """Return in how many settings an effect would have been detected with a probability of 80 %."""
    width = rows[f"{quantity}_high"] - rows[f"{quantity}_low"]
    standard_error = width / (2 * ndtri(0.975))
    smallest = (ndtri(1 - LEVEL / (2 * n_tests)) + ndtri(POWER)) * standard_error
    number = int((smallest <= EFFECT).sum())
    if number == 0:
        needed = span(smallest, "{:.2f}")
        return (
            f"There are too few questions to detect an effect of {EFFECT:g} or more, "
            f"only effects of about {needed}."
        )
    sentence = f"An effect of {EFFECT:g} or more would have been detected"
    if len(rows) == 1:
        return f"{sentence}."
    return f"{sentence} in {'all' if number == len(rows) else number} of them."
