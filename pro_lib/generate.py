"""From a model and questions to a run, kept in its folder; knows no score and not how answers are found."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tqdm.auto import tqdm

from pro_lib import cluster, files, models, runs, store
from pro_lib import questions as question_sets
from pro_lib.checks import Chat, Engine, PositiveInt, checked
from pro_lib.engine import strategies
from pro_lib.models import Model
from pro_lib.packs import QUESTIONS_PER_PACK, Job
from pro_lib.questions import QuestionSet
from pro_lib.runs import Run
from pro_lib.store import RunFolder, RunInfo, tables

_log = logging.getLogger(__name__)
QUESTIONS_PER_PART = 256
# Drawn twice a second at most, however small the steps.
_BAR = {"smoothing": 0, "miniters": 0, "mininterval": 0.5}


@checked
class _Work:
    """How the work is shared out, which decides no answer, and `chat`."""

    chat: Chat | None
    batch_size: PositiveInt | None
    engine: Engine
    n_workers: PositiveInt | None
    gpus_per_worker: PositiveInt


def generate(
    model: str | Path | Model,
    questions: QuestionSet | Sequence[str],
    *,
    strategy: str = "diverse_beam",
    out: str | Path | None = None,
    batch_size: int | None = None,
    chat: bool | Mapping[str, object] | None = None,
    progress: bool = True,
    engine: str = "local",
    n_workers: int | None = None,
    gpus_per_worker: int = 1,
    **settings: object,
) -> Run:
    """Answer the questions with the model and return the run of them, in their order.

    With `out`, the run is kept in `out/<dataset>/<model>/<strategy>/`: questions it already holds are not asked
    again, new ones are added, and a run that was stopped is continued to the same tables as an unbroken one. Settings,
    prompts and chat that are not by default have a folder named after them, `multinomial,n_answers=20,seed=3`.

    Args:
        model: a loaded one, or its name, as in `models.load`; by name the last one loaded is held.
        questions: a set, or texts, which are asked without shots as the set `asked`.
        strategy: `greedy` (one answer), `multinomial` (samples), `diverse_beam` (groups of one beam each) or
            `threshold` (exact search: every answer with p ≥ search_alpha, and the greedy one).
        batch_size: questions in one pack; None for 32. A pack that does not fit into memory is halved, with a warning;
            the answers then agree to 1e-5 with those of a run with more memory.
        chat: whether prompts are conversations in the model's chat template, the shots as earlier turns; or the
            template's options, as {"enable_thinking": False}, of which `date` is its today (2024-07-26). None: where
            there are no shots and the model has a template.
        progress: whether to show a bar, on a terminal or in a notebook; logging says the rest.
        engine: `local`, in this process, or `ray`: by workers on a Ray cluster (docs/cluster.md), to the same tables.
        n_workers: workers of `ray`; None for as many as the cluster's GPUs serve, 1 if it has none.
        gpus_per_worker: GPUs of a worker of `ray`, over which its model is spread, where the cluster has any.
        settings: of the strategy, as `engine.strategies` has them: max_new_tokens (T; None for 32, in a chat 64), stop,
            n_answers (N), seed, temperature, top_p, diversity_penalty (λ), search_alpha (α), top_n, budget. What only
            another strategy has is passed over.

    Raises:
        ValueError: a setting out of its range, no questions, or a model that cannot see the longest prompt whole.
        MemoryError: a question does not fit into memory even alone.
        RunError: the folder's run was made otherwise, is being written, is damaged, or cannot be written.
    """
    _Work(chat=chat, batch_size=batch_size, engine=engine, n_workers=n_workers, gpus_per_worker=gpus_per_worker)
    if engine == "ray" and out is None:
        raise ValueError("engine='ray' needs out=, a folder that all workers can write to")
    model, questions = models.held(model), question_sets.asked(questions)
    chat = model.chats(questions.shots) if chat is None else chat
    if settings.get("max_new_tokens") is None:
        settings["max_new_tokens"] = question_sets.usual_length(chat)
    per_pack = batch_size or QUESTIONS_PER_PACK
    job = Job(model, questions, strategies.strategy(strategy, **settings), chat, per_pack)
    info = RunInfo(questions.name, model.name, strategy, job.parameters())
    provenance = {**job.provenance(), "questions": dict(questions.source)}
    bar = partial(tqdm, desc=f"{questions.name}, {model.name}, {strategy}", unit="question", **_BAR)
    if out is None:
        with bar(total=len(questions), disable=None if progress else True) as shown:
            table, cost = job.part(questions.table, shown)
        return Run(*tables([table]), replace(info, provenance=provenance, n_planned=len(questions), cost=cost))
    name = files.named(strategy, **job.strategy.apart(), **questions.apart(chat=chat))
    with RunFolder(Path(out) / questions.name / model.name / name, info) as folder:
        parts = folder.missing(questions.table, per_part=per_pack * -(-QUESTIONS_PER_PART // per_pack))
        total = sum(map(len, parts.values()))
        _log.info("%s: %d of %d questions are to be answered", folder.path, total, folder.info.n_planned)
        with bar(total=total, disable=None if progress and parts else True) as shown:
            if engine == "ray" and parts:
                provenance |= cluster.make_parts(parts, folder, job.recipe(), n_workers, gpus_per_worker, shown)
            else:
                for part, rows in parts.items():
                    store.write_part(folder.path, part, folder.info, *job.part(rows, shown))
                    _log.info("%s: %s is written", folder.path, part)
        if parts or not folder.info.provenance:
            folder.finish(provenance)
    return runs.read(folder.path).asked_as(questions.table)
