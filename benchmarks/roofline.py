"""How far a decode step is from the memory's bandwidth: the weights must be read once a step, whatever else happens.

Run from the repository root: `python benchmarks/roofline.py --models random-200m`, and on a GPU `python
benchmarks/roofline.py --device cuda --dtype bfloat16 --models random-gemma-2b random-gemma-7b random-llama-2-7b`. The
weights are random and need no calibration: a step takes as long whatever they are.
"""

import argparse
import time
from collections.abc import Callable, Sequence

import pandas as pd
import random_models
import torch
from torch import Tensor

from pro_lib import models
from pro_lib.checks import DTYPES
from pro_lib.engine import Counts, PackedTree, Prefix, encode_prefix

# The share of the copy bandwidth that a good kernel gets; steps are held against it.
ATTAINABLE = 0.8
COPIED_BYTES = {"cpu": 2**28, "cuda": 2**31}
WARM_UP = 3


def seconds(function: Callable[[], object], device: torch.device, *, repeats: int) -> list[float]:
    """Wall clock of each call, after a few that do not count, the device's work included."""
    found = []
    for _ in range(WARM_UP + repeats):
        started = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - started)
    return found[WARM_UP:]


def copy_bandwidth(device: torch.device, *, repeats: int = 20) -> float:
    """Bytes per second, read and written, of the fastest copy of a large buffer."""
    source = torch.ones(COPIED_BYTES.get(device.type, 2**28) // 4, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / min(seconds(lambda: target.copy_(source), device, repeats=repeats))


def weight_bytes(network: torch.nn.Module) -> int:
    """Bytes of weights that a step reads: all but the embeddings of tokens that are not there."""
    embedding, head = network.get_input_embeddings().weight, network.get_output_embeddings().weight
    everything = sum(parameter.nbytes for parameter in network.parameters())
    return everything - (embedding.nbytes if embedding is not head else 0)


def steps(network, width: int, *, prompt_tokens: int, repeats: int) -> tuple[list[float], int]:
    """Seconds of steps that grow `width` prefixes by a token, and the bytes of keys and values each of them reads."""
    vocabulary = network.config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(0)

    def drawn(n: int) -> Tensor:
        return torch.randint(3, vocabulary, (n,), generator=generator)

    tree = PackedTree(network, [drawn(prompt_tokens).tolist() for _ in range(width)], Prefix((), ()), Counts())
    tree.plant()
    everyone = torch.arange(width)
    timed = seconds(lambda: tree.grow(everyone, drawn(width)), network.device, repeats=repeats)
    return timed, encode_prefix(network, [3]).nbytes * tree.slots


def roofline(name: str, network, bandwidth: float, *, widths: Sequence[int], prompt_tokens: int, repeats: int) -> list:
    """A row per number of prefixes in a step."""
    read, rows = weight_bytes(network), []
    for width in widths:
        timed, cache = steps(network, width, prompt_tokens=prompt_tokens, repeats=repeats)
        limit = (read + cache) / bandwidth
        rows.append(
            {
                "model": name,
                "prefixes": width,
                "weights_gb": read / 1e9,
                "cache_gb": cache / 1e9,
                "ms_min": 1000 * min(timed),
                "ms_median": 1000 * sorted(timed)[len(timed) // 2],
                "ms_limit": 1000 * limit,
                "times_attainable": min(timed) / (limit / ATTAINABLE),
            }
        )
    return rows


def load(name: str, device: torch.device, dtype: str) -> torch.nn.Module:
    """A random network of `random_models.SHAPES`, or a model as users load it."""
    if name not in random_models.SHAPES:
        return models.load(name, device=str(device), dtype=dtype).network
    shape = random_models.SHAPES[name]
    return random_models.random_network(shape, last_tokens={3}, seed=0, device=str(device)).to(getattr(torch, dtype))


def main() -> None:
    """Measure the bandwidth, then each model's steps; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["random-200m"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--widths", nargs="+", type=int, default=[1, 32, 128], help="prefixes in a step")
    parser.add_argument("--prompt-tokens", type=int, default=20, help="tokens of each prompt")
    parser.add_argument("--repeats", type=int, default=10)
    asked = parser.parse_args()
    device = torch.device(asked.device)
    bandwidth = copy_bandwidth(device)
    print(f"copy bandwidth {bandwidth / 1e9:.1f} GB/s; limits at all of it, the last column at {ATTAINABLE:.0%} of it")
    rows = []
    for name in asked.models:
        network = load(name, device, asked.dtype)
        options = {"widths": asked.widths, "prompt_tokens": asked.prompt_tokens, "repeats": asked.repeats}
        rows += roofline(name, network, bandwidth, **options)
        del network
    print(pd.DataFrame(rows).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
