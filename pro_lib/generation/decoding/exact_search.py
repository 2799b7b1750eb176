"""Exact search: every answer with p ≥ α, or the N most probable answers, with a certificate.

No continuation is more probable than its prefix, so only prefixes with p ≥ α and the greedy path
are expanded. The N most probable answers are found by searches at falling α, until N answers
reach it. See docs/explanation/exact_search.md for the proofs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from pro_lib.generation.decoding.next_tokens import END, OTHER, UNSEEN, Endings, children
from pro_lib.generation.decoding.packed_tree import Tree, to_device
from pro_lib.generation.decoding.steps import Outcome
from pro_lib.runs.certificate import Certificate

# The events of a search in the order in which it meets them: prefixes, and answers that ended.
# The record is aligned so that torch can read its fields.
_EVENT = np.dtype(
    [
        ("question", np.int64),
        ("parent", np.int64),  # place of the prefix before it among the events; -1 for a prompt
        ("token", np.int64),  # token id, or `END`, `OTHER` or `UNSEEN`
        ("row", np.int64),  # row of the tree in which the parent waits
        ("depth", np.int64),  # number of events after the prompt
        ("kind", np.int64),  # one of the four kinds below
        ("token_log_prob", np.float64),  # given the parent, in nats
        ("log_prob", np.float64),  # of the whole path, in nats
        ("entropy", np.float64),  # of the next event, in nats; for expanded prefixes
        ("greedy", np.bool_),  # whether it is on the greedy path
        ("named", np.bool_),  # at or above α, or greedy; of other events only the mass is used
    ],
    align=True,
)
_OPEN = 0  # a prefix that is not expanded
_COMPLETE = 1  # an answer that ended
_CUT = 2  # a prefix of the greatest length
_EXPANDED = 3  # a prefix whose next events are known

# The search for the N most probable answers starts at this α and lowers it by these nats.
_FIRST_ALPHA = 0.02
_STEP = math.log(4)
# A wider search is depth first, in batches, with the same result; 128 MiB of float32.
_LOG_PROBS_AT_ONCE = 2**25
# ε is measured on the probable answers to at most, and at least, so many questions.
N_QUESTIONS = 16
FEWEST = 4
# α down to which the answers are searched on which ε is measured.
_EPSILON_ALPHA = 0.01


def search(
    tree: Tree,
    endings: Endings,
    *,
    max_new_tokens: int,
    search_alpha: float | None = None,
    top_n: int | None = None,
    budget: int | None = None,
    epsilon: ArrayLike = 0.0,
) -> list[tuple[list[Outcome], Certificate]]:
    """Find all answers with p ≥ α, or the N most probable, and the greedy one, to each question.

    Args:
        tree: the prompts.
        endings: the tokens that end an answer.
        max_new_tokens: the number of tokens T at which an answer is cut, its ending included.
        search_alpha: α, the least probability of an answer.
        top_n: the number N of most probable answers; then `search_alpha` is where the search
            starts.
        budget: the greatest number of token-forwards for a question; None for no limit.
        epsilon: error of log-probabilities in nats, one number or `(T + 1,)` by the number of
            events of a path. The search includes paths that are so far below α.

    Returns:
        For each question its answers and their certificate.
    """
    epsilon_by_depth = np.broadcast_to(epsilon, max_new_tokens + 1)
    task = Search(tree, endings, max_new_tokens, top_n, budget, epsilon_by_depth)
    log_alpha = math.log(search_alpha or _FIRST_ALPHA)
    results: dict[int, tuple[list[Outcome], Certificate]] = {}
    questions = task.run(log_alpha)
    while True:
        results |= {
            question: task.result(question) for question in questions if task.is_done(question)
        }
        questions = [question for question in questions if question not in results]
        if not questions:
            return [results[question] for question in sorted(results)]
        log_alpha -= _STEP
        task.run(log_alpha, questions)


@dataclass
class Search:
    """The search of a batch of questions, at one α at a time.

    Attributes:
        length: the number of tokens at which an answer is cut.
        epsilon: error of log-probabilities by the number of events of a path, in nats.
        log_alpha: log α of the current run, in nats.
        events: records `_EVENT` of the current run.
        waiting: places in `events` of the prefixes that are to be expanded.
        spent: token-forwards of each question in all runs, `(questions,)`.
        band: by depth, how far below α a path may be and count as undecided, `(T + 1,)`, in nats.
    """

    tree: Tree
    endings: Endings
    length: int
    top_n: int | None
    budget: int | None
    epsilon: np.ndarray

    def __post_init__(self) -> None:
        # α has no error. But with `top_n`, α is the probability of another answer, which has one.
        self.band = self.epsilon + (self.epsilon.max() if self.top_n else 0.0)
        # A server's tree lists the next events itself, from incomplete distributions.
        self._is_server = hasattr(self.tree, "children")
        self._children = getattr(self.tree, "children", children)
        self._n_next_events = int((~self.endings.on_host[0]).sum()) + 1
        self._max_width = max(1, _LOG_PROBS_AT_ONCE // len(self.endings.stop))

    def run(self, log_alpha: float, questions: Sequence[int] | None = None) -> list[int]:
        """Search questions from their prompts on and return their numbers.

        Args:
            log_alpha: log α in nats.
            questions: numbers of the questions; None for the first search of all questions.
        """
        self.log_alpha = log_alpha
        self.events = np.empty(0, _EVENT)
        self.waiting = np.empty(0, np.int64)
        searched = self._expand_prompts(questions)
        while True:
            batch = self._next_batch()
            if not len(batch):
                return searched
            self._expand_batch(batch)

    def _expand_prompts(self, questions: Sequence[int] | None) -> list[int]:
        """Make events of the prompts, expand them and return the numbers of the questions."""
        log_probs = self.tree.plant()
        if questions is None:
            rows = np.arange(len(log_probs))
            self.spent = np.zeros(len(log_probs), np.int64)
        else:
            rows = np.array(questions)
            log_probs = log_probs[to_device(log_probs.device, rows)[0]]
        self._add_events(len(rows), question=rows, parent=-1, token=END, greedy=True)
        self._expand(np.arange(len(rows)), log_probs, rows)
        return rows.tolist()

    def _expand_batch(self, batch: np.ndarray) -> None:
        """Run the prefixes at these places through the model and expand them."""
        # This is a function of its own so that the log-probabilities are freed before the next
        # batch.
        log_probs, rows = self._grow(batch)
        self._expand(batch, log_probs, rows)

    def _add_events(self, n: int, **columns: ArrayLike) -> int:
        """Append n events and return the place of the first one."""
        # Fields without a column are 0. The events are resized in place, so an earlier view of them
        # must not be used afterwards.
        start = len(self.events)
        self.events.resize(start + n, refcheck=False)
        for name, column in columns.items():
            self.events[name][start:] = column
        return start

    def _next_batch(self) -> np.ndarray:
        """Take the prefixes to expand next from `waiting` and return their places."""
        # If there are too many for one batch, it takes the deepest ones.
        places = self.waiting
        if self.budget is not None:
            places = self._affordable(self.budget)
        if len(places) > self._max_width:
            deepest_first = np.argsort(-self.events["depth"][places], kind="stable")
            places = places[deepest_first[: self._max_width]]
        self.waiting = np.setdiff1d(self.waiting, places, assume_unique=True)
        return places

    def _affordable(self, budget: int) -> np.ndarray:
        """Return the places of the waiting prefixes that the budgets of their questions pay for."""
        # A budget pays for the rest of the greedy path first, then for the most probable prefixes.
        # Prefixes of a question whose budget is spent are removed from `waiting`.
        remaining = budget - self.spent
        has_budget = remaining[self.events["question"][self.waiting]] > 0
        self.waiting = self.waiting[has_budget]
        prefixes = self.events[self.waiting]
        question = prefixes["question"]
        greedy = prefixes["greedy"]
        # Token-forwards for the rest of the greedy path are set aside. One of them is added again,
        # for the greedy prefix that is waiting now; below it is the first of its question.
        greedy_question = question[greedy]
        set_aside = np.maximum(self.length - prefixes["depth"][greedy], 1)
        remaining[greedy_question] = np.maximum(remaining[greedy_question] - set_aside, 0) + 1
        order = np.lexsort((-prefixes["log_prob"], ~greedy, question))
        ordered_question = question[order]
        # Rank among the prefixes of the same question.
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order)) - np.searchsorted(ordered_question, ordered_question)
        return self.waiting[rank < remaining[question]]

    def _grow(self, batch: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Run the prefixes at these places through the model."""
        # Rows of waiting prefixes are kept.
        waiting_rows = self.events["row"][self.waiting]
        kept_rows = np.unique(waiting_rows)
        prefixes = self.events[batch]
        log_probs = self.tree.grow(
            torch.from_numpy(prefixes["row"]),
            torch.from_numpy(prefixes["token"]),
            keep=torch.from_numpy(kept_rows),
        )
        self.events["row"][self.waiting] = np.searchsorted(kept_rows, waiting_rows)
        self.spent += np.bincount(prefixes["question"], minlength=len(self.spent))
        return log_probs, len(kept_rows) + np.arange(len(batch))

    def _expand(self, batch: np.ndarray, log_probs: Tensor, rows: np.ndarray) -> None:
        """Append the events that may follow the prefixes at these places."""
        prefixes = self.events[batch]
        lowest = self.log_alpha - self.band[prefixes["depth"] + 1]
        floors = lowest - prefixes["log_prob"]
        following = self._children(log_probs, self.endings, floors, prefixes["greedy"])
        self.events["kind"][batch] = _EXPANDED
        self.events["entropy"][batch] = following.entropy

        parents = prefixes[following.row]
        depth = parents["depth"] + 1
        log_prob = parents["log_prob"] + following.log_prob
        if self._is_server:
            # The entropy counts the tokens that a server does not list as one event. So the upper
            # bound counts the choice among them as one more step.
            depth = depth - (following.token <= OTHER)
        greedy = parents["greedy"] & (following.token == following.best[following.row])
        kind = np.where(depth == self.length, _CUT, _OPEN)
        kind = np.where(following.completes, _COMPLETE, kind)
        is_seen = following.token != UNSEEN
        reaches_alpha = log_prob >= self.log_alpha - self.band[depth]
        named = (following.token != OTHER) & (reaches_alpha | greedy | ~is_seen)
        start = self._add_events(
            len(following.row),
            question=parents["question"],
            parent=batch[following.row],
            token=following.token,
            row=rows[following.row],
            depth=depth,
            kind=kind,
            token_log_prob=following.log_prob,
            log_prob=log_prob,
            greedy=greedy,
            named=named,
        )
        new_waiting = start + np.flatnonzero(named & is_seen & (kind == _OPEN))
        self.waiting = np.concatenate([self.waiting, new_waiting])

    def is_done(self, question: int) -> bool:
        """Return whether the search of a question ends at the current α.

        It ends if no answers are missing, or if the budget may not pay for another greedy path.
        """
        if self.budget is not None and self.budget - self.spent[question] < self.length:
            return True
        return not self._may_miss_answers(self.events[self.events["question"] == question])

    def _may_miss_answers(self, events: np.ndarray) -> bool:
        """Return whether fewer than N answers reach α, and there are paths below α."""
        if self.top_n is None:
            return False
        is_answer = _is_answer(events, self.log_alpha)
        is_below = ((events["kind"] == _COMPLETE) & ~is_answer) | (events["kind"] == _OPEN)
        has_mass_below = np.exp(events["log_prob"][is_below]).any()
        return bool(is_answer.sum() < self.top_n and has_mass_below)

    def result(self, question: int) -> tuple[list[Outcome], Certificate]:
        """Return the answers to a question, and their certificate."""
        places = np.flatnonzero(self.events["question"] == question)
        events = self.events[places]
        log_alpha = self._final_log_alpha(events)
        may_reach = events["log_prob"] >= log_alpha - self.band[events["depth"]]
        near = (events["named"] & may_reach) | (events["token"] == UNSEEN)
        findings = _Findings(places, events, log_alpha, near)
        has_ended = findings.is_complete | findings.is_cut
        is_greedy_end = events["greedy"] & ~findings.is_expanded
        paths = events[(near & has_ended) | is_greedy_end]
        return [self._outcome(event) for event in paths], self._certificate(question, findings)

    def _final_log_alpha(self, events: np.ndarray) -> float:
        """Return log α of the certificate: with `top_n` that of the N-th answer, if there are N."""
        log_probs = events["log_prob"][_is_answer(events, self.log_alpha)]
        if self.top_n and len(log_probs) >= self.top_n:
            return float(np.sort(log_probs)[-self.top_n])
        return self.log_alpha

    def _certificate(self, question: int, findings: "_Findings") -> Certificate:
        """Build the certificate of the answers to a question."""
        events = findings.events
        status, why = self._status(findings)
        # An event without a name may stand for several, and each of them is below α.
        log_alpha = findings.log_alpha
        known_log_prob = np.maximum(events["log_prob"], log_alpha)
        known_log_prob = np.where(events["named"], known_log_prob, log_alpha)
        leaf_terms = (findings.probs * known_log_prob)[~findings.is_expanded]

        nodes = events[findings.is_expanded]
        tree_bound = float(np.sum(np.exp(nodes["log_prob"]) * nodes["entropy"]))
        open_steps = findings.probs * (self.length - events["depth"])
        expected_open_steps = np.sum(open_steps[findings.is_open])
        most_below = float(expected_open_steps * math.log(self._n_next_events))
        return Certificate(
            status=status,
            why=why,
            search_alpha=math.exp(log_alpha),
            epsilon=float(self.epsilon.max()),
            **findings.masses(),
            expanded_prefixes=len(nodes),
            depth=int(nodes["depth"].max()),
            token_forwards=int(self.spent[question]),
            alpha_floor=-float(np.sum(leaf_terms)),
            tree_bound=tree_bound,
            upper_bound=tree_bound + most_below,
            tree_parents=tuple(findings.parents_among_expanded().tolist()),
            tree_tokens=tuple(nodes["token"].tolist()),
            tree_log_probs=tuple(nodes["log_prob"].tolist()),
            tree_entropies=tuple(nodes["entropy"].tolist()),
            tree_greedy=tuple(nodes["greedy"].tolist()),
        )

    def _status(self, findings: "_Findings") -> tuple[str, str]:
        """Return the status of the search of a question, and the reason in words."""
        doubts = self._doubts(findings)
        if doubts:
            return "undecided", "; ".join(doubts)
        n_answers = findings.is_answer.sum()
        if not n_answers:
            if (findings.events["greedy"] & findings.is_cut).any():
                still_open = f"the greedy one is still open at {self.length} tokens"
                return "cut", f"no answer reaches α, and {still_open}"
            return "fallback", "no answer reaches α"
        if self.top_n and n_answers < self.top_n:
            return "certified", f"there are only {n_answers} answers"
        return "certified", ""

    def _doubts(self, findings: "_Findings") -> list[str]:
        """Return the reasons why a search may not have found all answers with p ≥ α."""
        events = findings.events
        near = findings.near
        is_unseen = near & (events["token"] == UNSEEN)
        is_left = near & ~is_unseen & findings.is_open
        band = self.band[events["depth"]]
        is_doubtful = (
            near & findings.is_complete & (events["log_prob"] <= findings.log_alpha + band)
        )
        if self.top_n:
            # α is the N-th answer itself, so only answers just below it are in doubt.
            is_doubtful &= events["log_prob"] < findings.log_alpha
        else:
            is_doubtful &= band > 0
        doubts = []
        if (near & findings.is_cut).any():
            doubts.append(f"a prefix at or above α is still open at {self.length} tokens")
        if is_unseen.any():
            doubts.append("the server does not list, or lists differently, what may reach α")
        if is_left.any() or self._may_miss_answers(events):
            rest = "was spent with prefixes at or above α unexpanded"
            doubts.append(f"the budget of {self.budget} token-forwards {rest}")
        if is_doubtful.any():
            doubts.append(f"an answer lies within {self.band.max():.3g} nats of α")
        return doubts

    def _outcome(self, event: np.void) -> Outcome:
        """Return the path from the prompt to an event as an answer."""
        is_finished = bool(event["kind"] == _COMPLETE)
        end_log_prob = None if is_finished else 0.0
        if event["token"] == END:
            end_log_prob = float(event["token_log_prob"])
            event = self.events[event["parent"]]
        token_ids = []
        log_probs = []
        while event["parent"] >= 0:
            token_ids.append(int(event["token"]))
            log_probs.append(float(event["token_log_prob"]))
            event = self.events[event["parent"]]
        return Outcome(tuple(token_ids[::-1]), tuple(log_probs[::-1]), end_log_prob, is_finished)


