"""Summarize the simulation of labels by hand: coverage, bias and errors.

    python benchmarks/label_summary.py build/label_estimates.csv build/label_real.csv

The inputs are files that label_estimates.py writes; they may still grow. A cell of a later file
replaces the same cell of an earlier one. The script writes label_cells.csv (every cell),
label_errors.csv, label_widths.csv and label_criteria.csv to docs/results/data.
label_real.csv is about cells of records files (`--records`), whose questions are not in the
repository. `make docs-numbers` then puts them into docs/results/labels.md.
"""

import itertools

import numpy as np
import pandas as pd
from measuring import ROOT, parse_arguments
from numpy.typing import ArrayLike
from scipy import stats

from pro_lib.metrics.differences import holm

QUANTITIES = ("auroc", "difference_1", "difference_2")
SCOPES = ("questions", "population")
LEAST_COVERAGE = 0.93
LARGEST_BIAS = 0.01
LARGEST_RATIO = 1.05  # of a single AUROC
LARGEST_MEDIAN_RATIO = 0.85  # of differences with 200 labels
LEAST_SHOWN = 0.95
FEWEST_DRAWS = 20  # repetitions in which an estimate is shown that a cell needs


def shown_cells(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the cells in which a quantity is shown in enough repetitions."""
    return table[table[f"{name}_n_shown"] >= FEWEST_DRAWS]


def coverage_tests(table: pd.DataFrame, name: str, scope: str) -> pd.DataFrame:
    """Return the coverage of a quantity in each cell, with one-sided p-values.

    The hypothesis is that the coverage is at least 0.93; the test is the exact binomial test.

    Args:
        table: a row per cell.
        name: one of `QUANTITIES`.
        scope: `questions` or `population`. Cells that always have the same questions say nothing
            about the population and are left out.

    Returns:
        A row per cell: cell, covered, n_draws, p_value and p_holm, corrected over the cells.
    """
    shown = shown_cells(table, name)
    if scope == "population":
        shown = shown[shown["n_questions"].astype(str) != "all"]
    n_draws = shown[f"{name}_n_shown"]
    covered = shown[f"{name}_{scope}_covered"]
    p_values = stats.binom.cdf((covered * n_draws).round(), n_draws, LEAST_COVERAGE)
    columns = {"cell": shown["cell"], "covered": covered, "n_draws": n_draws}
    return pd.DataFrame(columns).assign(p_value=p_values, p_holm=holm(np.asarray(p_values)))


def error_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per kind of cell and number of labels: bias, and errors over random labels."""
    rows = []
    for (kind, n_labels), part in table.groupby(["kind", "n_labels"], sort=False):
        row = {"kind": kind, "n_labels": n_labels, "n_cells": len(part)}
        shown = part["auroc_n_shown"] / part["n_drawn"]
        row |= {"shown_lowest": shown.min(), "shown_median": shown.median()}
        biases = [shown_cells(part, name)[f"{name}_bias"].abs() for name in QUANTITIES]
        row["largest_bias"] = pd.concat(biases).max()
        differences = [shown_cells(part, name)[f"{name}_ratio"] for name in QUANTITIES[1:]]
        single = shown_cells(part, "auroc")["auroc_ratio"]
        for name, ratios in (("auroc", single), ("differences", pd.concat(differences))):
            row |= {f"{name}_ratio_median": ratios.median(), f"{name}_ratio_largest": ratios.max()}
        rows.append(row)
    return pd.DataFrame(rows)


def width_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return half the width of the intervals for the population, by number of labels.

    A row per number of labels and quantity: the median and the largest of the cells of the grid.
    """
    grid = table[table["kind"] == "grid"]
    rows = []
    for (n_labels, part), name in itertools.product(grid.groupby("n_labels"), QUANTITIES):
        halves = shown_cells(part, name)[f"{name}_population_width"] / 2
        row = {"n_labels": n_labels, "quantity": name, "n_cells": len(halves)}
        rows.append(row | {"median": halves.median(), "largest": halves.max()})
    return pd.DataFrame(rows)


def criteria(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per criterion: the worst cell, and how many cells are beyond its limit.

    n_beyond counts the cells beyond the limit; n_significant those that are significantly beyond it
    (one-sided tests, 5 %, Holm's correction over the cells), where there is a test.
    """
    rows = []
    for name, scope in itertools.product(QUANTITIES, SCOPES):
        tests = coverage_tests(table, name, scope)
        words = f"coverage of {name} ({scope}) at least {LEAST_COVERAGE}"
        is_beyond = tests["covered"] < LEAST_COVERAGE
        rows.append(
            _criterion(words, tests["cell"], -tests["covered"], is_beyond, tests["p_value"])
        )
    for name in QUANTITIES:
        shown = shown_cells(table, name)
        bias = shown[f"{name}_bias"].abs()
        p_values = stats.norm.sf((bias - LARGEST_BIAS) / shown[f"{name}_bias_se"])
        words = f"bias of {name} at most {LARGEST_BIAS}"
        rows.append(_criterion(words, shown["cell"], bias, bias > LARGEST_BIAS, p_values))
    shown = shown_cells(table, "auroc")
    ratio = shown["auroc_ratio"]
    words = f"error of auroc at most {LARGEST_RATIO} times that of random labels"
    rows.append(_criterion(words, shown["cell"], ratio, ratio > LARGEST_RATIO))
    rows.append(_median_criterion(table))
    allowed = table[(table["enough"] * table["n_drawn"]).round() >= FEWEST_DRAWS]
    share = allowed["auroc_shown_of_allowed"]
    n_allowed = (allowed["enough"] * allowed["n_drawn"]).round()
    p_values = stats.binom.cdf((share * n_allowed).round(), n_allowed, LEAST_SHOWN)
    words = f"auroc shown in at least {LEAST_SHOWN} of the draws with ten labels of each class"
    rows.append(_criterion(words, allowed["cell"], -share, share < LEAST_SHOWN, p_values))
    return pd.DataFrame(rows)


def _median_criterion(table: pd.DataFrame) -> dict:
    """Return the row about the median error of differences with 200 labels."""
    many = table[table["n_labels"] == 200]
    ratios = pd.concat([shown_cells(many, name)[f"{name}_ratio"] for name in QUANTITIES[1:]])
    words = (
        f"median error of differences with 200 labels at most {LARGEST_MEDIAN_RATIO} times that of "
        "random labels"
    )
    row = {"criterion": words, "n_cells": len(many), "worst": ratios.median()}
    return row | {"n_beyond": int(ratios.median() > LARGEST_MEDIAN_RATIO)}


def _criterion(
    words: str,
    cells: pd.Series,
    badness: pd.Series,
    is_beyond: pd.Series,
    p_values: ArrayLike | None = None,
) -> dict:
    """Return the row of a criterion; the worst cell has the highest `badness`."""
    place = badness.argmax()
    n_significant = np.nan
    if p_values is not None:
        n_significant = int((holm(np.asarray(p_values)) <= 0.05).sum())
    return {
        "criterion": words,
        "n_cells": len(badness),
        "worst": abs(badness.iloc[place]),
        "n_beyond": int(is_beyond.sum()),
        "n_significant": n_significant,
        "worst_cell": cells.iloc[place],
    }


def cell_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return every cell with its biases, coverages and errors."""
    first = ["kind", "source", "share_right", "agreement", "auroc", "n_questions", "n_labels"]
    columns = [name for name in (*first, "repetitions", "n_drawn", "enough") if name in table]
    for name in QUANTITIES:
        columns += [f"{name}_{end}" for end in ("n_shown", "bias", "rmse", "random_rmse", "ratio")]
        columns += [f"{name}_{scope}_covered" for scope in SCOPES]
    return table[columns]


def main() -> None:
    """Write the tables."""
    options = {"inputs": [], "--output": ROOT / "docs" / "results" / "data"}
    arguments = parse_arguments(__doc__, options)
    every = pd.concat([pd.read_csv(path) for path in arguments.inputs], ignore_index=True)
    every = every.drop_duplicates("cell", keep="last")
    is_real = every["kind"] == "records"
    table = every[~is_real]
    parts = {
        "cells": cell_table(table),
        "errors": error_summary(table),
        "widths": width_summary(table),
        "criteria": criteria(table),
    }
    if is_real.any():
        parts["real"] = cell_table(every[is_real]).dropna(axis=1, how="all")
    for name, part in parts.items():
        part.round(4).to_csv(arguments.output / f"label_{name}.csv", index=False)
    print(parts["criteria"].to_string(index=False))


if __name__ == "__main__":
    main()
