"""Examples of the API pages and tutorials: each is run, and prints what the page says.

`python tests/project/test_examples.py [PAGE …]` writes what they print anew.
"""

import subprocess
import sys
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from conftest import ROOT
from markdown_it import MarkdownIt

EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.md"))
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
PAGES = [*EXAMPLES, *(pytest.param(page, marks=pytest.mark.slow) for page in TUTORIALS)]


def filled(page):
    """The text of a page with what its blocks print, done anew; Python keeps its names from one to the next."""
    names, text, printed, end = {"__name__": "page"}, page.read_text(), None, 0
    for block in [token for token in MarkdownIt("commonmark").parse(text) if token.type == "fence"]:
        if block.info == "text" and printed is not None:
            start = text.index("```text\n", end) + len("```text\n")
            text = text[:start] + printed + text[text.index("```", start) :]
            end = start + len(printed)
        printed = done(block, names) if block.info != "text" else None
    return text


def done(block, names):
    """What one block prints: a file is written, Python and commands are run."""
    kind, _, title = block.info.partition(" ")
    if kind == "json":
        Path(title.removeprefix('title="').removesuffix('"')).write_text(block.content)
        return None
    if kind == "python":
        with redirect_stdout(StringIO()) as out:
            exec(compile(block.content, "page", "exec"), names)
        return out.getvalue()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "check": False}
    end = subprocess.run(["bash", "-c", block.content], **streams)
    assert (end.returncode == 0) == ("Error: " not in end.stdout), end.stdout
    return end.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert filled(page) == page.read_text()
    assert page.stem != "own_model" or (tmp_path / "figures" / "04_fixed_k.png").exists()


if __name__ == "__main__":
    for page in [Path(name).resolve() for name in sys.argv[1:]] or [*EXAMPLES, *TUTORIALS]:
        with TemporaryDirectory() as folder, chdir(folder):
            page.write_text(filled(page))
