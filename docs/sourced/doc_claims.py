"""The page of claims: every statement that compares two values, with its paired differences."""

from dataclasses import dataclass

import pandas as pd
from doc_sentences import SENTENCES, Pair, Sentence
from doc_sources import difference_with_interval, interval, read_csv, row, signed

from pro_lib.evaluation import findings

HEAD = """# Claims and their differences

This page is generated (`make docs-numbers`). It lists the statements of README, docs, notebooks and titles of figures
that compare two values on the same questions, except those of the log. Each has its paired difference with a 95 %
interval, and the cell of the CSV file that the difference comes from. The difference is the first value minus the
second. The sentences of README and docs are listed in `docs/sourced/doc_sentences.py`, those of notebooks in
`docs/sourced/doc_claims.py`.

"""
IN_NOTEBOOKS = """## Notebooks and titles of figures

A notebook writes its findings and titles from its tables. So the list has the columns with the paired differences
that these statements compare, with the smallest and the largest difference among the rows. The intervals of single
AUROCs beside them describe one method each, and no statement compares them.

"""


@dataclass(frozen=True)
class Compared:
    """A comparison that a notebook makes from a column of paired differences.

    Attributes:
        place: the notebook, and where in it the comparison is.
        name: what is compared, such as "PRO − NLL".
        path: the CSV file.
        query: selects the rows that are compared; empty for all.
        sign: −1 if the file has the reverse difference.
        column: the column of the difference; `low` and `high` those of its interval.
    """

    place: str
    name: str
    path: str
    query: str = ""
    sign: int = 1
    column: str = "auroc_minus_nll"
    low: str = "auroc_minus_nll_low"
    high: str = "auroc_minus_nll_high"


_TO_PRO = {
    "column": "auroc_minus_pro",
    "low": "auroc_minus_pro_low",
    "high": "auroc_minus_pro_high",
}
NOTEBOOKS = (
    Compared("02, figure", "PRO at each α − NLL", "figures/02_alpha_sweep.csv", "split == 'test'"),
    Compared(
        "02, table and findings", "PRO at each chosen α − NLL", "figures/02_alpha_choices.csv"
    ),
    Compared(
        "04, figure, table and findings", "PRO at each K − NLL", "figures/04_fixed_k.csv", "k != 1"
    ),
    Compared(
        "05, figure and findings",
        "each method − NLL",
        "figures/05_rouge_threshold.csv",
        "method != 'NLL'",
    ),
    Compared(
        "06, findings", "PRO − NLL", "figures/06_benchmark.csv", "method == 'NLL'", -1, **_TO_PRO
    ),
    Compared(
        "06, figures, table and findings",
        "each method − PRO",
        "figures/06_benchmark.csv",
        "not (method == 'PRO' and alpha_choice == 'validation')",
        **_TO_PRO,
    ),
    Compared(
        "07, second figure and findings",
        "each score − PRO of the exact search",
        "figures/07_exact_search_auroc.csv",
        "not (method == 'PRO' and strategy == 'threshold')",
        **_TO_PRO,
    ),
    Compared("08, first title, and findings", "PRO − NLL", "figures/08_when_does_pro_help.csv"),
    Compared("08, second title", "PRO − NLL", "figures/08_spellings.csv"),
    Compared("08, third title, and findings", "PRO − NLL", "figures/08_causes.csv"),
)


def claims_page() -> str:
    """Return the page as Markdown."""
    parts = [HEAD]
    pages = dict.fromkeys(sentence.page for sentence in SENTENCES if sentence.pairs)
    for page in pages:
        parts.append(f"## {page}\n\n")
        parts += [
            _entry(sentence) for sentence in SENTENCES if sentence.page == page and sentence.pairs
        ]
    parts.append(_notebooks())
    return "".join(parts).rstrip("\n") + "\n"


def _entry(sentence: Sentence) -> str:
    lines = ["| compared | difference, 95 % interval | cell |\n", "|---|---|---|\n"]
    lines += [
        f"| {pair.name} | {_difference(pair)} | {_place(pair)} |\n" for pair in sentence.pairs
    ]
    return f"> {sentence.plain()}\n\n{''.join(lines)}\n"


def _difference(pair: Pair) -> str:
    record = row(pair.path, **pair.where)
    names = {pair.column: "difference", pair.low: "difference_low", pair.high: "difference_high"}
    return difference_with_interval(record.rename(names), pair.sign)


def _place(pair: Pair) -> str:
    conditions = ", ".join(f"{name} = {value}" for name, value in pair.where.items())
    reverse = ", with the other sign" if pair.sign < 0 else ""
    return f"[{pair.path.split('/', 1)[1]}]({_link(pair.path)}): `{pair.column}` where {conditions}{reverse}"


def _link(path: str) -> str:
    return path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"


def _notebooks() -> str:
    head = (
        "| notebook | compared | rows | smallest | largest | column |\n|---|---|---|---|---|---|\n"
    )
    lines = [IN_NOTEBOOKS, head]
    lines += [_line(compared) for compared in NOTEBOOKS]
    lines.append("\nThe findings of notebooks 02 and 04, from these files:\n\n")
    for number, text in (
        ("02", findings.alpha_sweep(read_csv("figures/02_alpha_choices.csv"))),
        ("04", findings.fixed_k(read_csv("figures/04_fixed_k.csv").astype({"k": "Int64"}))),
    ):
        lines += [f"> {number}: {paragraph}\n\n" for paragraph in text.split("\n\n")]
    return "".join(lines)


def _line(compared: Compared) -> str:
    table = read_csv(compared.path)
    if compared.query:
        table = table.query(compared.query)
    sign = compared.sign
    values = (sign * table[compared.column]).sort_values()
    ends = [
        _with_interval(table.loc[index], compared) for index in (values.index[0], values.index[-1])
    ]
    place = f"[{compared.path.split('/', 1)[1]}]({_link(compared.path)}): `{compared.column}`"
    if compared.query:
        place = f"{place} where {compared.query}"
    if sign < 0:
        place = f"{place}, with the other sign"
    return (
        f"| {compared.place} | {compared.name} | {len(table)} | {ends[0]} | {ends[1]} | {place} |\n"
    )


def _with_interval(record: pd.Series, compared: Compared) -> str:
    low, high = sorted(compared.sign * record[name] for name in (compared.low, compared.high))
    return f"{signed(compared.sign * record[compared.column])} {interval(low, high)}"
