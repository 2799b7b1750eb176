"""The missing parts of a run made by workers of a Ray cluster; knows Ray and run folders, no model and no decoding."""

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from pro_lib import store
from pro_lib.checks import extra
from pro_lib.files import RunError
from pro_lib.store import Part, RunInfo

# A run stops when so many workers have died over one part: the fault is then the part's, not a machine's.
_TRIES_PER_PART = 3


def make_parts(
    parts: Sequence[Part],
    path: Path,
    info: RunInfo,
    make_job: Callable[[int], Any],
    *,
    n_workers: int | None,
    gpus_per_worker: int,
    cpus: int,
    bar: tqdm,
) -> dict[str, object]:
    """Have the parts of a run folder made by actors of Ray Data; return where and by how many.

    Args:
        make_job: called by each actor with the number of its GPUs, and pickled for that. It returns a job, which
            answers by `part(questions, per_pack)`, and that number.
        n_workers: how many actors; None for as many as the cluster's GPUs serve, 1 if it has none.
        gpus_per_worker: GPUs of an actor, where the cluster has any.
        cpus: CPUs of an actor, where it has none.
    """
    with extra("ray", "engine='ray'"):
        import ray.data
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    provenance, halved = {}, 0
    with _connected(ray, (n_workers or 1) * cpus):
        gpus = int(ray.cluster_resources().get("GPU", 0))
        if 0 < gpus < gpus_per_worker:
            raise ValueError(f"gpus_per_worker={gpus_per_worker}, but the Ray cluster has {gpus} in all")
        gpus, n_workers = min(gpus, gpus_per_worker), n_workers or max(1, gpus // gpus_per_worker)
        items = [{"part": number} for number in range(len(parts))]
        results = ray.data.from_items(items, override_num_blocks=len(parts)).map_batches(
            _RayWorker,
            batch_size=1,
            # One part at a time: those that wait behind a slow one would otherwise hold up the end.
            compute=ray.data.ActorPoolStrategy(size=min(n_workers, len(parts)), max_tasks_in_flight_per_actor=1),
            fn_constructor_args=(make_job, gpus, path.resolve(), info, list(parts)),
            num_gpus=gpus,
            num_cpus=1 if gpus else cpus,
        )
        results.context.enable_progress_bars = False
        rows = iter(results.iter_rows())
        try:
            for report in (json.loads(row["report"]) for row in rows):
                if report["error"]:
                    raise (MemoryError if report["memory"] else RunError)(report["error"])
                provenance, halved = provenance | report["provenance"], halved + report["halved"]
                bar.update(report["questions"])
        finally:
            del rows  # or the error would keep hold of it, and with it of the workers
    if halved:
        message = f"{halved} packs did not fit into the memory of their worker and were halved"
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    return {**provenance, "engine": "ray", "n_workers": n_workers}


class _RayWorker:
    """An actor: makes its job once, then answers part after part and writes each into the run folder.

    What goes wrong is returned and not raised, so that Ray neither tries again nor wraps it.
    """

    def __init__(self, make_job: Callable[[int], Any], gpus: int, path: Path, info: RunInfo, parts: Sequence[Part]):
        self.make_job, self.gpus, self.path, self.info, self.parts = make_job, gpus, path, info, parts

    @cached_property
    def job(self) -> Any:
        """What answers the questions, made when the first part is begun."""
        return self.make_job(self.gpus)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        [number] = batch["part"].tolist()
        report = {"questions": len(self.parts[number].questions), "halved": 0, "provenance": {}, "error": ""}
        try:
            report |= self._write(self.parts[number])
        except (ValueError, FileNotFoundError, MemoryError) as error:
            report |= {"error": str(error), "memory": isinstance(error, MemoryError)}
        return {"report": [json.dumps(report)]}

    def _write(self, part: Part) -> dict[str, object]:
        if store.parts(self.path, part.name):  # by a worker that died before it could say so
            return {}
        with open(self.path / f".{part.name}.begun", "ab") as begun:
            begun.write(b".")
            tries = begun.tell()
        if tries > _TRIES_PER_PART:
            first, last = part.questions["question_id"].iloc[[0, -1]]
            raise RunError(
                f"{part.name} (questions {first!r} to {last!r}) has ended {_TRIES_PER_PART} workers that were killed "
                "or crashed; Ray's logs say more, and the same command tries again"
            )
        job, per_pack = self.job
        table, cost = job.part(part.questions, per_pack)
        store.write_part(self.path, part, self.info, table, cost)
        (self.path / f".{part.name}.begun").unlink()
        return {"halved": cost.halved_packs, "provenance": job.provenance()}


@contextmanager
def _connected(ray: Any, cpus: int) -> Iterator[None]:
    """The Ray cluster that this process is connected to, else that of RAY_ADDRESS, else one for the time being.

    A cluster is not looked for: what Ray remembers may be gone, and then it waits for many minutes, or another's.
    """
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options, address = {"logging_level": logging.ERROR, "log_to_driver": False}, os.environ.get("RAY_ADDRESS")
    if not address:  # nobody else is to reach it, and it reaches nobody
        options |= {"num_cpus": cpus, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        started = ray.init(address or "local", **options)
    except ConnectionError as error:
        raise ValueError(f"RAY_ADDRESS={address}, but no Ray cluster answers there: {error}") from error
    with started:
        yield
