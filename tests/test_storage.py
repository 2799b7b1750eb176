"""Run folders: parts that are whole or absent, plans, seals, refusals, locks; what a crash or a full disk leaves."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from pandas.testing import assert_frame_equal

from pro_lib import store
from pro_lib.bundled import ROOT
from pro_lib.engine import Certificate
from pro_lib.files import RunError
from pro_lib.parts import Cost, RunInfo, part_table, tables
from pro_lib.store import RunFolder, difference
from pro_lib.store import files as storage_files

INFO = RunInfo("set", "model", "greedy", {"seed": 0, "stop": [], "header": "Answer briefly."})


def asked(*ids, suffix="?"):
    rows = [{"question_id": x, "question": x + suffix, "references": [x, "the " + x], "split": "test"} for x in ids]
    return pd.DataFrame(rows)


def answers_to(questions):
    """Three answers to each question, the last of them open."""
    return [
        [
            {
                "text": f"{question_id}{rank}",
                "token_ids": list(range(rank + 1)),
                "token_log_probs": [-0.1] * (rank + 1),
                "log_prob": -0.1 * (rank + 1),
                "end_log_prob": -0.5,
                "finished": rank < 2,
            }
            for rank in range(3)
        ]
        for question_id in questions["question_id"]
    ]


def table_of(questions):
    return part_table(questions, answers_to(questions), [None] * len(questions))


def make_parts(folder, count=None):
    """Write the missing parts, or the first `count` of them; their names."""
    missing = folder.missing_parts()[:count]
    for part in missing:
        folder.write_part(part, table_of(part.questions), Cost(10, 20, 3, 0.5, 100))
    return [part.name for part in missing]


def planned(path, ids="abcde", per_part=2):
    folder = RunFolder(path, INFO)
    folder.plan(asked(*ids), per_pack=1, per_part=per_part)
    return folder


def contents(path):
    """What lies in a folder, but for the lock and its holder's name, which are nothing of the run."""
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name not in (".lock", ".holder")}


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
    answers, questions, info = store.read(finished)
    assert_frame_equal(questions, asked(*"abcde"))
    assert_frame_equal(answers, tables([table_of(asked(*"abcde"))])[0])
    assert answers["question_id"].tolist() == [name for name in "abcde" for _ in range(3)]
    assert answers["rank"].tolist() == [0, 1, 2] * 5
    assert (info.dataset, info.model, info.strategy) == ("set", "model", "greedy")
    assert (info.parameters, info.provenance) == (INFO.parameters, {"device": "cpu", "halved_packs": 0})
    assert [(plan.questions, plan.per_pack, plan.per_part) for plan in info.plans] == [(5, 1, 2)]


def test_references_are_lists_and_may_be_absent_in_some_parts(tmp_path):
    folder = planned(tmp_path, "a")
    folder.plan(asked("b").assign(references=None, split=None), per_pack=1, per_part=2)
    make_parts(folder)
    _, questions, _ = store.read(tmp_path)
    assert questions["references"].tolist() == [["a", "the a"], None]
    assert questions["split"].isna().tolist() == [False, True]


def test_an_answer_is_as_probable_as_its_tokens_and_its_ending_if_that_is_one_of_its_own():
    assert [store.complete_log_prob(-1.5, ending) for ending in (-0.25, 0.0, None)] == [-1.75, -1.5, -1.5]
    endings = pd.Series([-0.25, None, -np.inf])
    np.testing.assert_array_equal(store.complete_log_prob(pd.Series([-1.0, -2.0, -3.0]), endings), [-1.25, -2, -np.inf])


def test_a_plan_is_cut_into_parts_in_order(tmp_path):
    parts = planned(tmp_path).missing_parts()
    assert [part.name for part in parts] == ["part-000-00000", "part-000-00001", "part-000-00002"]
    assert [part.questions["question_id"].tolist() for part in parts] == [["a", "b"], ["c", "d"], ["e"]]
    assert [part.per_pack for part in parts] == [1, 1, 1]


