"""Measure how often guarantees are false, over 1,000 random splits of a pool of questions.

    python benchmarks/guarantees.py [--splits 1000] [--published FILE …]

docs/explanation/guarantees.md explains the table. A pool is the population. Validation questions
are drawn from it: 305 of all world-facts questions that facts-2m answered (the stored runs of
`make figures`), and 1,000 of a file of published outputs, which `python data/published/make.py`
makes. They are drawn uniformly, and with a shift that makes them easier. The shift draws questions
of facts with an exposure of at least 8, or those in the lower half of `Deg, NLI agreement`, four
times as often. Sizes, shifts and rules were fixed before the first run.
"""

import itertools
import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd
from measuring import ROOT, parse_arguments

from pro_lib import evaluation, importing, metrics, scoring
from pro_lib.app.experiment import Experiment
from pro_lib.evaluation import guarantees
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.runs.run import Run

TARGETS = (0.7, 0.8, 0.9)
DELTAS = (0.35, 0.37, 0.4, 0.5, 0.6)
ALPHAS = (0.005, 0.02, 0.05, 0.2, 0.4)
CONFIDENCE = 0.95
COLUMNS = ["dataset", "model", "kind", "score", "level", "rule", "shift", "validation", "splits"]
COLUMNS += ["made", "failed", "error", "coverage", "size"]
N_VALIDATION = 305  # drawn from the pool of world-facts


def embedded() -> tuple[Experiment, Evaluation, np.ndarray]:
    """Return the answers of facts-2m to world-facts, and which facts have exposure ≥ 8."""
    pair = "facts-2m", "world-facts"
    experiment = Experiment(
        search_alpha=0.005, protocol="workbench", similarity=["lexical", "alias"]
    )
    judged = experiment.evaluations(*pair, "all", methods="all")[0][-1]
    exposure = experiment.run_of_both_splits(*pair, "diverse_beam").questions.set_index(
        "question_id"
    )["exposure"]
    return experiment, judged, exposure[judged.answers["question_id"]].to_numpy() >= 8


def right_probabilities(run: Run) -> np.ndarray:
    """Return the probability (n,) of the most probable correct answer of an exact search.

    It is 0 if the search did not find a correct answer, or is undecided.
    """
    ranked = run.ranked_answers()
    questions = run.questions.iloc[ranked["row"]].reset_index(drop=True)
    correct = metrics.rouge_and_correct(ranked, questions)["correct"].astype(bool)
    right = np.zeros(len(run.questions))
    np.maximum.at(right, ranked["row"], np.exp(ranked["value"]) * correct)
    return np.where(run.questions["status"] == "undecided", 0.0, right)


