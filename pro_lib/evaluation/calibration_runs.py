"""What a run with known right answers says about further answers of the same model."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from pro_lib import importing, metrics
from pro_lib.evaluation.guarantees import Guarantee, guarantee
from pro_lib.evaluation.run_evaluation import evaluate
from pro_lib.metrics.correctness import AnswerRules
from pro_lib.metrics.roc import FloatArray, need_both
from pro_lib.runs.run import Run


def run_guarantee(
    run: Run,
    *,
    target: float,
    confidence: float = 0.95,
    alpha: float = 0.4,
    rules: AnswerRules | None = None,
) -> Guarantee:
    """Return the guarantee that the validation questions of a run show, for PRO.

    The scores of the other questions are the thresholds. Without a validation split, all questions
    serve for both.

    Args:
        run: a run whose right answers are known.
        target: the accuracy to guarantee.
        confidence: the confidence with which the guarantee holds.
        alpha: α of PRO, which must be chosen before.
        rules: what makes an answer right.

    Raises:
        RunError: no answer can be judged.
    """
    is_validation = run.questions["split"] == "validation"
    has_both = 0 < is_validation.sum() < len(is_validation)
    split = "validation" if has_both else None
    validation = evaluate(run, split=split, rules=rules)
    thresholds = None
    if has_both:
        other_ids = list(run.questions["question_id"][~is_validation])
        others = evaluate(run.select(question_ids=other_ids), rules=rules)
        thresholds = others.pro(alpha)
    return guarantee(
        validation.pro(alpha),
        validation.judgement.verdicts,
        target=target,
        confidence=confidence,
        unlabelled=thresholds,
        texts=validation.answers.get("text_number"),
    )


def right_probability(
    run: Run, *, alpha: float = 0.4
) -> tuple[Callable[[ArrayLike], FloatArray], str]:
    """Fit the probability that an answer is right to PRO.

    The function is fitted on the validation questions of the run and checked on the others. Without
    such a split, it is fitted on half of all questions. Only one question of each text is used. A
    wrong answer at the lowest score and a right one at the highest are added, so that no
    probability is 0 or 1. Calibration is not guaranteed.

    Args:
        run: a run whose right answers are known.
        alpha: α of PRO.

    Returns:
        The function from PRO (n,) in nats to probabilities (n,), and a sentence about the fit.

    Raises:
        RunError: no answer can be judged.
        OneClassError: all answers are right, or all are wrong.
        ValueError: as in `scoring.pro`.
    """
    if "validation" not in set(run.questions["split"]):
        run = replace(run, questions=run.questions.assign(split=None))  # so that one is drawn
    both = importing.split_records(run, n_validation=None)
    fitted = evaluate(both, split="validation").one_per_text()
    others = evaluate(both, split="test").one_per_text()
    need_both(fitted.correct, "a calibration")
    uncertainty = fitted.pro(alpha)
    scores = np.append(uncertainty, [uncertainty.min(), uncertainty.max()])
    labels = np.append(fitted.correct, [False, True])
    calibration = metrics.calibration(scores, labels, others.pro(alpha), others.correct)
    sentence = (
        f"calibrated on {len(fitted.correct):,} questions of {run.info.dataset}, "
        f"error {calibration.ece:.3f} on {len(others.correct):,} others"
    )
    return calibration.fit, sentence
