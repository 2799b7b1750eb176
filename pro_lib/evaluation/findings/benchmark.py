"""The findings about all methods (notebook 06)."""

from __future__ import annotations

import pandas as pd

from pro_lib.common.judges import is_by_labels
from pro_lib.common.method_labels import method_labels
from pro_lib.evaluation.findings.statements import (
    by_protocol,
    comparison,
    difference_values,
    has_enough,
    has_interval,
    in_settings,
    left_out_sentence,
    percents,
    significant_tests,
    span,
)


def benchmark(table: pd.DataFrame, redraws: pd.DataFrame) -> str:
    """Return the findings of notebook 06.

    Args:
        table: the table of `tables.benchmark`.
        redraws: the table of `tables.redraws` of AUROC.
    """
    paragraphs = []
    for words, rows in by_protocol(table):
        protocol = rows["protocol"].iloc[0]
        is_further_row = rows["alpha_choice"].isin(["default", "oracle"])
        is_reference = (rows["method"] == "PRO") & ~is_further_row
        others = rows[~is_further_row & ~is_reference]
        enough = others[has_enough(others)]
        nll = _reversed_to_nll(others[others["method"] == "NLL"])
        sentences = [f"{words}:"]
        if len(nll):
            subject = "PRO with α chosen on validation questions"
            sentences.append(comparison(nll, subject, "NLL", "auroc_minus_nll", family=others))
        else:
            sentences.append(left_out_sentence(rows[is_reference]))
        if len(enough):
            sentences.append(_n_differ_sentence(nll[has_enough(nll)]))
            sentences.append(_redraws_sentence(redraws[redraws["protocol"] == protocol]))
        paragraphs.append(" ".join(text for text in sentences if text))
        paragraphs += _method_sentences(enough[has_interval(enough, "auroc_minus_pro")])
    return "\n\n".join(paragraphs)


def _reversed_to_nll(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of NLL minus PRO with the columns of PRO minus NLL."""
    return rows.assign(
        auroc_minus_nll=-rows["auroc_minus_pro"],
        auroc_minus_nll_low=-rows["auroc_minus_pro_high"],
        auroc_minus_nll_high=-rows["auroc_minus_pro_low"],
    )


def _n_differ_sentence(nll: pd.DataFrame) -> str:
    """Return on how many questions PRO and NLL differ."""
    if nll.empty:
        return ""
    sentence = f"The two scores differ on {span(nll['n_differ'], '{:,.0f}')} questions of a setting"
    n_same = int((nll["n_differ"] == 0).sum())
    if n_same:
        sentence = (
            f"{sentence}; {in_settings(n_same, len(nll))} they are the same on every question"
        )
    return f"{sentence}."


def _redraws_sentence(redraws: pd.DataFrame) -> str:
    """Return how often PRO is above NLL if α is chosen on other validation questions.

    The sentence is empty if the labels of a sample do not suffice for an AUROC.
    """
    shares = redraws.loc[has_enough(redraws), "share_better_than_nll"].dropna()
    if shares.empty and is_by_labels(redraws):
        return ""
    if shares.empty:
        return (
            "The validation questions cannot be redrawn, so it is not known how much the choice "
            "of α changes the AUROC of PRO."
        )
    return (
        f"If α is chosen on other validation questions, the AUROC of PRO on the same reported "
        f"questions is above that of NLL in {percents(shares)} of the redraws, by however little."
    )


def _method_sentences(others: pd.DataFrame) -> list[str]:
    """Return which methods differ significantly from PRO, and which are worse than chance."""
    others = others.assign(label=method_labels(others), is_significant=significant_tests(others))
    others = others[others["method"] != "NLL"]
    n_settings = others.groupby("label", sort=False).size()
    difference = others["auroc_minus_pro"]
    sentences = []
    for verb, has_sign in (("better", difference > 0), ("worse", difference < 0)):
        parts = []
        for label, shown in others[others["is_significant"] & has_sign].groupby(
            "label", sort=False
        ):
            where = in_settings(len(shown), n_settings[label])
            parts.append(f"{label} {where} {difference_values(shown, 'auroc_minus_pro')}")
        if parts:
            items = "\n".join(f"- {part}" for part in parts)
            sentences.append(f"Significantly {verb} than PRO:\n\n{items}")
    is_open = ~others.groupby("label")["is_significant"].transform("any")
    if is_open.any():
        names = ", ".join(dict.fromkeys(others.loc[is_open, "label"]))
        values = difference_values(others[is_open], "auroc_minus_pro")
        sentences.append(
            f"No significant difference to PRO was shown in any setting for {names} {values}."
        )
    below = others[others["auroc_high"] < 0.5].groupby("label", sort=False).size()
    if len(below):
        parts = [
            f"{label} {in_settings(number, n_settings[label])}" for label, number in below.items()
        ]
        sentences.append(
            f"Worse than chance, with a 95 % interval of AUROC that is entirely below 0.5: "
            f"{', '.join(parts)} (each interval by itself)."
        )
    return sentences
