"""Numbers in README and docs are those of the committed CSV files; wrong ones are corrected."""

import pandas as pd
import pytest
from conftest import ROOT
from doc_numbers import markdown_table, numbers_without_source, update, update_page
from doc_tables import TABLES, written

SOURCE = """<!-- figures/12_fixed_k.csv: auroc_minus_nll auroc_minus_nll_low auroc_minus_nll_high,
model=facts-2m, dataset=world-facts, protocol=workbench, k_choice=fixed, k=10 -->"""
PAPER = "data/paper/main_table.csv: {}, dataset=TriviaQA, model=Gemma-2B, method=PRO"
PAGE = f"""Text before, with 0.7 and `0.123`.

<!-- table: made_up -->

| method | AUROC |
|---|---|
| PRO | 0.700 |

For α = 0.005, PRO with K = 10 gains +0.100 [+0.050,
+0.150]{SOURCE} over NLL.
"""


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    """A table of one row."""
    monkeypatch.setitem(
        TABLES, "made_up", lambda: pd.DataFrame({"method": ["PRO"], "AUROC": ["0.701"]})
    )


def test_every_number_of_readme_and_docs_is_that_of_its_file():
    assert update(write=False) == []


def test_every_generated_table_stands_on_a_page():
    pages = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    missing = [name for name in TABLES if f"<!-- table: {name} -->\n\n|" not in "".join(pages)]
    assert missing == ["made_up"]


def test_wrong_numbers_are_found_and_written_and_nothing_else_changes():
    page, problems = update_page(PAGE)
    assert len(problems) == 4  # the table and the three numbers
    assert page == PAGE.replace("0.700", "0.701").replace(
        "+0.100 [+0.050,\n+0.150]", "−0.082 [−0.098,\n−0.067]"
    )
    assert update_page(page) == (page, [])


@pytest.mark.parametrize(
    ("number", "column", "expected"),
    [(".8", "auroc", ".8"), ("80 %", "auroc", "82 %"), ("−0.9", "-auroc", "−0.8")],
)
def test_a_number_keeps_its_decimals_unit_and_sign(number, column, expected):
    source = f"<!-- {PAPER.format(column)} -->"
    assert update_page(f"It is {number}{source}.")[0] == f"It is {expected}{source}."


def test_a_source_that_does_not_select_one_row_is_an_error():
    with pytest.raises(LookupError, match="selects 8 rows; expected one"):
        update_page(
            "0.8<!-- data/paper/main_table.csv: auroc, dataset=TriviaQA, model=Gemma-2B -->"
        )


def test_measured_numbers_without_a_source_are_found():
    assert numbers_without_source(PAGE) == []
    text = PAGE.replace(SOURCE, "") + "\n| a |\n|---|\n| .456 |\n"
    assert numbers_without_source(text) == ["+0.100", "+0.050", "+0.150", ".456"]


def test_texts_of_a_table_have_minus_signs_and_no_sign_of_zero():
    table = pd.DataFrame({"name": ["facts-2m"] * 3, "value": [-0.0126, -0.0004, float("nan")]})
    texts = written(table, {"model": "{name}", "gain": "{value:+.3f}", "share": "{value:.0%}"})
    assert texts["gain"].tolist() == ["−0.013", "0.000", "–"]
    assert texts["share"].tolist() == ["−1 %", "0 %", "–"]
    line = "| facts-2m | −0.013 | −1 % |\n"
    assert markdown_table(texts[:1]) == f"| model | gain | share |\n|---|---|---|\n{line}"
