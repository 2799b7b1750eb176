"""Run folders: whole parts, errors, locks, and crashes, full disks and flipped bits."""

import errno
import itertools
import json
import os
import re
import shutil
import threading
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from pro_lib.common import files
from pro_lib.common.files import RunError
from pro_lib.runs import parameters, storage
from pro_lib.runs.question_table import stored_rows
from pro_lib.runs.storage import Cost, RunFolder, RunInfo, join_parts, part_table

INFO = RunInfo("set", "model", "greedy", {"seed": 0, "stop": [], "header": "Answer briefly."})
IDS = [f"q{number}" for number in range(10)]


def questions_of(ids, suffix="?"):
    rows = [
        {"question_id": x, "question": x + suffix, "references": [x, "the " + x], "split": "test"}
        for x in ids
    ]
    return pd.DataFrame(rows)


def table_of(questions):
    """Three answers to each question, the last of them open."""
    log_probs = {"token_log_probs": [-0.1] * 2, "log_prob": -0.2, "end_log_prob": -0.5}
    answers = [
        [
            {"text": f"{name}{n}", "token_ids": [n, n], "finished": n < 2, **log_probs}
            for n in range(3)
        ]
        for name in questions["question_id"]
    ]
    return part_table(questions, answers, [None] * len(questions))


def written(path, ids=IDS, *, stop_after=None, info=INFO, per_part=4):
    """Write the missing parts of a run, or so many of them."""
    with RunFolder(path, info) as folder:
        parts = folder.missing(questions_of(ids), per_part=per_part)
        for part, questions in [*parts.items()][:stop_after]:
            cost = Cost(prompt_tokens=len(questions), seconds=1.5, peak_memory_bytes=len(questions))
            storage.write_part(folder.path, part, folder.info, table_of(questions), cost)
        if stop_after is None:
            folder.finish({"device": "cpu"}, questions_of(ids), {})
    return path


@pytest.fixture
def finished(tmp_path):
    return written(tmp_path / "run")


def state(path):
    return {
        file.name: file.read_bytes() for file in path.iterdir() if not file.name.startswith(".")
    }


def test_what_was_written_is_what_is_read(finished):
    answers, questions, info = storage.read_folder(finished)
    expected_answers, expected_questions = join_parts([table_of(questions_of(IDS))])
    assert_frame_equal(answers, expected_answers)
    assert_frame_equal(questions, expected_questions)
    assert questions["references"][0] == ["q0", "the q0"]
    cost = Cost(prompt_tokens=10, seconds=4.5, peak_memory_bytes=4)
    assert (info.n_planned, info.cost, info.provenance) == (10, cost, {"device": "cpu"})


@pytest.mark.parametrize("stop_after", [0, 2])
def test_a_stopped_run_goes_on_to_the_same_files(tmp_path, finished, stop_after):
    again = written(tmp_path / "again", stop_after=stop_after)
    info = json.loads((again / "run.json").read_text())
    assert (info["n_planned"], info["provenance"]) == (10, {})
    if stop_after:  # of whatever is there the cost is known, though nobody has summed it up
        _, questions, info = storage.read_folder(again)
        assert info.cost.prompt_tokens == len(questions)
    written(again)
    assert state(again) == state(finished)


@pytest.mark.parametrize("lost", ["part-00001-*", "run.json"])
def test_a_deleted_file_is_made_again_and_questions_are_read_in_the_order_of_the_last_call(
    finished, lost
):
    before = storage.read_folder(finished)
    next(finished.glob(lost)).unlink()
    written(finished)
    for table, table_before in zip(storage.read_folder(finished)[:2], before[:2], strict=True):
        assert_frame_equal(table, table_before)
    written(finished, ["x", *IDS, "y"])
    _, questions, info = storage.read_folder(finished)
    assert (list(questions["question_id"]), info.n_planned) == (["x", *IDS, "y"], 12)


def texts_of(path, *, questions=None):
    """Return the text and the first answer of each stored question by its id."""
    answers, table, _ = storage.read_folder(path, questions)
    first = answers[answers["rank"] == 0].set_index("question_id")["text"]
    return {row.question_id: (row.question, first[row.question_id]) for row in table.itertuples()}


def test_an_edited_question_is_asked_again_and_the_others_keep_their_answers(finished):
    edited = questions_of(IDS)
    edited.loc[3, "question"] = "another?"
    with RunFolder(finished, INFO) as folder:
        [(part, asked)] = folder.missing(edited, per_part=4).items()
        assert asked["question"].tolist() == ["another?"]
        table = table_of(asked.assign(question_id="new")).set_column(0, "question_id", [["q3"]])
        storage.write_part(finished, part, folder.info, table, Cost())
        folder.finish({"device": "cpu"}, edited, {})
    for questions in (None, edited):
        assert texts_of(finished, questions=questions)["q3"] == ("another?", "new0")
    # The answer to the earlier text is kept, for the earlier text.
    assert texts_of(finished, questions=questions_of(IDS))["q3"] == ("q3?", "q30")
    assert storage.read_folder(finished)[2].n_planned == 10
    written(finished)


