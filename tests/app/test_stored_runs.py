"""Commands on a run whose question file has changed: stored answers, and references of today."""

import json
import re
import warnings
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest
from commands import typed, write_lines
from pandas.testing import assert_frame_equal

from pro_lib import generate, load_questions, read_run
from pro_lib.app import explorer, judge_verdicts, scored_answers, single_question
from pro_lib.common import catalog
from pro_lib.common.files import RunError
from pro_lib.generation.batching import Job
from pro_lib.labels.session import LabelSession
from pro_lib.questions.question_sets import QuestionSet
from pro_lib.runs import storage
from pro_lib.runs.question_table import OldReferencesWarning

FACTS = load_questions("world-facts", n_shots=0).table.iloc[::180]
ROWS = [
    {
        "question_id": f"q{n}",
        "question": text,
        "references": ["wrong"],
        "split": ("test", "validation")[n % 2],
    }
    for n, text in enumerate(FACTS["question"])
]
RUN = "mine/facts-1m/greedy"
# The words of a command, and the function that gets the run that it has read.
READERS = {
    "score": (["score", RUN], scored_answers, "score_answers"),
    "report": (["report", RUN], scored_answers, "score_answers"),
    "explore": (["explore", RUN], explorer, "to_html"),
    "label": (["label", RUN], LabelSession, "open"),
    "judge": (
        ["judge", RUN, "--model", "facts-1m", "--output", "verdicts.csv"],
        judge_verdicts,
        "answers_to_judge",
    ),
    "ask": (["ask", "Who?", "--calibration", RUN], single_question, "ask"),
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "HOME", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_rows(rows, name="mine.jsonl"):
    return write_lines(Path(name), rows)


def generated(rows, *words):
    """Write the question file and run `pro generate`."""
    path = write_rows(rows)
    return typed("generate", "facts-1m", "greedy", "--dataset", path, *words)[0]


def read_by(monkeypatch, reader, *words):
    """Return the run that a command reads, and what it says."""
    command, owner, name = reader
    read = []

    def keep(*arguments, calibration=None, **_):
        read.append(calibration or arguments[0])
        raise RunError("the run was read")

    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        patch.setattr(owner, name, keep)
        typed(*command, *words, code=1)
    return read[0], " ".join(str(warning.message) for warning in said)


def with_shots(rows):
    """Return the rows with ten others, from which the shots are taken."""
    shots = load_questions("world-facts", split="train_shots", n_shots=0).table.iloc[:10]
    columns = ["question_id", "question", "references", "split"]
    return [*json.loads(shots[columns].to_json(orient="records")), *rows]


def accuracy(*words):
    summary = json.loads(typed("score", RUN, "--json", *words)[0])
    return summary["accuracy"], len(summary["answers"])


def test_score_uses_the_references_and_the_rows_of_the_last_generate():
    generated(with_shots(ROWS))
    assert accuracy() == (0, len(ROWS))
    # The first test rows now have the model's own answers as references.
    answers = read_run(f"data/generations/{RUN}").top().set_index("question_id")["text"]
    right = [row | {"references": [answers[row["question_id"]]]} for row in ROWS[:7]]
    edited = with_shots([*right, *ROWS[7:]][3:])
    write_rows(edited)
    with pytest.warns(OldReferencesWarning, match="mine.jsonl has changed since"):
        assert accuracy() == (0, len(ROWS))
    assert f"next: pro score {RUN}" in generated(edited)
    with pytest.warns(UserWarning, match=f"{len(ROWS) - 3} of {len(ROWS)} stored questions"):
        assert accuracy() == (pytest.approx(4 / (len(ROWS) - 3)), len(ROWS) - 3)


def test_every_command_reads_the_questions_of_the_last_generate_or_all(monkeypatch):
    generated(with_shots(ROWS))
    changed = [
        row | {"references": [f"new {n}"], "split": ("validation", "test")[n % 2], "relation": "r"}
        for n, row in enumerate(ROWS)
    ]
    generated(with_shots(changed))
    generated(with_shots(changed), "--limit", 3)
    for name, reader in READERS.items():
        run, said = read_by(monkeypatch, reader)
        assert len(run.questions) == 6, name
        assert f"6 of {len(ROWS)} stored questions are used, those of the last call; --all" in said
        run, said = read_by(monkeypatch, reader, "--all")
        questions = run.questions.sort_values("question_id", ignore_index=True)
        expected = pd.DataFrame(changed).sort_values("question_id", ignore_index=True)
        assert_frame_equal(questions[list(expected)], expected, check_dtype=False, obj=name)
        assert not re.search("stored questions|changed since", said)


@pytest.mark.filterwarnings("ignore:dataset 'mine' has no validation split")
def test_every_command_replaces_the_references_of_a_run_by_questions(monkeypatch):
    # Without a column of splits, shots and validation questions are drawn.
    rows = [{name: row[name] for name in ("question", "references")} for row in ROWS]
    generated(rows)
    own, _ = read_by(monkeypatch, READERS["score"])
    asked = list(own.questions["question"])
    other = [
        {"Frage": text, "Antwort": "new", "Alias": "too", "split": "dev"} for text in asked[1:]
    ]
    words = ["--questions", write_rows(other, "other.jsonl")]
    for column in ("question=Frage", "references=Antwort", "references=Alias"):
        words += ["--columns", column]
    for name, reader in READERS.items():
        if name == "ask":  # its --questions are the file of the shots
            continue
        run, said = read_by(monkeypatch, reader, "--questions", "mine.jsonl")
        assert_frame_equal(run.questions, own.questions, check_dtype=False, obj=name)
        assert said == ""
        run, said = read_by(monkeypatch, reader, *words)
        assert list(run.questions["question"]) == asked[1:], name
        assert run.questions["references"].tolist() == [["new", "too"]] * len(asked[1:])
        assert set(run.questions["split"]) == {"dev"}
        assert f"1 of the {len(asked)} questions of run {RUN} are not in other.jsonl" in said
        assert "they are left out" in said
        _, said = typed(*reader[0], *words, "--strict", code=1)
        assert "give the question file of the run" in said
    foreign = write_rows([{"question": "Who?", "references": ["me"]}], "foreign.jsonl")
    _, said = typed("score", RUN, "--questions", foreign, code=1)
    assert f"{len(asked)} of the {len(asked)} questions of run {RUN} are not in foreign" in said


def questions_of(rows):
    return load_questions(path=write_rows(rows), n_shots=0, split=None)


def answer(rows, **options):
    """Generate the run of some rows; return its folder."""
    generate("facts-1m", questions_of(rows), strategy="greedy", out="runs", **options)
    return "runs/mine/facts-1m/greedy,n_shots=0"


def references_in(folder, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        questions = read_run(folder, **options).questions
    return dict(zip(questions["question_id"], questions["references"].str[0], strict=True))


NEW = [row | {"references": ["new"]} for row in ROWS]
MORE = {"question_id": "more", "question": "Who?", "references": ["new"], "split": "test"}


def test_a_killed_call_leaves_the_questions_of_the_last_finished_one(monkeypatch):
    folder = answer(ROWS[:4])
    with monkeypatch.context() as patch:
        patch.setattr(Job, "part", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            answer([*NEW[:4], MORE])
    with pytest.warns(OldReferencesWarning, match="has changed since, so 4 of 4 questions"):
        assert len(read_run(folder).questions) == 4
    assert references_in(folder) == {f"q{n}": "wrong" for n in range(4)}
    answer([*NEW[:4], MORE])
    assert references_in(folder) == {f"q{n}": "new" for n in range(4)} | {"more": "new"}
    [table] = storage.parts(storage.Path(folder), "questions")
    assert table.name.startswith("questions-00001-")


def test_a_call_beside_a_writer_leaves_the_questions(monkeypatch):
    folder = answer(ROWS[:4])
    monkeypatch.setattr(storage, "_PATIENCE", 0.0)
    with storage.RunFolder(folder, storage.read_info(storage.Path(folder))) as writer:
        writer.missing(questions_of([*ROWS[:4], MORE]).table, per_part=4)
        with pytest.raises(RunError, match="being written by another process"):
            answer(NEW[:4])
        assert references_in(folder) == {f"q{n}": "wrong" for n in range(4)}


def test_a_run_in_a_read_only_folder_is_read_and_keeps_its_questions(monkeypatch):
    folder = answer(ROWS[:4])
    refuse = Mock(side_effect=RunError("this folder is read-only"))
    monkeypatch.setattr(storage.RunFolder, "_lock_folder", refuse)
    answer(ROWS[:4])
    with pytest.warns(OldReferencesWarning, match=r"not stored.*: this folder is read-only"):
        answer(NEW[:4])
    assert references_in(folder) == {f"q{n}": "wrong" for n in range(4)}


def test_questions_that_the_last_call_did_not_ask_have_their_latest_references():
    folder = answer(ROWS[:8])
    answer(NEW[:8])
    last = [row | {"references": ["last"]} for row in ROWS[:4]]
    last[3]["question"] = "Another text?"
    answer(last)
    asked = dict.fromkeys(("q0", "q1", "q2", "q3"), "last")
    assert references_in(folder) == asked
    with pytest.warns(OldReferencesWarning, match="has changed since, so 4 of 8 questions"):
        assert len(read_run(folder, all_questions=True).questions) == 8
    others = dict.fromkeys(("q4", "q5", "q6", "q7"), "new")
    assert references_in(folder, all_questions=True) == asked | others


def test_an_old_run_has_the_references_that_it_holds_and_says_so():
    folder = answer(ROWS[:4])
    [table] = storage.parts(storage.Path(folder), "questions")
    table.unlink()
    with pytest.warns(OldReferencesWarning, match="4 of its 4 questions have the references and"):
        run = read_run(folder)
    assert list(run.questions["references"].str[0]) == ["wrong"] * 4
    answer(NEW[:4])
    assert references_in(folder) == {f"q{n}": "new" for n in range(4)}


def test_questions_in_memory_are_stored_like_those_of_a_file():
    for n in range(2):
        table = pd.DataFrame(ROWS[:3]).assign(level=n, references=[[f"r{n}"]] * 3)
        generate("facts-1m", QuestionSet("set", table), strategy="greedy", out="runs")
    questions = read_run("runs/set/facts-1m/greedy").questions
    assert questions["level"].tolist() == [1] * 3
    assert questions["references"].tolist() == [["r1"]] * 3