def test_a_second_plan_adds_only_new_questions_after_the_others(finished):
    folder = RunFolder(finished, INFO)
    folder.plan(asked(*"gdfa"), per_pack=4, per_part=8)
    [part] = folder.missing_parts()
    assert (part.name, part.questions["question_id"].tolist(), part.per_pack) == ("part-001-00000", ["g", "f"], 4)
    make_parts(folder)
    assert store.read(finished)[1]["question_id"].tolist() == list("abcdegf")


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


@pytest.mark.parametrize("written", [0, 1])
def test_a_crash_before_a_part_is_renamed_leaves_the_part_missing(stopped, finished, monkeypatch, written):
    with monkeypatch.context() as patch, RunFolder(stopped, INFO) as folder:
        missing = folder.missing_parts()
        patch.setattr(os, "replace", crashing_after(written))
        with pytest.raises(Crash):
            make_parts(folder)
    assert [part.name for part in missing] == ["part-000-00001", "part-000-00002"]
    assert store.read(stopped)[1]["question_id"].tolist() == list("abcd"[: 2 + 2 * written])
    assert go_on(stopped) == ["part-000-00001", "part-000-00002"][written:]
    assert contents(stopped) == contents(finished)


def crashing_after(count, replace=os.replace):
    done = []

    def crash(source, target):
        if len(done) == count:
            raise Crash
        done.append(target)
        replace(source, target)

    return crash


def test_a_crash_between_plan_and_info_leaves_the_old_plan(finished, monkeypatch):
    with monkeypatch.context() as patch, RunFolder(finished, INFO) as folder:
        patch.setattr(os, "replace", crashing_after(1))
        with pytest.raises(Crash):
            folder.plan(asked("f", "g"), per_pack=1, per_part=2)
        assert folder.missing_parts() == RunFolder(finished, INFO).missing_parts() == []
    assert go_on(finished, "h") == ["part-001-00000"]
    assert store.read(finished)[1]["question_id"].tolist() == list("abcdeh")


STRAYS = (".run.json.4711", ".part-000-00003.parquet.4711", ".part-000-00001.parquet.begun", ".plan-001.parquet.4711")


def test_leftover_temporary_files_are_ignored_and_cleared_away_by_the_next_writer(stopped, finished):
    for path in (stopped, finished):
        for name in STRAYS:
            (path / name).write_bytes(b'{"half')
    assert store.read(stopped)[1]["question_id"].tolist() == ["a", "b"]
    assert go_on(finished) == []
    assert set(STRAYS) <= contents(finished).keys()
    assert go_on(stopped) == ["part-000-00001", "part-000-00002"]
    after = contents(finished)
    assert contents(stopped) == {name: after[name] for name in after.keys() - set(STRAYS)}


REASONS = [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO]


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize(("call", "succeed"), [("replace", 0), ("replace", 1), *(("fsync", n) for n in range(4))])
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
        files = [f"{part.name}.parquet" for part in folder.missing_parts()]
        patch.setattr(os, call, refusing)
        sentence = rf"{stopped}/part-\S+ cannot be written: .* \({errno.errorcode[reason]}\); what was complete is kept"
        with pytest.raises(RunError, match=sentence):
            make_parts(folder)
    after = contents(stopped)
    assert {name: after[name] for name in before} == before
    # Every file is synced, renamed, and its folder synced: after the rename it is there, and whole.
    there = succeed if call == "replace" else (succeed + 1) // 2
    assert sorted(set(after) - set(before)) == sorted(files[:there])
    assert [f"{name}.parquet" for name in go_on(stopped)] == files[there:]
    assert contents(stopped)["part-000-00002.parquet"] == contents(finished)["part-000-00002.parquet"]
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
    command = [sys.executable, "-c", f"import resource\nfrom test_storage import *\n{code}", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def test_a_real_limit_on_file_size_is_told_and_leaves_what_was_good(stopped, finished):
    before, too_large = contents(stopped), "part-000-00001.parquet"
    limit = len(contents(finished)[too_large]) - 1
    code = (
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))\n"
        "try: go_on(sys.argv[1])\n"
        "except RunError as error: print(error)"
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
        assert str(caught.value).startswith(str(tmp_path / path)[:150])


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

    monkeypatch.setattr(Path, "read_bytes", refusing)
    for opened in (store.read, lambda path: RunFolder(path, INFO)):
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
        assert store.read(stopped)[1]["question_id"].tolist() == ["a", "b"]
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
    assert store.read(path)[1]["question_id"].tolist() == list("abcdef")


