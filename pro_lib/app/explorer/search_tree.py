"""The tree of prefixes that an exact search has expanded, as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pro_lib.runs.run import Run
from pro_lib.runs.storage import complete_log_prob

Decode = Callable[[Sequence[int]], str]
Path = tuple[int, ...]  # the token ids of a prefix

_COLUMNS = ["node", "parent", "kind", "text", "probability", "greedy"]
_NEGLIGIBLE = 0.005  # probability that a node may lose and still be one with its only continuation


def prefix_tree(run: Run, decode: Decode, *, n_nodes: int = 30) -> pd.DataFrame:
    """Return the prefix tree that was searched for the only question of a run.

    Args:
        run: an exact search of one question.
        decode: turns token ids into text, such as `Model.decode`.
        n_nodes: how many of the most probable prefixes are shown; the greedy path is always shown.

    Returns:
        A table with a row per node, parents first. Its columns are

        - `node`, and `parent`, which is -1 for the root.
        - `kind`: a `prefix` was expanded, an `answer` ended, `open` was cut at the length limit,
          and `cut` stands for all continuations of a prefix that are not shown.
        - `text`: the text that the node adds to that of its parent.
        - `probability`. The probabilities of the leaves sum to 1.
        - `greedy`: whether the node is on the greedy path.

        A prefix with a single continuation is one node with it, unless more than 0.005 of the
        probability is lost between them.

    Raises:
        RunError: if the run is not an exact search.
    """
    run.tree()  # checks that there is a tree
    search = _read_search(run, n_nodes)
    rows: list[tuple] = []
    _add_prefix(rows, search, decode, vertex=0, parent=-1)
    return pd.DataFrame(rows, columns=_COLUMNS)


@dataclass(frozen=True)
class _Search:
    """The prefixes of a search. A vertex is the index of a prefix.

    The root is vertex 0.

    Attributes:
        paths: the token ids of every prefix.
        probabilities: the probability of every prefix.
        is_greedy: whether the prefix is on the greedy path.
        children: the shown vertices below each shown vertex.
        answers: the answers below each shown vertex; rows of the run's table with a `probability`.
    """

    paths: Sequence[Path]
    probabilities: np.ndarray
    is_greedy: Sequence[bool]
    children: defaultdict[int, list[int]]
    answers: defaultdict[int, list[Any]]

    def hidden_probability(self, vertex: int) -> float:
        """Return the probability of the continuations of a prefix that are not shown."""
        below = sum(self.probabilities[child] for child in self.children[vertex])
        ended = sum(answer.probability for answer in self.answers[vertex])
        return self.probabilities[vertex] - below - ended


def _read_search(run: Run, n_nodes: int) -> _Search:
    """Return the search of the run's question, with its most probable prefixes and greedy path."""
    question = run.questions.iloc[0]
    parents = question["tree_parents"]
    is_greedy = question["tree_greedy"]
    probabilities = np.exp(np.asarray(question["tree_log_probs"]))
    paths: list[Path] = []
    for parent, token in zip(parents, question["tree_tokens"], strict=True):
        paths.append((*paths[parent], int(token)) if parent >= 0 else ())
    most_probable = np.argsort(-probabilities, kind="stable")[:n_nodes].tolist()
    shown = sorted({*most_probable, *np.flatnonzero(is_greedy).tolist()})
    children: defaultdict[int, list[int]] = defaultdict(list)
    for vertex in shown:
        children[int(parents[vertex])].append(vertex)
    answers = _answers_by_vertex(run, {paths[vertex]: vertex for vertex in shown})
    return _Search(paths, probabilities, is_greedy, children, answers)


def _answers_by_vertex(run: Run, vertices: Mapping[Path, int]) -> defaultdict[int, list[Any]]:
    """Return the answers below each of the vertices.

    An answer is below its own prefix if that was expanded. Otherwise its last token has ended the
    answer, or the answer was cut at this token, and it is below the prefix without this token.
    """
    log_probs = complete_log_prob(run.answers["log_prob"], run.answers["end_log_prob"])
    answers: defaultdict[int, list[Any]] = defaultdict(list)
    for answer in run.answers.assign(probability=np.exp(log_probs)).itertuples():
        path = tuple(answer.token_ids)
        if not answer.finished or path not in vertices:
            path = path[:-1]
        if path in vertices:
            answers[vertices[path]].append(answer)
    return answers


def _add_prefix(
    rows: list[tuple], search: _Search, decode: Decode, *, vertex: int, parent: int
) -> None:
    """Add rows for a prefix, its answers, the prefixes below it, and its other continuations."""
    text = _added_text(search.paths[vertex], decode)
    hidden = search.hidden_probability(vertex)
    children = search.children[vertex]
    while len(children) == 1 and not search.answers[vertex] and hidden < _NEGLIGIBLE:
        [vertex] = children
        text += _added_text(search.paths[vertex], decode)
        hidden += search.hidden_probability(vertex)
        children = search.children[vertex]
    node = len(rows)
    is_greedy = bool(search.is_greedy[vertex])
    rows.append((node, parent, "prefix", text, search.probabilities[vertex], is_greedy))
    # If no prefix below continues the greedy path, it leads to the answers.
    is_path_end = is_greedy and not any(search.is_greedy[child] for child in children)
    for answer in search.answers[vertex]:
        kind = "answer" if answer.finished else "open"
        rows.append((len(rows), node, kind, answer.text, answer.probability, is_path_end))
    for child in children:
        _add_prefix(rows, search, decode, vertex=child, parent=node)
    rows.append((len(rows), node, "cut", "cut", max(hidden, 0.0), False))


def _added_text(path: Path, decode: Decode) -> str:
    """Return the text that the last token of a prefix adds."""
    text = decode(path)
    text_before = decode(path[:-1])
    if text.startswith(text_before):
        return text[len(text_before) :]
    # Some tokenizers spell the other tokens differently if the last one is missing.
    return decode(path[-1:])
