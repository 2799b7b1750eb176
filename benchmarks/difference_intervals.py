"""Measure how often intervals of AUROC differences cover the truth, and how often they exclude 0.

    python benchmarks/difference_intervals.py --workers 2 --repetitions 4000 \
        --output docs/results/data/difference_intervals.csv

The script draws two scores of the same questions from a population with known AUROCs. It does so
many times per cell. It compares `pro_lib.metrics.delong` with DeLong's interval and two others. It
writes the rows of fifty cells as soon as they are done. A second call with the same `--output`
skips the cells in the file. `--page docs/explanation/intervals.md` writes the tables into the page
instead. `--only` runs the cells whose name contains a text, `--part 1/50` one in fifty. It needs
numpy, scipy and pandas only. docs/explanation/intervals.md explains the table and the choice of the
method, which was made with other seeds and mostly other cells.
"""

import argparse
import importlib.util
import itertools
import os
import re
import sys
import types
import zlib
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import expit, ndtri

# Several workers share the cores, so that each of them uses one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
if importlib.util.find_spec("rapidfuzz") is None:
    # `pro_lib.metrics` cannot be imported as a whole, but the two modules that are used can.
    package = types.ModuleType("pro_lib.metrics")
    package.__path__ = [str(ROOT / "pro_lib" / "metrics")]
    sys.modules["pro_lib.metrics"] = package

from pro_lib.metrics import differences  # noqa: E402
from pro_lib.metrics.auroc import auroc_intervals  # noqa: E402

POPULATION = 100_000  # answers of each class in a population
FEWEST = differences.FEWEST_OF_A_CLASS
N_QUESTIONS = (30, 60, 100, 200, 500)
SHARES_RIGHT = (0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95)
SIZES = [
    (n, share)
    for n, share in itertools.product(N_QUESTIONS, SHARES_RIGHT)
    if n * min(share, 1 - share) > FEWEST - 0.01
]
Scores = tuple[np.ndarray, np.ndarray]  # of wrong and right answers: (2, n) or (B, 2, n)
NORMAL_QUANTILE = ndtri(0.975)


# Populations: each function returns two scores of wrong and of right answers.


def binormal(
    rng: np.random.Generator,
    auroc: float,
    gap: float,
    correlation: float,
    *,
    kind: str = "binormal",
) -> Scores:
    """Draw normal scores of AUROC `auroc` and `auroc + gap`, minus the gap from 0.95 on.

    `kind` is "binormal", "rounded" (to whole numbers), "heavy tails" (Student's t with 3 degrees
    of freedom) or "wide wrong class" (with twice the standard deviation).
    """
    second = auroc - gap if auroc > 0.94 else auroc + gap
    deviation = 2.0 if kind == "wide wrong class" else 1.0
    means = ndtri([auroc, second])[:, None] * np.hypot(1, deviation)
    classes = []
    for is_wrong in (True, False):
        noise = rng.normal(size=(2, POPULATION))
        noise[1] = correlation * noise[0] + np.sqrt(1 - correlation**2) * noise[1]
        if kind == "heavy tails":
            noise /= np.sqrt(rng.chisquare(3, size=POPULATION) / 3)
        scores = noise * deviation + means if is_wrong else noise
        classes.append(np.floor(scores) if kind == "rounded" else scores)
    return classes[0], classes[1]


def few_moved(
    rng: np.random.Generator,
    share_wrong: float,
    share_right: float,
    size: float,
    share_worse: float,
) -> Scores:
    """Draw an exponential score, and a copy in which few answers move by `size` in placement.

    `share_worse` of the answers that move are placed worse by the copy.
    """
    classes = []
    for mean, other_mean, share, better in (
        (3.0, 1.0, share_wrong, 1),
        (1.0, 3.0, share_right, -1),
    ):
        first = rng.exponential(mean, POPULATION)
        signs = np.where(rng.random(POPULATION) < share_worse, -better, better)
        placement = np.clip(-np.expm1(-first / other_mean) + size * signs, 1e-6, 1 - 1e-6)
        moved = rng.random(POPULATION) < share
        second = -other_mean * np.log1p(-placement) + 1e-9 * rng.random(POPULATION)
        classes.append(np.stack([first, np.where(moved, second, first)]))
    return classes[0], classes[1]


def exchanged(rng: np.random.Generator, classes: Scores) -> Scores:
    """Exchange the two scores of half of the answers, so that the AUROCs are equal."""
    wrong, right = (
        np.where(rng.random(scores.shape[1]) < 0.5, scores[::-1], scores) for scores in classes
    )
    return wrong, right


