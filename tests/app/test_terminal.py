"""Printed texts cannot control a terminal, and texts in CSV files are not formulas."""

import csv
import json
import os
import re
import sys
import unicodedata
import webbrowser
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner
from commands import answer, record, typed
from conftest import read_cells, write_notebook
from hypothesis import given
from hypothesis import strategies as st
from tqdm.auto import tqdm

from pro_lib.app import cli
from pro_lib.app.experiment import Experiment
from pro_lib.app.single_question import Answer
from pro_lib.common import downloads, files
from pro_lib.common.validation import is_printable, printable
from pro_lib.generation import models
from pro_lib.importing import import_answers, read_labels

asking = import_module("pro_lib.app.single_question")

# A colour, a control sequence of one character, a bidirectional override, a bell, and line ends
NASTY = "\x1b[31mred\x9b2J\u202egnp\x07\r\nnext\ttab\u2028\x7f"
NAME = "nasty\x1b[31m\x9b\u202e"  # what Linux takes as the name of a file


def printed(*words, code=0):
    """Return the stdout and the stderr of a command."""
    out, err = typed(*words, code=code)
    assert_plain(out + err)
    return err if code else out


def assert_plain(text):
    """Every character but a line end can be printed."""
    odd = {
        char
        for char in text
        if char != "\n" and not char.isprintable() and unicodedata.category(char) != "Zs"
    }
    assert odd == set()


@pytest.fixture
def nasty(tmp_path, monkeypatch, write):
    """A working folder with records whose every text is nasty, in a file of such a name."""
    monkeypatch.chdir(tmp_path)
    answers = [answer(f"{NASTY}{n}", 0.6 - n / 4) for n in range(2)]
    names = {"question_id": NASTY, "question": f"{NASTY}?"}
    row = record(0, *answers, references=[f"{NASTY}0"], **names)
    return write(row, record(1, answer("b", 0.4), references=["a"]), name=f"{NAME}.jsonl")


def test_score_prints_escapes_instead_of_control_characters_in_every_column(nasty):
    *_, header, first, second = printed("score", nasty).splitlines()
    assert header.split()[:3] == ["question", "answer", "correct"]
    assert first.split()[:3] == ["1?", "b", "no"]
    assert second.count(r"\x1b[31mred\x9b2J\u202egnp") == 2  # question and answer


def test_errors_and_warnings_show_names_of_files_with_escapes(nasty):
    assert r"nasty\x1b[31m" in printed("score", nasty, "--labels", f"{NAME}.csv", code=1)
    missing = f"{NAME}.none"
    for words in (
        ["score", missing],
        ["score", "--questions", missing],
        ["score", nasty, f"--x{NASTY}"],
        [NASTY],
    ):
        assert r"\x1b[31m" in printed(*words, code=2)


