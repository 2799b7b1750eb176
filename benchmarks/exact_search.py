"""What exact search costs beside the project's own greedy decoding and diverse beams; knows no score.

Run from the repository root: `python benchmarks/exact_search.py [--limit 1000]`. All arms use one loaded model, one
prefix cache and the same packs, and take turns; token-forwards are counts and come first, time is the least of the
repeats.
"""

import time

import pandas as pd
from measuring import asked, decoded

from pro_lib import models
from pro_lib import questions as question_sets
from pro_lib.engine import DiverseBeam, Greedy, Threshold, encode_prefix
from pro_lib.packs import QUESTIONS_PER_PACK

ARMS = {
    "greedy": Greedy(),
    **{f"threshold, α = {alpha}": Threshold(alpha) for alpha in (0.1, 0.05, 0.02, 0.01)},
    "diverse beams, N = 10": DiverseBeam(10),
}


def main() -> None:
    """Run all arms in turn and print the table."""
    options = {"--model": "facts-2m", "--dataset": "world-facts", "--limit": int, "--shots": 10, "--repeats": 3}
    given = asked(__doc__, options)
    model = models.load(given.model)
    questions = question_sets.load(given.dataset, split="test", limit=given.limit, n_shots=given.shots)
    prompts, shots = [model.encode(prompt) for prompt in questions.prompts()], questions.prefix()
    prefix = encode_prefix(model.network, model.encode(shots) if shots else [])
    rows = []
    for arm, strategy in list(ARMS.items()) * given.repeats:
        started = time.perf_counter()
        _, counts = decoded(strategy, model.network, model.endings, prompts, prefix, QUESTIONS_PER_PACK)
        rows.append({"arm": arm, **vars(counts), "seconds": time.perf_counter() - started})
    by_arm = pd.DataFrame(rows).groupby("arm", sort=False)
    table = by_arm.min().assign(median=by_arm["seconds"].median())
    table["forwards_to_greedy"] = table["token_forwards"] / table["token_forwards"]["greedy"]
    table["time_to_greedy"] = table["seconds"] / table["seconds"]["greedy"]
    table["beams_time_to_this"] = table["seconds"]["diverse beams, N = 10"] / table["seconds"]
    print(f"{given.model}, {given.dataset}, {len(prompts):,} questions, {given.shots} shots")
    print(table.round(2).to_string())


if __name__ == "__main__":
    main()
