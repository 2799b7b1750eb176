"""Check that a strategy, the records or the notebook uses every parameter that is given."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pro_lib.app.parameters import (
    N_ANSWERS,
    SAMPLES,
    Parameters,
    as_list,
    default_values,
    same_value,
)
from pro_lib.app.recorded_answers import read_records, recorded_pairs
from pro_lib.generation.decoding.strategies import STRATEGIES
from pro_lib.questions import question_sets

_STRATEGY_PARAMETERS = (
    "search_alpha",
    "temperature",
    "top_p",
    "diversity_penalty",
    "n_answers",
    "max_new_tokens",
    "stop",
)
# Parameters that decide how answers are generated. Records do not use them.
_GENERATION_PARAMETERS = (
    *("model", "device", "dtype", "loading"),
    *("n_shots", "header", "template", "chat"),
    *_STRATEGY_PARAMETERS,
    *("strategy", "batch_size", "engine", "n_workers"),
)
# Parameters that every notebook uses.
USED_BY_EVERY_NOTEBOOK = (
    *_GENERATION_PARAMETERS,
    "dataset",
    "split",
    "columns",
    "strict",
    "limit",
    "records",
    "generations_dir",
    "figures_dir",
    "figure_columns",
)


def check_use(parameters: Parameters) -> None:
    """Raise a `ValueError` that names the first changed parameter that nothing uses.

    A parameter is changed if its value is not the default; in a notebook, if it is not the value
    that the notebook comes with.
    """
    for name in _changed_names(parameters):
        reason = _why_unused(parameters, name)
        if reason:
            value = getattr(parameters, name)
            shown = str(value) if isinstance(value, Path) else value
            raise ValueError(f"{name}={shown!r} {reason}")


def _changed_names(parameters: Parameters) -> Sequence[str]:
    if parameters.use is not None:
        return parameters.use.changed
    defaults = default_values()
    return [name for name in defaults if not same_value(getattr(parameters, name), defaults[name])]


def _why_unused(parameters: Parameters, name: str) -> str | None:
    """Return why nothing uses a parameter, or None if something uses it or may use it elsewhere."""
    uses = None if parameters.use is None else parameters.use.uses
    if uses is not None and name in uses:
        return None
    if parameters.records is not None:
        reason = _why_unused_with_records(parameters, name)
    else:
        reason = _why_unused_by_strategies(parameters, name)
    if reason is not None:
        return reason
    if _needs_question_file(parameters, name) and not _question_files(parameters):
        return "has no effect: it is about a question file, and dataset names none"
    if name == "n_workers" and parameters.engine == "local":
        return "has no effect: only engine='ray' has workers"
    return None if uses is None else _why_unused_by_notebook(parameters, name, uses)


def _why_unused_with_records(parameters: Parameters, name: str) -> str | None:
    if name == "dataset":
        return _why_no_question_file(as_list(parameters.dataset))
    if name == "n_answers" or name not in (*_GENERATION_PARAMETERS, "generations_dir"):
        return None
    if name in ("device", "generations_dir") and _uses_nli(parameters):
        return None
    return f"has no effect: the answers come from records={parameters.records!r}; remove it"


def _why_no_question_file(datasets: Sequence[str]) -> str | None:
    if len(datasets) > 1:
        return "cannot be used beside records: give one file of questions"
    if not os.path.isfile(datasets[0]):
        return "is not a file; beside records, dataset must be a file of their questions"
    return None


def _uses_nli(parameters: Parameters) -> bool:
    return any(name not in ("lexical", "alias") for name in as_list(parameters.similarity))


def _why_unused_by_strategies(parameters: Parameters, name: str) -> str | None:
    if name not in _STRATEGY_PARAMETERS:
        return None
    if name == "n_answers" and parameters.n_answers == N_ANSWERS:
        return None
    users = []
    for strategy, kind in STRATEGIES.items():
        if name in [field.name for field in fields(kind)]:
            users.append(strategy)
    strategies = list(dict.fromkeys((parameters.strategy, *parameters.other_strategies)))
    if set(strategies).intersection(users):
        return None
    if len(strategies) > 1:
        subject = f"strategies {', '.join(strategies)} do"
    else:
        subject = f"strategy {parameters.strategy} does"
    return f"has no effect: {subject} not use it; it is a parameter of {' and '.join(users)}"


def _why_unused_by_notebook(parameters: Parameters, name: str, uses: Sequence[str]) -> str | None:
    if name in USED_BY_EVERY_NOTEBOOK:
        return None
    if name == "seed":
        if _draws_at_random(parameters, uses):
            return None
        return "has no effect: nothing is drawn at random, neither questions (limit) nor samples"
    if name == "n_validation":
        if _splits_records(parameters) or _splits_question_files(parameters):
            return None
        reason = "this notebook does not choose alpha, and the questions have a validation split"
        return f"has no effect: {reason}"
    others = "beside its models, questions and answers"
    return f"is not used by this notebook; {others} it uses {', '.join(uses)}"


def _draws_at_random(parameters: Parameters, uses: Sequence[str]) -> bool:
    """Return whether questions, validation questions or samples are drawn with the seed."""
    if parameters.limit is not None:
        return True
    strategies = (parameters.strategy, *parameters.other_strategies)
    if SAMPLES in strategies and parameters.records is None:
        return True
    if "n_validation" in uses and parameters.n_validation is not None:
        return True
    return _splits_records(parameters)


def _splits_records(parameters: Parameters) -> bool:
    """Return whether some records have no splits, so that validation questions are drawn."""
    if parameters.records is None:
        return False
    # The warnings are raised when the records are read for their answers.
    with warnings.catch_warnings(action="ignore"):
        tables = [read_records(parameters, *pair).questions for pair in recorded_pairs(parameters)]
    return any(table["split"].isna().any() for table in tables)


def _splits_question_files(parameters: Parameters) -> bool:
    """Return whether some question file has no validation split, so that one is drawn from it."""
    if parameters.records is not None:
        return False
    paths = _question_files(parameters)
    options: dict[str, Any] = {
        "columns": parameters.columns,
        "strict": parameters.strict,
        "n_shots": 0,
    }
    with warnings.catch_warnings(action="ignore"):
        sets = [question_sets.load_questions(path=path, split=None, **options) for path in paths]
    return any("validation" not in set(questions.table["split"]) for questions in sets)


def _needs_question_file(parameters: Parameters, name: str) -> bool:
    """Return whether a parameter is about question files alone.

    `strict` is about records too.
    """
    return name == "columns" or (name == "strict" and parameters.records is None)


def _question_files(parameters: Parameters) -> list[str]:
    return [path for path in as_list(parameters.dataset) if os.path.isfile(path)]
