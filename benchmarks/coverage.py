"""How often 95 % intervals of AUROCs, and of their differences, contain the value they are of: docs/intervals.md.

`--records` are outputs whose scores are resampled beside, and `--only differences` takes minutes, with as many
repetitions as `--pairs` says.
Labels are drawn (again where one class is missing), scores given the labels. How `metrics.auroc_intervals` shrinks was
chosen on binormal scores, on those with a wide wrong class (deviation 2), on exponential ones and on four levels, with
other seeds; `SCORES` are what is reported.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import parse_arguments
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from pro_lib import metrics
from pro_lib.app.experiment import Experiment

N_QUESTIONS = (100, 300, 1000)
SHARES_RIGHT = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
AUROCS = (0.6, 0.7, 0.8, 0.9, 0.97)
CUTS = np.arange(-0.5, 4, 0.5)  # between the levels of rounded scores
METHODS = ("NLL", "PRO", "Deg, lexical")  # whose real scores are resampled; Deg has many ties
Draw = Callable[[np.random.Generator, tuple[int, int], bool], np.ndarray]  # (generator, shape, of wrong answers)


def binormal(auroc: float, deviation: float = 1.0) -> Draw:
    """Normal scores; those of wrong answers with a mean that gives the AUROC, and a deviation."""
    mean = ndtri(auroc) * np.hypot(1, deviation)
    return lambda rng, shape, wrong: rng.normal(mean * wrong, deviation if wrong else 1, shape)


def exponential(auroc: float) -> Draw:
    """Minus exponential scores: the right answers have the long tail, downwards."""
    return lambda rng, shape, wrong: -rng.exponential(1 if wrong else auroc / (1 - auroc), shape)


def rounded(auroc: float) -> Draw:
    """Binormal scores cut into ten levels, moved apart until the AUROC, ties counting half, is right."""

    def reached(mean: float) -> float:
        of_wrong, of_right = (np.diff(ndtr([-np.inf, *(CUTS - at), np.inf])) for at in (mean, 0))
        return of_wrong @ (np.cumsum(of_right) - of_right / 2)

    mean = brentq(lambda at: reached(at) - auroc, 0, 20)
    return lambda rng, shape, wrong: np.searchsorted(CUTS, rng.normal(mean * wrong, 1, shape)).astype(float)


SCORES = {
    "binormal": binormal,
    "binormal, narrow wrong class": lambda auroc: binormal(auroc, 0.5),
    "exponential, downwards": exponential,
    "ten levels": rounded,
}


def resampled(values: np.ndarray, correct: np.ndarray) -> Draw:
    """Scores of real answers, drawn with replacement."""
    return lambda rng, shape, wrong: rng.choice(values[correct != wrong], shape)


def drawn(
    draw: Draw, n: int, share: float, repetitions: int, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Scores (n, B) and labels (n,), those repetitions together that have as many right answers."""
    n_right = rng.binomial(n, share, 2 * repetitions)
    n_right = n_right[(n_right > 0) & (n_right < n)][:repetitions]
    for right, count in zip(*np.unique(n_right, return_counts=True), strict=True):
        parts = draw(rng, (right, count), False), draw(rng, (n - right, count), True)
        yield np.concatenate(parts), np.arange(n) < right


