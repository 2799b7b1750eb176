"""Workers on a local Ray cluster, some of them killed, write the run of the local engine."""

import gc
import itertools
import os
import signal
import sys
import warnings
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from unittest import mock

import pandas as pd
import psutil
import pyarrow.parquet as pq
import pytest
import torch

from pro_lib import generate, load_questions, read_run
from pro_lib.common.files import RunError
from pro_lib.generation import ray_workers

module = import_module("pro_lib.generation.run_generation")

pytestmark = [
    # What Ray does to itself.
    pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]
OPTIONS = {"n_answers": 3, "max_new_tokens": 8, "batch_size": 4}
ON_RAY = {"engine": "ray", "n_workers": 2}


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(module, "QUESTIONS_PER_PART", 4)


def shut_down(ray):
    ray.shutdown()
    with (
        warnings.catch_warnings()
    ):  # what Ray leaves open is said here, and not in the test of another file
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def cluster():
    """One cluster for all tests, since it takes seconds to start."""
    ray = pytest.importorskip("ray")  # takes a second
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    options = {"include_dashboard": False, "log_to_driver": False, "_node_ip_address": "127.0.0.1"}
    # At Ray's own 15, workers starve on a busy machine
    options["_system_config"] = {"worker_niceness": 0}
    for tries_left in (2, 1, 0):
        try:
            ray.init("local", num_cpus=2 * torch.get_num_threads(), **options)
            break
        except Exception:  # a busy machine may need more than the 30 s that Ray gives its node
            shut_down(ray)
            if not tries_left:
                raise
    yield
    shut_down(ray)


def folder_in(out):
    """The folder of the only run."""
    [folder] = (out / "world-facts" / "facts-1m").iterdir()
    return folder


def part_tables(folder):
    """The tables of the parts, by the beginnings of their names."""
    return {path.name[:10]: pq.read_table(path) for path in folder.glob("*.parquet")}


def assert_same_run(out, local):
    """The same tables, number for number, in parts of the same numbers."""
    ours = folder_in(out)
    theirs = folder_in(local)
    assert part_tables(ours) == part_tables(theirs)
    assert sorted(path.name[:10] for path in ours.iterdir()) == sorted(
        path.name[:10] for path in theirs.iterdir()
    )
    one = read_run(ours)
    other = read_run(theirs)
    pd.testing.assert_frame_equal(one.answers, other.answers, check_exact=True)
    assert (one.info.parameters, one.info.n_planned) == (
        other.info.parameters,
        other.info.n_planned,
    )
    assert one.info.provenance["engine"] == "ray"


def actors():
    """Process ids of the actors that Ray runs below this process."""
    below = {process.pid for process in psutil.Process().children(recursive=True)}
    titles = {
        process.pid: " ".join(process.info["cmdline"] or [])
        for process in psutil.process_iter(["cmdline"])
    }
    return [
        pid for pid, title in titles.items() if pid in below and title.startswith("ray::Worker")
    ]


def ray_in_this_process():
    """Return a substitute for Ray whose first worker makes all parts."""
    ray = mock.MagicMock()
    ray.cluster_resources.return_value = {}
    ray.exceptions = SimpleNamespace(RayActorError=OSError, RayTaskError=OSError)
    ray.remote.return_value = lambda worker: SimpleNamespace(remote=worker)
    ray.util.ActorPool = lambda workers: SimpleNamespace(
        map_unordered=lambda _, parts: itertools.starmap(workers[0].make, parts)
    )
    return ray


@pytest.mark.parametrize("is_real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_workers_leave_the_tables_of_the_local_engine(
    facts_1m, tmp_path, is_real, request, monkeypatch
):
    if is_real:
        request.getfixturevalue("cluster")
    else:
        monkeypatch.setitem(sys.modules, "ray", ray_in_this_process())
    questions = load_questions("world-facts", limit=23)
    options = OPTIONS | {"strategy": "threshold"}
    del options["n_answers"]
    generate(facts_1m, questions, out=tmp_path / "local", **options)
    run = generate(facts_1m, questions, out=tmp_path / "ray", **options, **ON_RAY)
    assert_same_run(tmp_path / "ray", tmp_path / "local")
    assert run.info.provenance["n_workers"] == 2


# GPUs of the cluster, the options of a call, and the GPUs of each worker and the workers.
NUMBERS = [
    (0, {}, (0, 1)),
    (0, {"n_workers": 3}, (0, 3)),
    (8, {}, (1, 8)),
    (7, {"gpus_per_worker": 2}, (2, 3)),
    (8, {"n_workers": 3}, (1, 3)),
]


@pytest.mark.parametrize(("n_gpus", "options", "expected"), NUMBERS)
def test_workers_share_the_gpus_of_the_cluster(facts_1m, n_gpus, options, expected):
    ray = SimpleNamespace(cluster_resources=lambda: {"CPU": 64.0, "GPU": float(n_gpus)})
    usual = {"chat": None, "batch_size": None, "engine": "ray"}
    usual |= {"n_workers": None, "gpus_per_worker": 1}
    work = ray_workers.WorkOptions(**usual | options)
    gpus_per_worker, n_workers = ray_workers._worker_numbers(ray, work)
    assert (gpus_per_worker, n_workers) == expected
    load = ray_workers.load_options(facts_1m, gpus_per_worker)
    assert load["device"] == ("cuda" if n_gpus else "cpu")
    assert load.get("device_map") == ("auto" if gpus_per_worker > 1 else None)
    if n_gpus:
        with pytest.raises(ValueError, match=f"=9 is more than the {n_gpus} GPUs of the Ray"):
            ray_workers._worker_numbers(ray, replace(work, gpus_per_worker=9))


def test_a_worker_with_other_files_of_the_model_says_so(facts_1m, tmp_path):
    load = ray_workers.load_options(facts_1m, 0)
    worker = ray_workers.Worker(load, "0" * 16, (), torch.get_num_threads(), tmp_path, None)
    with pytest.raises(RunError, match=rf"^model {facts_1m.source} on .* is not the model of this"):
        worker.make("part-00000", None)


@pytest.mark.trial  # starts workers twice
def test_a_worker_that_is_killed_is_replaced_and_its_part_done_again(
    cluster, facts_1m, tmp_path, monkeypatch
):
    questions = load_questions("world-facts", limit=40)
    generate(facts_1m, questions, out=tmp_path / "local", **OPTIONS)
    killed = []

    class Killing(module.tqdm):
        """Progress that ends a worker when the first part is made."""

        def update(self, n=1):
            if not killed:
                killed.append(actors()[0])
                os.kill(killed[0], signal.SIGKILL)
            return super().update(n)

    monkeypatch.setattr(module, "tqdm", Killing)
    generate(facts_1m, questions, out=tmp_path / "ray", **OPTIONS, **ON_RAY)
    [pid] = killed
    assert pid not in actors()
    assert_same_run(tmp_path / "ray", tmp_path / "local")
