"""Run folders: parts that are whole or absent, plans, refusals, locks, and what a crash or a full disk leaves."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

from pro_lib import storage
from pro_lib.bundled import ROOT
from pro_lib.storage import ANSWER_SCHEMA, Cost, RunError, RunFolder, RunInfo, read_tables

INFO = RunInfo("set", "model", "greedy", {"seed": 0, "stop": [], "header": "Answer briefly."})


def asked(*ids, suffix="?"):
    rows = [{"question_id": x, "question": x + suffix, "references": [x, "the " + x], "split": "test"} for x in ids]
    return pd.DataFrame(rows)


def answer_table(questions):
    rows = [
        {
            "question_id": question_id,
            "rank": rank,
            "text": f"{question_id}{rank}",
            "token_ids": list(range(rank + 1)),
            "token_log_probs": [-0.1] * (rank + 1),
            "log_prob": -0.1 * (rank + 1),
            "end_log_prob": -0.5,
            "finished": rank < 2,
        }
        for question_id in questions["question_id"]
        for rank in range(3)
    ]
    return pa.Table.from_pylist(rows, schema=ANSWER_SCHEMA)


def make_parts(folder, count=None):
    """Write the missing parts, or the first `count` of them; their names."""
    missing = folder.missing_parts()[:count]
    for name, questions, _ in missing:
        table = pa.Table.from_pandas(questions, preserve_index=False)
        folder.write_part(name, table, answer_table(questions), Cost(10, 20, 3, 0.5, 100))
    return [name for name, _, _ in missing]


def planned(path, ids="abcde", per_part=2):
    folder = RunFolder(path, INFO)
    folder.plan(asked(*ids), per_pack=1, per_part=per_part)
    return folder


def contents(path):
    """What lies in a folder, but for the lock, which holds nothing of the run."""
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != ".lock"}


def go_on(path, ids="abcde"):
    """Run the same command again; the names of the parts it made."""
    with RunFolder(path, INFO) as folder:
        folder.plan(asked(*ids), per_pack=1, per_part=2)
        made = make_parts(folder)
        if made or not folder.info.provenance:
            folder.finish({"device": "cpu"})
    return made


@pytest.fixture
def finished(tmp_path):
    """A finished run of the questions a to e in three parts."""
    go_on(tmp_path / "finished")
    return tmp_path / "finished"


@pytest.fixture
def stopped(tmp_path):
    """A run of the same questions with the first of its parts, and nobody writing it."""
    with planned(tmp_path / "stopped") as folder:
        make_parts(folder, 1)
    return folder.path


def test_what_was_written_is_what_is_read(finished):
    answers, questions, info = read_tables(finished)
    assert_frame_equal(questions, asked(*"abcde"))
    assert_frame_equal(answers, answer_table(asked(*"abcde")).to_pandas())
    assert (info.dataset, info.model, info.strategy) == ("set", "model", "greedy")
    assert (info.parameters, info.provenance, info.plans) == (
        INFO.parameters,
        {"device": "cpu", "halved_packs": 0},
        [(5, 1, 2)],
    )


def test_references_are_lists_and_may_be_absent_in_some_parts(tmp_path):
    folder = planned(tmp_path, "a")
    folder.plan(asked("b").assign(references=None, split=None), per_pack=1, per_part=2)
    make_parts(folder)
    _, questions, _ = read_tables(tmp_path)
    assert questions["references"].tolist() == [["a", "the a"], None]
    assert questions["split"].isna().tolist() == [False, True]


def test_a_plan_is_cut_into_parts_in_order(tmp_path):
    parts = planned(tmp_path).missing_parts()
    assert [name for name, _, _ in parts] == ["part-000-00000", "part-000-00001", "part-000-00002"]
    assert [table["question_id"].tolist() for _, table, _ in parts] == [["a", "b"], ["c", "d"], ["e"]]
    assert [per_pack for _, _, per_pack in parts] == [1, 1, 1]


def test_a_second_plan_adds_only_new_questions_after_the_others(finished):
    folder = RunFolder(finished, INFO)
    folder.plan(asked(*"gdfa"), per_pack=4, per_part=8)
    assert [(name, table["question_id"].tolist(), n) for name, table, n in folder.missing_parts()] == [
        ("part-001-00000", ["g", "f"], 4)
    ]
    make_parts(folder)
    assert read_tables(finished)[1]["question_id"].tolist() == list("abcdegf")


def test_planning_the_same_questions_again_changes_nothing(finished):
    before = contents(finished)
    folder = RunFolder(finished, INFO)
    folder.plan(asked(*"eca"), per_pack=3, per_part=3)
    assert folder.missing_parts() == []
    assert contents(finished) == before


def test_a_question_with_another_text_is_refused(finished):
    before = contents(finished)
    with pytest.raises(RunError, match="holds question 'b' with another text"):
        RunFolder(finished, INFO).plan(pd.concat([asked("a"), asked("b", suffix="!")]), per_pack=1, per_part=2)
    assert contents(finished) == before


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        (INFO.parameters | {"seed": 1}, r"was made with seed=0, now seed=1 is asked for"),
        (INFO.parameters | {"top_p": 0.9}, r"top_p=None, now top_p=0\.9"),
        ({"seed": 0, "stop": []}, r"header='Answer briefly\.', now header=None"),
        (INFO.parameters | {"header": "x" * 99}, r"now header='x{39}… \([0-9a-f]{8}\) is"),
    ],
)
def test_other_parameters_are_refused_with_both_values(finished, parameters, sentence):
    before = contents(finished)
    with pytest.raises(RunError, match=sentence):
        RunFolder(finished, RunInfo("set", "model", "greedy", parameters))
    assert contents(finished) == before


class Crash(BaseException):
    """The process is gone: nothing can catch this."""


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_crash_between_the_files_of_a_part_leaves_the_part_missing(stopped, finished, monkeypatch, written):
    replaces, replace = [], os.replace

    def crash(source, target):
        if len(replaces) == written:
            raise Crash
        replaces.append(target)
        replace(source, target)

    with monkeypatch.context() as patch, RunFolder(stopped, INFO) as folder:
        missing = folder.missing_parts()
        patch.setattr(os, "replace", crash)
        with pytest.raises(Crash):
            make_parts(folder)
    assert (len(replaces), missing[0][0]) == (written, "part-000-00001")
    assert read_tables(stopped)[1]["question_id"].tolist() == ["a", "b"]
    assert go_on(stopped) == ["part-000-00001", "part-000-00002"]
    assert contents(stopped) == contents(finished)


def test_a_crash_between_plan_and_info_leaves_the_old_plan(finished, monkeypatch):
    with monkeypatch.context() as patch, RunFolder(finished, INFO) as folder:
        patch.setattr(storage, "_write_json", lambda *_: (_ for _ in ()).throw(Crash))
        with pytest.raises(Crash):
            folder.plan(asked("f", "g"), per_pack=1, per_part=2)
        assert folder.missing_parts() == RunFolder(finished, INFO).missing_parts() == []
    assert go_on(finished, "h") == ["part-001-00000"]
    assert read_tables(finished)[1]["question_id"].tolist() == list("abcdeh")


STRAYS = (".run.json.4711", ".part-000-00003.json.4711", ".part-000-00001.answers.parquet.7", ".plan-001.parquet.4711")


def test_leftover_temporary_files_are_ignored_and_cleared_away_by_the_next_writer(stopped, finished):
    for path in (stopped, finished):
        for name in STRAYS:
            (path / name).write_bytes(b'{"half')
    assert read_tables(stopped)[1]["question_id"].tolist() == ["a", "b"]
    assert go_on(finished) == []
    assert set(STRAYS) <= contents(finished).keys()
    assert go_on(stopped) == ["part-000-00001", "part-000-00002"]
    after = contents(finished)
    assert contents(stopped) == {name: after[name] for name in after.keys() - set(STRAYS)}


REASONS = [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO]


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("succeed", [0, 1, 2, 3, 4])
def test_a_disk_that_refuses_is_told_and_leaves_what_was_good_and_no_half_file(
    stopped, finished, monkeypatch, call, succeed, reason
):
    before, calls, original = contents(stopped), [], getattr(os, call)

    def refusing(*args):
        calls.append(args)
        if len(calls) > succeed:
            raise OSError(reason, os.strerror(reason))
        return original(*args)

    with monkeypatch.context() as patch, RunFolder(stopped, INFO) as folder:
        missing = folder.missing_parts()
        patch.setattr(os, call, refusing)
        sentence = rf"{stopped}/part-\S+ cannot be written: .* \({errno.errorcode[reason]}\); what was complete is kept"
        with pytest.raises(RunError, match=sentence):
            make_parts(folder)
    after = contents(stopped)
    assert {name: after[name] for name in before} == before
    # Every file is synced, renamed, and its folder synced: after the rename it is there, and whole.
    files = [f"{name}.{kind}" for name, *_ in missing for kind in ("questions.parquet", "answers.parquet", "json")]
    there = succeed if call == "replace" else (succeed + 1) // 2
    assert sorted(set(after) - set(before)) == sorted(files[:there])
    assert go_on(stopped)[-1] == "part-000-00002"
    assert contents(stopped) == contents(finished)


@pytest.mark.parametrize("succeed", range(6))
def test_a_disk_full_from_the_start_is_told_and_the_same_command_goes_on(tmp_path, finished, monkeypatch, succeed):
    path, calls, fsync = tmp_path / "made" / "here", [], os.fsync

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > succeed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=rf"{path}\S* cannot be written: No space left on device \(ENOSPC\)"):
            go_on(path)
    assert not [name for name in contents(path) if name.startswith(".")]
    assert len(go_on(path)) == 3
    assert contents(path) == contents(finished)


def child(code, *arguments, check=True):
    """Run code in a process of its own, the helpers of this file at hand; its output."""
    command = [sys.executable, "-c", f"import resource\nfrom test_run_files import *\n{code}", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def test_a_real_limit_on_file_size_is_told_and_leaves_what_was_good(stopped, finished):
    before = contents(stopped)
    code = (
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2500, resource.RLIM_INFINITY))\n"
        "try: go_on(sys.argv[1])\n"
        "except RunError as error: print(error)"
    )
    sizes = {name: len(data) for name, data in contents(finished).items()}
    too_large = next(
        f"part-000-00001.{kind}.parquet"
        for kind in ("questions", "answers")
        if sizes[f"part-000-00001.{kind}.parquet"] > 2500
    )
    assert f"{stopped / too_large} cannot be written: File too large (EFBIG)" in child(code, stopped).stdout
    after = contents(stopped)
    assert {name: after[name] for name in before} == before
    assert not [name for name in after if name.startswith(".") or name == too_large]
    go_on(stopped)
    assert contents(stopped) == contents(finished)


def test_a_folder_that_cannot_be_made_is_named_with_the_reason(tmp_path):
    (tmp_path / "file").write_text("")
    for path, reason in [("file", "EEXIST"), ("file/greedy", "ENOTDIR"), ("x" * 300, "ENAMETOOLONG")]:
        with pytest.raises(RunError, match=rf"cannot be (written|read): .* \({reason}\)") as caught:
            planned(tmp_path / path)
        assert str(tmp_path / path) in str(caught.value)


class Unwritable:
    """A stand-in for a read-only file system, which even root cannot write to."""

    def __init__(self, monkeypatch):
        self.tried, original = [], os.open

        def refusing(path, flags, *rest, **options):
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.tried.append(path)
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return original(path, flags, *rest, **options)

        monkeypatch.setattr(os, "open", refusing)


def test_a_finished_run_needs_neither_a_lock_nor_a_writable_folder(finished, monkeypatch):
    unwritable = Unwritable(monkeypatch)
    assert go_on(finished) == go_on(finished, "ca") == unwritable.tried == []
    with pytest.raises(RunError, match=r"/\.lock cannot be written: Read-only file system \(EROFS\)"):
        go_on(finished, "f")


def test_an_unwritable_lock_stops_a_run_that_is_to_go_on(stopped, monkeypatch):
    before = contents(stopped)
    Unwritable(monkeypatch)
    with pytest.raises(RunError, match=rf"{stopped}/\.lock cannot be written: Read-only file system \(EROFS\)"):
        go_on(stopped)
    assert contents(stopped) == before


def test_a_run_file_that_may_not_be_read_is_named_with_the_reason(finished, monkeypatch):
    def refusing(path, *_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "read_text", refusing)
    for opened in (read_tables, lambda path: RunFolder(path, INFO)):
        with pytest.raises(RunError, match=r"run\.json cannot be read: Permission denied \(EACCES\)"):
            opened(finished)


def test_a_second_writer_is_refused_until_the_first_has_ended(stopped, finished):
    before = contents(stopped)
    with RunFolder(stopped, INFO) as folder:
        assert len(folder.missing_parts()) == 2
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        for other in (
            RunFolder(stopped, INFO).missing_parts,
            lambda: go_on(stopped),
            lambda: go_on(stopped, "f"),
        ):
            with pytest.raises(RunError, match=rf"run folder {stopped} is being written by {holder}; wait until"):
                other()
        assert contents(stopped) == before
        assert read_tables(stopped)[1]["question_id"].tolist() == ["a", "b"]
        make_parts(folder)
        folder.finish({"device": "cpu"})
        assert go_on(stopped) == []
    assert contents(stopped) == contents(finished)
    assert go_on(stopped, "f") == ["part-001-00000"]


def test_a_folder_that_is_no_longer_referred_to_is_free(stopped):
    RunFolder(stopped, INFO).missing_parts()
    assert go_on(stopped) == ["part-000-00001", "part-000-00002"]


def test_a_refusal_after_the_lock_was_taken_lets_it_go(tmp_path, stopped):
    early = RunFolder(tmp_path / "new", RunInfo("set", "model", "greedy", {"seed": 1}))
    go_on(tmp_path / "new")
    for _ in range(2):
        with pytest.raises(RunError, match=r"was made with header='Answer briefly\.', now header=None is asked"):
            early.plan(asked("f"), per_pack=1, per_part=2)
    assert go_on(tmp_path / "new", "f") == ["part-001-00000"]


def test_what_another_process_wrote_before_the_lock_was_taken_is_not_made_again(tmp_path):
    early, path = RunFolder(tmp_path / "run", INFO), tmp_path / "run"
    go_on(path)
    early.plan(asked(*"fab"), per_pack=1, per_part=2)
    assert make_parts(early) == ["part-001-00000"]
    assert read_tables(path)[1]["question_id"].tolist() == list("abcdef")


def test_parts_that_another_process_made_in_the_last_moment_are_not_made_again(stopped, monkeypatch):
    lock = storage._lock

    def just_too_late(path):
        monkeypatch.setattr(storage, "_lock", lock)
        assert go_on(stopped) == ["part-000-00001", "part-000-00002"]
        return lock(path)

    monkeypatch.setattr(storage, "_lock", just_too_late)
    assert go_on(stopped) == []


def test_a_killed_holder_leaves_no_lock_behind(stopped, finished):
    code = (
        "folder = RunFolder(sys.argv[1], INFO); folder.missing_parts()\n"
        "print(os.getpid(), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = child(code, stopped, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (stopped / ".lock").read_text() == f"process {int(done.stdout)} on {socket.gethostname()}"
    assert go_on(stopped) == ["part-000-00001", "part-000-00002"]
    assert contents(stopped) == contents(finished)


def test_a_holder_without_a_name_yet_is_another_process(stopped):
    with RunFolder(stopped, INFO) as folder:
        folder.missing_parts()
        (stopped / ".lock").write_bytes(b"")
        with pytest.raises(RunError, match="is being written by another process; wait"):
            go_on(stopped)


def no_locks(*_):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize("without", [("flock", no_locks), None])
def test_a_file_system_or_machine_without_locks_is_warned_about(stopped, monkeypatch, without):
    if without is None:
        monkeypatch.setattr(storage, "fcntl", None)
    else:
        monkeypatch.setattr(storage.fcntl, *without)
    with pytest.warns(
        UserWarning, match=rf"run folder {stopped} cannot be locked: .*; let no other process write there"
    ):
        assert go_on(stopped) == ["part-000-00001", "part-000-00002"]


@pytest.mark.parametrize("refused", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_sync_folders_is_written_all_the_same(tmp_path, finished, monkeypatch, refused):
    fsync, of_folders = os.fsync, []

    def files_only(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            of_folders.append(descriptor)
            raise OSError(refused, os.strerror(refused))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    go_on(tmp_path / "run")
    assert contents(tmp_path / "run") == contents(finished)
    # run.json, the plan, run.json, nine files of three parts, run.json.
    assert len(of_folders) == 13


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def alter(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [truncate, alter, os.remove])
@pytest.mark.parametrize("kind", ["questions", "answers"])
def test_a_damaged_part_is_refused_by_name_and_made_again_when_its_json_is_deleted(finished, kind, damage):
    before = contents(finished)
    damage(finished / f"part-000-00001.{kind}.parquet")
    (finished / "part-000-00002.json").unlink()
    damaged = contents(finished)
    for reader in (read_tables, go_on):
        with pytest.raises(RunError, match=rf"part-000-00001\.{kind}\.parquet .*delete part-000-00001\.json beside it"):
            reader(finished)
        assert contents(finished) == damaged
    (finished / "part-000-00001.json").unlink()
    assert go_on(finished) == ["part-000-00001", "part-000-00002"]
    assert contents(finished) == before


DAMAGED_JSON = [b"", b'{"cost": ', b"[]", b"{}", b"null", b"\xff", b"[" * 100_000]


@pytest.mark.parametrize("content", DAMAGED_JSON)
@pytest.mark.parametrize("name", ["run.json", "part-000-00001.json"])
def test_a_damaged_json_is_refused_by_name_before_anything_is_written(finished, name, content):
    (finished / "part-000-00002.json").unlink()
    (finished / name).write_bytes(content)
    before = contents(finished)
    for reader in (read_tables, go_on):
        with pytest.raises(RunError, match=r"damaged|format version None") as caught:
            reader(finished)
        assert str(finished) in str(caught.value)
        assert ("part-000-00001.json" in str(caught.value)) == (name != "run.json")
        assert contents(finished) == before


def test_a_damaged_marker_is_made_again_when_it_is_deleted_as_told(finished):
    before = contents(finished)
    (finished / "part-000-00001.json").write_bytes(b"")
    (finished / "part-000-00002.json").unlink()
    with pytest.raises(RunError, match=r"00001\.json is missing or damaged \(.*\); delete it to make the part again"):
        go_on(finished)
    (finished / "part-000-00001.json").unlink()
    go_on(finished)
    assert contents(finished) == before


@pytest.mark.parametrize(
    "change",
    [
        {"plans": [[5, 1]]},
        {"plans": [[5, 1, 0]]},
        {"plans": [[5, 1, "x"]]},
        {"plans": None},
        {"parameters": None},
        {"cost": {"seconds": "long"}},
        {"cost": {"seconds": []}},
        {"cost": {"pages": 1}},
        {"plan_checksums": 7},
        {"plan_checksums": ["0"]},
        {"plan_checksums": [7]},
        {"plans": [[5, 1, 2], [5, 1, 2]]},
    ],
)
def test_an_entry_of_run_json_that_cannot_be_is_refused(finished, change):
    content = json.loads((finished / "run.json").read_text())
    (finished / "run.json").write_text(json.dumps(content | change))
    before = contents(finished)
    with pytest.raises(RunError, match=r"damaged|checksum differs"):
        go_on(finished, "abcdef")
    assert contents(finished) == before


def test_parts_without_a_run_json_are_not_taken_for_another_runs(finished):
    (finished / "run.json").unlink()
    before = contents(finished)
    for parameters in (INFO.parameters, {"seed": 1}):
        with pytest.raises(RunError, match=r"run\.json is missing, but plans or parts are there; restore it"):
            RunFolder(finished, RunInfo("set", "model", "greedy", parameters))
    assert contents(finished) == before


def test_a_run_made_before_plans_had_checksums_goes_on(stopped, finished):
    content = json.loads((stopped / "run.json").read_text())
    del content["plan_checksums"]
    (stopped / "run.json").write_text(json.dumps(content))
    assert go_on(stopped) == ["part-000-00001", "part-000-00002"]
    assert_frame_equal(read_tables(stopped)[0], read_tables(finished)[0])


def test_an_unknown_entry_in_run_json_is_refused(finished):
    content = json.loads((finished / "run.json").read_text())
    (finished / "run.json").write_text(json.dumps(content | {"colour": "red"}))
    with pytest.raises(RunError, match=r"run\.json is missing or damaged \(.*colour"):
        read_tables(finished)


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, alter, empty, os.remove])
def test_a_damaged_plan_is_refused_by_name_and_the_parts_can_still_be_read(finished, damage):
    answers = read_tables(finished)[0]
    (finished / "part-000-00002.json").unlink()
    damage(finished / "plan-000.parquet")
    before = contents(finished)
    with pytest.raises(
        RunError, match=r"plan-000\.parquet (is missing or damaged|was cut short or altered).*; restore it"
    ):
        go_on(finished)
    assert contents(finished) == before
    assert_frame_equal(read_tables(finished)[0], answers[:12])


def test_the_cost_of_added_parts_is_summed_up_when_the_run_is_killed_before_its_end(finished):
    with RunFolder(finished, INFO) as folder:
        folder.plan(asked("f"), per_pack=1, per_part=2)
        make_parts(folder)
    assert go_on(finished, "f") == []
    assert read_tables(finished)[2].cost == Cost(40, 80, 12, 2.0, 100)


@pytest.mark.parametrize("version", [2, 0, "1", None])
def test_another_format_version_is_refused_and_nothing_written(finished, version):
    content = json.loads((finished / "run.json").read_text())
    (finished / "run.json").write_text(json.dumps(content | {"format_version": version}))
    before = contents(finished)
    for opened in (read_tables, lambda path: RunFolder(path, INFO)):
        with pytest.raises(RunError, match=f"has format version {version}; this program reads version 1"):
            opened(finished)
    assert contents(finished) == before


def test_a_folder_that_is_no_run_and_a_run_without_parts_are_refused(tmp_path):
    with pytest.raises(RunError, match=r"is not a run folder: it has no run\.json"):
        read_tables(tmp_path)
    planned(tmp_path)
    with pytest.raises(RunError, match="has no finished part yet"):
        read_tables(tmp_path)


def test_costs_add_up_and_peak_memory_is_a_maximum(finished):
    assert Cost(1, 2, 3, 0.5, 70) + Cost(10, 20, 30, 0.25, 60) == Cost(11, 22, 33, 0.75, 70)
    assert read_tables(finished)[2].cost == Cost(30, 60, 9, 1.5, 100)
