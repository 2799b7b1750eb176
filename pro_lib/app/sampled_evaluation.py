"""Labels of a sample of answers, as the judgement of the answers that `pro score` scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pro_lib.evaluation.alpha_choice import AlphaChoice, given_alpha
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Evaluation
from pro_lib.labels.answer_units import prepare_answers
from pro_lib.labels.estimates import LabelSample
from pro_lib.runs.run import Run


def labelled_questions(run: Run, sample: LabelSample) -> Run:
    """Return the questions of the splits that have a question of a sample's plan.

    They are all questions if none is one of the plan.
    """
    planned_ids = [question_id for _, question_id, _ in sample.plan.answers]
    splits = run.questions["split"].astype(object).fillna("")
    is_planned = run.questions["question_id"].astype(str).isin(planned_ids)
    is_labelled = splits.isin(splits[is_planned])
    if not is_labelled.any():
        return run
    return run.select(question_ids=list(run.questions["question_id"][is_labelled]))


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
        cls, sample: LabelSample, judged: Evaluation, run: Run, labelled: Run, alpha: float | None
    ) -> SampledEvaluation:
        """Judge the answers of the labelled split by a sample of labels.

        Args:
            sample: the labels.
            judged: the answers, judged by another rule.
            run: their run.
            labelled: the part of the run from which the sample is (`labelled_questions`).
            alpha: α of PRO; None chooses it on the validation questions.
        """
        is_labelled = judged.answers["question_id"].isin(labelled.questions["question_id"])
        ordered, alphas, sentence = prepare_answers(judged.select(is_labelled), run)
        choice = AlphaChoice(alphas.get("PRO", DEFAULT_ALPHA), sentence, is_final=True)
        if alpha is not None:
            choice = replace(given_alpha(alpha, run.search_alpha), is_final=True)
            alphas = dict.fromkeys(alphas, alpha)
        return cls(sample, sample.with_labels(ordered), alphas, choice)
