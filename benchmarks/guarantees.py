"""How often guarantees are false, over 1,000 random splits of a pool: docs/guarantees.md.

    python benchmarks/guarantees.py [--splits 1000] [--published FILE …] [--replace]

Validation questions are drawn from a pool, which is the population: 305 of all world-facts questions that facts-2m was
asked (the stored runs of `make figures`), 1,000 of a file of published outputs (`python data/published/make.py` makes
it). Once they are drawn fairly and once with a shift that makes them easier: of world-facts those of facts told at
least 8 times are drawn four times as readily, of the published ones those in the lower half of `Deg, NLI agreement`.
Sizes, shifts and rules were fixed before this was run. With `--replace` validation is drawn with replacement, as from
an endless population, and all of the pool lend their scores; only the worst share of false guarantees is printed then.
"""  # fmt: skip

import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd
from measuring import ROOT, parse_arguments
from scipy.stats import binom

from pro_lib import evaluation, importing, scoring
from pro_lib.app.experiment import Experiment
from pro_lib.evaluation import guarantees
from pro_lib.evaluation.evaluate import Evaluation
from pro_lib.evaluation.guarantees import STARTS
from pro_lib.runs.run import Run

TARGETS, DELTAS, ALPHAS = (
    (0.7, 0.8, 0.9),
    (0.35, 0.37, 0.4, 0.5, 0.6),
    (0.005, 0.02, 0.05, 0.2, 0.4),
)
CONFIDENCE, SAMPLE = 0.95, 100  # questions answered whose own accuracy is looked at


def embedded() -> tuple[Experiment, Evaluation, np.ndarray]:
    """All questions of world-facts as facts-2m answered them, and which are of facts told at least 8 times."""
    pair = "facts-2m", "world-facts"
    experiment = Experiment(
        search_alpha=0.005, other_strategies=["threshold"], similarity=["lexical", "alias"]
    )
    judged = experiment.evaluations(*pair, "all", methods="all")[-1]
    exposure = experiment.both_splits(*pair, "diverse_beam").questions.set_index("question_id")[
        "exposure"
    ]
    return experiment, judged, exposure[judged.answers["question_id"]].to_numpy() >= 8


def right_probabilities(run: Run) -> np.ndarray:
    """The probability (n,) of the most probable right answer that an exact search found; 0 where none, or undecided."""
    ranked = run.ranked_answers()
    questions = run.questions.iloc[ranked["row"]].reset_index(drop=True)
    correct = evaluation.rouge_and_correct(ranked, questions)["correct"].astype(bool)
    right = np.zeros(len(run.questions))
    np.maximum.at(right, ranked["row"], np.exp(ranked["value"]) * correct)
    return np.where(run.questions["status"] == "undecided", 0.0, right)