def test_explore_prints_escapes(nasty, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", lambda _: None)
    assert "page: nasty_[31m__.jsonl.html\n" in printed("explore", nasty)
    assert r"page: nasty\x1b[31m\x9b\u202e" in printed("explore", nasty, "--html", NAME)


def test_ask_prints_escapes_and_json_that_means_the_same(monkeypatch):
    answer = Answer(
        NASTY, NASTY, 0.5, ((NASTY, 0.5), ("\U000e0001 \ud800", 0.25)), 2, calibrated=NASTY
    )
    monkeypatch.setattr(asking, "ask", lambda *_, **__: answer)
    loaded = models.load_model("facts-1m")
    monkeypatch.setattr(models, "cached_model", lambda *_, **__: loaded)
    out = printed("ask", "1?", "--model", "facts-1m")
    assert out.count(r"\x1b[31mred") == 2  # the answer, and among those kept
    assert len(out.splitlines()) == 6
    line = printed("ask", "1?", "--model", "facts-1m", "--json").splitlines()[0]
    assert json.loads(line) == json.loads(json.dumps(vars(answer)))


def test_generate_and_download_print_escapes(nasty, monkeypatch, tmp_path):
    run = import_answers(nasty)
    run = replace(run, info=replace(run.info, dataset=NASTY), folder=tmp_path / "run")
    monkeypatch.setattr(Experiment, "run_of_both_splits", lambda *_: run)
    monkeypatch.setattr(downloads, "download", lambda *_, **__: Path(NASTY))
    assert r"Run(\x1b[31m" in printed("generate", "facts-1m", "greedy")
    assert r"\x1b[31m" in printed("download", "smollm2-135m")


@pytest.fixture
def nasty_notebook(tmp_path, monkeypatch):
    """The name of a notebook with nasty names and texts, in the working folder."""
    monkeypatch.chdir(tmp_path)
    # A progress bar returns to the start of its line.
    monkeypatch.setattr("tqdm.auto.tqdm", partial(tqdm, disable=True))
    cells = ["from IPython.display import Markdown", f"print('Figures go to ' + {NAME!r})"]
    cells += [f"if fails:\n    raise KeyError({NASTY!r})\nMarkdown({NASTY!r})"]
    write_notebook(tmp_path / f"{NAME}.ipynb", *cells, fails=False)
    Path(NAME).mkdir()
    Path(NAME, f"{NAME}.png").touch()
    return f"{NAME}.ipynb"


def test_run_prints_escapes_of_the_conclusion_and_of_the_names_of_files(nasty_notebook):
    conclusion, where = printed("run", nasty_notebook, "--executed", "copies").splitlines()
    assert conclusion.startswith(r"- \x1b[31mred\x9b2J\u202egnp\x07 next tab")
    assert where.count(r"\x1b[31m") == 3  # folder and name of the figure, name of the copy


def test_an_error_in_a_notebook_is_the_last_line_and_names_its_copy(nasty_notebook):
    words = ["run", nasty_notebook, "-p", "fails", "True", "--executed", "copies"]
    error = printed(*words, code=1).splitlines()[-1]
    assert error.startswith(r"Error: KeyError: '\x1b[31mred")
    assert error.endswith(r".ipynb)")
    copy = Path("copies", nasty_notebook).read_text()
    assert re.search("Figures go to.*Traceback", copy, re.DOTALL)


def test_columns_of_wide_letters_are_aligned(write):
    texts = ["Paris", "東京都", "\x1b[1mbold", "한국", "ﾄｳｷｮｳ", "naïve"]
    rows = [record(n, answer(text, 0.4)) for n, text in enumerate(texts)]
    *_, first, last = printed("score", write(*rows)).rpartition(" question")
    widths = {
        sum(1 + (unicodedata.east_asian_width(char) in "WF") for char in line)
        for line in (first + last).splitlines()
    }
    assert len(widths) == 1


@given(st.text())
def test_printable_text_has_no_control_character_and_keeps_what_can_be_printed(text):
    shown = printable(text)
    assert_plain(shown)
    assert "\n" not in shown
    if all(map(is_printable, text)):
        assert shown == text
    for words in ("Zürich – 10\u00a0000 €", "東京\u3000都", "עברית", "नमस्ते", "🇫🇷 x²"):
        assert printable(words) == words


# Spreadsheets

FORMULAS = ["=1+1", "+1", "-5", "@SUM(1)", "\tx", "\r=1", "'=1", "''-1"]
FORMULAS += ["＝1", "＋1", "－1", "＠SUM(1)", "\n=1", "  =1", "\u3000+1", ";=1", " ,;-1", "' =1"]
PLAIN = ["Paris", "1-1", "'quoted'", "", "'", "a\rb", 'a "b"', "a,b", "; and", " x=1", "\n"]


def score_texts(write, output, texts, *options):
    """Score records in which every text is an id, a question and an answer; return their file."""
    rows = []
    for n, text in enumerate(texts):
        names = {"question_id": f"{text}{n}", "question": f"{text}{n}"}
        rows.append(record(n, {"text": text, "log_prob": -1.0 - n}, scores={"=x": 1.0}, **names))
    file = write(*rows)
    printed("score", file, "--output", output, *options)
    return file


def cells(path):
    """Read the rows of a CSV file; a carriage return that is not quoted is an error."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


@pytest.mark.parametrize(("options", "mark"), [([], "'"), (["--raw-text"], "")])
def test_texts_that_look_like_formulas_are_marked_unless_raw_text_is_asked_for(
    options, mark, write, tmp_path
):
    output = tmp_path / "scores.csv"
    score_texts(write, output, [*FORMULAS, *PLAIN], *options)
    for row, text in zip(cells(output), [*FORMULAS, *PLAIN], strict=True):
        expected = mark + text if text in FORMULAS else text
        assert row["text"] == expected
        assert row["question"] == row["question_id"]
        assert row["question_id"].startswith(expected)
        assert row[f"{mark}=x"] == "1.0"


def test_labels_made_from_that_table_match_the_answers(write, tmp_path):
    texts = [*FORMULAS, "Paris", "a\rb"]
    output, labels = tmp_path / "scores.csv", tmp_path / "labels.csv"
    file = score_texts(write, output, texts)
    assert [float(row["nll"]) for row in cells(output)] == [1.0 + n for n in range(len(texts))]
    with open(labels, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
        writer.writerow(["question_id", "text", "correct"])
        writer.writerows(
            [row["question_id"], row["text"], n % 2] for n, row in enumerate(cells(output))
        )
    assert list(read_labels(labels)["text"]) == texts
    counts = f"({len(texts) // 2} of {len(texts)} judged answers)"
    assert counts in printed("score", file, "--labels", labels)


@given(st.text(alphabet="'=+-@\t\ra \n;＝"))
def test_a_mark_is_removed_again(text):
    marked = files.spreadsheet_text(text)
    assert not re.match(r"[\s;]*[=+\-@＝]|[\t\r]", marked)
    assert files.without_spreadsheet_mark(marked) == text


# Kernels


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """A working folder, and kernels `python3` and `named` that are another Python."""
    spec = {"argv": [sys.executable, "-c", "raise SystemExit('another Python')"]}
    for name in ("python3", "named"):
        place = tmp_path / "jupyter" / "kernels" / name
        place.mkdir(parents=True)
        content = json.dumps(spec | {"display_name": name, "language": "python"})
        (place / "kernel.json").write_text(content)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_kernel_python3_is_this_python_and_runs_notebooks_only(kernels):
    write_notebook(kernels / "own.ipynb", "import sys\nprint(sys.executable)")
    typed("run", "own.ipynb", "--executed", "copies")
    [cell] = read_cells(kernels / "copies" / "own.ipynb")
    assert cell["outputs"][0]["text"] == [f"{sys.executable}\n"]
    (kernels / "damaged.ipynb").write_text("[]")
    error = printed("run", "damaged.ipynb", "--executed", "copies", code=1).splitlines()[-1]
    assert error.startswith("Error: damaged.ipynb is not a notebook that can be read")


@pytest.mark.parametrize(
    ("code", "kernel", "error"),
    [
        ("import os\nos._exit(3)", "python3", f"the kernel {sys.executable} failed: Kernel died"),
        ("1", "named", "the kernel 'named' failed: Kernel died before replying"),
        ("1", "absent", "its kernel 'absent' is not installed"),
    ],
    ids=["dies", "other", "absent"],
)
def test_a_kernel_that_fails_is_an_error_of_one_line(code, kernel, error, kernels, capfd):
    write_notebook(kernels / "fails.ipynb", code, kernel=kernel)
    done = CliRunner().invoke(cli.pro, ["run", "fails.ipynb", "--executed", "copies"])
    assert isinstance(done.exception, SystemExit)  # others would print a traceback
    assert "Traceback" not in "".join([done.output, *capfd.readouterr()])
    assert done.stderr.splitlines()[-1].startswith(f"Error: fails.ipynb: {error}")
    assert not os.path.exists("copies/fails.ipynb")
