"""Generate the parts of a run by workers on a Ray cluster."""

import logging
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from pro_lib.common.files import RunError
from pro_lib.common.validation import Chat, Engine, PositiveInt, checked, extra
from pro_lib.generation import models
from pro_lib.generation.batching import Job
from pro_lib.generation.models import Model
from pro_lib.runs import storage
from pro_lib.runs.storage import RunFolder, RunInfo

# A part may end this many workers and is tried again. If it ends one more, the run stops, because
# the fault is probably in the part and not in a machine.
MAX_RETRIES = 2


@checked
class WorkOptions:
    """Options of `generate` that are checked together.

    Most do not change the answers.
    """

    chat: Chat | None
    batch_size: PositiveInt | None
    engine: Engine
    n_workers: PositiveInt | None
    gpus_per_worker: PositiveInt


def generate_parts(
    parts: Mapping[str, pd.DataFrame],
    folder: RunFolder,
    job: Job,
    work: WorkOptions,
    bar: tqdm,
) -> dict[str, Any]:
    """Let Ray workers generate the parts of a run folder.

    The workers belong to the Ray cluster of this process if it has one, else to the cluster at
    RAY_ADDRESS, else to a cluster that is started for this call.

    Args:
        parts: the questions of each part, by its name.
        folder: the run folder.
        job: the job that a worker repeats.
        work: the numbers of workers and GPUs.
        bar: the progress bar.

    Returns:
        The provenance of the parts, and the number of workers.

    Raises:
        ValueError: the cluster has fewer GPUs than a worker needs.
        RunError: a part has ended too many workers.
    """
    with extra("ray", "engine='ray'"):
        import ray
    n_threads = torch.get_num_threads()
    with _cluster(ray, n_cpus=(work.n_workers or 1) * n_threads):
        gpus_per_worker, n_workers = _worker_numbers(ray, work)
        actor = ray.remote(
            num_gpus=gpus_per_worker,
            num_cpus=1 if gpus_per_worker else n_threads,
            max_restarts=-1,
            max_task_retries=MAX_RETRIES,
        )(Worker)
        arguments = (
            load_options(job.model, gpus_per_worker),
            job.model.fingerprint,
            (job.questions, job.strategy, job.chat, job.batch_size),
            n_threads,
            folder.path.resolve(),
            folder.info,
        )
        workers = [actor.remote(*arguments) for _ in range(min(n_workers, len(parts)))]
        provenance = _write_parts(ray, workers, parts, folder, bar)
    return {**provenance, "engine": "ray", "n_workers": n_workers}


def _cluster(ray: Any, *, n_cpus: int) -> AbstractContextManager:
    """Return the connection to a cluster, which is closed at the end if it is opened here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if ray.is_initialized():
        return nullcontext()
    # Without an address, Ray would look for a running cluster, which may be gone. Other machines
    # cannot reach a local cluster.
    address = os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        options |= {
            "num_cpus": n_cpus,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
        }
    return ray.init(address, **options)


def _worker_numbers(ray: Any, work: WorkOptions) -> tuple[int, int]:
    """Return how many GPUs each worker has, and how many workers there are."""
    n_gpus = int(ray.cluster_resources().get("GPU", 0))
    if 0 < n_gpus < work.gpus_per_worker:
        raise ValueError(
            f"gpus_per_worker={work.gpus_per_worker} is more than the {n_gpus} GPUs of the Ray "
            "cluster; lower it"
        )
    gpus_per_worker = min(n_gpus, work.gpus_per_worker)
    n_workers = work.n_workers or max(1, n_gpus // work.gpus_per_worker)
    return gpus_per_worker, n_workers


def _write_parts(
    ray: Any, workers: list[Any], parts: Mapping, folder: RunFolder, bar: tqdm
) -> dict[str, Any]:
    """Let the workers write the parts, then end the workers and return the provenance."""
    provenance: dict[str, Any] = {}
    pool = ray.util.ActorPool(workers)
    try:
        results = pool.map_unordered(lambda worker, part: worker.make.remote(*part), parts.items())
        for n_questions, part_provenance in results:
            provenance |= part_provenance
            bar.update(n_questions)
    except ray.exceptions.RayActorError as error:
        raise RunError(
            f"{folder.path}: {MAX_RETRIES + 1} workers ended, one after the other, while they made "
            f"the same part ({error}); their log says why, often a lack of memory"
        ) from error
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    finally:
        for worker in workers:
            ray.kill(worker)
    return provenance


def load_options(model: Model, n_gpus: int) -> dict[str, Any]:
    """Return the options of `load_model` that load a model on a worker as it is loaded here.

    Args:
        model: the model.
        n_gpus: the number of GPUs over which a worker spreads it; 0 for the device used here.
    """
    options = {
        "name": model.source,
        "dtype": model.dtype,
        "quantization": model.quantization,
        "trust_remote_code": type(model.network).__module__.startswith("transformers_modules."),
        **model.overrides,
    }
    if n_gpus:
        return options | {"device": "cuda", "device_map": "auto" if n_gpus > 1 else None}
    return options | {"device": model.device.type}


@dataclass
class Worker:
    """A Ray actor, which loads the model once, then answers parts and writes them.

    Args:
        load: the options of `load_model`.
        fingerprint: the fingerprint that the model must have.
        settings: the arguments of `Job` after the model.
        n_threads: the number of threads of torch.
        path: the run folder.
        info: the description of the run.
    """

    load: Mapping
    fingerprint: str
    settings: tuple
    n_threads: int
    path: Path
    info: RunInfo

    def __post_init__(self) -> None:
        """Set the number of threads."""
        torch.set_num_threads(self.n_threads)

    @cached_property
    def job(self) -> Job:
        """The job that answers the questions.

        The model is loaded for the first part.
        """
        model = models.load_model(**self.load)
        if model.fingerprint != self.fingerprint:
            raise RunError(
                f"model {model.source} on {os.uname().nodename} is not the model of this run: its "
                "files differ; copy the same files to every machine"
            )
        return Job(model, *self.settings)

    def make(self, name: str, questions: pd.DataFrame) -> tuple[int, dict[str, Any]]:
        """Write a part, and return its number of questions and its provenance.

        A part that exists was written by a worker that died before it could report it; it is kept.
        """
        if not storage.parts(self.path, name):
            storage.write_part(self.path, name, self.info, *self.job.part(questions))
        return len(questions), self.job.provenance()
