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

from pro_lib.decoding.certificate import Certificate, Masses, SearchTree, certify
from pro_lib.decoding.children import END, children
from pro_lib.decoding.remainder import remainders
from pro_lib.decoding.tree import Tree
from pro_lib.decoding.walk import Answer, Endings

if TYPE_CHECKING:
    from pro_lib.decoding.strategies import Threshold
# All that was met is a table of events, in the order in which they were met: prefixes, and answers that ended.
# `question` is -1 for what was met before a question was searched anew; `parent` the place of the prefix that the event
# follows, -1 for a prompt; `row` the row of the tree where that waits; `token` may be one of the codes of `children`;
# `entropy` that of what follows an expanded prefix. Those `named` are at or above the floor or greedy, of the others
# only the mass matters; those `waiting` are to be expanded. Aligned, or torch could not read a column.
_EVENT = np.dtype(
    [(name, np.int64) for name in ("question", "parent", "token", "row", "depth", "kind")]
    + [(name, np.float64) for name in ("token_log_prob", "log_prob", "entropy")]
    + [(name, np.bool_) for name in ("greedy", "named", "waiting")],
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
        self.events = np.empty(0, _EVENT)
        needed, self.drawn = self.top_n or self.asked.entropy_draws, [{}] * n
        self.root_rows, self.root_log_probs = (np.arange(n), log_probs) if needed else (np.arange(0), None)
        self._start(np.arange(n), log_probs, np.arange(n))
        while len(batch := self._take()):
            self._expand(batch, *self._grow(batch))
        if self.asked.entropy_draws:
            self.drawn = remainders(self, self.events["kind"] == _OPEN, question_ids)
        results = [self._result(question) for question in range(n)]
        if exactly and len(again := self.blurred.nonzero()[0]):
            tree, epsilon = exactly(again)
            ids = [each for each, blurred in zip(question_ids, self.blurred, strict=False) if blurred]
            found = Search(tree, self.endings, self.asked, epsilon=epsilon).run(ids, spent=self.spent[again])
            for question, (answers, sure) in zip(again, found, strict=True):
                before = self.drawn[question].get("remainder_forwards", 0)
                results[question] = answers, replace(sure, remainder_forwards=sure.remainder_forwards + before)
        return results

    def _start(self, questions: np.ndarray, log_probs: Tensor, rows: np.ndarray) -> None:
        """Search questions from their prompts on, whose log-probabilities these are, and forget what was met before."""
        self.events["question"][np.isin(self.events["question"], questions)] = -1
        self.events["waiting"] &= self.events["question"] >= 0
        roots = np.zeros(len(questions), _EVENT)
        roots["question"], roots["parent"], roots["token"], roots["greedy"] = questions, -1, END, True
        self.events = np.concatenate([self.events, roots], dtype=_EVENT)
        self._expand(len(self.events) - len(roots) + np.arange(len(roots)), log_probs, rows)

    def _grow(self, batch: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Log-probabilities after the prefixes of the batch, and their rows; rows still waited for stay."""
        self.events["waiting"][batch] = False
        waiting = self.events["waiting"].nonzero()[0]
        keep = np.unique(np.concatenate([self.events["row"][waiting], self.root_rows]))
        prefixes = self.events[batch]
        rows, tokens, kept = (torch.from_numpy(column) for column in (prefixes["row"], prefixes["token"], keep))
        log_probs = self.tree.grow(rows, tokens, keep=kept)
        self.events["row"][waiting] = np.searchsorted(keep, self.events["row"][waiting])
        self.root_rows = np.searchsorted(keep, self.root_rows)
        self.spent += np.bincount(prefixes["question"], minlength=len(self.spent))
        return log_probs, len(keep) + np.arange(len(batch))

    def _expand(self, batch: np.ndarray, log_probs: Tensor, rows: np.ndarray) -> None:
        """Add what may follow the prefixes at these places, each sorted by what becomes of it."""
        prefixes = self.events[batch]
        floors = self.floor[prefixes["question"]] - self.band[prefixes["depth"] + 1] - prefixes["log_prob"]
        found = children(log_probs, self.endings, floors, prefixes["greedy"])
        self.events["kind"][batch], self.events["entropy"][batch] = _EXPANDED, found.entropy
        of, new = prefixes[found.row], np.zeros(len(found.row), _EVENT)
        new["question"], new["parent"], new["row"] = of["question"], batch[found.row], rows[found.row]
        new["token"], new["depth"] = found.token, of["depth"] + 1
        new["token_log_prob"], new["log_prob"] = found.log_prob, of["log_prob"] + found.log_prob
        new["greedy"] = of["greedy"] & (found.token == found.best[found.row])
        at_length = np.where(new["depth"] == self.length, _CUT, _OPEN)
        new["kind"] = np.where(self.completes[found.token], _COMPLETE, at_length)
        reaches = new["log_prob"] >= self.floor[new["question"]] - self.band[new["depth"]]
        new["named"] = (found.token >= END) & (reaches | new["greedy"])
        new["waiting"] = new["named"] & (new["kind"] == _OPEN)
        self.events = np.concatenate([self.events, new], dtype=_EVENT)

    def _take(self) -> np.ndarray:
        """Places of the prefixes to expand next; the deepest first where not all fit at once."""
        chosen = self.events["waiting"].nonzero()[0]
        if self.top_n:  # the greedy ones among them
            chosen = np.sort(np.concatenate([self._best_of(question) for question in range(len(self.floor))]))
        if self.budget is not None:
            chosen = self._affordable(chosen)
        if len(chosen) > self.max_width:
            chosen = chosen[np.argsort(-self.events["depth"][chosen], kind="stable")[: self.max_width]]
        return chosen

    def _affordable(self, chosen: np.ndarray) -> np.ndarray:
        """Of the chosen prefixes those the budget pays for: greedy first, then the most probable.

        As long as the greedy path is open, the tokens it may still take are set aside. A question without budget waits
        for nothing more.
        """
        allowed = self.budget - self.spent
        self.events["waiting"] &= allowed[self.events["question"]] > 0
        chosen = chosen[self.events["waiting"][chosen]]
        question, depth, greedy, log_prob = (
            self.events[name][chosen] for name in ("question", "depth", "greedy", "log_prob")
        )
        set_aside = np.maximum(self.length - depth[greedy], 1)
        allowed[question[greedy]] = np.maximum(allowed[question[greedy]] - set_aside, 0) + 1
        order = np.lexsort((-log_prob, ~greedy, question))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order)) - np.searchsorted(question[order], question[order])
        return chosen[rank < allowed[question]]

    def _best_of(self, question: int) -> np.ndarray:
        """Of a question; where answers are missing and none waits above the floor, it is searched anew further down.

        Once none that waits can be among the N most probable, none waits any more.
        """
        while True:
            places, mine = self._of(question)
            nth = self._nth(question, mine)
            greedy, others = mine["waiting"] & mine["greedy"], mine["waiting"] & ~mine["greedy"]
            hopeful = others & (mine["log_prob"] >= nth - self.band[mine["depth"]])
            self.events["waiting"][places] = greedy | (others & hopeful.any())
            broke = self.budget is not None and self.spent[question] >= self.budget
            if nth > -np.inf or hopeful.any() or broke or not self._more_below(question, mine):
                best = mine["log_prob"][hopeful].max(initial=-np.inf)
                return places[greedy | (hopeful & (mine["log_prob"] >= best - _STRIDE))]
            self.floor[question] -= _FLOOR_STEP
            self._start(np.array([question]), self.root_log_probs[[question]], self.root_rows[[question]])

    def _of(self, question: int) -> tuple[np.ndarray, np.ndarray]:
        places = (self.events["question"] == question).nonzero()[0]
        return places, self.events[places]

    def _sure(self, question: int, mine: np.ndarray) -> np.ndarray:
        """Complete answers at or above the floor; below it the greedy one may be, alone of many."""
        return (mine["kind"] == _COMPLETE) & mine["named"] & (mine["log_prob"] >= self.floor[question])

    def _nth(self, question: int, mine: np.ndarray) -> float:
        """Log-probability of the N-th best answer so far, -inf if there are fewer."""
        found = np.sort(mine["log_prob"][self._sure(question, mine)])[::-1]
        return found[self.top_n - 1] if len(found) >= self.top_n else -np.inf

    def _more_below(self, question: int, mine: np.ndarray) -> bool:
        """Whether an answer, or a prefix of one, lies below the floor."""
        complete = (mine["kind"] == _COMPLETE) & ~self._sure(question, mine)
        return bool(((complete | ((mine["kind"] == _OPEN) & ~mine["named"])) & (np.exp(mine["log_prob"]) > 0)).any())

    def _result(self, question: int) -> tuple[list[Answer], Certificate]:
        places, mine = self._of(question)
        kind, log_prob, p = mine["kind"], mine["log_prob"], np.exp(mine["log_prob"])
        nth = self._nth(question, mine) if self.top_n else -np.inf
        log_alpha, band = nth if nth > -np.inf else self.floor[question], self.band[mine["depth"]]
        reaches = mine["named"] & (log_prob >= log_alpha - band)
        expanded, complete = kind == _EXPANDED, mine["named"] & (kind == _COMPLETE)
        open_cut, open_left = reaches & (kind == _CUT), reaches & (kind == _OPEN)
        found = complete & (log_prob >= log_alpha)
        within = reaches & (log_prob <= log_alpha + band) & (~found if self.top_n else band > 0)
        near = within & complete
        affordable = self.budget is None or 2 * self.spent[question] <= self.budget
        clear = (open_cut & ~within) | open_left
        self.blurred[question] = affordable and (near | (within & open_cut)).any() and not clear.any()
        too_few = bool(self.top_n) and found.sum() < self.top_n
        left = open_left.any() or (too_few and self._more_below(question, mine))
        at_least_alpha = np.where(mine["named"], np.maximum(log_prob, log_alpha), log_alpha)
        nodes = mine[expanded]
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
            open_entropy=np.sum((p * (self.length - mine["depth"]))[kind == _OPEN]) * math.log(self.n_events),
            token_forwards=int(self.spent[question]),
            why_certified=f"there are only {found.sum()} answers" if too_few else "",
            **self.drawn[question],
        )
        given = ~expanded & (mine["greedy"] | (reaches & (kind != _OPEN)))
        return [self._answer(event) for event in mine[given]], certificate

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
