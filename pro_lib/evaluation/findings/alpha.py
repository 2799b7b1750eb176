"""The findings about α, K and the ROUGE-L threshold (notebooks 02 to 05)."""

from __future__ import annotations

import pandas as pd

from pro_lib.common.method_labels import method_labels
from pro_lib.evaluation.findings.statements import (
    by_protocol,
    comparison,
    has_enough,
    signed_span,
    span,
)


def alpha_sweep(choices: pd.DataFrame) -> str:
    """Return the findings of notebook 02 from the table of `tables.alpha_choices`."""
    paragraphs = []
    for words, rows in by_protocol(choices):
        chosen = rows[rows["alpha_choice"] == "validation"]
        default = rows[rows["alpha_choice"] == "default"]
        names = {
            "validation": "PRO with α chosen on validation questions",
            "default": f"PRO with the default α = {default['alpha'].iloc[0]:g}",
        }
        sentences = [
            f"{words}, the α chosen on validation questions is {span(chosen['alpha'], '{:g}')}.",
            comparison(chosen, names["validation"], "NLL", "auroc_minus_nll"),
        ]
        if has_enough(rows).any():
            sentences.append(comparison(default, names["default"], "NLL", "auroc_minus_nll"))
            sentences.append(_oracle_sentence(rows[has_enough(rows)]))
        paragraphs.append(" ".join(sentences))
    return "\n\n".join(paragraphs)


def _oracle_sentence(rows: pd.DataFrame) -> str:
    """Return by how much the oracle exceeds the α chosen on validation questions."""
    setting = ["dataset", "model"]
    aurocs = rows.pivot_table(index=setting, columns="alpha_choice", values="auroc", sort=False)
    gains = aurocs["oracle"] - aurocs["validation"]
    return (
        f"The oracle, the best α on the reported questions themselves, has an AUROC that is "
        f"{signed_span(gains)} higher than the α chosen on validation questions. Part of this gain "
        f"is chance, because the same questions choose α and measure it."
    )


def rouge_thresholds(table: pd.DataFrame) -> str:
    """Return the findings of notebook 05 from the table of `tables.rouge_thresholds`."""
    paragraphs = []
    for words, rows in by_protocol(table):
        ends = sorted({rows["rouge_threshold"].min(), rows["rouge_threshold"].max()})
        sentences = [f"{words}:"]
        for threshold in ends:
            at_end = rows[(rows["method"] == "PRO") & (rows["rouge_threshold"] == threshold)]
            subject = f"At ROUGE-L > {threshold:g}, PRO with α chosen on validation questions"
            sentences.append(comparison(at_end, subject, "NLL", "auroc_minus_nll"))
        if len(ends) > 1:
            sentences.append(_order_sentence(rows, *ends))
        paragraphs.append(" ".join(filter(None, sentences)))
    return "\n\n".join(paragraphs)


def _order_sentence(rows: pd.DataFrame, first: float, last: float) -> str:
    """Return how far the threshold moves AUROCs and their order, where answers are enough."""
    setting = ["dataset", "model"]
    setting_columns = [rows[name] for name in setting]
    is_kept = has_enough(rows).groupby(setting_columns).transform("all")
    kept = rows[is_kept]
    if kept.empty:
        return ""
    by_method = kept.assign(label=method_labels(kept)).pivot_table(
        index=[*setting, "label"], columns="rouge_threshold", values="auroc"
    )
    moves = by_method.max(axis=1) - by_method.min(axis=1)
    dataset, model, label = moves.idxmax()
    where = f"({label}, {model} on {dataset})"
    text = f"The threshold changes no AUROC by more than {moves.max():.3f} {where}."
    taus = pd.Series(
        [
            part[first].corr(part[last], method="kendall")
            for _, part in by_method.groupby(setting, sort=False)
        ]
    ).dropna()
    if taus.empty:
        return f"{text} The order of the methods cannot be compared, because they tie."
    return (
        f"{text} Kendall's τ between the order of the methods at {first:g} and that at {last:g} is "
        f"{span(taus, '{:.2f}')} (1 is the same order). Whether the threshold changes the order of "
        f"two methods was not tested."
    )
