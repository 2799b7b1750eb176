"""`pro download` against a server on loopback: files whole and checked, or none; what is there is not got again."""

import csv
import gc
import hashlib
import http.server
import threading
from functools import partial

import pytest
from click.testing import CliRunner

from pro_lib import bundled
from pro_lib.command import pro
from pro_lib.imports.published import Name, folder

FILES = {"a_rouge.json": b"[1]", "b.json": b"[2]" * 400_000}


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of a folder; `asked` says which were wanted, and `short` files break off."""

    asked, short = (), ()

    def do_GET(self):
        type(self).asked += (self.path,)
        if self.path[1:] in self.short:
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"[")
        else:
            super().do_GET()

    def log_message(self, *_):
        """Nothing is printed."""


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Where files are published, the server's address, and a table of their checksums."""
    published, home = tmp_path / "published", tmp_path / "home"
    for each in (published, home, tmp_path / "data"):
        each.mkdir()
    with open(tmp_path / "data" / "published.csv", "w", newline="") as table:
        writer = csv.writer(table)
        writer.writerow(["collection", "file", "bytes", "sha256"])
        for name, data in FILES.items():
            (published / name).write_bytes(data)
            writer.writerow(["rank-calibration", name, len(data), hashlib.sha256(data).hexdigest()])
    monkeypatch.setattr(bundled, "DATA", tmp_path / "data")
    monkeypatch.setattr(bundled, "HOME", home)
    Handler.asked, Handler.short = (), ()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=published)) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield published, f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()
        thread.join()


def typed(name, url, *, fails=False):
    done = CliRunner().invoke(pro, ["download", name], env={"PRO_PUBLISHED_URL": url})
    assert done.exit_code == int(fails), done.output
    return done.output.splitlines()


def test_files_are_got_once_and_only_what_is_missing_or_damaged_again(server):
    url = server[1]
    assert typed("rank-calibration", url) == ["1 of 2: a_rouge.json, 0.0 MB", "2 of 2: b.json, 1.2 MB"]
    assert {path.name: path.read_bytes() for path in folder().iterdir()} == FILES
    assert typed("rank-calibration", url) == ["1 of 2: a_rouge.json is there", "2 of 2: b.json is there"]
    (folder() / "b.json").write_bytes(b"[2]")
    assert typed("rank-calibration", url)[1] == "2 of 2: b.json, 1.2 MB"
    assert Handler.asked == ("/a_rouge.json", "/b.json", "/b.json")
    assert (folder() / "b.json").read_bytes() == FILES["b.json"]


def test_another_file_than_the_one_meant_is_not_kept(server):
    published, url = server
    (published / "b.json").write_bytes(b"[3]")
    *said, error = typed("rank-calibration", url, fails=True)
    assert said == ["1 of 2: a_rouge.json, 0.0 MB"]
    wrong, right = (hashlib.sha256(data).hexdigest() for data in (b"[3]", FILES["b.json"]))
    assert error == f"Error: {url}b.json has SHA-256 {wrong}, not {right}: it was not kept"
    assert [path.name for path in folder().iterdir()] == ["a_rouge.json"]


@pytest.mark.parametrize("broken", ["short", "gone"])
def test_half_a_file_and_none_are_one_sentence_and_leave_nothing(server, broken):
    published, url = server
    if broken == "short":
        Handler.short = ("a_rouge.json",)
    else:
        (published / "a_rouge.json").unlink()
    (error,) = typed("rank-calibration", url, fails=True)
    assert error.startswith(f"Error: {url}a_rouge.json cannot be had: ")
    assert list(folder().iterdir()) == []


def test_a_setting_whose_checksums_are_not_known_is_taken_and_said_to_be_unchecked(server):
    published, url = server
    names = [path.name for path in Name.of("rank-calibration/m/squad/0.6").files().values()]
    for name in names[:3]:
        (published / name).write_bytes(b"[]")
    said = typed("rank-calibration/m/squad/0.6", url)
    unchecked = ", 0.0 MB, unchecked: its SHA-256 is not known here"
    ends = [unchecked] * 3 + [" does not exist"] * 2
    assert said == [f"{n} of 5: {name}{end}" for n, (name, end) in enumerate(zip(names, ends, strict=True), start=1)]
    (published / names[1]).unlink()
    (folder() / names[1]).unlink()
    assert "cannot be had: HTTP Error 404" in typed("rank-calibration/m/squad/0.6", url, fails=True)[-1]
    gc.collect()  # an answer that was left open would be an error here


def test_what_is_no_name_or_no_address_is_one_sentence(server):
    assert typed("rank-calibratoin", server[1], fails=True)[0].startswith("Error: 'rank-calibratoin' is not rank-cal")
    assert "cannot be had" in typed("rank-calibration", "nowhere/", fails=True)[0]


def test_the_table_that_comes_along_names_the_files_of_its_settings():
    with open(bundled.DATA / "published.csv", newline="") as table:
        rows = list(csv.DictReader(table))
    assert len({row["file"] for row in rows}) == len(rows) == 14
    assert all(len(row["sha256"]) == 64 and int(row["bytes"]) > 10_000 for row in rows)
    settings = ("gpt-3.5-turbo/nq-open", "gpt-3.5-turbo/meadow", "Llama-2-7b-chat-hf/nq-open")
    known = {path.name for each in settings for path in Name.of(f"rank-calibration/{each}").files().values()}
    lacking = known - {row["file"] for row in rows}
    assert {row["file"] for row in rows} <= known
    assert lacking == {"calibrate_Llama-2-7b-chat-hf_nq-open_1.0_disagreement_verbalized.json"}
