"""AUROC by labels of a sample beside AUROC by ROUGE-L, and tables of labels (notebook 10)."""

from collections.abc import Sequence

import pandas as pd

from pro_lib.labels.answer_units import ROUGE_BINS, scores_at_alphas
from pro_lib.labels.estimates import LabelledSplits, shown_or_why
from pro_lib.labels.file import labeller_agreement
from pro_lib.labels.sampled_verdicts import BY_LABELS
from pro_lib.plots.captions import (
    comparison,
    corrected,
    join_caption,
    listed,
    percent_span,
    span,
)
from pro_lib.plots.figure import checked_table, row_figure
from pro_lib.plots.settings import method_aurocs, method_labels, per_setting, with_setting
from pro_lib.plots.style import Figure, drawn_methods

_QUANTITIES = {"AUROC minus that of NLL": "auroc_minus_nll", "AUROC": "auroc"}
_JUDGE_NAMES = {"labels": "by labels of a sample", "rouge_l": "by ROUGE-L of all answers"}
JUDGES = ("labels", "rouge_l")
_SHOWN = (
    "AUROC of each method minus that of NLL (left; above 0 is better), and AUROC (right), with "
    "95 % confidence intervals, by ROUGE-L > 0.3 for the n answers that the sample is drawn from "
    "(without test questions whose judged answer is not one of these), and by labels of {n} "
    "answers{given}, drawn at random. A model predicts the other labels from ROUGE-L and other "
    "properties of the answers, and the labels correct its bias (prediction-powered inference). "
    f"{corrected('methods and settings', has_symbols=False)}"
)


@per_setting
def table(setting: LabelledSplits) -> list[pd.DataFrame]:
    """Return AUROC of every method by labels of a sample, and by ROUGE-L for all answers.

    Both are about the same questions: those whose judged answer is one of the plan's answers. PRO
    and other scores that need an α have the one that ROUGE-L chooses on the validation questions.

    Columns: those of the setting, in which n_correct of the rows by labels is an estimate. judge is
    `labels` or `rouge_l`. method, similarity, alpha and alpha_choice describe the score. auroc has
    its interval, and the difference to NLL by the same judge the columns of
    `settings.aurocs`. n_labels, n_right, n_wrong and n_effective are about the
    labels of these answers. shown is `yes`, or why there is no AUROC.
    """
    estimated = setting.sample.with_labels(setting.splits.reported)
    judged = estimated.without_labels()
    alphas = setting.splits.alphas_of(estimated.alpha_names)
    scores = scores_at_alphas(estimated, alphas)
    parts = []
    for judge, evaluation in zip(JUDGES, (estimated, judged), strict=True):
        columns = {"judge": judge, **method_aurocs(scores, evaluation, alphas=alphas)}
        parts.append(with_setting(columns, evaluation))
    rows = pd.concat(parts, ignore_index=True)
    is_hidden = (rows["judge"] == "labels") & rows["auroc"].isna()
    labels = setting.sample.planned_answers(judged).judgement(setting.sample.labels)
    return [rows.assign(**labels.counts, shown=shown_or_why(is_hidden, labels.problem))]


@per_setting
def counts(setting: LabelledSplits) -> list[pd.DataFrame]:
    """Return how many answers and labels each bin of ROUGE-L has.

    Answers with the same words to the same question count once.

    Columns: those of the setting, rouge_l_bin and n_answers. n_first and n_second are the labels of
    the two phases. n_right, n_wrong and n_undecided are the decided labels and the others.
    labelled_share is the share of the answers that have a label.
    """
    planned = setting.sample.planned_answers(setting.splits.reported)
    answers = planned.answers
    labels = planned.judgement(setting.sample.labels).merged
    is_right = labels["correct"].map(lambda value: value is True)
    is_wrong = labels["correct"].map(lambda value: value is False)
    columns = pd.DataFrame(
        {
            "rouge_l_bin": pd.Categorical.from_codes(answers.strata, ROUGE_BINS),
            "n_answers": 1,
            "n_first": labels["phase"] == 1,
            "n_second": labels["phase"] == 2,
            "n_right": is_right,
            "n_wrong": is_wrong,
            "n_undecided": labels["phase"].notna() & ~is_right & ~is_wrong,
        }
    )
    rows = columns.groupby("rouge_l_bin", observed=False).sum().reset_index()
    rows["rouge_l_bin"] = rows["rouge_l_bin"].astype(str)
    n_labels = rows["n_first"] + rows["n_second"]
    rows["labelled_share"] = n_labels / rows["n_answers"].where(rows["n_answers"] > 0)
    return [with_setting(rows, answers.evaluation)]


