"""Helpers of the benchmarks: command lines, world-facts prompts, decoding in batches."""

import argparse
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from pro_lib.generation.decoding.packed_tree import ForwardCounts, PackedTree
from pro_lib.generation.decoding.strategies import Strategy
from pro_lib.questions import question_sets
from pro_lib.questions.question_sets import QuestionSet

ROOT = Path(__file__).resolve().parents[1]


def parse_arguments(
    document: str, options: Mapping[str, object], words: Sequence[str] | None = None
) -> argparse.Namespace:
    """Parse the command line.

    Args:
        document: the description of the script.
        options: the default of each option, or its type if it has no default; a list for several
            values.
        words: the words of the command line; None for those of the process.
    """
    parser = argparse.ArgumentParser(
        description=document, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in options.items():
        one = (default or [""])[0] if isinstance(default, list) else default
        value = None if isinstance(default, type) else default
        if default is False:
            parser.add_argument(name, action="store_true")
        else:
            several = "*" if isinstance(default, list) else None
            kind = one if isinstance(one, type) else type(one)
            parser.add_argument(name, nargs=several, type=kind, default=value)
    return parser.parse_args(words)


@cache
def world_facts(limit: int, n_shots: int) -> QuestionSet:
    """Return the first test questions of the world facts."""
    return question_sets.load_questions("world-facts", split="test", limit=limit, n_shots=n_shots)


def decode_batches(
    strategy: Strategy, network, endings, prompts: Sequence, prefix, batch_size: int
) -> tuple:
    """Decode prompts in batches on the packed tree.

    Returns:
        The answers to each prompt, and the counts of forward passes without those of the prefix.
    """
    answers = []
    counts = ForwardCounts()
    for start in range(0, len(prompts), batch_size):
        batch = prompts[start : start + batch_size]
        tree = PackedTree(network, batch, prefix.shared_with(batch), counts)
        answers += strategy.decode(
            tree, endings, question_ids=[str(place) for place in range(len(batch))]
        )
    return answers, counts