def below(
    values: np.ndarray, correct: np.ndarray, thresholds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How many values lie strictly below each threshold, and how many of these are right."""
    return tuple(np.searchsorted(np.sort(each), thresholds) for each in (values, values[correct]))


def others(
    values: np.ndarray, correct: np.ndarray, unlabelled: np.ndarray, target: float
) -> dict[str, float | None]:
    """The thresholds that other rules take from the same percentiles.

    Walks from each start on their own (Learn then Test); the largest at which one exact test by itself rejects; and the
    largest below which enough of the validation questions are right.
    """
    thresholds = np.append(np.sort(unlabelled), np.inf)[np.arange(1, 101) * len(unlabelled) // 100]
    n, right = below(values, correct, thresholds)
    p_values, walked = binom.sf(right - 1, n, target), np.zeros(100, bool)
    for start in STARTS:
        walked[start - 1 :] |= np.logical_and.accumulate(
            p_values[start - 1 :] <= (1 - CONFIDENCE) / len(STARTS)
        )
    taken = {"walks": walked, "one test": p_values <= 1 - CONFIDENCE}
    taken["validation accuracy"] = (right >= target * n) & (n > 0)
    return {
        rule: thresholds[np.flatnonzero(at)[-1]] if at.any() else None for rule, at in taken.items()
    }


def drawn(
    n: int, m: int, easier: np.ndarray, *, shift: bool, splits: int, replace: bool = False
) -> Iterator[tuple]:
    """Validation questions and the others, or with replacement all, in random order."""
    weights, rng = np.where(easier & shift, 4.0, 1.0), np.random.default_rng(0)
    for _ in range(splits):
        at = rng.choice(n, m, replace=replace, p=weights / weights.sum())
        yield at, rng.permutation(n if replace else np.setdiff1d(np.arange(n), at))


def answering(
    judged: Evaluation, m: int, easier: np.ndarray, splits: int, *, replace: bool
) -> Iterator[dict]:
    """A row per score, target, rule and way of drawing."""
    methods, correct = judged.with_pro({"PRO": 0.4}), judged.correct
    for shift in (False,) if replace else (False, True):
        named = methods if not shift else methods[["PRO", "NLL"]]
        found: dict[tuple, list] = {}
        for at, rest in drawn(len(correct), m, easier, shift=shift, splits=splits, replace=replace):
            for score, values in ((name, named[name].to_numpy()) for name in named):
                for target in TARGETS:
                    known, of = (
                        (values[at], correct[at]),
                        {"target": target, "confidence": CONFIDENCE},
                    )
                    taken = {
                        "guarantee": guarantees.guarantee(
                            *known, **of, unlabelled=values[rest]
                        ).threshold
                    }
                    taken["guarantee, own percentiles"] = guarantees.guarantee(
                        *known, **of
                    ).threshold
                    taken |= {} if replace else others(*known, values[rest], target)
                    for rule, threshold in taken.items():
                        outcome = 0.0, 0.0, 0.0, np.nan
                        if threshold is not None:
                            n, right = below(values, correct, threshold)
                            sample = correct[rest][values[rest] < threshold][:SAMPLE]
                            few = sample.mean() < target if len(sample) == SAMPLE else np.nan
                            outcome = 1.0, float(right < target * n), n / len(correct), few
                        found.setdefault((score, target, rule), []).append(outcome)
        for (score, target, rule), outcomes in found.items():
            guaranteed, false, coverage, sample = np.array(outcomes).T
            row = {
                "kind": "answering",
                "score": score,
                "level": target,
                "rule": rule,
                "shift": shift,
                "validation": m,
            }
            row |= {"made": guaranteed.mean(), **mean_and_error(false), "coverage": coverage.mean()}
            looked_at = sample[~np.isnan(sample)]
            yield row | {"sample_failed": looked_at.mean() if looked_at.size else np.nan}


def sets(experiment: Experiment, splits: int) -> Iterator[dict]:
    """A row per δ, and per fixed α, and way of drawing."""
    pair, searched = experiment.pairs()[0], {"search_alpha": experiment.search_alpha}
    run = experiment.run(*pair, "validation", "test", strategy="threshold")
    right, found = right_probabilities(run), np.exp(run.log_probs())
    easier = run.questions["exposure"].to_numpy() >= 8
    for shift in (False, True):
        issued, missed, sizes = np.zeros((3, splits, len(DELTAS)))
        above = np.zeros((splits, len(ALPHAS)))
        for split, (at, rest) in enumerate(
            drawn(len(right), 305, easier, shift=shift, splits=splits)
        ):
            for number, delta in enumerate(DELTAS):
                tau = guarantees.set_threshold(right[at], delta=delta, **searched)
                if tau is not None:
                    missed[split, number] = (right[rest] < tau).mean()
                    issued[split, number], sizes[split, number] = (
                        1,
                        (found >= tau).sum(axis=1).mean(),
                    )
            for number, alpha in enumerate(ALPHAS):
                _, limit = guarantees.miss_rate(
                    right[at], alpha=alpha, **searched, confidence=CONFIDENCE
                )
                above[split, number] = (right < alpha).mean() > limit
        row = {"shift": shift, "validation": 305, "kind": "sets"}
        for number, delta in enumerate(DELTAS):
            made, failed, size = (each[:, number] for each in (issued, missed, sizes))
            row |= {
                "rule": "issued and missed",
                "level": delta,
                "made": made.mean(),
                **mean_and_error(failed),
            }
            once = made > 0
            yield row | {"size": size[once].mean() if once.any() else np.nan}
            if once.any():
                yield row | {"rule": "missed, given issued", **mean_and_error(failed[once])}
        for number, alpha in enumerate(ALPHAS):
            row |= {"rule": "pool above the limit at α", "level": alpha, "made": 1.0}
            yield (
                row
                | mean_and_error(above[:, number])
                | {"size": (found >= alpha).sum(axis=1).mean()}
            )


def mean_and_error(failed: np.ndarray) -> dict[str, float]:
    """The share that failed, and its standard error."""
    return {"failed": failed.mean(), "error": failed.std() / np.sqrt(len(failed))}


def main() -> None:
    """Write the table and print what is about PRO and NLL."""
    published, table_file = (
        [ROOT / "data/published/gpt-3.5-turbo_nq-open.jsonl"],
        ROOT / "docs" / "guarantees.csv",
    )
    given = parse_arguments(
        __doc__,
        {"--splits": 1000, "--published": published, "--replace": False, "--out": table_file},
    )
    if missing := next((path for path in given.published if not path.is_file()), None):
        raise SystemExit(
            f"{missing} is not there: `python data/published/make.py` fetches and makes it"
        )
    warnings.simplefilter("ignore", scoring.PremiseWarning)
    experiment, judged, told = embedded()
    pools = [(judged, 305, told)]
    for path in given.published:
        each = evaluation.evaluate(importing.from_records(path))
        easier = each.baselines["Deg, NLI agreement"]
        pools.append((each, 1000, (easier < easier.median()).to_numpy()))
    tables = [
        (pool[0], pd.DataFrame(answering(*pool, given.splits, replace=given.replace)))
        for pool in pools
    ]
    if given.replace:
        for _, made in tables:
            print(
                made.loc[made.groupby(["rule", "level"])["failed"].idxmax()].to_string(index=False)
            )
        return
    parts = [
        pd.DataFrame(sets(experiment, given.splits)).assign(dataset="world-facts", model="facts-2m")
    ]
    parts += [made.assign(dataset=each.dataset, model=each.model) for each, made in tables]
    first = [
        "dataset",
        "model",
        "kind",
        "score",
        "level",
        "rule",
        "shift",
        "validation",
        "splits",
        "made",
        "failed",
    ]
    table = pd.concat(parts).assign(splits=given.splits)[
        [*first, "error", "coverage", "sample_failed", "size"]
    ]
    table.to_csv(given.out, index=False, float_format="%.4g")
    print(table[table["score"].isna() | table["score"].isin(["PRO", "NLL"])].to_string(index=False))


if __name__ == "__main__":
    main()
