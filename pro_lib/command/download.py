"""Published files from their repository, each whole and checked or not at all; knows no layout of theirs."""

import csv
from collections.abc import Iterator
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import urlopen

from pro_lib import bundled
from pro_lib.imports.published import COLLECTION, Name, folder
from pro_lib.store import RunError, sha256, write_whole, writing

URL = "https://raw.githubusercontent.com/shuoli90/Rank-Calibration/f46ae48f/submission/calibration_results/"


def fetched(name: str, url: str = URL) -> Iterator[str]:
    """Get the files of `rank-calibration`, or of one setting, into `published.folder`; say what became of each.

    What `data/published.csv` names must have the SHA-256 that stands there, and is passed over where it does already.
    Other files are taken as they come, and said to be unchecked; scores among them may be missing. Raises `RunError`
    where a file cannot be had or is not the one meant (it is not kept), `ValueError` for what is no name.
    """
    with open(bundled.DATA / "published.csv", encoding="utf-8", newline="") as file:
        sums = {row["file"]: row["sha256"] for row in csv.DictReader(file)}
    files = list(sums) if name == COLLECTION else [path.name for path in Name.of(name).files().values()]
    with writing(folder()):
        folder().mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(files, start=1):
        path, known, said = folder() / file, sums.get(file), f"{number} of {len(files)}: {file}"
        if path.is_file() and known in (None, sha256(path.read_bytes())):
            yield f"{said} is there"
            continue
        try:
            with urlopen(url + file, timeout=60) as answer:
                data = answer.read()
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, HTTPError):
                error.close()
            if known or number <= 2 or getattr(error, "code", None) != 404:
                raise RunError(f"{url}{file} cannot be had: {error}") from error
            yield f"{said} does not exist"
            continue
        if known not in (None, sha256(data)):
            raise RunError(f"{url}{file} has SHA-256 {sha256(data)}, not {known}: it was not kept")
        write_whole(data, path)
        yield f"{said}, {len(data) / 1e6:.1f} MB" + ("" if known else ", unchecked: its SHA-256 is not known here")
