"""Exact search: every answer with p ≥ α, or the N most probable, and what is certain; knows tokens, no text.

No continuation is more probable than its prefix, so only prefixes with p ≥ α are expanded; the greedy path is kept
alive below α. With `top_n` the most probable prefixes go first, and α follows the N-th best answer found.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from pro_lib.engine.certificate import Certificate, Masses, SearchTree, certify
from pro_lib.engine.children import END, children
from pro_lib.engine.remainder import remainders
from pro_lib.engine.tree import Tree
from pro_lib.engine.walk import Answer, Endings

if TYPE_CHECKING:
    from pro_lib.engine.strategies import Threshold
# All that was met is a table of events, in the order in which they were met: prefixes, and answers that ended.
# `question` is -1 for what was met before a question was searched anew; `parent` the place of the prefix that the event
# follows, -1 for a prompt; `row` the row of the tree where that waits; `token` may be one of the codes of `children`;
# `entropy` that of what follows an expanded prefix. Those `named` are at or above the floor or greedy, of the others
# only the mass matters. Aligned, or torch could not read a column.
_EVENT = np.dtype(
    [(name, np.int64) for name in ("question", "parent", "token", "row", "depth", "kind")]
    + [(name, np.float64) for name in ("token_log_prob", "log_prob", "entropy")]
    + [(name, np.bool_) for name in ("greedy", "named")],
    align=True,
)
_OPEN, _COMPLETE, _CUT, _EXPANDED = range(4)
# Where the N-th answer is looked for: prefixes below the floor have no name; it falls if they are needed.
_FIRST_FLOOR, _FLOOR_STEP = math.log(1e-4), math.log(1e3)
# Prefixes within this factor of the most probable one are expanded together: fewer, wider steps.
_STRIDE = math.log(4)
# A wider search goes depth first, in pieces, to the same end: 128 MiB.
_LOG_PROBS_AT_ONCE = 2**25


class Search:
    """The search of a pack of questions. The network's outputs are reduced where they are; the rest is NumPy.

    `epsilon`: by how many nats log-probabilities may be off, `(T + 1,)` by the tokens of a prefix, its ending counted;
    the search goes that far below α.
    """

    def __init__(self, tree: Tree, endings: Endings, asked: "Threshold", *, epsilon: ArrayLike = 0.0):
        self.tree, self.endings, self.asked = tree, endings, asked
        self.epsilon = np.broadcast_to(epsilon, asked.max_new_tokens + 1)
        # With `top_n` both of two answers compared may be off, else only the one that is held against α.
        self.band = self.epsilon + (self.epsilon.max() if asked.top_n else 0.0)
        self.length, self.top_n, self.budget = asked.max_new_tokens, asked.top_n, asked.budget
        stop, closing = (table.numpy() for table in endings.on_host)
        self.n_events = len(stop) - stop.sum() + 1
        # By token; from the end: what is not listed of other tokens, of closing ones, the ending.
        self.completes = np.concatenate([closing, [False, True, True]])
        self.max_width = max(1, _LOG_PROBS_AT_ONCE // len(stop))

    def run(
        self, question_ids: Sequence[str] = (), exactly: Callable | None = None, spent: ArrayLike = 0
    ) -> list[tuple[list[Answer], Certificate]]:
        """The answers to each question, the greedy one among them, and what is certain.

        Questions undecided for what lies within ε of α alone are searched again, if the budget pays for as much again,
        in the tree that `exactly` makes of their places, with its ε; `spent` (n,) are the token-forwards before.
        """
        log_probs = self.tree.plant()
        n = len(log_probs)
        self.floor = np.full(n, _FIRST_FLOOR if self.top_n else math.log(self.asked.search_alpha))
        self.spent = np.zeros(n, np.int64) + spent
        self.blurred = np.zeros(n, np.bool_)
        # `waiting` are the places of what is to be expanded, `best` the log-probabilities of the N best answers so far,
        # `below` says of which questions an answer, or a prefix of one, lies below the floor.
        self.events, self.waiting = np.empty(0, _EVENT), np.arange(0)
        self.best, self.below = np.full((n, self.top_n or 0), -np.inf), np.zeros(n, np.bool_)
        needed, self.drawn = self.top_n or self.asked.entropy_draws, [{}] * n
        self.root_rows, self.root_log_probs = (np.arange(n), log_probs) if needed else (np.arange(0), None)
        self._start(np.arange(n), log_probs, np.arange(n))
        while len(batch := self._take()):
            self._expand(batch, *self._grow(batch))
        if self.asked.entropy_draws:
            self.drawn = remainders(self, self.events["kind"] == _OPEN, question_ids)
        of = self.events["question"].copy()
        results = [self._result(question, (of == question).nonzero()[0]) for question in range(n)]
        if exactly and len(again := self.blurred.nonzero()[0]):
            tree, epsilon = exactly(again)
            ids = [each for each, blurred in zip(question_ids, self.blurred, strict=False) if blurred]
            found = Search(tree, self.endings, self.asked, epsilon=epsilon).run(ids, spent=self.spent[again])
            for question, (answers, sure) in zip(again, found, strict=True):
                before = self.drawn[question].get("remainder_forwards", 0)
                results[question] = answers, replace(sure, remainder_forwards=sure.remainder_forwards + before)
        return results

    def _start(self, questions: np.ndarray, log_probs: Tensor, rows: np.ndarray) -> None:
        """Search questions from their prompts on, whose log-probabilities these are."""
        start = self._added(len(questions))
        roots = self.events[start:]
        roots["question"], roots["parent"], roots["token"], roots["greedy"] = questions, -1, END, True
        self._expand(start + np.arange(len(roots)), log_probs, rows)

    def _added(self, n: int) -> int:
        """Where n events more begin, all zero. Grown in place, since they may be millions: a view of before is void."""
        start = len(self.events)
        self.events.resize(start + n, refcheck=False)
        return start

    def _grow(self, batch: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Log-probabilities after the prefixes of the batch, and their rows; rows still waited for stay."""
        held = self.events["row"][self.waiting]
        keep = np.bincount(np.concatenate([held, self.root_rows])).nonzero()[0]
        prefixes = self.events[batch]
        rows, tokens, kept = (torch.from_numpy(column) for column in (prefixes["row"], prefixes["token"], keep))
        log_probs = self.tree.grow(rows, tokens, keep=kept)
        self.events["row"][self.waiting] = np.searchsorted(keep, held)
        self.root_rows = np.searchsorted(keep, self.root_rows)
        self.spent += np.bincount(prefixes["question"], minlength=len(self.spent))
        return log_probs, len(keep) + np.arange(len(batch))

    def _expand(self, batch: np.ndarray, log_probs: Tensor, rows: np.ndarray) -> None:
        """Add what may follow the prefixes at these places, each sorted by what becomes of it."""
        prefixes = self.events[batch]
        floors = self.floor[prefixes["question"]] - self.band[prefixes["depth"] + 1] - prefixes["log_prob"]
        found = children(log_probs, self.endings, floors, prefixes["greedy"])
        self.events["kind"][batch], self.events["entropy"][batch] = _EXPANDED, found.entropy
        start = self._added(len(found.row))
        question, depth, log_prob, greedy = (
            prefixes[name][found.row] for name in ("question", "depth", "log_prob", "greedy")
        )
        new, depth, log_prob = self.events[start:], depth + 1, log_prob + found.log_prob
        greedy &= found.token == found.best[found.row]
        kind = np.where(self.completes[found.token], _COMPLETE, np.where(depth == self.length, _CUT, _OPEN))
        reaches = log_prob >= self.floor[question] - self.band[depth]
        named = (found.token >= END) & (reaches | greedy)
        known = (question, batch[found.row], found.token, rows[found.row], depth, kind, found.log_prob, log_prob, 0.0)
        for name, column in zip(_EVENT.names, (*known, greedy, named), strict=True):
            new[name] = column
        self.waiting = np.concatenate([self.waiting, start + (named & (kind == _OPEN)).nonzero()[0]])
        if self.top_n:
            self._rank(question, log_prob, kind, named)

    def _rank(self, question: np.ndarray, log_prob: np.ndarray, kind: np.ndarray, named: np.ndarray) -> None:
        """Of new events keep the N best answers, and of which questions an answer, or a prefix of one, is too low."""
        # Below the floor the greedy answer may be, alone of many.
        answers = named & (kind == _COMPLETE) & (log_prob >= self.floor[question])
        for each in np.unique(question[answers]):
            scores = np.concatenate([self.best[each], log_prob[answers & (question == each)]])
            self.best[each] = np.sort(scores)[-self.top_n :]
        low = (kind == _COMPLETE) | ((kind == _OPEN) & ~named)
        self.below[question[low & ~answers & (np.exp(log_prob) > 0)]] = True

    def _take(self) -> np.ndarray:
        """Places of the prefixes to expand next; the deepest first where not all fit at once."""
        chosen = self.waiting
        if self.top_n:  # the greedy ones among them
            of, self.waiting = self.events["question"][chosen], chosen[:0]
            found = [self._best_of(question, chosen[of == question]) for question in range(len(self.floor))]
            chosen, self.waiting = (np.sort(np.concatenate(places)) for places in zip(*found, strict=True))
        if self.budget is not None:
            chosen = self._affordable(chosen)
        if len(chosen) > self.max_width:
            chosen = chosen[np.argsort(-self.events["depth"][chosen], kind="stable")[: self.max_width]]
        left = np.ones(len(self.waiting), np.bool_)
        left[np.searchsorted(self.waiting, chosen)] = False
        self.waiting = self.waiting[left]
        return chosen

    def _affordable(self, chosen: np.ndarray) -> np.ndarray:
        """Of the chosen prefixes those the budget pays for: greedy first, then the most probable.

        As long as the greedy path is open, the tokens it may still take are set aside. A question without budget waits
        for nothing more.
        """
        allowed = self.budget - self.spent
        self.waiting, chosen = (each[allowed[self.events["question"][each]] > 0] for each in (self.waiting, chosen))
        question, depth, greedy, log_prob = (
            self.events[name][chosen] for name in ("question", "depth", "greedy", "log_prob")
        )
        set_aside = np.maximum(self.length - depth[greedy], 1)
        allowed[question[greedy]] = np.maximum(allowed[question[greedy]] - set_aside, 0) + 1
        order = np.lexsort((-log_prob, ~greedy, question))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order)) - np.searchsorted(question[order], question[order])
        return chosen[rank < allowed[question]]

    def _best_of(self, question: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of a question's prefixes that wait at these places those to expand next, and those that still wait.

        Where answers are missing and none waits above the floor, it is searched anew further down. Once none that waits
        can be among the N most probable, none waits any more.
        """
        while True:
            greedy, log_prob, depth = (self.events[name][places] for name in ("greedy", "log_prob", "depth"))
            nth = self.best[question, 0]
            hopeful = ~greedy & (log_prob >= nth - self.band[depth])
            broke = self.budget is not None and self.spent[question] >= self.budget
            if nth > -np.inf or hopeful.any() or broke or not self.below[question]:
                best = log_prob[hopeful].max(initial=-np.inf)
                next_ones = greedy | (hopeful & (log_prob >= best - _STRIDE))
                return places[next_ones], places[greedy | hopeful.any()]
            self.floor[question] -= _FLOOR_STEP
            self.events["question"][self.events["question"] == question] = -1
            self.best[question], self.below[question] = -np.inf, False
            self._start(np.array([question]), self.root_log_probs[[question]], self.root_rows[[question]])
            places, self.waiting = self.waiting, self.waiting[:0]

    def _result(self, question: int, places: np.ndarray) -> tuple[list[Answer], Certificate]:
        kind, log_prob, depth, greedy, named = (
            self.events[name][places] for name in ("kind", "log_prob", "depth", "greedy", "named")
        )
        p = np.exp(log_prob)
        nth = self.best[question, 0] if self.top_n else -np.inf
        log_alpha, band = nth if nth > -np.inf else self.floor[question], self.band[depth]
        reaches = named & (log_prob >= log_alpha - band)
        expanded, complete = kind == _EXPANDED, named & (kind == _COMPLETE)
        open_cut, open_left = reaches & (kind == _CUT), reaches & (kind == _OPEN)
        found = complete & (log_prob >= log_alpha)
        within = reaches & (log_prob <= log_alpha + band) & (~found if self.top_n else band > 0)
        near = within & complete
        affordable = self.budget is None or 2 * self.spent[question] <= self.budget
        clear = (open_cut & ~within) | open_left
        self.blurred[question] = affordable and (near | (within & open_cut)).any() and not clear.any()
        too_few = bool(self.top_n) and found.sum() < self.top_n
        left = open_left.any() or (too_few and self.below[question])
        at_least_alpha = np.where(named, np.maximum(log_prob, log_alpha), log_alpha)
        nodes = self.events[places[expanded]]
        parents = np.where(nodes["parent"] < 0, -1, np.searchsorted(places[expanded], nodes["parent"]))
        certificate = certify(
            tree=SearchTree(parents, nodes["token"], nodes["log_prob"], nodes["entropy"], nodes["greedy"]),
            masses=Masses(
                found=p[found].sum(),
                small_endings=p[(kind == _COMPLETE) & ~found].sum(),
                pruned=p[(kind == _OPEN) & ~open_left].sum(),
                length_cut=p[kind == _CUT].sum(),
                budget_cut=p[open_left].sum(),
            ),
            doubts={
                f"a prefix at or above α is still open at {self.length} tokens": open_cut.any(),
                f"the budget of {self.budget} token-forwards was spent with prefixes at or above α unexpanded": left,
                f"an answer lies within {self.band.max():.3g} nats of α": near.any(),
            },
            n_found=int(found.sum()),
            search_alpha=math.exp(log_alpha),
            epsilon=float(self.epsilon.max()),
            alpha_floor=-float(np.sum((p * at_least_alpha)[~expanded])),
            open_entropy=np.sum((p * (self.length - depth))[kind == _OPEN]) * math.log(self.n_events),
            token_forwards=int(self.spent[question]),
            why_certified=f"there are only {found.sum()} answers" if too_few else "",
            **self.drawn[question],
        )
        given = ~expanded & (greedy | (reaches & (kind != _OPEN)))
        return [self._answer(event) for event in self.events[places[given]]], certificate

    def _answer(self, event: np.void) -> Answer:
        tokens, log_probs, finished = [], [], bool(event["kind"] == _COMPLETE)
        end = None if finished else 0.0
        if event["token"] == END:
            end, event = float(event["token_log_prob"]), self.events[event["parent"]]
        while event["parent"] >= 0:
            tokens.append(int(event["token"]))
            log_probs.append(float(event["token_log_prob"]))
            event = self.events[event["parent"]]
        return Answer(tuple(tokens[::-1]), tuple(log_probs[::-1]), end, finished)
