"""Outputs of large models that others published, as runs; knows the layout of one repository, and no network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
from pydantic import Field

from pro_lib.base import bundled
from pro_lib.base.checks import Format, SentenceError, fitted
from pro_lib.imports.formats import json_lines, once
from pro_lib.runs import Run
from pro_lib.storage import RunError, RunInfo

COLLECTION = "rank-calibration"
# Published scores, by the field that holds them, under the names that methods have here.
_SCORES = {"degree_u": "Deg", "ecc_u": "Ecc", "spectral_u": "EigV"}
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Nll = Annotated[_Finite, Field(ge=-1e-4)]  # of sums in float32, as records may have them


class _Likelihoods(Format):
    unnormalized_nll: Annotated[list[_Nll], Field(min_length=1)]
    normalized_nll: list[_Nll]


class _Rouge(Format):
    id: int
    unnormalized_score: list[_Share]


class _Meanings(Format):
    idx: int
    degree_u: _Finite
    ecc_u: _Finite
    spectral_u: _Finite


class _Stated(Format):
    idx: int
    verbalized: list[_Share | None]


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
        return cls(*(part for part in found.groups() if part))

    def files(self) -> dict[str, str]:
        """The files of a setting by what they hold; the last three may be missing."""
        setting = f"{self.model}_{self.dataset}_{self.temperature}"
        kinds = "none_whitebox", "agreement_blackbox", "disagreement_blackbox", "disagreement_verbalized"
        return {"rouge": f"{setting}_rouge.json"} | {kind: f"calibrate_{setting}_{kind}.json" for kind in kinds}


def is_published(name: str) -> bool:
    """Whether this is the name of published outputs, and not a file."""
    return name.startswith(f"{COLLECTION}/") and not Path(name).is_file()


def folder() -> Path:
    """Where published files are kept: in the checkout, else in the working folder; never part of the repository."""
    return bundled.HOME / "data" / "published" / COLLECTION


def find(name: str) -> dict[str, Path]:
    """The files of a setting that are there. Raises `RunError`, saying what to type, where it cannot be read."""
    found = {kind: folder() / file for kind, file in Name.of(name).files().items()}
    for kind in ("rouge", "none_whitebox"):
        if not found[kind].is_file():
            raise RunError(f"{name}: {found[kind].name} is not in {folder()}; get it with: pro download {name}")
    return {kind: path for kind, path in found.items() if path.is_file()}


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
    of, found = Name.of(name), find(name)
    likelihoods = [fitted(_Likelihoods, entry, where, RunError) for where, entry in _entries(found, "none_whitebox")]
    n = len(likelihoods)
    questions = pd.DataFrame({"question_id": map(str, range(n)), "question": None, "references": None, "split": None})
    for kind in ("agreement", "disagreement"):
        said = _by_number(found, f"{kind}_blackbox", _Meanings, n)
        for field, method in _SCORES.items() if said else ():
            values = [getattr(said.get(number), field, np.nan) for number in range(n)]
            questions[f"score_{method}, NLI {kind}"] = values
    note = (
        f"Published samples at temperature {of.temperature}, no texts: paper keeps repeats, workbench counts "
        "answers of equal log-probability and length once. Endings are unknown; no bound of the entropy is claimed."
    )
    if said := _by_number(found, "disagreement_verbalized", _Stated, n):
        stated = np.array([_stated(said.get(number), each) for number, each in enumerate(likelihoods)])
        questions["score_Stated"] = 1 - np.nan_to_num(stated)
        note += f" {np.isnan(stated).sum():,} of {n:,} questions state no confidence and count as least sure (Stated)."
    model = of.model if of.temperature == "1.0" else f"{of.model} at {of.temperature}"
    info = RunInfo(of.dataset, model, "multinomial", provenance={"note": note})
    return Run(_answers(likelihoods, found), questions, info)


def _answers(likelihoods: list[_Likelihoods], found: dict[str, Path]) -> pd.DataFrame:
    """A row for each sample, with the ROUGE-L of its question's entry; NaN for questions that have none."""
    rouge, parts = _by_number(found, "rouge", _Rouge, len(likelihoods)), []
    for number, said in enumerate(likelihoods):
        nll, per_token = said.unnormalized_nll, said.normalized_nll
        rouge_l = rouge[number].unnormalized_score if number in rouge else [np.nan] * len(nll)
        if not len(nll) == len(per_token) == len(rouge_l):
            counts = f"{len(nll)} log-probabilities, {len(per_token)} per token, {len(rouge_l)} of ROUGE-L"
            raise RunError(f"{found['none_whitebox']}, question {number}: {counts}")
        parts += zip([str(number)] * len(nll), range(len(nll)), nll, per_token, rouge_l, strict=True)
    table = pd.DataFrame(parts, columns=["question_id", "rank", "log_prob", "mean_log_prob", "rouge_l"])
    table[["log_prob", "mean_log_prob"]] = np.minimum(0, -table[["log_prob", "mean_log_prob"]])
    by_answer = table.groupby(["question_id", "log_prob", "mean_log_prob"], sort=False)["rouge_l"]
    differ = by_answer.max() > by_answer.min()
    if differ.any():
        raise RunError(
            f"{found['rouge']}, question {differ.idxmax()[0]}: samples of equal log-probability and length differ in "
            f"ROUGE-L, so that it does not belong to {found['none_whitebox'].name}"
        )
    missing = {"text": None, "token_ids": None, "token_log_probs": None, "end_log_prob": np.nan}
    return table.assign(**missing, finished=True, closed=False)


def _stated(said: _Stated | None, likelihoods: _Likelihoods) -> float:
    """The mean confidence stated with the most probable answer; NaN where none was."""
    nll = likelihoods.unnormalized_nll
    given = [each for each, cost in zip(said.verbalized, nll, strict=False) if cost == min(nll)] if said else []
    given = [each for each in given if each is not None]
    return sum(given) / len(given) if given else np.nan


def _entries(found: dict[str, Path], kind: str) -> Iterator[tuple[str, dict]]:
    return json_lines(found[kind]) if kind in found else iter(())


def _by_number(found: dict[str, Path], kind: str, declared: type[Format], n: int) -> dict[int, Format]:
    """The entries of a file by the number of their question, one each."""
    entries, places = {}, {}
    for where, value in _entries(found, kind):
        entry = fitted(declared, value, where, RunError)
        number = entry.id if isinstance(entry, _Rouge) else entry.idx
        if not 0 <= number < n:
            raise RunError(f"{where}: question {number} is not one of the {n} that have log-probabilities")
        once(str(number), where, places)
        entries[number] = entry
    return entries
