"""The docs: every block of code in README and docs is run, or listed with why.

The numbers of the docs are in test_doc_numbers.py.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import NamedTuple

import pandas as pd
import pytest
from conftest import ROOT
from markdown_it import MarkdownIt

import pro_lib
from pro_lib.app import parameters

README = ROOT / "README.md"
DOCS = [README, *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [*DOCS, *sorted((ROOT / "data").rglob("README.md"))]


# ---- Blocks of code -------------------------------------------------------------------------------------------------


class Block(NamedTuple):
    name: str
    language: str  # `indented` where it is not fenced
    text: str


BLOCKS = [
    Block(
        f"{page.stem}:{token.map[0] + 1}",
        token.info if token.type == "fence" else "indented",
        token.content,
    )
    for page in PAGES
    for token in MarkdownIt("commonmark").parse(page.read_text())
    if token.type in ("fence", "code_block")
]
# What a model reads is no command.
NOT_CODE = ("Question: What is the capital of Italy?", "Question: Who wrote Hamlet?")
PROGRAMS = r"(\w+=\S+ )*(bash|conda|git|jupyter|make|papermill|pip|pro|pytest|python3?|ray|vllm)\b"


def test_every_block_says_what_it_is_no_command_hides_in_a_block_of_text_and_json_is_read(tmp_path):
    assert {block.language for block in BLOCKS} <= {"python", "sh", "json", "text", "indented", ""}
    lines = [
        line
        for block in BLOCKS
        if block.language in ("text", "")
        for line in block.text.splitlines()
    ]
    assert not [line for line in lines if re.match(rf"[$>]? ?{PROGRAMS} ", line)]
    for block in [block for block in BLOCKS if block.language == "json"]:
        (tmp_path / "block.jsonl").write_text(block.text)
        read = (
            pro_lib.importing.from_records
            if "answers" in block.text
            else pro_lib.questions.read_questions
        )
        read(tmp_path / "block.jsonl", **({} if "answers" in block.text else {"columns": {}}))


PYTHON_NOT_RUN = {
    "run = pro_lib.generate(model, questions, out=": (
        "needs a cluster; tests/generation/test_ray_workers.py makes the call"
    ),
    "import pro_lib\n\nmodel = pro_lib.generation.connect_server(": (
        "needs a server; tests/generation/test_server.py runs both over its own"
    ),
    "import pandas as pd\nimport pro_lib\nfrom lm_polygraph": (
        "needs LM-Polygraph; tests/importing/test_logs.py runs it"
    ),
    "import numpy as np\nimport pro_lib\nfrom uqlm": "needs uqlm; tests/importing/test_logs.py runs it",
    "from uqlm import": "needs uqlm and a model; tried by hand with 0.6.7",
    "outputs = llm.generate(": "needs vLLM; tests/importing/test_importers.py reads its objects",
}
PYTHON = [block for block in BLOCKS if block.language == "python"]
LISTED = [block for block in PYTHON if block.text.startswith(tuple(PYTHON_NOT_RUN))]
# Of `make test`: the README's, which comes first
QUICK, *SLOW = [block for block in PYTHON if block not in LISTED]
SLOW = [pytest.param(block, marks=pytest.mark.slow) for block in SLOW]


@pytest.fixture
def registries():
    """Undo what a block registers."""
    changed = (pro_lib.evaluation.SCORES, pro_lib.generation.decoding.STRATEGIES)
    before = [dict(registry) for registry in changed]
    yield
    for registry, entries in zip(changed, before, strict=True):
        registry.clear()
        registry.update(entries)


@pytest.mark.parametrize("block", [QUICK, *SLOW], ids=lambda block: block.name)
def test_a_python_block_runs_as_it_stands(block, tmp_path, monkeypatch, capsys, registries):
    monkeypatch.chdir(tmp_path)
    exec(compile(block.text, block.name, "exec"), {})
    if block is QUICK:
        assert f"{block.text}```\n\n```\n{capsys.readouterr().out}```\n" in README.read_text()


# ---- Commands -------------------------------------------------------------------------------------------------------

# What is added to commands that match, so that they take seconds; the first counts.
SMALL = {
    ".*( records|help-notebook) .*": "",
    ".*(path/to/model|-y) .*-p limit .*": "-p limit 30",
    "(make notebook|papermill|pro run) .*": "-p model facts-1m -p dataset world-facts -p limit 30",
    "pro explore .* --questions .*": "--html page.html",
    "python benchmarks/ladder.py .*": "--batch-sizes 32 --no-memory --out ladder.csv",
}
RUNS_A_NOTEBOOK = ("out.ipynb", "N=0", "pro run")
OURS = f"-o {sys.prefix}/.installed VENV={sys.prefix}"  # of make: this environment, as it is
# What commands match that are not run: why.
NOT_RUN = {
    "(git clone|python3 -m venv) .*": "what test_installation.py and `make` do",
    "make figures$": "minutes; tests/project/test_notebooks.py runs every notebook",
    "make (docs|lab)|pro explore$|python -m http.*": "all notebooks, or no end; test_site.py, test_browser.py",
    "make golden|(pip|conda) .*|PIP_EXTRA.*|pro download .*": (
        "network; tests/project/test_installation.py, test_downloads.py"
    ),
    ".* smollm2-135m": "tests/generation/test_downloads.py asks it where it is",
    ".*(google/gemma|Gemma-2B|Falcon-40B|dataset sciq).*": "downloads models or questions from the hub",
    "make figures-real|.*data/published.*": "reads published outputs, of the network",
    "python benchmarks/(families|on_gpu).*": (
        "minutes, or a GPU; tests/benchmarks/test_families.py and test_ladder.py do it small"
    ),
    "python benchmarks/ladder.py( --models.*)?$": "many minutes, and the environment of make golden",
    "python data/models/train.py .*": "trains for minutes",
    "ray .*|RAY_ADDRESS=.*": (
        "a cluster and the reader's own script; tests/generation/test_ray_workers.py has one of its own"
    ),
}
SHELL = [
    block
    for block in BLOCKS
    if block.language in ("sh", "indented") and not block.text.startswith(NOT_CODE)
]
TYPED = [re.sub(r"(^|\s+)#.*$", "", line) for block in SHELL for line in block.text.splitlines()]
COMMANDS = [line.rstrip() for line in dict.fromkeys(TYPED) if line.strip()]
RUN = [
    command
    for command in COMMANDS
    if not any(re.fullmatch(pattern, command) for pattern in NOT_RUN)
]


def test_what_is_not_run_is_still_there():
    assert [
        pattern
        for pattern in NOT_RUN
        if not any(re.fullmatch(pattern, command) for command in COMMANDS)
    ] == []
    starts = {start for start in PYTHON_NOT_RUN for block in LISTED if block.text.startswith(start)}
    assert starts == {*PYTHON_NOT_RUN}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder that looks like the repository, with the files that commands of the docs take for granted."""
    folder = tmp_path_factory.mktemp("workplace")
    for name in (
        "Makefile",
        "benchmarks",
        "notebooks",
        "pro_lib",
        "pyproject.toml",
        "constraints.txt",
    ):
        (folder / name).symlink_to(ROOT / name)
    (folder / "path" / "to").mkdir(parents=True)
    (folder / "path" / "to" / "model").symlink_to(ROOT / "data" / "models" / "facts-1m")
    shutil.copytree(ROOT / "data" / "world_facts", folder / "data" / "world_facts")
    answers = ROOT / "data" / "examples" / "answers.jsonl"
    shutil.copy(answers, folder / "responses.jsonl")
    questions = pd.read_json(answers, lines=True, dtype=False)[
        ["question_id", "question", "references"]
    ]
    questions.to_json(folder / "my_questions.jsonl", orient="records", lines=True)
    return folder