def _is_answer(events: np.ndarray, log_alpha: float) -> np.ndarray:
    """Return which events are answers that ended with p ≥ α, `(events,)`."""
    reaches_alpha = events["log_prob"] >= log_alpha
    return (events["kind"] == _COMPLETE) & events["named"] & reaches_alpha


@dataclass
class _Findings:
    """The events of one question at the end of a search, and which of them are of each kind."""

    places: np.ndarray  # of the events in `Search.events`, (events,)
    events: np.ndarray
    log_alpha: float  # of the certificate, in nats
    near: np.ndarray  # events that reach α, or may reach it within their error

    def __post_init__(self) -> None:
        kind = self.events["kind"]
        self.probs = np.exp(self.events["log_prob"])
        self.is_open = kind == _OPEN
        self.is_complete = kind == _COMPLETE
        self.is_cut = kind == _CUT
        self.is_expanded = kind == _EXPANDED
        self.is_answer = _is_answer(self.events, self.log_alpha)

    def masses(self) -> dict[str, Any]:
        """Return the five masses of a certificate."""
        # Together the leaves of the tree have mass 1.
        leaves = {
            "found_mass": self.is_answer,
            "small_endings_mass": self.is_complete & ~self.is_answer,
            "pruned_mass": self.is_open & ~self.near,
            "length_cut_mass": self.is_cut,
            "budget_cut_mass": self.is_open & self.near,
        }
        return {name: float(self.probs[is_leaf].sum()) for name, is_leaf in leaves.items()}

    def parents_among_expanded(self) -> np.ndarray:
        """Return the number of the parent of each expanded prefix, or -1 for the prompt."""
        parents = self.events["parent"][self.is_expanded]
        numbers = np.searchsorted(self.places[self.is_expanded], parents)
        return np.where(parents < 0, -1, numbers)


