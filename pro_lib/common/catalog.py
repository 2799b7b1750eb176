"""Locate the bundled models, question sets and paper tables.

List the models to download.
"""

from __future__ import annotations

import csv
import difflib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from pro_lib.common.files import file_sha256, regular, sha256
from pro_lib.common.validation import SentenceError, not_empty

if TYPE_CHECKING:
    import pandas as pd

_PACKAGE = Path(__file__).resolve().parents[1]
# The folder that contains pro_lib, data/ and notebooks/. It is None if the package is installed,
# since the package then contains the other two.
CHECKOUT = None if (_PACKAGE / "data").is_dir() else _PACKAGE.parent
ROOT = CHECKOUT or _PACKAGE


def clone_around(folder: str | Path) -> Path | None:
    """Return the clone of the repository that contains a folder, or None if there is none."""
    resolved = Path(folder).resolve()
    for parent in (resolved, *resolved.parents):
        is_package = (parent / "pro_lib" / "common" / "catalog.py").is_file()
        if is_package and (parent / "notebooks").is_dir():
            return parent
    return None


def _home() -> Path:
    """Return the folder in which `data/generations` and `figures` are by default."""
    if CHECKOUT:
        return CHECKOUT
    with suppress(FileNotFoundError):  # the working folder was removed
        return clone_around(Path.cwd()) or Path()
    return Path()


# The default folder of runs and figures: the checkout that contains this module or, if the package
# is installed, the clone that contains the working folder, or else the working folder.
HOME = _home()
DATA = ROOT / "data"
EXAMPLE = DATA / "examples" / "answers.jsonl"
# The folder of the models that `pro download` loads.
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pro-workbench" / "models"
)
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
# Endings of the files in a model folder that transformers reads.
_MODEL_FILE_ENDINGS = {
    ".bin",
    ".gguf",
    ".jinja",
    ".json",
    ".model",
    ".py",
    ".safetensors",
    ".tiktoken",
}
# The column of the world facts with the questions of each bundled question set.
BUNDLED = {"world-facts": "question", "world-facts-reworded": "question_reworded"}
# Labels of a sample of the answers of facts-2m to world-facts, given by the alias table.
EXAMPLE_LABELS = DATA / "examples" / "labels.jsonl"
# Question sets of the Hugging Face hub: repository, configuration and column of answers.
HUB = {
    "trivia_qa": ("mandarjoshi/trivia_qa", "rc.nocontext", "answer"),
    "sciq": ("allenai/sciq", None, "correct_answer"),
    "nq": ("google-research-datasets/nq_open", None, "answer"),
}


@dataclass(frozen=True)
class PackagedFile:
    """A file in a package of the Python package index.

    Attributes:
        requirement: the package with its version.
        file: the path of the file in the package.
        sha256: the checksum of the file.
        n_bytes: the size of the file.
    """

    requirement: str
    file: str
    sha256: str
    n_bytes: int

    @property
    def name(self) -> str:
        """The name of the file without its folders."""
        return self.file.rpartition("/")[2]


@dataclass(frozen=True)
class DownloadableModel:
    """A model whose GGUF file is in packages of the Python package index, whole or in parts.

    Attributes:
        parts: the parts of the GGUF file, in their order.
        sha256: the checksum of the whole file.
        n_converted: bytes of the model in the cache, in float32.
        memory: memory that answering a question takes, in words.
        licence: the name of the licence.
        licence_url: the page of its text.
        licence_files: files of the licence, which are kept beside the model.
        must_accept: whether the user has to accept the licence before the download.
        advice: how the model is best prompted.
        origin: who made and who uploaded the file.
    """

    parts: tuple[PackagedFile, ...]
    sha256: str
    n_converted: int
    memory: str
    licence: str
    licence_url: str
    licence_files: tuple[PackagedFile, ...]
    must_accept: bool
    advice: str
    origin: str

    @property
    def n_bytes(self) -> int:
        """The size of the download."""
        return sum(file.n_bytes for file in (*self.parts, *self.licence_files))


