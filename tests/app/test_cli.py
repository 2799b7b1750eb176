"""The command `pro`: output, files and exit status of its commands."""

import json
import os
import re
import subprocess
import sys
import webbrowser
from pathlib import Path

import pandas as pd
import pytest
from commands import answer, judged, record, refused, typed
from conftest import ROOT, read_cells, write_notebook

from pro_lib import runs
from pro_lib.app.single_question import Answer
from pro_lib.common import catalog

FRANCE = "What is the capital of France?"


def python(*words, cwd=ROOT, **environment):
    """Run Python in a folder, with arguments and environment variables."""
    line, environment = [sys.executable, *map(str, words)], os.environ | environment
    return subprocess.run(
        line, cwd=cwd, env=environment, capture_output=True, encoding="utf-8", check=False
    )


@pytest.fixture
def records(write):
    """Three questions with answers of p = 0.5, 0.125 and 0.25, and second answers of half of it."""
    texts = {"Paris": 0.5, "Rome": 0.125, "Oslo": 0.25}
    rows = [
        record(n, answer(text, p), answer("Lima", p / 2), references=["Paris", "Oslo"])
        for n, (text, p) in enumerate(texts.items())
    ]
    return write(*rows, name="records.jsonl")


def test_help_lists_the_commands_without_slow_imports():
    code = "import sys\nfrom pro_lib.app.cli import pro\n"
    code += "print({'torch', 'pandas', 'numpy', 'papermill', 'IPython'} & {*sys.modules})\n"
    code += "pro(['--help'])"
    printed = python("-c", code).stdout
    assert printed.startswith("set()\n")
    commands = "ask download explore generate judge label models report run score"
    assert re.findall(r"^  (\w+)  ", printed, re.MULTILINE) == commands.split()