def measured_epsilon(
    make_tree: Callable[..., Tree],
    prompts: Sequence[Sequence[int]],
    endings: Endings,
    *,
    max_new_tokens: int,
) -> np.ndarray:
    """Measure how far log-probabilities depend on the batch in which a prompt is processed.

    At most `N_QUESTIONS` prompts are searched together and then one by one. If there are fewer than
    `FEWEST`, ends of the first prompt are added: a prompt alone would show no difference.

    Args:
        make_tree: returns the tree of some prompts.
        prompts: token ids of the prompts.
        endings: the tokens that end an answer.
        max_new_tokens: the number of tokens T at which an answer is cut.

    Returns:
        Twice the largest difference up to each depth in nats, `(T + 1,)`, for `search(epsilon=)`.

    Example:
        A loaded model is needed:

            make_tree = lambda batch: PackedTree(network, batch, Prefix((), ()), ForwardCounts())
            epsilon = measured_epsilon(make_tree, prompts, endings, max_new_tokens=32)
    """
    ends = [prompts[0][n % len(prompts[0]) :] for n in range(FEWEST)]
    n_prompts = min(max(len(prompts), FEWEST), N_QUESTIONS)
    prompts = [*prompts, *ends][:n_prompts]

    def answers_to(batch: Sequence[Sequence[int]]) -> list[list[Outcome]]:
        results = search(
            make_tree(batch), endings, max_new_tokens=max_new_tokens, search_alpha=_EPSILON_ALPHA
        )
        return [answers for answers, _ in results]

    largest = np.zeros(max_new_tokens + 1)
    for prompt, together in zip(prompts, answers_to(prompts), strict=True):
        [alone] = answers_to([prompt])
        log_probs_together = _prefix_log_probs(together)
        log_probs_alone = _prefix_log_probs(alone)
        for path in log_probs_together.keys() & log_probs_alone.keys():
            difference = abs(log_probs_together[path] - log_probs_alone[path])
            largest[len(path)] = max(largest[len(path)], difference)
    return 2 * np.maximum.accumulate(largest)


def _prefix_log_probs(answers: list[Outcome]) -> dict[tuple[int, ...], float]:
    """Return the log-probability of each prefix of the answers, and of each ended answer."""
    # The ending of an answer is the token -1.
    log_probs: dict[tuple[int, ...], float] = {}
    for answer in answers:
        path = (*answer.token_ids, END)
        steps = list(answer.token_log_probs)
        if answer.end_log_prob:
            steps.append(answer.end_log_prob)
        for length, log_prob in enumerate(np.cumsum(steps).tolist(), start=1):
            log_probs[path[:length]] = log_prob
    return log_probs
