"""Outputs of large models that others published, as runs; knows the layout of one repository, and no network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
from pydantic import Field, create_model

from pro_lib import bundled
from pro_lib.checks import Format, SentenceError, fitted
from pro_lib.files import RunError
from pro_lib.parts import RunInfo
from pro_lib.readers import json_lines, once
from pro_lib.runs import Run

COLLECTION = "rank-calibration"
PUBLISHED = (
    "Published samples without texts: paper keeps repeats, workbench counts answers of equal log-probability and "
    "length once. Endings are unknown; no bound of the entropy is claimed."
)
# Published scores, by the field that holds them, under the names that methods have here.
_SCORES = {"degree_u": "Deg", "ecc_u": "Ecc", "spectral_u": "EigV"}
_Finite, _Share = Annotated[float, Field(allow_inf_nan=False)], Annotated[float, Field(ge=0, le=1)]
_Nlls = (Annotated[list[Annotated[_Finite, Field(ge=-1e-4)]], Field(min_length=1)], ...)  # float32 may sum to below 0
_MEANINGS = {"idx": (int, ...)} | dict.fromkeys(_SCORES, (_Finite, ...))
# What an entry of each kind of file holds.
_KINDS = {
    "rouge": {"id": (int, ...), "unnormalized_score": (list[_Share], ...)},
    "none_whitebox": {"unnormalized_nll": _Nlls, "normalized_nll": _Nlls},
    "agreement_blackbox": _MEANINGS,
    "disagreement_blackbox": _MEANINGS,
    "disagreement_verbalized": {"idx": (int, ...), "verbalized": (list[_Share | None], ...)},
}
_ENTRIES = {kind: create_model(kind, __base__=Format, **fields) for kind, fields in _KINDS.items()}


class Name(NamedTuple):
    """`rank-calibration/<model>/<dataset>`, and the temperature where it is not 1.0."""

    model: str
    dataset: str
    temperature: str = "1.0"

    @classmethod
    def of(cls, name: str) -> Name:
        """The parts of a name, or a `ValueError`."""
        found = re.fullmatch(rf"{COLLECTION}/([\w.-]+)/([\w.-]+?)(?:/(\d+\.\d+))?", name)
        if not found:
            raise SentenceError(f"{name!r} is not {COLLECTION}/<model>/<dataset>, with /<temperature> unless it is 1.0")
        return cls(*filter(None, found.groups()))

    @property
    def called(self) -> tuple[str, str]:
        """Model and dataset as tables have them."""
        return self.model if self.temperature == "1.0" else f"{self.model} at {self.temperature}", self.dataset

    def files(self) -> dict[str, Path]:
        """The files of a setting by what they hold; all but the first two may be missing."""
        names = {kind: f"{'_'.join(self)}_{kind}.json" for kind in _KINDS}
        return {kind: folder() / (name if kind == "rouge" else f"calibrate_{name}") for kind, name in names.items()}


def is_published(name: str | Path) -> bool:
    """Whether this is the name of published outputs, and not a file."""
    return str(name).startswith(f"{COLLECTION}/") and not Path(name).is_file()


def folder() -> Path:
    """Where published files are kept: in the checkout, else in the working folder; never part of the repository."""
    return bundled.HOME / "data" / "published" / COLLECTION


def from_published(name: str) -> Run:
    """A run from outputs that were published, `rank-calibration/<model>/<dataset>` or `…/<temperature>`.

    The files of github.com/shuoli90/Rank-Calibration as they are (`pro download`): samples with their log-probability,
    the same per token, and ROUGE-L, without texts, splits and endings. NLI scores of the authors (Deg, Ecc, EigV;
    Lin et al. 2023) are columns `score_<method>` of `questions`, as is `Stated`: 1 minus the confidence that the model
    stated with its most probable answer (the mean over its repeats), and 1 where it stated none.

    Raises:
        RunError: a file is missing or malformed, or samples of one question that have one log-probability and length
            differ in ROUGE-L, so that the files do not belong together; the sentence names file and question.
        ValueError: the name is none.
    """
    of = Name.of(name)
    files = of.files()
    for path in (files["rouge"], files["none_whitebox"]):
        if not path.is_file():
            raise RunError(f"{name}: {path.name} is not in {path.parent}; get it with: pro download {name}")
    entries = json_lines(files["none_whitebox"])
    likelihoods = [fitted(_ENTRIES["none_whitebox"], entry, where, RunError) for where, entry in entries]
    n, note = len(likelihoods), PUBLISHED
    questions = pd.DataFrame({"question_id": map(str, range(n)), "question": None, "references": None, "split": None})
    for kind in ("agreement", "disagreement"):
        said = _by_number(files, f"{kind}_blackbox", n)
        for field, method in _SCORES.items() if said else ():
            values = [getattr(said.get(number), field, np.nan) for number in range(n)]
            questions[f"score_{method}, NLI {kind}"] = values
    if said := _by_number(files, "disagreement_verbalized", n):
        stated = np.array([_stated(said.get(number), each) for number, each in enumerate(likelihoods)])
        questions["score_Stated"] = 1 - np.nan_to_num(stated)
        note += f" {np.isnan(stated).sum():,} of {n:,} questions state no confidence and count as least sure (Stated)."
    model, dataset = of.called
    info = RunInfo(dataset, model, "multinomial", provenance={"note": note})
    return Run(_answers(likelihoods, files), questions, info)


def _answers(likelihoods: list[Format], files: dict[str, Path]) -> pd.DataFrame:
    """A row for each sample, with the ROUGE-L of its question's entry; NaN for questions that have none."""
    rouge, parts = _by_number(files, "rouge", len(likelihoods)), []
    for number, said in enumerate(likelihoods):
        nll, per_token = said.unnormalized_nll, said.normalized_nll
        rouge_l = rouge[number].unnormalized_score if number in rouge else [np.nan] * len(nll)
        if not len(nll) == len(per_token) == len(rouge_l):
            counts = f"{len(nll)} log-probabilities, {len(per_token)} per token, {len(rouge_l)} of ROUGE-L"
            raise RunError(f"{files['none_whitebox'].name}, question {number}: {counts}")
        parts += zip([str(number)] * len(nll), range(len(nll)), nll, per_token, rouge_l, strict=True)
    table = pd.DataFrame(parts, columns=["question_id", "rank", "log_prob", "mean_log_prob", "rouge_l"])
    table[["log_prob", "mean_log_prob"]] = np.minimum(0, -table[["log_prob", "mean_log_prob"]])
    by_answer = table.groupby(["question_id", "log_prob", "mean_log_prob"], sort=False)["rouge_l"]
    if (differ := by_answer.max() > by_answer.min()).any():
        raise RunError(
            f"{files['rouge'].name}, question {differ.idxmax()[0]}: samples of equal log-probability and length "
            f"differ in ROUGE-L, so that it does not belong to {files['none_whitebox'].name}"
        )
    missing = {"text": None, "token_ids": None, "token_log_probs": None, "end_log_prob": np.nan}
    return table.assign(**missing, finished=True, closed=False)


def _stated(said: Format | None, likelihoods: Format) -> float:
    """The mean confidence stated with the most probable answer; NaN where none was."""
    nll, stated = likelihoods.unnormalized_nll, said.verbalized if said else ()
    given = [each for each, cost in zip(stated, nll, strict=False) if cost == min(nll) and each is not None]
    return sum(given) / len(given) if given else np.nan


def _by_number(files: dict[str, Path], kind: str, n: int) -> dict[int, Format]:
    """The entries of a file by the number of their question, one each; none where there is no such file."""
    found, places = {}, {}
    for where, value in json_lines(files[kind]) if files[kind].is_file() else ():
        entry = fitted(_ENTRIES[kind], value, where, RunError)
        number = entry.id if kind == "rouge" else entry.idx
        if not 0 <= number < n:
            raise RunError(f"{where}: question {number} is not one of the {n} that have log-probabilities")
        once(str(number), where, places)
        found[number] = entry
    return found
