"""Code blocks of README, docs and datasheets run, or this file says why they do not.

The pages of docs/tutorials and docs/examples are run by test_examples.py. Links are checked by the
build of the site in test_site.py.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from click.testing import CliRunner
from conftest import ROOT
from doc_pages import DATASHEETS, DOCS, README, find_page
from markdown_it import MarkdownIt

import pro_lib
from pro_lib.app.cli import pro

RUN_AS_A_WHOLE = ("tutorials", "examples")
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
GUIDES = [page for page in DOCS if page.parent.name not in RUN_AS_A_WHOLE]
PAGES = [README, CONTRIBUTING, *GUIDES, *DATASHEETS]
# Indented blocks with a prompt for a model are not commands
PROMPTS = ("Question: What is the capital of Italy?", "Question: Who wrote Hamlet?")


class Block(NamedTuple):
    """A code block of a page."""

    name: str
    language: str  # "indented" if the block is not fenced
    text: str


def read_blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page, named by the page and the line."""
    blocks = []
    for token in MarkdownIt("commonmark").parse(page.read_text()):
        if token.type in ("fence", "code_block"):
            language = token.info if token.type == "fence" else "indented"
            blocks.append(Block(f"{page.stem}:{token.map[0] + 1}", language, token.content))
    return blocks


BLOCKS = [block for page in PAGES for block in read_blocks(page)]


def test_every_file_that_the_pages_for_developers_name_exists():
    pages = (ROOT / "docs" / "development").glob("*.md")
    named = [name for page in pages for name in re.findall(r"`([\w/]+\.py)`", page.read_text())]
    files = [
        path for folder in ("pro_lib", "tests", "docs") for path in ROOT.glob(f"{folder}/**/*.py")
    ]
    assert len(named) > 20
    assert [name for name in named if not any(path.match(name) for path in files)] == []


# ---- JSON blocks ---------------------------------------------------------------------------------


def test_json_blocks_are_records_or_questions(tmp_path):
    path = tmp_path / "block.jsonl"
    for block in BLOCKS:
        if block.language == "json":
            path.write_text(block.text)
            if "answers" in block.text:
                assert len(pro_lib.import_answers(path).answers) > 0, block.name
            else:
                assert len(pro_lib.questions.read_questions(path, columns={}).table) > 0, block.name


# ---- Python blocks -------------------------------------------------------------------------------

# First lines of the blocks that are not run, and why
PYTHON_NOT_RUN = {
    "run = pro_lib.generate(model, questions, out=": (
        "needs a cluster; tests/generation/test_ray_workers.py makes the call"
    ),
    "import pro_lib\n\nmodel = pro_lib.generation.connect_server(": (
        "needs a server; tests/generation/test_server.py starts one and runs both programs"
    ),
    "import pandas as pd\nimport pro_lib\nfrom lm_polygraph": (
        "needs LM-Polygraph; tests/importing/test_logs.py runs it"
    ),
    "import numpy as np\nimport pro_lib\nfrom uqlm": (
        "needs uqlm; tests/importing/test_logs.py runs it"
    ),
    "import dataclasses\n\nimport anyio": (
        "takes long; tests/app/test_ask.py runs it with fewer questions"
    ),
    "from uqlm import": "needs uqlm and a model; run manually with uqlm 0.6.7",
    "rows = mean_nll.table(": "a cell that needs the module above it, which is not part of `plots`",
    "outputs = llm.generate(": "needs vLLM; test_response_formats.py reads its objects",
}
PYTHON = [block for block in BLOCKS if block.language == "python"]
README_BLOCK, *OTHER_BLOCKS = [
    block for block in PYTHON if not block.text.startswith(tuple(PYTHON_NOT_RUN))
]


def is_output(text: Block, program: Block) -> bool:
    """Return whether a block of text directly follows a program on its page."""
    page, line = program.name.split(":")
    n_lines = program.text.count("\n") + 3  # with both fences and an empty line
    return text.language == "text" and text.name == f"{page}:{int(line) + n_lines}"


def test_first_python_block_of_readme_prints_the_output_below_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(README_BLOCK.text, README_BLOCK.name, "exec"), {})
    output = capsys.readouterr().out
    assert f"{README_BLOCK.text}```\n\n```\n{output}```\n" in README.read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("block", OTHER_BLOCKS, ids=lambda block: block.name)
