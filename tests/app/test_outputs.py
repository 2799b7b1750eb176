"""Files that commands write: they replace neither inputs nor foreign files, and are whole."""

import os
import re
import shutil
import webbrowser
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import click
import pandas as pd
import pytest
from commands import answer, record, refused, typed, write_lines
from conftest import write_notebook

from pro_lib import app, generation, importing, plots, runs
from pro_lib.app import explorer
from pro_lib.app.cli import pro
from pro_lib.app.cli.base import MAY_BE_EMPTY
from pro_lib.app.experiment import Experiment
from pro_lib.common import catalog, downloads
from pro_lib.importing.label_tables import read_labels
from pro_lib.plots import style
from pro_lib.questions import question_sets
from pro_lib.scoring.similarity import Nli

FOREIGN = b"a file of somebody else\n"


@pytest.fixture(scope="module")
def stored_run(tmp_path_factory):
    """A run folder of two questions."""
    out = tmp_path_factory.mktemp("runs")
    asked = question_sets.load_questions("world-facts", limit=2)
    generation.generate("facts-1m", asked, strategy="greedy", out=out, progress=False)
    return out / "world-facts" / "facts-1m" / "greedy"


@pytest.fixture
def place(tmp_path, monkeypatch, stored_run):
    """A working folder with an input of every kind."""
    monkeypatch.chdir(tmp_path)
    rows = [
        record(n, answer(text, 0.6 - n / 3), answer("Lima", 0.1), references=["Paris"])
        for n, text in enumerate(("Paris", "Rome"))
    ]
    write_lines(Path("records.jsonl"), rows)
    Path("questions.csv").write_text("question_id,question,references\nq0,0?,Paris\nq1,1?,Paris\n")
    Path("labels.csv").write_text("question_id,text,correct\nq0,Paris,1\nq1,Rome,0\n")
    write_notebook(Path("mine.ipynb"), "print(x)", x=1)
    shutil.copytree(stored_run, "greedy")
    # A copy of a notebook has its name, so only a file of that name can be an input and an output.
    for folder in ("a", "b", "c"):
        Path(folder).mkdir()
    for path in ("a/mine.ipynb", "b/mine.ipynb", "c/mine.ipynb", "greedy/mine.ipynb"):
        Path(path).write_text("x")
    return tmp_path


# Inputs as outputs

QUESTIONS = ["records.jsonl", "--questions", "questions.csv"]
SCORE = ["score", *QUESTIONS, "--labels", "labels.csv", "--output"]
REPORT = ["report", *SCORE[1:]]
EXPLORE = ["explore", *QUESTIONS, "--html"]
LABEL = ["label", *QUESTIONS, "--labels"]
JUDGE = ["judge", *QUESTIONS, "--model", "facts-1m", "--output"]
RUN = ["run", "mine.ipynb", "-p", "records", "a/mine.ipynb"]
RUN += ["-p", "dataset", "['x', 'b/mine.ipynb']", "-p", "correctness", "c/mine.ipynb"]
RUN += ["-p", "model", "greedy", "--executed"]
COMMANDS = (SCORE, REPORT, EXPLORE, LABEL, JUDGE, RUN)
FILES = (".jsonl", ".csv", ".ipynb")
# A command up to its output, and one of its inputs.
INPUTS = [(words, word) for words in COMMANDS for word in words if Path(word).suffix in FILES]
INPUTS += [(RUN, f"{folder}/mine.ipynb") for folder in ("b", "greedy")]
INPUTS.append((["explore", "greedy", "--html"], "greedy/part-*.parquet"))
INPUTS.append((["label", "greedy", "--labels"], "greedy/run.json"))


def is_path(parameter, *, read):
    """Whether a parameter is a path that is read, which has to exist, or one that is written."""
    return isinstance(parameter.type, click.Path) and parameter.type.exists == read


def test_the_table_of_inputs_and_outputs_is_complete():
    n_inputs = Counter((words[0], words[-1]) for words, _ in INPUTS)
    for name, one in pro.commands.items():
        inputs = [parameter for parameter in one.params if is_path(parameter, read=True)]
        for output in [each for each in one.params if is_path(each, read=False)]:
            assert n_inputs.pop((name, output.opts[-1])) >= len(inputs), name
    assert not n_inputs


# The first input of each command is also given by links to it.
LINKED = [(words, words[1], link) for words in COMMANDS for link in (os.symlink, os.link)]