def placements(uncertainty: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the other class that lie below each wrong answer (B, n_wrong), and each right one (B, n_right)."""
    of_wrong, of_right = metrics.pairs_won(uncertainty, correct)
    return of_wrong / of_right.shape[1], of_right / of_wrong.shape[1]


def delong(of_wrong: np.ndarray, of_right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The AUROC less, and plus, 1.96 of DeLong's standard errors."""
    classes = [of for of in (of_wrong, of_right) if of.shape[1] > 1]  # of one answer no variance is known
    half = ndtri(0.975) * np.sqrt(sum(of.var(axis=1, ddof=1) / of.shape[1] for of in classes))
    return of_wrong.mean(axis=1) - half, of_wrong.mean(axis=1) + half


def covered(draw: Draw, truth: float, n: int, share: float, *, repetitions: int, seed: int) -> dict:
    """How often each interval contains the AUROC."""
    rng, hits = np.random.default_rng([seed, n, round(100 * share), round(1000 * truth)]), {}

    def add(name: str, low: np.ndarray, high: np.ndarray) -> None:
        hits.setdefault(name, []).extend((low <= truth + 1e-12) & (truth - 1e-12 <= high))

    for uncertainty, correct in drawn(draw, n, share, repetitions, rng):
        add("covered", *metrics.auroc_intervals(uncertainty, correct)[1:])
        add("delong", *delong(*placements(uncertainty, correct)))
    return {name: np.mean(of) for name, of in hits.items()}


def single(*, repetitions: int, seed: int) -> Iterator[dict]:
    """A row per distribution, number of questions, share of right answers and AUROC."""
    populations = [(name, auroc, of(auroc)) for name, of in SCORES.items() for auroc in AUROCS]
    experiment = Experiment(model="facts-2m", dataset="world-facts", similarity=["lexical"], reported=True)
    evaluation = experiment.evaluations("facts-2m", "world-facts", "test", methods="all")[-1]
    for name, values in evaluation.with_pro({"PRO": 0.4})[list(METHODS)].items():
        truth = metrics.auroc(values, evaluation.correct)
        populations.append((f"{name} of facts-2m", truth, resampled(values.to_numpy(), evaluation.correct)))
    for (name, auroc, draw), n, share in itertools.product(populations, N_QUESTIONS, SHARES_RIGHT):
        found = covered(draw, auroc, n, share, repetitions=repetitions, seed=seed)
        yield {"scores": name, "n_questions": n, "share_right": share, "auroc": round(auroc, 4)} | found


def paired(*, repetitions: int, seed: int) -> Iterator[dict]:
    """A row per number of questions, share right, AUROC, difference and correlation of two binormal scores."""
    cells = itertools.product((100, 300), (0.1, 0.5, 0.9), (0.7, 0.9), (0.0, 0.03), (0.0, 0.9, 0.98))
    for number, (n, share, auroc, gap, r) in enumerate(cells):
        correct, rng = np.arange(n) < round(n * share), np.random.default_rng([seed, number])
        noise = rng.normal(size=(2, n, repetitions))
        means = [ndtri(each) * np.sqrt(2) * ~correct[:, None] for each in (auroc - gap, auroc)]
        first, second = noise[0] + means[0], r * noise[0] + np.sqrt(1 - r * r) * noise[1] + means[1]
        draws = ((np.stack(pair, axis=1), correct) for pair in zip(first.T, second.T, strict=True))
        cell = {"n_questions": n, "share_right": share, "auroc": auroc, "difference": gap, "correlation": r}
        yield cell | difference_covered(draws, gap)


def difference_covered(draws: Iterable[tuple[np.ndarray, np.ndarray]], truth: float) -> dict[str, float]:
    """How often intervals contain a difference, how wide they are, and how often a reading of it is false.

    `draws` are the two scores (n, 2) and labels (n,) of samples; with `delong_` before it, of DeLong's without the half
    questions. Equivalence is false from the margin on, an excess where it has the other sign.
    """
    rows = []
    for values, correct in draws:
        moves = [of[1] - of[0] for of in placements(values, correct)]
        test = metrics.delong(values, correct)
        plain = np.sqrt(sum(of.var(ddof=1) / len(of) for of in moves))
        gap, row = test.difference[1], {}
        for name, error in (("", test.standard_error[1]), ("delong_", plain)):
            half = ndtri(0.975) * error
            row[f"{name}covered"] = abs(gap - truth) <= half + 1e-12
            row[f"{name}width"] = 2 * half
            near_zero = abs(gap) + ndtri(0.95) * error < metrics.MARGIN
            row[f"{name}equivalent"] = near_zero and abs(truth) >= metrics.MARGIN
            row[f"{name}exceeds"] = abs(gap) > half and gap * truth <= 0
        rows.append(row)
    return {name: np.mean([row[name] for row in rows]) for name in rows[0]}


def near(records: Sequence[str], *, repetitions: int, seed: int) -> Iterator[dict]:
    """A row per pair of scores that differ on few questions: made ones, and real ones resampled."""
    sizes = ((30, 270), (100, 400), (150, 150), (300, 2700), (500, 500), (1000, 1000))
    moves = ((0.012, 1.0), (0.05, 1.0), (0.024, 0.5), (0.002, 1.0))
    for (share, jump), (n_wrong, n_right) in itertools.product(moves, sizes):
        rng = np.random.default_rng([seed, round(1e4 * share), n_wrong])
        draws = (moved(rng, n_wrong, n_right, share, jump) for _ in range(repetitions))
        cell = {"scores": f"{share:.1%} of the wrong move by {jump:g}", "n_wrong": n_wrong, "n_right": n_right}
        yield cell | {"difference": share * jump} | difference_covered(draws, share * jump)
    sources = [{"model": ["facts-2m", "facts-1m"]}] + [{"records": records}] * bool(records)
    for experiment in (Experiment(**source) for source in sources):
        for pair in experiment.pairs():
            judged = experiment.evaluations(*pair, "test" if experiment.records is None else "all")[-1]
            nll = judged.baselines["NLL"].to_numpy()
            for name, score in {f"PRO {a:g}": judged.pro(a) for a in (0.05, 0.2, 0.4)}.items():
                values, rng = np.stack([nll, score], axis=1), np.random.default_rng([seed, 7])
                truth = float(metrics.delong(values, judged.correct).difference[1])
                for n in (300, 1000):
                    picks = (rng.integers(0, len(nll), n) for _ in range(repetitions))
                    samples = [(values[rows], judged.correct[rows]) for rows in picks]
                    samples = [of for of in samples if np.bincount(of[1], minlength=2).min() >= 30]
                    cell = {"scores": f"{name} - NLL, {pair[0]}, {pair[1]}", "n_questions": n, "difference": truth}
                    yield cell | {"samples": len(samples)} | (difference_covered(samples, truth) if samples else {})


def moved(
    rng: np.random.Generator, n_wrong: int, n_right: int, share: float, jump: float
) -> tuple[np.ndarray, np.ndarray]:
    """Two exponential scores that differ on a share of the wrong, which move upwards over so much of the right."""
    correct = np.arange(n_wrong + n_right) >= n_wrong
    score = rng.exponential(np.where(correct, 1.0, 3.0))
    moves = (rng.random(len(correct)) < share) & ~correct
    top = np.log(1 / (1 - jump)) if jump < 1 else 99.0  # the quantile of the right answers' scores
    return np.stack([np.where(moves, -1.0, score), np.where(moves, top, score)], axis=1), correct


def summary(table: pd.DataFrame) -> str:
    """Lines for the docs: the worst cells of each distribution, and how many of them fall short or go too far."""
    fewer = np.minimum(table["share_right"], 1 - table["share_right"])
    large = (table["n_questions"] * fewer > 29.9) & (table["auroc"] <= 0.9)  # 30 expected of both classes
    head = "| scores | cells | lowest | below 0.93 | highest, 30 of both | above 0.97 | DeLong, lowest | below 0.93 |"
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    for name, part in table.groupby("scores", sort=False):
        inner = part.loc[large[part.index], "covered"]
        cells = [name, len(part), f"{part['covered'].min():.3f}", (part["covered"] < 0.93).sum(), f"{inner.max():.3f}"]
        cells += [(inner > 0.97).sum(), f"{part['delong'].min():.3f}", (part["delong"] < 0.93).sum()]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    """Write the tables beside docs/intervals.md, or where asked, and print what the page says."""
    options = {"--repetitions": 4000, "--pairs": 300, "--seed": 2, "--records": []}
    given = parse_arguments(__doc__, options | {"--only": str, "--out": Path("docs")})
    differences = {"repetitions": given.pairs, "seed": given.seed}
    tables = {"_of_differences": paired(**differences), "_of_near_scores": near(given.records, **differences)}
    if given.only != "differences":
        tables[""] = single(repetitions=given.repetitions, seed=given.seed)
    for name, rows in tables.items():
        table = pd.DataFrame(rows)
        table.round(4).to_csv(given.out / f"coverage{name}.csv", index=False)
        print(table.round(3).to_string() if name else summary(table))


if __name__ == "__main__":
    main()
