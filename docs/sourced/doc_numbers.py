"""Write or check the numbers of README and docs, which come from the committed CSV files.

    python docs/sourced/doc_numbers.py            # compare; an error names each difference
    python docs/sourced/doc_numbers.py --write    # write the numbers: `make docs-numbers`

A comment above a generated table names its function in doc_tables.py:

    <!-- table: benchmark_auroc -->

A comment after numbers names their file, a column for each number, and the row:

    +0.005 [+0.003, +0.008]<!-- figures/x.csv: gain gain_low gain_high, method=PRO, alpha=0.4 -->

A column with a minus in front has the number with the other sign.
"""

import re
import sys

import pandas as pd
from doc_tables import ROOT, TABLES, typeset

TABLE = re.compile(r"<!-- table: (\w+) -->\n\n((?:^\|.*\n)+)", re.MULTILINE)
SOURCE = re.compile(r"(?<!`)<!--\s+([\w./-]+\.csv): (.+?)\s+-->", re.DOTALL)
NUMBER = re.compile(r"[+−]?\d*[\d,]*\d(?:\.\d+)?(?: %)?|[+−]?\.\d+")
# Without code, links, formulas, identifiers of papers and generated tables.
LEFT_OUT = re.compile(
    r"^```.*?^```$|`[^`\n]*`|\]\([^)]*\)|\$[^$]+\$|\d{4}\.\d{5}|<!--.*?-->",
    re.DOTALL | re.MULTILINE,
)
# A number after a sign such as = or ≥ is a setting.
MEASURED = re.compile(r"(?<![\d.])(?<![=≥≤<>±] )\d*\.\d{3,}(?!\d)|[+−]\d*\.\d+")
# The log has the results of a day.
LOG = "docs/results/experiment_log.md"


def markdown_table(table: pd.DataFrame) -> str:
    """Return a table of texts as Markdown."""
    head, *lines = [f"| {' | '.join(line)} |\n" for line in (table.columns, *table.to_numpy())]
    return f"{head}{'|---' * table.shape[1]}|\n{''.join(lines)}"


def sourced_numbers(text: str) -> list[tuple[int, int, str]]:
    """Return start, end and value of each number that a comment with a source follows."""
    numbers = []
    for comment in SOURCE.finditer(text):
        columns, *conditions = " ".join(comment[2].split()).split(", ")
        table = pd.read_csv(ROOT / comment[1], dtype=str)
        for condition in conditions:
            column, _, value = condition.partition("=")
            table = table[table[column] == value]
        if len(table) != 1:
            raise LookupError(f"{comment[0]} selects {len(table)} rows; expected one")
        names = columns.split()
        before = list(
            NUMBER.finditer(text, text.rfind("\n\n", 0, comment.start()), comment.start())
        )
        is_signed = any(found[0][0] in "+−" for found in before[-len(names) :])
        for name, found in zip(names, before[-len(names) :], strict=True):
            value = float(table[name.removeprefix("-")].iloc[0]) * (-1 if name[0] == "-" else 1)
            numbers.append((found.start(), found.end(), written_like(found[0], value, is_signed)))
    return numbers


def written_like(text: str, value: float, is_signed: bool) -> str:
    """Return a value with the decimals and the unit of a text."""
    decimals = len(text.removesuffix(" %").partition(".")[2])
    sign = "+" if is_signed else ""
    if text.endswith(" %"):
        return typeset(f"{value:{sign}.{decimals}%}")
    number = typeset(f"{value:{sign},.{decimals}f}")
    return number.removeprefix("0") if text.startswith(".") else number


def update_page(text: str) -> tuple[str, list[str]]:
    """Return a page with the numbers of the CSV files, and a line for each difference."""
    problems = []

    def generated(match: re.Match) -> str:
        new = markdown_table(TABLES[match[1]]())
        if new != match[2]:
            problems.append(f"table {match[1]!r} differs from its CSV file")
        return match[0].replace(match[2], new)

    text = TABLE.sub(generated, text)
    for start, end, value in sorted(sourced_numbers(text), reverse=True):
        if text[start:end] != value:
            problems.append(f"{text[start:end]!r} is {value!r} in its CSV file")
            text = text[:start] + value + text[end:]
    return text, problems


def numbers_without_source(text: str) -> list[str]:
    """Return the measured numbers that have neither a generated table nor a source."""
    for start, end, _ in sorted(sourced_numbers(text), reverse=True):
        text = text[:start] + text[end:]
    return MEASURED.findall(LEFT_OUT.sub("", TABLE.sub("", text)))


def update(*, write: bool) -> list[str]:
    """Compare all pages with the CSV files; write them if `write`; return the differences."""
    problems = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = path.relative_to(ROOT).as_posix()
        before = path.read_text()
        after, found = update_page(before)
        if name != LOG:
            found += [f"no source for {number}" for number in numbers_without_source(after)]
        problems += [f"{name}: {each}" for each in found]
        if write:
            path.write_text(after)
    return problems


if __name__ == "__main__":
    if "--write" in sys.argv:
        update(write=True)
    differences = update(write=False)
    print("\n".join(differences) or "All numbers are those of the CSV files.")
    sys.exit(len(differences) > 0)
