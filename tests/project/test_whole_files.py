"""Commands write whole files: a killed process leaves the old file or the new one."""

import ast
import os
import signal
import subprocess
import sys

import pytest
from conftest import ROOT

from pro_lib.common import files

# Modules that write files in another way, and why.
OTHER_WRITERS = {
    "app/answer_source.py": "in a temporary folder",
    "app/explorer/label_server.py": "in a temporary folder",
    "common/downloads.py": "in a folder that then takes the place of the download",
    "common/files.py": "has the function that writes whole files",
    "common/line_file.py": "appends lines; a line cut by a kill is ignored",
}


def writes_itself(node):
    """Return whether a call opens a file for writing, or writes it."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    texts = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    modes = [text for text in texts if isinstance(text, str) and set(text) <= set("rwaxbt+")]
    is_open = name == "open" and any(set(mode) & set("wax+") for mode in modes)
    return is_open or name in ("write_text", "write_bytes", "savetxt", "dump")


def test_every_module_but_these_writes_files_by_one_function():
    package = ROOT / "pro_lib"
    writers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(map(writes_itself, ast.walk(ast.parse(path.read_text()))))
    }
    assert writers == set(OTHER_WRITERS)


KILLED = """
import os, signal
from pro_lib.common import files
os.{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
files.write_whole(b"new" * 1000, "file")
"""


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_process_killed_while_it_writes_leaves_the_old_file_and_the_next_one_no_other(
    step, tmp_path
):
    path = tmp_path / "file"
    files.write_whole(b"old", path)
    command = [sys.executable, "-c", KILLED.format(step=step)]
    done = subprocess.run(command, cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert len(os.listdir(tmp_path)) == 2
    files.write_whole(b"new", path)
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]
