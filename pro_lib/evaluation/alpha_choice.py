"""Splits, and the choice of α on validation questions or on some of the judged answers."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib.common.files import sha256
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Evaluation, alpha_grid
from pro_lib.questions.repeats import normalized_question
from pro_lib.scoring.likelihood import check_alpha

# On fewer questions, a chosen α was worse than 0.4 for some published answers
# (docs/results/experiment_log.md).
FEWEST_TO_CHOOSE = 300
FEWEST_TO_HALVE = 2 * FEWEST_TO_CHOOSE
FEWEST_FOR_ALPHA = 20


@dataclass(frozen=True)
class Splits:
    """The validation questions and the reported questions of one model and dataset.

    Attributes:
        pool: all judged validation questions.
        reported: the judged questions to report.
        n_validation: the number of validation questions that α is chosen on; None for all.
        seed: the seed with which they are drawn from the pool.
        alphas: the values that α is chosen from; None for those of `alpha_grid`.
    """

    pool: Evaluation
    reported: Evaluation
    n_validation: int | None = 100
    seed: int = 0
    alphas: Sequence[float] | None = None

    @cached_property
    def validation(self) -> Evaluation:
        """The questions that α is chosen on."""
        if self.n_validation is None:
            return self.pool
        return self.pool.drawn(self.n_validation, seed=self.seed)

    def alpha(self, name: str = "PRO") -> float:
        """Return the best α on the validation questions, of PRO or another score that needs one."""
        return select_alpha(self.validation, alphas=self.alphas, name=name)

    def alphas_of(self, names: Iterable[str]) -> dict[str, float]:
        """Return the best α of each of these scores that needs one, by name."""
        return {name: self.alpha(name) for name in names if name in self.reported.alpha_names}


@dataclass(frozen=True)
class AlphaChoice:
    """The α of PRO, and the judged questions on which results are measured.

    Attributes:
        alpha: the α.
        reason: one sentence that says where α comes from.
        is_reported: a mask (n,) of the judged questions on which results are measured, which are
            those on which α was not chosen. None if it was chosen on none of them.
        is_final: whether no other α is proposed, because it was chosen on judged answers, or before
            answers were labelled.
    """

    alpha: float
    reason: str
    is_reported: NDArray[np.bool_] | None = None
    is_final: bool = False


def default_alpha(search_alpha: float | None = None, *, why: str) -> AlphaChoice:
    """Return the paper's default α, 0.4, or the α of an exact search if that is larger.

    Args:
        search_alpha: the α of an exact search; None for other answers.
        why: why α is not chosen, as a clause.

    Example:
        >>> default_alpha(why="no answer is judged").reason
        'α = 0.4, the default: no answer is judged.'
        >>> default_alpha(search_alpha=0.5, why="no answer is judged").alpha
        0.5
    """
    alpha = max(DEFAULT_ALPHA, search_alpha or 0.0)
    return AlphaChoice(alpha, f"α = {alpha:g}, the default: {why}.")


def given_alpha(alpha: float, search_alpha: float | None = None) -> AlphaChoice:
    """Return an α that the user gives.

    Args:
        alpha: the α of PRO.
        search_alpha: the α of an exact search; None for other answers.

    Raises:
        ValueError: α is outside [0, 1] or below search_alpha.

    Example:
        >>> given_alpha(0.2).reason
        'α = 0.2, as given.'
    """
    check_alpha(alpha, search_alpha=search_alpha)
    return AlphaChoice(alpha, f"α = {alpha:g}, as given.")


def held_out_alpha(
    evaluation: Evaluation, questions: pd.DataFrame, *, cluster: str | None = None
) -> AlphaChoice:
    """Return the α that is best on some of the judged questions, to report results on the others.

    α is chosen on the questions of split `validation`, if 300 of them are judged. Otherwise it is
    chosen on one half, if there are 600 judged questions. A hash of the question's text, or of its
    cluster, decides the half. Copies of a question, and the questions of a cluster, are therefore
    in the same half, which does not change if questions are added.

    Args:
        evaluation: judged answers with their log-probabilities.
        questions: the questions of the run, with the columns question_id, and question and split if
            they are known.
        cluster: the column of the questions that names their clusters, if they have it.

    Returns:
        The α with the best AUROC of PRO. It is the default if there are too few judged questions,
        or if one of the two parts has fewer than 20 right or 20 wrong answers.

    Example:
        >>> from pro_lib import evaluation
        >>> from pro_lib.common import catalog
        >>> from pro_lib.importing import import_answers
        >>> run = import_answers(catalog.EXAMPLE)
        >>> choice = held_out_alpha(evaluation.evaluate(run), run.questions, cluster="relation")
        >>> choice.reason
        'α = 0.05, chosen on 265 questions; the results below are of the other 523.'
    """
    ids = evaluation.answers["question_id"]
    parts = []
    if "split" in questions:
        splits = questions.set_index("question_id")["split"].loc[ids]
        is_validation = (splits == "validation").to_numpy()
        if is_validation.sum() >= FEWEST_TO_CHOOSE:
            parts.append(("validation questions", is_validation))
    if len(ids) >= FEWEST_TO_HALVE:
        parts.append(("questions", half_of_texts(evaluation, questions, cluster=cluster)))
    for kind, is_chosen_on in parts:
        chosen_on = evaluation.select(is_chosen_on)
        reported = evaluation.select(~is_chosen_on)
        if min(chosen_on.n_rarer, reported.n_rarer) >= FEWEST_FOR_ALPHA:
            alpha = select_alpha(chosen_on)
            counts = f"{len(chosen_on.correct):,} {kind}"
            others = f"the results below are of the other {len(reported.correct):,}"
            reason = f"α = {alpha:g}, chosen on {counts}; {others}."
            return AlphaChoice(alpha, reason, ~is_chosen_on, is_final=True)
    counts = f"{len(evaluation.correct):,} judged questions ({evaluation.correct.sum():,} right)"
    why = (
        f"{counts} are too few to choose it, which needs {FEWEST_TO_HALVE} (or {FEWEST_TO_CHOOSE} "
        f"of the split validation), and {FEWEST_FOR_ALPHA} right and {FEWEST_FOR_ALPHA} wrong "
        "answers in each part"
    )
    return default_alpha(evaluation.search_alpha, why=why)


def half_of_texts(
    evaluation: Evaluation, questions: pd.DataFrame, *, cluster: str | None = None
) -> NDArray[np.bool_]:
    """Return the mask (n,) of one half of the questions, which has whole clusters.

    Args:
        evaluation: judged answers.
        questions: the questions of the run, at least the judged ones.
        cluster: the column of the questions that names their clusters, if they have it.
    """
    ids = evaluation.answers["question_id"]
    rows = questions.set_index("question_id", drop=False).loc[ids]
    if cluster in rows:
        names = rows[cluster].map(str)
    else:
        names = rows["question"].fillna(rows["question_id"]).map(normalized_question)
    # The number of a name is below 2**32, and depends on the name alone.
    digests = [sha256(name.encode(errors="replace")) for name in names]
    numbers = pd.Series([int(digest[:8], 16) for digest in digests])
    if "cluster" in evaluation.answers:
        # Clusters that share a text are joined, and one of their numbers decides.
        numbers = numbers.groupby(evaluation.answers["cluster"]).transform("min")
    return np.asarray(numbers % 2 == 0)


def select_alpha(
    validation: Evaluation, *, alphas: Sequence[float] | None = None, name: str = "PRO"
) -> float:
    """Return the α with the best AUROC.

    If several are best, the one nearest to 0.4 is returned, and of two equally near ones the
    smaller. If all answers are right, or all wrong, the result is 0.4, with a warning.

    Args:
        validation: the questions.
        alphas: the values to choose from; None for those of `alpha_grid`.
        name: PRO, or another score that needs an α (`Evaluation.pro`).

    Returns:
        The α.

    Example:
        >>> from pro_lib import evaluation
        >>> from pro_lib.common import catalog
        >>> from pro_lib.importing import import_answers
        >>> judged = evaluation.evaluate(import_answers(catalog.EXAMPLE))
        >>> select_alpha(judged, alphas=[0.1, 0.4])
        0.1
    """
    one_class = validation.one_class()
    if one_class:
        warnings.warn(
            f"{one_class}, so alpha cannot be chosen on them; the default {DEFAULT_ALPHA} is used",
            stacklevel=2,
        )
        return DEFAULT_ALPHA
    grid = np.unique(alpha_grid(validation.search_alpha) if alphas is None else alphas)
    # Rounding makes 0.35 and 0.45 equally far from 0.4.
    distances = np.round(np.abs(grid - DEFAULT_ALPHA), 12)
    nearest_first = grid[np.argsort(distances, kind="stable")]
    scores = validation.pro(nearest_first, name=name)
    aurocs = validation.judgement.areas(scores)
    # `argmax` takes the first of equal AUROCs, which are exactly equal because they are counts.
    return float(nearest_first[aurocs.argmax()])
