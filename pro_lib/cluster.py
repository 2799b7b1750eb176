"""The missing parts of a run made by workers of a Ray cluster; knows Ray and run folders, no model and no decoding."""

import logging
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from pro_lib import store
from pro_lib.checks import extra
from pro_lib.files import RunError
from pro_lib.store import RunFolder, RunInfo

# A run stops when more workers than that have died over one part: the fault is then the part's, not a machine's.
_TRIES_AGAIN = 2


def make_parts(
    parts: Mapping[str, pd.DataFrame],
    folder: RunFolder,
    make_job: Callable[[int], Any],
    n_workers: int | None,
    gpus_per_worker: int,
    bar: tqdm,
) -> dict[str, object]:
    """Have the parts of a run folder made by Ray actors; return where and by how many.

    `make_job` is pickled, and called by each actor with the number of its GPUs; it returns a `packs.Job`. An actor
    without a GPU has as many CPUs as this process has threads. See `generate.generate` for the numbers.
    """
    with extra("ray", "engine='ray'"):
        import ray
    provenance, halved, cpus = {}, 0, torch.get_num_threads()
    with _connected(ray, (n_workers or 1) * cpus):
        gpus = int(ray.cluster_resources().get("GPU", 0))
        if 0 < gpus < gpus_per_worker:
            raise ValueError(f"gpus_per_worker={gpus_per_worker}, but the Ray cluster has {gpus} in all")
        gpus, n_workers = min(gpus, gpus_per_worker), n_workers or max(1, gpus // gpus_per_worker)
        options = {"num_gpus": gpus, "num_cpus": 1 if gpus else cpus}
        actor = ray.remote(**options, max_restarts=-1, max_task_retries=_TRIES_AGAIN)(_Worker)
        arguments = (make_job, gpus, folder.path.resolve(), folder.info)
        workers = [actor.remote(*arguments) for _ in range(min(n_workers, len(parts)))]
        pool = ray.util.ActorPool(workers)
        try:
            for report in pool.map_unordered(lambda worker, part: worker.make.remote(*part), parts.items()):
                if report["error"]:
                    raise (MemoryError if report["memory"] else RunError)(report["error"])
                provenance, halved = provenance | report["provenance"], halved + report["halved"]
                bar.update(report["questions"])
        except ray.exceptions.RayActorError as error:
            raise RunError(f"{folder.path}: a part has ended {_TRIES_AGAIN + 1} workers ({error})") from error
        finally:
            for worker in workers:
                ray.kill(worker)
    if halved:
        message = f"{halved} packs did not fit into the memory of their worker and were halved"
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    return {**provenance, "engine": "ray", "n_workers": n_workers}


class _Worker:
    """An actor: makes its job once, then answers part after part and writes each into the run folder."""

    def __init__(self, make_job: Callable[[int], Any], gpus: int, path: Path, info: RunInfo):
        self.make_job, self.gpus, self.path, self.info = make_job, gpus, path, info

    @cached_property
    def job(self) -> Any:
        """What answers the questions, made when the first part is begun."""
        return self.make_job(self.gpus)

    def make(self, name: str, questions: pd.DataFrame) -> dict[str, object]:
        """Make a part and report; what goes wrong is returned and not raised, so that Ray does not wrap it."""
        report = {"questions": len(questions), "halved": 0, "provenance": {}, "error": ""}
        try:
            if not store.parts(self.path, name):  # else by a worker that died before it could say so
                table, cost = self.job.part(questions)
                store.write_part(self.path, name, self.info, table, cost)
                report |= {"halved": cost.halved_packs, "provenance": self.job.provenance()}
        except (ValueError, OSError, RuntimeError, MemoryError) as error:
            report |= {"error": str(error), "memory": isinstance(error, MemoryError)}
        return report


def _connected(ray: Any, cpus: int) -> Any:
    """Return the Ray cluster that this process is connected to, else that of RAY_ADDRESS, else one for the time being.

    A cluster is not looked for: what Ray remembers may be gone, and then it waits for many minutes, or another's.
    """
    if ray.is_initialized():
        return nullcontext()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = os.environ.get("RAY_ADDRESS") or "local"
    # Nobody else is to reach a cluster of our own, and it reaches nobody.
    alone = {"num_cpus": cpus, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    options = alone if address == "local" else {}
    return ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **options)
