"""What each choice of the evaluation moves: AUROC with one decision changed at a time, beside this project's.

Run from the repository root: `python benchmarks/audit.py [--model facts-2m] [--dataset world-facts] [--csv FILE]`.
Every row changes one choice by an option of the package, or by what lies here and in variants.py, as docs/audit.md
explains, and is compared with the project's own choice on the same questions: difference of the AUROCs and its 95 %
interval by the jackknife over the relations of the questions, or over the questions where they have no relation. PRO's
α is chosen on 100 validation questions under the same choice, but where the row says otherwise.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import variants
from measuring import parse_arguments
from scipy.stats import t as student

from pro_lib import evaluation, metrics, scoring
from pro_lib.app.experiment import Experiment
from pro_lib.app.parameters import BEAMS, GREEDY, SAMPLES
from pro_lib.evaluation import sweeps
from pro_lib.evaluation.evaluate import Evaluation
from pro_lib.metrics.auroc import cluster_codes, jackknife_variance, jackknifed_aurocs
from pro_lib.metrics.correctness import Choices
from pro_lib.runs.run import Run
from pro_lib.scoring.similarity import Similarity

Pair = tuple[Evaluation, Evaluation]
RELEASED = Choices(convention="answer_tokens", distinct=False)


class Row(NamedTuple):
    """One choice: a method's uncertainties and labels of the reported questions, and the α it used, if any."""

    method: str
    choice: str
    option: str
    question_ids: np.ndarray
    uncertainty: np.ndarray
    correct: np.ndarray
    alpha: float = np.nan
    above_one: int = 0

    def of(self, rows: np.ndarray) -> "Row":
        """The row on some of its questions."""
        columns = ("question_ids", "uncertainty", "correct")
        return self._replace(**{name: getattr(self, name)[rows] for name in columns})


def pro_row(
    choice: str, option: str, pair: Pair, *, alpha=None, alphas=None, score: Callable = scoring.pro
) -> Row:
    """PRO under one choice; without `alpha` it is chosen on the first of the pair, from `alphas`, by default in steps
    of 0.05, and reported on the second. `score` is called with log-probabilities and `alpha`.
    """
    validation, reported = pair
    if alpha is None:
        judged = replace(validation, alpha_scores={choice: partial(score, validation.log_probs)})
        alpha = sweeps.select_alpha(judged, alphas=alphas, name=choice)
    uncertainty = score(reported.log_probs, alpha=alpha)
    above_one = int(scoring.above_one(reported.log_probs).sum())
    ids = reported.answers["question_id"].to_numpy()
    return Row("PRO", choice, option, ids, uncertainty, reported.correct, alpha, above_one)


def strictly(log_probs: np.ndarray, *, alpha: float) -> np.ndarray:
    """PRO of the answers with p > α, or of the most probable one: (n,), or (n, A) for several α."""
    first = np.arange(log_probs.shape[1]) == np.nanargmax(log_probs, axis=1)[:, None]
    with np.errstate(divide="ignore"):
        kept = [
            np.where((log_probs > limit) | first, log_probs, np.nan)
            for limit in np.ravel(np.log(alpha))
        ]
    columns = [scoring.pro(each, alpha=0) for each in kept]
    return np.column_stack(columns) if np.ndim(alpha) else columns[0]


def falling_back_on(first: dict[int, np.ndarray], *, strict: bool) -> Callable:
    """PRO that takes the first beam's NLL, not the most probable answer's, where no answer is kept.

    `first` has log-probabilities (n,) of the first beams, by the id of the array they belong to.
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
    """The run with the first token of each answer left out of its likelihood."""
    first = run.answers["token_log_probs"].map(lambda values: values[0] if len(values) else 0.0)
    return replace(
        run, answers=run.answers.assign(log_prob=run.answers["log_prob"] - first.astype(float))
    )


def with_last_reference(run: Run) -> Run:
    """The run with the last reference of each question only, as the release keeps it."""
    return replace(
        run,
        questions=run.questions.assign(
            references=run.questions["references"].map(lambda r: r[-1:])
        ),
    )


def judged_by(
    run: Run, judged: Evaluation, questions: pd.DataFrame, choices: Choices | None = None
) -> Evaluation:
    """The evaluation with the labels of the run's own answers; a question that it has no answer to is left out."""
    ids = list(judged.answers["question_id"])
    references = questions.set_index("question_id").loc[ids].reset_index()
    top = run.select(question_ids=ids).top(convention=(choices or Choices()).convention)
    labels = evaluation.rouge_and_correct(top, references, choices)
    labelled = replace(judged, answers=judged.answers.assign(correct=labels["correct"]))
    return labelled.rows(labels["correct"].notna())


