"""The findings about AUROC by labels of a sample (notebook 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from pro_lib.common.method_labels import method_labels
from pro_lib.evaluation.findings.statements import (
    by_protocol,
    difference_values,
    listed,
    significant_tests,
)


def label_answers(estimates: pd.DataFrame, agreement: pd.DataFrame, labellers: pd.DataFrame) -> str:
    """Return the findings of notebook 10.

    Args:
        estimates: the table of `tables.label_estimates`.
        agreement: the table of `tables.label_agreement`.
        labellers: the table of `tables.labellers`.
    """
    paragraphs = []
    for words, rows in by_protocol(estimates):
        for _, setting in rows.groupby(["dataset", "model"], sort=False):
            paragraphs.append(_difference_sentences(words, setting))
    once = estimates.drop_duplicates(["dataset", "model", "judge", "method", "similarity"])
    for (dataset, model), setting in once.groupby(["dataset", "model"], sort=False):
        is_same = (agreement["dataset"] == dataset) & (agreement["model"] == model)
        paragraphs.append(_judge_sentences(setting, agreement[is_same]))
    paragraphs.append(_labeller_sentences(labellers))
    return "\n\n".join(text for text in paragraphs if text)


def _difference_sentences(words: str, rows: pd.DataFrame) -> str:
    """Return which methods differ significantly from NLL by the labels, in one setting."""
    by_labels = rows[(rows["judge"] == "labels") & (rows["method"] != "NLL")]
    where = f"{words}, {by_labels['model'].iloc[0]} on {by_labels['dataset'].iloc[0]}"
    known = by_labels[by_labels["p_value"].notna()]
    if known.empty:
        return f"{where}: no difference to NLL is estimated ({by_labels['shown'].iloc[0]})."
    is_significant = significant_tests(known)
    sign = known["auroc_minus_nll"]
    parts = []
    for chosen, verb in (
        (is_significant & (sign > 0), "significantly better than NLL"),
        (is_significant & (sign < 0), "significantly worse than NLL"),
    ):
        if chosen.any():
            parts.append(_methods_with_values(known[chosen], f"by the labels, {verb}: "))
    others = known[~is_significant]
    if len(others):
        parts.append(_methods_with_values(others, "the labels show no difference to NLL: "))
    return f"{where}: {'; '.join(parts)}."


def _methods_with_values(rows: pd.DataFrame, words: str) -> str:
    return f"{words}{listed(method_labels(rows))} {difference_values(rows, 'auroc_minus_nll')}"


def _judge_sentences(rows: pd.DataFrame, agreement: pd.DataFrame) -> str:
    """Return how accuracy and AUROC of NLL by the labels compare with those by ROUGE-L."""
    nll = rows[rows["method"] == "NLL"].set_index("judge")
    if nll.empty:
        return ""
    by_labels = nll.loc["labels"]
    by_rouge = nll.loc["rouge_l"]
    if not by_labels["n_labels"]:
        return f"{by_labels['model']} on {by_labels['dataset']}: no answer has a label."
    sentences = [
        f"{by_labels['model']} on {by_labels['dataset']}: {by_labels['n_labels']:.0f} labels "
        f"({by_labels['n_right']:.0f} right, {by_labels['n_wrong']:.0f} wrong)."
    ]
    rouge = agreement[agreement["judge"] == "rouge_l"]
    if len(rouge) and pd.notna(rouge["accuracy"].iloc[0]):
        row = rouge.iloc[0].to_dict()
        accuracy = _with_interval(row, "accuracy")
        sentences.append(
            f"By the labels, the accuracy is {accuracy}; by ROUGE-L, it is "
            f"{row['accuracy_by_judge']:.3f}."
        )
        if pd.notna(row["agreement"]):
            sentences.append(
                f"ROUGE-L agrees with the labels on {_with_interval(row, 'agreement')}."
            )
    if pd.isna(by_labels["auroc"]):
        return " ".join([*sentences, f"AUROC of NLL is not shown ({by_labels['shown']})."])
    is_inside = by_labels["auroc_low"] <= by_rouge["auroc"] <= by_labels["auroc_high"]
    outcome = "do not show that ROUGE-L shifts it" if is_inside else "show that ROUGE-L shifts it"
    sentences.append(
        f"AUROC of NLL is {_with_interval(by_labels.to_dict(), 'auroc')} by the labels and "
        f"{by_rouge['auroc']:.3f} by ROUGE-L, so the labels {outcome}."
    )
    return " ".join(sentences)


def _with_interval(row: Mapping[str, Any], name: str) -> str:
    low = row[f"{name}_low"]
    high = row[f"{name}_high"]
    return f"{row[name]:.3f} (95 % confidence interval {low:.3f} to {high:.3f})"


def _labeller_sentences(labellers: pd.DataFrame) -> str:
    """Return how consistent each labeller is, and how often two labellers agree."""
    sentences = []
    for row in labellers.to_dict("records"):
        counts = f"{row['n_same']} of {row['n_both']} answers"
        if not row["n_both"]:
            continue
        if pd.isna(row["other_labeller"]):
            sentences.append(
                f"Labeller `{row['labeller']}` gave the same label to {counts} shown twice."
            )
            continue
        kappa = "" if pd.isna(row["kappa"]) else f" (Cohen's κ {row['kappa']:.2f})"
        pair = f"`{row['labeller']}` and `{row['other_labeller']}`"
        sentences.append(f"Labellers {pair} agree on {counts}{kappa}.")
    return " ".join(sentences)