QUESTION = '{"question_id": "z", "question": "z?", "references": ["Paris"]}\n'


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["run", "x"], "'x' fits 0 notebooks"),
        (["ask", "Who?", "--model", "smolm2"], "(nearest: smollm2-135m)"),
        (["ask", "Who?", "--model", "runs/mine"], "--model 'runs/mine'"),
        (["ask", "Who?", "--calibration", ROOT / "tests"], f"{ROOT / 'tests'} is not a run folder"),
        (["score", "empty.jsonl"], "empty.jsonl"),
        (["score", "records.jsonl", "--correctness", "exact"], "exact_match"),
        (["score", "records.jsonl", "--questions", "questions.jsonl"], "not among the given"),
        (["score", "runs", "--correctness", "log:match"], "a run folder; log:match needs a log"),
        (["score", "runs", "--separator", ";"], "a run folder; --separator needs --questions"),
    ],
    ids=range(9),
)
@pytest.mark.usefixtures("records")
def test_an_error_is_one_line_with_exit_status_1(words, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty.jsonl").touch()
    Path("runs").mkdir()  # with such a folder, the name is not a hub id
    if "--model" in words:
        # No model is loaded to find out
        monkeypatch.setitem(sys.modules, "pro_lib.generation.models", None)
    Path("questions.jsonl").write_text(QUESTION)
    assert named in refused(*words)


def test_ask_prints_the_answers_kept_and_the_guarantee_of_the_search():
    words = ["ask", FRANCE, "--model", "facts-2m", "--alpha", "0.1"]
    out, err = typed(*words)
    answer = Answer(**json.loads(typed(*words, "--json")[0]))
    assert out.splitlines() == [
        "Paris",
        answer.sentence(),
        "",
        f"PRO {answer.uncertainty:.3f} nats, from the only answer with p ≥ 0.1:",
        f"  {answer.answers[0][1]:.4f}  Paris",
        f"  and {len(answer.answers) - 1} with less",
        "All answers with p ≥ 0.02 were found. This does not say whether they are right.",
    ]
    assert err.rstrip().endswith(catalog.scope("facts-2m"))


def test_ask_takes_the_best_downloaded_model_or_offers_one(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "CACHE", tmp_path)
    assert catalog.best_download() is None
    error = refused("ask", FRANCE)
    assert error.startswith("no real model is installed; run `pro download smollm2-135m` (98 MB)")
    assert "--model facts-2m" in error
    downloaded = []
    monkeypatch.setattr("pro_lib.app.cli.ask._is_terminal", lambda: True)
    monkeypatch.setattr("pro_lib.common.downloads.download", downloaded.append)
    _, err = typed("ask", FRANCE, code=1, stdin="y\n")
    assert "No real model is installed. Download smollm2-135m (98 MB)? [y/N]: " in err
    assert downloaded == ["smollm2-135m"]
    for name in ("smollm2-135m", "gemma-3-270m"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
        assert catalog.best_download() == name


def test_output_is_utf_8_whatever_the_encoding_of_the_terminal():
    assert "α" in python("-m", "pro_lib", "ask", "--help", PYTHONIOENCODING="cp1252").stdout


def test_generate_writes_the_runs_that_notebooks_read(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "HOME", tmp_path)
    out, _ = typed(
        "generate", "facts-1m", "greedy", "diverse_beam", "--dataset", "world-facts", "--limit", 2
    )
    folder = tmp_path / "data" / "generations" / "world-facts" / "facts-1m"
    counts, warning, run, where, following, *others = out.splitlines()
    assert counts == "world-facts: 14 questions: 10 shots, 2 validation, 2 test"
    assert warning.startswith("Fewer than 100 test questions are too few")
    assert run == "Run(world-facts/facts-1m/greedy: 4 questions, 4 answers)"
    assert where == f"  folder: {folder}/greedy"
    name = "world-facts/facts-1m/greedy"
    assert following == f"  next: pro score {name}, or pro explore {name}"
    assert len(others) == 3
    assert {path.name for path in folder.iterdir()} == {"greedy", "diverse_beam"}
    assert set(runs.read_run(folder / "greedy").questions["split"]) == {"validation", "test"}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["score", "nope.jsonl"], "There is no file, run folder or run named 'nope.jsonl'."),
        (["score", "--example", "--alpha", "x"], "'x' is neither a number nor auto."),
        (["ask", "Who?", "--alpha", "x"], "'x' is not a valid float."),
        (["generate", "facts-1m", "beams"], "'beams' is an unknown strategy; choose greedy, .*"),
    ],
)
def test_a_wrong_value_is_one_line_with_exit_status_2(words, line):
    _, err = typed(*words, code=2)
    assert re.fullmatch(rf"Error: Invalid value for '\S+': {line}\n", err)


def test_an_unknown_option_or_command_prints_the_usage_with_exit_status_2():
    for words in (["scor"], ["score", "--exmple"], ["generate"]):
        assert typed(*words, code=2)[1].startswith("Usage: ")


def test_score_prints_a_summary_and_the_table_below_it(records):
    out, _ = typed("score", records, "--alpha", "0.25", "--methods", "PRO,NLL")
    between = "(0.148 to 1.000)"  # of 1/n = 1/1 + 1/2 answers: n / (n + 1.96²)
    # PRO_2 of 1/2 and 1/4: 1.5 log 2; PRO_1 is the NLL: log 8 and log 4.
    assert out.splitlines() == [
        "It cannot be told yet whether PRO separates wrong from right answers on these questions "
        "(AUROC 1.000, 95 % interval 0.148 to 1.000).",
        "3 questions, 66.7% answered correctly (2 of 3 judged answers). "
        "Right means: ROUGE-L > 0.3.",
        "All 3 questions are used.",
        "α = 0.25, as given.",
        "With --alpha 0.1, PRO keeps two or more answers of 2 of 3 questions.",
        "",
        "AUROC, the probability that a wrong answer is scored as more uncertain than a right one "
        "(95 % interval):",
        f"  PRO  1.000 {between}",
        f"  NLL  1.000 {between}",
        "Paired difference (95 % interval): PRO minus NLL 0.000, the same order of all questions.",
        "Only 1 answer is wrong, so the intervals are wide.",
        "",
        "Accuracy of the most certain questions by PRO:",
        "    25%        1 questions  100.0% right (20.7% to 100.0%)",
        "    50%        2 questions  100.0% right (34.2% to 100.0%)",
        "    75%        2 questions  100.0% right (34.2% to 100.0%)",
        "   100%        3 questions   66.7% right (20.8% to 93.9%)",
        "",
        "No answer is marked, because it is not shown that PRO separates wrong from right answers.",
        " question answer correct    PRO  K            kept answers",
        "       1?   Rome      no 2.0794  1              Rome 0.125",
        "       2?   Oslo     yes 1.3863  1              Oslo 0.250",
        "       0?  Paris     yes 1.0397  2 Paris 0.500, Lima 0.250",
    ]


