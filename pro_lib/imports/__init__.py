"""Questions, and answers with their log-probabilities, read from files made elsewhere; knows layouts, no model."""
# ruff: noqa: F401  What is imported here is what the room exports.

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from pro_lib.files import RunError
from pro_lib.imports.labels import read_labels
from pro_lib.imports.published import PUBLISHED, Name, from_published, is_published
from pro_lib.imports.records import from_records, split_records
from pro_lib.imports.responses import from_openai, from_vllm
from pro_lib.readers import json_lines
from pro_lib.runs import Run

# What the first entry of a file has tells its layout.
_TOLD_BY = {"answers": "records", "outputs": "vllm", "choices": "openai", "response": "openai"}


def layout(path: str | Path) -> str:
    """Whether a file holds `records` of ours, responses of an `openai`-compatible server, or outputs of `vllm`.

    Or it is the name of `published` outputs. Raises
    `RunError` if it is none of these.
    """
    if is_published(path):
        return "published"
    where, first = next(json_lines(path), (str(path), {}))
    known = next((name for key, name in _TOLD_BY.items() if key in first), None)
    if known is None:
        raise RunError(f"{where}: neither answers (our records), nor choices (OpenAI), nor outputs (vLLM) are there")
    return known


def from_file(path: str | Path, *, questions: pd.DataFrame | None = None) -> Run:
    """A run from a file of log-probabilities in any layout: our records, OpenAI's responses or vLLM's outputs.

    Or from published outputs, by name (`from_published`), which bring their own questions.

    `questions` as for `from_openai`. Raises `RunError` as the readers do.
    """
    found = layout(path)
    if found == "published":
        return from_published(path)
    return {"records": from_records, "openai": from_openai, "vllm": from_vllm}[found](path, questions=questions)


def recorded(records: Sequence[str]) -> dict[tuple[str, str], str]:
    """Where records are, by model and dataset as they are called. ValueError if one is missing or two have a name."""
    called: dict[tuple[str, str], str] = {}
    for each in records:
        if not (is_published(each) or os.path.isfile(each)):
            raise ValueError(f"records={each!r} is not a file")
        name = Name.of(each).called if is_published(each) else ("records", Path(each).stem)
        if called.setdefault(name, each) != each:
            raise ValueError(f"records={each!r} has the name of {called[name]!r}: one of them at a time")
    return called


def note(records: str | Sequence[str] | None) -> str:
    """What a figure of these records has to say; nothing unless some are published outputs."""
    return PUBLISHED * any(map(is_published, [records] if isinstance(records, str) else records or ()))
