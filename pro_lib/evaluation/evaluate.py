"""Judge one answer per question, and compute all scores for the same questions."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib import metrics, scoring
from pro_lib.common.files import RunError
from pro_lib.evaluation.dependence import dependence_columns
from pro_lib.evaluation.methods import (
    PROTOCOLS,
    AnswerMatrices,
    MethodScores,
    Protocol,
    Similarities,
    answer_matrices,
    find_protocol,
    method_scores,
    similarity_matrices,
)
from pro_lib.metrics.auroc import FloatArray
from pro_lib.metrics.correctness import MATCHES, Choices, rouge_and_correct
from pro_lib.runs.run import Run, most_probable_answers

if TYPE_CHECKING:
    from pro_lib.evaluation.labels.sampled import SampledLabels

# α is chosen from these values, which include every α that the paper prints. On 100 questions, a
# finer grid was seen to cost up to 0.05 of AUROC.
ALPHA_GRID = tuple(step / 20 for step in range(21))
_FINE_ALPHAS = (0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04)
# The values of figures with a logarithmic axis.
DRAWN_ALPHAS = tuple(sorted({*ALPHA_GRID, *_FINE_ALPHAS}))
# A method without a value for more than this share of the questions is left out of the comparison.
MISSING_SHARE = 0.05
# The names of rows in tables of methods, which scores of the records must not have.
_RESERVED_NAMES = ("PRO", "PRO, default", "PRO, oracle", "oracle")
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
            exact_match and alias_match. It has a column cluster if questions depend on each other,
            and a column text_number if questions have the same text.
        log_probs: log-probabilities of the answers that PRO reads, (n, N).
        baselines: a column per method without α, higher = more uncertain.
        exclusions: a sentence that says which questions were left out, and why.
        unavailable: the methods for which the run lacks what they need.
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
                f"{name} needs log-probabilities, and {self.dataset}, {self.model} has texts "
                "alone, or for most questions"
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
        """Return one question of each text, drawn with `seed`; all if no text is repeated."""
        if "text_number" not in self.answers:
            return self
        order = np.random.default_rng(seed).permutation(len(self.answers))
        _, first = np.unique(self.answers["text_number"].to_numpy()[order], return_index=True)
        return self.rows(np.sort(order[first]))

    def cautions(self) -> str:
        """Return sentences about what restricts the result; empty if nothing does.

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
        """Return the sentence that all answers are right, or all wrong; empty if both occur."""
        if self.n_rarer:
            return ""
        setting = f"{self.dataset}, {self.model}, {self.split}"
        if not len(self.correct):
            return f"{setting}: no question has both a judged answer and a score"
        kind = "right" if self.correct.any() else "wrong"
        return f"{setting}: all {len(self.correct)} judged answers are {kind}"

    def sentence(self) -> str:
        """Return sentences about the questions, the accuracy and what is not available."""
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


def common_methods(
    table: pd.DataFrame, correct: ArrayLike
) -> tuple[pd.DataFrame, dict[str, tuple[int, int]]]:
    """Select the methods that can be compared on the same questions.

    A question counts if the judged answer is known to be right or wrong and NLL has a value; if NLL
    is missing for all of them, if some method has a value. A method that is missing for more than
    `MISSING_SHARE` of these questions is left out, because it would cost the other methods these
    questions.

    Args:
        table: a column per method, NaN if a method has no value, (n, M).
        correct: whether the judged answers are right, None or NaN if that is unknown, (n,).

    Returns:
        The table without these methods, and by the name of each: the number of questions with a
        value, and the number of all.

    Example:
        >>> table = pd.DataFrame({"NLL": [0.5, 1.0], "SC": [0.1, np.nan]})
        >>> selected, left_out = common_methods(table, [True, False])
        >>> list(selected), left_out
        (['NLL'], {'SC': (1, 2)})
    """
    has_value = table.notna()
    is_counted = pd.notna(np.asarray(correct)) & has_value.any(axis=1).to_numpy()
    if "NLL" in table and (is_counted & has_value["NLL"]).any():
        is_counted &= has_value["NLL"].to_numpy()
    n_questions = int(is_counted.sum())
    n_scored = has_value[is_counted].sum()
    is_rare = n_questions - n_scored > MISSING_SHARE * n_questions
    left_out = {str(name): (int(n_scored[name]), n_questions) for name in table.columns[is_rare]}
    return table.loc[:, ~is_rare], left_out


