"""Which children of the prefix tree to open: greedy, multinomial samples, diverse beams, exact search."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pro_lib.decoding.certificate import Ledger
from pro_lib.decoding.tree import PackedTree, at_least, most_probable


@dataclass(frozen=True)
class Answer:
    """One path through the tree, its tokens and their log-probabilities under the unmodified model (nats).

    `end_log_prob` is that of ending here, all stop tokens together. It is 0 for a path still open at the length
    cut (`finished` is False) and for one whose last token carries the newline that ends it: there the ending is
    part of that token.
    """

    token_ids: tuple[int, ...]
    token_log_probs: tuple[float, ...]
    end_log_prob: float
    finished: bool


@dataclass(frozen=True)
class Endings:
    """The tokens that end an answer, as boolean tables of shape `(V,)`.

    A `stop` token ends it and is no part of it; a `closing` token carries text before a newline, belongs to the
    answer and ends it.
    """

    stop: Tensor
    closing: Tensor

    # As ids: a boolean index is counted anew at each use, and on a GPU waited for.
    @cached_property
    def stop_ids(self) -> Tensor:
        """The stop tokens, in order."""
        return self.stop.nonzero().squeeze(1)

    @cached_property
    def closing_ids(self) -> Tensor:
        """The closing tokens, in order."""
        return self.closing.nonzero().squeeze(1)

    @cached_property
    def on_host(self) -> tuple[Tensor, Tensor]:
        """Both tables, `stop` and `closing`, where the bookkeeping is done."""
        return self.stop.cpu(), self.closing.cpu()

    def log_prob(self, log_probs: Tensor) -> Tensor:
        """`(rows, V)` -> `(rows,)`: log-probability that the answer ends here, whichever stop token says so."""
        return torch.logsumexp(log_probs[:, self.stop_ids].double(), dim=-1)


# Given the step, the log-probabilities (rows, V), the row of each walker (questions, walkers) and which walkers
# are still open (same shape), choose a token for each walker.
Choose = Callable[[int, Tensor, Tensor, Tensor], Tensor]


def greedy(tree: PackedTree, endings: Endings, *, max_new_tokens: int = 32) -> list[list[Answer]]:
    """The most probable next token, again and again: one answer per question."""

    def choose(step: int, log_probs: Tensor, rows: Tensor, is_open: Tensor) -> Tensor:
        return log_probs.argmax(dim=-1)[rows]

    return _walk(tree, endings, choose, n_answers=1, max_new_tokens=max_new_tokens)


def multinomial(
    tree: PackedTree,
    endings: Endings,
    *,
    uniforms: Tensor,
    temperature: float = 1.0,
    top_p: float = 1.0,
) -> list[list[Answer]]:
    """Samples by inversion: `uniforms (questions, N, T)` in [0, 1), float64, decide every draw.

    Temperature and nucleus shape the draw only; the log-probabilities kept are the unmodified model's.
    """

    def choose(step: int, log_probs: Tensor, rows: Tensor, is_open: Tensor) -> Tensor:
        cumulative = _nucleus(torch.softmax(log_probs.double() / temperature, dim=-1), top_p).cumsum(dim=-1)
        tokens = torch.empty_like(rows)
        for sample in range(rows.shape[1]):
            line = cumulative[rows[:, sample]]
            drawn = uniforms[:, sample, step, None] * line[:, -1:]
            tokens[:, sample] = torch.searchsorted(line, drawn, right=True).squeeze(1)
        # Rounding may push a draw onto the total itself, one past the last token.
        return tokens.clamp_(max=log_probs.shape[1] - 1)

    return _walk(tree, endings, choose, n_answers=uniforms.shape[1], max_new_tokens=uniforms.shape[2])


def diverse_beam(
    tree: PackedTree,
    endings: Endings,
    *,
    n_answers: int = 10,
    diversity_penalty: float = 1.0,
    max_new_tokens: int = 32,
) -> list[list[Answer]]:
    """N groups of one beam each; a token costs λ for every earlier group that took it at this step.

    Vijayakumar et al. 2018, with the Hamming penalty, as `generate(num_beams=N, num_beam_groups=N)` did it: a
    group that ends still penalises the token it would have taken instead, and penalises nothing afterwards.
    """

    def choose(step: int, log_probs: Tensor, rows: Tensor, is_open: Tensor) -> Tensor:
        # Only tokens that do not stop are ever penalised, at most one more per group. So a group's best of them is
        # among the N best of its row, and its best stop token is the row's.
        ids, values = most_probable(log_probs.index_fill(1, endings.stop_ids, -torch.inf), n_answers)
        stop_value, place = log_probs[:, endings.stop_ids].max(dim=-1)
        stop_id = endings.stop_ids[place]
        tokens, taken = torch.empty_like(rows), torch.empty_like(rows)
        for group in range(n_answers):
            row = rows[:, group]
            before = (ids[row, :, None] == taken[:, None, :group]) & is_open[:, None, :group]
            best, place = (values[row] - diversity_penalty * before.sum(dim=-1)).max(dim=-1)
            taken[:, group] = other = ids[row, place]
            ends = (stop_value[row] > best) | ((stop_value[row] == best) & (stop_id[row] < other))
            tokens[:, group] = torch.where(ends, stop_id[row], other)
        return tokens

    return _walk(tree, endings, choose, n_answers=n_answers, max_new_tokens=max_new_tokens)


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Zero all but the smallest set of most probable tokens whose mass reaches `top_p` (Holtzman et al. 2020)."""
    if top_p >= 1.0:
        return probabilities
    ordered, index = probabilities.sort(dim=-1, descending=True, stable=True)
    mass_before = ordered.cumsum(dim=-1) - ordered
    return torch.zeros_like(probabilities).scatter(-1, index, ordered * (mass_before < top_p))