def pro_rows(experiment: Experiment, beams: Run, samples: Run, others: list[Run]) -> Iterator[Row]:
    """One row a choice that concerns PRO or the labels of all methods."""

    def pair(choices: Choices | None = None, *, of: Run = beams) -> Pair:
        judge = partial(evaluation.evaluate, of, samples=samples, others=others, choices=choices)
        validation, reported = (judge(split=split) for split in ("validation", experiment.split))
        return validation.drawn(experiment.n_validation, seed=experiment.seed), reported

    def first_beams(judged_pair: Pair, convention: str) -> dict[int, np.ndarray]:
        # The first group of a diverse beam search has no penalty: it is greedy decoding.
        top = others[0].top(convention=convention).set_index("question_id")["value"]
        return {
            id(judged.log_probs): top[judged.answers["question_id"]].to_numpy()
            for judged in judged_pair
        }

    ours = pair()
    yield pro_row("this project's", "", ours)
    yield pro_row("α = 0.4, not chosen", "`alpha=0.4`", ours, alpha=0.4)
    yield pro_row("α best on the test questions (oracle)", "`select_alpha` on them", ours[1:] * 2)
    yield pro_row(
        "α from a grid with finer steps near 0",
        "`alphas=DRAWN_ALPHAS`",
        ours,
        alphas=sweeps.DRAWN_ALPHAS,
    )
    yield pro_row("p > α", "`strictly` here", ours, score=strictly)
    repeats = pair(Choices(distinct=False))
    yield pro_row("repeated beams kept", '`protocol="paper"`', repeats)
    finer = {"alphas": sweeps.DRAWN_ALPHAS}
    yield pro_row(
        "repeated beams kept, the finer grid",
        '`protocol="paper", alphas=DRAWN_ALPHAS`',
        repeats,
        **finer,
    )
    for kept, of in (("", ours), (", repeats kept", repeats)):
        for k in (2, 7, 10):
            option = f"`pro_at_k(…, {k})`"  # whatever α
            yield pro_row(
                f"K = {k}{kept}",
                option,
                of,
                alpha=np.nan,
                score=lambda p, alpha, k=k: scoring.pro_at_k(p, k),
            )
    ending = Choices(convention="answer_tokens")
    yield pro_row("ending left out", '`Choices(convention="answer_tokens")`', pair(ending))
    yield pro_row("ending left out, repeats kept", "both", pair(replace(ending, distinct=False)))
    cut = pair(replace(ending, distinct=False), of=without_first_token(beams))
    cut = tuple(
        replace(judged, answers=own.answers) for judged, own in zip(cut, pair(ending), strict=True)
    )
    yield pro_row("first token left out too", "`without_first_token` here", cut)
    yield pro_row(
        "last reference only", "`with_last_reference` here", pair(of=with_last_reference(beams))
    )
    yield pro_row(
        "exact match", '`correctness="exact_match"`', pair(Choices(correctness="exact_match"))
    )
    yield pro_row(
        "alias match", '`correctness="alias_match"`', pair(Choices(correctness="alias_match"))
    )
    own = tuple(judged_by(beams, judged, beams.questions) for judged in ours)
    yield pro_row("judged by the beams' own answer", "`judged_by` here", own)
    greedy = tuple(judged_by(others[0], judged, beams.questions) for judged in ours)
    fallback = falling_back_on(first_beams(greedy, "complete"), strict=False)
    yield pro_row(
        "judged by the first beam, fallback on it", "`judged_by` here", greedy, score=fallback
    )
    last = with_last_reference(beams)
    released = tuple(
        judged_by(others[0], judged, last.questions, RELEASED) for judged in pair(RELEASED, of=last)
    )
    fallback = falling_back_on(first_beams(released, "answer_tokens"), strict=True)
    yield pro_row(
        "as released, but for the cuts in the text",
        "all of these",
        released[1:] * 2,
        score=fallback,
    )


