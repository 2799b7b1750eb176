"""Reference pages of the docs contain the tables that follow from the package and the figures."""

import re

import pandas as pd
from conftest import ROOT
from doc_pages import find_page

COLUMNS_PAGE = "table_columns.md"
FIGURE_TABLES = sorted((ROOT / "figures").glob("[01]*.csv"))


def table_rows(page: str, heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading of a page, without the header."""
    text_below = find_page(page).read_text().split(heading, 1)[1]
    table = re.search(r"(^\|.*\n)+", text_below, re.MULTILINE)
    _, _, *lines = table[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines]


def setting_columns() -> list[str]:
    """Return the columns that, by the page, describe the setting of a row."""
    return [row[0].strip("`") for row in table_rows(COLUMNS_PAGE, "## The setting")]


def described_columns() -> set[str]:
    """Return the other columns that the page describes."""
    text = find_page(COLUMNS_PAGE).read_text().split("## Quantities", 1)[1]
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return {name for cell in cells for name in cell.replace("`", "").split(", ")}


def test_tables_start_with_their_setting_and_the_page_describes_every_quantity():
    setting = setting_columns()
    for path in FIGURE_TABLES:
        columns = list(pd.read_csv(path, nrows=0).columns)
        own = [name for name in setting if name in columns]
        assert columns[: len(own)] == own, path
        others = {re.sub("_(low|high)$", "", name) for name in set(columns) - described_columns()}
        assert others <= described_columns() | set(setting), path


def test_page_of_columns_names_only_columns_that_exist():
    existing = {name for path in FIGURE_TABLES for name in pd.read_csv(path, nrows=0).columns}
    assert described_columns() - existing == set()
