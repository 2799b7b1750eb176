"""Append-only files of JSON lines: neither a killed process nor a second one does harm."""

import subprocess
import sys

import pytest

from pro_lib.common.files import RunError
from pro_lib.common.line_file import append_lines, read_lines


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


LONG = b'{"b": "' + b"x" * 20_000
# The bytes of a file, and the objects that are read from it and kept when another is appended.
CONTENTS = {
    "nothing": (b"", []),
    "whole lines": ('{"a": 1}\n{"b": "é"}\n'.encode(), [{"a": 1}, {"b": "é"}]),
    "no last line end": (b'{"a": 1}\n{"b": 2}', [{"a": 1}, {"b": 2}]),
    "an unfinished line": (b'{"a": 1}\n{"b": "x', [{"a": 1}]),
    "a long unfinished line": (b'{"a": 1}\n' + LONG, [{"a": 1}]),
    "one unfinished line": (LONG, []),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_whole_objects_are_read_and_kept_and_an_unfinished_one_is_replaced(tmp_path, kind):
    content, expected = CONTENTS[kind]
    path = tmp_path / "lines.jsonl"
    assert read_lines(path) == []  # it does not exist
    path.write_bytes(content)
    assert read_lines(path) == expected
    append_lines(path, [{"c": None}, {"d": "é"}])
    assert read_lines(path) == [*expected, {"c": None}, {"d": "é"}]


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
