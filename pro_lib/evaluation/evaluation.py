"""An evaluation: judged answers with their scores, and the splits for choosing and reporting α."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib import metrics, scoring
from pro_lib.common.files import RunError
from pro_lib.metrics.auroc import FloatArray
from pro_lib.metrics.correctness import MATCHES

if TYPE_CHECKING:
    from pro_lib.evaluation.labels.sampled import SampledLabels

# α is chosen from these values, which include every α that the paper prints. On 100 questions, a
# finer grid was seen to cost up to 0.05 of AUROC.
ALPHA_GRID = tuple(step / 20 for step in range(21))
_FINE_ALPHAS = (0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04)
# The values of figures with a logarithmic axis.
DRAWN_ALPHAS = tuple(sorted({*ALPHA_GRID, *_FINE_ALPHAS}))
# A function `score(alpha=)` that returns scores (n,) or (n, A).
AlphaScore = Callable[..., FloatArray]


def alpha_grid(
    search_alpha: float | None = None, *, alphas: Sequence[float] = ALPHA_GRID
) -> FloatArray:
    """Return the values of α that a run can be scored at.

    Args:
        search_alpha: the α of an exact search, if the answers are its result.
        alphas: the values to select from.

    Returns:
        The values (A,); of an exact search, its α and the values above.

    Example:
        >>> alpha_grid(0.02, alphas=[0.01, 0.1]).tolist()
        [0.02, 0.1]
    """
    if search_alpha is None:
        return np.array(alphas)
    return np.unique([search_alpha, *(alpha for alpha in alphas if alpha > search_alpha)])


@dataclass(frozen=True)
class Evaluation:
    """One model's answers to one split of a dataset, with the scores of all methods.

    Attributes:
        model: the name of the model.
        dataset: the name of the question set.
        split: the name of the split, or `all`.
        answers: a row per question with question_id, text (of the judged answer), rouge_l, correct,
            exact_match and alias_match, and question and references of the run. It has a column
            cluster if questions depend on each other, and a column text_number if questions have
            the same text.
        log_probs: log-probabilities of the answers that PRO reads, (n, N).
        baselines: a column per method without α, higher = more uncertain.
        exclusions: a sentence that says which questions were left out, and why.
        unavailable: the methods that need answers or columns which the run does not have.
        search_alpha: the α of an exact search; None for other answers.
        protocol: the name of the protocol.
        strategy: the decoding strategy of the answers.
        meanings: log-probabilities (n, C) that PRO over meanings reads, by its name, such as
            `S-PRO, lexical`.
        alpha_scores: further scores that need an α, by name.
        note: a note in the provenance of the run.
        n_unlabelled: the number of further questions that have scores but no label.
        sampled_labels: labels of a sample of the answers, from which tables estimate AUROCs and
            accuracy; None if `answers` says which answers are right.
        reasons: the number of questions without a usable or judged answer, by reason
            (`common.reasons.REASONS`). `answers` does not have these questions.
    """

    model: str
    dataset: str
    split: str
    answers: pd.DataFrame
    log_probs: FloatArray
    baselines: pd.DataFrame
    exclusions: str
    unavailable: tuple[str, ...]
    search_alpha: float | None = None
    protocol: str = "workbench"
    strategy: str = ""
    meanings: Mapping[str, FloatArray] = field(default_factory=dict)
    alpha_scores: Mapping[str, AlphaScore] = field(default_factory=dict)
    note: str = ""
    n_unlabelled: int = 0
    sampled_labels: "SampledLabels | None" = None
    reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the judged answers are right, (n,)."""
        return np.asarray(self.answers["correct"], dtype=bool)

    @property
    def accuracy(self) -> float:
        """The share of right answers, estimated if there are `sampled_labels`."""
        if self.sampled_labels is not None:
            return self.sampled_labels.accuracy
        return float(self.correct.mean())

    @property
    def n_correct(self) -> int:
        """The number of right answers, estimated if there are `sampled_labels`."""
        if self.sampled_labels is not None:
            return round(len(self.answers) * self.sampled_labels.accuracy)
        return int(self.correct.sum())

    @property
    def n_rarer(self) -> int:
        """The number of right answers or of wrong answers, whichever is smaller."""
        return int(min(self.correct.sum(), (~self.correct).sum()))

    def __repr__(self) -> str:
        return f"Evaluation({self.sentence()})"

    def pro(
        self, alpha: float | FloatArray = 0.4, *, k: ArrayLike | None = None, name: str = "PRO"
    ) -> FloatArray:
        """Return PRO, or another score that needs an α.

        Args:
            alpha: α, or several (A,).
            k: K in place of α, or several (A,).
            name: PRO, or a name in `meanings` or `alpha_scores`.

        Returns:
            The scores (n,) or (n, A), higher = more uncertain.

        Raises:
            RunError: the answers do not have log-probabilities.
        """
        settings: dict[str, Any] = {"alpha": alpha} if k is None else {"k": k}
        if name in self.alpha_scores:
            return self.alpha_scores[name](**settings)
        if len(self.log_probs) and np.isnan(self.log_probs).all():
            raise RunError(
                f"{name} needs log-probabilities, but most or all answers of {self.dataset}, "
                f"{self.model} are texts without them"
            )
        score = scoring.pro if k is None else scoring.pro_at_k
        log_probs = self.meanings.get(name, self.log_probs)
        # `sentence` reports the questions that the warning is about.
        with warnings.catch_warnings(action="ignore", category=scoring.PremiseWarning):
            return score(log_probs, search_alpha=self.search_alpha, **settings)

    def aurocs(self, uncertainty: FloatArray) -> FloatArray:
        """Return AUROC (A,) of scores (n, A), estimated if there are `sampled_labels`."""
        if self.sampled_labels is not None:
            return self.sampled_labels.estimates(uncertainty).areas.auroc
        return metrics.auroc_intervals(uncertainty, self.correct)[0]

    def with_pro(self, alphas: Mapping[str, float]) -> pd.DataFrame:
        """Return the scores of all methods.

        Args:
            alphas: the α of PRO, and of other scores that need one, by their names (see `pro`).

        Returns:
            A column per name in `alphas` and per method without α, (n, M).
        """
        scores = {name: self.pro(alpha, name=name) for name, alpha in alphas.items()}
        return pd.DataFrame(scores).join(self.baselines)

    def drawn(self, n_questions: int, *, seed: int = 0) -> "Evaluation":
        """Return a random sample of the questions, in their order.

        Args:
            n_questions: the size of the sample; all questions if there are not more.
            seed: the seed of the sample.
        """
        n = len(self.correct)
        if n <= n_questions:
            return self
        chosen = np.random.default_rng(seed).choice(n, size=n_questions, replace=False)
        sample = self.rows(np.sort(chosen))
        return replace(sample, exclusions=f"{self.exclusions} {n_questions} were drawn of them.")

    def rows(self, chosen: NDArray[Any] | pd.Series) -> "Evaluation":
        """Return some of the questions.

        Args:
            chosen: a mask (n,), or positions.
        """
        places = np.arange(len(self.answers))[np.asarray(chosen)]
        sampled = self.sampled_labels
        return replace(
            self,
            answers=self.answers.iloc[places].reset_index(drop=True),
            baselines=self.baselines.iloc[places].reset_index(drop=True),
            log_probs=self.log_probs[places],
            meanings={name: log_probs[places] for name, log_probs in self.meanings.items()},
            alpha_scores={
                name: _score_of_rows(score, places) for name, score in self.alpha_scores.items()
            },
            sampled_labels=None if sampled is None else sampled.rows(places),
        )

    def without_labels(self) -> "Evaluation":
        """Return the evaluation without `sampled_labels`, as the automatic judge has it."""
        return replace(self, sampled_labels=None)

    def one_per_text(self, *, seed: int = 0) -> "Evaluation":
        """Return one question of each text, drawn with `seed`, or all if no text is repeated."""
        if "text_number" not in self.answers:
            return self
        order = np.random.default_rng(seed).permutation(len(self.answers))
        _, first = np.unique(self.answers["text_number"].to_numpy()[order], return_index=True)
        return self.rows(np.sort(order[first]))

    def cautions(self) -> str:
        """Return sentences about what restricts the result, if there are any.

        They are about labels of a sample or of some questions only, and about repeated questions.
        """
        sentences = []
        if self.sampled_labels is not None:
            sentences.append(self.sampled_labels.sentence)
        n = len(self.answers)
        if self.n_unlabelled:
            n_all = n + self.n_unlabelled
            sentences.append(
                f"Labels or references cover {n} of {n_all} questions and have no inclusion "
                "probabilities: the result holds for the labelled questions only, not for all."
            )
        if "text_number" in self.answers:
            n_texts = self.answers["text_number"].nunique()
            sentences.append(
                f"The {n} questions have {n_texts} different texts: intervals treat equal texts as "
                "one cluster."
            )
        return " ".join(sentences)

    def with_methods_of(self, other: "Evaluation") -> "Evaluation":
        """Return the evaluation without the methods that `other` does not have.

        Its exclusions name these methods.
        """
        absent = [name for name in self.baselines if name not in other.baselines]
        absent += [name for name in self.meanings if name not in other.meanings]
        if not absent:
            return self
        return replace(
            self,
            baselines=self.baselines.drop(columns=absent, errors="ignore"),
            meanings={
                name: log_probs for name, log_probs in self.meanings.items() if name not in absent
            },
            exclusions=(
                f"{self.exclusions} Without {', '.join(absent)}, "
                f"which split {other.split} does not have."
            ),
        )

    def one_class(self) -> str:
        """Return the sentence that all answers are right, or all wrong, or "" if both occur."""
        if self.n_rarer:
            return ""
        setting = f"{self.dataset}, {self.model}, {self.split}"
        if not len(self.correct):
            return f"{setting}: no question has both a judged answer and a score"
        kind = "right" if self.correct.any() else "wrong"
        return f"{setting}: all {len(self.correct)} judged answers are {kind}"

    def sentence(self) -> str:
        """Return sentences about the questions, the accuracy and the unavailable methods."""
        sentences = [self.exclusions, f"{self._accuracy_words()}."]
        n_above_one = scoring.above_one(self.log_probs).sum()
        if n_above_one:
            sentences.append(
                f"For {n_above_one} questions the answers' probabilities sum to more than 1: "
                "PRO bounds no entropy there."
            )
        if self.unavailable:
            sentences.append(f"Not available: {', '.join(self.unavailable)}.")
        sentences += [text for text in (self.cautions(), self.note) if text]
        setting = f"{self.dataset}, {self.model}, {self.protocol}, {self.split}"
        return f"{setting}: {' '.join(sentences)}"

    def _accuracy_words(self) -> str:
        """Return the share of right answers, also by the kinds of matches."""
        if not len(self.correct):
            return "No question is left"
        if self.sampled_labels is not None:
            return f"{self.accuracy:.3f} of the answers are estimated to be right"
        words = f"{self.correct.mean():.3f} of the judged answers are right"
        for name in MATCHES:
            match = self.answers[name]
            if match.notna().all() and self.correct.any():
                rejected = 1 - match[self.correct].mean()
                words += f", {match.mean():.3f} by {name}, which rejects {rejected:.0%} of those"
        return words


def _score_of_rows(score: AlphaScore, rows: NDArray[np.intp]) -> AlphaScore:
    """Return a score of some of the questions."""

    def score_of_rows(**settings: Any) -> FloatArray:
        return score(**settings)[rows]

    return score_of_rows


@dataclass(frozen=True)
class Splits:
    """The validation questions and the reported questions of one model and dataset.

    Attributes:
        pool: all validation questions.
        reported: the reported questions.
        n_validation: the number of validation questions that α is chosen on; None for all.
        seed: the seed with which they are drawn from the pool.
        alphas: the values that α is chosen from; None for those of `alpha_grid`.
    """

    pool: Evaluation
    reported: Evaluation
    n_validation: int | None = 100
    seed: int = 0
    alphas: Sequence[float] | None = None

    @property
    def validation(self) -> Evaluation:
        """The questions that α is chosen on."""
        if self.n_validation is None:
            return self.pool
        return self.pool.drawn(self.n_validation, seed=self.seed)

    def sentence(self) -> str:
        """Return sentences about the questions that α is chosen on, and about those reported."""
        return f"{self.validation.sentence()}\n{self.reported.sentence()}"