# The models that `pro download` loads. Checksums are pinned, because anyone can upload a package.
DOWNLOADS = TypeAdapter(dict[str, DownloadableModel]).validate_json(
    (DATA / "models" / "downloads.json").read_bytes()
)
# The names of `DOWNLOADS`, the model with the most right answers first (see real_models.md).
_BEST_FIRST = ("gemma-3-270m", "smollm2-135m")
FIRST_DOWNLOAD = "smollm2-135m"  # the smallest one, whose licence need not be accepted


def best_download() -> str | None:
    """Return the best of the downloaded models, or None if there is none on this machine."""
    installed = bundled_models()
    return next((name for name in _BEST_FIRST if name in installed), None)


def paper_models() -> dict[str, str]:
    """Return the hub ids of the paper's models, by their names in the paper.

    Example:
        >>> paper_models()["Gemma-2B"]
        'google/gemma-2b'
    """
    with open(DATA / "paper" / "settings.csv", encoding="utf-8", newline="") as file:
        return {row["name"]: row["id"] for row in csv.DictReader(file) if row["kind"] == "model"}


def bundled_models() -> dict[str, Path]:
    """Return the folders of the bundled and the downloaded models, by their names.

    Example:
        >>> "facts-2m" in bundled_models()
        True
    """
    configurations = [
        *sorted((DATA / "models").glob("*/config.json")),
        *sorted(CACHE.glob("*/config.json")),
    ]
    return {path.parent.name: path.parent for path in configurations}


def locate(name: str | Path) -> str:
    """Return the folder, GGUF file or hub id that a model of this name is loaded from.

    A text that is the name of a bundled or downloadable model, or of one of the paper's models,
    stands for that model, even if a folder has the same name: `./facts-2m` is the folder. A `Path`
    that exists is a path.

    Example:
        >>> locate("Gemma-2B")
        'google/gemma-2b'
        >>> Path(locate("facts-2m")).name
        'facts-2m'
    """
    path = Path(name).expanduser()
    exists = os.path.exists(path)
    if isinstance(name, Path) and exists:
        return str(path.resolve())
    downloads = {download: CACHE / download for download in DOWNLOADS}
    named = {**paper_models(), **downloads, **bundled_models()}.get(str(name))
    if named is not None:
        return str(named)
    return str(path.resolve() if exists else path)


def is_bundled(name: str | Path) -> bool:
    """Return whether a name stands for a bundled or downloaded model.

    A path to one does not.
    """
    folder = bundled_models().get(str(name))
    return folder is not None and locate(name) == str(folder)


def check_model(name: str | Path) -> None:
    """Raise `ValueError` for a name that is not that of a model.

    Whether the hub has a model of this name is not checked.
    """
    source = locate(not_empty(name, "model"))
    name = str(name)
    if name in DOWNLOADS and not os.path.isdir(source):
        raise ValueError(f"model={name!r} is not on this machine; run `pro download {name}`")
    is_local = os.path.isdir(source) or (source.endswith(".gguf") and os.path.isfile(source))
    on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", source) and not os.path.isdir(os.path.dirname(source))
    if not (is_local or on_hub):
        names = [*dict.fromkeys([*bundled_models(), *DOWNLOADS, *paper_models()])]
        [nearest] = difflib.get_close_matches(name, names, 1, 0)
        raise ValueError(
            f"model={name!r} is unknown (nearest: {nearest}); choose {', '.join(names)}, or give a "
            "folder, a GGUF file or a hub id (owner/name)"
        )


def check_no_adapter(folder: Path) -> None:
    """Raise `SentenceError` for a folder with a PEFT adapter instead of a whole model."""
    has_weights = any(folder.glob("adapter_model.*"))
    is_model = (folder / "config.json").exists()
    if (folder / "adapter_config.json").exists() and (has_weights or not is_model):
        raise SentenceError(
            f"model {str(folder)!r} is a PEFT adapter (adapter_config.json), not a whole model; "
            "merge it into its base model (merge_and_unload in PEFT), save the result to another "
            "folder and load that folder"
        )


def check_fetched(source: Path) -> None:
    """Raise `SentenceError` for a model with a file that Git LFS must still fetch."""
    for path in _model_files(source):
        if path.is_file() and _is_pointer(path):
            raise SentenceError(
                f"model {str(source)!r} is incomplete: {path.name} is a Git LFS pointer, not the "
                f"file itself; run `git lfs pull` in {path.parent}"
            )


