"""Answers and log-probabilities made elsewhere, read from files as a run; knows layouts of files, no model and no score."""

import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from pro_lib.imports import records
from pro_lib.runs import Run
from pro_lib.storage import LEDGER_SCHEMA, Cost, RunError, RunInfo, read_tables


def from_records(path: str | Path) -> Run:
    """A run from log-probabilities made elsewhere: a JSONL file with a line per question.

    A line is `{question_id, question?, references?, split?, answers: [...]}`; an answer is `{log_prob?,
    mean_log_prob?, token_log_probs?, end_log_prob?, text?, token_ids?, rouge_l?, correct?}` with at least one of
    log_prob and token_log_probs. `log_prob` is taken to be that of the complete answer where no end_log_prob is
    given. Nothing needs a model or a network.

    Raises:
        RunError: the file is empty or not UTF-8, or a line is malformed; the sentence names file and line.
    """
    answers, questions = records.read_records(Path(path))
    return Run(answers, questions, RunInfo(dataset=Path(path).stem, model="records", strategy="records"))


def from_file(path: str | Path, *, questions: pd.DataFrame | None = None) -> Run:
    """A run from a file of log-probabilities in any layout: our records, OpenAI's responses or vLLM's outputs.

    `questions` as for `from_openai`; records of ours bring their own. Raises `RunError` as the three readers do.
    """
    known = records.layout(Path(path))
    if known == "records":
        return from_records(path)
    return {"openai": from_openai, "vllm": from_vllm}[known](path, questions=questions)


def from_openai(path: str | Path, *, questions: pd.DataFrame | None = None) -> Run:
    """A run from saved responses of an OpenAI-compatible server, a JSONL file or a JSON list with a response per line.

    Both endpoints, chat and text completions, with `logprobs` and any n; `records.read_openai` says which layouts are
    known and what becomes of the ending, which OpenAI itself does not return: then `complete` log-probabilities are
    those of beginning with the answer, and no bound holds for them.

    Args:
        questions: the questions asked, with references and splits, as `question_sets.load(...).table`; without them, what the
            file says of them. A response that carries no question_id or custom_id answers the question in its place.

    Raises:
        RunError: a response is malformed or has no log-probabilities; the sentence names file, line and choice.
    """
    info = RunInfo(dataset=Path(path).stem, model="openai", strategy="openai")
    return Run(*records.read_openai(Path(path), questions=questions), info)


def from_vllm(source: str | Path | Iterable[object], *, questions: pd.DataFrame | None = None) -> Run:
    """A run from what `LLM.generate` of vLLM returned: the objects themselves, or a file of their JSON.

    `records.read_vllm` says how the token that ended an answer is told from the answer's own.

    Args:
        questions: as for `from_openai`.

    Raises:
        RunError: an output is malformed or has no log-probabilities; the sentence names its place.
    """
    name = Path(source).stem if isinstance(source, (str, Path)) else "vllm"
    return Run(*records.read_vllm(source, questions=questions), RunInfo(dataset=name, model="vllm", strategy="vllm"))
