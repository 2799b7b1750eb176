"""Examples of the API pages and tutorials: each is run, and prints what the page says.

`python tests/test_examples.py` writes what they print anew.
"""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.md"))


def fences(page):
    """The fenced blocks of a page, in order."""
    return [token for token in MarkdownIt("commonmark").parse(page.read_text()) if token.type == "fence"]


def printed(code):
    """What a piece of code prints, run here: torch and a model are loaded once for all."""
    with redirect_stdout(StringIO()) as out:
        exec(compile(code, "example", "exec"), {"__name__": "example"})
    return out.getvalue()


def test_every_api_page_has_an_example():
    doors = [*(ROOT / "pro_lib").glob("[a-z]*.py"), *(ROOT / "pro_lib").glob("*/__init__.py")]
    names = {door.parent.name if door.stem == "__init__" else door.stem for door in doors}
    assert {page.stem for page in EXAMPLES} == names


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.stem)
def test_an_example_is_short_and_prints_what_its_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, output = fences(page)
    assert (code.info, output.info) == ("python", "text")
    assert 3 <= len([line for line in code.content.splitlines() if line]) <= 12
    assert printed(code.content) == output.content != ""


if __name__ == "__main__":
    for page in EXAMPLES:
        output = printed(fences(page)[0].content)
        page.write_text(re.sub(r"(?s)```text\n.*?```", lambda _, o=output: f"```text\n{o}```", page.read_text()))
