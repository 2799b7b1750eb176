"""The command `pro report`: its text, its figures, and the page in a browser.

The command `python tests/app/test_report.py` writes the expected page, tests/golden/report.html,
in which the figures are left out.
"""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from commands import answer, record, typed, write_lines

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "report.html"
NASTY = "<script>alert(1)</script>&<img src=x onerror=alert(2)>\x1b[31m\u202e</title>"


def rows_of(n_questions):
    """Records of two answers; the less probable the first one, the more often it is wrong."""
    rng = np.random.default_rng(0)
    rows = []
    for n in range(n_questions):
        p = 0.95 - 0.9 * n / n_questions
        answers = (answer(f"first {n}", p), answer(f"second {n}", (1 - p) / 2))
        reference = f"first {n}" if rng.random() < p else "none"
        rows.append(record(n, *answers, question=f"Question {n}?", references=[reference]))
    return rows


def write_page(folder, rows, *options):
    """Write the report on records, and return its path."""
    page = folder / "report.html"
    records = write_lines(folder / "records.jsonl", rows)
    typed("report", records, "--output", page, *options)
    return page


def without_figures(text):
    return re.sub(r"<svg.*?</svg>", "<svg></svg>", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    # With a small α, PRO has another order than NLL.
    return write_page(tmp_path_factory.mktemp("report"), rows_of(60), "--alpha", "0.05")


@pytest.fixture(scope="module")
def nasty_page(tmp_path_factory):
    rows = rows_of(60)
    for row in rows:
        row["question"] += NASTY
        row["answers"][0]["text"] += NASTY
        row["references"][0] += NASTY
    return write_page(tmp_path_factory.mktemp("nasty&<b>"), rows, "--alpha", "0.05")


def test_the_page_without_its_figures_is_the_expected_one(page):
    assert without_figures(page.read_text()) == GOLDEN.read_text()


def test_the_page_has_three_figures_and_no_address(page):
    text = page.read_text()
    assert text.count("<svg ") == 3
    assert set(re.findall(r'(?:src|href)="([^"#]+)', text)) == set()
    addresses = set(re.findall(r"https?://[^\"' <]*", text))
    assert addresses == {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:href="#|url\(#)([^")]*)', text)
    assert set(used) <= set(ids)


@pytest.mark.parametrize("method", ["SE", "S-PRO"])
def test_every_method_has_its_figures(tmp_path, method):
    rows = rows_of(80)
    if method == "SE":
        for row in rows:
            row["answers"] = [{"text": each["text"]} for each in row["answers"]]
    text = write_page(tmp_path, rows, "--sort", method, "--alpha", "0.05").read_text()
    # Texts without log-probabilities have no accuracy beside that of NLL.
    assert text.count("<svg ") == (2 if method == "SE" else 3)


def test_hostile_texts_are_escaped(nasty_page):
    text = nasty_page.read_text()
    assert not re.search(r"<script|<img|\x1b|\u202e", text)
    assert text.count("</title>") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&lt;img" in text


def test_answers_that_cannot_be_judged_have_a_page_without_figures(tmp_path):
    rows = rows_of(3)
    for row in rows:
        del row["references"]
    text = write_page(tmp_path, rows).read_text()
    assert "<title>Uncertainty of answers: records.jsonl</title>" in text
    assert "the right answers are not known" in text
    assert "<svg" not in text
    assert text.count("Question 0?") == 2  # among the most and the least certain answers


@pytest.mark.slow
def test_a_browser_shows_and_prints_the_page_without_requests_or_overflow(page, nasty_page, browse):
    for path, width in itertools.product((page, nasty_page), (400, 1370)):
        with browse(path.as_uri(), width=width) as (tab, errors):
            requests = []
            tab.on("request", lambda request, seen=requests: seen.append(request.url))
            tab.on("dialog", lambda dialog, seen=errors: seen.append(dialog.message))
            tab.reload()
            assert requests == [path.as_uri()]
            assert errors == []
            # On a phone the tables scroll, and the page does not.
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            assert tab.locator("svg").count() == 3
            boxes = [figure.bounding_box() for figure in tab.locator("svg").all()]
            assert all(box["width"] > 300 for box in boxes)
            assert all(box["x"] + box["width"] <= width for box in boxes)
            assert tab.pdf().startswith(b"%PDF-")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        written = write_page(Path(folder), rows_of(60), "--alpha", "0.05")
        GOLDEN.write_text(without_figures(written.read_text()))
