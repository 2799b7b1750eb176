"""Write or check the numbers of the docs, which come from the committed CSV files.

    python docs/sourced/doc_numbers.py            # compare; an error names each difference
    python docs/sourced/doc_numbers.py --write    # write the numbers: `make docs-numbers`.

A table is generated if a comment stands above it:

    <!-- table: benchmark_auroc -->

It names a function of doc_tables.py. A sentence with numbers is listed in doc_sentences.py, with a
name in braces for each number. Its page has the plain sentence, and only the numbers in it are
compared and written. Change a sentence in both places.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence

import pandas as pd
from doc_claims import CLAIMS, claims_page
from doc_sentences import NO_FILE, SENTENCES, Sentence
from doc_sources import ROOT
from doc_tables import NOT_GENERATED, TABLES

MARKER = re.compile(r"<!-- table: (\w+) -->\n\n((?:^\|.*\n)+)", re.MULTILINE)
# The log records measurements of a day, which are not repeated.
NOT_CHECKED = (CLAIMS, "docs/results/experiment_log.md")


def markdown_table(table: pd.DataFrame) -> str:
    """Return a table of texts as Markdown; column names that begin with a space are empty heads."""
    head = ["" if name.isspace() else name for name in table.columns]
    lines = [
        f"| {' | '.join(map(str, line))} |\n" for line in (head, *table.itertuples(index=False))
    ]
    lines.insert(1, "|---" * table.shape[1] + "|\n")
    return "".join(lines)


def update_tables(
    text: str, tables: Mapping[str, Callable[[], pd.DataFrame]]
) -> tuple[str, list[str]]:
    """Return a page with its generated tables, and a line for each difference."""
    problems = []

    def generated(match: re.Match) -> str:
        name, old = match.groups()
        if name not in tables:
            problems.append(f"table {name!r} is unknown; add it to docs/sourced/doc_tables.py")
            return match[0]
        new = markdown_table(tables[name]())
        if new != old:
            problems.append(
                f"table {name!r} differs from its CSV file{_first_difference(old, new)}"
            )
        return f"<!-- table: {name} -->\n\n{new}"

    return MARKER.sub(generated, text), problems


def _first_difference(old: str, new: str) -> str:
    for before, after in zip(old.splitlines(), new.splitlines(), strict=False):
        if before != after:
            return f": {before!r}, but the file says {after!r}"
    return ": another number of rows"


def update_sentence(text: str, sentence: Sentence) -> tuple[str, list[str]]:
    """Return a page with the numbers of a sentence, and a line for each difference."""
    matches = list(sentence.pattern().finditer(text))
    if len(matches) != 1:
        return text, [
            f"{len(matches)} passages read {sentence.text!r}; expected one "
            f"(docs/sourced/doc_sentences.py)"
        ]
    [match] = matches
    problems, pieces, end = [], [], 0
    for name, value in sentence.numbers.items():
        found = " ".join(match[name].split())
        if found != value:
            problems.append(f"{found!r} in {sentence.text!r} is {value!r} in its CSV file ({name})")
            pieces.append((match.span(name), value))
    updated = ""
    for (start, stop), value in sorted(pieces):
        updated += text[end:start] + value
        end = stop
    return updated + text[end:], problems


def tables_without_source(name: str, text: str) -> list[str]:
    """Return the heads of tables with measured numbers that are neither generated nor listed."""
    heads = []
    for match in re.finditer(r"(?:^\|.*\n)+", MARKER.sub("", without_code(text)), re.MULTILINE):
        head, *lines = match[0].splitlines()
        body = re.sub(r"\$[^$]*\$|\]\([^)]*\)", "", "\n".join(lines))
        begins = tuple(f"| {start}" for page, start in NOT_GENERATED if page == name)
        if re.search(r"\.\d|\d %", body) and not head.startswith(begins):
            heads.append(head)
    return heads


def numbers_without_source(name: str, text: str, sentences: Sequence[Sentence]) -> list[str]:
    """Return the numbers with three decimals in a page's prose that have no source."""
    for sentence in sentences:
        text = sentence.pattern().sub("", text)
    prose = re.sub(r"^\|.*$|\]\([^)]*\)|\d{4}\.\d{5}", "", without_code(text), flags=re.MULTILINE)
    listed = [number for page, numbers in NO_FILE.items() if page == name for number in numbers]
    return [
        number
        for number in re.findall(r"(?<![\d.])\d*\.\d{3,}(?!\d)", prose)
        if number not in listed
    ]


def without_code(text: str) -> str:
    """Return Markdown without blocks and pieces of code."""
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)


def update_page(
    text: str,
    sentences: Sequence[Sentence],
    tables: Mapping[str, Callable[[], pd.DataFrame]] = TABLES,
) -> tuple[str, list[str]]:
    """Return a page with the numbers of the CSV files, and a line for each difference."""
    text, problems = update_tables(text, tables)
    for sentence in sentences:
        text, more = update_sentence(text, sentence)
        problems += more
    return text, problems


def pages() -> list[str]:
    """Return the pages with numbers: README and the docs."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    return [
        "README.md",
        *(path.relative_to(ROOT).as_posix() for path in docs if path.parent.name != "examples"),
    ]


def update(*, write: bool) -> list[str]:
    """Compare all pages with the CSV files; write them if `write`; return the differences."""
    problems = []
    for name in pages():
        path = ROOT / name
        before = path.read_text()
        if name == CLAIMS:
            after, found = claims_page(), []
            if after != before:
                found = ["the page differs from docs/sourced/doc_sentences.py and the CSV files"]
        else:
            after, found = update_page(before, [each for each in SENTENCES if each.page == name])
        if name not in NOT_CHECKED:
            sentences = [each for each in SENTENCES if each.page == name]
            found += [
                f"no source for the table {head!r}" for head in tables_without_source(name, after)
            ]
            found += [
                f"no source for the number {each}"
                for each in numbers_without_source(name, after, sentences)
            ]
        problems += [f"{name}: {each}" for each in found]
        if write and after != before:
            path.write_text(after)
    return problems


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the numbers of the CSV files")
    write = parser.parse_args().write
    problems = update(write=write)
    print("\n".join(problems) or "All numbers are those of the CSV files.")
    unsolved = update(write=False) if write else problems
    if unsolved and write:
        print("\nNot solved by writing:", *unsolved, sep="\n")
    elif unsolved:
        print("\nIf the files are right, write their numbers: make docs-numbers")
    return 1 if unsolved else 0


if __name__ == "__main__":
    sys.exit(main())