def test_parts_that_another_process_made_in_the_last_moment_are_not_made_again(stopped, monkeypatch):
    lock = storage_files.locked

    def just_too_late(path):
        monkeypatch.setattr(storage_files, "locked", lock)
        assert go_on(stopped) == ["part-000-00001", "part-000-00002"]
        return lock(path)

    monkeypatch.setattr(storage_files, "locked", just_too_late)
    assert go_on(stopped) == []


@pytest.mark.parametrize("name", [".lock", ".holder", ".part-000-00001.begun", ".part-000-00001.parquet.{}.{}"])
def test_what_a_link_in_the_folder_points_to_is_left_alone(stopped, tmp_path, name):
    target = tmp_path / "somebody_elses"
    target.write_text("precious")
    folder = RunFolder(stopped, INFO)
    if name != ".lock":
        folder.missing_parts()
    link = stopped / name.format(socket.gethostname(), os.getpid())
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    refused = pytest.raises(RunError, match="cannot be written: Too many levels of symbolic links")
    with refused if name != ".holder" else nullcontext():
        [part, _] = folder.missing_parts()
        store.begin_part(stopped, part)
        make_parts(folder)
        folder.close()
        go_on(stopped, "abcdef")
    assert target.read_text() == "precious"


@pytest.mark.parametrize("left", range(3))
def test_a_process_without_file_handles_says_so_and_loses_nothing(finished, tmp_path, left):
    code = (
        "go_on(sys.argv[1] + 'first')\n"
        "held, limit = [], max(map(int, os.listdir('/proc/self/fd'))) + 20\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "while len(held) < 99:\n"
        "    try: held.append(os.open('/dev/null', os.O_RDONLY))\n"
        "    except OSError: break\n"
        "for handle in held[len(held) - int(sys.argv[3]):]: os.close(handle)\n"
        "for act, path in ((go_on, sys.argv[1]), (store.read, Path(sys.argv[2]))):\n"
        "    try: act(path)\n"
        "    except RunError as error: print(error)"
    )
    said = child(code, tmp_path / "new", finished, left).stdout.splitlines()
    assert len(said) == [2, 1, 0][left]
    assert all("Too many open files (EMFILE)" in line for line in said)
    go_on(tmp_path / "new")
    assert contents(tmp_path / "new") == contents(finished)