def test_score_prints_no_negative_zero(write):
    for log_prob in (0.0, 1e-5, -1e-6):
        rows = [
            record(n, {"text": "x", "log_prob": log_prob - n}, references=[reference])
            for n, reference in enumerate("xy")
        ]
        out, _ = typed("score", write(*rows))
        assert "0.0000" in out
        assert "-0.0" not in out


@pytest.mark.parametrize("n_log_probs", [2, 48])
def test_score_scores_texts_and_log_probabilities_of_one_file(n_log_probs, write, tmp_path):
    n_texts = 50 - n_log_probs
    rows = []
    for n in range(50):
        one = {"text": "x"} | ({"log_prob": -0.2 - 0.05 * n} if n < n_log_probs else {})
        rows.append(record(n, one, references=["x" if n % 3 else "z"]))
    for _ in range(2):  # the second call replaces its own table
        with pytest.warns(UserWarning, match=f"{n_texts} of 50 answers have no log-probability"):
            out, _ = typed("score", write(*rows), "--output", tmp_path / "scores.csv")
    table = pd.read_csv(tmp_path / "scores.csv")
    assert table[["nll", "mass"]].notna().sum().tolist() == [n_log_probs] * 2
    assert table["SC"].tolist() == [0.0] * 50
    reason = "have answers without log-probabilities, which PRO and NLL need."
    assert f"{n_texts} of 50 questions {reason}" in out
    of_log_probs, _, of_texts = out.partition("The texts of all questions")
    assert f": no log-probabilities ({n_texts}).\n" in of_log_probs
    assert f"of {n_log_probs} judged answers" in of_log_probs
    assert "of 50 judged answers" in of_texts
    assert "  SC " in of_texts


def test_score_judges_by_labels_or_questions_or_says_why_not(records, write, tmp_path):
    line = ["score", records, "--labels", tmp_path / "labels.csv"]
    for verdicts, words in {
        "q0,Paris,0\nq1,Rome,1\nq2,Oslo,1": "  NLL    0.000 (0.000 to 0.852)",
        "q0,Paris,1\nq1,Rome,1\nq2,Oslo,1": "all 3 judged answers are",
        "q0,Paris,1\nq1,Rome,0\nother,?,1": "the result holds for the labelled questions only",
    }.items():
        line[-1].write_text(f"question_id,text,correct\n{verdicts}\n")
        out, _ = typed(*line, "--output", tmp_path / "scores.csv")
        assert words in out
    assert "1 further questions have no label or reference" in out
    assert out.endswith(f"{tmp_path}/scores.csv: 3 questions\n")
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    questions = write(*[row | {"answers": None} for row in rows], name="questions.jsonl")
    write(*[row | {"references": None} for row in rows], name="records.jsonl")
    assert "because the right answers are not known" in typed("score", records)[0]
    wide = "Only 1 answer is wrong, so the intervals are wide.\n"
    assert wide in typed("score", records, "--questions", questions)[0]


def difference_line(printed):
    """Return the sentence of `pro score` about the difference between PRO and NLL."""
    [line] = re.findall(r"Paired difference \(95 % interval\): (.*)", printed)
    return line


