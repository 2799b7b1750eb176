"""What the command `pro` prints, where it writes, how far it says it is, and what it ends with."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from pro_lib.command.jobs import Job
from waiting import until

from pro_lib import bundled
from pro_lib.checks import SentenceError
from pro_lib.command import jobs, pro, said

ROOT = Path(__file__).resolve().parents[1]
TYPED = [sys.executable, "-m", "pro_lib"]
# Kernels must neither look for a network nor fight over two cores.
ENVIRONMENT = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
REWRITTEN = "\r\x1b[K"


def typed(*words, code=0, **options):
    """What a command prints to a pipe, and says on stderr; in this process."""
    done = CliRunner().invoke(pro, [str(word) for word in words], **options)
    assert done.exit_code == code, done.output + repr(done.exception)
    return (done.stdout, done.stderr)


def refused(*words):
    out, said = typed(*words, code=1)
    assert (out, said.count("\n")) == ("", 1)
    return said.removeprefix("Error: ").strip()


# ---- Help and errors ------------------------------------------------------------------------------------------------


def test_help_loads_nothing_that_is_slow():
    code = "import sys\nfrom pro_lib.command import notebooks, pro\n"
    code += "print({'torch', 'pandas', 'numpy', 'papermill', 'IPython'} & {*sys.modules})\npro(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    first, said = done.stdout.split("\n", 1)
    assert first == "set()"
    assert re.findall(r"^  (\w+)  ", said, re.MULTILINE) == ["ask", "download", "explore", "figures", "run", "score"]


def test_what_is_wrong_is_one_line_and_exit_status_1(tmp_path):
    assert refused("run", "99").startswith("'99' fits 0 notebooks, not one; choose from 00_explore_examples, 01_")
    assert refused("run", "").startswith("'' fits 0 notebooks")
    assert refused("ask", "Who?", "--model", "facts").startswith(
        "model='facts' is neither bundled (facts-1m, facts-2m, facts-long)"
    )
    (tmp_path / "empty.jsonl").touch()
    assert "neither answers (our records), nor choices" in refused("score", tmp_path / "empty.jsonl")
    assert "does not exist" in typed("score", tmp_path / "nowhere.jsonl", code=2)[1]
    assert "go together" in typed("explore", "--html", tmp_path / "run.html", code=2)[1]


def test_without_papermill_it_says_what_to_install():
    code = "import sys\nsys.modules['papermill'] = None\nfrom pro_lib.command import pro\npro()"
    done = subprocess.run([sys.executable, "-c", code, "figures"], env=ENVIRONMENT, capture_output=True, text=True)
    what = "running notebooks needs papermill: pip install 'pro-workbench[notebooks]'"
    assert (done.returncode, done.stderr) == (1, f"Error: {what}\n")


# ---- ask ------------------------------------------------------------------------------------------------------------


def test_ask_says_the_answers_kept_and_what_was_found_for_sure():
    out, _ = typed("ask", "What is the capital of France?", "--model", "facts-2m", "--alpha", "0.1")
    lines = out.splitlines()
    assert lines[0] == "Paris"
    assert re.fullmatch(r"PRO \d\.\d{3} nats, from the answers kept at α = 0.1 \(1\):", lines[2])
    assert re.fullmatch(r"  0\.\d{4}  Paris", lines[3])
    assert lines[5].startswith("All answers with p ≥ 0.02 were found;")
    assert "certified" not in out
    found = json.loads(typed("ask", "What is the capital of France?", "--alpha", "0.1", "--json")[0])
    assert (found["text"], found["kept"], found["status"]) == ("Paris", 1, "certified")
    assert f"{found['answers'][0][1]:.4f}" in lines[3]
    assert lines[6:-1] == [""]
    assert re.fullmatch(
        r"Paris: a fresh sample means the same with probability 0\.\d\d to 0\.\d\d; "
        r"the entropy of its answers is about \d+\.\d\d nats \(\d+\.\d\d to \d+\.\d\d\)", lines[-1],
    )  # fmt: skip
    assert f"about {found['entropy'][0]:.2f} nats" in lines[-1]


def test_ask_takes_a_run_with_known_answers_and_says_how_probably_right():
    told = refused("ask", "Who?", "--calibration", ROOT / "tests")
    assert told == f"{ROOT / 'tests'} is not a run folder: it has no run.json"


def test_every_status_of_a_search_has_a_sentence_that_names_its_alpha():
    from pro_lib.engine import certificate

    assert set(said.SURE) == set(
        re.findall(r'"(certified|fallback|undecided)"', Path(certificate.__file__).read_text())
    )
    assert all(sentence.format(0.02).count("0.02") == 1 for sentence in said.SURE.values())


# ---- score ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def records(tmp_path):
    """Three questions of two answers, of which the references stand beside them; with p = 0.5 and 0.25, then 0.25."""
    path = tmp_path / "records.jsonl"
    rows = []
    for n, (text, p) in enumerate((("Paris", 0.5), ("Rome", 0.125), ("Oslo", 0.25))):
        answers = [{"text": text, "log_prob": np.log(p)}, {"text": "Lima", "log_prob": np.log(p / 2)}]
        rows.append({"question_id": f"q{n}", "question": f"{n}?", "references": ["Paris", "Oslo"], "answers": answers})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_score_prints_a_table_and_the_auroc_below_it(records):
    out, _ = typed("score", records, "--alpha", "0.25")
    header, first, second, third, *quality = out.splitlines()
    assert header.split() == ["question_id", "question", "text", "pro", "nll", "n_kept", "mass"]
    # PRO_2 of 1/2 and 1/4: 1.5 log 2; PRO_1 is the NLL.
    assert first.split() == ["q0", "0?", "Paris", f"{1.5 * np.log(2):.4f}", f"{np.log(2):.4f}", "2", "0.7500"]
    assert second.split() == ["q1", "1?", "Rome", f"{np.log(8):.4f}", f"{np.log(8):.4f}", "1", "0.1875"]
    assert third.split()[2:6] == ["Oslo", f"{np.log(4):.4f}", f"{np.log(4):.4f}", "1"]
    assert quality == [
        "Accuracy: 0.667. All 3 questions are used.",
        "AUROC PRO: 1.000 (0.148 to 1.000)",  # of 1/n = 1/1 + 1/2 answers: n / (n + 1.96²)
        "AUROC NLL: 1.000 (0.148 to 1.000)",
    ]


def test_score_judges_by_labels_and_says_why_it_does_not(records, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("question_id,text,correct\nq0,Paris,0\nq1,Rome,1\nq2,Oslo,1\n")
    assert "AUROC NLL: 0.000 (0.000 to 0.852)" in typed("score", records, "--labels", labels)[0]
    labels.write_text("question_id,text,correct\nq0,Paris,1\nq1,Rome,1\nq2,Oslo,1\n")
    assert typed("score", records, "--labels", labels)[0].endswith("all 3 judged answers are right.\n")
    labels.write_text("question_id,text,correct\nz,Paris,1\n")
    assert "none of the 1 labels is for one of its questions" in refused_of_score(records, "--labels", labels)
    bare = [{**json.loads(line), "references": None} for line in records.read_text().splitlines()]
    records.write_text("".join(json.dumps(row) + "\n" for row in bare))
    assert "No accuracy: " in typed("score", records)[0].splitlines()[-1]
    asked = tmp_path / "asked.jsonl"
    rows = [{"question_id": f"q{n}", "question": f"{n}?", "references": ["Paris", "Oslo"]} for n in range(3)]
    asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "Accuracy: 0.667. All 3 questions are used." in typed("score", records, "--questions", asked)[0]
    asked.write_text(json.dumps(rows[0]) + "\n")
    assert "question_id 'q1' is not in questions=" in refused_of_score(records, "--questions", asked)


def refused_of_score(*words):
    return typed("score", *words, code=1)[1]


def test_score_writes_what_a_file_is_named_and_never_what_it_reads(records, tmp_path):
    before = records.read_bytes()
    for name, read in (
        ("csv", pd.read_csv),
        ("parquet", pd.read_parquet),
        ("jsonl", partial(pd.read_json, lines=True)),
    ):
        out, _ = typed("score", records, "--output", tmp_path / f"scores.{name}")
        assert out.splitlines()[0] == f"{tmp_path}/scores.{name}: 3 questions"
        table = read(tmp_path / f"scores.{name}")
        np.testing.assert_allclose(table["nll"], np.log([2, 8, 4]), rtol=1e-12)
    assert "ends neither in .csv" in refused("score", records, "--output", tmp_path / "scores.txt")
    assert "would overwrite what is read" in refused("score", records, "--output", records)
    (tmp_path / "link.jsonl").symlink_to(records)
    assert "would overwrite what is read" in refused("score", tmp_path / "link.jsonl", "--output", records)
    with open(records) as file:
        line = [*TYPED, "score", "-", "--output", str(records)]
        done = subprocess.run(line, stdin=file, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, "would overwrite what is read" in done.stderr) == (1, True)
    assert records.read_bytes() == before


def test_a_long_table_is_cut_on_a_terminal_only(records):
    table = pd.DataFrame({"question_id": [f"q{n}" for n in range(50)], "text": ["a" * 99] * 50, "question": None})
    shown = said.table(table, whole=False).splitlines()
    assert len(shown) == 1 + said.ROWS + 1
    assert shown[-1] == "… and 30 more; all with --output scores.csv"
    assert max(map(len, shown)) < 60
    assert len(said.table(table, whole=True).splitlines()) == 51
    assert "a" * 99 in said.table(table, whole=True)
    assert typed("score", "-", input=records.read_text())[0] == typed("score", records)[0]


@pytest.mark.slow
def test_a_reader_who_has_read_enough_hears_no_complaint(records):
    rows = [json.loads(records.read_text().splitlines()[0]) | {"question_id": f"q{n}"} for n in range(5000)]
    records.write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = f"{sys.executable} -m pro_lib score {records} | head -2"
    done = subprocess.run(["bash", "-c", line], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert (len(done.stdout.splitlines()), done.stderr) == (2, "")


# ---- Jobs -----------------------------------------------------------------------------------------------------------


def written(path, text, after=("", None)):
    """A job that says when it began, and ends once a file has a text."""
    with open(path, "a") as file:
        file.write(f"{text} begins\n")
    wanted, there = after
    until(lambda: wanted in (there or path).read_text())
    with open(path, "a") as file:
        file.write(f"{text} ends\n")


def failing(said):
    raise ValueError(said)


@pytest.fixture
def told(tmp_path, monkeypatch):
    """The file in which jobs find what they are told about on the screen."""
    path = tmp_path / "told"
    path.touch()

    def also(*words, **options):
        with open(path, "a") as file:
            print(*words, file=file)
        print(*words, **options)

    monkeypatch.setattr(jobs, "print", also, raising=False)
    return path


def test_jobs_are_done_in_their_order_after_those_they_wait_for(tmp_path, capfd):
    log = tmp_path / "log"
    first = Job("first", partial(written, log, "first", after=("second begins", None)))
    second = Job("second", partial(written, log, "second", after=("first ends", None)))
    third = Job("third", partial(written, log, "third"), after=[first, second])
    jobs.run([third, first, second], at_once=2)
    lines = log.read_text().splitlines()
    assert sorted(lines[:2]) == ["first begins", "second begins"]
    assert lines[4:] == ["third begins", "third ends"]
    out = capfd.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in out] == ["first", "second", "third"]
    assert all(re.fullmatch(r"\w+, \d+ s", line) for line in out)


def test_a_job_that_fails_is_the_error_and_no_other_is_begun(tmp_path, told):
    log = tmp_path / "log"
    beside, late = (Job(name, partial(written, log, name, after=("bad, ", told))) for name in ("beside", "late"))
    with pytest.raises(SentenceError, match=r"^bad: what is wrong in two lines$"):
        jobs.run([Job("bad", partial(failing, "what is wrong\nin two lines")), beside, late], at_once=2)
    assert log.read_text() == "beside begins\nbeside ends\n"
    with pytest.raises(SentenceError, match=r"^killed: ended by signal 9, starting$"):
        jobs.run([Job("killed", lambda: os.kill(os.getpid(), signal.SIGKILL))])
    with pytest.raises(SentenceError, match=r"^bad: ZeroDivisionError: division by zero$"):
        jobs.run([Job("bad", lambda: 1 / 0)])


def test_the_seconds_left_are_those_measured_at_the_pace_of_what_is_done():
    first = Job("first", print, seconds=20)
    done = Job("done", print, seconds=100, after=[first], started=0.0, took=50.0)
    waits = Job("waits", print, seconds=60, after=[first])
    assert jobs.seconds_left([first, done, waits]) == pytest.approx(20 + 60 / 2, abs=0.1)
    assert jobs.seconds_left([first, waits]) == pytest.approx(80, abs=0.1)


def test_figures_makes_the_runs_first_then_the_longest_notebooks(monkeypatch):
    seen = []
    monkeypatch.setattr(jobs, "run", lambda asked, at_once: seen.extend([asked, at_once]))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    typed("figures")
    asked, at_once = seen
    names = [job.name for job in asked]
    assert (at_once, os.environ["OMP_NUM_THREADS"]) == (3, "1")
    assert sorted(names[4:]) == [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
    assert names[4:6] == ["07_exact_search", "06_benchmark"]
    waiting = {job.name[:2]: [other.name for other in job.after] for job in asked[4:]}
    assert waiting["00"] == names[:1]
    assert waiting["07"] == [names[0], names[1], names[3]]
    assert waiting["02"] == waiting["06"] == waiting["09"] == names[:4]


# ---- run ------------------------------------------------------------------------------------------------------------


def small(path, *cells, **parameters):
    """A notebook with parameters and these cells."""
    declared = nbformat.v4.new_code_cell("\n".join(f"{name}: object = {value!r}" for name, value in parameters.items()))
    declared.metadata["tags"] = ["parameters"]
    notebook = nbformat.v4.new_notebook(cells=[declared, *map(nbformat.v4.new_code_cell, cells)])
    notebook.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "python3"}
    nbformat.write(notebook, path)
    return path


@pytest.fixture
def ran(forks, tmp_path):
    """What `pro run` with these words does in an empty folder."""
    return lambda *words: forks.run(["-m", "pro_lib", "run", *words], cwd=tmp_path, env=ENVIRONMENT)


def test_run_gives_parameters_as_literals_or_text_and_fills_in_the_output(ran, tmp_path):
    given = {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}
    path = small(tmp_path / "mine.ipynb", "print([a, b, c, d, e, f], flush=True)", **given)
    words = ["-p", "a", "0.3", "-p", "b", "None", "-p", "c", "1e-3", "-p", "d", "'7'"]
    done = ran(path, *words, "-p", "e", "[1, 'x']", "-p", "f", "two x", "--executed", "here")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"mine, \d+ s\nhere/mine.ipynb\n", done.stdout)
    assert done.stderr == ""
    cell = nbformat.read(tmp_path / "here" / "mine.ipynb", as_version=4).cells[-1]
    assert cell.outputs[0].text == "[0.3, None, 0.001, '7', [1, 'x'], 'two x']\n"
    assert os.listdir(tmp_path / "here") == ["mine.ipynb"]


def test_an_error_in_a_notebook_is_one_line_that_names_its_copy(ran, tmp_path):
    path = small(tmp_path / "mine.ipynb", "print('so far')", "x / 0", x=1)
    done = ran(path, "--executed", "here")
    assert done.returncode == 1
    assert done.stderr == "Error: mine: ZeroDivisionError: division by zero (here/mine.ipynb)\n"
    executed = (tmp_path / "here" / "mine.ipynb").read_text()
    assert "so far" in executed
    assert "Traceback" in executed


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        pytest.param(
            "alhpa", "0.3", "alhpa is no parameter of this notebook; the nearest is alpha", marks=pytest.mark.slow
        ),
        pytest.param(
            "split", "tset", "split='tset' ", marks=pytest.mark.trial
        ),
    ],
)
def test_a_sentence_of_ours_is_the_line(name, value, sentence, ran, tmp_path):
    done = ran("3", "-p", name, value, "--executed", tmp_path)
    assert done.stderr == f"Error: 03_k_vs_alpha: {sentence} ({tmp_path}/03_k_vs_alpha.ipynb)\n"


SLEEPS = "import time\nopen('kernel', 'w').write(str(__import__('os').getpid()))\ntime.sleep(3600)"


def in_terminal(*words, cwd, interrupt=None):
    """A command on a terminal of 80 columns: exit status, and what came after how many seconds."""
    ours, theirs = pty.openpty()
    options = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True, "cwd": cwd}
    # Tests that run in the background of a shell ignore Ctrl-C, and so would the command.
    options["preexec_fn"] = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    begun, came = time.monotonic(), []
    process = subprocess.Popen([*TYPED, *map(str, words)], env=ENVIRONMENT | {"COLUMNS": "80"}, **options)
    os.close(theirs)
    while True:
        if interrupt and interrupt():
            os.kill(process.pid, signal.SIGINT)
            interrupt = None
        if select.select([ours], [], [], 0.1)[0]:
            try:
                came.append((time.monotonic() - begun, os.read(ours, 1 << 16).decode()))
            except OSError:  # it has ended
                break
        elif process.poll() is not None:
            break
    os.close(ours)
    return process.wait(), came


@pytest.mark.slow
def test_ctrl_c_ends_the_kernel_and_leaves_nothing_half_written(tmp_path):
    path, kernel = small(tmp_path / "mine.ipynb", SLEEPS, x=1), tmp_path / "kernel"
    sleeps = lambda: kernel.exists() and kernel.read_text()  # noqa: E731
    status, came = in_terminal("run", path, "--executed", "here", cwd=tmp_path, interrupt=sleeps)
    assert status == 1
    assert came[-1][1].endswith("Aborted!\r\n")
    assert os.listdir(tmp_path / "here") == []
    until(lambda: has_ended(int(kernel.read_text())))


def has_ended(pid):
    """Whether there is no such process, or only its name, since nobody has asked how it ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.trial  # its seconds are those of the clock, and a loaded machine has fewer of them