def small(command, folder, figures):
    """The command as it is run: with what makes it small, writing nowhere but into the folders."""
    added = next((added for pattern, added in SMALL.items() if re.fullmatch(pattern, command)), "")
    if "papermill notebooks/" in command:  # a notebook takes the folders in its `options`
        folders = f"generations_dir: {folder}/generations, figures_dir: {figures}"
        if "options: {" in command:
            command = command.replace("options: {", f"options: {{{folders}, ", 1)
        else:
            added += f' -y "{{options: {{{folders}}}}}"'
    elif any(sign in command for sign in RUNS_A_NOTEBOOK):
        added += f" -p generations_dir {folder}/generations -p figures_dir {figures}"
    if command.startswith("make notebook"):
        return command.replace("make", f"make {OURS}", 1).removesuffix('"') + f' {added}"'
    return f"{command} {added}{f' --executed {folder}/executed' if command.startswith('pro run') else ''}".strip()


def mark(command):
    # Half a minute
    is_long = any(sign in command for sign in (*RUNS_A_NOTEBOOK, "ladder.py", "build.py"))
    marks = pytest.mark.trial if is_long else () if "--example" in command else pytest.mark.slow
    return pytest.param(command, marks=marks)


@pytest.mark.parametrize("command", [*map(mark, RUN)])
def test_a_command_of_the_docs_runs(command, workplace, tmp_path):
    line, environment = (
        small(command, workplace, tmp_path),
        os.environ | {"PYTHONWARNINGS": "default"},
    )
    done = subprocess.run(
        ["bash", "-c", line], cwd=workplace, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    if "--help-notebook" in command:
        assert all(
            re.search(rf"^\s*{name}: ", done.stdout, re.MULTILINE)
            for name in ("model", "alpha", "limit")
        )
    elif any(sign in command for sign in RUNS_A_NOTEBOOK):
        assert list(tmp_path.glob("*.png"))
    if "--example" in command:
        assert done.stdout.splitlines()[-1] in README.read_text()


@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if re.match("make |pro |python [^-]", command)]
)
def test_what_a_command_names_is_there(command):
    program, name, *_ = shlex.split(command)
    if program == "make":
        line = f"make -n {OURS} {name}"
        assert (
            subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, check=False).returncode
            == 0
        )
    else:
        assert name in pro_lib.app.cli.pro.commands if program == "pro" else (ROOT / name).is_file()
        options = re.findall(r"--[a-z-]+", command) if program == "python" else []
        assert not [option for option in options if f'"{option}"' not in (ROOT / name).read_text()]


