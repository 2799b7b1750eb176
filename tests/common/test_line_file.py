"""Append-only files of JSON lines: neither a killed process nor a second one does harm."""

import subprocess
import sys

import pytest

from pro_lib.common.files import RunError
from pro_lib.common.line_file import append_lines, read_lines


def test_lines_are_read_as_they_were_appended(tmp_path):
    path = tmp_path / "lines.jsonl"
    append_lines(path, [{"a": 1}, {"b": "é"}])
    append_lines(path, [{"c": None}])
    assert read_lines(path) == [{"a": 1}, {"b": "é"}, {"c": None}]


def test_three_processes_that_append_keep_all_lines(tmp_path):
    code = (
        "import os, sys; from pro_lib.common.line_file import append_lines\n"
        "os.fsync = lambda _: None\n"  # so that it takes a second
        "for n in range(300): append_lines('lines.jsonl', [{'n': n, 'text': 'x' * n}])"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    numbers = [line["n"] for line in read_lines(tmp_path / "lines.jsonl")]
    assert sorted(numbers) == sorted([*range(300)] * 3)


def test_a_file_that_does_not_exist_has_no_lines(tmp_path):
    assert read_lines(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize("length", [3, 5000, 20_000])
def test_an_unfinished_line_is_not_read_and_is_replaced(tmp_path, length):
    path = tmp_path / "lines.jsonl"
    append_lines(path, [{"a": 1}])
    with open(path, "ab") as file:
        file.write(b'{"b": "' + b"x" * length)
    assert read_lines(path) == [{"a": 1}]
    append_lines(path, [{"c": 3}])
    assert read_lines(path) == [{"a": 1}, {"c": 3}]


def test_a_file_of_one_unfinished_line_begins_anew(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": "' + b"x" * 10_000)
    append_lines(path, [{"a": 1}])
    assert read_lines(path) == [{"a": 1}]


def test_a_last_line_without_a_line_end_is_read_and_kept(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b": 2}')
    assert read_lines(path) == [{"a": 1}, {"b": 2}]
    append_lines(path, [{"c": 3}])
    assert read_lines(path) == [{"a": 1}, {"b": 2}, {"c": 3}]


@pytest.mark.parametrize("content", [b"[1, 2]", b"a few words", b"{\n  "])
def test_another_file_is_refused_and_kept(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"other\.json.* is not"):
        read_lines(path)
    with pytest.raises(RunError, match=r"other\.json.* is not"):
        append_lines(path, [{"a": 1}])
    assert path.read_bytes() == content


def test_a_damaged_line_is_named(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": 1}\n\xff\n')
    with pytest.raises(RunError, match=r"lines\.jsonl, line 2 is not JSON"):
        read_lines(path)
