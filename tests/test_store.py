"""Run folders: parts that are whole or absent, refusals, locks; what a crash, a full disk or a flipped bit leaves."""

import errno
import json
import os
import shutil
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from pro_lib import files, store
from pro_lib.engine import Certificate
from pro_lib.files import RunError
from pro_lib.store import Cost, RunFolder, RunInfo, complete_log_prob, difference, part_table, tables

INFO = RunInfo("set", "model", "greedy", {"seed": 0, "stop": [], "header": "Answer briefly."})
IDS = [f"q{number}" for number in range(10)]


def questions_of(ids, suffix="?"):
    rows = [{"question_id": x, "question": x + suffix, "references": [x, "the " + x], "split": "test"} for x in ids]
    return pd.DataFrame(rows)


def table_of(questions):
    """Three answers to each question, the last of them open."""
    answers = [
        [
            {
                "text": f"{name}{rank}",
                "token_ids": list(range(rank + 1)),
                "token_log_probs": [-0.1] * (rank + 1),
                "log_prob": -0.1 * (rank + 1),
                "end_log_prob": -0.5,
                "finished": rank < 2,
            }
            for rank in range(3)
        ]
        for name in questions["question_id"]
    ]
    return part_table(questions, answers, [None] * len(questions))


def written(path, ids=IDS, *, stop_after=None, info=INFO, per_part=4):
    """Write the missing parts of a run, or so many of them."""
    with RunFolder(path, info) as folder:
        parts = folder.missing(questions_of(ids), per_part=per_part)
        for part in parts[:stop_after]:
            cost = Cost(prompt_tokens=len(part.questions), seconds=1.5)
            store.write_part(folder.path, part, folder.info, table_of(part.questions), cost)
        if stop_after is None and (parts or not folder.info.provenance):
            folder.finish({"device": "cpu"})
    return path


@pytest.fixture
def finished(tmp_path):
    return written(tmp_path / "run")


def state(path):
    return {file.name: file.read_bytes() for file in path.iterdir() if not file.name.startswith(".")}


def test_what_was_written_is_what_is_read(finished):
    answers, questions, info = store.read(finished)
    expected = tables([table_of(questions_of(IDS))])
    assert_frame_equal(answers, expected[0])
    assert_frame_equal(questions, expected[1])
    assert questions["references"][0] == ["q0", "the q0"]
    assert (info.n_planned, info.cost.prompt_tokens, info.cost.seconds) == (10, 10, 4.5)
    assert info.provenance == {"device": "cpu", "halved_packs": 0}
    assert sorted(file.name[:10] for file in finished.glob("part-*")) == ["part-00000", "part-00001", "part-00002"]


@pytest.mark.parametrize("stop_after", range(4))
def test_a_stopped_run_goes_on_to_the_same_files(tmp_path, finished, stop_after):
    again = written(tmp_path / "again", stop_after=stop_after)
    written(again)
    assert state(again) == state(finished)


def test_a_deleted_part_is_made_again_under_its_name(finished):
    before = state(finished)
    next(finished.glob("part-00001-*")).unlink()
    written(finished)
    assert state(finished) == before


def test_new_questions_are_added_after_the_others(finished):
    written(finished, ["x", *IDS, "y"])
    _, questions, info = store.read(finished)
    assert list(questions["question_id"]) == [*IDS, "x", "y"]
    assert info.n_planned == 12


def test_a_run_that_is_not_finished_counts_what_was_planned(tmp_path):
    path = written(tmp_path / "run", stop_after=1)
    _, questions, info = store.read(path)
    assert (len(questions), info.n_planned, info.provenance) == (4, 10, {})


def test_a_finished_run_needs_neither_a_lock_nor_a_writable_folder(finished, monkeypatch):
    monkeypatch.setattr(store, "locked", lambda path: pytest.fail("locked"))
    monkeypatch.setattr(store, "write_whole", lambda data, path: pytest.fail("written"))
    written(finished)


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({"seed": 1}, ["seed=0", "seed=1"]),
        ({"stop": ["."]}, ["stop=[]", "stop=['.']"]),
        ({"header": "x" * 100}, ["header='Answer briefly.'", "xxx…"]),
    ],
)
def test_other_parameters_are_refused_with_both_values(finished, parameters, names):
    before = state(finished)
    with pytest.raises(RunError) as error:
        written(finished, info=RunInfo("set", "model", "greedy", INFO.parameters | parameters))
    assert all(name in str(error.value) for name in [str(finished), *names])
    assert state(finished) == before


def other_text(path):
    with RunFolder(path, INFO) as folder:
        folder.missing(questions_of(IDS, suffix="!"), per_part=4)


def without_info(path):
    (path / "run.json").unlink()
    written(path)


def renamed(path):
    part = next(path.glob("part-00001-*"))
    part.rename(path / f"part-00007-{'0' * 16}.parquet")
    store.read(path)


def of_another_run(path):
    other = written(path.parent / "other", info=RunInfo("set", "model", "greedy", {"seed": 5}))
    shutil.copy(next(other.glob("part-00001-*")), path)
    store.read(path)


def in_two_parts(path):
    part = next(path.glob("part-00001-*"))
    shutil.copy(part, path / part.name.replace("part-00001", "part-00009"))
    store.read(path)


