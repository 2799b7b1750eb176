"""The findings about guarantees, answer sets and the entropy (notebook 09)."""

from __future__ import annotations

import pandas as pd

from pro_lib.evaluation.findings.statements import in_settings, percent, percent_span, span


def guarantees(table: pd.DataFrame) -> str:
    """Return the findings of notebook 09 from the table of `tables.guarantees`."""
    confidence = f"{100 * table['confidence'].iloc[0]:g} % confidence, each by itself"
    n_settings = len(table[["dataset", "model"]].drop_duplicates())
    methods = "methods" if n_settings == 1 else "pairs of a method and a setting"
    sentences = []
    for target, rows in table.groupby("target"):
        goal = f"An accuracy of at least {percent(target)} is guaranteed"
        guaranteed = rows[rows["threshold"].notna()]
        if guaranteed.empty:
            reason = "the validation questions do not show it"
            sentences.append(f"{goal} for none of the {len(rows)} {methods}: {reason}.")
            continue
        sentences.append(
            f"{goal} for {len(guaranteed)} of {len(rows)} {methods} ({confidence}). They "
            f"answer {percent_span(guaranteed['coverage'])} of the questions"
            f"{_accuracy_words(guaranteed, target)}"
        )
    return "\n\n".join(sentences)


def _accuracy_words(guaranteed: pd.DataFrame, target: float) -> str:
    """Return the end of the sentence: how accurate the answers are, if that is known."""
    answered = guaranteed[guaranteed["coverage"] > 0]
    known = answered.dropna(subset=["accuracy"])
    if known.empty:
        reason = "The labels do not suffice to estimate how many of these answers are correct."
        return f". {reason}" if len(answered) else "."
    which = f"these {len(guaranteed)}"
    if len(known) < len(answered):
        which = f"the {len(known)} for which the labels suffice"
    n_below = int((known["accuracy_high"] < target).sum())
    return (
        f", and {percent_span(known['accuracy'])} of these answers are correct. The 95 % "
        f"interval of this accuracy is entirely below the target for {n_below} of {which}."
    )


def answer_sets(table: pd.DataFrame) -> str:
    """Return the findings of notebook 09 from the table of `tables.answer_sets`, if it has rows."""
    if table.empty:
        return ""
    sentences = []
    for delta, rows in table.dropna(subset=["delta"]).groupby("delta"):
        goal = (
            f"Sets that may miss every correct answer for at most {percent(delta)} of the questions"
        )
        issued = rows.dropna(subset=["alpha"])
        if issued.empty:
            reason = "the search finds a correct answer for too few validation questions"
            sentences.append(f"{goal} cannot be issued: {reason}.")
            continue
        where = "" if len(rows) == 1 else f" {in_settings(len(issued), len(rows))}"
        ends = pd.concat([issued["missed_low"], issued["missed_high"]])
        sentences.append(
            f"{goal} consist of the answers with p ≥ {span(issued['alpha'])}{where}. They miss "
            f"{percent_span(issued['missed'])} (95 % confidence interval {percent_span(ends)}), "
            f"and have {span(issued['set_size'], '{:.1f}')} answers on average."
        )
    return "\n\n".join(sentences)


def entropies(table: pd.DataFrame) -> str:
    """Return the findings of notebook 09 from the table of `tables.entropies`, if it has rows."""
    if table.empty:
        return ""
    table = table.assign(width=table["entropy_high"] - table["entropy_low"])
    by_setting = table.groupby(["dataset", "model"], sort=False)
    means = by_setting[["entropy", "tree_bound", "width"]].mean()
    sentence = (
        f"The entropy is {span(means['entropy'], '{:.2f}')} nats on average over questions; the "
        f"tree bound of the search is {span(means['tree_bound'], '{:.2f}')} nats."
    )
    if means["width"].isna().any():
        return f"{sentence} One sample does not give an interval."
    width = span(means["width"], "{:.1f}")
    return f"{sentence} The 95 % limits of a single question are {width} nats apart on average."
