"""The sentences below the table of `pro score`: what its scores are, and how well they separate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pro_lib.app.score_table import ScoreTable
from pro_lib.common.files import RunError
from pro_lib.common.validation import printable

if TYPE_CHECKING:
    import pandas as pd

    from pro_lib.evaluation.evaluate import Evaluation
    from pro_lib.metrics.correctness import Choices
    from pro_lib.runs.run import Run

_FEW = 20  # right or wrong answers; fewer of one kind say little


def notes(scores: ScoreTable) -> list[str]:
    """Return sentences about the scores of the table: texts alone, and PRO that equals NLL."""
    lines = []
    if scores.run.is_texts:
        lines.append(
            "Texts alone: SC, Deg and SE are by counts of samples; "
            "PRO and NLL need log-probabilities."
        )
    if scores.n_texts_alone:
        share = f"{scores.n_texts_alone:,} of {len(scores.rows):,} questions"
        lines.append(f"{share} have texts alone: PRO and NLL need log-probabilities.")
        lines.append("SC, Deg and SE are by counts of samples.")
    if "n_kept" in scores.rows and scores.rows["n_kept"].max() == 1:
        lines.append(
            f"At α = {scores.alpha:g} one answer of each question is kept, and PRO is NLL; "
            "try a smaller --alpha."
        )
    return lines


def quality(run: Run, choices: Choices, *, alpha: float, is_required: bool) -> list[str]:
    """Return the accuracy, and AUROC of the scores with paired differences and 95 % intervals.

    The scores are PRO and NLL, or SC, Deg and SE if the run has texts without log-probabilities.

    Args:
        run: the run.
        choices: what makes an answer correct.
        alpha: α of PRO.
        is_required: whether it is an error if no answer can be judged.

    Raises:
        RunError: if no answer can be judged, and `is_required`.
    """
    try:
        evaluation = _evaluate(run, choices)
    except RunError as error:
        if is_required:
            raise
        remedy = "Right answers come with --questions, or --correctness and a file of labels."
        return [f"No accuracy: {printable(error)}. {remedy}"]
    exclusions = printable(evaluation.exclusions)
    if evaluation.one_class():
        return [exclusions, f"No AUROC: {printable(evaluation.one_class())}."]
    scores = evaluation.baselines
    if not run.is_texts:
        scores = evaluation.with_pro({"PRO": alpha})[["PRO", "NLL"]]
    lines = [exclusions, evaluation.cautions(), *_comparison_lines(evaluation, scores)]
    return [line for line in lines if line]


def _evaluate(run: Run, choices: Choices) -> Evaluation:
    """Judge the answers of a run; those of texts also get the scores that count samples."""
    from pro_lib import evaluation, scoring

    options: dict[str, Any] = {}
    if run.is_texts:
        options = {"samples": run, "similarities": {"lexical": scoring.lexical}}
    return evaluation.evaluate(run, choices=choices, **options)


def _comparison_lines(evaluation: Evaluation, scores: pd.DataFrame) -> list[str]:
    """Return AUROC of every score, and the paired differences to NLL or else to the first score."""
    from pro_lib import metrics

    reference = "NLL" if "NLL" in scores else str(scores.columns[0])
    comparison = metrics.compare_aurocs(
        scores,
        evaluation.correct,
        reference=reference,
        clusters=evaluation.answers.get("cluster"),
    )
    aurocs = []
    for row in comparison.itertuples():
        words = metrics.auroc_in_words(row.auroc, row.low, row.high)
        aurocs.append(f"{row.method} {words}")
    n_questions = len(evaluation.correct)
    accuracy = evaluation.correct.mean()
    where = f"on {n_questions:,} questions, {accuracy:.1%} right."
    lines = [" ".join([f"AUROC {', '.join(aurocs)} {where}", *_reservations(evaluation)])]
    differences = metrics.differences_in_words(comparison, reference)
    if differences:
        lines.append(f"Paired difference (95 % interval): {'; '.join(differences)}.")
    return lines


def _reservations(evaluation: Evaluation) -> list[str]:
    """Return sentences about the intervals: clusters of questions, and few answers of a kind."""
    sentences = []
    clusters = evaluation.answers.get("cluster")
    if clusters is not None:
        sentences.append(f"Intervals by cluster ({clusters.nunique():,} clusters).")
    if evaluation.n_rarer < _FEW:
        rarer_kind = "right" if evaluation.correct.mean() < 0.5 else "wrong"
        sentences.append(f"Only {evaluation.n_rarer} {rarer_kind}: too few to say much.")
    return sentences
