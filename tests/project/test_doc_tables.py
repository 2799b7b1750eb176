"""Reference pages of the docs contain the tables that follow from the package and the figures."""

import re
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT
from doc_pages import find_page

from pro_lib.importing.response_formats import RESPONSE_FORMATS

COLUMNS_PAGE = "table_columns.md"
FIGURE_TABLES = sorted((ROOT / "figures").glob("[01]*.csv"))
# Figures of other models, which may have been drawn before a column was added
OTHER_FIGURE_TABLES = sorted((ROOT / "figures").glob("*/[01]*.csv"))
OTHER_FIGURE_TABLES = [
    path
    for path in OTHER_FIGURE_TABLES
    if path.parent.name in ("real_models", "smollm2", "gemma-3-270m")
]
NAMED_VALUES = ["alpha_choice", "k_choice", "protocol", "split", "strategy"]


def table_rows(page: str, heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading of a page, without the header."""
    text_below = find_page(page).read_text().split(heading, 1)[1]
    table = re.search(r"(^\|.*\n)+", text_below, re.MULTILINE)
    _, _, *lines = table[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines]


def test_page_of_response_formats_has_every_format():
    rows = table_rows("response_formats.md", "## Formats")
    names = {format_.name for format_ in RESPONSE_FORMATS}
    assert {row[0].strip("`") for row in rows} == names | {"records"}


def setting_columns() -> list[str]:
    """Return the columns that, by the page, describe the setting of a row."""
    return [row[0].strip("`") for row in table_rows(COLUMNS_PAGE, "## The setting")]


def described_columns() -> set[str]:
    """Return the other columns that the page describes."""
    text = find_page(COLUMNS_PAGE).read_text().split("## Quantities", 1)[1]
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return {name for cell in cells for name in cell.replace("`", "").split(", ")}


@pytest.mark.parametrize("path", FIGURE_TABLES, ids=lambda path: path.stem)
def test_table_starts_with_its_setting_in_the_order_of_the_page(path):
    columns = list(pd.read_csv(path).columns)
    setting = [name for name in setting_columns() if name in columns]
    assert columns[: len(setting)] == setting


@pytest.mark.parametrize("path", FIGURE_TABLES, ids=lambda path: path.stem)
def test_page_of_columns_describes_every_quantity_of_the_table(path):
    columns = set(pd.read_csv(path).columns) - set(setting_columns()) - described_columns()
    ends = {name for name in columns if re.sub("_(low|high)$", "", name) in described_columns()}
    assert columns - ends == set()


@pytest.mark.parametrize(
    "path", OTHER_FIGURE_TABLES, ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_table_of_other_models_has_no_other_columns(path):
    # The two small models have a column of an earlier interval, until they are run again.
    expected = {*pd.read_csv(ROOT / "figures" / path.name).columns, "n_to_decide"}
    assert set(pd.read_csv(path).columns) <= expected


def test_page_of_columns_names_only_columns_that_exist():
    existing = {name for path in FIGURE_TABLES for name in pd.read_csv(path, nrows=0).columns}
    assert described_columns() - existing == set()


def named_values(path: Path) -> set[str]:
    """Return the values of the columns whose values the page lists."""
    table = pd.read_csv(path)
    columns = table.columns.intersection(NAMED_VALUES)
    return {str(value) for column in columns for value in table[column].dropna().unique()}


@pytest.mark.parametrize("path", FIGURE_TABLES, ids=lambda path: path.stem)
def test_page_of_columns_names_every_value_of_the_table(path):
    text = find_page(COLUMNS_PAGE).read_text()
    assert [value for value in named_values(path) if f"`{value}`" not in text] == []
