"""Questions, and answers with their log-probabilities, read from files made elsewhere; knows layouts, no model."""

from pathlib import Path

import pandas as pd

from pro_lib.imports import hub, question_files
from pro_lib.imports.formats import json_lines
from pro_lib.imports.labels import read_labels
from pro_lib.imports.published import from_published, is_published
from pro_lib.imports.records import from_records, split_records
from pro_lib.imports.responses import from_openai, from_vllm
from pro_lib.runs import Run
from pro_lib.storage import RunError

__all__ = [
    "from_file",
    "from_openai",
    "from_published",
    "from_records",
    "from_vllm",
    "hub",
    "is_published",
    "json_lines",
    "layout",
    "question_files",
    "read_labels",
    "split_records",
]
# What the first entry of a file has tells its layout.
_TOLD_BY = {"endpoint": "endpoint", "answers": "records", "outputs": "vllm", "choices": "openai", "response": "openai"}


def layout(path: str | Path) -> str:
    """Whether a file holds `records` of ours, responses of an `openai`-compatible server, or outputs of `vllm`.

    Or it is the cache of an `endpoint`, which `endpoint.read` reads. Raises `RunError` if it is none of the four.
    """
    where, first = next(json_lines(path), (str(path), {}))
    known = next((name for key, name in _TOLD_BY.items() if key in first), None)
    if known is None:
        raise RunError(f"{where}: neither answers (our records), nor choices (OpenAI), nor outputs (vLLM) are there")
    return known


def from_file(path: str | Path, *, questions: pd.DataFrame | None = None) -> Run:
    """A run from a file of log-probabilities in any layout: our records, OpenAI's responses or vLLM's outputs.

    `questions` as for `from_openai`; records of ours bring their own. Raises `RunError` as the three readers do.
    """
    found = layout(path)
    if found == "endpoint":
        raise RunError(f"{path} is the cache of an endpoint; endpoint.read reads it")
    if found == "records":
        return from_records(path)
    return (from_openai if found == "openai" else from_vllm)(path, questions=questions)
