"""How far a decode step is from the memory's bandwidth: the weights must be read once a step, whatever else happens.

Run from the repository root: `python benchmarks/roofline.py --models random-200m`, and on a GPU `python
benchmarks/roofline.py --device cuda --dtype bfloat16 --models random-gemma-2b random-gemma-7b random-llama-2-7b`. The
weights are random and need no calibration: a step takes as long whatever they are.
"""

import pandas as pd
import random_models
import torch
from measuring import asked, seconds
from torch import Tensor

from pro_lib import models
from pro_lib.engine import Counts, PackedTree, Prefix, encode_prefix

# The share of the copy bandwidth that a good kernel gets; steps are held against it.
ATTAINABLE = 0.8
COPIED_BYTES = {"cpu": 2**28, "cuda": 2**31}
WARM_UP, PROMPT_TOKENS = 3, 20
WIDTHS = (1, 32, 128)  # prefixes in a step


def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second, read and written, of the fastest copy of a large buffer."""
    source = torch.ones(COPIED_BYTES.get(device.type, 2**28) // 4, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / min(seconds(lambda: target.copy_(source), repeats=20, warm_up=WARM_UP, device=device))


def weight_bytes(network: torch.nn.Module) -> int:
    """Bytes of weights that a step reads: all but the embeddings of tokens that are not there."""
    embedding, head = network.get_input_embeddings().weight, network.get_output_embeddings().weight
    everything = sum(parameter.nbytes for parameter in network.parameters())
    return everything - (embedding.nbytes if embedding is not head else 0)


def steps(network: torch.nn.Module, width: int, *, repeats: int) -> tuple[list[float], int]:
    """Seconds of steps that grow `width` prefixes by a token, and the bytes of keys and values each of them reads."""
    vocabulary, generator = network.config.get_text_config().vocab_size, torch.Generator().manual_seed(0)

    def drawn(n: int) -> Tensor:
        return torch.randint(3, vocabulary, (n,), generator=generator)

    tree = PackedTree(network, [drawn(PROMPT_TOKENS).tolist() for _ in range(width)], Prefix((), ()), Counts())
    tree.plant()
    everyone = torch.arange(width)
    how = {"repeats": repeats, "warm_up": WARM_UP, "device": network.device}
    timed = seconds(lambda: tree.grow(everyone, drawn(width)), **how)
    return timed, encode_prefix(network, [3]).nbytes * tree.slots


def row(name: str, network: torch.nn.Module, bandwidth: float, width: int) -> dict[str, object]:
    """What a step of so many prefixes takes, and the least that it could."""
    read, (timed, cache) = weight_bytes(network), steps(network, width, repeats=10)
    limit = (read + cache) / bandwidth
    sizes = {"model": name, "prefixes": width, "weights_gb": read / 1e9, "cache_gb": cache / 1e9}
    found = {"ms_min": 1000 * min(timed), "ms_median": 1000 * sorted(timed)[len(timed) // 2], "ms_limit": 1000 * limit}
    return sizes | found | {"times_attainable": min(timed) / (limit / ATTAINABLE)}


def load(name: str, device: torch.device, dtype: str) -> torch.nn.Module:
    """A random network of `random_models.SHAPES`, or a model as users load it."""
    if name not in random_models.SHAPES:
        return models.load(name, device=str(device), dtype=dtype).network
    shape = random_models.SHAPES[name]
    return random_models.random_network(shape, last_tokens={3}, device=str(device)).to(getattr(torch, dtype))


def main() -> None:
    """Measure the bandwidth, then each model's steps; print the table."""
    given, rows = asked(__doc__, {"--models": ["random-200m"], "--device": "cpu", "--dtype": "float32"}), []
    device = torch.device(given.device)
    bandwidth = copy_bandwidth(device)
    print(f"copy bandwidth {bandwidth / 1e9:.1f} GB/s; limits at all of it, the last column at {ATTAINABLE:.0%} of it")
    for name in given.models:
        network = load(name, device, given.dtype)
        rows += [row(name, network, bandwidth, width) for width in WIDTHS]
        del network
    print(pd.DataFrame(rows).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
