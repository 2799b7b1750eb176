"""Examples of the API pages and tutorials: each is run, and prints what the page says.

`python tests/test_examples.py` writes what they print anew.
"""

import os
import subprocess
import sys
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.md"))
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
PAGES = [*EXAMPLES, *(pytest.param(page, marks=pytest.mark.slow) for page in TUTORIALS)]


def fences(page):
    """The fenced blocks of a page, in order."""
    return [token for token in MarkdownIt("commonmark").parse(page.read_text()) if token.type == "fence"]


def steps(page):
    """What a reader of a tutorial does, each step with what it prints: a file, Python that goes on, commands."""
    blocks = fences(page)
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block.info != "text":
            yield block, after.content if after is not None and after.info == "text" else None


def done(block, folder, names):
    """What one step prints, done in the folder; Python keeps its names from one step to the next."""
    kind, _, title = block.info.partition(" ")
    if kind == "json":
        (folder / title.removeprefix('title="').removesuffix('"')).write_text(block.content)
        return None
    if kind == "python":
        with redirect_stdout(StringIO()) as out:
            exec(compile(block.content, "tutorial", "exec"), names)
        return out.getvalue()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    options = {"cwd": folder, "env": environment, "text": True, "check": False}
    end = subprocess.run(["bash", "-c", block.content], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    assert (end.returncode == 0) == ("Error: " not in end.stdout), end.stdout
    return end.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for block, expected in steps(page):
        assert expected in (None, done(block, tmp_path, names)), block.content
    assert page.stem != "own_model" or (tmp_path / "figures" / "04_fixed_k.png").exists()


def filled(page):
    """The text of a page with what its blocks print, done anew."""
    with TemporaryDirectory() as folder, chdir(folder):
        names, text, end = {"__name__": "example"}, page.read_text(), 0
        for block, expected in steps(page):
            told = done(block, Path(folder), names)
            if expected is not None:
                start = text.index("```text\n", end) + len("```text\n")
                end = text.index("```", start)
                text = text[:start] + told + text[end:]
                end = start + len(told)
    return text


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:] or [*EXAMPLES, *TUTORIALS]):
        page.write_text(filled(page.resolve()))
