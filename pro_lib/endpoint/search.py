"""The exact search of one question, a prefix at a time; knows probabilities, neither HTTP nor files.

`docs/endpoint.md` has the formulas.
"""

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pro_lib.decoding import Certificate, Masses, SearchTree, certify
from pro_lib.endpoint.asking import Asking
from pro_lib.endpoint.noise import ROUNDING, Noise
from pro_lib.endpoint.vocabulary import Next, Token, Vocabulary, log, weighed
from pro_lib.storage import Cost, complete_log_prob


@dataclass(frozen=True)
class Answer:
    """A row of the table of answers.

    Ending there has at least `end_log_prob_lower`; a found answer's `end_log_prob` has also what may be its own.
    """

    text: str
    token_ids: list[int]
    token_log_probs: list[float]
    log_prob: float
    end_log_prob: float | None
    finished: bool
    end_log_prob_lower: float
    token_texts: list[str]


class _Prefix(NamedTuple):
    """Its log-probability, and between what errors, added up, leave it."""

    tokens: tuple[Token, ...]
    log_prob: float
    least: float
    most: float
    parent: int
    greedy: bool

    @property
    def closed(self) -> bool:  # the ending is part of the last token
        return bool(self.tokens) and self.tokens[-1].kind == "closing"


class Search:
    """The search of one question: the greedy path first, then the most probable prefix."""

    def __init__(self, asking: Asking, vocabulary: Vocabulary, noise: Noise):
        self.asking, self.vocabulary, self.noise = asking, vocabulary, noise
        self.log_alpha = math.log(asking.search_alpha)
        self.frontier = [_Prefix((), 0.0, 0.0, 0.0, -1, True)]
        self.nodes: list[_Prefix] = []
        self.steps: list[Next] = []
        self.answers: list[Answer] = []
        self.numbers: dict[str, int] = {}
        self.masses = dict.fromkeys(Masses._fields, 0.0)
        self.floor = self.width = self.off = 0.0
        self.doubts: dict[str, bool] = {}

    async def run(
        self, ask: Callable[[Sequence[Token], float], Awaitable[Next]]
    ) -> tuple[list[Answer], Certificate, Cost]:
        """The answers, the most probable first, what is certain of them, and the cost.

        `ask` tells what follows after tokens, which have a probability.
        """
        started = time.perf_counter()
        while self.frontier and len(self.nodes) < (self.asking.budget or math.inf):
            prefix = max(self.frontier, key=lambda prefix: (prefix.greedy, prefix.log_prob))
            self.frontier.remove(prefix)
            self._expand(prefix, await ask(prefix.tokens, math.exp(prefix.log_prob)))
        for prefix in self.frontier:
            spent = f"the budget of {self.asking.budget} requests was spent with a prefix at or above α unexpanded"
            self._leave(prefix, spent, False)
        self.answers.sort(key=lambda a: (not a.finished, -complete_log_prob(a.log_prob, a.end_log_prob)))
        n_prompt_tokens = sum(step.n_prompt_tokens * step.n_requests for step in self.steps)
        n_requests = sum(step.n_requests for step in self.steps)
        cost = Cost(n_prompt_tokens, len(self.steps) - 1, n_requests, time.perf_counter() - started)
        return self.answers, self._certificate(), cost

    def _expand(self, prefix: _Prefix, step: Next) -> None:
        place = len(self.nodes)
        self.nodes.append(prefix)
        self.steps.append(step)
        self.floor += step.least(prefix.log_prob, self.log_alpha)
        best = "unknown" if step.best is None else step.best.kind
        if prefix.greedy and best == "unknown":
            self.doubts["the greedy answer goes on with a token that the server did not tell"] = True
        if step.total > 1 + ROUNDING and self.noise.sums_to_one:
            self.doubts["log-probabilities add up to more than 1, which they did not when they were measured"] = True
        rest = step.rest - self._end(prefix, step.ending, step.hidden_ending, prefix.greedy and best == "stop")
        at_length = len(prefix.tokens) + 1 == self.asking.max_new_tokens
        unseen = "tokens that the server did not list may reach α"
        most = prefix.most + log(step.largest) + self.noise.off(step.largest, 1)
        self._count(most, math.exp(prefix.log_prob) * rest, unseen, at_length)
        for token in step.tokens:
            greedy = prefix.greedy and token is step.best
            least, most = (token.log_prob + sign * self.noise.off(token.prob, sign) for sign in (-1, 1))
            of_all = (prefix.log_prob + token.log_prob, prefix.least + least, prefix.most + most)
            child = _Prefix((*prefix.tokens, token), *of_all, place, greedy)
            if token.kind == "closing":
                self.floor += weighed(child.log_prob, self.log_alpha)
                self._end(child, 1.0, 0.0, greedy)
            elif at_length:
                self._leave(child, f"a prefix at or above α is still open at {self.asking.max_new_tokens} tokens", True)
            elif token.kind == "open" and (greedy or child.most >= self.log_alpha):
                self.frontier.append(child)
            else:
                self._leave(child, "a token at or above α is no text of its own and cannot be sent", False)

    def _end(self, prefix: _Prefix, ending: float, hidden: float, greedy: bool) -> float:
        """The event that the answer ends here, with `ending` and perhaps `hidden` more; how much of that is counted.

        A found answer gets all that may be its own: PRO falls as its probabilities rise, and stays a lower bound.
        """
        mass = math.exp(prefix.log_prob)
        lower, upper = (prefix.log_prob + log(p) for p in (ending, ending + hidden))
        off = (0.0, 0.0) if prefix.closed else (self.noise.off(ending, -1), self.noise.off(ending + hidden, 1))
        least, most = prefix.least + log(ending) - off[0], prefix.most + log(ending + hidden) + off[1]
        found = lower >= self.log_alpha
        if least < self.log_alpha <= most:
            near = f"an answer lies as close to α as log-probabilities may be off ({self.noise.epsilon:.2g} nats each)"
            unsure = "an answer reaches α or not, depending on stop tokens that the server did not list"
            self.doubts[near if found or upper < self.log_alpha else unsure] = True
        if found or greedy:
            self.width = max(self.width, mass * hidden)
        counted = hidden if found else 0.0
        if found or greedy or (most >= self.log_alpha and ending > 0):
            end = log(ending + counted)
            self.off = max(self.off, most - prefix.log_prob - end, prefix.log_prob + end - least)
            self._keep(prefix, min(0.0, end), log(ending), True)
        self.masses["found" if found else "small_endings"] += mass * (ending + counted)
        return counted

    def _leave(self, prefix: _Prefix, why: str, at_length: bool) -> None:
        """A prefix that is not expanded."""
        self.floor += weighed(prefix.log_prob, self.log_alpha)
        is_open = self._count(prefix.most, math.exp(prefix.log_prob), why, at_length)
        if prefix.greedy or (is_open and at_length):
            self._keep(prefix, 0.0, 0.0, False)

    def _count(self, most: float, mass: float, why: str, at_length: bool) -> bool:
        """Enter mass that is not gone into; if an event of it may reach α, the question is undecided."""
        is_open = most >= self.log_alpha
        self.masses["length_cut" if at_length else "budget_cut" if is_open else "pruned"] += mass
        if is_open:
            self.doubts[why] = True
        return is_open

    def _keep(self, prefix: _Prefix, end: float, lower: float, finished: bool) -> None:
        ids, log_probs = [*map(self._number, prefix.tokens)], [token.log_prob for token in prefix.tokens]
        text, token_texts = self.vocabulary.answer(prefix.tokens), [token.text for token in prefix.tokens]
        own = None if prefix.closed else end
        self.answers.append(Answer(text, ids, log_probs, prefix.log_prob, own, finished, lower, token_texts))

    def _number(self, token: Token) -> int:
        """The token's id; where only texts are known, a negative number that tells it from the others."""
        return -2 - self.numbers.setdefault(token.text, len(self.numbers)) if token.id is None else token.id

    def _certificate(self) -> Certificate:
        hidden = f"stop tokens that the server did not list may add {self.width:.2g} to an answer's probability"
        tree = SearchTree(
            [prefix.parent for prefix in self.nodes],
            [self._number(prefix.tokens[-1]) if prefix.tokens else -1 for prefix in self.nodes],
            [prefix.log_prob for prefix in self.nodes],
            [step.least() + sum(weighed(token.log_prob) for token in step.tokens) for step in self.steps],
            [prefix.greedy for prefix in self.nodes],
        )
        certificate = certify(
            tree=tree,
            masses=Masses(**self.masses),
            doubts=self.doubts | {hidden: self.width > self.asking.tolerance},
            n_found=int(self.masses["found"] > 0),
            search_alpha=self.asking.search_alpha,
            epsilon=self.off,
            alpha_floor=self.floor,
            open_entropy=None,
            token_forwards=len(self.nodes) - 1,
        )
        return replace(certificate, prompt_tokens=self.steps[0].n_prompt_tokens)