# ---- Tables --------------------------------------------------------------------------------------------------------


def table_rows(page, heading):
    """Rows of the first table below a heading, or line, of a page of the docs, its head among them."""
    below = (ROOT / "docs" / page).read_text().split(heading, 1)[1]
    head, _, *lines = re.search(r"(^\|.*\n)+", below, re.MULTILINE)[0].splitlines()
    return [line.strip("| ").split(" | ") for line in (head, *lines)]


def test_the_page_of_own_data_names_every_response_format():
    rows = table_rows("own_data.md", "## Log-probabilities made elsewhere")[1:]
    assert {row[0].strip("`") for row in rows} == {
        each.name for each in pro_lib.importing.response_formats.RESPONSE_FORMATS
    } | {"records"}


def test_the_page_of_parameters_has_the_texts_of_the_package():
    defaults = parameters.default_values() | {"generations_dir": None, "figures_dir": None}
    kinds, texts = parameters.type_names(), parameters.help_texts()
    expected = [
        [f"`{name}`", kinds[name], f"`{defaults[name]!r}`", texts[name]] for name in defaults
    ]
    assert table_rows("parameters.md", "# Parameters")[1:] == expected


# The tables of converted notebooks, whose columns the page describes.
DESCRIBED = sorted((ROOT / "figures").glob("0*.csv"))


def described_columns():
    """The columns that the page describes: those of every setting, and the others with their tables."""
    setting = [row[0].strip("`") for row in table_rows("columns.md", "## The setting")[1:]]
    others = {}
    for names, places, meaning in table_rows("columns.md", "## Quantities")[1:]:
        for name in names.replace("`", "").split(", "):
            for place in places.split(", "):
                has_interval = "interval" in meaning and (
                    name != "mean_k" or place == "03_k_vs_alpha"
                )
                ends = [f"{name}_low", f"{name}_high"] if has_interval else []
                others.setdefault(place, []).extend([name, *ends])
    return setting, others


@pytest.mark.parametrize("path", DESCRIBED, ids=lambda path: path.stem)
def test_the_page_of_columns_describes_every_table(path):
    setting, others = described_columns()
    columns = list(pd.read_csv(path).columns)
    setting = [name for name in setting if name in columns]
    assert columns[: len(setting)] == setting
    assert sorted(columns[len(setting) :]) == sorted(others[path.stem])
    for folder in (
        "real_models",
        "smollm2",
    ):  # drawn elsewhere: they may lack columns that were added since
        other = ROOT / "figures" / folder / path.name
        if other.is_file():
            assert set(pd.read_csv(other).columns) <= set(columns)


def test_the_page_of_columns_names_every_value_and_no_other_table():
    assert set(described_columns()[1]) == {path.stem for path in DESCRIBED}
    text = (ROOT / "docs" / "columns.md").read_text()
    for path in DESCRIBED:
        table = pd.read_csv(path)
        for column in table.columns.intersection(
            ["alpha_choice", "k_choice", "protocol", "split", "strategy"]
        ):
            assert all(f"`{value}`" in text for value in table[column].dropna().unique())
