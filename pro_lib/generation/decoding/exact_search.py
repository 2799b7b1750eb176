"""Exact search: every answer with p ≥ α, or the N most probable, and what is certain; knows tokens, no text.

No continuation is more probable than its prefix, so only prefixes with p ≥ α and the greedy path are expanded. The N
most probable are found by searches at falling α, until N answers reach it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from pro_lib.generation.decoding.next_tokens import END, OTHER, UNSEEN, Endings, children
from pro_lib.generation.decoding.packed_tree import Tree, to_device
from pro_lib.generation.decoding.steps import Outcome
from pro_lib.runs.certificate import Certificate

# What a search meets, in that order: prefixes, and answers that ended. `parent` is the place of the prefix before, -1
# for a prompt; `row` the row of the tree where that waits; `token` may be a code of `children`; `entropy` that of what
# follows. Events at or above α, or greedy, are `named`; of others only the mass matters. Aligned for torch to read.
_EVENT = np.dtype(
    [(name, np.int64) for name in ("question", "parent", "token", "row", "depth", "kind")]
    + [(name, np.float64) for name in ("token_log_prob", "log_prob", "entropy")]
    + [(name, np.bool_) for name in ("greedy", "named")],
    align=True,
)
_OPEN, _COMPLETE, _CUT, _EXPANDED = range(4)
# Where the search for the N most probable begins; nats further down each time
_FIRST_ALPHA, _STEP = (
    0.02,
    math.log(4),
)
N_QUESTIONS, FEWEST = 16, 4  # on whose likely answers ε is measured
_LOG_PROBS_AT_ONCE = 2**25  # a wider search goes depth first, in pieces, to the same end: 128 MiB


def search(
    tree: Tree, endings: Endings, *, max_new_tokens: int, search_alpha: float | None = None, top_n: int | None = None,
    budget: int | None = None, epsilon: ArrayLike = 0.0,
) -> list[tuple[list[Outcome], Certificate]]:  # fmt: skip
    """Return for each question all answers with p ≥ α, or the N most probable, the greedy one, and what is certain.

    `budget` are the most token-forwards of a question. By `epsilon` nats log-probabilities may be off, one number or
    `(T + 1,)` by the tokens of a prefix, its ending counted; the search goes that far below α.
    """
    results: dict[int, tuple[list[Outcome], Certificate]] = {}
    epsilon, log_alpha = (
        np.broadcast_to(epsilon, max_new_tokens + 1),
        math.log(search_alpha or _FIRST_ALPHA),
    )
    task, left = Search(tree, endings, max_new_tokens, top_n, budget, epsilon), None
    while left != []:
        left = task.run(log_alpha, left)
        results |= {
            question: task.result(question) for question in left if task.is_enough(question)
        }
        left = [question for question in left if question not in results]
        log_alpha -= _STEP
    return [results[question] for question in sorted(results)]


@dataclass
class Search:
    """The search of a batch of questions, down to one α at a time."""

    tree: Tree
    endings: Endings
    length: int
    top_n: int | None
    budget: int | None
    epsilon: np.ndarray

    def __post_init__(self) -> None:
        # Of the N most probable both of two answers compared may be off, else only the one that is held against α.
        self.band = self.epsilon + (self.epsilon.max() if self.top_n else 0.0)
        self.n_events = int((~self.endings.on_host[0]).sum()) + 1
        self.max_width = max(1, _LOG_PROBS_AT_ONCE // len(self.endings.stop))

    def run(self, log_alpha: float, questions: Sequence[int] | None = None) -> list[int]:
        """Search some questions of the tree, or all, from their prompts on; return which."""
        log_probs, rows = self.tree.plant(), np.array(questions)
        if questions is None:
            rows, self.spent = np.arange(len(log_probs)), np.zeros(len(log_probs), np.int64)
        else:
            log_probs = log_probs[to_device(log_probs.device, rows)[0]]
        self.floor, self.events, self.waiting = log_alpha, np.empty(0, _EVENT), np.arange(0)
        self._add(len(rows), question=rows, parent=-1, token=END, greedy=True)
        self._expand(np.arange(len(rows)), log_probs, rows)
        del log_probs  # as large as those of a step
        while len(batch := self._take()):
            self._expand(batch, *self._grow(batch))
        return rows.tolist()

    def _add(self, n: int, **columns: ArrayLike) -> int:
        """Add n events, zero where no column is given; return where they begin. A view from before is void."""
        start = len(self.events)
        self.events.resize(start + n, refcheck=False)
        for name, column in columns.items():
            self.events[name][start:] = column
        return start

    def _take(self) -> np.ndarray:
        """Return the places of the prefixes to expand next; the deepest first where not all fit at once."""
        places = self.waiting if self.budget is None else self._affordable()
        if len(places) > self.max_width:
            places = places[
                np.argsort(-self.events["depth"][places], kind="stable")[: self.max_width]
            ]
        self.waiting = np.setdiff1d(self.waiting, places, assume_unique=True)
        return places

    def _affordable(self) -> np.ndarray:
        """Return the waiting prefixes that the budget pays for, the rest of the greedy path first, then by p."""
        left = (self.budget or 0) - self.spent
        self.waiting = places = self.waiting[left[self.events["question"][self.waiting]] > 0]
        events = self.events[places]
        question, greedy = events["question"], events["greedy"]
        set_aside = np.maximum(self.length - events["depth"][greedy], 1)
        left[question[greedy]] = np.maximum(left[question[greedy]] - set_aside, 0) + 1
        order = np.lexsort((-events["log_prob"], ~greedy, question))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order)) - np.searchsorted(question[order], question[order])
        return places[rank < left[question]]

    def _grow(self, batch: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Return log-probabilities after the prefixes of the batch, and their rows; rows still waited for stay."""
        rows = self.events["row"][self.waiting]
        keep = np.unique(rows)
        prefixes = self.events[batch]
        parents, tokens = (torch.from_numpy(prefixes[name]) for name in ("row", "token"))
        log_probs = self.tree.grow(parents, tokens, keep=torch.from_numpy(keep))
        self.events["row"][self.waiting] = np.searchsorted(keep, rows)
        self.spent += np.bincount(prefixes["question"], minlength=len(self.spent))
        return log_probs, len(keep) + np.arange(len(batch))

    def _expand(self, batch: np.ndarray, log_probs: Tensor, rows: np.ndarray) -> None:
        """Add what may follow the prefixes at these places, each sorted by what becomes of it."""
        prefixes = self.events[batch]
        floors = self.floor - self.band[prefixes["depth"] + 1] - prefixes["log_prob"]
        expanded = getattr(self.tree, "children", children)  # a server's tree asks for them itself
        events = expanded(log_probs, self.endings, floors, prefixes["greedy"])
        self.events["kind"][batch], self.events["entropy"][batch] = _EXPANDED, events.entropy
        parents = prefixes[events.row]
        depth, log_prob = parents["depth"] + 1, parents["log_prob"] + events.log_prob
        if hasattr(
            self.tree, "children"
        ):  # which token it is counts in the entropy of what a server does not list
            depth = depth - (events.token <= OTHER)
        greedy = parents["greedy"] & (events.token == events.best[events.row])
        kind = np.where(events.completes, _COMPLETE, np.where(depth == self.length, _CUT, _OPEN))
        is_seen = events.token != UNSEEN
        named = (events.token != OTHER) & (
            (log_prob >= self.floor - self.band[depth]) | greedy | ~is_seen
        )
        start = self._add(
            len(events.row),
            question=parents["question"],
            parent=batch[events.row],
            token=events.token,
            row=rows[events.row],
            depth=depth,
            kind=kind,
            token_log_prob=events.log_prob,
            log_prob=log_prob,
            greedy=greedy,
            named=named,
        )
        self.waiting = np.concatenate(
            [self.waiting, start + (named & is_seen & (kind == _OPEN)).nonzero()[0]]
        )

    def is_enough(self, question: int) -> bool:
        """Return whether a question needs no search further down, or the budget may not pay for another path."""
        spent = self.budget is not None and self.budget - self.spent[question] < self.length
        return bool(spent or not self._may_miss(self.events[self.events["question"] == question]))

    def _may_miss(self, events: np.ndarray) -> bool:
        """Return whether fewer than N answers to a question reach α, and below α there is some probability."""
        answers = (
            (events["kind"] == _COMPLETE) & events["named"] & (events["log_prob"] >= self.floor)
        )
        below = ((events["kind"] == _COMPLETE) & ~answers) | (events["kind"] == _OPEN)
        return answers.sum() < (self.top_n or 0) and bool(np.exp(events["log_prob"][below]).any())

    def result(self, question: int) -> tuple[list[Outcome], Certificate]:
        """Return the answers to a question and their certificate."""
        places = (self.events["question"] == question).nonzero()[0]
        events, log_alpha = self.events[places], self.floor
        answers = (
            (events["kind"] == _COMPLETE) & events["named"] & (events["log_prob"] >= log_alpha)
        )
        if self.top_n and answers.sum() >= self.top_n:
            log_alpha = float(np.sort(events["log_prob"][answers])[-self.top_n])
        near = events["named"] & (events["log_prob"] >= log_alpha - self.band[events["depth"]])
        near |= events["token"] == UNSEEN
        ended = (events["kind"] == _COMPLETE) | (events["kind"] == _CUT)
        paths = events[(near & ended) | (events["greedy"] & (events["kind"] != _EXPANDED))]
        return [self._answer(event) for event in paths], self._certificate(
            question, places, log_alpha, near
        )

    def _certificate(
        self, question: int, places: np.ndarray, log_alpha: float, near: np.ndarray
    ) -> Certificate:
        """Return what is certain of a question's events at these places; those `near` may lie at or above α."""
        events = self.events[places]
        p, kind, is_open = np.exp(events["log_prob"]), events["kind"], events["kind"] == _OPEN
        found = (kind == _COMPLETE) & events["named"] & (events["log_prob"] >= log_alpha)
        parts = {
            "found_mass": found,
            "small_endings_mass": (kind == _COMPLETE) & ~found,
            "pruned_mass": is_open & ~near,
            "length_cut_mass": kind == _CUT,
            "budget_cut_mass": is_open & near,
        }
        masses: dict[str, Any] = {name: float(p[where].sum()) for name, where in parts.items()}
        status, why = self._status(events, log_alpha, near, found.sum())
        expanded = kind == _EXPANDED
        at_least_alpha = np.where(
            events["named"], np.maximum(events["log_prob"], log_alpha), log_alpha
        )
        nodes = events[expanded]
        parents = np.where(
            nodes["parent"] < 0, -1, np.searchsorted(places[expanded], nodes["parent"])
        )
        tree_bound = float(np.sum(np.exp(nodes["log_prob"]) * nodes["entropy"]))
        tokens_left = np.sum((p * (self.length - events["depth"]))[is_open])
        return Certificate(
            status=status,
            why=why,
            search_alpha=math.exp(log_alpha),
            epsilon=float(self.epsilon.max()),
            **masses,
            expanded_prefixes=len(nodes),
            depth=int(nodes["depth"].max()),
            token_forwards=int(self.spent[question]),
            alpha_floor=-float(np.sum((p * at_least_alpha)[~expanded])),
            tree_bound=tree_bound,
            upper_bound=tree_bound + float(tokens_left * math.log(self.n_events)),
            tree_parents=tuple(parents.tolist()),
            tree_tokens=tuple(nodes["token"].tolist()),
            tree_log_probs=tuple(nodes["log_prob"].tolist()),
            tree_entropies=tuple(nodes["entropy"].tolist()),
            tree_greedy=tuple(nodes["greedy"].tolist()),
        )

    def _status(
        self, events: np.ndarray, log_alpha: float, near: np.ndarray, n_answers: int
    ) -> tuple[str, str]:
        """Return the status of a question's search, and why; the events `near` may lie at or above α."""
        kind, band = events["kind"], self.band[events["depth"]]
        unseen = near & (events["token"] == UNSEEN)
        left = (near & ~unseen & (kind == _OPEN)).any() or self._may_miss(events)
        # Of the N most probable, none is in doubt but for an answer just below them.
        doubtful = near & (kind == _COMPLETE) & (events["log_prob"] <= log_alpha + band)
        doubtful &= (events["log_prob"] < log_alpha) if self.top_n else (band > 0)
        doubts = {
            f"a prefix at or above α is still open at {self.length} tokens": near & (kind == _CUT),
            "the server does not list, or lists differently, what may reach α": unseen,
            f"the budget of {self.budget} token-forwards was spent with prefixes at or above α unexpanded": left,
            f"an answer lies within {self.band.max():.3g} nats of α": doubtful,
        }
        if why := "; ".join(sentence for sentence, holds in doubts.items() if np.any(holds)):
            return "undecided", why
        if not n_answers:
            if (events["greedy"] & (kind == _CUT)).any():
                return (
                    "cut",
                    f"no answer reaches α, and the greedy one is still open at {self.length} tokens",
                )
            return "fallback", "no answer reaches α"
        return "certified", f"there are only {n_answers} answers" if n_answers < (
            self.top_n or 0
        ) else ""

    def _answer(self, event: np.void) -> Outcome:
        """Return the path from the prompt to an event, as an answer."""
        tokens, log_probs, finished = [], [], bool(event["kind"] == _COMPLETE)
        end = None if finished else 0.0
        if event["token"] == END:
            end, event = float(event["token_log_prob"]), self.events[event["parent"]]
        while event["parent"] >= 0:
            tokens.append(int(event["token"]))
            log_probs.append(float(event["token_log_prob"]))
            event = self.events[event["parent"]]
        return Outcome(tuple(tokens[::-1]), tuple(log_probs[::-1]), end, finished)


