"""Numbers in README and docs are those of the committed CSV files; wrong ones are corrected."""

import pandas as pd
from conftest import ROOT
from doc_numbers import update, update_page
from doc_tables import TABLES

SOURCE = """<!-- figures/12_fixed_k.csv: auroc_minus_nll auroc_minus_nll_low auroc_minus_nll_high,
model=facts-2m, dataset=world-facts, protocol=workbench, k_choice=fixed, k=10 -->"""
PAGE = f"""Text before, with 0.7 and `0.123`.

<!-- table: made_up -->

| method | AUROC |
|---|---|
| PRO | 0.700 |

For α = 0.005, PRO with K = 10 gains +0.100 [+0.050,
+0.150]{SOURCE} over NLL.
"""


def test_every_number_of_readme_and_docs_is_that_of_its_file():
    assert update(write=False) == []


def test_every_generated_table_stands_on_a_page():
    pages = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    missing = [name for name in TABLES if f"<!-- table: {name} -->\n\n|" not in "".join(pages)]
    assert missing == []


def test_wrong_numbers_are_found_and_written_and_nothing_else_changes(monkeypatch):
    table = pd.DataFrame({"method": ["PRO"], "AUROC": ["0.701"]})
    monkeypatch.setitem(TABLES, "made_up", lambda: table)
    page, problems = update_page(PAGE)
    assert len(problems) == 4  # the table and the three numbers
    assert page == PAGE.replace("0.700", "0.701").replace(
        "+0.100 [+0.050,\n+0.150]", "−0.082 [−0.098,\n−0.067]"
    )
    assert update_page(page) == (page, [])
