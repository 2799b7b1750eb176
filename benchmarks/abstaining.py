"""How often the guarantee of an answerer is false: many splits of one run into a calibration and calls that are served.

    python benchmarks/abstaining.py data/generations/world-facts/facts-2m/diverse_beam --splits 1000

In each split an answerer is made of some questions (`--questions`); the others are its calls, whose answers the run
has. A guarantee is false where fewer of all answers given are right than guaranteed: at most 1 - confidence may be.
"""

from dataclasses import replace

import numpy as np
from measuring import parse_arguments

from pro_lib import app, runs
from pro_lib.evaluation.evaluate import evaluate
from pro_lib.generation import models


def main() -> None:
    """Print the share of false guarantees by target."""
    given = parse_arguments(
        __doc__, {"run": str, "--model": "facts-2m", "--splits": 1000, "--questions": 300}
    )
    run, model, rng = (
        runs.read_run(given.run),
        models.cached_model(given.model),
        np.random.default_rng(0),
    )
    whole = evaluate(run)
    uncertainty, correct, ids = (
        whole.pro(0.4),
        whole.correct,
        whole.answers["question_id"].to_numpy(),
    )
    for target in (0.5, 0.7, 0.8):
        false, made, coverage = 0, 0, []
        for _ in range(given.splits):
            shown = rng.permutation(len(ids)) < given.questions
            calibration = run.select(question_ids=ids[shown])
            calibration = replace(calibration, questions=calibration.questions.assign(split="test"))
            guarantee = app.answerer(model, calibration=calibration, target=target).guarantee
            answered = guarantee.answers(uncertainty[~shown])
            made += guarantee.threshold is not None
            coverage.append(answered.mean())
            false += bool(answered.any()) and correct[~shown][answered].mean() < target
        shares = f"{false} false; {np.mean(coverage):.3f} of the calls answered"
        print(f"target {target}: {made} guarantees in {given.splits} splits, {shares}")


if __name__ == "__main__":
    main()