def entropy_rows(
    experiment: Experiment, beams: Run, samples: Run, others: list[Run]
) -> Iterator[Row]:
    """One row a choice of the answers that PE, PE-MC and NE read."""
    judged = partial(
        evaluation.evaluate, beams, samples=samples, others=others, split=experiment.split
    )
    distinct = judged(protocol="paper", choices=Choices(distinct=True))
    sources = {("this project's", ""): judged()}
    sources["of the beams, repeats kept", '`protocol="paper"`'] = judged(protocol="paper")
    sources["of the distinct beams", '`protocol="paper", distinct=True`'] = distinct
    for method in ("PE", "PE-MC", "NE"):
        for named, source in sources.items():
            if method != "PE" or "distinct" not in named[0]:  # which is this project's
                ids = source.answers["question_id"].to_numpy()
                yield Row(method, *named, ids, source.baselines[method].to_numpy(), source.correct)


def meaning_rows(
    similarity: str,
    measure: Similarity,
    experiment: Experiment,
    beams: Run,
    samples: Run,
    others: list[Run],
) -> Iterator[Row]:
    """One row a choice that concerns SE, SD and Deg, for one similarity."""
    judged = evaluation.evaluate(beams, samples=samples, others=others, split=experiment.split)
    ids = judged.answers["question_id"].to_numpy()
    beams, samples = (run.select(question_ids=ids) for run in (beams, samples))
    ranked, every = beams.ranked_answers(), samples.ranked_answers(distinct=False)
    log_probs, means, texts = (
        beams.matrix(ranked, *column) for column in (("value",), ("mean",), ("text", None))
    )
    pairs = measure(texts, beams.questions)
    meaning, once = scoring.clusters(pairs), scoring.first_occurrences(texts)
    drawn = samples.matrix(every, "text", None)

    def row(method: str, choice: str, option: str, uncertainty: np.ndarray) -> Row:
        return Row(f"{method}, {similarity}", choice, option, ids, uncertainty, judged.correct)

    yield row("SE", "this project's", "", scoring.semantic_entropy(log_probs, meaning))
    for variant, entropy in variants.ENTROPIES.items():
        for name, values in (("", log_probs), (", token-averaged", means)):
            if (variant, name) not in (("farquhar2024", ""), ("discrete", ", token-averaged")):
                yield row(
                    "SE", variant + name, f"`ENTROPIES[{variant!r}]`", entropy(values, meaning)
                )
    sampled = samples.log_probs(distinct=False)
    of_samples = scoring.clusters(measure(drawn, samples.questions))
    for variant in ("farquhar2024", "kuhn2023", "discrete"):
        entropy = variants.ENTROPIES[variant]
        yield row("SE", f"{variant} on samples", "samples' texts", entropy(sampled, of_samples))
    density, each_once = scoring.semantic_density, np.where(once, means, np.nan)
    yield row("SD", "this project's", "", density(each_once, pairs))
    only_first = np.where(np.arange(once.shape[1]) == 0, means, np.nan)
    kept = evaluation.answer_matrices(beams)
    counted = density(kept.means, measure(kept.texts, beams.questions))
    yield row("SD", "repeats counted", '`protocol="paper"`', counted)
    yield row("SD", "of one beam, as released", "the first beam alone", density(only_first, pairs))
    forward = variants.forward_density(means, pairs, with_itself=True, keep=once)
    yield row("SD", "lm_polygraph", "`forward_density`", forward)
    yield row("Deg", "this project's", "", scoring.degree(measure(drawn, samples.questions)))
    yield row("Deg", "of the beams", "beams' texts", scoring.degree(pairs))
    beside = measure(np.column_stack([texts[:, :1], drawn]), beams.questions)
    apart = np.column_stack([np.zeros(len(drawn), dtype=bool), scoring.first_occurrences(drawn)])
    one = apart & (np.arange(apart.shape[1]) == 1)
    for choice, keep in {
        "mean distance from the first beam": apart,
        "the same, one sample": one,
    }.items():
        yield row("Deg", choice, "`mean_distance`", variants.mean_distance(beside, keep))


