"""Walkers that go down a prefix tree token by token, greedily, as diverse beams or by draws; they know no text.

The host knows where each stands, and waits for the device once a step.
"""

import hashlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from pro_lib.generation.decoding.next_tokens import Endings, check_numbers, most_probable, next_events, pieces
from pro_lib.generation.decoding.packed_tree import Tree, sent


@dataclass(frozen=True)
class Outcome:
    """One path through the tree, its tokens and their log-probabilities under the unmodified model (nats).

    `end_log_prob` is that of ending here, by whichever stop token. It is None where the last token carries the newline
    that ends the answer, and 0 for a path still open at the length cut (not `finished`). `path_entropy` of a sample is
    the sum of H(next | v) over the prefixes v of its path, in nats; its mean over the model's samples estimates H(Y).
    """

    token_ids: tuple[int, ...]
    token_log_probs: tuple[float, ...]
    end_log_prob: float | None
    finished: bool
    path_entropy: float | None = None

    @property
    def log_prob(self) -> float:
        """Return that of the tokens alone, in nats, added up in order as in a search: what is at α must stay there."""
        return reduce(operator.add, self.token_log_probs, 0.0)

    @property
    def complete_log_prob(self) -> float:
        """Return that of the tokens and of ending there, in nats."""
        return self.log_prob + (self.end_log_prob or 0.0)


# Of the step, log-probabilities (rows, V), the row of each walker (questions, walkers) and whether it is open, a token.
Choose = Callable[[int, Tensor, Tensor, Tensor], Tensor]