@dataclass(frozen=True)
class _Record:
    """What the walkers did, a tensor `(questions, walkers)` per step; the log-probabilities stay on their device."""

    tokens: list[Tensor]
    stops: list[Tensor]
    closes: list[Tensor]
    token_log_probs: list[Tensor]
    end_log_probs: list[Tensor]

    def answers(self) -> list[list[Answer]]:
        tokens, stops, closes = (torch.stack(steps, dim=-1) for steps in (self.tokens, self.stops, self.closes))
        log_probs, ends = (torch.stack(steps, dim=-1).cpu() for steps in (self.token_log_probs, self.end_log_probs))
        # What a walker does once it has ended is recorded, and means nothing.
        last = (stops | closes).int().argmax(dim=-1)
        finished = (stops | closes).any(dim=-1)
        length = torch.where(finished, last + 1, tokens.shape[-1]) - stops.any(dim=-1).int()
        end = torch.where(stops, ends, 0.0).sum(dim=-1)
        columns = (tokens, log_probs.double(), length, end, finished)
        return [
            [
                Answer(tuple(t[:size]), tuple(p[:size]), end, finished)
                for t, p, size, end, finished in zip(*walkers, strict=True)
            ]
            for walkers in zip(*(column.tolist() for column in columns), strict=True)
        ]


def _walk(
    tree: PackedTree, endings: Endings, choose: Choose, *, n_answers: int, max_new_tokens: int
) -> list[list[Answer]]:
    """Let `n_answers` walkers per question go down the tree; walkers on one path share its nodes.

    Which walker stands where is known on the host; it waits for the device once a step, for the tokens chosen.
    """
    log_probs = tree.plant()
    device, (stop, closing) = log_probs.device, endings.on_host
    rows = torch.arange(len(log_probs))[:, None].repeat(1, n_answers)
    is_open = torch.ones_like(rows, dtype=torch.bool)
    record = _Record([], [], [], [], [])
    for step in range(max_new_tokens):
        at, still = (tensor.to(device, non_blocking=True) for tensor in (rows, is_open))
        chosen = choose(step, log_probs, at, still)
        record.token_log_probs.append(log_probs[at, chosen])
        record.end_log_probs.append(endings.log_prob(log_probs)[at])
        tokens = chosen.cpu()
        stops, closes = is_open & stop[tokens], is_open & closing[tokens]
        for steps, tensor in ((record.tokens, tokens), (record.stops, stops), (record.closes, closes)):
            steps.append(tensor)
        is_open = is_open & ~stops & ~closes
        if step + 1 == max_new_tokens or not is_open.any():
            break
        log_probs, rows = _open_children(tree, log_probs.shape[1], rows, tokens, is_open)
    return record.answers()