def _is_pointer(path: Path) -> bool:
    """Return whether a file is a pointer to a file that Git LFS stores elsewhere."""
    with open(path, "rb") as file:
        return file.read(len(LFS_POINTER)) == LFS_POINTER


def scope(name: str | Path) -> str:
    """Return the scope of a bundled model as a sentence, or "" for any other model."""
    folder = bundled_models().get(str(name))
    if not is_bundled(name) or folder != DATA / "models" / str(name):
        return ""
    return (
        "It was taught 36 relations, such as capitals, authors and chemical symbols; to any "
        "other question its answer means nothing."
    )


def model_folder_name(model: str | Path) -> str:
    """Return the folder name for a model's runs, which is the name of the loaded model."""
    return Path(locate(model)).name.removesuffix(".gguf")


def fingerprint(source: Path) -> str:
    """Return a digest of all bytes of a model's files, in a folder or one GGUF file."""
    paths = [regular(path) for path in _model_files(source) if path.exists() and not path.is_dir()]
    checksums = ""
    for path in paths:
        status = path.stat()
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        checksums += f"{path.name} {_digest(path, *stamp)} "
    return sha256(checksums.encode())[:16]


def known_fingerprint(source: str) -> str | None:
    """Return the fingerprint that a loaded model would have, as far as it is known.

    Args:
        source: the result of `locate`.

    Returns:
        The digest of local files, or the commit of a hub model in the cache, else None.
    """
    if os.path.exists(source):
        return fingerprint(Path(source))
    # The package of the hub may be missing, and a path that was deleted is not the name of a model.
    with suppress(ImportError, ValueError):
        from huggingface_hub import constants, try_to_load_from_cache

        configuration = try_to_load_from_cache(source, "config.json", constants.HF_HUB_CACHE)
        if isinstance(configuration, str):
            return Path(configuration).parent.name
    return None


def _model_files(source: Path) -> list[Path]:
    """Return the files of a model folder that transformers may read, or one GGUF file."""
    paths = sorted(source.iterdir()) if source.is_dir() else [source]
    return [
        path
        for path in paths
        if path.suffix in _MODEL_FILE_ENDINGS or path.name in ("vocab.txt", "merges.txt")
    ]


@lru_cache(maxsize=1024)
def _digest(path: Path, *stamp: int) -> str:
    """Return the checksum of a file."""
    # The result is cached by the inode, the size, and the times of modification and change, because
    # a gigabyte takes seconds. A program can set the time of modification, but not that of change.
    return file_sha256(path)


def paper(name: str, settings: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return a table of the paper's printed numbers, `data/paper/<name>.csv`.

    Args:
        name: the name of the table.
        settings: a table of datasets and models. The result then has only the rows of these
            settings, with their dataset and model as named there. None returns all rows.
    """
    import pandas as pd  # takes a second, and the command looks for notebooks without it

    table = pd.read_csv(DATA / "paper" / f"{name}.csv", dtype={"k": "Int64"})
    if settings is None:
        return table
    paper_settings = pd.read_csv(DATA / "paper" / "settings.csv")
    for column in ("dataset", "model"):
        names_by_id = {_last_part(str(value)): value for value in settings[column]}
        rows = paper_settings[paper_settings["kind"] == column].itertuples(index=False)
        names = {row.name: names_by_id.get(_last_part(row.id)) for row in rows}
        table[column] = table[column].map(names)
    return table.merge(settings[["dataset", "model"]].drop_duplicates(), on=["dataset", "model"])


def _last_part(hub_id: str) -> str:
    """Return the name in a hub id, in lower case."""
    return hub_id.lower().split("/")[-1]


def notebook(name: str) -> Path:
    """Return the path of a notebook.

    Args:
        name: a path, or the number or the beginning of the name of a bundled notebook.

    Raises:
        ValueError: no notebook or several have this name.
    """
    if name.endswith(".ipynb") and os.path.isfile(name):
        return Path(name)
    names = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
    matching = [stem for stem in names if name and stem.startswith((name, f"0{name}"))]
    if len(matching) != 1:
        raise ValueError(
            f"{name!r} fits {len(matching)} notebooks, not one; choose from {', '.join(names)}"
        )
    return ROOT / "notebooks" / f"{matching[0]}.ipynb"