@per_setting
def agreement(setting: LabelledSplits) -> list[pd.DataFrame]:
    """Return the estimated accuracy, and how often each automatic judge agrees with the labels.

    Columns: those of `LabelSample.judge_agreement`, a row per setting and judge.
    """
    return [setting.sample.judge_agreement(setting.splits.reported)]


def labellers(settings: Sequence[LabelledSplits]) -> pd.DataFrame:
    """Return how often each labeller gave the same label twice, and agrees with each other one.

    Settings may share a label file, whose labels count once.

    Columns: labeller; other_labeller, None for the labeller's own repetitions; n_both, the answers
    with two decided labels; n_same; agreement with its 95 % interval; kappa, Cohen's κ, NaN for
    repetitions.
    """
    samples = {}
    for setting in settings:
        sample = setting.sample
        planned = sample.planned_answers(setting.splits.reported)
        samples[sample.plan.digest] = planned.current_labels(sample.labels).labels
    labels = pd.concat(samples.values(), ignore_index=True)
    return labeller_agreement(labels)


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw AUROC of each method and its difference to NLL, by labels and by ROUGE-L.

    Every setting has two panels: the differences to NLL, and the AUROCs. A method without an
    estimate from labels has the words `not shown`.

    Args:
        table: needs the columns judge (`labels` or `rouge_l`), method, auroc and auroc_minus_nll,
            both with the ends of their intervals. It may have similarity, dataset, model, protocol
            and n_questions. Methods that figures do not draw are left out.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    needed = ["judge", "method"]
    for name in _QUANTITIES.values():
        needed += [name, f"{name}_low", f"{name}_high"]
    table = checked_table(table, needed, "label_answers")
    table = table[drawn_methods(table)].assign(judged=table["judge"].replace(_JUDGE_NAMES))
    table = table.assign(row=method_labels(table))
    with row_figure(
        table.drop(columns="n_questions", errors="ignore"),
        *("model", "dataset", "protocol"),
        value=_QUANTITIES,
        group="judged",
        title="AUROC by labels and by ROUGE-L",
        figure_columns=figure_columns,
        per_line=2,
        row_height=0.22,
        least_row_height=0.2,
        sharex=False,
        missing="not shown",
        untitled=["quantity"],
    ) as (figure, panels):
        for ax, rows in panels:
            ax.set_xlabel(rows["quantity"].iloc[0])
    return figure


def caption(table: pd.DataFrame, labellers: Sequence[str] = ()) -> str:
    """Say which methods differ from NLL by the labels, and whether ROUGE-L shifts AUROC of NLL.

    Args:
        table: the table that is drawn.
        labellers: the names of those who gave the labels.
    """
    table = table[drawn_methods(table)]
    table = table.assign(accuracy=table["n_correct"] / table["n_questions"])
    given = f" (given by {listed(labellers)})" if len(labellers) else ""
    by_labels = table[(table["judge"] == BY_LABELS) & (table["method"] != "NLL")]
    known = by_labels[by_labels["p_value"].notna()]
    findings = [f"No difference to NLL is estimated ({by_labels['shown'].iloc[0]})."]
    if len(known):
        pro = known[known["method"] == "PRO"]
        nll = table[table["method"] == "NLL"].groupby("judge")
        aurocs = nll["auroc"].agg(span)
        shares = nll["accuracy"].agg(percent_span)
        findings = [
            comparison(pro, "By the labels, PRO", family=known).removesuffix("."),
            f"; AUROC of NLL is {aurocs[BY_LABELS]} by the labels and {aurocs['rouge_l']} by "
            f"ROUGE-L, and {shares[BY_LABELS]} and {shares['rouge_l']} of the answers are correct; "
            "few labels suffice if both nearly agree.",
        ]
    n = span(table["n_labels"], "{:,.0f}")
    return join_caption(_SHOWN.format(given=given, n=n), table, "".join(findings))
