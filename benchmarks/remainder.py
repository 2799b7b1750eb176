"""What draws from the entropy that a search left are worth beside plain samples, and what limits of it cost.

Run from the repository root: `python benchmarks/remainder.py [--questions 100] [--csv docs/remainder.csv]`.
So many test questions of world-facts, a sample by seed 0, asked of facts-2m (ten shots, T = 32). A row for every search
α, and one for the prompt alone, of which nothing further is searched: its draws are samples worth Σ H(next | v) along
their path. From each row's search 100 draws a question are taken, and 100 plain samples, worth -log p each.

Token-forwards are those that the packed tree needs, in which draws of a question share what they have in common:
counted for 10 and for 100 draws, c k^b in between and beyond; for samples counted for every number of them.
`forwards` is the price of a question's search with 20 draws, `variance` that of the estimate then (mean over the
questions), `plain_samples` how many samples cost as much, `plain_variance` that of their mean; `ratio` is the latter by
the former, below 1 where plain samples are better. `draws_student` and `draws_anytime` are how many draws a question
takes until its limits lie 1 nat apart, Student's (by the normal quantile, at least 2) and those that hold whenever one
stops (in sequences drawn anew from the 100; counted as 20,000 where these are too few, `too_few` is the share): means
over the questions, and `forwards_…` the price of the search with them.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from pro_lib import models
from pro_lib import questions as question_sets
from pro_lib.generate import generate
from pro_lib.promises import anytime
from pro_lib.runs import Run

SEARCHES = {"prompt alone": {"search_alpha": 1.0, "budget": 0}}
SEARCHES |= {f"{alpha:g}": {"search_alpha": alpha} for alpha in (0.4, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005)}
FEW, MANY, TAKEN, LONGEST = 10, 100, 20, 20_000


def sample_costs(samples: Run) -> np.ndarray:
    """Token-forwards of the first 1, 2, … samples of each question, `(n, N)`."""
    costs = []
    for _, answers in samples.answers.groupby("question_id", sort=False):
        nodes, counted = set(), []
        for row in answers.itertuples():
            # What closes an answer by itself, or is its last token before the cut, is not put through.
            ids = (
                list(row.token_ids)
                if row.finished and row.end_log_prob == row.end_log_prob
                else list(row.token_ids)[:-1]
            )
            nodes |= {tuple(ids[:length]) for length in range(1, len(ids) + 1)}
            counted.append(len(nodes))
        costs.append(counted)
    return np.array(costs)


def draws_to_a_nat(mass: np.ndarray, draws: np.ndarray, most: np.ndarray) -> np.ndarray:
    """How many draws until the limits that hold at any time lie 1 nat apart, per question; LONGEST if they never do."""
    needed = np.full(len(mass), float(LONGEST))
    rng, open_ones, n = np.random.default_rng(0), np.arange(len(mass)), 4.0
    sequences = np.take_along_axis(draws, rng.integers(draws.shape[1], size=(len(draws), LONGEST)), axis=1)
    while len(open_ones) and n < LONGEST:
        low, high = anytime.limits(sequences[open_ones, : int(n)], most[open_ones])
        narrow = mass[open_ones] * (high - low) <= 1
        needed[open_ones[narrow]] = int(n)
        open_ones, n = open_ones[~narrow], n * 1.2
    return needed


def row(many: Run, few: Run, costs: np.ndarray, plain: np.ndarray) -> dict[str, float]:
    """What stands in a line of the table."""
    known = many.questions
    mass, most = (known["pruned_mass"] + known["budget_cut_mass"]).to_numpy(), known["remainder_most"].to_numpy()
    draws, searched = np.stack(known["remainder_draws"]), known["token_forwards"].mean()
    variances = mass**2 * draws.var(axis=1, ddof=1)
    at_few, at_many = (run.questions["remainder_forwards"].mean() for run in (few, many))
    power = np.log(at_many / at_few) / np.log(MANY / FEW)

    def price(k: float) -> float:
        return searched + at_few * (k / FEW) ** power

    samples = float(np.interp(price(TAKEN), costs.mean(axis=0), np.arange(1, MANY + 1)))
    student = np.maximum(np.ceil((2 * 1.96) ** 2 * variances), 2)
    at_any_time = draws_to_a_nat(mass, draws, most)
    return {
        "n_questions": len(known),
        "search_forwards": searched,
        "mass_left": mass.mean(),
        "tree_bound": known["tree_bound"].mean(),
        "entropy": many.entropy().estimate.mean(),
        "upper_bound": known["upper_bound"].mean(),
        "forwards": price(TAKEN),
        "variance": variances.mean() / TAKEN,
        "plain_samples": samples,
        "plain_variance": plain.mean() / samples,
        "ratio": plain.mean() / samples / (variances.mean() / TAKEN),
        "draws_student": student.mean(),
        "forwards_student": np.mean([price(k) for k in student]),
        "draws_anytime": at_any_time.mean(),
        "forwards_anytime": np.mean([price(k) for k in at_any_time]),
        "too_few": (at_any_time == LONGEST).mean(),
    }


def main() -> None:
    """Search, draw, count, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    model = models.load("facts-2m")
    questions = question_sets.load("world-facts", split="test", limit=asked.questions, seed=0)
    samples = generate(model, questions, strategy="multinomial", n_answers=MANY, progress=False)
    plain, costs = np.nanvar(-samples.outcome_log_probs(), axis=1, ddof=1), sample_costs(samples)
    assert costs[:, -1].sum() == samples.info.cost.token_forwards
    rows = {}
    for name, how in SEARCHES.items():
        few, many = (generate(model, questions, strategy="threshold", entropy_draws=n, progress=False, **how)
                     for n in (FEW, MANY))  # fmt: skip
        rows[name] = row(many, few, costs, plain)
        print(name, {key: round(value, 3) for key, value in rows[name].items()}, flush=True)
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("search_alpha").reset_index()
    if asked.csv:
        table.to_csv(asked.csv, index=False, float_format="%.4f")
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
