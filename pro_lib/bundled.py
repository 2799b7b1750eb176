"""What comes with the package, by name: models, questions and the paper's numbers; knows no weights and no scores."""

from __future__ import annotations

import csv
import hashlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_PACKAGE = Path(__file__).resolve().parent
# Where pro_lib, data/ and notebooks/ lie side by side; None once it is installed and holds the other two.
CHECKOUT = None if (_PACKAGE / "data").is_dir() else _PACKAGE.parent
ROOT = CHECKOUT or _PACKAGE
# Where runs and figures go by default: to the checkout wherever a notebook runs, else to the working folder.
HOME = CHECKOUT or Path()
DATA = ROOT / "data"
_STAMP = attrgetter("st_ino", "st_size", "st_mtime_ns")
# Endings of the files that transformers reads of a model folder.
_READ = {".bin", ".gguf", ".jinja", ".json", ".model", ".py", ".safetensors", ".tiktoken"}


def paper_models() -> dict[str, str]:
    """Return the paper's models by its names for them, each with its id on the hub."""
    with open(DATA / "paper" / "settings.csv", encoding="utf-8", newline="") as file:
        ids = {row["name"]: row["id"] for row in csv.DictReader(file) if row["kind"] == "model"}
    # Its table shortens the name of the chat model.
    return ids | {"Llama2-13B-chat": ids["Llama2-13B"]}


def bundled_models() -> dict[str, Path]:
    """Return the folder of every model that lies in the repository, by name."""
    return {path.parent.name: path.parent for path in sorted((DATA / "models").glob("*/config.json"))}


def locate(name: str) -> str:
    """Return the folder or hub id that a model of this name is loaded from."""
    sources, folder = paper_models() | bundled_models(), Path(name).expanduser()
    if name in sources:
        return str(sources[name])
    return str(folder.resolve() if folder.is_dir() else folder)


def check_model(name: str) -> None:
    """Refuse, with a `ValueError`, a name that no model can have; whether a hub has it is not looked up."""
    source = locate(name)
    if not os.path.isdir(source) and not re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        bundled, paper = ", ".join(bundled_models()), ", ".join(paper_models())
        kinds = f"bundled ({bundled}), nor one of the paper's ({paper}), nor a folder, nor a hub id owner/name"
        raise ValueError(f"model={name!r} is neither {kinds}")


def model_folder_name(model: str) -> str:
    """Return what a model's run folders are called, which is the name it has once it is loaded."""
    return Path(locate(model)).name


def fingerprint(folder: Path) -> str:
    """Return a digest of the files that a model is loaded from, every byte of them.

    Read once in a process, files side by side: a gigabyte took 3 s on two busy cores.
    """
    paths = [path for path in folder.iterdir() if path.suffix in _READ or path.name in ("vocab.txt", "merges.txt")]
    if any(path.suffix == ".safetensors" for path in paths):  # which are then what is loaded
        paths = [path for path in paths if path.suffix != ".bin"]
    paths = sorted(path for path in paths if path.is_file())
    with ThreadPoolExecutor() as pool:
        digests = pool.map(lambda path: _digest(path, *_STAMP(path.stat())), paths)
        whole = "".join(f"{path.name} {digest} " for path, digest in zip(paths, digests, strict=True))
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


@lru_cache(maxsize=1024)
def _digest(path: Path, *stamp: int) -> str:
    """Return the checksum of a file, read again only if its stamp has changed."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def paper(name: str, settings: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return a table of the paper's printed numbers, `data/paper/<name>.csv`.

    With `settings`, a table with columns dataset and model as our tables have them, only the rows of settings that
    are among them come back, under our names (`data/paper/settings.csv` says which of ours is which of the paper's).
    """
    import pandas as pd  # takes a second, and the command looks for notebooks without it

    table = pd.read_csv(DATA / "paper" / f"{name}.csv", dtype={"k": "Int64"})
    if settings is None:
        return table
    names = pd.read_csv(DATA / "paper" / "settings.csv")
    for column in ("dataset", "model"):
        ours = {str(value).lower().split("/")[-1]: value for value in settings[column]}
        rows = names[names["kind"] == column].itertuples(index=False)
        table[column] = table[column].map({row.name: ours.get(row.id.lower().split("/")[-1]) for row in rows})
    pairs = settings[["dataset", "model"]].drop_duplicates()
    return table.dropna(subset=["dataset", "model"]).merge(pairs, on=["dataset", "model"]).reset_index(drop=True)
