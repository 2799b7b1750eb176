"""Sizes of the tests, and the files and models that they share.

Nothing here imports torch, so that the tests that need none start and are collected quickly.
"""

import gc
import gzip
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))
# Processes that a test starts use this checkout and this environment.
os.environ |= {
    "PYTHONPATH": str(ROOT),
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}
# `make test` would tell the `make` of a trial that it is an inner one, which then prints its
# folder and takes options.
for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"):
    os.environ.pop(name, None)

# A test must not fail because the machine is loaded, and a failure must be repeatable.
EXAMPLES = {"quick": 20, "all": 100, "trials": 2000}


def pytest_addoption(parser):
    parser.addoption(
        "--size", choices=list(EXAMPLES), default="quick", help="how much a sized test tries"
    )


def pytest_configure(config):
    examples = EXAMPLES[config.getoption("size")]
    settings.register_profile("size", deadline=None, derandomize=True, max_examples=examples)
    settings.load_profile("size")
    gc.disable()  # looking for cycles among what is imported takes a fifth of the collection


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Run more of the tests that take the size or draw examples, with `--size`."""
    for item in items:
        if "size" in item.fixturenames or getattr(item.obj, "is_hypothesis_test", False):
            item.add_marker("sized")


@pytest.fixture(scope="session")
def size(request) -> str:
    """How much is tried: quick, all or trials."""
    return request.config.getoption("size")


def write_notebook(path, *cells, kernel="python3", **declared):
    """Write a notebook of these code cells, after a cell that declares parameters."""
    empty = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
    book = [
        empty | {"id": f"cell-{number}", "source": source} for number, source in enumerate(cells)
    ]
    if declared:
        lines = [f"{name}: object = {value!r}" for name, value in declared.items()]
        first = empty | {"id": "declared", "source": "\n".join(lines)}
        book.insert(0, first | {"metadata": {"tags": ["parameters"]}})
    spec = {"name": kernel, "language": "python", "display_name": kernel}
    whole = {"cells": book, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(whole))
    return path


def read_cells(path):
    """Return the cells of a notebook file."""
    return json.loads(path.read_text())["cells"]


def ship_code(folder):
    """Let the configuration of a model be code; return the file that the code makes if it runs."""
    auto_map = {"AutoConfig": "configuration_own.OwnConfig"}
    config = {"model_type": "own-code", "auto_map": auto_map}
    (folder / "config.json").write_text(json.dumps(config))
    ran = folder / "ran"
    code = f"from pathlib import Path\nPath({str(ran)!r}).touch()\n"
    (folder / "configuration_own.py").write_text(code)
    return ran


@pytest.fixture
def write(tmp_path):
    """Write a file of lines, objects as JSON and texts as they are, and return its path."""

    def file(*lines, name="answers.jsonl"):
        data = "\n".join(
            line if isinstance(line, str) else json.dumps(line) for line in lines
        ).encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path / name

    return file


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory):
    """Folder of the tiny model of a family, made on first use."""
    from tiny_models import save_tiny

    root = tmp_path_factory.mktemp("models")
    return cache(lambda family: save_tiny(family, root / family))


@pytest.fixture(scope="session")
def tiny_model(tiny_folders):
    """Loaded tiny model of a family, on the CPU in float32."""
    from pro_lib.generation.models import load_model

    return cache(lambda family: load_model(tiny_folders(family), device="cpu", dtype="float32"))


@pytest.fixture(scope="session")
def ending_model(tiny_model):
    """Return a tiny model whose answers end often, some by a token that closes them."""
    import torch

    from pro_lib.generation.decoding.next_tokens import Endings

    def model(family, *, closing=False):
        loaded = tiny_model(family)
        ids = torch.arange(len(loaded.endings.stop))
        stop = loaded.endings.stop | (ids % 5 == 0)
        return replace(loaded, endings=Endings(stop, (ids % 11 == 1) & ~stop & closing))

    return model


@pytest.fixture(scope="session")
def facts_2m():
    """The bundled model, on the CPU."""
    from pro_lib.generation.models import load_model

    return load_model("facts-2m", device="cpu")


@pytest.fixture(scope="session")
def facts_1m():
    """The smaller bundled model, on the CPU."""
    from pro_lib.generation.models import load_model

    return load_model("facts-1m", device="cpu")


@pytest.fixture(scope="module")
def browse():
    """A function that opens the page at an address in the browser of a module."""
    browsing = pytest.importorskip("test_browser", reason="playwright is not installed")
    if browsing.CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with browsing.chromium() as browser:
        yield partial(browsing.page_of, browser)


@pytest.fixture
def registries():
    """Undo what a test registers."""
    from pro_lib.evaluation import METHODS
    from pro_lib.generation.decoding.strategies import STRATEGIES
    from pro_lib.scoring.similarity import SIMILARITIES

    before = [(registry, dict(registry)) for registry in (METHODS, STRATEGIES, SIMILARITIES)]
    yield
    for registry, entries in before:
        registry.clear()
        registry.update(entries)


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    """Figures of one test are nothing to another."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