def a_folder_as_a_part(path):
    (path / f"part-00009-{'0' * 16}.parquet").mkdir()
    store.read(path)


def other_format(path):
    content = json.loads((path / "run.json").read_text()) | {"format_version": 2}
    (path / "run.json").write_text(json.dumps(content))
    store.read(path)


def altered_info(path):
    (path / "run.json").write_text((path / "run.json").read_text().replace('"seed": 0', '"seed": 1'))
    store.read(path)


REFUSED = {
    other_text: "another text",
    without_info: "run.json is missing",
    renamed: "altered",
    of_another_run: "another run",
    in_two_parts: "in two parts",
    a_folder_as_a_part: "no file",
    other_format: "format version",
    altered_info: "altered",
}


@pytest.mark.parametrize("damage", REFUSED, ids=lambda damage: damage.__name__)
def test_what_is_not_as_it_was_written_is_refused_in_one_line(finished, damage):
    with pytest.raises(RunError, match=REFUSED[damage]) as error:
        damage(finished)
    assert str(finished) in str(error.value)
    assert "\n" not in str(error.value)


def test_every_flipped_bit_is_refused(finished, size):
    rng, names = np.random.default_rng(0), sorted(state(finished))
    for _ in range(400 if size != "quick" else 60):
        file = finished / names[rng.integers(len(names))]
        data = bytearray(whole := file.read_bytes())
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        file.write_bytes(data)
        with pytest.raises(RunError):
            store.read(finished)
        file.write_bytes(whole)
    store.read(finished)


def test_a_second_writer_is_refused_until_the_first_has_ended(tmp_path):
    path = tmp_path / "run"
    with RunFolder(path, INFO) as folder:
        parts = folder.missing(questions_of(IDS), per_part=4)
        with pytest.raises(RunError, match="being written by another process"):
            written(path)
        store.write_part(folder.path, parts[0], folder.info, table_of(parts[0].questions), Cost())
    written(path)
    assert len(store.read(path)[1]) == 10


def test_a_killed_writer_leaves_no_lock_and_what_it_left_is_cleared_away(tmp_path, finished):
    path = written(tmp_path / "killed", stop_after=1)
    code = f"""
import os, signal
from pathlib import Path
from pro_lib import files
lock = files.locked(Path({str(path)!r}))
Path({str(path)!r}, ".part-00001-abc.parquet.host.1").write_bytes(b"half")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode < 0
    written(path)
    assert state(path) == state(finished)
    assert not list(path.glob(".part*"))


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("succeed", range(4))
def test_a_disk_that_refuses_is_told_and_leaves_what_was_good(tmp_path, finished, monkeypatch, call, reason, succeed):
    path, real, calls = tmp_path / "full", getattr(os, call), []

    def refusing(*arguments):
        calls.append(arguments)
        if len(calls) > succeed:
            raise OSError(reason, os.strerror(reason))
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(files.os, call, refusing)
        with pytest.raises(RunError, match=errno.errorcode[reason]):
            written(path)
    assert not list(path.glob(".part*"))
    written(path)
    assert state(path) == state(finished)


def test_a_file_system_without_locks_is_warned_about(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(files.FileLock, "acquire", refuse)
    with pytest.warns(UserWarning, match="cannot be locked"):
        written(tmp_path / "run")


def test_a_folder_without_a_finished_part_or_a_run_is_named(tmp_path):
    for path in (tmp_path / "nowhere", written(tmp_path / "begun", stop_after=0)):
        with pytest.raises(RunError, match=path.name):
            store.read(path)


def test_costs_add_up_and_peak_memory_is_a_maximum():
    one, other = Cost(1, 2, 3, 4.0, 50, 0), Cost(10, 20, 30, 40.0, 7, 1)
    assert one + other == Cost(11, 22, 33, 44.0, 50, 1)


def test_a_certificate_becomes_columns_and_stays_number_for_number():
    hints = {"status": "certified", "why": ""}
    values = {field.name: hints.get(field.name, 0.1) for field in fields(Certificate)}
    values |= {name: () for name in values if name.startswith("tree_") and name != "tree_bound"}
    values |= {"expanded_prefixes": 3, "depth": 2, "live_width": 1, "token_forwards": 7, "prompt_tokens": 5}
    certificate = Certificate(**values)
    _, questions = tables([part_table(questions_of(["a"]), [[]], [certificate])])
    row = questions.iloc[0]
    assert {name: row[name] for name in values if not name.startswith("tree_")} == {
        name: value for name, value in values.items() if not name.startswith("tree_")
    }


def test_an_answer_is_as_probable_as_its_tokens_and_its_ending_if_that_is_one_of_its_own():
    assert complete_log_prob(np.array([-1.0, -2.0]), [-0.5, np.nan]).tolist() == [-1.5, -2.0]


def test_folders_are_named_after_what_differs():
    assert files.named("multinomial", {"n_answers": 20, "temperature": 2.0}) == "multinomial,n_answers=20,temperature=2"
    assert files.named("greedy", {"header": "Answer, please."}).startswith("greedy,header=")
    assert difference({"a": 1, "b": 2}, {"a": 1, "b": 3}) == "b=2, now b=3"
    assert difference({"a": 1}, {"a": 1}) is None
    assert difference({"a": 1, "b": 2}, {"a": 1}, only_known=True) is None
