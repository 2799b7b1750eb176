"""What the paper's fifteen settings would cost on one and on eight H100s: a model, not a measurement; loads nothing.

Run from the repository root: `python benchmarks/cost_model.py`; docs/cluster.md has the table and says what it assumes.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from gpu_model import Card, Network

from pro_lib.generate import QUESTIONS_PER_PART
from pro_lib.packs import QUESTIONS_PER_PACK

# The GPU's data sheet (H100 SXM, dense bf16), times the fractions of it that are assumed to be reached.
CARD = Card("H100", bytes_per_second=0.6 * 3.35e12, flops_per_second=0.4 * 989e12)
SECONDS_PER_LAYER = 0.8e-3  # of a call, on the CPU: transformers launches kernels one by one
SLOWER_IN_8_BITS = 3  # those seconds, with bitsandbytes
LOAD_BYTES_PER_SECOND, START_SECONDS = 1e9, 60.0
PASSES_OVER_LOG_PROBS = 6
ANSWER_TOKENS, N_SHOTS, SHOT_ANSWER_TOKENS = 6, 10, 8
# Token-forwards as multiples of greedy's, and calls per pack: ratios as on the embedded model, answers longer.
STRATEGIES = {"greedy": (1.0, 12), "multinomial": (6.4, 16), "diverse_beam": (6.6, 16), "threshold": (4.4, 13)}


@dataclass(frozen=True)
class Placed(Network):
    """A network, and what a worker takes: `gpus` and `bytes_per_weight` on one and on eight GPUs."""

    bytes_per_weight: tuple[int, int] = (2, 2)
    gpus: tuple[int, int] = (1, 1)

    def call_seconds(self, n_tokens: float, slots: float, bytes_per_weight: int) -> float:
        """One forward pass of `n_tokens` that attend to `slots` keys, logits for each."""
        log_probs = n_tokens * self.vocabulary * 4 * PASSES_OVER_LOG_PROBS
        moved = self.parameters * bytes_per_weight + slots * self.slot_bytes + log_probs
        slower = SLOWER_IN_8_BITS if bytes_per_weight == 1 else 1
        return CARD.seconds(moved, self.flops(n_tokens, slots)) + self.layers * SECONDS_PER_LAYER * slower


NETWORKS = (
    Placed("Gemma-2B", 2.51e9, 18, 8 * 256, 1 * 256, 256_000),
    Placed("Gemma-7B", 8.54e9, 28, 16 * 256, 16 * 256, 256_000),
    Placed("Llama2-13B", 13.02e9, 40, 40 * 128, 40 * 128, 32_000),
    Placed("Falcon-11B", 11.10e9, 60, 32 * 128, 8 * 128, 65_024),
    # 84 GB in bfloat16: 8 bits on one GPU, two GPUs a worker where there are eight.
    Placed("Falcon-40B", 41.84e9, 60, 128 * 64, 8 * 64, 65_024, bytes_per_weight=(1, 2), gpus=(1, 2)),
)
# Questions in all, those the released code uses, tokens of a question in its template.
DATASETS = {"TriviaQA": (17_944, 1_794, 28), "SciQ": (1_000, 1_000, 24), "NQ": (3_610, 1_805, 16)}


def slots(question_tokens: int, forwards: float) -> float:
    """Keys that a pack attends to on average: the shots, its questions and half of what it will have grown."""
    shots = N_SHOTS * (question_tokens + SHOT_ANSWER_TOKENS)
    return shots + QUESTIONS_PER_PACK * (question_tokens + forwards / 2)


def pack_seconds(network: Placed, question_tokens: int, strategy: str, bytes_per_weight: int) -> float:
    """Time of one full pack: its prompts in one call, then a call per step."""
    multiple, calls = STRATEGIES[strategy]
    forwards = multiple * ANSWER_TOKENS
    n_slots = slots(question_tokens, forwards)
    prompts = network.call_seconds(QUESTIONS_PER_PACK * question_tokens, n_slots, bytes_per_weight)
    return prompts + calls * network.call_seconds(QUESTIONS_PER_PACK * forwards / calls, n_slots, bytes_per_weight)


def setting_hours(network: Placed, n_questions: int, question_tokens: int, *, eight: bool) -> float:
    """All four strategies of one setting; with eight GPUs every strategy starts its workers anew."""
    weight_bytes = network.bytes_per_weight[eight]
    workers = 8 // network.gpus[1] if eight else 1
    seconds = sum(pack_seconds(network, question_tokens, strategy, weight_bytes) for strategy in STRATEGIES)
    starts = len(STRATEGIES) if eight else 1
    packs = math.ceil(n_questions / QUESTIONS_PER_PACK)
    if eight:  # a part is one worker's
        per_part = QUESTIONS_PER_PART // QUESTIONS_PER_PACK
        packs = min(packs, per_part * math.ceil(math.ceil(packs / per_part) / workers))
    start = START_SECONDS + network.parameters * 2 / LOAD_BYTES_PER_SECOND
    return (packs * seconds + starts * start) / 3600


def memory_gb(network: Placed, question_tokens: int, *, eight: bool) -> float:
    """Weights, keys and values and log-probabilities of the widest strategy, per worker."""
    forwards = max(multiple / calls for multiple, calls in STRATEGIES.values()) * ANSWER_TOKENS * QUESTIONS_PER_PACK
    grown = slots(question_tokens, 2 * max(multiple for multiple, _ in STRATEGIES.values()) * ANSWER_TOKENS)
    log_probs = forwards * network.vocabulary * 4 * 3
    return (network.parameters * network.bytes_per_weight[eight] + grown * network.slot_bytes + log_probs) / 1e9


def table() -> list[str]:
    """The table of docs/cluster.md, a line of Markdown each."""
    lines = [
        "| model | dataset | questions | prompt tokens, M | token-forwards, M | GB a worker | hours on 1 | on 8 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    multiples, sums = sum(multiple for multiple, _ in STRATEGIES.values()), np.zeros((2, 2))
    for network, (dataset, (n_questions, n_used, tokens)) in itertools.product(NETWORKS, DATASETS.items()):
        hours, used = (
            [setting_hours(network, n, tokens, eight=eight) for eight in (False, True)] for n in (n_questions, n_used)
        )
        sums += hours, used
        prompts, forwards = n_questions * tokens * len(STRATEGIES), n_questions * ANSWER_TOKENS * multiples
        memory = dict.fromkeys(f"{memory_gb(network, tokens, eight=eight):.0f}" for eight in (False, True))
        lines.append(
            f"| {network.name} | {dataset} | {n_questions:,} | {prompts / 1e6:.2f} | {forwards / 1e6:.2f} "
            f"| {'/'.join(memory)} | {hours[0]:.2f} | {hours[1]:.2f} |"
        )
    summed = zip(("all questions", "the released code's fractions"), sums, strict=True)
    return lines + [f"| sum, {name} | | | | | | {one:.1f} | {eight:.1f} |" for name, (one, eight) in summed]


if __name__ == "__main__":
    print("\n".join(table()))
