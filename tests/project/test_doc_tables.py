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


def test_page_of_columns_describes_every_column_that_exists_and_no_other():
    setting = {row[0].strip("`") for row in table_rows(COLUMNS_PAGE, "## The setting")}
    text = find_page(COLUMNS_PAGE).read_text().split("## Quantities", 1)[1]
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    described = {name for cell in cells for name in cell.replace("`", "").split(", ")}
    existing = {name for path in FIGURE_TABLES for name in pd.read_csv(path, nrows=0).columns}
    assert described <= existing
    others = {re.sub("_(low|high)$", "", name) for name in existing - described}
    assert others <= described | setting