@pytest.mark.parametrize(
    ("words", "pattern", "link"), [*((*given, None) for given in INPUTS), *LINKED]
)
def test_a_command_refuses_each_of_its_inputs_as_its_output(words, pattern, link, place):
    command, *_, option = words
    [output] = place.glob(pattern)
    if link:
        path = output
        output = place / "other" / ("mine.ipynb" if command == "run" else "output")
        output.parent.mkdir()
        link(path, output)
    before = {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}
    # Labels are appended, so that nothing could be forced.
    for force in [[]] if command == "label" else [[], ["--force"]]:
        message = refused(*words, output.parent if command == "run" else output, *force)
        assert message.startswith(f"{option}: {output} is an input of the same command")
        assert {file: file.read_bytes() for file in place.rglob("*") if file.is_file()} == before
        assert output.is_symlink() == (link is os.symlink)


@pytest.mark.parametrize(
    ("parameter", "kind"), [("records", "csv"), ("dataset", "png"), ("correctness", "csv")]
)
def test_figures_do_not_replace_the_files_they_are_drawn_from(parameter, kind, place):
    Path("mine").mkdir()
    inputs = {"records": "records.jsonl", "dataset": "questions.csv", "correctness": "labels.csv"}
    table = pd.DataFrame({"x": [1.0], "y": [2.0]})
    file = Path("mine") / f"a.{kind}"
    os.link(inputs[parameter], file)
    before = file.read_bytes()
    experiment = Experiment(**inputs, figures_dir="mine")
    with pytest.raises(ValueError, match="is an input"):
        experiment.save("a", style.plt.figure() if kind == "png" else None, table)
    assert file.read_bytes() == before
    assert os.listdir("mine") == [file.name]  # nothing was written before the refusal


# Foreign files, and files that the command wrote before

WITH_OUTPUT = [["score", "records.jsonl", "--output"], ["explore", "records.jsonl", "--html"]]
OF_TEXTS = ["score", "texts.csv", "--output"]
WRITERS = [(words, "output") for words in (*WITH_OUTPUT, OF_TEXTS, REPORT)]
WRITERS.append((["run", "mine.ipynb", "--executed"], "output/mine.ipynb"))


@pytest.mark.parametrize(("words", "file"), WRITERS)
def test_a_foreign_file_is_replaced_only_with_force(words, file, place):
    Path("texts.csv").write_text("question,text\n1?,a\n1?,b\n2?,c\n2?,d\n")
    file = Path(file)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(FOREIGN)
    assert "--force" in refused(*words, "output")
    assert file.read_bytes() == FOREIGN
    typed(*words, "output", "--force")
    assert FOREIGN not in file.read_bytes()
    file.write_bytes(file.read_bytes() + b"\n")  # so that it is seen whether it is written again
    changed = file.read_bytes()
    typed(*words, "output")
    assert file.read_bytes() != changed


def test_the_page_of_another_file_is_a_foreign_file(place):
    typed("explore", "records.jsonl", "--html", "page.html")
    before = Path("page.html").read_bytes()
    words = ["explore", shutil.copy("records.jsonl", "other.jsonl"), "--html", "page.html"]
    assert "page.html exists and is not a page of the same RUN" in refused(*words)
    assert Path("page.html").read_bytes() == before


def test_the_copy_of_another_notebook_is_a_foreign_file(place):
    write_notebook(Path("other.ipynb"), x=1)
    typed("run", "other.ipynb", "--executed", "output")
    before = Path("output/other.ipynb").rename("output/mine.ipynb").read_bytes()
    words = ["run", "mine.ipynb", "--executed", "output"]
    assert "was not written by this command" in refused(*words)
    assert Path("output/mine.ipynb").read_bytes() == before


def test_an_empty_file_is_filled_and_force_needs_an_output(place):
    Path("output").touch()
    typed("score", "records.jsonl", "--output", "output")
    assert Path("output").stat().st_size
    assert "--output" in typed("score", "records.jsonl", "--force", code=2)[1]


@pytest.mark.parametrize("words", WITH_OUTPUT)
def test_a_link_stays_and_its_target_is_written(words, place):
    Path("folder").mkdir()
    Path("folder/target").touch()
    Path("link").symlink_to("folder/target")
    typed(*words, "link")
    assert os.readlink("link") == "folder/target"
    assert Path("folder/target").stat().st_size
    assert os.listdir("folder") == ["target"]