def evaluate(beams: Run, *, protocol: str = "workbench", **options: Any) -> Evaluation:
    """Judge and score the answers of a run under one protocol.

    Args:
        beams: the run.
        protocol: the name of the protocol.
        **options: the other arguments of `evaluations`.

    Returns:
        The evaluation.

    Raises:
        RunError: a run lacks one of the questions, or no answer can be judged.
        ValueError: the protocol is unknown.
    """
    return evaluations(beams, protocols=[protocol], **options)[0]


def evaluations(
    beams: Run,
    *,
    protocols: Sequence[str] = tuple(PROTOCOLS),
    samples: Run | None = None,
    others: Sequence[Run] = (),
    split: str | None = None,
    similarities: Similarities | None = None,
    choices: Choices | None = None,
) -> list[Evaluation]:
    """Judge one answer per question and compute all scores, once for each protocol.

    The judged answer is the most probable one that any of the runs found, the same under every
    protocol. A method that lacks a value for more than 5 % of the questions is left out
    (`common_methods`). A question that one of the other methods cannot score, or that has no answer
    to judge, is left out for all methods and counted. If most answers of `beams` are texts without
    log-probabilities, and there are `samples`, no log-probabilities are used.

    Args:
        beams: the run that PRO, NLL, ALL, PE (Eq. 2), SE and SD read, and in protocol `paper` also
            PE-MC and NE.
        protocols: names of `evaluation.PROTOCOLS`.
        samples: the run that Deg, and in protocol `workbench` also SC, PE-MC and NE, read, repeats
            kept; None leaves these methods out.
        others: further runs whose answers may be the most probable one.
        split: the split to judge; None for all questions of `beams`.
        similarities: which answers mean the same, by name. SE, SD, Deg, SC, S-NLL and S-PRO are
            computed for each, as `SE, <name>`. None stands for one that this dataset does not have.
        choices: what counts as an answer, and what makes it right.

    Returns:
        An evaluation per protocol.

    Raises:
        RunError: a run lacks one of the questions, or no answer can be judged.
        ValueError: a protocol is unknown.
    """
    choices = choices or Choices()
    rules = [find_protocol(name, distinct=choices.distinct) for name in protocols]
    runs = _EvaluatedRuns.select(beams, samples, others, split)
    answers = _judged_answers(runs, choices)
    matrices = answer_matrices(runs.beams, convention=choices.convention)
    sampled = None
    if runs.samples is not None:
        sampled = answer_matrices(runs.samples, convention=choices.convention)
    compared = similarity_matrices(matrices, sampled, similarities or {}, judged=answers["text"])
    results = []
    for rule in rules:
        scores = method_scores(matrices, sampled, rule, compared)
        results.append(_evaluation(runs, rule, answers, matrices, scores, split or "all"))
    return results


@dataclass(frozen=True)
class _EvaluatedRuns:
    """The runs of the questions that are judged.

    Attributes:
        beams: the run that most methods read.
        samples: the run of samples.
        others: further runs whose answers may be the most probable one.
        are_texts: whether the log-probabilities of all runs were left out.
        n_with_log_probs: the number of questions for which beams had log-probabilities.
    """

    beams: Run
    samples: Run | None
    others: list[Run]
    are_texts: bool
    n_with_log_probs: int

    @classmethod
    def select(
        cls, beams: Run, samples: Run | None, others: Sequence[Run], split: str | None
    ) -> "_EvaluatedRuns":
        """Select the questions of a split, and leave out log-probabilities that are too few."""
        # This is decided on all questions of the run, so that its splits are scored alike.
        has_few_log_probs = 0 < beams.n_with_log_probs() < len(beams.questions) / 2
        are_texts = samples is not None and has_few_log_probs
        are_samples = samples is beams
        if split is not None:
            beams = beams.select(split=split)
        n_with_log_probs = beams.n_with_log_probs()
        question_ids = list(beams.questions["question_id"])
        if are_samples:
            samples = beams
        elif samples is not None:
            samples = samples.select(question_ids=question_ids)
        others = [run.select(question_ids=question_ids) for run in others]
        if are_texts:
            beams = beams.as_texts()
            samples = samples.as_texts() if samples is not None else None
            others = [run.as_texts() for run in others]
        return cls(beams, samples, others, are_texts, n_with_log_probs)


def _judged_answers(runs: _EvaluatedRuns, choices: Choices) -> pd.DataFrame:
    """Return the most probable answer to each question, whether it is right, and its cluster."""
    questions = runs.beams.questions
    all_runs = [runs.beams, *runs.others]
    if runs.samples is not None:
        all_runs.insert(1, runs.samples)
    top = most_probable_answers([run.top(convention=choices.convention) for run in all_runs])
    answers = top[["question_id", "text"]].join(rouge_and_correct(top, questions, choices))
    if choices.labels is not None:
        _check_labels(answers, choices.labels, runs.beams.name)
    answers = answers.join(dependence_columns(questions, choices.cluster))
    if answers["correct"].isna().all():
        raise RunError(
            f"run {runs.beams.name}: no answer can be judged without references and texts, "
            "rouge_l or correct"
        )
    return answers