def test_on_a_terminal_one_line_is_rewritten_at_least_every_five_seconds(tmp_path):
    """With nothing stored, as a newcomer types it; 200 questions of each split, two models, two wordings."""
    words = ["run", "02", "-p", "limit", "200", "-p", "generations_dir", tmp_path, "-p", "figures_dir", tmp_path]
    status, came = in_terminal(*words, "--executed", tmp_path, cwd=tmp_path)
    assert status == 0
    times = [0.0, *(when for when, _ in came)]
    shown = "".join(text for _, text in came)
    *lines, last = shown.split(REWRITTEN)
    assert re.match(r"02_alpha_sweep, \d+ s\r\n", last)
    assert max(later - earlier for earlier, later in pairwise(times)) <= 5
    assert max(map(len, lines)) <= 79
    assert "\n" not in "".join(lines)
    assert any(re.search(r"\d\d:\d\d 02_alpha_sweep: cell \d+ of \d+, \d\d:\d\d left by cells", line) for line in lines)
    assert any(re.search(r": 384 of 400 questions, \d\d:\d\d left of them; world-facts", line) for line in lines)
    assert last.endswith("02_alpha_sweep.ipynb\r\n")


def test_in_a_pipe_a_line_comes_after_every_minute(capfd, monkeypatch, told):
    assert (jobs.TERMINAL, jobs.PIPE) == (1, 60)
    jobs.run([Job("one", partial(time.sleep, 0.1))])
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(jobs, "PIPE", 0.5)
    jobs.run([Job("one", lambda: until(lambda: told.read_text().count("one: starting") == 2))])
    said = capfd.readouterr().err.splitlines()
    assert re.fullmatch(r"00:\d\d one: starting", said[0])
    assert len(said) >= 2


# ---- explore --------------------------------------------------------------------------------------------------------


def test_explore_writes_a_page_of_records_or_opens_jupyterlab(records, tmp_path, monkeypatch):
    out, _ = typed("explore", records, "--html", tmp_path / "run.html", "--alpha", "0.25")
    assert out == f"{tmp_path}/run.html\n"
    assert "Paris" in (tmp_path / "run.html").read_text()
    called = []
    monkeypatch.setattr(os, "execv", lambda *words: called.append(words))
    typed("explore")
    assert called[0][1][1:] == ["-m", "jupyterlab", str(ROOT / "notebooks" / "00_explore_examples.ipynb")]
    monkeypatch.setattr(bundled, "CHECKOUT", None)
    monkeypatch.chdir(tmp_path)
    typed("explore")
    assert called[1][1][-1] == "00_explore_examples.ipynb"
    assert (tmp_path / "00_explore_examples.ipynb").is_file()
