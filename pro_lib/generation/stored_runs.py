"""Where a run is stored, and the stored run of some questions, read without their model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pro_lib import runs
from pro_lib.common import catalog, files
from pro_lib.generation.decoding import strategies
from pro_lib.generation.decoding.strategies import Strategy
from pro_lib.generation.precision import resolved_dtype
from pro_lib.questions.question_sets import QuestionSet
from pro_lib.runs import storage
from pro_lib.runs.parameters import difference
from pro_lib.runs.run import Run

if TYPE_CHECKING:
    from pro_lib.generation.models import Model


def run_folder(
    out: str | Path,
    model_name: str,
    questions: QuestionSet,
    strategy: Strategy,
    *,
    chat: bool | Mapping[str, Any],
) -> Path:
    """Return the folder of a run below `out`; the last name has the settings that are changed."""
    files.check_folder_name(model_name, "the name of the model")
    changes = strategy.changes() | questions.changes(chat=chat)
    folder_name = files.folder_name(strategy.name, **changes)
    return Path(out) / questions.name / model_name / folder_name


def stored_run(
    model: str | Model,
    questions: QuestionSet,
    *,
    strategy: str,
    out: str | Path,
    chat: bool | Mapping[str, Any] | None = None,
    dtype: str = "auto",
    device: str = "auto",
    **settings: Any,
) -> Run | None:
    """Return the run that `generate` has stored for these questions, without loading the model.

    Args:
        model: the name of a model that would be loaded without options, or a loaded model.
        questions: the questions, all of which must have answers.
        strategy: the name of the strategy.
        out: the folder of runs.
        chat: as in `generate`.
        dtype: the precision in which the model would be loaded.
        device: the device on which it would be loaded.
        **settings: settings of the strategy.

    Returns:
        The run; None if there is no such run, or if this is unknown without the model.

    Raises:
        RunError: the run was made with another precision than `dtype="auto"` means here.
    """
    if chat is None and not questions.shots:
        return None  # the model decides
    chat = False if chat is None else chat
    decoder = strategies.strategy(strategy, chat=chat, **settings)
    name = catalog.model_folder_name(model) if isinstance(model, str) else model.name
    folder = run_folder(out, name, questions, decoder, chat=chat)
    if not storage.parts(folder):
        return None
    parameters = storage.read_info(folder).parameters
    # A model that is loaded without options has none of these.
    absent = dict.fromkeys(("chat", "quantization", "loading", "server"))
    required: dict[str, Any] = {**parameters, **absent}
    required |= decoder.parameters() | questions.parameters(chat=chat)
    stored_dtype: Any = parameters.get("dtype")
    dtype_here = stored_dtype
    if isinstance(model, str):
        dtype_here = resolved_dtype(model, dtype=dtype, device=device)
        fingerprint = catalog.known_fingerprint(catalog.locate(model))
        required["fingerprint"] = fingerprint or parameters.get("fingerprint")
    else:
        required |= model.parameters()
    if difference(parameters, required):
        return None
    if stored_dtype != dtype_here:
        if dtype != "auto":
            return None
        raise files.RunError(
            f"run folder {folder} was made with dtype={stored_dtype!r}, but dtype='auto' is "
            f"{dtype_here} here; set dtype={stored_dtype!r} to read it, or choose another folder "
            "(generations_dir)"
        )
    try:
        return runs.read_run(folder, questions=questions.table)
    except storage.UnansweredError:
        return None  # the other questions are generated