def _evaluation(
    runs: _EvaluatedRuns,
    rule: Protocol,
    answers: pd.DataFrame,
    matrices: AnswerMatrices,
    scores: MethodScores,
    split: str,
) -> Evaluation:
    """Return the evaluation under one protocol, with the questions that all its methods score."""
    table = scores.table.join(_given_scores(runs.beams, scores))
    available = table.dropna(axis=1, how="all")
    compared_methods, left_out = common_methods(available, answers["correct"])
    if runs.are_texts:
        counts = (runs.n_with_log_probs, len(answers))
        left_out = {"every score of log-probabilities": counts, **left_out}
    has_text = ~pd.isna(matrices.texts).all(axis=1)
    is_usable, exclusions = metrics.usable(
        compared_methods.set_axis(list(runs.beams.questions["question_id"])),
        answers["correct"],
        has_only_texts=np.isnan(matrices.log_probs).all(axis=1) & has_text,
    )
    info = runs.beams.info
    every_question = Evaluation(
        model=info.model,
        dataset=info.dataset,
        split=split,
        answers=answers,
        log_probs=scores.log_probs,
        baselines=compared_methods,
        exclusions=exclusions + _left_out_sentence(left_out),
        unavailable=tuple(table.columns.difference(available.columns, sort=False)),
        search_alpha=runs.beams.search_alpha,
        protocol=rule.name,
        strategy=info.strategy,
        meanings=_meanings_of_methods(scores.meanings, compared_methods),
        note=info.provenance.get("note", ""),
        n_unlabelled=_count_unlabelled(answers, compared_methods),
    )
    return _without_unique_texts(every_question.rows(is_usable))


def _given_scores(beams: Run, scores: MethodScores) -> pd.DataFrame:
    """Return the scores that the records brought, a column each.

    A score with the name of one that is computed here is called `<name>, given`.
    """
    columns = beams.questions.filter(regex="^score_")
    given_scores = columns.rename(columns=lambda name: name.removeprefix("score_"))
    computed = (*scores.table, *scores.meanings, *_RESERVED_NAMES)
    return given_scores.rename(columns={name: f"{name}, given" for name in computed})


def _meanings_of_methods(
    meanings: Mapping[str, FloatArray], methods: pd.DataFrame
) -> dict[str, FloatArray]:
    """Return the log-probabilities of meanings whose S-NLL is among the compared methods.

    S-PRO reads the same answers as S-NLL.
    """
    return {
        name: log_probs
        for name, log_probs in meanings.items()
        if name.replace("S-PRO", "S-NLL") in methods
    }


def _left_out_sentence(left_out: Mapping[str, tuple[int, int]]) -> str:
    """Return a sentence about the methods that are left out of the comparison; empty for none."""
    if not left_out:
        return ""
    parts = []
    for name, (n_scored, n_questions) in left_out.items():
        parts.append(f"{name} ({n_scored:,} of {n_questions:,} questions have it)")
    return f" Left out of the comparison: {', '.join(parts)}."


def _count_unlabelled(answers: pd.DataFrame, scores: pd.DataFrame) -> int:
    """Return the number of questions that have scores, but no label and no reference."""
    is_scored = scores.notna().all(axis=1).to_numpy()
    return int((answers["correct"].isna() & is_scored).sum())


def _without_unique_texts(evaluation: Evaluation) -> Evaluation:
    """Return the evaluation without the column text_number if no two questions share a text."""
    answers = evaluation.answers
    if "text_number" not in answers or answers["text_number"].duplicated().any():
        return evaluation
    return replace(evaluation, answers=answers.drop(columns="text_number"))


def _check_labels(answers: pd.DataFrame, labels: pd.DataFrame, name: str) -> None:
    """Check that each question with labels has one for its judged answer.

    Raises:
        RunError: a question lacks it, or no label is for one of the questions.
    """
    labelled = answers[answers["question_id"].isin(labels["question_id"])]
    if labelled.empty:
        raise RunError(f"run {name}: none of the {len(labels)} labels is for one of its questions")
    unmatched = labelled.loc[labelled["correct"].isna(), "question_id"].tolist()
    if unmatched:
        raise RunError(
            f"run {name}: labels of {len(unmatched)} questions match no answer judged, "
            f"first of {unmatched[0]!r}"
        )