def measured_epsilon(
    tree_of: Callable[..., Tree],
    prompts: Sequence[Sequence[int]],
    endings: Endings,
    *,
    max_new_tokens: int,
) -> np.ndarray:
    """Ask prompts together and alone; return twice the largest difference up to each depth, nats `(T + 1,)`.

    At most `N_QUESTIONS`, and at least `FEWEST`: a prompt alone would seem to be exact, and is asked beside its ends.
    """
    ends = (prompts[0][n % len(prompts[0]) :] for n in range(FEWEST))
    prompts = [*prompts, *ends][: min(max(len(prompts), FEWEST), N_QUESTIONS)]
    batches, answered = (
        [[prompt] for prompt in prompts],
        partial(search, endings=endings, search_alpha=0.01),
    )
    together, *alone = (
        answered(tree_of(batch), max_new_tokens=max_new_tokens) for batch in (prompts, *batches)
    )
    largest = np.zeros(max_new_tokens + 1)
    for (answers, _), [(others, _)] in zip(together, alone, strict=True):
        mine, theirs = _prefixes(answers), _prefixes(others)
        for path in mine.keys() & theirs.keys():
            largest[len(path)] = max(largest[len(path)], abs(mine[path] - theirs[path]))
    return 2 * np.maximum.accumulate(largest)


def _prefixes(answers: list[Outcome]) -> dict[tuple[int, ...], float]:
    """Return the log-probability of each prefix of some answers, and of the answers: their ending is the token -1."""
    prefixes: dict[tuple[int, ...], float] = {}
    for answer in answers:
        sums = np.cumsum(
            [*answer.token_log_probs, *([answer.end_log_prob] if answer.end_log_prob else [])]
        ).tolist()
        prefixes |= {
            (*answer.token_ids, -1)[:length]: total for length, total in enumerate(sums, start=1)
        }
    return prefixes