def pro_and_nll(rng: np.random.Generator, alpha: float) -> Scores:
    """Draw NLL and PRO of questions with eight answers; they differ where two answers reach α."""
    n = 4 * POPULATION
    sharpness = 2 * np.exp(0.8 * rng.normal(size=(n, 1)))
    weights = rng.gamma(sharpness * [1, 0.6, 0.4, 0.3, 0.2, 0.2, 0.1, 0.1]) + 1e-12
    probabilities = -np.sort(-weights / weights.sum(axis=1, keepdims=True), axis=1)
    probabilities *= rng.beta(8, 1, size=(n, 1))
    right = rng.random(n) < 0.8 * probabilities[:, 0]
    kept = probabilities >= alpha
    kept[:, 0] = True
    n_kept = kept.sum(axis=1)
    last = probabilities[np.arange(n), n_kept - 1]
    terms = np.where(kept, probabilities * np.log(probabilities / last[:, None]), 0)
    nll = -np.log(probabilities[:, 0])
    pro = np.where(n_kept == 1, nll, -np.log(last) - terms.sum(axis=1))
    both = np.stack([nll, pro])
    return both[:, ~right], both[:, right]


def population(cell: dict, rng: np.random.Generator) -> Scores:
    """Draw the population of a cell."""
    kind = cell["scores"]
    if kind.startswith("PRO"):
        classes = pro_and_nll(rng, cell["alpha"])
    elif kind.startswith("few moved"):
        names = ("moved_wrong", "moved_right", "move", "share_worse")
        classes = few_moved(rng, *[cell[name] for name in names])
    else:
        names = ("auroc", "gap", "correlation")
        classes = binormal(rng, *[cell[name] for name in names], kind=kind.split(",")[0])
    return exchanged(rng, classes) if kind.endswith("equal") else classes


# Cells


def grid() -> Iterator[dict]:
    """Yield the cells of the table."""
    for n, share in SIZES:
        size = {"n_questions": n, "share_right": share}
        for auroc, gap, correlation in itertools.product(
            (0.5, 0.65, 0.8, 0.9, 0.97), (0, 0.03, 0.08), (0.5, 0.9, 0.99)
        ):
            pair = {"auroc": auroc, "gap": gap, "correlation": correlation}
            yield {"scores": "binormal", **size, **pair}
        for auroc, gap, correlation in itertools.product((0.6, 0.75, 0.9), (0, 0.05), (0.8, 0.97)):
            pair = {"auroc": auroc, "gap": gap, "correlation": correlation}
            yield {"scores": "rounded", **size, **pair}
        for kind, auroc in itertools.product(("heavy tails", "wide wrong class"), (0.7, 0.9)):
            pair = {"auroc": auroc, "gap": 0.05, "correlation": 0.95}
            yield {"scores": kind, **size, **pair}
        names = ("moved_wrong", "moved_right", "move", "share_worse")
        for values in (
            (0.012, 0, 1.0, 0),
            (0.04, 0, 1.0, 0),
            (0, 0.04, 0.6, 0),
            (0.03, 0.03, 0.8, 0.3),
            (0.08, 0.04, 0.4, 0.2),
            (0.2, 0.2, 0.15, 0.25),
        ):
            yield {"scores": "few moved", **size, **dict(zip(names, values, strict=True))}
        for values in ((0.03, 0.03, 0.9, 0), (0.1, 0.05, 0.5, 0.2)):
            yield {"scores": "few moved, equal", **size, **dict(zip(names, values, strict=True))}
        for alpha in (0.05, 0.15, 0.25, 0.35):
            yield {"scores": "PRO and NLL", **size, "alpha": alpha}
        yield {"scores": "PRO and NLL, equal", **size, "alpha": 0.25}


def between(n_cells: int = 200) -> Iterator[dict]:
    """Yield binormal cells at drawn places between those of the grid."""
    rng = np.random.default_rng(1)
    while n_cells:
        n = int(np.exp(rng.uniform(np.log(30), np.log(600))))
        share = round(rng.uniform(0.04, 0.96), 3)
        if n * min(share, 1 - share) < FEWEST:
            continue
        n_cells -= 1
        correlation = round(1 - np.exp(rng.uniform(np.log(0.005), np.log(0.6))), 4)
        pair = {"gap": round(rng.uniform(0.01, 0.1), 3), "correlation": correlation}
        auroc = round(rng.uniform(0.5, 0.87), 3)
        kind = rng.choice(["binormal", "rounded", "heavy tails"])
        size = {"n_questions": n, "share_right": share}
        yield {"scores": f"{kind}, between", **size, "auroc": auroc, **pair}