def test_python_block_runs_unchanged_and_prints_the_text_below_it(
    block, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    exec(compile(block.text, block.name, "exec"), {})
    printed = capsys.readouterr().out
    following = BLOCKS[BLOCKS.index(block) + 1 :][:1]
    shown = [other.text for other in following if is_output(other, block)]
    assert shown in ([], [printed])


# ---- Commands ------------------------------------------------------------------------------------

# Commands that are not run (whole line), and why
NOT_RUN = {
    "(git clone|python3 -m venv) .*": "test_installation.py and `make` do this",
    "make (install|test|lint)": "continuous integration runs these",
    "make figures$": "takes minutes; tests/project/test_notebooks.py runs every notebook",
    "make (docs|lab)|pro explore( --lab)?$|pro label .*|python -m http.*": (
        "runs all notebooks, or does not end; see test_site.py, test_browser.py, test_labelling.py"
    ),
    "make golden|(pip|conda) .*|PIP_EXTRA.*|pro download .*": (
        "needs a network; see tests/project/test_installation.py and test_downloads.py"
    ),
    "pro judge .*|.* verdicts.csv": "tests/app/test_judge_command.py runs them on a fake server",
    'pro ask "[^"]*"': "needs a downloaded model; tests/app/test_cli.py tries it without one",
    ".* smollm2-135m|pro (generate|score|ask) .*smollm2-135m.*": (
        "tests/generation/test_downloads.py runs it if the model is installed"
    ),
    ".*(google/gemma|Gemma-2B|Falcon-40B|dataset sciq).*": "downloads models or questions",
    "make figures-real|.*data/published.*": "downloads published outputs",
    "python benchmarks/families.*": "takes minutes; tests/benchmarks/ has a small version",
    "pro .*margin.py:margin.*": "names a file of the reader; test_extending.py writes one",
    "python benchmarks/label_(estimates|summary).py .*": (
        "simulates for hours; tests/benchmarks/test_label_estimates.py has small versions"
    ),
    "python benchmarks/ladder.py( --models.*)?$": (
        "takes many minutes and needs the environment of `make golden`"
    ),
    "python data/models/train.py .*": "trains for minutes",
    "python data/examples/make(_invoices)?.py.*": "needs a run or a model that is not bundled",
    "ray .*|RAY_ADDRESS=.*": (
        "needs a cluster and the reader's script; see tests/generation/test_ray_workers.py"
    ),
}
# Arguments that make a command quick; the first pattern that matches the whole line counts
QUICK_ARGUMENTS = {
    ".*( records|help-notebook) .*": "",
    ".*(path/to/model|-y) .*-p limit .*": "-p limit 30",
    "(make notebook|papermill|pro run) .*": "-p model facts-1m -p dataset world-facts -p limit 30",
    "pro explore .* --questions .*": "--html page.html",
    "pro generate .* --dataset .*": "--limit 30",
    "python benchmarks/ladder.py .*": "--batch-sizes 32 --out ladder.csv",
}
# Makes `make` use this environment without installing into it
MAKE_OPTIONS = f"-o {sys.prefix}/.installed VENV={sys.prefix}"


def read_commands(blocks: list[Block]) -> list[str]:
    """Return the different command lines of shell blocks, without comments."""
    lines = [line for block in blocks for line in block.text.splitlines()]
    without_comments = [re.sub(r"(^|\s+)#.*$", "", line).rstrip() for line in lines]
    return [line for line in dict.fromkeys(without_comments) if line.strip()]


def matches_any(command: str, patterns) -> bool:
    """Return whether one of the patterns matches the whole command."""
    return any(re.fullmatch(pattern, command) for pattern in patterns)


def contains_any(command: str, parts) -> bool:
    """Return whether the command contains one of the parts."""
    return any(part in command for part in parts)


SHELL_BLOCKS = [
    block
    for block in BLOCKS
    if block.language in ("sh", "indented") and not block.text.startswith(PROMPTS)
]
COMMANDS = read_commands(SHELL_BLOCKS)
RUN = [command for command in COMMANDS if not matches_any(command, NOT_RUN)]
HELP_COMMANDS = [command for command in RUN if "--help-notebook" in command]
NOTEBOOK_COMMANDS = [
    command
    for command in RUN
    if contains_any(command, ("out.ipynb", "N=0", "pro run")) and command not in HELP_COMMANDS
]
EXAMPLE_COMMANDS = [command for command in RUN if "--example" in command]
OTHER_COMMANDS = [
    command
    for command in RUN
    if command not in (*HELP_COMMANDS, *NOTEBOOK_COMMANDS, *EXAMPLE_COMMANDS)
]


def with_duration_mark(command):
    """Return the command as a test parameter; scripts that take half a minute are trials."""
    is_long = contains_any(command, ("ladder.py", "build.py"))
    return pytest.param(command, marks=pytest.mark.trial if is_long else pytest.mark.slow)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder like the repository, with the files that commands of the docs expect."""
    folder = tmp_path_factory.mktemp("workplace")
    names = ("Makefile", "benchmarks", "notebooks", "pro_lib", "pyproject.toml", "constraints.txt")
    for name in names:
        (folder / name).symlink_to(ROOT / name)
    (folder / "path" / "to").mkdir(parents=True)
    (folder / "path" / "to" / "model").symlink_to(ROOT / "data" / "models" / "facts-1m")
    shutil.copytree(ROOT / "data" / "world_facts", folder / "data" / "world_facts")
    (folder / "data" / "examples").symlink_to(ROOT / "data" / "examples")
    answers = ROOT / "data" / "examples" / "answers.jsonl"
    for name in ("responses.jsonl", "other_responses.jsonl"):
        shutil.copy(answers, folder / name)
    table = pd.read_json(answers, lines=True, dtype=False)
    questions = table[["question_id", "question", "references"]]
    questions.to_json(folder / "my_questions.jsonl", orient="records", lines=True)
    right = questions.assign(answer=questions["references"].str[0])
    right[["question_id", "question", "answer"]].to_csv(folder / "my_questions.csv", index=False)
    return folder


def quick_command(command: str, folder: Path, figures: Path) -> str:
    """Return the command with arguments that make it quick and keep its files in the folders."""
    patterns = [pattern for pattern in QUICK_ARGUMENTS if re.fullmatch(pattern, command)]
    added = QUICK_ARGUMENTS[patterns[0]] if patterns else ""
    if command in (*NOTEBOOK_COMMANDS, *HELP_COMMANDS):
        added += f" -p generations_dir {folder}/generations -p figures_dir {figures}"
    if command.startswith("make notebook"):
        command = command.replace("make", f"make {MAKE_OPTIONS}", 1)
        return command.removesuffix('"') + f' {added}"'
    if command.startswith("pro run"):
        added += f" --executed {folder}/executed"
    return f"{command} {added}".strip()


def run_command(command: str, folder: Path, figures: Path) -> subprocess.CompletedProcess:
    """Run the quick version of a command of the docs; its output contains errors, too."""
    return subprocess.run(
        ["bash", "-c", quick_command(command, folder, figures)],
        cwd=folder,
        env=os.environ | {"PYTHONWARNINGS": "default"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def repeats_subcommand(command: str) -> bool:
    """Return whether an earlier command has the same subcommand of `pro`."""
    words = command.split()[:2]
    [first, *_] = [other for other in OTHER_COMMANDS if other.split()[:2] == words]
    return words[0] == "pro" and command != first


# Two improbable answers of the example have no letter that ROUGE sees.
@pytest.mark.filterwarnings("ignore::pro_lib.metrics.TokenizerWarning")
@pytest.mark.parametrize("command", [*map(with_duration_mark, OTHER_COMMANDS)])
def test_command_succeeds(command, workplace, tmp_path, monkeypatch):
    if repeats_subcommand(command):  # without a shell, because its imports take seconds
        monkeypatch.chdir(workplace)
        words = shlex.split(quick_command(command, workplace, tmp_path))
        result = CliRunner().invoke(pro, words[1:])
        assert result.exit_code == 0, result.output + repr(result.exception)
    else:
        result = run_command(command, workplace, tmp_path)
        assert result.returncode == 0, result.stdout[-2000:]


@pytest.mark.parametrize("command", EXAMPLE_COMMANDS)
def test_example_command_ends_with_a_line_of_readme(command, workplace, tmp_path):
    result = run_command(command, workplace, tmp_path)
    assert result.returncode == 0, result.stdout[-2000:]
    assert result.stdout.splitlines()[-1] in README.read_text()


def test_page_about_fields_shows_what_its_command_prints(monkeypatch):
    monkeypatch.chdir(ROOT)
    page = find_page("score_fields.md").read_text()
    command = re.search(r"^pro (score .*--fields)$", page, re.MULTILINE)[1]
    shown = re.search(r"```text\n(PRO separates.*?)```", page, re.DOTALL)[1]
    output = CliRunner().invoke(pro, shlex.split(command)).stdout
    assert set(shown.splitlines()) - {"…"} <= set(output.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("command", HELP_COMMANDS)
def test_help_of_a_notebook_lists_its_parameters(command, workplace, tmp_path):
    result = run_command(command, workplace, tmp_path)
    names = re.findall(r"^\s*(\w+): ", result.stdout, re.MULTILINE)
    assert {"model", "alpha", "limit"} <= set(names), result.stdout[-2000:]


@pytest.mark.trial
@pytest.mark.parametrize("command", NOTEBOOK_COMMANDS)
def test_command_that_runs_a_notebook_writes_a_figure(command, workplace, tmp_path):
    result = run_command(command, workplace, tmp_path)
    assert result.returncode == 0, result.stdout[-2000:]
    assert list(tmp_path.glob("*.png"))


def test_targets_of_make_exist():
    targets = {shlex.split(command)[1] for command in COMMANDS if command.startswith("make ")}
    arguments = shlex.split(f"make -n {MAKE_OPTIONS}")
    for target in targets:
        result = subprocess.run([*arguments, target], cwd=ROOT, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr


def test_subcommands_of_pro_and_options_of_scripts_exist():
    for command in COMMANDS:
        words = shlex.split(command)
        if words[0] == "pro":
            assert words[1] in pro.commands, command
        if re.match("python [^-]", command):
            script = (ROOT / words[1]).read_text()
            options = re.findall(r"--[a-z-]+", command)
            assert [option for option in options if f'"{option}"' not in script] == [], command