def test_a_question_under_another_id_keeps_its_answer(finished):
    moved = questions_of(IDS).assign(question_id=[*IDS[1:], "q0"])
    with RunFolder(finished, INFO) as folder:
        assert folder.missing(moved, per_part=4) == {}
    texts = texts_of(finished, questions=moved)
    assert (texts["q0"], list(texts)) == (("q9?", "q90"), list(moved["question_id"]))


def test_a_question_without_an_answer_is_named(finished):
    asked = questions_of([*IDS, "x"])
    with pytest.raises(storage.UnansweredError, match=r"has no answer to question 'x', 'x\?'$"):
        storage.read_folder(finished, asked)


# By case: the id and the text of each question, and of each stored answer, and the rows found.
@pytest.mark.parametrize(
    ("asked", "stored", "rows"),
    [
        ("a1 b2", "b2 a1", [1, 0]),
        ("a1", "a2", [-1]),
        ("a2", "a1 b2", [1]),
        # The same text twice: its own id first, then the others, and never one row for two
        # questions.
        ("c1 a1 d1", "a1 b1", [1, 0, -1]),
        ("a2", "a1 a2", [1]),
    ],
)
def test_stored_answers_are_found_by_text_then_by_id(asked, stored, rows):
    tables = [
        pd.DataFrame(map(tuple, pairs.split()), columns=["question_id", "question"])
        for pairs in (asked, stored)
    ]
    assert stored_rows(*tables).tolist() == rows


@pytest.mark.filterwarnings("ignore::pro_lib.runs.question_table.OldReferencesWarning")
def test_the_files_of_a_part_that_was_not_completed_are_read(finished):
    info = storage.read_info(finished)
    for number, name in enumerate(("x", "y")):
        table = table_of(questions_of([name]))
        storage.write_part(finished, f"part-00007.{number:05}", info, table, Cost(prompt_tokens=1))
    _, table, info = storage.read_folder(finished, all_questions=True)
    assert list(table["question_id"]) == [*IDS, "x", "y"]
    assert info.cost.prompt_tokens == 12
    written(finished, [*IDS, "x", "y", "z"])
    _, table, info = storage.read_folder(finished)
    assert list(table["question_id"]) == [*IDS, "x", "y", "z"]
    assert (info.cost.prompt_tokens, info.n_planned) == (13, 13)


def with_parameters(**parameters):
    info = replace(INFO, parameters=INFO.parameters | parameters)
    return lambda path: written(path, info=info)


def of_another_run(path):
    other = with_parameters(seed=5)(path.parent / "other")
    shutil.copy(next(other.glob("part-00001-*")), path)


def older(path):
    text = (path / "run.json").read_text()
    (path / "run.json").write_text(text.replace('"format_version": 3', '"format_version": 2'))


REFUSALS = {
    "seed": (with_parameters(seed=1), "seed=0, now seed=1"),
    "other run": (of_another_run, "another run"),
    "folder": (lambda path: (path / "part-00009-0.parquet").mkdir(), "not a regular file"),
    "older": (older, "format_version=2 should be 3"),
    "no part": (lambda path: [part.unlink() for part in path.glob("part-*")], "no finished part"),
    "no run": (shutil.rmtree, "not a run folder"),
}


