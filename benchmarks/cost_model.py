"""What the paper's fifteen settings would cost on one and on eight H100s: a model, not a measurement; loads nothing.

Run from the repository root: `python benchmarks/cost_model.py`; docs/cluster.md has the table and says what it assumes.
"""

import math
from dataclasses import dataclass

from pro_lib.generate import QUESTIONS_PER_PART
from pro_lib.packs import QUESTIONS_PER_PACK

# The GPU's data sheet (H100 SXM, dense bf16), and the fractions of it that are assumed to be reached.
BYTES_PER_SECOND, FLOPS_PER_SECOND, MEMORY_BYTES = 3.35e12, 989e12, 80e9
BYTES_REACHED, FLOPS_REACHED = 0.6, 0.4
SECONDS_PER_LAYER = 0.8e-3  # of a call, on the CPU: transformers launches kernels one by one
SLOWER_IN_8_BITS = 3  # those seconds, with bitsandbytes
LOAD_BYTES_PER_SECOND, START_SECONDS = 1e9, 60.0
PASSES_OVER_LOG_PROBS = 6
ANSWER_TOKENS, N_SHOTS, SHOT_ANSWER_TOKENS = 6, 10, 8
# Token-forwards as multiples of greedy's, and calls per pack: ratios as on the embedded model, answers longer.
STRATEGIES = {"greedy": (1.0, 12), "multinomial": (6.4, 16), "diverse_beam": (6.6, 16), "threshold": (4.4, 13)}


@dataclass(frozen=True)
class Network:
    """The numbers of a model that its cost follows from; `gpus` and `bytes_per_weight` on one and on eight GPUs."""

    name: str
    parameters: float
    layers: int
    attention_width: int
    kv_width: int
    vocabulary: int
    bytes_per_weight: tuple[int, int] = (2, 2)
    gpus: tuple[int, int] = (1, 1)

    def call_seconds(self, n_tokens: float, slots: float, bytes_per_weight: int) -> float:
        """One forward pass of `n_tokens` that attend to `slots` keys, logits for each."""
        log_probs = n_tokens * self.vocabulary * 4 * PASSES_OVER_LOG_PROBS
        moved = self.parameters * bytes_per_weight + slots * self.slot_bytes + log_probs
        flops = n_tokens * (2 * self.parameters + 4 * self.layers * self.attention_width * slots)
        on_gpu = max(moved / (BYTES_PER_SECOND * BYTES_REACHED), flops / (FLOPS_PER_SECOND * FLOPS_REACHED))
        slower = SLOWER_IN_8_BITS if bytes_per_weight == 1 else 1
        return on_gpu + self.layers * SECONDS_PER_LAYER * slower

    @property
    def slot_bytes(self) -> int:
        """Keys and values of one token."""
        return 2 * self.layers * self.kv_width * 2


NETWORKS = (
    Network("Gemma-2B", 2.51e9, 18, 8 * 256, 1 * 256, 256_000),
    Network("Gemma-7B", 8.54e9, 28, 16 * 256, 16 * 256, 256_000),
    Network("Llama2-13B", 13.02e9, 40, 40 * 128, 40 * 128, 32_000),
    Network("Falcon-11B", 11.10e9, 60, 32 * 128, 8 * 128, 65_024),
    # 84 GB in bfloat16: 8 bits on one GPU, two GPUs a worker where there are eight.
    Network("Falcon-40B", 41.84e9, 60, 128 * 64, 8 * 64, 65_024, (1, 2), (1, 2)),
)
# Questions in all, those the released code uses, tokens of a question in its template.
DATASETS = {"TriviaQA": (17_944, 1_794, 28), "SciQ": (1_000, 1_000, 24), "NQ": (3_610, 1_805, 16)}


def slots(question_tokens: int, forwards: float) -> float:
    """Keys that a pack attends to on average: the shots, its questions and half of what it will have grown."""
    shots = N_SHOTS * (question_tokens + SHOT_ANSWER_TOKENS)
    return shots + QUESTIONS_PER_PACK * (question_tokens + forwards / 2)


def pack_seconds(network: Network, question_tokens: int, strategy: str, bytes_per_weight: int) -> float:
    """Time of one full pack: its prompts in one call, then a call per step."""
    multiple, calls = STRATEGIES[strategy]
    forwards = multiple * ANSWER_TOKENS
    n_slots = slots(question_tokens, forwards)
    prompts = network.call_seconds(QUESTIONS_PER_PACK * question_tokens, n_slots, bytes_per_weight)
    return prompts + calls * network.call_seconds(QUESTIONS_PER_PACK * forwards / calls, n_slots, bytes_per_weight)


def setting_hours(network: Network, n_questions: int, question_tokens: int, *, eight: bool) -> float:
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


def memory_gb(network: Network, question_tokens: int, *, eight: bool) -> float:
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
    totals = {"all questions": [0.0, 0.0], "the released code's fractions": [0.0, 0.0]}
    for network in NETWORKS:
        for dataset, (n_questions, n_used, tokens) in DATASETS.items():
            forwards = n_questions * ANSWER_TOKENS * sum(multiple for multiple, _ in STRATEGIES.values())
            prompts = n_questions * tokens * len(STRATEGIES)
            hours = [setting_hours(network, n_questions, tokens, eight=eight) for eight in (False, True)]
            used = [setting_hours(network, n_used, tokens, eight=eight) for eight in (False, True)]
            for total, new in zip(totals.values(), (hours, used), strict=True):
                total[:] = [before + more for before, more in zip(total, new, strict=True)]
            memory = dict.fromkeys(f"{memory_gb(network, tokens, eight=eight):.0f}" for eight in (False, True))
            lines.append(
                f"| {network.name} | {dataset} | {n_questions:,} | {prompts / 1e6:.2f} | {forwards / 1e6:.2f} "
                f"| {'/'.join(memory)} | {hours[0]:.2f} | {hours[1]:.2f} |"
            )
    lines += [f"| sum, {name} | | | | | | {one:.1f} | {eight:.1f} |" for name, (one, eight) in totals.items()]
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