def paired_difference(first: Row, second: Row, clusters: np.ndarray) -> tuple[float, float, float]:
    """Return the AUROC of one row minus another's on the same questions, and the ends of its 95 % interval.

    Each row has its own labels, so that `metrics.delong` does not apply. The variance is the jackknife's over
    `clusters` (n,), and the quantile Student's for their number. NaN where a cluster holds all answers of a class.
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


def table(rows: list[Row], relations: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Tabulate a row per choice, compared with the first row of its method.

    `relations` are the clusters of the questions by their ids; None if every question stands for itself. Columns:
    method, choice, option, alpha, n_questions, above_one (questions whose answers have a mass above 1), auroc,
    difference, low, high, interval ("by cluster" or "by question").
    """
    lines = []
    ours: dict[str, Row] = {}
    for row in rows:
        own = ours.setdefault(row.method, row)
        _, at, own_at = np.intersect1d(row.question_ids, own.question_ids, return_indices=True)
        ids = row.question_ids[at]
        clusters = (
            ids if relations is None else np.array([relations[question_id] for question_id in ids])
        )
        compared = paired_difference(row.of(at), own.of(own_at), clusters)
        auroc = metrics.auroc(row.uncertainty, row.correct)
        line = (
            row.method,
            row.choice,
            row.option,
            row.alpha,
            len(row.correct),
            row.above_one,
            auroc,
        )
        lines.append((*line, *compared, "by question" if relations is None else "by cluster"))
    names = "method choice option alpha n_questions above_one auroc difference low high interval"
    return pd.DataFrame(lines, columns=names.split())


def markdown(rows: pd.DataFrame) -> str:
    """The table for the docs, numbers with three digits."""
    lines = ["| method | choice | option | α | AUROC | difference |", "|---|---|---|---|---|---|"]
    for row in rows.itertuples():
        alpha = "" if np.isnan(row.alpha) else f"{row.alpha:g}"
        difference = (
            f"{row.difference:+.3f} [{row.low:+.3f}, {row.high:+.3f}]" if row.option else ""
        )
        lines.append(
            f"| {row.method} | {row.choice} | {row.option} | {alpha} | {row.auroc:.3f} | {difference} |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Print the table and write it where asked."""
    options = {
        "--model": "facts-2m",
        "--dataset": "world-facts",
        "--similarity": ["lexical", "alias"],
    }
    given = parse_arguments(__doc__, options | {"--limit": int, "--csv": Path}, arguments)
    pair, of = (
        (given.model, given.dataset),
        {"similarity": given.similarity, "limit": given.limit, "reported": True},
    )
    experiment = Experiment(model=given.model, dataset=given.dataset, **of)
    with warnings.catch_warnings():
        # Some choices are known to break the premise of the bound; the table counts where.
        warnings.simplefilter("ignore", scoring.PremiseWarning)
        beams, samples, greedy = (
            experiment.both_splits(*pair, name) for name in (BEAMS, SAMPLES, GREEDY)
        )
        runs = experiment, beams, samples, [greedy]
        rows = [*pro_rows(*runs), *entropy_rows(*runs)]
        for similarity, measure in experiment.similarities(*pair).items():
            rows += meaning_rows(similarity, measure, *runs)
        relations = None
        if "relation" in beams.questions:
            relations = beams.questions.set_index("question_id")["relation"].to_dict()
        result = table(rows, relations)
    print(markdown(result))
    if given.csv:
        result.to_csv(given.csv, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
