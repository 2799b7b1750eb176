"""Generate a run: the answers of a model to a question set."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from pro_lib import runs
from pro_lib.common.files import RunError
from pro_lib.common.validation import Engine, not_empty
from pro_lib.generation import models
from pro_lib.generation.batching import Job
from pro_lib.generation.decoding import strategies
from pro_lib.generation.models import Model
from pro_lib.generation.ray_workers import WorkOptions, generate_parts
from pro_lib.generation.stored_runs import run_folder
from pro_lib.questions import question_sets
from pro_lib.questions.question_sets import QuestionSet
from pro_lib.runs import storage
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunFolder, RunInfo, join_parts

_log = logging.getLogger(__name__)
QUESTIONS_PER_PART = 256


def generate(  # noqa: PLR0913  # public; these parameters do not depend on the strategy
    model: str | Path | Model,
    questions: QuestionSet | Sequence[str],
    *,
    strategy: str = "diverse_beam",
    out: str | Path | None = None,
    batch_size: int | None = None,
    chat: bool | Mapping[str, Any] | None = None,
    progress: bool = True,
    engine: Engine = "local",
    n_workers: int | None = None,
    gpus_per_worker: int = 1,
    **settings: Any,
) -> Run:
    """Answer questions with a model.

    Args:
        model: a loaded model, or a name as in `load_model`. The last model that was loaded by name
            is kept.
        questions: a question set, or texts, which become the set `asked` without shots.
        strategy: `greedy`, `multinomial` (samples), `diverse_beam` or `threshold` (exact search).
        out: the folder of runs; None to store nothing. The run is stored in
            `out/<dataset>/<model>/<strategy>/`. The last name also contains the settings that are
            not at their defaults, such as `multinomial,n_answers=20`. Questions whose answers are
            stored there are not asked again, so a stopped run continues.
        batch_size: questions in one batch; None for 32, or 128 on CUDA. A batch that does not fit
            into memory is halved with a warning.
        chat: whether prompts use the chat template, or the options of the template, such as
            `{"enable_thinking": False}`, or `date`, the day that it takes for today. None uses the
            template if the model has one and the questions have no shots.
        progress: whether to show a progress bar on a terminal or in a notebook. Messages about the
            parts of the run are logged.
        engine: `local`, or `ray` for workers on a Ray cluster
            (docs/how_to/run_on_a_cluster.md). The tables are the same.
        n_workers: the number of Ray workers; None for as many as the GPUs of the cluster allow, or
            1 if it does not have a GPU.
        gpus_per_worker: the number of GPUs over which each Ray worker spreads its model.
        **settings: settings of the strategy (`generation.decoding.strategies`): max_new_tokens (T;
            None for 32, or 64 with the chat template), stop, n_answers (N), seed, temperature,
            top_p, diversity_penalty (λ), search_alpha (α), top_n and budget.

    Returns:
        The run, with the answers in the order of the questions. Log-probabilities are in nats.

    Raises:
        ValueError: a setting is out of its range, there are no questions, or a prompt is too long
            for the model.
        MemoryError: a question does not fit into memory even alone.
        RunError: the run in the folder has other settings, is being written or is damaged, or the
            folder cannot be written.

    Example:
        >>> from pro_lib import generate
        >>> run = generate("facts-1m", ["What is the capital of Peru?"], strategy="greedy")
        >>> len(run.answers)
        1
    """
    work = WorkOptions(chat, batch_size, engine, n_workers, gpus_per_worker)
    not_empty(out, "out")
    if engine == "ray" and out is None:
        raise ValueError("engine='ray' needs out=, a folder that all workers can write to")
    model = models.cached_model(model)
    questions = question_sets.as_set(questions)
    if chat is None:  # prompts with shots give better answers as plain text
        chat = not questions.shots and bool(getattr(model.tokenizer, "chat_template", None))
    settled_strategy = strategies.strategy(strategy, chat=chat, **settings)
    job = Job(model, questions, settled_strategy, chat, batch_size or 0)
    info = RunInfo(questions.name, model.name, strategy, job.parameters())
    provenance = {**job.provenance(), "questions": dict(questions.source)}
    if out is None:
        return _generate_in_memory(job, info, provenance, progress=progress)
    path = run_folder(out, model.name, questions, settled_strategy, chat=chat)
    with RunFolder(path, info) as folder:
        provenance |= _generate_missing_parts(job, work, folder, progress=progress)
        folder.finish(provenance, questions.table, questions.source)
    return runs.read_run(folder.path, questions=questions.table)


def _progress_bar(info: RunInfo, n_questions: int, *, is_shown: bool) -> tqdm:
    """Return a progress bar, which is drawn at most twice a second and only on a terminal."""
    return tqdm(
        desc=f"{info.dataset}, {info.model}, {info.strategy}",
        unit="question",
        total=n_questions,
        disable=None if is_shown else True,
        smoothing=0,
        miniters=0,
        mininterval=0.5,
    )


def _generate_in_memory(
    job: Job, info: RunInfo, provenance: Mapping[str, Any], *, progress: bool
) -> Run:
    """Return the run of a job without storing it."""
    table = job.questions.table
    with _progress_bar(info, len(table), is_shown=progress) as bar:
        part, cost = job.part(table, bar)
    _check_server(job, info)
    answers, questions = join_parts([part])
    complete_info = replace(info, provenance=provenance, n_planned=len(table), cost=cost)
    return Run(answers, questions, complete_info)


def _generate_missing_parts(
    job: Job, work: WorkOptions, folder: RunFolder, *, progress: bool
) -> dict[str, Any]:
    """Write the parts of a run that its folder does not have yet."""
    batches_per_part = math.ceil(QUESTIONS_PER_PART / job.batch_size)
    parts = folder.missing(job.questions.table, per_part=job.batch_size * batches_per_part)
    n_questions = sum(map(len, parts.values()))
    message = "%s: %d of %d questions are to be answered"
    _log.info(message, folder.path, n_questions, folder.info.n_planned)
    is_shown = progress and bool(parts)
    with _progress_bar(folder.info, n_questions, is_shown=is_shown) as bar:
        if work.engine == "ray" and parts:
            return generate_parts(parts, folder, job, work, bar)
        for name, questions in parts.items():
            _write_part(name, questions, folder, job, bar)
            _log.info("%s: %s is written", folder.path, name)
    return {}


def _write_part(name: str, questions: pd.DataFrame, folder: RunFolder, job: Job, bar: tqdm) -> None:
    """Answer the questions of a part and store them."""
    # Answers of a server are stored after each batch, and deleted if the server has changed
    # meanwhile.
    if not job.model.is_remote:
        storage.write_part(folder.path, name, folder.info, *job.part(questions, bar))
        return
    for start in range(0, len(questions), job.batch_size):
        batch = questions.iloc[start : start + job.batch_size]
        storage.write_part(folder.path, f"{name}.{start:05}", folder.info, *job.part(batch, bar))
    try:
        _check_server(job, folder.info)
    except RunError:
        for piece in folder.path.glob(f"{name}.*"):
            piece.unlink()
        raise


def _check_server(job: Job, info: RunInfo) -> None:
    """Raise `RunError` if the server has changed since the run began."""
    change = job.model.change_since(info.parameters)
    if not change:
        return
    raise RunError(
        f"{job.model.source} changed while it answered: {change}; the answers since the last check "
        "are not used, so repeat the call when the server is as before"
    )
