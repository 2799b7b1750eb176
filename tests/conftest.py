"""Create tiny real models of every architecture class, saved and loaded as a user's would be."""

import gzip
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from pro_lib.generation import models as pro_models
from pro_lib.generation.decoding.next_tokens import Endings

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


CORPUS = ["Question: What is the capital of France?\nAnswer: Paris\n\n"]
CORPUS += ["Question: Who wrote Emma?\nAnswer: Jane Austen\n\n"]
FALCON = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SHAPE = FALCON | {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 256}
FALCON |= {"alibi": False, "new_decoder_architecture": False}
NEW_FALCON = FALCON | {"num_kv_heads": 2, "new_decoder_architecture": True}
# The further settings of a family, apart from its shape. Each of the paper's five models has its
# own: Gemma-2B has one key-value head, Gemma-7B and Llama-2-13B one per head, and Falcon-11B a
# single layer norm before attention and feed-forward, which run in parallel.
CONFIGS = {
    "llama": SHAPE,
    "gemma": SHAPE | {"head_dim": 8},
    "gemma2": SHAPE | {"head_dim": 8, "sliding_window": 128},
    "mistral": SHAPE | {"sliding_window": None},
    "qwen2": SHAPE,
    "falcon-7b": FALCON | {"multi_query": True},
    "gemma-2b": SHAPE | {"num_key_value_heads": 1, "head_dim": 16},
    "gemma-7b": SHAPE | {"num_key_value_heads": 4, "head_dim": 16},
    "Llama-2-13b-chat-hf": SHAPE | {"num_key_value_heads": 4},
    "falcon-11B": NEW_FALCON | {"num_ln_in_parallel_attn": 1},
    "falcon-40b": NEW_FALCON,
    "falcon-alibi": FALCON | {"alibi": True},
    "mistral-window": SHAPE | {"sliding_window": 16},
}


def tiny_tokenizer(*, bos: bool, merges: int = 40) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer that puts a beginning-of-text token first, or does not."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>"]
    how = {
        "initial_alphabet": pre_tokenizers.ByteLevel.alphabet(),
        "special_tokens": special,
        "show_progress": False,
    }
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=256 + len(special) + merges, **how)
    )
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
    names = {"pad_token": "<pad>", "eos_token": "</s>"} | ({"bos_token": "<s>"} if bos else {})
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


FAMILIES = ("llama", "gemma", "gemma2", "mistral", "qwen2", "falcon-7b", "falcon-40b")
PAPER = ("gemma-2b", "gemma-7b", "Llama-2-13b-chat-hf", "falcon-11B", "falcon-40b")
WITHOUT_BOS = ("qwen2", "falcon-7b", "falcon-11B", "falcon-40b")


@torch.no_grad()
def widen(network):
    """Make a random network's answers differ and end."""
    for parameter in network.parameters():
        parameter.mul_(4 if parameter.dim() > 1 else 1)


def save_tiny(family: str, folder: Path) -> Path:
    """Write a tiny random model with large weights, so that its answers differ and end."""
    tokenizer = tiny_tokenizer(bos=family not in WITHOUT_BOS)
    ids = {"vocab_size": len(tokenizer), "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = AutoConfig.for_model(family.split("-")[0].lower(), **CONFIGS[family], **ids)
    torch.manual_seed(sum(family.encode()))
    network = AutoModelForCausalLM.from_config(config)
    widen(network)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


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
    root = tmp_path_factory.mktemp("models")
    return cache(lambda family: save_tiny(family, root / family))


@pytest.fixture(scope="session")
def tiny_model(tiny_folders):
    """Loaded tiny model of a family, on the CPU in float32."""
    return cache(
        lambda family: pro_models.load_model(tiny_folders(family), device="cpu", dtype="float32")
    )


@pytest.fixture(scope="session")
def ending_model(tiny_model):
    """Return a tiny model whose answers end often, some by a token that closes them."""

    def model(family, *, closing=False):
        loaded = tiny_model(family)
        ids = torch.arange(len(loaded.endings.stop))
        stop = loaded.endings.stop | (ids % 5 == 0)
        return replace(loaded, endings=Endings(stop, (ids % 11 == 1) & ~stop & closing))

    return model


@pytest.fixture(scope="session")
def facts_2m() -> pro_models.Model:
    """The bundled model, on the CPU."""
    return pro_models.load_model("facts-2m", device="cpu")


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    """Figures of one test are nothing to another."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
