"""Cells of the committed CSV files, and how the docs write them."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[2]

BENCHMARK = "figures/12_benchmark.csv"
EXACT = "figures/07_exact_search.csv"
EXACT_AUROC = "figures/07_exact_search_auroc.csv"
REAL = "figures/real_models"
SMOLLM2 = "figures/smollm2"
GEMMA = "figures/gemma-3-270m"
SELF_EVALUATION = "docs/results/data/self_evaluation.csv"
GAIN = f"{REAL}/published_gain.csv"
ALL_QUESTIONS = f"{REAL}/published_all.csv"
PAIRED = "docs/results/data/paired_differences.csv"
CLUSTER_INTERVAL = "docs/results/data/cluster_interval.csv"

# The settings of notebooks 02 to 06, with their names on the pages.
SETTINGS = {
    "facts-2m, seen": {"dataset": "world-facts", "model": "facts-2m"},
    "facts-2m, reworded": {"dataset": "world-facts-reworded", "model": "facts-2m"},
    "facts-1m, seen": {"dataset": "world-facts", "model": "facts-1m"},
    "facts-1m, reworded": {"dataset": "world-facts-reworded", "model": "facts-1m"},
}
SEEN = SETTINGS["facts-2m, seen"]
NQ = {"dataset": "nq-open", "model": "gpt-3.5-turbo"}
MEADOW = {"dataset": "meadow", "model": "gpt-3.5-turbo"}
LLAMA = {"dataset": "nq-open", "model": "Llama-2-7b-chat-hf"}
PUBLISHED = {"gpt-3.5, NQ": NQ, "gpt-3.5, Meadow": MEADOW, "Llama-2-7b-chat, NQ": LLAMA}
# The methods of notebook 06, as the pages call them, by the columns that select their rows.
METHODS: dict[str, dict[str, str]] = {
    name: {"method": name} for name in ("NLL", "ALL", "PE", "PE-MC", "NE", "Stated")
}
METHODS |= {
    "PRO": {"method": "PRO", "alpha_choice": "validation"},
    "PRO, default": {"method": "PRO", "alpha_choice": "default"},
    "PRO, oracle": {"method": "PRO", "alpha_choice": "oracle"},
}
METHODS |= {
    f"{method}, {similarity}": {"method": method, "similarity": similarity}
    for method in ("SE", "SD", "Deg", "SC", "S-NLL", "S-PRO")
    for similarity in ("lexical", "alias")
}
COUNTED = {"workbench": "once each", "paper": "repeats kept"}


@lru_cache
def read_csv(path: str) -> pd.DataFrame:
    """Read a CSV file of the repository once."""
    return pd.read_csv(ROOT / path)


def rows(path: str, **where: object) -> pd.DataFrame:
    """Return the rows of a CSV file whose columns have these values."""
    table = read_csv(path)
    for column, value in where.items():
        table = table[table[column] == value]
    return table


def row(path: str, **where: object) -> pd.Series:
    """Return the only row whose columns have these values."""
    found = rows(path, **where)
    if len(found) != 1:
        conditions = ", ".join(f"{name} = {value}" for name, value in where.items())
        raise LookupError(f"{path} has {len(found)} rows with {conditions}; expected one")
    return found.iloc[0]


def cell(path: str, column: str, **where: object) -> float:
    """Return one cell of a CSV file."""
    return row(path, **where)[column]


def fixed_k_auroc(path: str, *, k: int, **where: object) -> float:
    """Return the AUROC of PRO with the same K for every question."""
    return cell(path, "auroc", k_choice="fixed", k=k, **where)


def signed(value: float, digits: int = 3) -> str:
    """Write a difference with its sign, such as +0.006 or −0.006; one that rounds to 0 has none."""
    text = f"{value:+z.{digits}f}"
    is_zero = float(text) == 0
    return text.lstrip("+-") if is_zero else text.replace("-", "−")


def interval(low: float, high: float, digits: int = 3) -> str:
    """Write an interval of a difference, such as [−0.014, +0.001]."""
    return f"[{signed(low, digits)}, {signed(high, digits)}]"


def difference_with_interval(record: pd.Series, sign: int = 1, column: str = "difference") -> str:
    """Write a row's difference with its interval; `sign` is −1 for the reverse difference."""
    ends = sorted(sign * record[f"{column}_{end}"] for end in ("low", "high"))
    return f"{signed(sign * record[column])} {interval(*ends)}"


def gain_with_interval(record: pd.Series) -> str:
    """Write a row of the gains with a chosen α or K; with K = 1 PRO is NLL on every question."""
    if record["chosen"] == "K" and record["choice"] == 1:
        return "0.000, identical"
    return f"{signed(record['median'])} {interval(record['low'], record['high'])}"


def percent(value: float) -> str:
    """Write a share as a percentage without decimals."""
    return f"{100 * value:.0f} %"


def listed(texts: Iterable[str]) -> str:
    """Join texts as "a, b and c"."""
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def shared_range(values: Iterable[float], digits: int = 3) -> str:
    """Write the range of some values, such as "0.012 to 0.023"."""
    values = list(values)
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


NUMBERS = (
    "none",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


def spelled(count: int) -> str:
    """Write a small count as a word."""
    return NUMBERS[count] if count < len(NUMBERS) else str(count)
