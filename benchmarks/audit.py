"""Measure how the AUROC changes if one choice of the evaluation changes.

    python benchmarks/audit.py [--model facts-2m] [--dataset world-facts] [--csv FILE]

Every row changes one choice, by an option of the package or by a function of this module or of
variants.py; docs/explanation/protocols.md has the rules. A row is compared with the project's
choice on the same questions by the difference of the AUROCs. Its 95 % interval is that of the
jackknife over the relations of the questions. The α of PRO is chosen on 100 validation questions
under the same choice, unless the row states another α.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import variants
from measuring import parse_arguments
from scipy.stats import t as student

from pro_lib import evaluation, metrics, scoring
from pro_lib.app.experiment import Experiment
from pro_lib.app.parameters import GREEDY, SAMPLES
from pro_lib.evaluation import alpha_choice
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.evaluation.inputs import AlphaScore, AnswerMatrices
from pro_lib.evaluation.methods import Method
from pro_lib.metrics.correctness import AnswerRules
from pro_lib.metrics.roc import cluster_codes, jackknife_variance, jackknifed_aurocs
from pro_lib.runs.run import Run
from pro_lib.scoring.similarity import Similarity

Pair = tuple[Evaluation, Evaluation]
RELEASED = AnswerRules(convention="answer_tokens", distinct=False)


class Row(NamedTuple):
    """The uncertainties and labels of one method under one choice, on the reported questions.

    Attributes:
        method: the name of the method.
        choice: the choice in words.
        question_ids: ids of the questions (n,).
        uncertainty: the scores (n,), higher = more uncertain.
        correct: whether the answers are correct (n,).
        alpha: the α of PRO; NaN for other methods.
    """

    method: str
    choice: str
    question_ids: np.ndarray
    uncertainty: np.ndarray
    correct: np.ndarray
    alpha: float = np.nan

    def select(self, indices: np.ndarray) -> "Row":
        """Return the row for some of its questions."""
        columns = ("question_ids", "uncertainty", "correct")
        return self._replace(**{name: getattr(self, name)[indices] for name in columns})


def pro_row(choice: str, pair: Pair, *, alpha=None, score: Callable = scoring.pro) -> Row:
    """Return the row of PRO under one choice.

    Args:
        choice: the choice in words.
        pair: the evaluations of the validation questions and of the reported questions.
        alpha: the α of PRO; None chooses it on the validation questions.
        score: a function of log-probabilities and `alpha` that returns uncertainties.
    """
    validation, reported = pair
    if alpha is None:
        inputs = {"log_probs": validation.log_probs}
        alpha_score = AlphaScore(Method(choice, score, ""), inputs)
        judged = replace(validation, alpha_scores={choice: alpha_score})
        alpha = alpha_choice.select_alpha(judged, name=choice)
    uncertainty = score(reported.log_probs, alpha=alpha)
    ids = reported.answers["question_id"].to_numpy()
    return Row("PRO", choice, ids, uncertainty, reported.correct, alpha)


def judged_questions(*runs: Run, **options: Any) -> Evaluation:
    """Return the judged questions of `evaluation.evaluate`."""
    return evaluation.evaluate(*runs, **options)


def strictly(log_probs: np.ndarray, *, alpha: float) -> np.ndarray:
    """Return PRO of the answers with p > α, or of the most probable one; (n,), or (n, A)."""
    first = np.arange(log_probs.shape[1]) == np.nanargmax(log_probs, axis=1)[:, None]
    with np.errstate(divide="ignore"):
        kept = [
            np.where((log_probs > limit) | first, log_probs, np.nan)
            for limit in np.ravel(np.log(alpha))
        ]
    columns = [scoring.pro(selected, alpha=0) for selected in kept]
    return np.column_stack(columns) if np.ndim(alpha) else columns[0]


def falling_back_on(first: dict[int, np.ndarray], *, strict: bool) -> Callable:
    """Return PRO with the NLL of the first beam if no answer is kept.

    Args:
        first: log-probabilities (n,) of the first beams, by the `id` of the array of all beams.
        strict: whether an answer is kept if p > α, instead of p ≥ α.
    """

    def score(log_probs, *, alpha):
        pro = strictly(log_probs, alpha=alpha) if strict else scoring.pro(log_probs, alpha=alpha)
        highest = np.nanmax(log_probs, axis=1)
        with np.errstate(divide="ignore"):
            log_alpha = np.log(alpha)
        shape = (slice(None), *[None] * np.ndim(alpha))
        kept = highest[shape] > log_alpha if strict else highest[shape] >= log_alpha
        return np.where(kept, pro, -first[id(log_probs)][shape])

    return score


def without_first_token(run: Run) -> Run:
    """Return the run with likelihoods without the first token of each answer."""
    first = run.answers["token_log_probs"].map(lambda values: values[0] if len(values) else 0.0)
    return replace(
        run, answers=run.answers.assign(log_prob=run.answers["log_prob"] - first.astype(float))
    )


def with_last_reference(run: Run) -> Run:
    """Return the run with only the last reference of each question, as in the release."""
    return replace(
        run,
        questions=run.questions.assign(
            references=run.questions["references"].map(lambda r: r[-1:])
        ),
    )


def judged_by(
    run: Run, judged: Evaluation, questions: pd.DataFrame, rules: AnswerRules | None = None
) -> Evaluation:
    """Return the evaluation with the labels of the most probable answers of the run.

    Questions without an answer in the run are left out.
    """
    ids = list(judged.answers["question_id"])
    references = questions.set_index("question_id").loc[ids].reset_index()
    top = run.select(question_ids=ids).top(convention=(rules or AnswerRules()).convention)
    labels = metrics.rouge_and_correct(top, references, rules)
    labelled = replace(judged, answers=judged.answers.assign(correct=labels["correct"]))
    return labelled.select(labels["correct"].notna())


class ProRows:
    """The rows of the choices of PRO and of the labels of all methods.

    Args:
        experiment: the experiment whose questions are reported.
        beams: the run of the diverse beam search.
        samples: the run of the samples.
        others: other runs; the first one is the greedy run.
    """

    def __init__(self, experiment: Experiment, beams: Run, samples: Run, others: list[Run]) -> None:
        self.experiment = experiment
        self.beams = beams
        self.samples = samples
        self.others = others
        self.ours = self.pair()

    def pair(self, rules: AnswerRules | None = None, *, run: Run | None = None) -> Pair:
        """Return the evaluations of validation and reported questions under some rules."""
        evaluate = partial(
            judged_questions,
            self.beams if run is None else run,
            samples=self.samples,
            others=self.others,
            rules=rules,
        )
        experiment = self.experiment
        validation = evaluate(split="validation")
        drawn = validation.drawn(experiment.n_validation, seed=experiment.seed)
        return drawn, evaluate(split=experiment.split)

    def first_beams(self, pair: Pair, convention: str) -> dict[int, np.ndarray]:
        """Return the log-probabilities of the first beams, as `falling_back_on` takes them.

        The first group of a diverse beam search has no penalty, so that it is greedy decoding.
        """
        top = self.others[0].top(convention=convention).set_index("question_id")["value"]
        return {
            id(judged.log_probs): top[judged.answers["question_id"]].to_numpy() for judged in pair
        }

    def rows(self) -> Iterator[Row]:
        """Yield a row for each choice."""
        yield pro_row("this project's", self.ours)
        yield from self.alpha_rows()
        yield from self.repeat_rows()
        yield from self.ending_rows()
        yield from self.label_rows()
        yield self.released_row()

    def alpha_rows(self) -> Iterator[Row]:
        """Yield the choices of α."""
        yield pro_row("α = 0.4, not chosen", self.ours, alpha=0.4)
        yield pro_row("α best on the test questions (oracle)", self.ours[1:] * 2)

    def repeat_rows(self) -> Iterator[Row]:
        """Yield the choices of repeated beams and of a fixed K."""
        repeats = self.pair(AnswerRules(distinct=False))
        yield pro_row("repeated beams kept", repeats)
        for ending, pair in (("", self.ours), (", repeats kept", repeats)):
            for k in (2, 10):
                yield pro_row(
                    f"K = {k}{ending}",
                    pair,
                    alpha=np.nan,
                    score=lambda log_probs, alpha, k=k: scoring.pro_at_k(log_probs, k),
                )

    def ending_rows(self) -> Iterator[Row]:
        """Yield the choices of the tokens that count in the likelihood."""
        rules = AnswerRules(convention="answer_tokens")
        with_repeats = replace(rules, distinct=False)
        without_ending = self.pair(rules)
        yield pro_row("ending left out", without_ending)
        yield pro_row("ending left out, repeats kept", self.pair(with_repeats))
        cut = self.pair(with_repeats, run=without_first_token(self.beams))
        labelled = tuple(
            replace(judged, answers=uncut.answers)
            for judged, uncut in zip(cut, without_ending, strict=True)
        )
        yield pro_row("first token left out too", labelled)

    def label_rows(self) -> Iterator[Row]:
        """Yield the choices of references, of correctness and of the labelled answer."""
        last = self.pair(run=with_last_reference(self.beams))
        yield pro_row("last reference only", last)
        alias = self.pair(AnswerRules(correctness="alias_match"))
        yield pro_row("alias match", alias)
        questions = self.beams.questions
        by_beams = tuple(judged_by(self.beams, judged, questions) for judged in self.ours)
        yield pro_row("judged by the beams' own answer", by_beams)
        greedy = tuple(judged_by(self.others[0], judged, questions) for judged in self.ours)
        fallback = falling_back_on(self.first_beams(greedy, "complete"), strict=False)
        yield pro_row("judged by the first beam, fallback on it", greedy, score=fallback)

    def released_row(self) -> Row:
        """Return the row with all choices of the release, without its cuts in the text."""
        last = with_last_reference(self.beams)
        released = tuple(
            judged_by(self.others[0], judged, last.questions, RELEASED)
            for judged in self.pair(RELEASED, run=last)
        )
        fallback = falling_back_on(self.first_beams(released, "answer_tokens"), strict=True)
        choice = "as released, but for the cuts in the text"
        return pro_row(choice, released[1:] * 2, score=fallback)


def entropy_rows(
    experiment: Experiment, beams: Run, samples: Run, others: list[Run]
) -> Iterator[Row]:
    """Yield a row for each choice of the answers from which PE, PE-MC and NE are computed."""
    judged = partial(
        judged_questions, beams, samples=samples, others=others, split=experiment.split
    )
    sources = {
        "this project's": judged(),
        "of the beams, repeats kept": judged(protocol="paper"),
        "of the distinct beams": judged(protocol="paper", rules=AnswerRules(distinct=True)),
    }
    for method in ("PE", "PE-MC", "NE"):
        for choice, source in sources.items():
            # For PE the distinct beams are this project's choice.
            if method != "PE" or choice != "of the distinct beams":
                ids = source.answers["question_id"].to_numpy()
                yield Row(method, choice, ids, source.baselines[method].to_numpy(), source.correct)


def meaning_rows(
    measure: Similarity,
    experiment: Experiment,
    beams: Run,
    samples: Run,
    others: list[Run],
) -> Iterator[Row]:
    """Yield a row for each choice of SE, SD and Deg, with ROUGE-L as similarity."""
    options = {"samples": samples, "others": others, "split": experiment.split}
    judged = evaluation.evaluate(beams, **options)
    ids = judged.answers["question_id"].to_numpy()
    beams, samples = (run.select(question_ids=ids) for run in (beams, samples))
    ranked = beams.ranked_answers()
    every = samples.ranked_answers(distinct=False)
    log_probs, means, texts = (
        beams.matrix(ranked, *column) for column in (("value",), ("mean",), ("text", None))
    )
    pairs = measure(texts, beams.questions)
    meaning = scoring.clusters(pairs)
    once = scoring.first_occurrences(texts)
    drawn = samples.matrix(every, "text", None)

    def row(method: str, choice: str, uncertainty: np.ndarray) -> Row:
        return Row(f"{method}, lexical", choice, ids, uncertainty, judged.correct)

    yield row("SE", "this project's", scoring.semantic_entropy(log_probs, meaning))
    yield row("SE", "kuhn2023", variants.mean_over_meanings(log_probs, meaning))
    of_samples = scoring.clusters(measure(drawn, samples.questions))
    sampled = variants.mean_over_meanings(samples.log_probs(distinct=False), of_samples)
    yield row("SE", "kuhn2023 on samples", sampled)
    density = scoring.semantic_density
    each_once = np.where(once, means, np.nan)
    yield row("SD", "this project's", density(each_once, pairs))
    only_first = np.where(np.arange(once.shape[1]) == 0, means, np.nan)
    kept = AnswerMatrices.of(beams)
    counted = density(kept.means, measure(kept.texts, beams.questions))
    yield row("SD", "repeats counted", counted)
    yield row("SD", "of one beam, as released", density(only_first, pairs))
    yield row("Deg", "this project's", scoring.degree(measure(drawn, samples.questions)))
    yield row("Deg", "of the beams", scoring.degree(pairs))
    compared_texts = measure(np.column_stack([texts[:, :1], drawn]), beams.questions)
    is_distinct = np.column_stack(
        [np.zeros(len(drawn), dtype=bool), scoring.first_occurrences(drawn)]
    )
    is_first_sample = is_distinct & (np.arange(is_distinct.shape[1]) == 1)
    for choice, keep in {
        "mean distance from the first beam": is_distinct,
        "the same, one sample": is_first_sample,
    }.items():
        yield row("Deg", choice, variants.mean_distance(compared_texts, keep))


def paired_difference(first: Row, second: Row, clusters: np.ndarray) -> tuple[float, float, float]:
    """Return the difference of the AUROCs of two rows, and the ends of its 95 % interval.

    The rows have different labels, so that `metrics.delong` does not apply. The variance is that of
    the jackknife over `clusters` (n,), and the quantile is that of Student's t. The ends are NaN if
    one cluster contains all answers of a class.
    """
    codes = cluster_codes(clusters, len(first.correct))
    difference = metrics.auroc(first.uncertainty, first.correct) - metrics.auroc(
        second.uncertainty, second.correct
    )
    jackknifed = [
        jackknifed_aurocs(row.uncertainty[:, None], row.correct, codes) for row in (first, second)
    ]
    variance = jackknife_variance(jackknifed[0] - jackknifed[1], np.array([difference]))[0]
    half = student.isf(0.025, codes.max()) * np.sqrt(variance)
    return difference, difference - half, difference + half


def table(rows: list[Row], relations: Mapping[str, str]) -> pd.DataFrame:
    """Tabulate a row per choice, compared with the first row of its method.

    Args:
        rows: the rows of all choices.
        relations: the clusters of the questions by their ids.

    Returns:
        Columns: method, choice, alpha, n_questions, auroc, difference, low and high.
    """
    lines = []
    ours: dict[str, Row] = {}
    for row in rows:
        reference = ours.setdefault(row.method, row)
        ids, indices, reference_indices = np.intersect1d(
            row.question_ids, reference.question_ids, return_indices=True
        )
        clusters = np.array([relations[name] for name in ids])
        difference, low, high = paired_difference(
            row.select(indices), reference.select(reference_indices), clusters
        )
        lines.append(
            {
                "method": row.method,
                "choice": row.choice,
                "alpha": row.alpha,
                "n_questions": len(row.correct),
                "auroc": metrics.auroc(row.uncertainty, row.correct),
                "difference": difference,
                "low": low,
                "high": high,
            }
        )
    return pd.DataFrame(lines)


def main(words: list[str] | None = None) -> None:
    """Print the table and write it to `--csv`."""
    options = {"--model": "facts-2m", "--dataset": "world-facts", "--limit": int, "--csv": Path}
    arguments = parse_arguments(__doc__, options, words)
    pair = (arguments.model, arguments.dataset)
    experiment = Experiment(model=arguments.model, dataset=arguments.dataset, limit=arguments.limit)
    with warnings.catch_warnings():
        # Some choices are known to break the premise of the bound.
        warnings.simplefilter("ignore", scoring.PremiseWarning)
        beams, samples, greedy = (
            experiment.run_of_both_splits(*pair, name) for name in ("diverse_beam", SAMPLES, GREEDY)
        )
        runs = experiment, beams, samples, [greedy]
        measure = experiment.similarities(*pair)["lexical"]
        rows = [*ProRows(*runs).rows(), *entropy_rows(*runs), *meaning_rows(measure, *runs)]
        relations = beams.questions.set_index("question_id")["relation"].to_dict()
        result = table(rows, relations)
    print(result.round(3).to_string(index=False))
    if arguments.csv:
        result.to_csv(arguments.csv, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