def test_a_killed_holder_leaves_no_lock_behind(stopped, finished):
    code = (
        "folder = RunFolder(sys.argv[1], INFO); folder.missing_parts()\n"
        "print(os.getpid(), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = child(code, stopped, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (stopped / ".holder").read_text() == f"process {int(done.stdout)} on {socket.gethostname()}"
    assert go_on(stopped) == ["part-000-00001", "part-000-00002"]
    assert contents(stopped) == contents(finished)


def test_a_holder_without_a_name_yet_is_another_process(stopped):
    with RunFolder(stopped, INFO) as folder:
        folder.missing_parts()
        (stopped / ".holder").write_bytes(b"")
        with pytest.raises(RunError, match="is being written by another process; wait"):
            go_on(stopped)


@pytest.mark.parametrize("reason", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_warned_about(stopped, monkeypatch, reason):
    def no_locks(*_):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(fcntl, "flock", no_locks)
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
    # run.json, the plan, run.json, three parts, run.json.
    assert len(of_folders) == 7


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def alter(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


def without_seal(path):
    """The same table, written by somebody else."""
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)


def with_another_answer(path):
    """The same table with another number, under the seal that it had."""
    footer, table = pq.read_metadata(path).metadata, pq.read_table(path)
    questions = tables([table])[1].assign(question="?")
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(part_table(questions, answers_to(questions), [None] * len(questions)))
        writer.add_key_value_metadata({key: footer[key] for key in (b"cost", b"identity", b"checksum")})


@pytest.mark.parametrize("damage", [truncate, alter, empty, without_seal, with_another_answer])
def test_a_damaged_part_is_refused_by_name_and_made_again_when_it_is_deleted_as_told(finished, damage):
    before = contents(finished)
    damage(finished / "part-000-00001.parquet")
    (finished / "part-000-00002.parquet").unlink()
    damaged = contents(finished)
    for reader in (store.read, go_on):
        with pytest.raises(
            RunError, match=r"part-000-00001\.parquet (is missing or damaged|was cut short or altered).*; delete it to"
        ):
            reader(finished)
        assert contents(finished) == damaged
    (finished / "part-000-00001.parquet").unlink()
    assert go_on(finished) == ["part-000-00001", "part-000-00002"]
    assert contents(finished) == before


def test_every_altered_byte_of_a_part_is_noticed(stopped):
    [path] = stopped.glob("part-*")
    data = path.read_bytes()
    for place in range(0, len(data), 61):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(RunError, match=r"part-000-00000\.parquet (is missing or damaged|was cut short or altered)"):
            store.read(stopped)
    path.write_bytes(data)
    assert len(store.read(stopped)[0]) == 6


def renamed(name):
    return lambda folder, _: shutil.move(folder / "part-000-00001.parquet", folder / name)


def copied(name):
    return lambda folder, _: shutil.copy(folder / "part-000-00000.parquet", folder / name)


def of_another_run(folder, elsewhere):
    """A part of the same questions, answered with another seed."""
    other = RunInfo("set", "model", "greedy", INFO.parameters | {"seed": 1})
    with RunFolder(elsewhere, other) as run:
        run.plan(asked(*"abcde"), per_pack=1, per_part=2)
        make_parts(run)
    shutil.copy(elsewhere / "part-000-00001.parquet", folder)


def of_other_questions(folder, elsewhere):
    go_on(elsewhere, "vwxyz")
    shutil.copy(elsewhere / "part-000-00001.parquet", folder)


def alter_json(folder, **change):
    """run.json with another word and the checksum that belongs to it, as somebody would write it on purpose."""
    content = json.loads((folder / "run.json").read_text()) | change
    del content["checksum"]
    whole = json.dumps(content, sort_keys=True).encode()
    (folder / "run.json").write_text(json.dumps(content | {"checksum": hashlib.sha256(whole).hexdigest()}))


def with_json(**change):
    def alter(folder, _):
        content = json.loads((folder / "run.json").read_text())
        plans = [content["plans"][0] | change.get("plan", {})]
        alter_json(folder, plans=plans, parameters=content["parameters"] | change.get("parameters", {}))

    return alter


@pytest.mark.parametrize(
    "change",
    [
        renamed("part-000-00002.parquet"),
        renamed("part-000-00007.parquet"),
        renamed("part-001-00000.parquet"),
        renamed("part-two.parquet"),
        copied("part-000-00001.parquet"),
        copied("part-000-00003.parquet"),
        copied("part-000-000000.parquet"),
        of_another_run,
        of_other_questions,
        with_json(plan={"per_part": 3}),
        with_json(plan={"per_pack": 2}),
        with_json(plan={"questions": 4}),
        with_json(plan={"checksum": "0" * 64}),
        with_json(parameters={"seed": 1}),
    ],
)
def test_a_part_that_is_not_the_one_planned_under_its_name_is_refused(finished, tmp_path, change):
    change(finished, tmp_path / "elsewhere")
    with pytest.raises(
        RunError,
        match=r"part-\S+\.parquet is not the part that run\.json plans under this name .*; restore run\.json from",
    ):
        store.read(finished)
    (finished / "part-000-00000.parquet").unlink()
    before = contents(finished)
    for ids in ("abcde", "abcdef"):
        with pytest.raises(
            RunError, match=r"is not the part that|plan-000\.parquet was cut short|was made with seed=1, now"
        ):
            go_on(finished, ids)
        assert contents(finished) == before


DAMAGED_JSON = [b"", b'{"cost": ', b"[]", b"{}", b"null", b"\xff", b"[" * 100_000, b'{"dataset": Infinity}']


@pytest.mark.parametrize("content", DAMAGED_JSON)
def test_a_damaged_json_is_refused_by_name_before_anything_is_written(finished, content):
    (finished / "part-000-00002.parquet").unlink()
    (finished / "run.json").write_bytes(content)
    before = contents(finished)
    for reader in (store.read, go_on):
        with pytest.raises(
            RunError,
            match=rf"{finished}/run\.json (is missing or damaged \(.*\)|has format version None;).*; restore it from",
        ):
            reader(finished)
        assert contents(finished) == before


PLAN = {"questions": 5, "per_pack": 1, "per_part": 2, "checksum": "0"}


@pytest.mark.parametrize(
    "change",
    [
        {"plans": [[5, 1, 2]]},
        {"plans": [PLAN | {"per_part": 0}]},
        {"plans": [PLAN | {"per_part": "2"}]},
        {"plans": [PLAN | {"questions": True}]},
        {"plans": [PLAN | {"checksum": 7}]},
        {"plans": [PLAN | {"colour": "red"}]},
        {"plans": None},
        {"parameters": None},
        {"provenance": {"seconds": float("inf")}},
        {"parameters": {"temperature": float("nan")}},
        {"cost": {"seconds": "long"}},
        {"cost": {"seconds": []}},
        {"cost": {"seconds": 1e999}},
        {"cost": {"token_forwards": 1.5}},
        {"cost": {"pages": 1}},
        {"colour": "red"},
        {"dataset": 7},
    ],
    ids=json.dumps,
)
def test_an_entry_of_run_json_that_cannot_be_is_refused_by_name_and_nothing_written(finished, change):
    alter_json(finished, **change)
    before = contents(finished)
    [entry] = change
    for opened in (store.read, lambda path: go_on(path, "abcdef")):
        with pytest.raises(
            RunError, match=rf"run\.json is missing or damaged \(.*({entry}|expected value).*; restore it from a"
        ):
            opened(finished)
    assert contents(finished) == before


@pytest.mark.parametrize(
    "change",
    [{"checksum": None}, {"checksum": "0" * 64}, {"dataset": "other"}, {"cost": {}}, {"provenance": {}}],
    ids=str,
)
def test_an_altered_run_json_is_refused_whatever_was_altered(finished, change):
    content = json.loads((finished / "run.json").read_text())
    (finished / "run.json").write_text(json.dumps(content | change))
    for opened in (store.read, go_on):
        with pytest.raises(RunError, match=r"run\.json was altered \(its checksum differs\); restore it"):
            opened(finished)
    del content["checksum"]
    (finished / "run.json").write_text(json.dumps(content | {"dataset": "other"}))
    with pytest.raises(RunError, match=r"run\.json was altered"):
        store.read(finished)


@pytest.mark.parametrize("version", [1, 0, 3, "2", None])
def test_another_format_is_refused_with_the_way_out(finished, version):
    alter_json(finished, format_version=version, plan_checksums=["0"])
    for opened in (store.read, go_on):
        with pytest.raises(
            RunError,
            match=rf"run\.json has format version {version}; this program reads version 2; .*move the folder away and",
        ):
            opened(finished)


def test_a_plan_that_run_json_knows_twice_is_refused(finished):
    alter_json(finished, plans=json.loads((finished / "run.json").read_text())["plans"] * 2)
    with pytest.raises(RunError, match=r"plan-001\.parquet is missing or damaged"):
        go_on(finished, "abcdef")


def test_parts_without_a_run_json_are_not_taken_for_another_runs(finished):
    (finished / "run.json").unlink()
    before = contents(finished)
    for parameters in (INFO.parameters, {"seed": 1}):
        with pytest.raises(RunError, match=r"run\.json is missing, but plans or parts are there; restore it"):
            RunFolder(finished, RunInfo("set", "model", "greedy", parameters))
    assert contents(finished) == before


@pytest.mark.parametrize("damage", [truncate, alter, empty, os.remove])
def test_a_damaged_plan_is_refused_by_name_and_the_parts_can_still_be_read(finished, damage):
    answers = store.read(finished)[0]
    (finished / "part-000-00002.parquet").unlink()
    damage(finished / "plan-000.parquet")
    before = contents(finished)
    with pytest.raises(
        RunError, match=r"plan-000\.parquet (is missing or damaged|was cut short or altered).*; restore it"
    ):
        go_on(finished)
    assert contents(finished) == before
    assert_frame_equal(store.read(finished)[0], answers[:12])


def test_the_cost_of_added_parts_is_summed_up_when_the_run_is_killed_before_its_end(finished):
    with RunFolder(finished, INFO) as folder:
        folder.plan(asked("f"), per_pack=1, per_part=2)
        make_parts(folder)
    assert go_on(finished, "f") == []
    assert store.read(finished)[2].cost == Cost(40, 80, 12, 2.0, 100)


def test_a_folder_that_is_no_run_and_a_run_without_parts_are_refused(tmp_path):
    with pytest.raises(RunError, match=r"is not a run folder: it has no run\.json"):
        store.read(tmp_path)
    planned(tmp_path)
    with pytest.raises(RunError, match="has no finished part yet"):
        store.read(tmp_path)


def test_costs_add_up_and_peak_memory_is_a_maximum(finished):
    assert Cost(1, 2, 3, 0.5, 70) + Cost(10, 20, 30, 0.25, 60) == Cost(11, 22, 33, 0.75, 70)
    assert store.read(finished)[2].cost == Cost(30, 60, 9, 1.5, 100)


CERTIFICATE = Certificate(
    **dict.fromkeys(("status", "why"), "certified"),
    **dict.fromkeys(("search_alpha", "epsilon", "alpha_floor", "tree_bound"), 0.25),
    **{f"{name}_mass": 0.2 for name in ("found", "small_endings", "pruned", "length_cut", "budget_cut")},
    **dict.fromkeys(("expanded_prefixes", "depth", "live_width", "token_forwards"), 2**40),
    upper_bound=None,
    tree_parents=(-1, 0),
    tree_tokens=(-1, 7),
    tree_log_probs=(0.0, -0.5),
    tree_entropies=(0.5, 0.25),
    tree_greedy=(True, False),
    prompt_tokens=12,
    remainder_draws=(1.5, 0.0),
    remainder_most=31.5,
    remainder_forwards=3,
)


def test_a_certificate_becomes_columns_of_the_questions_and_stays_number_for_number():
    part = part_table(asked("a"), answers_to(asked("a")), [CERTIFICATE])
    _, questions = tables([part])
    assert questions.columns.tolist() == [*asked("a"), *vars(CERTIFICATE)]
    [row] = questions[list(vars(CERTIFICATE))].to_dict("records")
    stored = {name: tuple(value) if isinstance(value, np.ndarray) else value for name, value in row.items()}
    assert np.isnan(stored.pop("upper_bound"))
    assert stored == {name: value for name, value in vars(CERTIFICATE).items() if name != "upper_bound"}


def test_questions_without_answers_and_answers_without_text_are_kept():
    questions = asked(*"abc")
    answers = answers_to(questions)
    answers[1], answers[2][0]["text"] = [], None
    table, _ = tables([part_table(questions, answers, [None] * 3)])
    assert table["question_id"].tolist() == ["a"] * 3 + ["c"] * 3
    assert table["rank"].tolist() == [0, 1, 2, 0, 1, 2]
    assert table["text"].isna().tolist() == [False] * 3 + [True, False, False]


def test_the_first_parameter_that_differs_is_named():
    stored = {"seed": 0, "dtype": "float32", "stop": []}
    assert difference(stored, dict(stored)) is None
    assert difference(stored, {"seed": 1, "stop": ["a"]}, only_known=True) == "seed=0, now seed=1"
    assert difference(stored, {"seed": 0}, only_known=True) is None
    assert difference(stored, {"seed": 0}) == "dtype='float32', now dtype=None"
    assert difference({}, {"chat": None}) is None