@pytest.mark.parametrize("words", WITH_OUTPUT)
def test_an_output_that_cannot_be_a_file_is_refused_and_a_link_stays(words, place):
    assert "the folder no does not exist" in refused(*words, "no/output")
    Path("folder").mkdir()
    os.mkfifo("pipe")
    for target, reason in {
        "nowhere": "does not exist",
        "folder": "is a folder",
        "pipe": "is not a regular file",
    }.items():
        Path("link").symlink_to(target)
        assert reason in refused(*words, "link")
        assert os.readlink("link") == target
        Path("link").unlink()
    assert not Path("nowhere").exists()


# Names that are too long, and folders without permission


@contextmanager
def permissions_hold():
    """Let permissions hold for a test that runs as root."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


TOO_LONG = [(words, 300) for words in (SCORE, REPORT, EXPLORE, RUN, JUDGE)]
TOO_LONG.append((JUDGE, 245))  # the replies are in a file with a longer name


@pytest.mark.parametrize(("words", "length"), TOO_LONG)
def test_a_name_that_is_too_long_is_told_in_words(words, length, place):
    message = refused(*words, "x" * length)
    assert "the name is too long, use a shorter one" in message
    assert not re.search("rrno|ENAMETOOLONG", message)


@pytest.mark.parametrize("words", [SCORE, EXPLORE], ids=lambda words: words[0])
def test_a_folder_without_permission_is_told_in_words(words, place):
    typed(*words, "output")  # loads all modules
    Path("locked").mkdir(mode=0)
    Path("read_only").mkdir(mode=0o555)
    place.chmod(0o755)
    reason = "you do not have permission for it or for its folder"
    with permissions_hold():
        for output in ("locked/output", "read_only/output"):
            expected = f"{output} cannot be written: {reason}"
            assert refused(*words, output).startswith(expected)
        expected = f"locked/run.json cannot be read: {reason}"
        assert refused(words[0], "locked").startswith(expected)


def test_lack_of_memory_keeps_the_old_file_and_is_a_sentence(place, monkeypatch):
    words = ["score", "records.jsonl", "--output", "output"]
    typed(*words)
    before, content = set(os.listdir()), Path("output").read_bytes()

    def fail(_):
        raise MemoryError

    monkeypatch.setattr(os, "fsync", fail)
    assert refused(*words, "--alpha", "0.1") == (
        "there is not enough memory (MemoryError); use a smaller file, model or batch"
    )
    assert (set(os.listdir()), Path("output").read_bytes()) == (before, content)


def test_an_error_without_a_message_is_named(monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(downloads, "download", fail)
    for error in (OSError(), ImportError(), ValueError(" \n")):
        assert type(error).__name__ in refused("download", "smollm2-135m")


@pytest.mark.parametrize("name", ["", "run.json"])
@pytest.mark.parametrize("command", ["generate", "download"])
def test_a_foreign_file_in_place_of_a_folder_or_in_it_is_kept_and_named(
    command, name, tmp_path, monkeypatch
):
    for home in ("HOME", "CACHE"):
        monkeypatch.setattr(catalog, home, tmp_path)
    monkeypatch.setattr(downloads, "subprocess", None)  # nothing is to be downloaded
    words, folder = ["download", "smollm2-135m"], tmp_path / "smollm2-135m"
    if command == "generate":
        words = ["generate", "facts-1m", "greedy", "--dataset", "world-facts", "--limit", "1"]
        folder = tmp_path / "data/generations/world-facts/facts-1m/greedy"
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(FOREIGN)
    assert str(folder) in typed(*words, code=1)[1].splitlines()[-1]
    assert file.read_bytes() == FOREIGN
    assert folder.is_file() or os.listdir(folder) == [name]


def test_a_text_that_is_also_the_name_of_a_folder_is_not_an_input(place):
    Path("there").mkdir()
    notebook = Path("mine.ipynb").rename("there/mine.ipynb")
    for _ in range(2):
        typed("run", notebook, "-p", "x", "['.']", "--executed", ".")


# Names of pages


@pytest.fixture
def page_of(monkeypatch):
    """A function that writes the page of a run and returns its name."""
    monkeypatch.setattr(webbrowser, "open", lambda _: None)
    return lambda path: typed("explore", path)[0].strip().rpartition("page: ")[2]


def test_pages_of_runs_that_share_a_name_have_a_checksum_in_their_names(place, stored_run, page_of):
    folders = ["multinomial,top_p=0.9", "multinomial,top_p=0.95", "other/multinomial,top_p=0.9"]
    for folder in folders:
        shutil.copytree(stored_run, folder)
    pages = [page_of(folder) for folder in folders]
    begin = "world-facts_facts-1m_multinomial,top_p="
    assert pages[:2] == [f"{begin}0.9.html", f"{begin}0.95.html"]
    assert re.fullmatch(rf"{re.escape(begin)}0\.9-[0-9a-f]{{8}}\.html", pages[2])
    assert [page_of(folder) for folder in folders] == pages  # each replaces its own


def test_pages_of_records_are_named_after_their_file(place, page_of):
    Path("other").mkdir()
    for copy in ("other/records.jsonl", "records.json"):
        shutil.copy("records.jsonl", copy)
    pages = [page_of(name) for name in ("records.jsonl", "other/records.jsonl", "records.json")]
    assert (pages[0], pages[2]) == ("records.jsonl.html", "records.json.html")
    assert len(set(pages)) == len(list(place.glob("*.html"))) == 3
    Path(pages[0]).write_bytes(FOREIGN)
    assert f"{pages[0]} exists" in refused("explore", "records.jsonl")
    assert Path(pages[0]).read_bytes() == FOREIGN


def test_the_notebook_of_an_installed_package_is_copied_once(place, monkeypatch):
    monkeypatch.setattr(catalog, "CHECKOUT", None)
    monkeypatch.setattr(os, "execv", lambda *_: None)
    copy = Path("00_explore_examples.ipynb")
    copy.symlink_to("nowhere")
    assert "does not exist" in refused("explore", "--lab")
    assert not Path("nowhere").exists()
    copy.unlink()
    typed("explore", "--lab")
    assert copy.read_bytes() == catalog.notebook("00").read_bytes()
    copy.write_bytes(FOREIGN)
    typed("explore", "--lab")
    assert copy.read_bytes() == FOREIGN


# Empty names

TEXTS = [
    (name, parameter)
    for name, one in pro.commands.items()
    for parameter in one.params
    if isinstance(parameter.type, click.types.StringParamType | click.Path | click.Tuple)
    and parameter.name != "header"  # which is text
]


def test_every_option_and_argument_that_is_a_path_or_a_name_refuses_an_empty_one(place):
    before = set(os.listdir())
    for name, parameter in TEXTS:
        words = [
            " " if other is parameter else "records.jsonl"
            for other in pro.commands[name].params
            if isinstance(other, click.Argument)
        ]
        said = parameter.human_readable_name
        if isinstance(parameter, click.Option):
            words += [parameter.opts[-1], "", *["x"] * (parameter.nargs - 1)]
            said = "/".join(parameter.opts)
        assert refused(name, *words) == f"{said} is empty; give a path or a name", name
    assert set(os.listdir()) == before


def test_text_may_be_empty():
    assert {"header"} == MAY_BE_EMPTY
    words = ["ask", "What is the capital of France?", "--model", "facts-2m", "--header", ""]
    assert "Paris" in typed(*words)[0]


TABLE = pd.DataFrame()
RECORD = [record(1, answer("a", 0.5))]
CALLS = [
    ("path", runs.read_run),
    ("path", lambda value: question_sets.load_questions(path=value)),
    ("source", importing.import_answers),
    ("path", read_labels),
    ("model", generation.load_model),
    ("out", lambda value: generation.generate("facts-1m", ["1?"], out=value)),
    ("calibration", lambda value: app.ask("facts-1m", "1?", calibration=value)),
    ("path", lambda value: explorer.to_html(importing.import_answers(RECORD), value)),
    ("figures_dir", lambda value: plots.save_figure(None, TABLE, "a", figures_dir=value)),
    ("name", lambda value: plots.save_figure(None, TABLE, value, figures_dir=".")),
    ("cache", lambda value: Nli(cache=value)),
]


def test_a_call_refuses_an_empty_path_or_name_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, function in CALLS:
        for value in ("", " "):
            with pytest.raises(ValueError, match=rf"^{name} is empty; give a path or a name$"):
                function(value)
    assert os.listdir() == []
