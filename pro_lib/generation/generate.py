"""From a model and questions to a run, by this process or by workers on a Ray cluster; knows no score, no decoding."""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from pro_lib import runs
from pro_lib.common import files
from pro_lib.common.files import RunError
from pro_lib.common.validation import Chat, Engine, PositiveInt, checked, extra, not_empty
from pro_lib.generation import models
from pro_lib.generation.batching import Job
from pro_lib.generation.decoding import strategies
from pro_lib.generation.models import Model
from pro_lib.questions import question_sets
from pro_lib.questions.question_sets import QuestionSet
from pro_lib.runs import storage
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunFolder, RunInfo, tables

_log = logging.getLogger(__name__)
QUESTIONS_PER_PART = 256
# A run stops when more workers than that have died over one part: the fault is then the part's, not a machine's.
_TRIES_AGAIN = 2


@checked
class _Work:
    """How the work is done and shared out, as far as types tell whether it can be."""

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
        batch_size: questions in one pack, 32 by default, on CUDA 128; one too large for memory is halved (a warning).
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
    work = _Work(chat, batch_size, engine, n_workers, gpus_per_worker)
    not_empty(out, "out")
    if engine == "ray" and out is None:
        raise ValueError("engine='ray' needs out=, a folder that all workers can write to")
    model, questions = models.held(model), question_sets.as_set(questions)
    if chat is None:  # with shots text is better, as measured
        chat = not questions.shots and bool(getattr(model.tokenizer, "chat_template", None))
    job = Job(model, questions, strategies.strategy(strategy, chat=chat, **settings), chat, batch_size or 0)
    info = RunInfo(questions.name, model.name, strategy, job.parameters())
    provenance = {**job.provenance(), "questions": dict(questions.source)}
    pace = {"smoothing": 0, "miniters": 0, "mininterval": 0.5}  # drawn twice a second at most, however small the steps
    bar = partial(tqdm, desc=f"{questions.name}, {model.name}, {strategy}", unit="question", **pace)
    if out is None:
        with bar(total=len(questions), disable=None if progress else True) as shown:
            table, cost = job.part(questions.table, shown)
        return Run(*tables([table]), replace(info, provenance=provenance, n_planned=len(questions), cost=cost))
    name = files.folder_name(strategy, **job.strategy.changes(), **questions.changes(chat=chat))
    files.check_folder_name(model.name, "the name of the model")
    with RunFolder(Path(out) / questions.name / model.name / name, info) as folder:
        parts = folder.missing(questions.table, per_part=job.per_pack * -(-QUESTIONS_PER_PART // job.per_pack))
        total = sum(map(len, parts.values()))
        _log.info("%s: %d of %d questions are to be answered", folder.path, total, folder.info.n_planned)
        with bar(total=total, disable=None if progress and parts else True) as shown:
            if engine == "ray" and parts:
                provenance |= _made_by_workers(parts, folder, job, work, shown)
            else:
                for part, rows in parts.items():
                    _make_part(part, rows, folder, job, shown)
                    _log.info("%s: %s is written", folder.path, part)
        if not folder.info.provenance:
            folder.finish(provenance)
    return runs.read(folder.path, questions=questions.table)


def _make_part(name: str, questions: pd.DataFrame, folder: RunFolder, job: Job, bar: tqdm) -> None:
    """Answer the questions of a part and store them; those asked of a server as soon as each batch is answered."""
    if not job.model.is_remote:
        storage.write_part(folder.path, name, folder.info, *job.part(questions, bar))
        return
    with storage.Journal(folder.path, name, folder.info) as journal:
        for start in range(0, len(questions), job.per_pack):
            batch = questions.iloc[start : start + job.per_pack]
            journal.append(*job.part(batch, bar))
        journal.fold()


def _made_by_workers(parts: Mapping, folder: RunFolder, job: Job, work: _Work, bar: tqdm) -> dict[str, Any]:
    """Have the parts of a run folder made by Ray actors; return where and by how many.

    They are of the Ray cluster of this process, else of that of RAY_ADDRESS, else of one for the time being.
    """
    with extra("ray", "engine='ray'"):
        import ray
    provenance, cpus = dict[str, Any](), torch.get_num_threads()  # of an actor without a GPU
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # A cluster is not looked for, since what Ray remembers may be gone; one of our own is reached by nobody else.
    address = os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        options.update(num_cpus=(work.n_workers or 1) * cpus, include_dashboard=False, _node_ip_address="127.0.0.1")
    with nullcontext() if ray.is_initialized() else ray.init(address, **options):
        gpus = int(ray.cluster_resources().get("GPU", 0))
        if 0 < gpus < work.gpus_per_worker:
            raise ValueError(f"gpus_per_worker={work.gpus_per_worker}, but the Ray cluster has {gpus} in all")
        gpus, n_workers = min(gpus, work.gpus_per_worker), work.n_workers or max(1, gpus // work.gpus_per_worker)
        resources: dict[str, Any] = {"num_gpus": gpus, "num_cpus": 1 if gpus else cpus}
        actor = ray.remote(**resources, max_restarts=-1, max_task_retries=_TRIES_AGAIN)(_Worker)
        settings = (job.questions, job.strategy, job.chat, job.per_pack)
        arguments = (_load_options(job.model, gpus), job.model.fingerprint, settings, cpus, folder.path.resolve())
        workers: list[Any] = [actor.remote(*arguments, folder.info) for _ in range(min(n_workers, len(parts)))]
        pool: Any = ray.util.ActorPool(workers)
        try:
            for n, where in pool.map_unordered(lambda worker, part: worker.make.remote(*part), parts.items()):
                provenance |= where
                bar.update(n)
        except ray.exceptions.RayActorError as error:
            raise RunError(f"{folder.path}: a part has ended {_TRIES_AGAIN + 1} workers ({error})") from error
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        finally:
            for worker in workers:
                ray.kill(worker)
    return {**provenance, "engine": "ray", "n_workers": n_workers}


def _load_options(model: Model, gpus: int) -> dict[str, Any]:
    """Return what loads a model as it was loaded here, on another machine or over so many GPUs."""
    own_code = type(model.network).__module__.startswith("transformers_modules.")
    same = {"name": model.source, "dtype": model.dtype, "quantization": model.quantization}
    placed = {"device": "cuda", "device_map": "auto" if gpus > 1 else None} if gpus else {"device": model.device.type}
    return same | placed | {"trust_remote_code": own_code}


class _Worker:
    """An actor: makes its job once, then answers part after part and writes each into the run folder."""

    def __init__(self, load: Mapping, fingerprint: str, settings: tuple, n_threads: int, path: Path, info: RunInfo):
        self.load, self.fingerprint, self.settings, self.path, self.info = load, fingerprint, settings, path, info
        torch.set_num_threads(n_threads)

    @cached_property
    def job(self) -> Job:
        """What answers the questions, made when the first part is begun."""
        model = models.load(**self.load)
        if model.fingerprint != self.fingerprint:
            raise RunError(f"model {model.source} on {os.uname().nodename} is not the one asked for: its files differ")
        return Job(model, *self.settings)

    def make(self, name: str, questions: pd.DataFrame) -> tuple[int, dict[str, Any]]:
        """Make a part, unless a worker has that died before it could say so; return its size and where it was made."""
        if not storage.parts(self.path, name):
            storage.write_part(self.path, name, self.info, *self.job.part(questions))
        return len(questions), self.job.provenance()