def test_score_prints_the_paired_difference_by_question_and_by_cluster(write):
    rows = [  # PRO at α = 0.2 differs from NLL in every other question
        judged(n, 0.74 - 0.02 * n, 0.25 if n % 2 else 0.1, correct=n % 3 > 0) for n in range(24)
    ]
    related = [row | {"relation": f"r{n % 8}"} for n, row in enumerate(rows)]
    words = ["score", write(*rows), "--alpha", 0.2]
    alone, _ = typed(*words)
    out, _ = typed(*words, "--questions", write(*related, name="questions.jsonl"))
    pattern = r"(PRO minus NLL [+−]\d\.\d{3}) \[−0\.\d{3}, [+−]0\.\d{3}\]\."
    by_question, by_cluster = (
        re.fullmatch(pattern, difference_line(each)) for each in (alone, out)
    )
    assert by_question[1] == by_cluster[1]
    assert by_question[0] != by_cluster[0]
    assert "The intervals of AUROC are by cluster of questions (8 clusters);" in out


def test_score_prints_the_paired_differences_of_texts(write):
    rows = []
    for n in range(30):
        texts = ["x", "x", "y", "z"][n % 2 :]
        samples = [{"text": text} for text in texts]
        rows.append(record(n, *samples, references=["x" if n % 3 else "w"]))
    methods = re.findall(r"(\w+) minus (\w+)", difference_line(typed("score", write(*rows))[0]))
    assert methods == [("Deg", "SE"), ("SC", "SE")]


# vLLM keeps the space and the line end.
@pytest.mark.parametrize(("label", "text"), [("Paris", " Paris\n"), (" Paris\n", "Paris")])
def test_spaces_around_an_answer_do_not_separate_it_from_its_label(write, label, text):
    rows = [record(n, answer(text, 0.9)) for n in range(2)]
    labels = [{"question_id": f"q{n}", "text": label, "correct": n == 0} for n in range(2)]
    out, _ = typed("score", write(*rows), "--labels", write(*labels, name="labels.jsonl"))
    assert "50.0% right" in out


def test_run_passes_values_and_prints_the_conclusion_the_figure_and_the_copy(tmp_path, monkeypatch):
    draw = "print([a, b, c, d], flush=True)\nprint('Figures go to here')\n"
    draw += "open('here/mine.png', 'w').close()"
    end = "from IPython.display import Markdown\nMarkdown('A text.\\n\\nPRO is higher. Much.')"
    path = write_notebook(tmp_path / "mine.ipynb", draw, end, **dict.fromkeys("abcd", 1))
    monkeypatch.chdir(tmp_path)
    values = {"a": "1e-3", "b": "None", "c": "[1, 'x']", "d": "two x"}
    given = [word for name, value in values.items() for word in ("-p", name, value)]
    out, err = typed("run", path, *given, "--executed", "here")
    assert "TCP" not in err  # a warning of the kernel
    assert out.splitlines() == [
        "- PRO is higher.",
        "- Much.",
        "figure: here/mine.png; notebook: here/mine.ipynb",
    ]
    cell = read_cells(tmp_path / "here" / "mine.ipynb")[-2]
    assert cell["outputs"][0]["text"][0] == "[0.001, None, [1, 'x'], 'two x']\n"
    assert sorted(os.listdir(tmp_path / "here")) == ["mine.ipynb", "mine.png"]


# Remove modules and functions that Windows lacks: from pro_lib, or from all where others can do
# without them.
WITHOUT_UNIX = """
import builtins, os, signal
imported = builtins.__import__
def only_elsewhere(name, globals=None, *rest, **options):
    ours = (globals or {}).get("__name__", "").startswith("pro_lib")
    if ours and name in ("fcntl", "grp", "pwd", "resource", "termios"):
        raise ModuleNotFoundError(name)
    return imported(name, globals, *rest, **options)
builtins.__import__ = only_elsewhere
del os.fork, signal.SIGHUP
"""


GENERATION = """
import os
from pro_lib import Experiment
small = {'limit': 2, 'n_answers': 2}
run = Experiment(generations_dir='runs', **small).run('facts-1m', 'world-facts')
assert (run.info.cost.peak_memory_bytes, hasattr(os, 'fork')) == (0, False)
"""
COMMAND = "from pro_lib.app.cli import pro\npro({}, standalone_mode=False)"


