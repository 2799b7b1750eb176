"""AUROC by labels of a sample beside AUROC by ROUGE-L, and tables about the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pro_lib.evaluation.evaluation import Evaluation, Splits
from pro_lib.evaluation.sweeps import chosen_alpha
from pro_lib.evaluation.tables.settings import (
    auroc_columns,
    method_columns,
    nll_comparison_columns,
    with_setting,
)
from pro_lib.labels.answers import ROUGE_BINS, collect_answers
from pro_lib.labels.estimates import OUTSIDE, LabelSample
from pro_lib.labels.file import labeller_agreement

JUDGES = ("labels", "rouge_l")


@dataclass(frozen=True)
class LabelledSplits:
    """The questions of a setting, with the labels of a sample of the reported answers.

    Attributes:
        splits: the validation questions and the reported questions.
        sample: the labels.
    """

    splits: Splits
    sample: LabelSample


def label_estimates(settings: Sequence[LabelledSplits]) -> pd.DataFrame:
    """Return AUROC of every method by labels of a sample, and by ROUGE-L for all answers.

    Both are about the same questions: those whose judged answer is one of the plan's answers. PRO
    and other scores that need an α have the one that ROUGE-L chooses on the validation questions.

    Columns: those of the setting, in which n_correct of the rows by labels is an estimate. judge is
    `labels` or `rouge_l`. method, similarity, alpha and alpha_choice describe the score. auroc has
    its interval, and the difference to NLL by the same judge the columns of
    `settings.nll_comparison_columns`. n_labels, n_right, n_wrong and n_effective are about the
    labels of these answers. shown is `yes`, or why there is no AUROC.

    Args:
        settings: the settings with their labels.
    """
    tables = [_setting_rows(setting.splits, setting.sample) for setting in settings]
    return pd.concat(tables, ignore_index=True)


def label_counts(settings: Sequence[LabelledSplits]) -> pd.DataFrame:
    """Return how many answers and labels each bin of ROUGE-L has.

    Answers with the same words to the same question count once.

    Columns: those of the setting, rouge_l_bin and n_answers. n_first and n_second are the labels of
    the two phases. n_right, n_wrong and n_undecided are the decided labels and the others.
    labelled_share is the share of the answers that have a label.

    Args:
        settings: the settings with their labels.
    """
    tables = [_bin_rows(setting.splits.reported, setting.sample) for setting in settings]
    return pd.concat(tables, ignore_index=True)


def label_agreement(settings: Sequence[LabelledSplits]) -> pd.DataFrame:
    """Return the estimated accuracy, and how often each automatic judge agrees with the labels.

    Columns: those of `LabelSample.judge_agreement`, a row per setting and judge.

    Args:
        settings: the settings with their labels.
    """
    tables = [setting.sample.judge_agreement(setting.splits.reported) for setting in settings]
    return pd.concat(tables, ignore_index=True)


def labellers(settings: Sequence[LabelledSplits]) -> pd.DataFrame:
    """Return how often each labeller gave the same label twice, and agrees with each other one.

    Settings may share a label file, whose labels count once.

    Columns: labeller; other_labeller, None for the labeller's own repetitions; n_both, the answers
    with two decided labels; n_same; agreement with its 95 % interval; kappa, Cohen's κ, NaN for
    repetitions.

    Args:
        settings: the settings with their labels.
    """
    samples = {}
    for setting in settings:
        sample = setting.sample
        answers = collect_answers(setting.splits.reported)
        samples[sample.plan.digest] = sample.plan.current_labels(sample.labels, answers).labels
    labels = pd.concat(samples.values(), ignore_index=True)
    return labeller_agreement(labels)


def _setting_rows(setting: Splits, sample: LabelSample) -> pd.DataFrame:
    """Return the rows of one setting, by labels first."""
    estimated = sample.with_labels(setting.reported)
    judged = estimated.without_labels()
    names = estimated.alpha_names
    alphas = {name: chosen_alpha(setting, name=name) for name in names}
    scores = estimated.with_pro(alphas)
    first = [name for name in ("NLL", "PRO") if name in scores]
    scores = scores[[*first, *scores.columns.drop(first)]]
    parts = []
    for judge, evaluation in zip(JUDGES, (estimated, judged), strict=True):
        columns = {
            "judge": judge,
            **method_columns(list(scores), alphas=alphas),
            **auroc_columns(scores.to_numpy(), evaluation),
            **nll_comparison_columns(scores.to_numpy(), evaluation, is_nll=scores.columns == "NLL"),
        }
        parts.append(with_setting(pd.DataFrame(columns), evaluation))
    table = pd.concat(parts, ignore_index=True)
    is_hidden = (table["judge"] == "labels") & table["auroc"].isna()
    labels = sample.judgement(collect_answers(judged))
    shown = np.where(is_hidden, labels.problem or OUTSIDE, "yes")
    return table.assign(**labels.counts, shown=shown)


def _bin_rows(evaluation: Evaluation, sample: LabelSample) -> pd.DataFrame:
    """Return the rows of one setting, a row per bin of ROUGE-L."""
    answers = sample.planned_answers(evaluation)
    labels = sample.judgement(answers).merged
    has_label = labels["phase"].notna()
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
            "n_undecided": has_label & ~is_right & ~is_wrong,
        }
    )
    table = columns.groupby("rouge_l_bin", observed=False).sum().reset_index()
    table["rouge_l_bin"] = table["rouge_l_bin"].astype(str)
    n_labels = table["n_first"] + table["n_second"]
    table["labelled_share"] = n_labels / table["n_answers"].where(table["n_answers"] > 0)
    return with_setting(table, answers.evaluation)
