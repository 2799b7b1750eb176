"""Generate the parts of a run by workers on a Ray cluster."""

import logging
import os
from collections.abc import Mapping
from contextlib import nullcontext
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

# A run stops when more workers than that have died over one part: the fault is then the part's, not a machine's.
MAX_RETRIES = 2


@checked
class WorkOptions:
    """How the work is done: the options of `generate` that do not decide the answers."""

    chat: Chat | None
    batch_size: PositiveInt | None
    engine: Engine
    n_workers: PositiveInt | None
    gpus_per_worker: PositiveInt


def generate_parts(
    parts: Mapping, folder: RunFolder, job: Job, work: WorkOptions, bar: tqdm
) -> dict[str, Any]:
    """Have Ray workers generate the parts of a run folder; return where and by how many workers.

    The workers belong to the Ray cluster of this process, else to the cluster at RAY_ADDRESS, else to a cluster that is
    started for this call.
    """
    with extra("ray", "engine='ray'"):
        import ray
    provenance, cpus = dict[str, Any](), torch.get_num_threads()  # of an actor without a GPU
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # A cluster is not looked for, since what Ray remembers may be gone; one of our own is reached by nobody else.
    address = os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        options.update(
            num_cpus=(work.n_workers or 1) * cpus,
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
        )
    with nullcontext() if ray.is_initialized() else ray.init(address, **options):
        gpus = int(ray.cluster_resources().get("GPU", 0))
        if 0 < gpus < work.gpus_per_worker:
            raise ValueError(
                f"gpus_per_worker={work.gpus_per_worker}, but the Ray cluster has {gpus} in all"
            )
        gpus, n_workers = (
            min(gpus, work.gpus_per_worker),
            work.n_workers or max(1, gpus // work.gpus_per_worker),
        )
        resources: dict[str, Any] = {"num_gpus": gpus, "num_cpus": 1 if gpus else cpus}
        actor = ray.remote(**resources, max_restarts=-1, max_task_retries=MAX_RETRIES)(Worker)
        settings = (job.questions, job.strategy, job.chat, job.batch_size)
        arguments = (
            load_options(job.model, gpus),
            job.model.fingerprint,
            settings,
            cpus,
            folder.path.resolve(),
        )
        workers: list[Any] = [
            actor.remote(*arguments, folder.info) for _ in range(min(n_workers, len(parts)))
        ]
        pool: Any = ray.util.ActorPool(workers)
        try:
            for n, where in pool.map_unordered(
                lambda worker, part: worker.make.remote(*part), parts.items()
            ):
                provenance |= where
                bar.update(n)
        except ray.exceptions.RayActorError as error:
            raise RunError(
                f"{folder.path}: a part has ended {MAX_RETRIES + 1} workers ({error})"
            ) from error
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        finally:
            for worker in workers:
                ray.kill(worker)
    return {**provenance, "engine": "ray", "n_workers": n_workers}


def load_options(model: Model, gpus: int) -> dict[str, Any]:
    """Return the options that load a model on another machine as it was loaded here, over `gpus` GPUs."""
    own_code = type(model.network).__module__.startswith("transformers_modules.")
    same = {"name": model.source, "dtype": model.dtype, "quantization": model.quantization}
    placed = (
        {"device": "cuda", "device_map": "auto" if gpus > 1 else None}
        if gpus
        else {"device": model.device.type}
    )
    return same | placed | {"trust_remote_code": own_code}


class Worker:
    """A Ray actor: it loads the model once, then answers part after part and writes each into the run folder."""

    def __init__(
        self,
        load: Mapping,
        fingerprint: str,
        settings: tuple,
        n_threads: int,
        path: Path,
        info: RunInfo,
    ):
        self.load, self.fingerprint, self.settings, self.path, self.info = (
            load,
            fingerprint,
            settings,
            path,
            info,
        )
        torch.set_num_threads(n_threads)

    @cached_property
    def job(self) -> Job:
        """The job that answers the questions; the model is loaded at the first part."""
        model = models.load_model(**self.load)
        if model.fingerprint != self.fingerprint:
            raise RunError(
                f"model {model.source} on {os.uname().nodename} is not the one asked for: its files differ"
            )
        return Job(model, *self.settings)

    def make(self, name: str, questions: pd.DataFrame) -> tuple[int, dict[str, Any]]:
        """Write a part and return its size and provenance.

        A part that exists was written by a worker that died before it could report it; it is kept.
        """
        if not storage.parts(self.path, name):
            storage.write_part(self.path, name, self.info, *self.job.part(questions))
        return len(questions), self.job.provenance()