def drawn(
    n: int, m: int, easier: np.ndarray, *, shift: bool, splits: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield validation questions, and the others."""
    weights = np.where(easier & shift, 4.0, 1.0)
    rng = np.random.default_rng(0)
    for _ in range(splits):
        validation = rng.choice(n, m, replace=False, p=weights / weights.sum())
        yield validation, np.setdiff1d(np.arange(n), validation)


def answering(judged: Evaluation, m: int, easier: np.ndarray, splits: int) -> Iterator[dict]:
    """Yield a row for each score, target, rule and way of drawing `m` validation questions."""
    scores = judged.scores({"PRO": 0.4})[["PRO", "NLL"]]
    correct = judged.correct
    for shift in (False, True):
        outcomes: dict[tuple, list] = {}
        for validation, rest in drawn(len(correct), m, easier, shift=shift, splits=splits):
            for score, target in itertools.product(scores, TARGETS):
                values = scores[score].to_numpy()
                thresholds = rule_thresholds(values, correct, validation, rest, target)
                for rule, threshold in thresholds.items():
                    result = outcome(values, correct, threshold, target)
                    outcomes.setdefault((score, target, rule), []).append(result)
        for (score, target, rule), results in outcomes.items():
            n_guarantees, false, coverage = np.array(results).T
            yield {
                "kind": "answering",
                "score": score,
                "level": target,
                "rule": rule,
                "shift": shift,
                "validation": m,
                "made": n_guarantees.mean(),
                **mean_and_error(false),
                "coverage": coverage.mean(),
            }


def rule_thresholds(
    values: np.ndarray,
    correct: np.ndarray,
    validation: np.ndarray,
    rest: np.ndarray,
    target: float,
) -> dict[str, float | None]:
    """Return the threshold of each rule for one split; None if a rule does not find one."""
    labelled = (values[validation], correct[validation])
    options = {"target": target, "confidence": CONFIDENCE}
    pool = guarantees.guarantee(*labelled, **options, unlabelled=values[rest])
    own_percentiles = guarantees.guarantee(*labelled, **options)
    return {"guarantee": pool.threshold, "guarantee, own percentiles": own_percentiles.threshold}


def outcome(
    values: np.ndarray, correct: np.ndarray, threshold: float | None, target: float
) -> tuple[float, float, float]:
    """Return whether there is a guarantee and whether it is false, and its coverage."""
    if threshold is None:
        return 0.0, 0.0, 0.0
    is_answered = values < threshold
    is_false = correct[is_answered].sum() < target * is_answered.sum()
    return 1.0, float(is_false), is_answered.mean()


def sets(experiment: Experiment, splits: int) -> Iterator[dict]:
    """Yield a row for each δ, each fixed α and each way of drawing validation questions."""
    search = {"search_alpha": experiment.search_alpha}
    run = experiment.run(*experiment.pairs()[0], "validation", "test", strategy="threshold")
    right = right_probabilities(run)
    probabilities = np.exp(run.log_probs())
    easier = run.questions["exposure"].to_numpy() >= 8
    for shift in (False, True):
        issued, missed, sizes = np.zeros((3, splits, len(DELTAS)))
        above = np.zeros((splits, len(ALPHAS)))
        splits_of_pool = drawn(len(right), N_VALIDATION, easier, shift=shift, splits=splits)
        for split, (validation, rest) in enumerate(splits_of_pool):
            for number, delta in enumerate(DELTAS):
                tau = guarantees.set_threshold(right[validation], delta=delta, **search)
                if tau is None:
                    continue
                issued[split, number] = 1
                missed[split, number] = (right[rest] < tau).mean()
                sizes[split, number] = (probabilities >= tau).sum(axis=1).mean()
            for number, alpha in enumerate(ALPHAS):
                _, limit = guarantees.miss_rate(
                    right[validation], alpha=alpha, **search, confidence=CONFIDENCE
                )
                above[split, number] = (right < alpha).mean() > limit
        row = {"shift": shift, "validation": N_VALIDATION, "kind": "sets"}
        for delta, is_issued, misses, size in zip(DELTAS, issued.T, missed.T, sizes.T, strict=True):
            yield row | {
                "rule": "issued and missed",
                "level": delta,
                "made": is_issued.mean(),
                **mean_and_error(misses),
                "size": size[is_issued > 0].mean() if is_issued.any() else np.nan,
            }
        for number, alpha in enumerate(ALPHAS):
            yield row | {
                "rule": "pool above the limit at α",
                "level": alpha,
                "made": 1.0,
                **mean_and_error(above[:, number]),
                "size": (probabilities >= alpha).sum(axis=1).mean(),
            }


def mean_and_error(failed: np.ndarray) -> dict[str, float]:
    """Return the share that failed, and its standard error."""
    return {"failed": failed.mean(), "error": failed.std() / np.sqrt(len(failed))}


def main() -> None:
    """Write the table and print it."""
    published = [ROOT / "data/published/gpt-3.5-turbo_nq-open.jsonl"]
    table_file = ROOT / "docs" / "results" / "data" / "guarantees.csv"
    options = {"--splits": 1000, "--published": published, "--out": table_file}
    arguments = parse_arguments(__doc__, options)
    missing = [path for path in arguments.published if not path.is_file()]
    if missing:
        raise SystemExit(f"{missing[0]} does not exist; `python data/published/make.py` makes it")
    warnings.simplefilter("ignore", scoring.PremiseWarning)
    experiment, judged, is_exposed = embedded()
    pools = [(judged, N_VALIDATION, is_exposed)]
    for path in arguments.published:
        published_run = evaluation.evaluate(importing.import_answers(path))
        uncertainty = published_run.baselines["Deg, NLI agreement"]
        pools.append((published_run, 1000, (uncertainty < uncertainty.median()).to_numpy()))
    tables = []
    for pool in pools:
        rows = answering(*pool, arguments.splits)
        setting = {"dataset": pool[0].dataset, "model": pool[0].model}
        tables.append(pd.DataFrame(rows).assign(**setting))
    rows = pd.DataFrame(sets(experiment, arguments.splits))
    parts = [rows.assign(dataset="world-facts", model="facts-2m"), *tables]
    table = pd.concat(parts).assign(splits=arguments.splits)[COLUMNS]
    table.to_csv(arguments.out, index=False, float_format="%.4g")
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