@pytest.mark.parametrize(
    "code",
    [
        COMMAND.format(["score", "records.jsonl"]),
        pytest.param(
            GENERATION + COMMAND.format(["ask", FRANCE, "--model", "facts-2m"]),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["score", "generation and ask"],
)
@pytest.mark.usefixtures("records")
def test_the_package_works_without_modules_that_windows_lacks(code, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_UNIX)
    done = python("-c", code, cwd=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def opened_pages(tmp_path, monkeypatch):
    """The addresses that a command opens in a browser; it works in `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalog, "CACHE", tmp_path / "cache" / "models")
    addresses = []
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    return addresses


def test_explore_opens_the_page_of_a_file_or_of_the_bundled_answers(
    records, opened_pages, tmp_path, monkeypatch
):
    monkeypatch.setattr(catalog, "EXAMPLE", records)  # which are fewer
    out, _ = typed("explore")
    assert out.startswith("3 questions, ")
    assert set(tmp_path.iterdir()) == {records, tmp_path / "cache"}
    typed("explore", records)
    pages = [tmp_path / "cache" / "example.html", tmp_path / "records.jsonl.html"]
    assert opened_pages == [page.as_uri() for page in pages]


def test_explore_writes_a_page_and_judges_and_compares_as_score_does(
    records, tmp_path, opened_pages
):
    page = tmp_path / "run.html"
    line = ["explore", records, "--html", page, "--correctness", "exact_match"]
    out, _ = typed(*line, "--methods", "PRO,PE")
    assert out == f"3 questions, 6 answers; page: {page}\n"
    text = page.read_text()
    assert '"rule": "exact match"' in text
    assert set(json.loads(re.search(r'"scores": (\{.*?\})', text)[1])) == {"NLL", "PE"}
    assert "Did you mean PE?" in refused(*line, "--methods", "pe")
    assert opened_pages == []


def test_explore_refuses_options_that_contradict_each_other(records):
    alone = "--lab takes neither RUN nor other options"
    assert alone in typed("explore", "--lab", "--html", "run.html", code=2)[1]
    assert alone in typed("explore", records, "--lab", code=2)[1]
    assert "give either RUN or --example" in typed("explore", records, "--example", code=2)[1]


def test_explore_opens_the_notebook_in_jupyterlab(monkeypatch):
    started = []
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)  # the user root
    monkeypatch.setattr(os, "execv", lambda _, words: started.append(words[2:]))
    typed("explore", "--lab")
    notebook = str(ROOT / "notebooks" / "00_explore_examples.ipynb")
    assert started == [["jupyterlab", "--allow-root", notebook]]


def test_a_wrong_value_of_columns_is_an_error(records, write):
    questions = write({"question_id": "q0", "question": "0?", "answer": "Paris"}, name="set.jsonl")
    wrong = dict.fromkeys(["Frage", "answer=Antwort", "question="], "must be NAME=COLUMN")
    for column, sentence in {**wrong, "question=Frage": "has no column 'Frage'"}.items():
        words = ["--questions", questions, "--columns", column]
        assert sentence in refused("score", records, *words)
    for command in ("score", "explore"):
        _, err = typed(command, records, "--columns", "question=Frage", code=2)
        assert "give the file with --questions" in err


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("questions= must have columns", "--questions must have columns"),
        ("alpha=2 is above 1", "--alpha 2 is above 1"),
        ("give all_questions or alpha", "give --all or alpha"),
        *[
            (name, name)
            for name in (
                "a folder t,search_alpha=0.1 is",
                "custom/alpha=0.3 is one",
                "raw_text.csv is one",
            )
        ],
    ],
)
def test_a_message_names_options_as_they_are_typed(monkeypatch, message, shown):
    def fail(*_, **__):
        raise ValueError(message)

    monkeypatch.setattr("pro_lib.app.cli.scoring_options.ScoreRequest.score", fail)
    assert refused("score", "--example") == shown
