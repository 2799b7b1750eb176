"""The prefix tree that was searched for one question, as rows for drawing; knows no drawing."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from pro_lib.runs import Run
from pro_lib.store import complete_log_prob

Decode = Callable[[Sequence[int]], str]
_NEXT_TO_NOTHING = 0.005


def prefix_tree(run: Run, decode: Decode, *, n_nodes: int = 30) -> pd.DataFrame:
    """Return the prefix tree that was searched for the one question of `run`, a row per node, parents first.

    Columns: node, parent (-1: none), kind, text (what it adds), probability, greedy. A `prefix` was put through the
    model, an `answer` ended, `open` was cut at the length limit. A `cut` is all the rest of a prefix, those below it
    included that are neither greedy nor among the `n_nodes` most probable. The leaves' probabilities sum to 1.
    A prefix that goes on in one prefix only, and loses next to nothing (0.005) besides, is one node with it.
    Raises `RunError` where the run is no exact search.
    """
    run.tree()  # says what is missing
    search = run.questions.iloc[0]
    parents, greedy = search["tree_parents"], search["tree_greedy"]
    p = np.exp(np.asarray(search["tree_log_probs"]))
    paths: list[tuple[int, ...]] = []
    for parent, token in zip(parents, search["tree_tokens"], strict=True):
        paths.append((*paths[parent], int(token)) if parent >= 0 else ())
    nodes = sorted({*np.argsort(-p, kind="stable")[:n_nodes].tolist(), *np.flatnonzero(greedy).tolist()})
    ends = _ends(run.answers, {paths[v]: v for v in nodes})
    rows: list[tuple] = []

    def add(v: int, parent: int, text: str, lost: float) -> None:
        text += _addition(decode, paths[v])
        below, answers = [u for u in nodes if parents[u] == v], ends.get(v, [])
        lost += p[v] - sum(p[u] for u in below) - sum(answer.probability for answer in answers)
        if len(below) == 1 and not answers and lost < _NEXT_TO_NOTHING:
            return add(below[0], parent, text, lost)
        node = len(rows)
        rows.append((node, parent, "prefix", text, p[v], bool(greedy[v])))
        is_last = bool(greedy[v]) and not any(greedy[u] for u in below)
        for answer in answers:
            kind = "answer" if answer.finished else "open"
            rows.append((len(rows), node, kind, answer.text, answer.probability, is_last))
        for u in below:
            add(u, node, "", 0.0)
        rows.append((len(rows), node, "cut", "cut", max(lost, 0.0), False))

    add(0, -1, "", 0.0)
    return pd.DataFrame(rows, columns=["node", "parent", "kind", "text", "probability", "greedy"])


def _ends(answers: pd.DataFrame, places: dict[tuple[int, ...], int]) -> dict[int, list]:
    """Return the answers under the prefix that was expanded, or where their last token closes them or they are cut."""
    ends: dict[int, list] = {}
    answers = answers.assign(probability=np.exp(complete_log_prob(answers["log_prob"], answers["end_log_prob"])))
    for answer in answers.itertuples():
        ids = tuple(int(token) for token in answer.token_ids)
        place = places.get(ids if answer.finished and ids in places else ids[:-1])
        if place is not None:
            ends.setdefault(place, []).append(answer)
    return ends


def _addition(decode: Decode, path: tuple[int, ...]) -> str:
    """Return what the last token adds to the text: some tokenizers cannot spell it alone."""
    text, before = decode(path), decode(path[:-1])
    return text[len(before) :] if text.startswith(before) else decode(path[-1:])
