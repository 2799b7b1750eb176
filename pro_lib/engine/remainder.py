"""What entropy a search has left, by draws: samples of what follows the prefixes that it did not expand.

It knows a search that has ended, the tree it grew and what ends an answer; it knows no text and no interval.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pro_lib.engine.children import OTHER, next_events
from pro_lib.engine.sampling import inverted, uniforms
from pro_lib.engine.walk import walk

if TYPE_CHECKING:
    from pro_lib.engine.exact import Search

_ANY = OTHER - 1  # in place of a token: whatever may follow


@torch.inference_mode()
def remainders(search: "Search", left: np.ndarray, question_ids: Sequence[str]) -> list[dict[str, object]]:
    """Draws of X = Σ H(next | v) over the prefixes v from w on, w being one that is left, with probability p(w) / Σ p.

    `left (events,)` says which of the search's events are such prefixes. A dictionary per question, as in its
    `Certificate`: the draws, nats, 0 where nothing is left; the most that one can be; the tokens put through the
    network for them, those on the way to w among them.
    """
    asked, events, endings, roots = search.asked, search.events, search.endings, torch.from_numpy(search.root_rows)
    device, n, n_draws = search.root_log_probs.device, len(question_ids), asked.entropy_draws
    # Another stream than that of samples, so that one may be held against the other.
    chance = uniforms(asked.seed, [f"entropy {each}" for each in question_ids], n_draws, search.length + 1)
    paths, named = torch.full((n, n_draws, search.length), _ANY), {}
    most, forwards = np.zeros(n), torch.zeros(n, dtype=torch.long, device=device)
    for question in range(n):
        places = (left & (events["question"] == question) & (events["log_prob"] > -np.inf)).nonzero()[0]
        mass = np.exp(events["log_prob"][places]).cumsum()
        if mass.max(initial=0.0) == 0:
            paths[question, :, 0] = endings.stop_ids[0]
            continue
        most[question] = (search.length - events["depth"][places].min()) * math.log(search.n_events)
        chosen = places[np.searchsorted(mass[:-1], chance[question, :, 0].numpy() * mass[-1], side="right")]
        for draw, place in enumerate(chosen):
            way, siblings = _way(events, place)
            paths[question, draw, : len(way)] = torch.tensor(way)
            named[question, draw] = torch.from_numpy(siblings).to(device)
    paths, chance = paths.to(device), chance.to(device)
    draws = torch.zeros((n, n_draws), dtype=torch.float64, device=device)
    of_question = torch.arange(n, device=device)[:, None].expand(-1, n_draws)
    at_once = max(1, search.max_width // n)
    for start in range(0, n_draws if named else 0, at_once):
        part = slice(start, start + at_once)

        def choose(step: int, log_probs: Tensor, rows: Tensor, is_open: Tensor, *, part: slice = part) -> Tensor:
            tokens, entropies = paths[:, part, step], []
            if step:
                owner = rows.new_empty(len(log_probs)).index_put((rows[is_open],), of_question[:, part][is_open])
                forwards.add_(owner.bincount(minlength=n))
            unnamed = (is_open & (tokens == OTHER)).nonzero().tolist()
            never = {int(rows[question, draw]): named[question, part.start + draw] for question, draw in unnamed}

            def cumulative(piece: Tensor) -> Tensor:
                start = sum(map(len, entropies))
                probs, end, entropy = next_events(piece, endings)
                entropies.append(entropy)
                probs[:, endings.stop_ids[0]] = end.exp().to(probs.dtype)
                for row in never.keys() & range(start, start + len(piece)):
                    probs[row - start, torch.cat([endings.stop_ids, endings.closing_ids, never[row]])] = 0
                return probs.cumsum(-1, dtype=torch.float64)

            drawn = inverted(log_probs, cumulative, rows, is_open, chance[:, part, step + 1])
            draws[:, part] += torch.where(is_open & (tokens == _ANY), torch.cat(entropies)[rows], 0.0)
            return torch.where(tokens < 0, drawn, tokens)

        n_walkers = min(at_once, n_draws - start)
        walk(search.tree, endings, choose, n_answers=n_walkers, max_new_tokens=search.length,
             planted=(search.root_log_probs, roots))  # fmt: skip
        roots = torch.arange(n)
    names = ("remainder_draws", "remainder_most", "remainder_forwards")
    columns = map(tuple, draws.tolist()), most.tolist(), forwards.tolist()
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _way(events: np.ndarray, place: int) -> tuple[list[int], np.ndarray]:
    """The tokens from the prompt to an event, the last of them `OTHER` where it has no name; those that have one."""
    siblings, path = events["token"][events["parent"] == events["parent"][place]], []
    while events["parent"][place] >= 0:
        path.append(int(events["token"][place]))
        place = events["parent"][place]
    return path[::-1], siblings[siblings >= 0]
