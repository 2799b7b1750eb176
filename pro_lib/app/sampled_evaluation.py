"""Labels of a sample of answers, as the judgement of the answers that `pro score` scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from pro_lib.evaluation.alpha_choice import AlphaChoice, given_alpha
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Evaluation
from pro_lib.labels.answers import prepare_answers
from pro_lib.labels.estimates import LabelSample
from pro_lib.labels.planned_answers import PlannedAnswers
from pro_lib.runs.run import Run


@dataclass(frozen=True)
class SampledEvaluation:
    """Labels of a sample as the judgement of the answers of the labelled split.

    Attributes:
        sample: the labels.
        evaluation: the answers of the plan, judged by the labels.
        alphas: α of the scores that need one.
        alpha: α of PRO, and where it comes from.
    """

    sample: LabelSample
    evaluation: Evaluation
    alphas: Mapping[str, float]
    alpha: AlphaChoice

    @classmethod
    def of(
        cls, sample: LabelSample, judged: Evaluation, run: Run, alpha: float | None
    ) -> SampledEvaluation:
        """Judge the answers of the labelled split by a sample of labels.

        Args:
            sample: the labels.
            judged: the answers, judged by another rule.
            run: their run, whose splits decide which answers are reported.
            alpha: α of PRO; None chooses it on the validation questions.
        """
        splits = run.questions.set_index("question_id")["split"].astype(object).fillna("")
        split = splits.loc[judged.answers["question_id"]].to_numpy()
        is_planned = PlannedAnswers(sample.plan, judged).is_planned
        is_labelled = np.isin(split, np.unique(split[is_planned])) | ~is_planned.any()
        is_pool = (split == "validation") & ~is_labelled
        pool = judged.select(is_pool) if is_pool.any() else None
        ordered, alphas, sentence = prepare_answers(judged.select(is_labelled), pool)
        choice = AlphaChoice(alphas.get("PRO", DEFAULT_ALPHA), sentence, is_chosen=True)
        if alpha is not None:
            choice = replace(given_alpha(alpha, run.search_alpha), is_chosen=True)
            alphas = dict.fromkeys(alphas, alpha)
        return cls(sample, sample.with_labels(ordered), alphas, choice)