@pytest.mark.parametrize(("damage", "words"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_not_as_it_was_written_is_refused_in_one_line(finished, damage, words):
    with pytest.raises(RunError, match=rf"^[^\n]*{finished}[^\n]*{words}[^\n]*$"):
        damage(finished), storage.read_folder(finished)


def test_every_flipped_bit_is_refused(finished, size):
    rng, names = np.random.default_rng(0), sorted(state(finished))
    for _ in range(400 if size != "quick" else 60):
        file = finished / names[rng.integers(len(names))]
        data = bytearray(whole := file.read_bytes())
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        file.write_bytes(data)
        with pytest.raises(RunError):
            storage.read_folder(finished)
        file.write_bytes(whole)
    storage.read_folder(finished)


def test_a_second_writer_waits_a_little_and_is_refused_until_the_first_has_ended(
    tmp_path, monkeypatch
):
    path = tmp_path / "run"
    assert storage._PATIENCE > 1
    monkeypatch.setattr(storage, "_PATIENCE", 0.0)
    with RunFolder(path, INFO) as folder:
        parts = folder.missing(questions_of(IDS), per_part=4)
        with pytest.raises(RunError, match="being written by another process"):
            written(path)
        storage.write_part(path, "part-00000", folder.info, table_of(parts["part-00000"]), Cost())
        monkeypatch.setattr(storage, "_PATIENCE", 60.0)
        threading.Timer(0.2, folder._lock.release).start()
        written(path)
    assert len(storage.read_folder(path)[1]) == 10


DISK_ERRORS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "quota exceeded",
    errno.EROFS: "on a disk that is read-only",
}


@pytest.mark.parametrize(
    ("reason", "call", "succeed"),
    [
        *((errno.ENOSPC, call, n) for call in ("replace", "fsync") for n in range(3)),
        (errno.EDQUOT, "replace", 1),
        (errno.EROFS, "fsync", 0),
    ],
)
def test_a_disk_that_refuses_is_told_and_leaves_what_was_good(
    tmp_path, finished, monkeypatch, call, reason, succeed
):
    path = tmp_path / "full"
    real = getattr(os, call)
    numbers = itertools.count()

    def refusing(*arguments):
        if next(numbers) >= succeed:
            raise OSError(reason, os.strerror(reason))
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(files.os, call, refusing)
        with pytest.raises(RunError, match=DISK_ERRORS[reason]):
            written(path)
    assert not list(path.glob(".part*"))
    written(path)
    assert state(path) == state(finished)


def test_folders_are_named_after_what_differs():
    assert (
        files.folder_name("multinomial", n_answers=20, temperature=2.0)
        == "multinomial,n_answers=20,temperature=2"
    )
    values = ["a/b", "a_b", "a+b", ["a", "b"], "ä", {"b": 1}, *("x" * 100 + end for end in "12")]
    values += ["/home/me/smollm2", ["/data/nq.txt", "sciq"]]
    long = {f"setting_{n}": "long" * 5 for n in range(20)}
    names = {files.folder_name(model=value, **long) for value in values}
    assert len(names) == len(values)
    assert all(re.fullmatch(r"[A-Za-z0-9_.,=+-]{1,200}", name) for name in names)


SHOTS = [[f"Question {n}?", f"Answer {n}"] for n in range(10)]
DIFFERENCES = {
    "one of them inside": ({"a": {"b": None}}, {"a": {}}, ""),
    "a missing one": ({}, {"a": 2}, "a=None, now a=2"),
    "the first by name": ({"b": 1, "a": 1}, {"b": 2, "a": 3}, "a=1, now a=3"),
    "a shot": (
        {"shots": SHOTS},
        {"shots": [*SHOTS[:3], ["Question 3?", "No"], *SHOTS[4:]]},
        "shots.3.1='Answer 3', now shots.3.1='No'",
    ),
    "another kind": ({"chat": {"a": 1}}, {"chat": True}, "chat={'a': 1}, now chat=True"),
    "the end of a long text": (
        {"header": f"{'x' * 100}before"},
        {"header": f"{'x' * 100}now"},
        f"header='{'x' * 27}...{'x' * 22}before', now header='{'x' * 27}...{'x' * 25}now'",
    ),
    "no server": (
        {},
        {"server": {"host": "a"}},
        "server=None (which server answered was not recorded), now server={'host': 'a'}",
    ),
}


def test_the_first_difference_of_parameters_is_named_by_its_path():
    for name, (before, after, difference) in DIFFERENCES.items():
        assert parameters.difference(before, after) == difference, name


TWENTY = {str(token): -1.0 for token in range(20)}
# Log-probabilities of two probes, and the nats by which they differ too much, or None.
PROBES = {
    "within": ([{"7": -0.5, "8": -2.0}], [{"7": -0.509, "8": -1.991}], None),
    "beyond, upwards": ([{"7": -0.5}], [{"7": -0.489}], 0.011),
    "the second": ([{"7": -1.0}, {"7": -0.5}], [{"7": -1.0}, {"7": -0.6}], 0.1),
    "others in it": ([{"7": -0.5, "8": -2.0}], [{"9": -0.5, "8": -2.0}], 1.5),
    "the twentieth": ([TWENTY], [TWENTY | {"19": -1.1}], 0.1),
    "the one after it": ([TWENTY | {"20": -2.0}], [TWENTY | {"20": -3.0}], None),
    "a longer list": ([{"7": -0.5}], [{"7": -0.5, "8": -2.0}], None),
    "a shorter list of others": ([{"7": -0.5, "8": -2.0}], [{"8": -0.4}], 1.6),
}


def test_probes_of_a_server_may_be_apart_by_what_they_allow():
    def compared(*probes, within=0.01):
        settings = [{"probe": {"within": within, "log_probs": lists}} for lists in probes]
        return parameters.difference(*({"server": server} for server in settings))

    for name, (before, after, nats) in PROBES.items():
        text = f"server.probe, whose log-probabilities differ by {nats} nats" if nats else ""
        assert compared(before, after) == text, name
    assert compared([{"7": -0.5}], [{"7": -0.55}], within=0.1) == ""


def test_a_part_with_the_same_questions_is_refused(finished, tmp_path):
    folder = written(tmp_path / "other", IDS[2:6])
    part = next(folder.glob("part-00000-*"))
    shutil.copy(part, finished / part.name.replace("00000", "00007"))
    words = r"has two answers to question 'q\d', 'q\d\?'; one of its parts was copied into it"
    for read in (storage.read_folder, lambda path: written(path)):
        with pytest.raises(RunError, match=words):
            read(finished)
