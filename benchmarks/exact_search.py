"""What exact search costs beside the project's own greedy decoding and diverse beams; knows no score.

Run from the repository root: `python benchmarks/exact_search.py`. All arms use one loaded model, one prefix cache and
the same packs, and take turns; token-forwards are counts and come first, time is the least of the repeats.
"""

import argparse
import time

import pandas as pd

from pro_lib import models
from pro_lib import questions as question_sets
from pro_lib.engine import Counts, DiverseBeam, Greedy, PackedTree, Prefix, Strategy, Threshold, encode_prefix

ARMS = {
    "greedy": Greedy(),
    **{f"threshold, α = {alpha}": Threshold(alpha) for alpha in (0.1, 0.05, 0.02, 0.01)},
    "diverse beams, N = 10": DiverseBeam(10),
}


def timed(
    arm: Strategy, model: models.Model, prompts: list[list[int]], prefix: Prefix, per_pack: int
) -> tuple[float, Counts]:
    """Seconds and counts of one arm over all prompts."""
    counts, started = Counts(), time.perf_counter()
    for start in range(0, len(prompts), per_pack):
        pack = prompts[start : start + per_pack]
        tree = PackedTree(model.network, pack, prefix.shared_with(pack), counts)
        arm.decode(tree, model.endings, question_ids=[str(place) for place in range(len(pack))])
    return time.perf_counter() - started, counts


def main() -> None:
    """Run all arms in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="facts-2m")
    parser.add_argument("--dataset", default="world-facts")
    parser.add_argument("--limit", type=int, default=None, help="questions of the test split; all by default")
    parser.add_argument("--shots", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    model = models.load(arguments.model)
    questions = question_sets.load(arguments.dataset, split="test", limit=arguments.limit, n_shots=arguments.shots)
    prompts = [model.encode(prompt) for prompt in questions.prompts()]
    shots = questions.prefix()
    prefix = encode_prefix(model.network, model.encode(shots) if shots else [])
    seconds, counts = {name: [] for name in ARMS}, {}
    for _ in range(arguments.repeats):
        for name, arm in ARMS.items():
            elapsed, counts[name] = timed(arm, model, prompts, prefix, arguments.batch_size)
            seconds[name].append(elapsed)
    rows = [
        {
            "arm": name,
            **vars(counts[name]),
            "seconds": min(seconds[name]),
            "median": sorted(seconds[name])[len(seconds[name]) // 2],
        }
        for name in ARMS
    ]
    table = pd.DataFrame(rows).set_index("arm")
    table["forwards_to_greedy"] = table["token_forwards"] / table["token_forwards"]["greedy"]
    table["time_to_greedy"] = table["seconds"] / table["seconds"]["greedy"]
    table["beams_time_to_this"] = table["seconds"]["diverse beams, N = 10"] / table["seconds"]
    print(f"{arguments.model}, {arguments.dataset}, {len(prompts):,} questions, {arguments.shots} shots")
    print(table.round(2).to_string())


if __name__ == "__main__":
    main()
