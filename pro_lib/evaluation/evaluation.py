"""An evaluation: judged answers with their scores."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib import scoring
from pro_lib.common.files import RunError
from pro_lib.evaluation.inputs import AlphaScore
from pro_lib.evaluation.judgement import Judgement, Verdicts
from pro_lib.metrics.correctness import MATCHES
from pro_lib.metrics.roc import FloatArray
from pro_lib.questions.repeats import one_per_text

DEFAULT_ALPHA = 0.4  # the paper recommends it if there are no validation data
# α is chosen from these values, which include every α that the paper prints. On 100 questions, a
# finer grid was seen to cost up to 0.05 of AUROC.
ALPHA_GRID = tuple(step / 20 for step in range(21))
_FINE_ALPHAS = (0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04)
# The values of figures with a logarithmic axis.
DRAWN_ALPHAS = tuple(sorted({*ALPHA_GRID, *_FINE_ALPHAS}))


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


def with_columns_in_front(table: pd.DataFrame, columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return a table with further columns in front of the others."""
    return table.assign(**columns)[[*columns, *table.columns]]


@dataclass(frozen=True)
class Evaluation:
    """One model's answers to one split of a dataset, with the scores of all methods.

    It has the judged questions: those whose answer is known to be right or wrong, and that all
    compared methods score. `whole` also has the other questions, and the methods that are left out
    of the comparison.

    Attributes:
        model: the name of the model.
        dataset: the name of the question set.
        split: the name of the split, or `all`.
        answers: a row per question with question_id, text (of the judged answer), rouge_l, correct
            (None if unknown), exact_match and alias_match, and question and references of the run.
            It has a column cluster if questions depend on each other, and a column text_number if
            questions have the same text.
        log_probs: log-probabilities of the answers that PRO reads, (n, N).
        baselines: a column per method without α, higher = more uncertain.
        exclusions: a sentence that says which questions are not judged, and why.
        unavailable: the methods that need answers or columns which the run does not have.
        search_alpha: the α of an exact search; None for other answers.
        protocol: the name of the protocol.
        strategy: the decoding strategy of the answers.
        alpha_scores: the scores besides PRO that need an α, by name, such as "S-PRO, lexical".
        note: a note in the provenance of the run.
        n_unlabelled: the number of further questions that have scores but no label.
        rule: the rule by which answers are right, such as "ROUGE-L > 0.3".
        sampled_judgement: the judgement by labels of a sample of the answers; None if the verdicts
            in `answers` judge them.
        reasons: the number of questions without a usable or judged answer, by reason
            (`common.reasons.REASONS`).
        selected_from: the evaluation of all questions; None if this one has all of them.
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
    alpha_scores: Mapping[str, AlphaScore] = field(default_factory=dict)
    note: str = ""
    n_unlabelled: int = 0
    rule: str = ""
    sampled_judgement: Judgement | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    selected_from: "Evaluation | None" = None

    @property
    def whole(self) -> "Evaluation":
        """The evaluation of all questions, judged or not, and of all methods."""
        return self if self.selected_from is None else self.selected_from

    @cached_property
    def judgement(self) -> Judgement:
        """Which of the judged answers are right, with the statistics of scores."""
        if self.sampled_judgement is not None:
            return self.sampled_judgement
        return Verdicts(self.correct, self.rule, self.answers.get("cluster"))

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the judged answers are right, (n,)."""
        return np.asarray(self.answers["correct"], dtype=bool)

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return self.judgement.accuracy

    @property
    def n_correct(self) -> int:
        """The number of right answers, or its estimate."""
        n_judged = len(self.answers)
        return round(n_judged * self.accuracy) if n_judged else 0

    @property
    def n_rarer(self) -> int:
        """The number of right answers or of wrong answers, whichever is smaller."""
        return int(min(self.correct.sum(), (~self.correct).sum()))

    def __repr__(self) -> str:
        return f"Evaluation({self.sentence()})"

    @property
    def alpha_names(self) -> tuple[str, ...]:
        """The names of the scores that need an α, PRO first."""
        return ("PRO", *self.alpha_scores)

    def pro(
        self, alpha: float | FloatArray = 0.4, *, k: ArrayLike | None = None, name: str = "PRO"
    ) -> FloatArray:
        """Return PRO, or another score that needs an α.

        Args:
            alpha: α, or several (A,).
            k: K in place of α, or several (A,); of PRO only.
            name: one of `alpha_names`.

        Returns:
            The scores (n,) or (n, A), higher = more uncertain.

        Raises:
            RunError: the answers do not have log-probabilities.
        """
        if len(self.log_probs) and np.isnan(self.log_probs).all():
            raise RunError(
                f"{name} needs log-probabilities, but most or all answers of {self.dataset}, "
                f"{self.model} are texts without them"
            )
        if name != "PRO":
            if k is not None:
                raise ValueError(f"k={k!r} is possible for PRO only, not for {name}")
            return self.alpha_scores[name](alpha)
        # `sentence` reports the questions that the warning is about.
        with warnings.catch_warnings(action="ignore", category=scoring.PremiseWarning):
            if k is None:
                return scoring.pro(self.log_probs, alpha=alpha, search_alpha=self.search_alpha)
            return scoring.pro_at_k(self.log_probs, k, search_alpha=self.search_alpha)

    def scores(self, alphas: Mapping[str, float]) -> pd.DataFrame:
        """Return the scores of all methods.

        Args:
            alphas: the α of scores that need one, by their names. A name such as "PRO, default" is
                one of PRO.

        Returns:
            A column per name in `alphas` and per method without α, (n, M).
        """
        scores = {}
        for name, alpha in alphas.items():
            is_pro = name.startswith("PRO, ")
            scores[name] = self.pro(alpha, name="PRO" if is_pro else name)
        return pd.DataFrame(scores, index=self.baselines.index).join(self.baselines)

    def drawn(self, n_questions: int, *, seed: int = 0) -> "Evaluation":
        """Return a random sample of the questions, in their order.

        Args:
            n_questions: the size of the sample; all questions if there are not more.
            seed: the seed of the sample.
        """
        n = len(self.answers)
        if n <= n_questions:
            return self
        chosen = np.random.default_rng(seed).choice(n, size=n_questions, replace=False)
        sample = self.select(np.sort(chosen))
        return replace(sample, exclusions=f"{self.exclusions} {n_questions} were drawn of them.")

    def select(self, chosen: ArrayLike) -> "Evaluation":
        """Return some of the questions.

        Args:
            chosen: a mask (n,), or positions.
        """
        positions = np.arange(len(self.answers))[np.asarray(chosen)]
        sampled = self.sampled_judgement
        return replace(
            self,
            answers=self.answers.iloc[positions].reset_index(drop=True),
            baselines=self.baselines.iloc[positions].reset_index(drop=True),
            log_probs=self.log_probs[positions],
            alpha_scores={
                name: score.select(positions) for name, score in self.alpha_scores.items()
            },
            sampled_judgement=None if sampled is None else sampled.select(positions),
        )

    def without_labels(self) -> "Evaluation":
        """Return the evaluation without labels of a sample, as the automatic judge has it."""
        return replace(self, sampled_judgement=None)

    def without_methods(self, names: Sequence[str]) -> "Evaluation":
        """Return the evaluation without the scores of these names."""
        return replace(
            self,
            baselines=self.baselines.drop(columns=list(names), errors="ignore"),
            alpha_scores={
                name: score for name, score in self.alpha_scores.items() if name not in names
            },
        )

    def one_per_text(self, *, seed: int = 0) -> "Evaluation":
        """Return one question of each text, drawn with `seed`, or all if no text is repeated."""
        if "text_number" not in self.answers:
            return self
        return self.select(one_per_text(self.answers["text_number"], seed=seed))

    def cautions(self) -> str:
        """Return sentences about what restricts the result, if there are any.

        They are about labels of a sample or of some questions only, and about repeated questions.
        """
        sentences = [self.judgement.caution] if self.judgement.caution else []
        answers = self.answers
        n = len(answers)
        if self.n_unlabelled:
            sentences.append(
                f"{self.n_unlabelled} further questions have no label or reference. Labels without "
                "inclusion probabilities say nothing about them, so the result holds for the "
                "labelled questions only, not for all."
            )
        if "text_number" in answers:
            n_texts = answers["text_number"].nunique()
            sentences.append(
                f"The {n} questions have {n_texts} different texts: intervals treat equal texts as "
                "one cluster."
            )
        return " ".join(sentences)

    def remarks(self) -> list[str]:
        """Return sentences about unavailable methods, what restricts the result, and the run."""
        absent = f"Not available: {', '.join(self.unavailable)}." if self.unavailable else ""
        return [sentence for sentence in (absent, self.cautions(), self.note) if sentence]

    def with_methods_of(self, other: "Evaluation") -> "Evaluation":
        """Return the evaluation without the methods that `other` does not have.

        Its exclusions name these methods.
        """
        absent = [name for name in self.baselines if name not in other.baselines]
        absent += [name for name in self.alpha_scores if name not in other.alpha_scores]
        if not absent:
            return self
        reason = f"Without {', '.join(absent)}, which split {other.split} does not have."
        rest = self.without_methods(absent)
        return replace(rest, exclusions=f"{self.exclusions} {reason}")

    def one_class(self) -> str:
        """Return the sentence that all answers are right, or all wrong, or "" if both occur."""
        one_class = self.judgement.one_class
        return f"{self.dataset}, {self.model}, {self.split}: {one_class}" if one_class else ""

    @property
    def setting(self) -> dict[str, Any]:
        """The first columns of tables: which questions and answers their rows are about."""
        return {
            "dataset": self.dataset,
            "model": self.model,
            "strategy": self.strategy,
            "protocol": self.protocol,
            "split": self.split,
            "n_questions": len(self.answers),
        }

    def sentence(self) -> str:
        """Return sentences about the questions, the accuracy and the unavailable methods."""
        sentences = [self.exclusions, f"{self._accuracy_sentence()}."]
        n_above_one = scoring.above_one(self.log_probs).sum()
        if n_above_one:
            sentences.append(
                f"For {n_above_one} questions the answers' probabilities sum to more than 1: "
                "PRO bounds no entropy there."
            )
        sentences += self.remarks()
        setting = f"{self.dataset}, {self.model}, {self.protocol}, {self.split}"
        return f"{setting}: {' '.join(sentences)}"

    def _accuracy_sentence(self) -> str:
        """Return the share of right answers, also by the kinds of matches."""
        correct = self.correct
        if not len(correct):
            return "No question is left"
        if self.sampled_judgement is not None:
            return f"{self.accuracy:.3f} of the answers are estimated to be right"
        rule = f" by {self.rule}" if self.rule else ""
        sentence = f"{correct.mean():.3f} of the judged answers are right{rule}"
        for name in MATCHES:
            match = self.answers[name]
            if match.notna().all() and correct.any():
                rejected = 1 - match[correct].mean()
                sentence += f", {match.mean():.3f} by {name}, which rejects {rejected:.0%} of those"
        return sentence