def clustered() -> Iterator[dict]:
    """Yield cells of questions in clusters of equal or of uneven sizes."""
    for n_clusters, size, strength in itertools.product(
        (5, 7, 10, 14, 20, 36, 100), (5, 20, 60), (0, 0.7, 1.5)
    ):
        if n_clusters * size <= 2200:
            cell = {"scores": "clusters", "n_clusters": n_clusters, "cluster_size": size}
            yield {**cell, "n_questions": n_clusters * size, "strength": strength}


def deciding() -> Iterator[dict]:
    """Yield pilot samples, for which it is measured whether `n_to_decide` questions decide."""
    kinds = [
        {"scores": "binormal, n to decide", "auroc": 0.75, "gap": gap, "correlation": correlation}
        for gap, correlation in ((0.05, 0.5), (0.03, 0.9), (0.02, 0.98), (0.1, 0.9))
    ]
    kinds.append({"scores": "PRO and NLL, n to decide", "alpha": 0.15})
    names = ("moved_wrong", "moved_right", "move", "share_worse")
    values = dict(zip(names, (0.08, 0.04, 0.4, 0.2), strict=True))
    kinds.append({"scores": "few moved, n to decide", **values})
    for kind, (n, share) in itertools.product(
        kinds, ((60, 0.2), (60, 0.5), (200, 0.1), (200, 0.5))
    ):
        yield {**kind, "n_questions": n, "share_right": share}


def cells() -> list[dict]:
    """Return all cells, each with a name."""
    every = [*grid(), *between(), *clustered(), *deciding()]
    for cell in every:
        cell["cell"] = "; ".join(f"{name}={value}" for name, value in cell.items())
    return every


# Samples


def true_aurocs(classes: Scores) -> np.ndarray:
    """Return the AUROCs (2,) of a population."""
    placements = []
    for wrong, right in zip(*classes, strict=True):
        ranks = stats.rankdata(np.concatenate([wrong, right]))
        n_pairs = len(wrong) * len(right)
        placements.append((ranks[: len(wrong)].sum() - len(wrong) * (len(wrong) + 1) / 2) / n_pairs)
    return np.array(placements)


def samples(
    classes: Scores, n: int, share: float, repetitions: int, rng: np.random.Generator
) -> Iterator[Scores]:
    """Yield samples with at least five answers of each class, those of equal sizes together."""
    n_right = np.empty(0, dtype=int)
    while len(n_right) < repetitions:
        drawn = rng.binomial(n, share, 4 * repetitions)
        enough = (drawn >= FEWEST) & (drawn <= n - FEWEST)
        n_right = np.concatenate([n_right, drawn[enough]])
    wrong, right = classes
    for size, count in zip(*np.unique(n_right[:repetitions], return_counts=True), strict=True):
        of_right = rng.integers(right.shape[1], size=(count, size))
        of_wrong = rng.integers(wrong.shape[1], size=(count, n - size))
        yield wrong[:, of_wrong].swapaxes(0, 1), right[:, of_right].swapaxes(0, 1)


def moves_of(wrong: np.ndarray, right: np.ndarray) -> differences.Moves:
    """Measure the moves of samples (B, 2, n) as `differences.delong` does."""
    placements, changed = placement_moves(wrong, right)
    return differences.measure_moves(placements, changed, pair_squares(wrong, right))


def placement_moves(wrong: np.ndarray, right: np.ndarray) -> tuple[tuple, tuple]:
    """Return the moves (B, n) of both classes, and whether the answers' own scores differ."""
    n_wrong = wrong.shape[2]
    n_right = right.shape[2]
    ranks = stats.rankdata(np.concatenate([wrong, right], axis=2), axis=2)
    below_wrong = (ranks[:, :, :n_wrong] - stats.rankdata(wrong, axis=2)) / n_right
    below_right = (ranks[:, :, n_wrong:] - stats.rankdata(right, axis=2)) / n_wrong
    moves = below_wrong[:, 1] - below_wrong[:, 0], below_right[:, 0] - below_right[:, 1]
    return moves, (wrong[:, 0] != wrong[:, 1], right[:, 0] != right[:, 1])


