"""How the time per question grows: with the number of questions, with N, with the prompt, with 1/α; knows no score.

Run from the repository root, on a quiet machine: `python benchmarks/growth.py`. It leaves a table and a figure. Arms
take turns, and each point is the least of the repeats.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import exact_search
import matplotlib.pyplot as plt
import pandas as pd
import torch
from matplotlib.ticker import LogLocator, NullLocator

from pro_lib import figures, models
from pro_lib import questions as question_sets
from pro_lib.decoding import Counts, DiverseBeam, Greedy, Multinomial, Strategy, Threshold, encode_prefix
from pro_lib.generate import QUESTIONS_PER_PACK, generate
from pro_lib.questions import QuestionSet

ROOT = Path(__file__).resolve().parents[1]
DATASETS = ("world-facts", "world-facts-reworded")


@dataclass(frozen=True)
class Settings:
    """What is varied, one thing at a time; `n` questions, in whole packs, where it is not their number."""

    questions: Sequence[int] = (100, 300, 1_000, 3_000, 10_000)
    answers: Sequence[int] = (1, 2, 5, 10, 20, 40)
    prompt_tokens: Sequence[int] = (10, 20, 50, 100, 200, 400)
    alphas: Sequence[float] = (0.4, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
    n: int = 64


@dataclass(frozen=True)
class Point:
    """One thing to time: calling `run` gives the questions asked and the tokens put through the network."""

    varied: str
    value: float
    arm: str
    run: Callable[[], tuple[int, int]]


def load(name: str) -> models.Model:
    """The model, on the CPU in float32."""
    return models.load(name, device="cpu", dtype="float32")


def asked(n: int) -> QuestionSet:
    """`n` questions of both wordings and all splits, again from the start where there are not enough, ids their own."""
    first = question_sets.load(DATASETS[0], split="test")
    table = pd.concat(
        [question_sets.load(name, split=split).table for name in DATASETS for split in ("test", "validation")]
    )
    table = pd.concat([table] * -(-n // len(table))).iloc[:n]
    return replace(first, table=table.assign(question_id=[f"q{i}" for i in range(n)], split="test"))


def points(model: models.Model, settings: Settings) -> Iterator[Point]:
    """Everything that is timed, in the order of the table."""
    few = asked(settings.n)
    prefix = model.encode(few.prefix())
    prompts = [model.encode(prompt) for prompt in few.prompts()]
    decode = partial(_decode, model)
    for n in settings.questions:
        many = asked(n)
        for arm, options in (
            ("greedy", {"strategy": "greedy"}),
            ("search, α = 0.05", {"strategy": "threshold", "search_alpha": 0.05}),
        ):
            yield Point("questions", n, arm, partial(_whole_run, model, many, options))
    for n in settings.answers:
        for arm, strategy in (("diverse beams", DiverseBeam(n)), ("samples", Multinomial(n))):
            yield Point("answers", n, arm, partial(decode, prefix, prompts, strategy))
    for length in settings.prompt_tokens:
        longer = _lengthened(prompts, len(prefix), length, len(model.endings.stop))
        for arm, strategy in (("greedy", Greedy()), ("search, α = 0.05", Threshold(0.05))):
            yield Point("prompt_tokens", length, arm, partial(decode, [], longer, strategy))
    for alpha in settings.alphas:
        yield Point("1/alpha", 1 / alpha, "search", partial(decode, prefix, prompts, Threshold(alpha)))


def _whole_run(model: models.Model, questions: QuestionSet, options: dict) -> tuple[int, int]:
    """A run as users make it, its folder written."""
    with tempfile.TemporaryDirectory() as folder:
        cost = generate(model, questions, out=folder, progress=False, **options).info.cost
    return len(questions), cost.prompt_tokens + cost.token_forwards


def _decode(model: models.Model, shared: list[int], prompts: list[list[int]], strategy: Strategy) -> tuple[int, int]:
    """The strategy alone, pack by pack, the shared prefix computed within the time."""
    counts = Counts()
    prefix = encode_prefix(model.network, shared, counts=counts)
    _, found = exact_search.timed(strategy, model, prompts, prefix, QUESTIONS_PER_PACK)
    return len(prompts), counts.prompt_tokens + found.prompt_tokens + found.token_forwards


def _lengthened(prompts: list[list[int]], shared: int, length: int, vocabulary: int) -> list[list[int]]:
    """Prompts of about `length` tokens, none of them shared: random tokens before the question, or its end alone."""
    generator = torch.Generator().manual_seed(0)
    own = [prompt[shared:][-length:] for prompt in prompts]
    return [
        torch.randint(3, vocabulary, (length - len(question),), generator=generator).tolist() + question
        for question in own
    ]


def measure(model: models.Model, settings: Settings, *, repeats: int) -> pd.DataFrame:
    """Columns: varied, value, arm, token_forwards (per question, prompts included), ms, ms_median (per question)."""
    todo = list(points(model, settings))
    timed: list[list[float]] = [[] for _ in todo]
    forwards = [0.0] * len(todo)
    for _ in range(repeats):
        for place, point in enumerate(todo):
            started = time.perf_counter()
            n, tokens = point.run()
            timed[place].append(1000 * (time.perf_counter() - started) / n)
            forwards[place] = tokens / n
    return pd.DataFrame(
        {
            "varied": [point.varied for point in todo],
            "value": [point.value for point in todo],
            "arm": [point.arm for point in todo],
            "token_forwards": forwards,
            "ms": [min(times) for times in timed],
            "ms_median": [sorted(times)[len(times) // 2] for times in timed],
        }
    )


LABELS = {
    "questions": "questions in the run",
    "answers": "N, answers per question",
    "prompt_tokens": "tokens of the prompt, none shared",
    "1/alpha": "1/α of the search",
}


def save(table: pd.DataFrame, path: Path) -> None:
    """The table as CSV and a panel per thing varied, both axes logarithmic."""
    table.round(4).to_csv(path.with_suffix(".csv"), index=False)
    with figures.style():
        figure, axes = plt.subplots(1, len(LABELS), figsize=(10.4, 2.6), sharey=True, layout="constrained")
        for ax, (varied, label) in zip(axes, LABELS.items(), strict=True):
            panel = table[table["varied"] == varied]
            for index, (arm, line) in enumerate(panel.groupby("arm", sort=False)):
                look = {"color": figures.COLORS[index], "ls": figures.DASHES[index], "marker": figures.MARKERS[index]}
                ax.plot(line["value"], line["ms"], label=arm, **look)
            ax.set_xscale("log")
            ax.set_yscale("log")
            # Plain numbers, since nothing is set in TeX; a tick for each value.
            ax.set_xticks(sorted(panel["value"].unique()), [f"{value:g}" for value in sorted(panel["value"].unique())])
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter("{x:g}")
            ax.xaxis.set_minor_locator(NullLocator())
            ax.yaxis.set_minor_locator(NullLocator())
            ax.tick_params(axis="x", rotation=45 if len(panel["value"].unique()) > 6 else 0)
            ax.set_xlabel(label)
            ax.legend(loc="upper left")
        axes[0].set_ylabel("ms per question")
        figure.savefig(path.with_suffix(".png"))
        plt.close(figure)


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", default="facts-2m")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "growth", help="without suffix")
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    table = measure(load(arguments.model), Settings(), repeats=arguments.repeats)
    save(table, arguments.out)
    print(table.round(2).to_string(index=False))


if __name__ == "__main__":
    main()
