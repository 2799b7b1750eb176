"""Score the answers of a run with every method, and say which of them to trust."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm.auto import tqdm

from pro_lib import scoring
from pro_lib.evaluation.alpha_choice import (
    AlphaChoice,
    Splits,
    default_alpha,
    given_alpha,
    half_of_texts,
    held_out_alpha,
)
from pro_lib.evaluation.evaluation import (
    DRAWN_ALPHAS,
    Evaluation,
    alpha_grid,
)
from pro_lib.evaluation.judgement import Estimate
from pro_lib.evaluation.methods import (
    LEXICAL,
    METHODS,
    find_methods,
    select_methods,
    short_name,
    split_name,
)
from pro_lib.evaluation.run_evaluation import evaluations
from pro_lib.metrics.correctness import AnswerRules
from pro_lib.metrics.roc import FloatArray
from pro_lib.runs.run import Run

if TYPE_CHECKING:
    from pro_lib.app.sampled_evaluation import SampledEvaluation
    from pro_lib.labels.estimates import LabelSample

_COVERAGES = np.array([0.25, 0.5, 0.75, 1.0])
_NEARLY_CHANCE = 0.55  # a score with an AUROC surely below this one does not separate
# Strategies whose answers are not independent samples.
_NOT_SAMPLED = ("greedy", "diverse_beam", "threshold")
_BLOCK = 2_000  # questions whose texts are compared together, to limit the memory
# With fewer judged questions, or fewer right or wrong answers in a half, no confidence is fitted.
_FEWEST_TO_CALIBRATE = 40
_FEWEST_IN_A_HALF = 5
# Without a repeated answer although so many are expected, answers are not samples (p < 0.05).
_EXPECTED_REPEATS = 3


@dataclass(frozen=True)
class ScoredAnswers:
    """The answers of a run with the scores of all methods, and which of the answers are right.

    Attributes:
        run: the run.
        judged: the judged answers, or those that a sample of labels stands for.
        rules: what makes an answer right.
        alpha: α of PRO, and where it comes from.
        methods: the names of the methods to show, in the order of their columns.
        texts: the answers scored by their texts alone, if only some questions have
            log-probabilities.
        sampled: the sample of labels that judges the answers, if there is one.
    """

    run: Run
    judged: Evaluation
    rules: AnswerRules
    alpha: AlphaChoice
    methods: tuple[str, ...]
    texts: ScoredAnswers | None = None
    sampled: SampledEvaluation | None = None

    @property
    def n_judged(self) -> int:
        """The number of judged answers, or of labels."""
        return self.judged.judgement.n_verdicts

    @cached_property
    def reported(self) -> Evaluation:
        """The judged answers on which α was not chosen."""
        is_reported = self.alpha.is_reported
        return self.judged if is_reported is None else self.judged.select(is_reported)

    @property
    def has_both_classes(self) -> bool:
        """Whether some of the reported answers are right and others wrong."""
        return self.n_judged > 0 and not self.reported.one_class()

    @property
    def main_method(self) -> str:
        """The method that ranks the answers if no other one is named: PRO, or the first one."""
        return "PRO" if "PRO" in self.methods else self.methods[0]

    @property
    def alphas(self) -> dict[str, float]:
        """α of every score that needs one: that of PRO, or those of `sampled`."""
        alphas = dict.fromkeys(self.judged.whole.alpha_names, self.alpha.alpha)
        return alphas if self.sampled is None else {**alphas, **self.sampled.alphas}

    @cached_property
    def scores(self) -> pd.DataFrame:
        """The scores of all questions, a column per method, NaN where it has none."""
        scores = _score_columns(self.judged.whole, self.alphas)
        if self.texts is not None:
            of_texts = self.texts.scores
            scores = scores.join(of_texts[[name for name in of_texts if name not in scores]])
        return scores

    @cached_property
    def questions(self) -> pd.DataFrame:
        """A row per question, in the order of the run.

        The columns are question_id, question, text (of the judged answer), correct (None if
        unknown), field (of structured answers), the scores of the methods, n_kept and mass. The
        last two are missing for texts without log-probabilities.
        """
        judged = self.judged
        whole = judged.whole
        table = self.run.questions[["question_id", "question"]].reset_index(drop=True)
        table["text"] = whole.answers["text"]
        verdicts = pd.Series(judged.judgement.known_verdicts, judged.answers["question_id"])
        correct = table["question_id"].map(verdicts)
        table["correct"] = correct.astype(object).where(correct.notna(), None)
        if "field" in self.run.questions:
            table["field"] = self.run.questions["field"].to_numpy()
        of_texts = [] if self.texts is None else self.texts.methods
        methods = list(dict.fromkeys((*self.methods, *of_texts)))
        table = table.join(self.scores[methods])
        if not self.run.is_texts:
            log_probs = whole.log_probs
            options = {"search_alpha": self.run.search_alpha}
            table["n_kept"] = scoring.adaptive_k(log_probs, self.alpha.alpha, **options)
            is_text = table["text"].notna() & whole.baselines["NLL"].isna()
            table["mass"] = np.where(is_text, np.nan, scoring.mass(log_probs))
        return table

    @cached_property
    def kept_answers(self) -> list[list[tuple[str, float]]]:
        """The texts and probabilities of the answers that PRO keeps, a list per question."""
        n_kept = self.questions["n_kept"].tolist()
        kept: list[list[tuple[str, float]]] = [[] for _ in n_kept]
        for answer in self.run.ranked_answers().itertuples():
            answers = kept[answer.row]
            if len(answers) < n_kept[answer.row]:
                text = "?" if answer.text is None else str(answer.text)
                answers.append((text, np.exp(answer.value)))
        return kept

    def scores_of(self, method: str) -> FloatArray:
        """Return the scores of a method (n,), NaN where it has none."""
        return self.scores[method].to_numpy(np.float64)

    def ranking(self, method: str) -> NDArray[np.intp]:
        """Return the row numbers (n,), the most uncertain first and those without a score last."""
        return np.argsort(-self.scores_of(method), kind="stable")

    @cached_property
    def reported_scores(self) -> pd.DataFrame:
        """The scores of the reported questions, a column per method that is compared."""
        scores = _score_columns(self.reported, self.alphas)
        return scores[[name for name in self.methods if name in scores]]

    @property
    def reference(self) -> str:
        """The method that the others are compared with: NLL, or the first one without NLL."""
        scores = self.reported_scores
        return "NLL" if "NLL" in scores else str(scores.columns[0])

    @cached_property
    def comparison(self) -> pd.DataFrame:
        """AUROC of every method and its difference to that of `reference`.

        The columns are those of `Judgement.compare`.

        Raises:
            OneClassError: all judged answers are right, or all are wrong.
        """
        return self.reported.judgement.compare(self.reported_scores, reference=self.reference)

    def most_certain(self, method: str) -> pd.DataFrame:
        """Return the accuracy if only the most certain of the reported questions are answered.

        The columns are coverage, n_answered, and accuracy with its 95 % interval.
        """
        scores = self.reported_scores[method]
        counts = np.maximum(np.round(_COVERAGES * len(scores)), 1).astype(int)
        accuracy = self.reported.judgement.accuracy_at(scores, counts).columns("accuracy")
        return pd.DataFrame({"coverage": _COVERAGES, "n_answered": counts, **accuracy})

    def separation(self, method: str) -> Estimate:
        """Return AUROC of a method on the reported questions; NaN if it is unknown."""
        if not self.has_both_classes or method not in self.reported_scores:
            return Estimate(np.nan, np.nan, np.nan)
        columns = ["auroc", "auroc_low", "auroc_high"]
        return Estimate(*self.comparison.set_index("method").loc[method, columns])

    def separation_sentence(self, method: str) -> str:
        """Return a sentence on whether a score separates wrong from right answers."""
        auroc = self.separation(method)
        if np.isnan(auroc.value):
            return ""
        interval = f"AUROC {auroc.value:.3f}, 95 % interval {auroc.low:.3f} to {auroc.high:.3f}"
        what = "wrong from right answers on these questions"
        if auroc.low > 0.5:
            return f"{method} separates {what} ({interval})."
        if auroc.high < _NEARLY_CHANCE:
            return f"{method} does not separate {what} ({interval}; 0.5 is chance)."
        return f"It cannot be told yet whether {method} separates {what} ({interval})."

    def splits(self) -> Splits | None:
        """Return questions to fit a confidence on, and the reported ones to check it.

        They are the questions on which α was chosen and the others; otherwise halves of the judged
        questions. The result is None if there are too few questions.
        """
        judged = self.judged
        is_reported = self.alpha.is_reported
        if is_reported is None:
            cluster = self.rules.cluster
            is_reported = half_of_texts(judged, self.run.questions, cluster=cluster)
        pool = judged.select(~is_reported)
        reported = judged.select(is_reported)
        few = len(judged.answers) < _FEWEST_TO_CALIBRATE
        if few or min(pool.n_rarer, reported.n_rarer) < _FEWEST_IN_A_HALF:
            return None
        return Splits(pool, reported, None, alphas=[self.alpha.alpha])

    def full_name(self, method: str) -> str:
        """Return the name of a method in the evaluation, such as "SE, lexical" for SE."""
        names = [*self.judged.whole.baselines, *self.judged.whole.alpha_names]
        return method if method in names else f"{method}{LEXICAL}"

    def alpha_that_keeps_two(self) -> tuple[float, int] | None:
        """Return an α at which PRO would keep two or more answers of most questions.

        Returns:
            The largest such α of a grid, and the number of these questions. None if α was chosen,
            if PRO keeps two answers of most questions already, or if it does so at no α.
        """
        if self.alpha.is_final or self.run.is_texts:
            return None
        log_probs = self.judged.whole.log_probs
        for alpha in alpha_grid(self.run.search_alpha, alphas=DRAWN_ALPHAS)[::-1]:
            kept = scoring.adaptive_k(log_probs, alpha, search_alpha=self.run.search_alpha)
            n_questions = int((kept > 1).sum())
            if n_questions > len(kept) / 2:
                return (float(alpha), n_questions) if alpha < self.alpha.alpha else None
        return None


def score_answers(
    run: Run,
    *,
    rules: AnswerRules | None = None,
    alpha: float | None = None,
    methods: Sequence[str] | None = None,
    is_fixed: bool = False,
    must_judge: bool = False,
    sample: LabelSample | None = None,
) -> ScoredAnswers:
    """Score the answers of a run with every method that its data allow, and judge them if possible.

    Args:
        run: the run. Answers of a file count as samples for the methods that need samples, unless
            the file lists different answers.
        rules: what makes an answer right.
        alpha: α of PRO; None chooses it on judged answers (`held_out_alpha`), or takes 0.4.
        methods: the names of the methods, or `file.py:name` of further ones; None for all, also
            those of the texts alone if only some questions have log-probabilities.
        is_fixed: whether an α that is not given is 0.4 even if it could be chosen.
        must_judge: whether it is an error if no answer can be judged.
        sample: labels of a sample of the answers. They judge the answers to the questions of the
            labelled split, and validation questions choose α (`prepare_answers`).

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
        >>> scored.questions[["text", "correct"]].head(2).values.tolist()
        [['Margaret Atwood', True], ['Mauritius', False]]
    """
    names = None if methods is None else find_methods(methods)
    rules = rules or AnswerRules()
    given_run = run
    if sample is not None:
        from pro_lib.app.sampled_evaluation import SampledEvaluation, labelled_questions
        from pro_lib.labels.answer_units import with_placeholders

        labelled = labelled_questions(run, sample)
        run = with_placeholders(run, labelled)
    # Texts next to log-probabilities would take the place of all log-probabilities.
    is_mixed = run.n_texts_alone() > 0
    options: dict[str, Any] = {}
    if not is_mixed and (run.is_texts or run.has_several_answers):
        options["samples"] = run if _can_be_samples(run) else None
        requested = [METHODS.get(split_name(name)[0]) for name in names or METHODS]
        if any(method is None or method.per_similarity for method in requested):
            options["similarities"] = {"lexical": _lexical_in_blocks}
    [judged] = evaluations(
        run, protocols=["workbench"], rules=rules, must_judge=must_judge, **options
    )
    sampled = None
    if sample is None:
        choice = _alpha_of(run, judged, alpha, is_fixed, rules.cluster)
    else:
        sampled = SampledEvaluation.of(sample, judged, given_run, labelled, alpha)
        judged = sampled.evaluation
        choice = sampled.alpha
    selected = tuple(map(short_name, select_methods(_score_names(judged.whole), names)))
    texts = None
    if is_mixed and sampled is None and names is None:
        texts = score_answers(run.as_texts(), rules=rules)
    return ScoredAnswers(run, judged, rules, choice, selected, texts, sampled)


def _score_names(evaluation: Evaluation) -> list[str]:
    """Return the names of the scores of an evaluation, PRO first and then NLL."""
    names = list(evaluation.baselines)
    if "NLL" not in names or evaluation.baselines["NLL"].isna().all():
        return names
    names.remove("NLL")
    return ["PRO", "NLL", *names, *evaluation.alpha_scores]


def _score_columns(evaluation: Evaluation, alphas: dict[str, float]) -> pd.DataFrame:
    """Return the scores of an evaluation at their α, by their short names."""
    names = _score_names(evaluation)
    scores = evaluation.baselines
    if "PRO" in names:
        scores = evaluation.scores({name: alphas[name] for name in evaluation.alpha_names})
    return scores[names].rename(columns=short_name)


def _can_be_samples(run: Run) -> bool:
    """Return whether the answers can be independent samples.

    Beams are not independent samples, and neither is a file that lists different answers. Two
    samples are equal with a probability of at least Σ p². So some answers of a file of samples are
    repeated, unless all answers are improbable.
    """
    if run.info.strategy in _NOT_SAMPLED:
        return False
    ranked = run.ranked_answers(distinct=False)
    ranked = ranked[ranked["value"].notna()]
    if run.is_texts or ranked["repeats"].any():
        return True
    n_answers = run.answers["question_id"].value_counts()
    squares = np.exp(2 * ranked["value"]).groupby(ranked["question_id"]).sum()
    n_pairs = n_answers * (n_answers - 1) / 2
    return bool((n_pairs * squares).sum() < _EXPECTED_REPEATS)


def _alpha_of(
    run: Run, judged: Evaluation, alpha: float | None, is_fixed: bool, cluster: str | None
) -> AlphaChoice:
    """Return α of PRO: the given one, the best one on judged answers, or 0.4."""
    if alpha is not None:
        return given_alpha(alpha, run.search_alpha)
    if is_fixed:
        why = "it must not depend on the answers that are compared"
    elif not len(judged.answers):
        why = "without judged answers, α cannot be chosen"
    elif "NLL" not in judged.baselines:
        why = "texts without log-probabilities do not use it"
    elif not run.has_several_answers:
        why = "with one answer to each question it has no effect"
    else:
        return held_out_alpha(judged, run.questions, cluster=cluster)
    return default_alpha(run.search_alpha, why=why)


def _lexical_in_blocks(texts: Any, questions: pd.DataFrame | None = None) -> FloatArray:
    """Return the lexical similarity of texts (n, N), with a progress bar if this takes long."""
    starts = range(0, max(len(texts), 1), _BLOCK)
    progress = tqdm(starts, desc="comparing answers", delay=2, disable=None, leave=False)
    return np.concatenate([scoring.lexical(texts[start : start + _BLOCK]) for start in progress])
