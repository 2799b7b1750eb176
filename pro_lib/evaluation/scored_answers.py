"""Score the answers of a run with every method, and say which of them to trust."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib import metrics, scoring
from pro_lib.common.files import RunError
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation.alpha_choice import AlphaChoice, choose_alpha, default_alpha
from pro_lib.evaluation.evaluate import evaluate
from pro_lib.evaluation.evaluation import DRAWN_ALPHAS, Evaluation, alpha_grid
from pro_lib.evaluation.guarantees import Guarantee, guarantee
from pro_lib.evaluation.methods import (
    PROTOCOLS,
    AnswerMatrices,
    answer_matrices,
    method_scores,
    similarity_matrices,
    text_scores,
)
from pro_lib.metrics.auroc import FloatArray
from pro_lib.metrics.correctness import Choices
from pro_lib.runs.run import Run

# The scores of texts without log-probabilities; the first one ranks the answers.
TEXT_METHODS = ("SE", "SC", "Deg")
# The columns of the table that have other names than their methods.
METHOD_COLUMNS = {"PRO": "pro", "NLL": "nll"}
COVERAGES = (0.25, 0.5, 0.75, 1.0)
MISTRUSTED_SHARE = 0.25
FEW = 20  # right or wrong answers; fewer of one kind say little
# Strategies whose answers are not independent samples.
_NOT_SAMPLED = ("greedy", "diverse_beam", "threshold")
_BLOCK = 5_000  # questions whose texts are compared together, to limit the memory
# Methods that do not compare the meanings of answers, which takes most of the time.
_COMPARE_NOTHING = frozenset(["PRO", "NLL", "ALL", "PE", "PE-MC", "NE"])
_SUFFIX = ", lexical"  # the only similarity here, so its name is left out
_FEWEST_UNLABELLED = 100
# Without a repeated answer although so many are expected, answers are not samples (p < 0.05).
_EXPECTED_REPEATS = 3


@dataclass(frozen=True)
class Mistrust:
    """The rule that says which answers to mistrust.

    An answer is mistrusted if its score is in the most uncertain quarter. With a target accuracy,
    it is mistrusted if its score is not below the threshold of a guarantee.

    Attributes:
        method: the method whose score decides.
        is_mistrusted: (n,); True for an answer to mistrust, and for one without a score.
        sentence: the rule in words.
        guarantee: the guarantee of the accuracy of the other answers. None for the rule of the
            most uncertain quarter.
    """

    method: str
    is_mistrusted: NDArray[np.bool_]
    sentence: str
    guarantee: Guarantee | None = None


@dataclass(frozen=True)
class ScoredAnswers:
    """The answers of a run with the scores of all methods and, if references are known, a verdict.

    Attributes:
        run: the run.
        alpha: α of PRO, and where it comes from.
        rows: a row per question, in the order of the run. The columns are question_id, question,
            text (of the most probable answer), correct (None if unknown), n_kept and mass. The last
            two are missing for texts without log-probabilities. Further columns have the scores of
            the methods, higher = more uncertain. PRO and NLL are in the columns pro and nll.
        methods: the names of the methods, in the order of their columns.
        evaluation: the judged answers; None if no answer can be judged.
    """

    run: Run
    alpha: AlphaChoice
    rows: pd.DataFrame
    methods: tuple[str, ...]
    evaluation: Evaluation | None

    @property
    def n_texts_alone(self) -> int:
        """The number of questions that have texts but no log-probability."""
        return _n_with_texts(self.run) - self.run.n_with_log_probs()

    @property
    def main_method(self) -> str:
        """The method that ranks the answers if no other one is named: PRO, or SE for texts."""
        for name in ("PRO", *TEXT_METHODS):
            if name in self.methods:
                return name
        return self.methods[0]

    @property
    def n_rarer(self) -> int:
        """The number of right or of wrong answers, whichever is smaller, or 0 if unknown."""
        return 0 if self.evaluation is None else self.evaluation.n_rarer

    def scores_of(self, method: str) -> FloatArray:
        """Return the scores of a method (n,), NaN where it has none."""
        column = self.rows[METHOD_COLUMNS.get(method, method)]
        return np.asarray(column, dtype=np.float64)

    def ranking(self, method: str) -> NDArray[np.intp]:
        """Return the row numbers (n,), the most uncertain first and those without a score last."""
        return np.argsort(-self.scores_of(method), kind="stable")

    def judged_scores(self) -> pd.DataFrame:
        """Return a column of scores per method, for the questions of `judged`."""
        evaluation = self.judged()
        scores = evaluation.baselines
        if "NLL" in scores:
            alphas = dict.fromkeys(["PRO", *evaluation.meanings], self.alpha.alpha)
            scores = evaluation.with_pro(alphas)
        scores = scores.rename(columns=_short_name)
        return scores[[name for name in self.methods if name in scores]]

    @cached_property
    def comparison(self) -> pd.DataFrame:
        """AUROC of every method and its difference to NLL, or to the first method without NLL.

        The columns are those of `metrics.compare_aurocs`.

        Raises:
            OneClassError: all judged answers are right, or all are wrong.
        """
        evaluation = self.judged()
        scores = self.judged_scores()
        return metrics.compare_aurocs(
            scores,
            evaluation.correct,
            reference="NLL" if "NLL" in scores else str(scores.columns[0]),
            clusters=evaluation.answers.get("cluster"),
        )

    def most_certain(self, method: str, coverages: Sequence[float] = COVERAGES) -> pd.DataFrame:
        """Return the accuracy if only the most certain of the judged questions are answered.

        Args:
            method: the method whose scores decide.
            coverages: the shares of the questions to answer.

        Returns:
            A row per share with the columns coverage, n_answered, accuracy, and its 95 % Wilson
            interval, low and high.
        """
        correct = self.judged().correct
        curve = metrics.accuracy_coverage(self.judged_scores()[method], correct)
        counts = np.maximum(np.round(np.array(coverages) * len(correct)), 1).astype(int)
        accuracy = curve["accuracy"].to_numpy()[counts - 1]
        low, high = metrics.wilson(accuracy, counts)
        columns = {
            "coverage": list(coverages),
            "n_answered": counts,
            "accuracy": accuracy,
            "low": low,
            "high": high,
        }
        return pd.DataFrame(columns)

    def alpha_that_keeps_two(self) -> tuple[float, int] | None:
        """Return an α at which PRO would keep two or more answers of most questions.

        Returns:
            The largest such α of a grid, and the number of these questions. None if α was chosen,
            if PRO keeps two answers of most questions already, or if it does so at no α.
        """
        if self.alpha.reported is not None or self.run.is_texts:
            return None
        log_probs = self.run.log_probs()
        for alpha in alpha_grid(self.run.search_alpha, alphas=DRAWN_ALPHAS)[::-1]:
            kept = scoring.adaptive_k(log_probs, alpha, search_alpha=self.run.search_alpha)
            n_questions = int((kept > 1).sum())
            if n_questions > len(kept) / 2:
                return (float(alpha), n_questions) if alpha < self.alpha.alpha else None
        return None

    def mistrust(
        self, method: str, *, target: float | None = None, confidence: float = 0.95
    ) -> Mistrust:
        """Say which answers to mistrust.

        With a target, the answers below the threshold of `guarantees.guarantee` are trusted, if
        the judged questions show that at least this share of them is right. Otherwise the most
        uncertain quarter of the answers is mistrusted.

        Args:
            method: the method whose scores decide.
            target: the accuracy to guarantee; None for a quantile.
            confidence: the confidence of the guarantee.
        """
        scores = self.scores_of(method)
        if target is None:
            return self._mistrust_quarter(method, "")
        if self.evaluation is None:
            why = "No accuracy can be guaranteed without judged answers."
            return self._mistrust_quarter(method, why)
        shown = self._guarantee(method, target, confidence)
        if shown.threshold is None:
            return self._mistrust_quarter(method, shown.sentence())
        is_trusted = shown.answers(scores)
        sentence = f"By {method}: {shown.sentence()}"
        if "cluster" in self.judged().answers:
            sentence += " This takes questions as independent, but they come in clusters."
        return Mistrust(method, ~is_trusted, sentence, shown)

    def _guarantee(self, method: str, target: float, confidence: float) -> Guarantee:
        evaluation = self.judged()
        is_unjudged = ~self.rows["question_id"].isin(evaluation.answers["question_id"])
        unlabelled = self.scores_of(method)[is_unjudged.to_numpy()]
        unlabelled = unlabelled[~np.isnan(unlabelled)]
        return guarantee(
            self.judged_scores()[method],
            evaluation.correct,
            target=target,
            confidence=confidence,
            unlabelled=unlabelled if len(unlabelled) >= _FEWEST_UNLABELLED else None,
            texts=evaluation.answers.get("text_number"),
        )

    def _mistrust_quarter(self, method: str, why: str) -> Mistrust:
        scores = self.scores_of(method)
        is_missing = np.isnan(scores)
        words = [why] if why else []
        is_high = np.zeros(len(scores), bool)
        if not is_missing.all():
            limit = float(np.quantile(scores[~is_missing], 1 - MISTRUSTED_SHARE, method="lower"))
            is_high = scores > limit
            words.append(f"Mistrust the most uncertain quarter: {method} above {limit:z.4g}.")
        if is_missing.any():
            words.append(f"{int(is_missing.sum()):,} questions have no score.")
        return Mistrust(method, is_high | is_missing, " ".join(words))

    def judged(self) -> Evaluation:
        """Return the judged answers, without those on which α was chosen.

        Raises:
            RunError: no answer can be judged.
        """
        if self.evaluation is None:
            words = "has no answer that can be judged; give --questions or --labels"
            raise RunError(f"run {self.run.name} {words}")
        reported = self.alpha.reported
        return self.evaluation if reported is None else self.evaluation.rows(reported)


def score_answers(
    run: Run,
    *,
    choices: Choices | None = None,
    alpha: float | None = None,
    methods: Sequence[str] | None = None,
    is_fixed: bool = False,
    must_judge: bool = False,
) -> ScoredAnswers:
    """Score the answers of a run with every method that its data allow, and judge them if possible.

    Args:
        run: the run. Answers of a file count as samples for the methods that need samples, unless
            the file lists different answers.
        choices: what makes an answer right.
        alpha: α of PRO; None chooses it on the judged answers (`choose_alpha`), or takes 0.4.
        methods: the names of the methods; None for all.
        is_fixed: whether an α that is not given is 0.4 even if it could be chosen.
        must_judge: whether it is an error if no answer can be judged.

    Returns:
        The scores, the judged answers and α.

    Raises:
        RunError: no answer can be judged, and `must_judge`.
        SentenceError: a method is unknown or needs other data.

    Example:
        >>> from pro_lib.common import catalog
        >>> from pro_lib.importing import import_answers
        >>> scored = score_answers(import_answers(catalog.EXAMPLE), methods=["PRO", "NLL"])
        >>> scored.alpha.alpha, scored.methods
        (0.05, ('PRO', 'NLL'))
        >>> scored.rows[["text", "correct"]].head(2).values.tolist()
        [['Margaret Atwood', True], ['Mauritius', False]]
    """
    similarity = _Remembered()
    matrices = answer_matrices(run)
    samples = run if _are_samples(run, matrices) else None
    # Texts next to log-probabilities would take the place of all log-probabilities.
    is_mixed = not run.is_texts and run.n_with_log_probs() < _n_with_texts(run)
    options: dict[str, Any] = {"samples": samples, "similarities": {"lexical": similarity}}
    if methods is not None and _COMPARE_NOTHING.issuperset(methods):
        options["similarities"] = {}
    if is_mixed or not (run.is_texts or _has_several_answers(run)):
        options = {}
    evaluation = None
    try:
        evaluation = evaluate(run, choices=choices, **options)
    except RunError:
        if must_judge:
            raise
    cluster = (choices or Choices()).cluster
    choice = _alpha_of(run, evaluation, alpha, is_fixed, cluster)
    rows, names = _score_rows(run, matrices, choice.alpha, options)
    names = _selected(names, methods)
    kept_columns = [METHOD_COLUMNS.get(name, name) for name in names]
    first = ["question_id", "question", "text"]
    details = [name for name in ("n_kept", "mass") if name in rows]
    rows = rows[[*first, *kept_columns, *details]]
    if is_mixed:
        texts = text_scores(run.as_texts())
        rows = rows.join(texts[[name for name in TEXT_METHODS if name not in rows]])
    rows.insert(3, "correct", _verdicts(rows, evaluation))
    return ScoredAnswers(run, choice, rows, names, evaluation)


def score_texts(scored: ScoredAnswers, *, choices: Choices | None = None) -> ScoredAnswers:
    """Score the texts alone of a run in which only some questions have log-probabilities."""
    return score_answers(scored.run.as_texts(), choices=choices)


def _n_with_texts(run: Run) -> int:
    has_text = run.answers["finished"].to_numpy(bool) & run.answers["text"].notna().to_numpy()
    return int(run.answers.loc[has_text, "question_id"].nunique())


def _are_samples(run: Run, matrices: AnswerMatrices) -> bool:
    """Return whether the answers can be independent samples.

    Beams are not independent samples, and neither is a file that lists different answers. Two
    samples are equal with a probability of at least Σ p². So some answers of a file of samples are
    repeated, unless all answers are improbable.
    """
    if run.info.strategy in _NOT_SAMPLED:
        return False
    if run.is_texts:
        return True
    is_repeat = matrices.repeats & ~np.isnan(matrices.log_probs)  # missing answers are marked too
    probabilities = np.exp(np.where(is_repeat, np.nan, matrices.log_probs))
    n_pairs = matrices.n_answers * (matrices.n_answers - 1) / 2
    n_expected = np.nansum(n_pairs * np.nansum(probabilities**2, axis=1))
    return bool(is_repeat.any() or n_expected < _EXPECTED_REPEATS)


def _has_several_answers(run: Run) -> bool:
    counts = run.answers["question_id"].value_counts()
    return bool((counts > 1).any())


def _alpha_of(
    run: Run,
    evaluation: Evaluation | None,
    alpha: float | None,
    is_fixed: bool,
    cluster: str | None,
) -> AlphaChoice:
    """Return α of PRO: the given one, the best one on judged answers, or 0.4."""
    if alpha is not None:
        scoring.adaptive_k(np.zeros((1, 1)), alpha, search_alpha=run.search_alpha)  # checks alpha
        return AlphaChoice(alpha, f"α = {alpha:g}, as given.")
    if is_fixed:
        why = "it must not depend on the answers that are compared"
        return default_alpha(run.search_alpha, why=why)
    if evaluation is None:
        return default_alpha(run.search_alpha, why="without judged answers, α cannot be chosen")
    if "NLL" not in evaluation.baselines:
        return default_alpha(run.search_alpha, why="texts without log-probabilities do not use it")
    if not _has_several_answers(run):
        return default_alpha(
            run.search_alpha, why="with one answer to each question it has no effect"
        )
    return choose_alpha(evaluation, run.questions, cluster=cluster)


def _score_rows(
    run: Run, matrices: AnswerMatrices, alpha: float, options: dict[str, Any]
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return the scores of every question, judged or not, and the names of the methods."""
    samples = None if options.get("samples") is None else matrices
    top = run.top()
    similarities = options.get("similarities", {})
    compared = similarity_matrices(matrices, samples, similarities, judged=top["text"])
    scores = method_scores(matrices, samples, PROTOCOLS["workbench"], compared)
    table = scores.table
    if run.is_texts:
        rows = run.questions[["question_id", "question"]].assign(text=top["text"].to_numpy())
        table = table.rename(columns=_short_name)[list(TEXT_METHODS)]
    else:
        rows = run.scores(alpha=alpha).rename(columns={"pro": "PRO", "nll": "NLL"})
        for name, log_probs in scores.meanings.items():
            # `Run.scores` has warned of sums above 1 already.
            with warnings.catch_warnings(action="ignore", category=scoring.PremiseWarning):
                table[name] = scoring.pro(log_probs, alpha=alpha, search_alpha=run.search_alpha)
        if not _has_several_answers(run):
            table = table[["NLL", "ALL"]]
        table = table.drop(columns="NLL").rename(columns=_short_name)
    stored = run.questions.filter(regex="^score_").rename(columns=lambda name: name[6:])
    stored = stored.rename(columns={name: f"{name}, given" for name in (*table, "PRO", "NLL")})
    table = table.join(stored.set_axis(table.index)).dropna(axis="columns", how="all")
    names = tuple(map(str, table))
    if not run.is_texts:
        names = ("PRO", "NLL", *names)
    rows = rows.reset_index(drop=True).join(table.reset_index(drop=True))
    return rows.rename(columns=METHOD_COLUMNS), names


