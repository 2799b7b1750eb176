"""Measure how often the guarantee of an answerer is false, over many splits of one run.

    python benchmarks/abstaining.py data/generations/world-facts/facts-2m/diverse_beam --splits 1000

In each split, some questions (`--questions`) calibrate an answerer, and the others are its calls.
A guarantee is false if the share of correct answers is below the target. At most 1 - confidence of
the guarantees may be false.
"""

from dataclasses import replace

import numpy as np
from measuring import parse_arguments

from pro_lib import app, runs
from pro_lib.evaluation.run_evaluation import evaluate
from pro_lib.generation import models


def main() -> None:
    """Print the share of false guarantees by target."""
    arguments = parse_arguments(
        __doc__, {"run": str, "--model": "facts-2m", "--splits": 1000, "--questions": 300}
    )
    run = runs.read_run(arguments.run)
    model = models.cached_model(arguments.model)
    rng = np.random.default_rng(0)
    whole = evaluate(run).judged
    uncertainty = whole.pro(0.4)
    correct = whole.correct
    ids = whole.answers["question_id"].to_numpy()
    for target in (0.5, 0.7, 0.8):
        n_false = 0
        n_guarantees = 0
        coverage = []
        for _ in range(arguments.splits):
            is_calibration = rng.permutation(len(ids)) < arguments.questions
            calibration = run.select(question_ids=ids[is_calibration])
            calibration = replace(calibration, questions=calibration.questions.assign(split="test"))
            guarantee = app.answerer(model, calibration=calibration, target=target).guarantee
            answered = guarantee.answers(uncertainty[~is_calibration])
            n_guarantees += guarantee.threshold is not None
            coverage.append(answered.mean())
            n_false += bool(answered.any()) and correct[~is_calibration][answered].mean() < target
        shares = f"{n_false} false; {np.mean(coverage):.3f} of the calls answered"
        print(f"target {target}: {n_guarantees} guarantees in {arguments.splits} splits, {shares}")


if __name__ == "__main__":
    main()