def pair_squares(wrong: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the mean squared change of who wins a pair, (B,)."""
    result = np.full(len(wrong), np.nan)
    n_pairs = wrong.shape[2] * right.shape[2]
    if n_pairs > differences._MOST_PAIRS:
        return result
    step = max(1, 2_000_000 // n_pairs)
    for start in range(0, len(wrong), step):
        signs = []
        for which in (0, 1):
            first = wrong[start : start + step, which, :, None]
            second = right[start : start + step, which, None, :]
            signs.append((first > second).astype(np.int8) - (first < second))
        change = signs[1] - signs[0]
        result[start : start + step] = (change * change).mean(axis=(1, 2)) / 4
    return result


# Intervals: (low, high) of each sample


def plain_delong(moves: differences.Moves, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Return DeLong's normal interval."""
    half = -ndtri((1 - level) / 2) * np.sqrt(moves.variances.sum(axis=0))
    return moves.difference - half, moves.difference + half


def proposed(moves: differences.Moves, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Return the interval of `pro_lib.metrics.delong`."""
    low = moves.difference - moves.half_width(-1, level)
    return low, moves.difference + moves.half_width(1, level)


def half_questions(placements: tuple, sizes: tuple) -> tuple[np.ndarray, np.ndarray]:
    """Return the normal interval with half a question more, won and lost, in each class.

    `sizes` are how far the half questions of each class move, (B,) or a number.
    """
    difference = placements[0].mean(axis=1)
    variance = np.zeros(len(difference))
    for moves, size in zip(placements, sizes, strict=True):
        n = moves.shape[1] + 1
        mean = moves.sum(axis=1) / n
        squares = ((moves - mean[:, None]) ** 2).sum(axis=1)
        variance += (squares + ((size - mean) ** 2 + (size + mean) ** 2) / 2) / (n * (n - 1))
    half = NORMAL_QUANTILE * np.sqrt(variance)
    return difference - half, difference + half


def farthest(placements: tuple) -> tuple[np.ndarray, np.ndarray]:
    """Return how far half questions move: as the farthest move seen; 1 if fewer than 10 moved."""
    sizes = [
        np.where((moves != 0).sum(axis=1) < 10, 1.0, np.abs(moves).max(axis=1))
        for moves in placements
    ]
    return sizes[0], sizes[1]


def judged(low: np.ndarray, high: np.ndarray, truth: float) -> dict[str, np.ndarray]:
    """Return whether intervals contain the truth, exclude 0 on the right side, and their widths."""
    different = (low > 0) | (high < 0)
    if abs(truth) > 1e-3:
        different = low > 0 if truth > 0 else high < 0
    covered = (low <= truth + 1e-12) & (truth - 1e-12 <= high)
    return {"covered": covered, "different": different, "width": high - low}


def measure(cell: dict, repetitions: int, seed: int) -> dict:
    """Return the row of a cell."""
    rng = np.random.default_rng([seed, zlib.crc32(cell["cell"].encode())])
    if "n_clusters" in cell:
        return cell | measure_clusters(cell, max(repetitions // 4, 10), rng)
    classes = population(cell, rng)
    aurocs = true_aurocs(classes)
    truth = 0.0 if cell["scores"].endswith("equal") or cell.get("gap") == 0 else np.diff(aurocs)[0]
    row = {**cell, "repetitions": repetitions, "difference": truth}
    if cell["scores"].endswith("decide"):
        return row | measure_deciding(cell, classes, truth, repetitions, rng)
    rows = []
    for wrong, right in samples(
        classes, cell["n_questions"], cell["share_right"], repetitions, rng
    ):
        placements, changed = placement_moves(wrong, right)
        moves = differences.measure_moves(placements, changed, pair_squares(wrong, right))
        columns = {"n_moved": moves.n_moved.sum(axis=0)}
        intervals = {
            "": proposed(moves),
            "delong_": plain_delong(moves),
            "ones_": half_questions(placements, (1.0, 1.0)),
            "farthest_": half_questions(placements, farthest(placements)),
        }
        for name, ends in intervals.items():
            columns |= {name + key: values for key, values in judged(*ends, truth).items()}
        for name, method in (("", proposed), ("delong_", plain_delong)):
            low, high = method(moves, 0.9)
            near = (low > -differences.MARGIN) & (high < differences.MARGIN)
            columns[f"{name}equivalent"] = near & (abs(truth) >= differences.MARGIN)
        rows.append(pd.DataFrame(columns))
    return row | pd.concat(rows).mean().to_dict()


def measure_deciding(
    cell: dict, classes: Scores, truth: float, repetitions: int, rng: np.random.Generator
) -> dict:
    """Return the median `n_to_decide` of pilot samples, and how many of that size are decided.

    The pilot samples get the true difference, since `n_to_decide` assumes that it stays.
    """
    n = cell["n_questions"]
    share = cell["share_right"]
    needed = []
    for wrong, right in samples(classes, n, share, repetitions // 4, rng):
        moves = moves_of(wrong, right)
        moves = replace(moves, difference=np.full(len(wrong), truth))
        needed.append(n * differences._scale_to_decide(moves))
    median = int(np.ceil(np.median(np.concatenate(needed))))
    row = {"n_to_decide": median}
    if median * min(share, 1 - share) < FEWEST or median > 20_000:
        return row
    decided = []
    for wrong, right in samples(classes, median, share, repetitions // 4, rng):
        moves = moves_of(wrong, right)
        decided.append(differences._is_different(moves, 1) | differences._is_equivalent(moves, 1))
    return row | {"decided": np.concatenate(decided).mean()}


def draw_clusters(
    cell: dict, n_clusters: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw scores (n, 2), labels and clusters; clusters differ in both and in the share right."""
    sizes = np.full(n_clusters, cell["cluster_size"])
    if cell["cluster_size"] == 60:  # uneven, with the same mean
        sizes = np.maximum(1, np.resize([5, 15, 40, 180], n_clusters))
    codes = np.repeat(np.arange(n_clusters), sizes)
    effects = cell["strength"] * rng.normal(size=(3, n_clusters))[:, codes]
    correct = rng.random(len(codes)) < expit(effects[0])
    noise = rng.normal(size=(2, len(codes)))
    noise[1] = 0.8 * noise[0] + 0.6 * noise[1]
    scores = noise + effects[1:] - 1.2 * correct
    return scores.T, correct, codes


def measure_clusters(cell: dict, repetitions: int, rng: np.random.Generator) -> dict:
    """Return how often intervals of an AUROC and of a difference cover, by cluster and without."""
    n_population = 4 * POPULATION // cell["cluster_size"]
    scores, correct, _ = draw_clusters(cell, n_population, rng)
    truth = auroc_intervals(scores, correct)[0]
    gap = truth[1] - truth[0]
    rows = []
    while len(rows) < repetitions:
        scores, correct, codes = draw_clusters(cell, cell["n_clusters"], rng)
        if min(correct.sum(), (~correct).sum()) < FEWEST:
            continue
        columns = {}
        for name, clusters in (("", codes), ("by_question_", None)):
            tests = differences.delong(scores, correct, clusters=clusters)
            low, high = (ends[1] for ends in tests.interval())
            columns |= {name + key: values for key, values in judged(low, high, gap).items()}
            _, low, high = auroc_intervals(scores, correct, clusters=clusters)
            inside = (low <= truth) & (truth <= high)
            columns |= {
                f"{name}single_covered": inside.mean(),
                f"{name}single_width": high[0] - low[0],
            }
        rows.append(columns)
    measured = pd.DataFrame(rows).mean().to_dict()
    return {"repetitions": repetitions, "auroc": truth[0], "difference": gap} | measured


def summary(table: pd.DataFrame) -> str:
    """Return the three tables of docs/explanation/intervals.md."""
    return "\n\n".join([compared(table), by_cluster(table), decided(table)])


def update_page(table: pd.DataFrame, page: Path) -> None:
    """Replace the three tables of the page, and the number of repetitions that it states."""
    text = page.read_text(encoding="utf-8")
    for part in summary(table).split("\n\n"):
        head = re.escape(part.splitlines()[0])
        text, n_tables = re.subn(
            rf"^{head}\n(\|.*\n)*", lambda _, new=part: f"{new}\n", text, flags=re.M
        )
        if n_tables != 1:
            raise ValueError(f"{page} has {n_tables} tables that begin with {head}, expected one")
    repetitions = table.loc[table["delong_covered"].notna(), "repetitions"].max()
    text = re.sub(r"have [\d,]+ repetitions", f"have {repetitions:,} repetitions", text)
    page.write_text(text, encoding="utf-8")


def compared(table: pd.DataFrame) -> str:
    """Return, for each kind of scores and method, the coverage and the power beside DeLong's.

    Power counts where DeLong's interval covers at least 0.93 and excludes 0 in at least a tenth of
    the samples.
    """
    cells = table[table["delong_covered"].notna()]
    methods = {"": "this one", "delong_": "DeLong", "ones_": "±1", "farthest_": "farthest"}
    head = ["scores", "method", "cells", "lowest coverage", "below 0.93"]
    head += ["cells for power", "lowest power", "mean", "below 0.8"]
    rows = []
    for kind in [*cells["scores"].unique(), "all"]:
        part = cells if kind == "all" else cells[cells["scores"] == kind]
        counts = (part["delong_covered"] >= 0.93) & (part["delong_different"] >= 0.1)
        counts &= part["difference"].abs() > 1e-3
        for method, name in methods.items():
            covered = part[f"{method}covered"]
            power = (part[f"{method}different"] / part["delong_different"])[counts]
            row = [
                kind,
                name,
                len(part),
                f"{covered.min():.3f}",
                (covered < 0.93).sum(),
                len(power),
            ]
            ratios = [f"{power.min():.2f}", f"{power.mean():.2f}"] if len(power) else ["", ""]
            rows.append([*row, *ratios, (power < 0.8).sum()])
    return markdown(head, rows)


def by_cluster(table: pd.DataFrame) -> str:
    """Return the lowest and the mean coverage by cluster and by question."""
    cells = table[table["n_clusters"].notna()]
    head = ["clusters", "cells", "difference, lowest", "mean", "by question, lowest"]
    head += ["AUROC, lowest", "mean", "by question, lowest"]
    rows = []
    for n_clusters, part in cells.groupby("n_clusters"):
        row = [f"{n_clusters:g}", len(part)]
        for name in ("covered", "single_covered"):
            values = part[name], part[name], part[f"by_question_{name}"]
            row += [f"{values[0].min():.3f}", f"{values[1].mean():.3f}", f"{values[2].min():.3f}"]
        rows.append(row)
    return markdown(head, rows)


def decided(table: pd.DataFrame) -> str:
    """Return the table of the share of samples of `n_to_decide` questions that are decided."""
    cells = table[table["decided"].notna()]
    head = ["scores", "cells", "n_to_decide", "decided, lowest", "median", "highest"]
    rows = []
    for kind, part in cells.groupby("scores", sort=False):
        shares = part["decided"]
        ends = f"{part['n_to_decide'].min():,.0f} to {part['n_to_decide'].max():,.0f}"
        row = [kind.removesuffix(", n to decide"), len(part), ends]
        rows.append(
            [*row, *(f"{share:.2f}" for share in (shares.min(), shares.median(), shares.max()))]
        )
    return markdown(head, rows)


def markdown(head: list[str], rows: list[list]) -> str:
    """Return a table for the docs."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def _measure(task: tuple) -> dict:
    return measure(*task)


def main() -> None:
    """Measure the cells that are not in the output yet, and write them there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="1/1", help="1/50 runs every fiftieth cell")
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "docs" / "results" / "data" / "difference_intervals.csv",
    )
    parser.add_argument("--page", type=Path, help="only write the tables into this page")
    arguments = parser.parse_args()
    if arguments.page:
        update_page(pd.read_csv(arguments.output), arguments.page)
        return
    done = (
        pd.read_csv(arguments.output) if arguments.output.exists() else pd.DataFrame({"cell": []})
    )
    first, step = map(int, arguments.part.split("/"))
    every = [cell for cell in cells() if arguments.only in cell["cell"]][first - 1 :: step]
    tasks = [
        (cell, arguments.repetitions, arguments.seed)
        for cell in sorted(every, key=lambda cell: -cell["n_questions"])
        if cell["cell"] not in set(done["cell"])
    ]
    rows = done.to_dict("records")
    with Pool(arguments.workers) as pool:
        for number, row in enumerate(pool.imap_unordered(_measure, tasks), start=1):
            rows.append(row)
            if number % 50 == 0 or number == len(tasks):
                write(rows, arguments.output)
                print(f"{number} of {len(tasks)} cells", flush=True)


def write(rows: list[dict], output: Path) -> None:
    """Write the rows in the order of `cells`, through a second file, so that none is cut off."""
    order = {cell["cell"]: number for number, cell in enumerate(cells())}
    table = pd.DataFrame(rows).sort_values("cell", key=lambda names: names.map(order))
    table = table[[*table.columns.drop("cell"), "cell"]]
    partial_file = output.with_suffix(".part")
    table.round(4).to_csv(partial_file, index=False)
    partial_file.replace(output)


if __name__ == "__main__":
    main()
