"""Examples of the API pages and tutorials run and print what the page shows.

`python tests/project/test_examples.py [PAGE …]` updates the output that the pages show.
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
# Files that the commands of a tutorial write
TUTORIAL_FILES = {
    "label_your_results": "figures/10_label_answers.png",
    "own_model": "figures/04_fixed_k.png",
}


def update_output(text: str) -> str:
    """Run the blocks of a page in order and return the page with their present output.

    Python blocks share their variables. A block of text below a block of code is its output.
    """
    variables = {"__name__": "page"}
    output = None
    end = 0
    for block in MarkdownIt("commonmark").parse(text):
        if block.type != "fence":
            continue
        if block.info != "text":
            output = run_block(block.info, block.content, variables)
        elif output is not None:
            start = text.index("```text\n", end) + len("```text\n")
            text = text[:start] + output + text[text.index("```", start) :]
            end = start + len(output)
            output = None
    return text


def run_block(info: str, code: str, variables: dict) -> str | None:
    """Run a block of code, or write the file that it contains, and return what it prints."""
    language, _, title = info.partition(" ")
    if language == "json":
        Path(title.removeprefix('title="').removesuffix('"')).write_text(code)
        return None
    if language == "python":
        with redirect_stdout(StringIO()) as output:
            exec(compile(code, "page", "exec"), variables)
        return output.getvalue()
    return run_commands(code)


def run_commands(code: str) -> str:
    """Run a block of shell commands and return their output.

    Raises:
        RuntimeError: if the block fails without an error message that a page could show.
    """
    result = subprocess.run(
        ["bash", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if (result.returncode != 0) != ("Error: " in result.stdout):
        raise RuntimeError(f"Exit status {result.returncode} of {code}: {result.stdout}")
    return result.stdout


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.stem)
def test_example_of_the_api_prints_what_its_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert update_output(page.read_text()) == page.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_tutorial_prints_what_its_page_shows_and_writes_its_files(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert update_output(page.read_text()) == page.read_text()
    assert (tmp_path / TUTORIAL_FILES.get(page.stem, ".")).exists()


def main() -> None:
    """Update the pages that are named in the arguments, or all."""
    pages = [Path(name).resolve() for name in sys.argv[1:]] or [*EXAMPLES, *TUTORIALS]
    for page in pages:
        with TemporaryDirectory() as folder, chdir(folder):
            page.write_text(update_output(page.read_text()))


if __name__ == "__main__":
    main()
