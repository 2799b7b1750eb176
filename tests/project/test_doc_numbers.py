"""Numbers in README and docs are those of the committed CSV files; wrong ones are corrected."""

import pandas as pd
import pytest
from doc_claims import claims_page
from doc_numbers import (
    markdown_table,
    numbers_without_source,
    pages,
    tables_without_source,
    update,
    update_page,
)
from doc_sentences import SENTENCES, Pair, Sentence
from doc_sources import ROOT, difference_with_interval, interval, listed, row, rows, signed
from doc_tables import TABLES

from pro_lib.plots import read_caption

PAGE = """Text before.

<!-- table: made_up -->

| method | AUROC |
|---|---|
| PRO | 0.700 |

On facts PRO gains +0.100
[+0.050, +0.150] over NLL, in two of 3,408 settings.
"""
SENTENCE = Sentence(
    "docs/made_up.md",
    "PRO gains {gain} {ends} over NLL, in {count} of {n} settings.",
    {"gain": "−0.005", "ends": "[−0.010, 0.000]", "count": "none", "n": "12"},
)


def made_up():
    return pd.DataFrame({"method": ["PRO"], "AUROC": ["0.701"]})


def test_every_number_of_readme_and_docs_is_that_of_its_file():
    assert update(write=False) == []


def test_every_generated_table_stands_on_a_page():
    text = "".join((ROOT / page).read_text() for page in pages())
    assert [name for name in TABLES if f"<!-- table: {name} -->\n\n|" not in text] == []


def test_wrong_numbers_are_found_and_written_and_nothing_else_changes():
    page, problems = update_page(PAGE, [SENTENCE], {"made_up": made_up})
    assert len(problems) == 5  # the table and the four numbers
    assert "'| PRO | 0.700 |', but the file says '| PRO | 0.701 |'" in problems[0]
    expected = PAGE.replace("0.700", "0.701").replace(
        "+0.100\n[+0.050, +0.150]", "−0.005\n[−0.010, 0.000]"
    )
    assert page == expected.replace("two of 3,408", "none of 12")
    assert update_page(page, [SENTENCE], {"made_up": made_up}) == (page, [])


def test_a_sentence_that_is_not_on_its_page_and_an_unknown_table_are_found():
    _, problems = update_page("Nothing.\n", [SENTENCE], {})
    assert problems[0].startswith("0 passages read 'PRO gains {gain}")
    _, problems = update_page(PAGE, [], {})
    assert problems == ["table 'made_up' is unknown; add it to docs/sourced/doc_tables.py"]


def test_a_sentence_that_ends_with_a_number_is_refused():
    with pytest.raises(ValueError, match="ends with a number"):
        Sentence("x", "It is {a}", {"a": "1"}).pattern()


def test_numbers_and_tables_without_a_source_are_found():
    text = PAGE + "\n| score | AUROC |\n|---|---|\n| NLL | 0.7 |\n\n`0.123`, 0.25 and .456\n"
    assert tables_without_source("docs/made_up.md", text) == ["| score | AUROC |"]
    assert numbers_without_source("docs/made_up.md", text, [SENTENCE]) == [".456"]
    assert numbers_without_source("docs/made_up.md", text, []) == [
        "0.100",
        "0.050",
        "0.150",
        ".456",
    ]


def test_differences_are_written_with_their_sign_and_zero_without():
    assert [signed(value) for value in (0.0063, -0.0063, 0.0004, -0.0004, -0.0)] == [
        "+0.006",
        "−0.006",
        *["0.000"] * 3,
    ]
    assert interval(-0.0141, 0.0013) == "[−0.014, +0.001]"
    record = pd.Series({"difference": 0.01, "difference_low": -0.002, "difference_high": 0.03})
    assert difference_with_interval(record) == "+0.010 [−0.002, +0.030]"
    assert difference_with_interval(record, sign=-1) == "−0.010 [−0.030, +0.002]"
    assert (listed(["a"]), listed(["a", "b"]), listed("abc")) == ("a", "a and b", "a, b and c")


def test_a_cell_is_one_row_of_a_file():
    where = {"dataset": "TriviaQA", "model": "Gemma-2B"}
    assert row("data/paper/main_table.csv", method="PRO", **where)["auroc"] == 0.819
    assert len(rows("data/paper/main_table.csv", **where)) == 8
    with pytest.raises(
        LookupError, match="8 rows with dataset = TriviaQA, model = Gemma-2B; expected one"
    ):
        row("data/paper/main_table.csv", **where)


def test_a_table_is_written_as_markdown():
    table = pd.DataFrame({" ": ["AUROC"], "PRO": ["0.7"]})
    assert markdown_table(table) == "|  | PRO |\n|---|---|\n| AUROC | 0.7 |\n"


def test_the_page_of_claims_has_every_comparison_with_its_difference():
    page = claims_page()
    compared = [sentence for sentence in SENTENCES if sentence.pairs]
    assert [sentence.text for sentence in compared if f"\n> {sentence.plain()}\n" not in page] == []
    assert "nan" not in page


def test_the_page_of_claims_has_the_comparisons_of_notebooks():
    page = claims_page()
    table = pd.read_csv(ROOT / "figures" / "12_alpha_choices.csv")
    lowest = table.loc[table["auroc_minus_nll"].idxmin()]
    ends = interval(lowest["auroc_minus_nll_low"], lowest["auroc_minus_nll_high"])
    beginning = "| 02 and 12, table and caption | PRO at each chosen α − NLL"
    assert f"{beginning} | {len(table)} | {signed(lowest['auroc_minus_nll'])} {ends} |" in page
    caption = read_caption(ROOT / "figures" / "02_alpha_sweep.md")
    assert f"\n> 02: {caption}\n" in page


def test_a_comparison_without_a_paired_difference_is_refused():
    with pytest.raises(TypeError, match="path"):
        Pair("PRO − NLL")