def walk(tree: Tree, endings: Endings, choose: Choose, *, n_answers: int, max_new_tokens: int) -> list[list[Outcome]]:
    """Let `n_answers` walkers per question go down the tree; walkers on one path share its nodes."""
    log_probs = tree.plant()
    device, (stop, closing) = log_probs.device, endings.on_host
    rows = torch.arange(len(log_probs))[:, None].repeat(1, n_answers)
    is_open, steps = torch.ones_like(rows, dtype=torch.bool), []
    for step in range(max_new_tokens):
        at, still = sent(device, rows.numpy(), is_open.numpy())
        chosen = choose(step, log_probs, at, still)
        tokens, ends = chosen.cpu(), endings.log_prob(log_probs)[at]
        stops, closes = is_open & stop[tokens], is_open & closing[tokens]
        steps.append((tokens, stops, closes, log_probs[at, chosen], ends))
        is_open = is_open & ~stops & ~closes
        if step + 1 == max_new_tokens or not is_open.any():
            break
        # A child for each distinct (row, token) of the open walkers; a closed walker's row means nothing.
        vocabulary = log_probs.shape[1]
        log_probs = torch.empty(0)  # let go of, so that there is room for the next ones
        children, child_of = torch.unique(rows[is_open] * vocabulary + tokens[is_open], return_inverse=True)
        log_probs = tree.grow(children // vocabulary, children % vocabulary)
        rows = torch.zeros_like(rows).masked_scatter_(is_open, child_of)
    return _answers(*(torch.stack(column, dim=-1).cpu() for column in zip(*steps, strict=True)))


def _answers(tokens: Tensor, stops: Tensor, closes: Tensor, log_probs: Tensor, ends: Tensor) -> list[list[Outcome]]:
    """Return what the walkers did, of columns `(questions, walkers, steps)`; after an end they mean nothing."""
    check_numbers(log_probs)
    ended, closed = stops | closes, closes.any(dim=-1)
    finished = ended.any(dim=-1)
    length = torch.where(finished, ended.int().argmax(dim=-1) + 1, tokens.shape[-1]) - stops.any(dim=-1).int()
    columns = (tokens, log_probs.double(), length, torch.where(stops, ends, 0.0).sum(dim=-1), closed, finished)
    return [
        [
            Outcome(tuple(t[:size]), tuple(p[:size]), None if own else end, done)
            for t, p, size, end, own, done in zip(*walkers, strict=True)
        ]
        for walkers in zip(*(column.tolist() for column in columns), strict=True)
    ]


def greedy(tree: Tree, endings: Endings, *, max_new_tokens: int = 32) -> list[list[Outcome]]:
    """Take the most probable next token, again and again: one answer per question."""

    def choose(step: int, log_probs: Tensor, rows: Tensor, is_open: Tensor) -> Tensor:
        return log_probs.argmax(dim=-1)[rows]  # the first of equals

    return walk(tree, endings, choose, n_answers=1, max_new_tokens=max_new_tokens)


def diverse_beam(
    tree: Tree, endings: Endings, n_answers: int = 10, diversity_penalty: float = 1.0, *, max_new_tokens: int = 32
) -> list[list[Outcome]]:
    """Grow N groups of one beam each (Vijayakumar et al. 2018); a token costs λ for every earlier group that took it.

    As `generate(num_beams=N, num_beam_groups=N)` did it, a group that ends penalises what it would have taken instead.
    """

    def choose(step: int, log_probs: Tensor, rows: Tensor, is_open: Tensor) -> Tensor:
        # Only tokens that do not stop are ever penalised, at most one more per group. So a group's best of them is
        # among the N best of its row, and its best stop token is the row's.
        others = (piece.index_fill(1, endings.stop_ids, -torch.inf) for piece in pieces(log_probs))
        ids, values = map(torch.cat, zip(*(most_probable(piece, n_answers) for piece in others), strict=True))
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

    return walk(tree, endings, choose, n_answers=n_answers, max_new_tokens=max_new_tokens)


def multinomial(
    tree: Tree, endings: Endings, *, uniforms: Tensor, temperature: float = 1.0, top_p: float = 1.0
) -> list[list[Outcome]]:
    """Draw samples by inversion of `uniforms (questions, N, T)`, float64; unshaped ones have a `path_entropy`."""
    uniforms = uniforms.to(endings.stop.device)
    buffer = uniforms.new_empty(0)  # memory given back and asked for anew costs more than the numbers
    is_model = temperature == 1 and top_p == 1
    entropies = torch.zeros_like(uniforms[:, :, 0])

    def choose(step: int, log_probs: Tensor, rows: Tensor, is_open: Tensor) -> Tensor:
        parts, places, walker = pieces(log_probs), [], torch.arange(rows.shape[1], device=rows.device).expand_as(rows)
        if is_model:
            entropy = torch.cat([next_events(piece, endings)[2] for piece in parts])
            entropies.add_(torch.where(is_open, entropy[rows], 0.0))
        ended = len(log_probs)  # a row beyond the last, for the numbers of walkers that have ended
        aims = uniforms.new_zeros(ended + 1, rows.shape[1])
        aims[torch.where(is_open, rows, ended), walker] = uniforms[:, :, step]
        for piece, aim in zip(parts, aims[:ended].tensor_split(len(parts)), strict=True):
            scaled = buffer.resize_(piece.shape).copy_(piece).div_(temperature)
            cumulative = _nucleus(torch.softmax(scaled, dim=-1, out=scaled), top_p).cumsum_(dim=-1)
            places.append(torch.searchsorted(cumulative, aim * cumulative[:, -1:], right=True))
        # Rounding may push a draw onto the total itself, one past the last token.
        return torch.cat(places)[rows, walker].clamp_(max=log_probs.shape[1] - 1)

    samples = walk(tree, endings, choose, n_answers=uniforms.shape[1], max_new_tokens=uniforms.shape[2])
    if is_model:
        for answers, sums in zip(samples, entropies.tolist(), strict=True):
            answers[:] = (replace(answer, path_entropy=nats) for answer, nats in zip(answers, sums, strict=True))
    return samples


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Zero all but the smallest set of most probable tokens whose mass reaches `top_p` (Holtzman et al. 2020)."""
    if top_p >= 1.0:
        return probabilities
    ordered, index = probabilities.sort(dim=-1, descending=True, stable=True)
    inside = ordered.cumsum(dim=-1) - ordered < top_p
    return torch.zeros_like(probabilities).scatter_(-1, index, ordered * inside)


def uniforms(seed: int, question_ids: Sequence[str], n_answers: int, max_new_tokens: int) -> Tensor:
    """Return random numbers `(n, N, T)` in [0, 1): a stream for each (seed, question id, sample number)."""
    draws = np.empty((len(question_ids), n_answers, max_new_tokens))
    for row, question_id in enumerate(question_ids):
        entropy = int.from_bytes(hashlib.sha256(question_id.encode()).digest()[:16])
        for sample in range(n_answers):
            draws[row, sample] = np.random.default_rng([seed, entropy, sample]).random(max_new_tokens)
    return torch.from_numpy(draws)
