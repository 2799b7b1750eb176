"""Generate a run: the answers of a model to a question set."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from pro_lib import runs
from pro_lib.common import files
from pro_lib.common.validation import Engine, not_empty
from pro_lib.generation import models
from pro_lib.generation.batching import Job
from pro_lib.generation.decoding import strategies
from pro_lib.generation.models import Model
from pro_lib.generation.ray_workers import WorkOptions, generate_parts
from pro_lib.questions import question_sets
from pro_lib.questions.question_sets import QuestionSet
from pro_lib.runs import storage
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunFolder, RunInfo, join_parts

_log = logging.getLogger(__name__)
QUESTIONS_PER_PART = 256


def generate(
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
    """Answer the questions with the model and return the run of them, in their order.

    With `out`, the run is kept in `out/<dataset>/<model>/<strategy>/`, or in a folder named after the settings that are
    not as by default, `multinomial,n_answers=20`. What it holds is not asked again, and a stopped run is continued.

    Args:
        model: a loaded one, or its name, as in `pro_lib.load_model`; by name the last one loaded is held.
        questions: a set, or texts, which are asked without shots as the set `asked`.
        strategy: `greedy`, `multinomial` (samples), `diverse_beam` or `threshold` (exact search).
        batch_size: questions in one batch, 32 by default, on CUDA 128; one too large for memory is halved (a warning).
        chat: whether to ask in the chat template, or its options, as {"enable_thinking": False} or `date`, its today.
            None: where there are no shots and the model has a template.
        progress: whether to show a bar, on a terminal or in a notebook; logging says the rest.
        engine: `local`, or `ray`: by workers on a Ray cluster (docs/cluster.md), to the same tables.
        n_workers: workers of `ray`; None for as many as the cluster's GPUs serve, 1 if it has none.
        gpus_per_worker: GPUs of a worker of `ray`, over which its model is spread.
        settings: of the strategy, as `generation.decoding.strategies` has them: max_new_tokens (T; None for 32, in a
            chat 64), stop,
            n_answers (N), seed, temperature, top_p, diversity_penalty (λ), search_alpha (α), top_n, budget.

    Raises:
        ValueError: a setting out of its range, no questions, or a model that cannot see the longest prompt whole.
        MemoryError: a question does not fit into memory even alone.
        RunError: the folder's run was made otherwise, is being written, is damaged, or cannot be written.
    """
    work = WorkOptions(chat, batch_size, engine, n_workers, gpus_per_worker)
    not_empty(out, "out")
    if engine == "ray" and out is None:
        raise ValueError("engine='ray' needs out=, a folder that all workers can write to")
    model, questions = models.cached_model(model), question_sets.as_set(questions)
    if chat is None:  # with shots text is better, as measured
        chat = not questions.shots and bool(getattr(model.tokenizer, "chat_template", None))
    job = Job(
        model,
        questions,
        strategies.strategy(strategy, chat=chat, **settings),
        chat,
        batch_size or 0,
    )
    info = RunInfo(questions.name, model.name, strategy, job.parameters())
    provenance = {**job.provenance(), "questions": dict(questions.source)}
    # Drawn twice a second at most, however small the steps
    pace = {
        "smoothing": 0,
        "miniters": 0,
        "mininterval": 0.5,
    }
    bar = partial(tqdm, desc=f"{questions.name}, {model.name}, {strategy}", unit="question", **pace)
    if out is None:
        with bar(total=len(questions), disable=None if progress else True) as shown:
            table, cost = job.part(questions.table, shown)
        return Run(
            *join_parts([table]),
            replace(info, provenance=provenance, n_planned=len(questions), cost=cost),
        )
    name = files.folder_name(strategy, **job.strategy.changes(), **questions.changes(chat=chat))
    files.check_folder_name(model.name, "the name of the model")
    with RunFolder(Path(out) / questions.name / model.name / name, info) as folder:
        parts = folder.missing(
            questions.table, per_part=job.batch_size * -(-QUESTIONS_PER_PART // job.batch_size)
        )
        total = sum(map(len, parts.values()))
        _log.info(
            "%s: %d of %d questions are to be answered", folder.path, total, folder.info.n_planned
        )
        with bar(total=total, disable=None if progress and parts else True) as shown:
            if engine == "ray" and parts:
                provenance |= generate_parts(parts, folder, job, work, shown)
            else:
                for part, rows in parts.items():
                    _make_part(part, rows, folder, job, shown)
                    _log.info("%s: %s is written", folder.path, part)
        if not folder.info.provenance:
            folder.finish(provenance)
    return runs.read_run(folder.path, questions=questions.table)


def _make_part(name: str, questions: pd.DataFrame, folder: RunFolder, job: Job, bar: tqdm) -> None:
    """Answer the questions of a part and store them; those asked of a server as soon as each batch is answered."""
    if not job.model.is_remote:
        storage.write_part(folder.path, name, folder.info, *job.part(questions, bar))
        return
    with storage.Journal(folder.path, name, folder.info) as journal:
        for start in range(0, len(questions), job.batch_size):
            batch = questions.iloc[start : start + job.batch_size]
            journal.append(*job.part(batch, bar))
        journal.fold()