def _verdicts(rows: pd.DataFrame, evaluation: Evaluation | None) -> NDArray[np.object_]:
    """Return whether each answer is right (n,), None if that is unknown or it is left out."""
    if evaluation is None:
        return np.full(len(rows), None, dtype=object)
    verdicts = dict(zip(evaluation.answers["question_id"], evaluation.correct, strict=True))
    values = [verdicts.get(question_id) for question_id in rows["question_id"]]
    return np.array([None if value is None else bool(value) for value in values], dtype=object)


def _selected(names: tuple[str, ...], methods: Sequence[str] | None) -> tuple[str, ...]:
    """Return the requested methods in their usual order."""
    if methods is None:
        return names
    unknown = [name for name in methods if name not in names]
    if unknown:
        raise SentenceError(
            f"Method {unknown[0]!r} cannot be computed from these answers. "
            f"Choose from {', '.join(names)}."
        )
    return tuple(name for name in names if name in methods)


def _short_name(name: str) -> str:
    return name.removesuffix(_SUFFIX)


class _Remembered:
    """The lexical similarity, computed once for equal texts.

    The samples are compared together with the judged answer, which is one of them. So their
    similarities are those of the samples alone, in other places.
    """

    def __init__(self) -> None:
        self._results: list[tuple[NDArray[Any], FloatArray]] = []

    def __call__(self, texts: NDArray[Any], questions: pd.DataFrame) -> FloatArray:
        """Return the similarities of texts (n, N), as (n, N, N)."""
        for known_texts, known_result in self._results:
            places = _places_of(texts, known_texts)
            if places is not None:
                rows = np.arange(len(texts))[:, None, None]
                return known_result[rows, places[:, :, None], places[:, None, :]]
        blocks = [texts[start : start + _BLOCK] for start in range(0, max(len(texts), 1), _BLOCK)]
        result = np.concatenate([scoring.lexical(block.tolist()) for block in blocks])
        self._results.append((texts, result))
        return result


def _places_of(texts: NDArray[Any], known_texts: NDArray[Any]) -> NDArray[np.intp] | None:
    """Return the place of each text (n, N) in the same row of known texts (n, M).

    Returns:
        The places (n, N), or None if a text is missing in its row.
    """
    if len(texts) != len(known_texts):
        return None
    places = np.zeros(texts.shape, np.intp)
    for column in range(texts.shape[1]):
        is_equal = known_texts == texts[:, [column]]
        if not is_equal.any(axis=1).all():
            return None
        places[:, column] = is_equal.argmax(axis=1)
    return places