def _open_children(
    tree: PackedTree, vocabulary: int, rows: Tensor, tokens: Tensor, is_open: Tensor
) -> tuple[Tensor, Tensor]:
    """Grow the tree by each distinct (row, token) of the open walkers; a closed walker's row means nothing."""
    children, child_of_walker = torch.unique(rows[is_open] * vocabulary + tokens[is_open], return_inverse=True)
    log_probs = tree.grow(children // vocabulary, children % vocabulary)
    new_rows = torch.zeros_like(rows)
    new_rows[is_open] = child_of_walker
    return log_probs, new_rows


def threshold(
    tree: PackedTree,
    endings: Endings,
    *,
    search_alpha: float = 0.02,
    top_n: int | None = None,
    budget: int | None = None,
    max_new_tokens: int = 32,
    epsilon: float = 0.0,
    max_width: int | None = None,
) -> list[tuple[list[Answer], Ledger]]:
    """Every answer with p ≥ `search_alpha`, or the `top_n` most probable, and the greedy one; and what is certain.

    No continuation is more probable than its prefix, so only prefixes with p ≥ α are expanded; the greedy path is
    kept alive below α. With `top_n` the most probable prefixes go first, and α follows the N-th best answer found.

    Args:
        budget: token-forwards per question; the greedy path is served first. None for no limit.
        epsilon: by how many nats log-probabilities may be off; the search goes that far below α.
        max_width: prefixes put through the network at once; None for what fits in 128 MiB of log-probabilities.
            A wider search goes depth first, in pieces, to the same end.
    """
    search = _Search(tree, endings, None if top_n else search_alpha, top_n, budget, max_new_tokens, epsilon, max_width)
    return search.run()


# A prefix, expanded or waiting, or an answer that ended: then `token` is its closing token, or -1 for a stop token.
_EVENT = np.dtype(
    [
        ("question", np.int64),
        ("parent", np.int64),  # place among the nodes
        ("row", np.int64),  # row of the tree where the parent waits
        ("token", np.int64),
        ("depth", np.int64),
        ("token_log_prob", np.float64),
        ("end_log_prob", np.float64),
        ("log_prob", np.float64),
        ("greedy", np.bool_),
    ],
    align=True,  # or torch could not read a column
)
# Where the N-th answer is looked for: prefixes below the floor are not remembered; it falls if they are needed.
_FIRST_FLOOR, _FLOOR_STEP = math.log(1e-4), math.log(1e3)
# Prefixes within this factor of the most probable one are expanded together: fewer, wider steps.
_STRIDE = math.log(4)
_LOG_PROBS_AT_ONCE = 2**25


class _Search:
    """The frontier of unexpanded prefixes of a pack, the nodes expanded, and what was met on the way.

    The network's outputs are reduced to a few numbers per row where they are; everything else is NumPy.
    """

    def __init__(
        self,
        tree: PackedTree,
        endings: Endings,
        search_alpha: float | None,
        top_n: int | None,
        budget: int | None,
        max_new_tokens: int,
        epsilon: float,
        max_width: int | None,
    ):
        self.tree, self.endings = tree, endings
        self.stop, self.closing = (table.numpy() for table in endings.on_host)
        self.log_alpha = None if search_alpha is None else math.log(search_alpha)
        self.top_n, self.budget, self.length, self.epsilon = top_n, budget, max_new_tokens, epsilon
        self.max_width = max_width or max(1, _LOG_PROBS_AT_ONCE // len(self.stop))

    def run(self) -> list[tuple[list[Answer], Ledger]]:
        log_probs = self.tree.plant()
        n = len(log_probs)
        self.floor = np.full(n, _FIRST_FLOOR if self.log_alpha is None else self.log_alpha) - self.epsilon
        self.spent, self.expanded = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.small, self.pruned, self.length_cut, self.remaining = np.zeros((4, n))
        self.entropies, self.roots = np.empty(0), np.zeros(n, _EVENT)
        self.nodes, self.frontier, self.leaves, self.cut, self.complete = (np.empty(0, _EVENT) for _ in range(5))
        self.roots["question"] = self.roots["row"] = np.arange(n)
        self.roots["parent"] = self.roots["token"] = -1
        self.roots["greedy"] = True
        self.root_log_probs = log_probs if self.top_n else None
        self._expand(self.roots, log_probs, np.arange(n))
        while len(batch := self._take()):
            self._expand(batch, *self._grow(batch))
        self._check_cost()
        return self._results()

    def _grow(self, batch: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Log-probabilities after the prefixes of the batch, and their rows; rows still waited for stay."""
        waited_for = [self.frontier["row"], *([self.roots["row"]] if self.top_n else [])]
        waiting = np.unique(np.concatenate(waited_for))
        parents, tokens, keep = (torch.from_numpy(a) for a in (batch["row"], batch["token"], waiting))
        log_probs = self.tree.grow(parents, tokens, keep=keep)
        self.frontier["row"] = np.searchsorted(waiting, self.frontier["row"])
        if self.top_n:
            self.roots["row"] = np.searchsorted(waiting, self.roots["row"])
        self.spent += np.bincount(batch["question"], minlength=len(self.spent))
        return log_probs, len(waiting) + np.arange(len(batch))

    def _expand(self, batch: np.ndarray, log_probs: Tensor, rows: np.ndarray) -> None:
        """Enter the prefixes of the batch as nodes, and sort their children by what becomes of them."""
        question, places = batch["question"], len(self.nodes) + np.arange(len(batch))
        step = _read(log_probs, self.endings, self.floor[question] - batch["log_prob"], batch["greedy"])
        self.nodes, self.entropies = np.append(self.nodes, batch), np.append(self.entropies, step.entropy)
        self.expanded += np.bincount(question, minlength=len(self.expanded))
        self._end(batch, step, places)

        children = np.zeros(len(step.token), _EVENT)
        of = batch[step.row]
        children["question"], children["depth"] = of["question"], of["depth"] + 1
        children["parent"], children["row"], children["token"] = places[step.row], rows[step.row], step.token
        children["token_log_prob"], children["log_prob"] = step.log_prob, of["log_prob"] + step.log_prob
        children["greedy"] = of["greedy"] & (step.token == step.best[step.row])
        followed = (children["log_prob"] >= self.floor[children["question"]]) | children["greedy"]
        closing = self.closing[step.token]
        self.complete = np.append(self.complete, children[closing & followed])
        self._add(self.small, children[closing & ~followed])
        at_length = ~closing & (children["depth"] == self.length)
        self._add(self.length_cut, children[at_length])
        self.cut = np.append(self.cut, children[at_length & followed])
        onwards = ~closing & ~at_length
        self.frontier = np.append(self.frontier, children[onwards & followed])
        self._prune(children[onwards & ~followed])

        # What `_read` did not list, all of it below the floor.
        mass = np.exp(batch["log_prob"])
        np.add.at(self.small, question, mass * step.rest_closing)
        is_last = batch["depth"] + 1 == self.length
        np.add.at(self.length_cut, question, mass * step.rest_open * is_last)
        np.add.at(self.pruned, question, mass * step.rest_open * ~is_last)
        np.add.at(self.remaining, question, mass * step.rest_open * (self.length - batch["depth"] - 1))

    def _end(self, batch: np.ndarray, step: "_Step", places: np.ndarray) -> None:
        """The event that the answer ends at a prefix of the batch."""
        ended = batch.copy()
        ended["parent"], ended["token"] = places, -1
        ended["end_log_prob"], ended["log_prob"] = step.end, batch["log_prob"] + step.end
        ended["greedy"] &= self.stop[step.best]
        remembered = (ended["log_prob"] >= self.floor[ended["question"]]) | ended["greedy"]
        self.complete = np.append(self.complete, ended[remembered])
        self._add(self.small, ended[~remembered])

    def _prune(self, prefixes: np.ndarray) -> None:
        self._add(self.pruned, prefixes)
        np.add.at(
            self.remaining, prefixes["question"], np.exp(prefixes["log_prob"]) * (self.length - prefixes["depth"])
        )

    @staticmethod
    def _add(mass: np.ndarray, events: np.ndarray) -> None:
        np.add.at(mass, events["question"], np.exp(events["log_prob"]))

    def _take(self) -> np.ndarray:
        """The prefixes to expand next, out of the frontier; the deepest first where not all fit at once."""
        active = self._settle() if self.top_n else np.ones(len(self.frontier), dtype=bool)
        if self.budget is not None:
            active = self._affordable(active)
        chosen = active.nonzero()[0]
        if len(chosen) > self.max_width:
            chosen = chosen[np.argsort(-self.frontier["depth"][chosen], kind="stable")[: self.max_width]]
        batch = self.frontier[chosen]
        self.frontier = np.delete(self.frontier, chosen)
        return batch

    def _affordable(self, active: np.ndarray) -> np.ndarray:
        """Of the active prefixes those the budget pays for: greedy first, then the most probable.

        As long as the greedy path is open, the tokens it may still take are set aside. What belongs to a question
        without budget leaves the frontier.
        """
        left = self.budget - self.spent
        broke = left[self.frontier["question"]] <= 0
        self.leaves = np.append(self.leaves, self.frontier[broke])
        self.frontier, active = self.frontier[~broke], active[~broke]
        question, greedy = self.frontier["question"], self.frontier["greedy"]
        allowed = left.copy()
        reserved = np.maximum(self.length - self.frontier["depth"][greedy], 1)
        allowed[question[greedy]] = np.maximum(allowed[question[greedy]] - reserved, 0) + 1
        order = np.lexsort((-self.frontier["log_prob"], ~greedy, ~active, question))
        rank = np.empty(len(order), dtype=np.int64)
        starts = np.searchsorted(question[order], question[order])
        rank[order] = np.arange(len(order)) - starts
        return active & (rank < allowed[question])

    def _settle(self) -> np.ndarray:
        """With `top_n`: which prefixes to expand next; what can no longer matter leaves the frontier."""
        active = self.frontier["greedy"].copy()
        dropped = np.zeros(len(active), dtype=bool)
        restarted = []
        for question, nth in enumerate(self._nth_best()):
            mine = (self.frontier["question"] == question).nonzero()[0]
            waiting = mine[~self.frontier["greedy"][mine]]
            best = self.frontier["log_prob"][waiting].max(initial=-np.inf)
            if len(waiting) and best >= nth - self.epsilon:
                active[waiting] = self.frontier["log_prob"][waiting] >= max(nth - self.epsilon, best - _STRIDE)
            elif nth == -np.inf and self._more_below(question) and not self._is_broke(question):
                dropped[mine] = True
                restarted.append(question)
            else:
                dropped[waiting] = True
        kept = ~dropped
        leaving = self.frontier[dropped]
        self.leaves = np.append(self.leaves, leaving[~np.isin(leaving["question"], restarted)])
        self.frontier, active = self.frontier[kept], active[kept]
        for question in restarted:
            self._restart(question)
        return self._settle() if restarted else active

    def _nth_best(self) -> np.ndarray:
        """Log-probability `(n,)` of the N-th best complete answer so far, -inf where there are fewer."""
        nth = np.full(len(self.floor), -np.inf)
        for question in range(len(nth)):
            found = np.sort(self.complete["log_prob"][self._sure(question)])[::-1]
            if len(found) >= self.top_n:
                nth[question] = found[self.top_n - 1]
        return nth

    def _sure(self, question: int) -> np.ndarray:
        """Complete answers of a question at or above its floor; below it the greedy one may be, alone of many."""
        return (self.complete["question"] == question) & (self.complete["log_prob"] >= self.floor[question])

    def _more_below(self, question: int) -> bool:
        """Whether an answer, or a prefix of one, lies below the floor."""
        mine = self.complete["question"] == question
        return bool(self.small[question] + self.pruned[question] > 0 or mine.sum() > self._sure(question).sum())

    def _is_broke(self, question: int) -> bool:
        return self.budget is not None and self.spent[question] >= self.budget

    def _restart(self, question: int) -> None:
        """Search a question again from its root, remembering prefixes further down."""
        self.floor[question] -= _FLOOR_STEP
        for mass in (self.small, self.pruned, self.length_cut, self.remaining, self.expanded):
            mass[question] = 0
        self.nodes["question"][self.nodes["question"] == question] = -1
        for name in ("frontier", "leaves", "cut", "complete"):
            events = getattr(self, name)
            setattr(self, name, events[events["question"] != question])
        root = self.roots[[question]]
        self._expand(root, self.root_log_probs[[question]], root["row"])

    def _check_cost(self) -> None:
        """No search expands more than E[length]/α prefixes beside the greedy path.

        The prefixes at or above α hold at most E[length] (their p sum to it over the whole tree), so what is
        asserted here, with the sum over those expanded in its place, is at least as strict.
        """
        lowest = self.floor.copy()
        if self.top_n:
            lowest[:] = np.inf
            searched = self.nodes[~self.nodes["greedy"] & (self.nodes["question"] >= 0)]
            np.minimum.at(lowest, searched["question"], searched["log_prob"])
        alive = self.nodes[self.nodes["question"] >= 0]
        above = alive[alive["log_prob"] >= lowest[alive["question"]]]
        greedy_length = np.bincount(alive["question"][alive["greedy"]], minlength=len(lowest))
        expected_length = np.zeros(len(lowest))
        self._add(expected_length, above)
        assert (self.expanded <= expected_length * np.exp(-lowest) * (1 + 1e-9) + greedy_length).all()

    def _results(self) -> list[tuple[list[Answer], Ledger]]:
        log_alpha = self.floor + self.epsilon
        if self.top_n:
            nth = self._nth_best()
            log_alpha = np.where(np.isfinite(nth), nth, log_alpha)
        return [self._result(question, log_alpha[question]) for question in range(len(log_alpha))]

    def _result(self, question: int, log_alpha: float) -> tuple[list[Answer], Ledger]:
        limit = log_alpha - self.epsilon
        complete, cut, leaves = (
            events[events["question"] == question] for events in (self.complete, self.cut, self.leaves)
        )
        found = complete["log_prob"] >= log_alpha
        open_cut, open_left = cut["log_prob"] >= limit, leaves["log_prob"] >= limit
        near = np.abs(complete["log_prob"] - log_alpha) <= self.epsilon
        near &= ~found if self.top_n else self.epsilon > 0
        status, why = self._status(question, found.sum(), near.any(), open_cut.any(), open_left.any())

        masses = [_mass(complete[found]), self.small[question] + _mass(complete[~found])]
        masses += [
            self.pruned[question] + _mass(leaves[~open_left]),
            self.length_cut[question],
            _mass(leaves[open_left]),
        ]
        named = [complete["log_prob"][found], cut["log_prob"][open_cut], leaves["log_prob"][open_left]]
        unnamed = masses[1] + masses[2] + masses[3] - _mass(cut[open_cut])
        named = np.concatenate(named)
        floor = -np.sum(np.exp(named) * named) - unnamed * log_alpha

        places = (self.nodes["question"] == question).nonzero()[0]
        nodes, entropies = self.nodes[places], self.entropies[places]
        bound = float(np.sum(np.exp(nodes["log_prob"]) * entropies))
        remaining = self.remaining[question] + np.sum(np.exp(leaves["log_prob"]) * (self.length - leaves["depth"]))
        events = len(self.stop) - self.stop.sum() + 1
        parents = np.where(nodes["parent"] < 0, -1, np.searchsorted(places, nodes["parent"]))
        ledger = Ledger(
            status,
            why,
            math.exp(log_alpha),
            self.epsilon,
            *map(float, masses),
            expanded_prefixes=len(nodes),
            depth=int(nodes["depth"].max()),
            live_width=int(np.bincount(nodes["depth"]).max()),
            token_forwards=int(self.spent[question]),
            alpha_floor=float(floor),
            tree_bound=bound,
            upper_bound=bound + float(remaining) * math.log(events),
            tree_parents=tuple(parents.tolist()),
            tree_tokens=tuple(nodes["token"].tolist()),
            tree_log_probs=tuple(nodes["log_prob"].tolist()),
            tree_entropies=tuple(entropies.tolist()),
            tree_greedy=tuple(nodes["greedy"].tolist()),
        )
        ended = complete[(complete["log_prob"] >= limit) | complete["greedy"]]
        still_open = np.append(cut[open_cut | cut["greedy"]], leaves[leaves["greedy"]])
        answers = [self._answer(event, True) for event in ended]
        return answers + [self._answer(event, False) for event in still_open], ledger

    def _status(self, question: int, n_found: int, near: bool, cut: bool, left: bool) -> tuple[str, str]:
        reasons = {
            f"a prefix at or above α is still open at {self.length} tokens": cut,
            f"the budget of {self.budget} token-forwards was spent before every prefix at or above α was expanded": left
            or (self.top_n and n_found < self.top_n and self._more_below(question)),
            f"an answer lies within {self.epsilon:.3g} nats of α": near,
        }
        if any(reasons.values()):
            return "undecided", "; ".join(reason for reason, holds in reasons.items() if holds)
        if n_found == 0:
            return "fallback", "no answer reaches α"
        if self.top_n and n_found < self.top_n:
            return "certified", f"there are only {n_found} answers"
        return "certified", ""

    def _answer(self, event: np.void, finished: bool) -> Answer:
        tokens, log_probs, end = [], [], float(event["end_log_prob"])
        if event["token"] < 0:
            event = self.nodes[event["parent"]]
        while event["token"] >= 0:
            tokens.append(int(event["token"]))
            log_probs.append(float(event["token_log_prob"]))
            event = self.nodes[event["parent"]]
        return Answer(tuple(tokens[::-1]), tuple(log_probs[::-1]), end, finished)


def _mass(events: np.ndarray) -> float:
    return float(np.exp(events["log_prob"]).sum())


@dataclass(frozen=True)
class _Step:
    """What the search needs of log-probabilities `(rows, V)`: the first five per row, the others per child listed.

    `best` is the most probable token of a greedy row, -1 elsewhere.
    """

    end: np.ndarray
    entropy: np.ndarray
    best: np.ndarray
    rest_open: np.ndarray
    rest_closing: np.ndarray
    row: np.ndarray
    token: np.ndarray
    log_prob: np.ndarray


@torch.inference_mode()
def _read(log_probs: Tensor, endings: Endings, floors: np.ndarray, greedy: np.ndarray) -> _Step:
    """List the children at or above `floors (rows,)`, and of `greedy (rows,)` rows the best; sum up the others.

    `floors` are relative to the row. The comparison is in float32 and lists a little too much; whoever reads the
    list compares again. The ending is one event, in the entropy too.
    """
    device, (rows, vocabulary) = log_probs.device, log_probs.shape
    # In sums, what is not above e^-80 is nothing: as it is, it would be -inf times 0, or subnormal and slow.
    clamped = log_probs.clamp_min(-80.0)
    probs = torch.nn.functional.threshold_(clamped.exp(), math.exp(-79.99), 0.0).index_fill_(1, endings.stop_ids, 0)
    end = endings.log_prob(log_probs).clamp_min(-1e4)
    entropy = -clamped.mul_(probs).sum(dim=-1, dtype=torch.float64) - end.exp() * end
    greedy_rows = greedy.nonzero()[0]
    on_greedy_path = torch.from_numpy(greedy_rows).to(device, non_blocking=True)
    best = log_probs[on_greedy_path].argmax(dim=-1)
    row, token = at_least(log_probs, torch.from_numpy(floors - 1e-4).to(device, log_probs.dtype, non_blocking=True))
    listed = torch.cat([row * vocabulary + token, on_greedy_path * vocabulary + best])
    found = log_probs.flatten()[listed].double()
    probs.view(-1)[listed] = 0
    rest_closing = probs[:, endings.closing_ids].sum(dim=-1, dtype=torch.float64)
    rest_open = probs.index_fill_(1, endings.closing_ids, 0).sum(dim=-1, dtype=torch.float64)
    # One copy to the host, for which it waits; doubles hold every place in `(rows, V)`.
    numbers = torch.cat([end, entropy, rest_open, rest_closing, found, listed.double()]).cpu().numpy()
    end, entropy, rest_open, rest_closing = numbers[: 4 * rows].reshape(4, rows)
    found, listed = numbers[4 * rows :].reshape(2, -1)
    best = np.full(rows, -1)
    best[greedy_rows] = listed[len(listed) - len(greedy_rows) :] % vocabulary
    # The best child of a greedy row may be listed twice; the children come in order, without the stop tokens.
    places, first = np.unique(listed.astype(np.int64), return_index=True)
    going_on = ~endings.on_host[0].numpy()[places % vocabulary]
    row, token = np.divmod(places[going_on], vocabulary)
    return _Step(end, entropy, best, rest_open, rest_closing, row, token, found[first[going_on]])
