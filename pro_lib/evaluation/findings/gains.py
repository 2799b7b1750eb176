"""The findings about the gain of PRO over NLL (notebook 08)."""

from __future__ import annotations

import pandas as pd

from pro_lib.evaluation.findings.settings import SettingCounts, count_beyond_chance
from pro_lib.evaluation.findings.statements import (
    difference_values,
    has_enough,
    has_interval,
    left_out_sentence,
    listed,
    missing_interval_reason,
    signed,
    signed_span,
    significant_tests,
)
from pro_lib.evaluation.tables.gains import BOTH_VARIED


def when_does_pro_help(worlds: pd.DataFrame, causes: pd.DataFrame) -> str:
    """Return the findings of notebook 08.

    Args:
        worlds: the table of `tables.worlds`.
        causes: the table of `tables.causes`.
    """
    return "\n\n".join([worlds_sentences(worlds), causes_sentences(causes)])


def worlds_note(rows: pd.DataFrame, family: pd.DataFrame) -> str:
    """Say in how many of the worlds of a figure PRO is better than NLL, and in how many worse.

    Args:
        rows: the rows of `tables.worlds` that the figure shows.
        family: the whole table; Holm's correction is for all comparisons in it.
    """
    counts = _count_worlds(rows, family)
    return (
        "Significant after Holm's correction for all worlds, α and K: in "
        f"{counts.higher} of {counts.n_settings} worlds PRO is better than NLL with at least one "
        f"of these α and K, and in {counts.lower} it is worse with at least one. A world can count "
        "for both."
    )


def _one_per_world(worlds: pd.DataFrame) -> pd.DataFrame:
    """Return each comparison once.

    The base world is in several groups of the table.
    """
    return worlds.drop_duplicates(["world", "k_choice", "k", "alpha"])


def _count_worlds(rows: pd.DataFrame, family: pd.DataFrame) -> SettingCounts:
    """Return in how many of some worlds PRO is significantly better or worse than NLL."""
    every = _one_per_world(family)
    some = every[every["world"].isin(rows["world"])]
    return count_beyond_chance(some, family=every, difference="auroc_minus_nll", by=["world"])


def worlds_sentences(worlds: pd.DataFrame) -> str:
    """Return the findings of the simulated worlds."""
    every = _one_per_world(worlds)
    counts = _count_worlds(worlds, worlds)
    scores = listed(dict.fromkeys(_score_names(every)))
    most = every.loc[every["auroc_minus_nll"].idxmax()]
    low, high = (signed(most[f"auroc_minus_nll_{end}"]) for end in ("low", "high"))
    is_ideal = (every["calibration"] == 1) & (every["n_spellings"] == 1)
    ideal = every[is_ideal]
    ideal_counts = _count_worlds(ideal, worlds)
    sentences = [
        f"PRO with at least one of the choices {scores} is significantly better than NLL in "
        f"{counts.higher} of {counts.n_settings} simulated worlds. It is significantly worse with "
        f"at least one of them in {counts.lower}.",
        f"The largest gain is {signed(most['auroc_minus_nll'])} (95 % confidence interval {low} to "
        f"{high}), with {_score_names(most.to_frame().T)[0]} in the world with "
        f"{_world_name(most)}. "
        f"It is the largest of {len(every)} values, so part of it is chance.",
    ]
    if len(ideal):
        sentences.append(
            f"In the {ideal_counts.n_settings} worlds of a calibrated model with one spelling of "
            f"each meaning, PRO is significantly better in {ideal_counts.higher} and significantly "
            f"worse in {ideal_counts.lower} (differences {signed_span(ideal['auroc_minus_nll'])})."
        )
    return " ".join(sentences)


def causes_sentences(causes: pd.DataFrame) -> str:
    """Return a list with a line per cause.

    Holm's correction is for all comparisons in it.
    """
    setting = causes.iloc[:1]
    if not has_enough(setting).all():
        return left_out_sentence(setting)
    if not has_interval(causes, "auroc_minus_nll").all():
        return (
            f"{setting['model'].iloc[0]} on {setting['dataset'].iloc[0]}: the differences between "
            f"PRO and NLL have no intervals, because {missing_interval_reason(causes)}."
        )
    is_significant = significant_tests(causes)
    row = setting.iloc[0]
    lines = [f"{row['model']} on {row['dataset']}, {row['n_questions']:,} questions:\n"]
    for cause, rows in causes.groupby("cause", sort=False):
        difference = rows["auroc_minus_nll"]
        parts = []
        for words, chosen in (
            ("significantly better than NLL", is_significant[rows.index] & (difference > 0)),
            ("significantly worse than NLL", is_significant[rows.index] & (difference < 0)),
            ("not significantly different from NLL", ~is_significant[rows.index]),
        ):
            shown = rows[chosen]
            if len(shown):
                scores = listed(_score_names(shown))
                parts.append(f"{words} with {scores} {difference_values(shown, 'auroc_minus_nll')}")
        lines.append(f"- {str(cause).capitalize()}: PRO is {'; it is '.join(parts)}.")
    return "\n".join(lines)


def _score_names(rows: pd.DataFrame) -> list[str]:
    """Return the choice of K of each row, such as "K = 2" or "α = 0.4"."""
    names = []
    for row in rows.to_dict("records"):
        is_adaptive = row["k_choice"] == "adaptive"
        names.append(f"α = {row['alpha']:g}" if is_adaptive else f"K = {row['k']}")
    return names


def _world_name(row: pd.Series) -> str:
    """Return the properties of a world in words."""
    if row["varied"] == BOTH_VARIED:
        return f"calibration {row['calibration']:g} and {row['level']} spellings of each meaning"
    return f"{row['varied']} {row['level']}"
