"""Samples whose every draw is decided by random numbers given beforehand; knows tokens, no text."""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pro_lib.decoding.tree import Tree
from pro_lib.decoding.walk import Answer, Endings, walk


def multinomial(
    tree: Tree, endings: Endings, *, uniforms: Tensor, temperature: float = 1.0, top_p: float = 1.0
) -> list[list[Answer]]:
    """Samples by inversion: `uniforms (questions, N, T)` in [0, 1), float64, decide every draw.

    Temperature and nucleus shape the draw only; the log-probabilities kept are the unmodified model's.
    """
    uniforms = uniforms.to(endings.stop.device)

    def choose(step: int, log_probs: Tensor, rows: Tensor, is_open: Tensor) -> Tensor:
        cumulative = _nucleus(torch.softmax(log_probs.double() / temperature, dim=-1), top_p).cumsum(dim=-1)
        tokens = torch.empty_like(rows)
        for sample in range(rows.shape[1]):
            tokens[:, sample] = inverted(cumulative, rows[:, sample], uniforms[:, sample, step])
        return tokens

    return walk(tree, endings, choose, n_answers=uniforms.shape[1], max_new_tokens=uniforms.shape[2])


def inverted(cumulative: Tensor, rows: Tensor, uniforms: Tensor) -> Tensor:
    """Tokens `(n,)` drawn from rows `(n,)` of cumulative probabilities `(rows, V)`, up to any total, by inversion."""
    lines = cumulative[rows]
    places = torch.searchsorted(lines, uniforms[:, None] * lines[:, -1:], right=True).squeeze(1)
    # Rounding may push a draw onto the total itself, one past the last token.
    return places.clamp_(max=cumulative.shape[1] - 1)


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Zero all but the smallest set of most probable tokens whose mass reaches `top_p` (Holtzman et al. 2020)."""
    if top_p >= 1.0:
        return probabilities
    ordered, index = probabilities.sort(dim=-1, descending=True, stable=True)
    mass_before = ordered.cumsum(dim=-1) - ordered
    return torch.zeros_like(probabilities).scatter(-1, index, ordered * (mass_before < top_p))


def uniforms(seed: int, question_ids: Sequence[str], n_answers: int, max_new_tokens: int) -> Tensor:
    """Random numbers `(n, N, T)` in [0, 1): a stream for each (seed, question id, sample number)."""
    draws = np.empty((len(question_ids), n_answers, max_new_tokens))
    for row, question_id in enumerate(question_ids):
        entropy = int.from_bytes(hashlib.sha256(question_id.encode()).digest()[:16])
        for sample in range(n_answers):
            draws[row, sample] = np.random.default_rng([seed, entropy, sample]).random(max_new_tokens)
    return torch.from_numpy(draws)
