"""Samples of answers, reproducible by seed, question and sample number."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pro_lib.generation.decoding.next_tokens import Endings, next_events, pieces
from pro_lib.generation.decoding.packed_tree import Tree
from pro_lib.generation.decoding.steps import Outcome, decode_steps


def multinomial(
    tree: Tree, endings: Endings, *, uniforms: Tensor, temperature: float = 1.0, top_p: float = 1.0
) -> list[list[Outcome]]:
    """Draw samples by inversion of `uniforms (questions, N, T)`, float64; unshaped ones have a `path_entropy`."""
    uniforms = uniforms.to(endings.stop.device)
    # Memory given back and asked for anew costs more than the numbers
    buffer = uniforms.new_empty(0)
    is_model = temperature == 1 and top_p == 1
    entropies = torch.zeros_like(uniforms[:, :, 0])

    def choose(step: int, log_probs: Tensor, rows: Tensor, is_open: Tensor) -> Tensor:
        parts, places, column = (
            pieces(log_probs),
            [],
            torch.arange(rows.shape[1], device=rows.device).expand_as(rows),
        )
        if is_model:
            entropy = torch.cat([next_events(piece, endings)[2] for piece in parts])
            entropies.add_(torch.where(is_open, entropy[rows], 0.0))
        ended = len(log_probs)  # a row beyond the last, for the numbers of answers that have ended
        aims = uniforms.new_zeros(ended + 1, rows.shape[1])
        aims[torch.where(is_open, rows, ended), column] = uniforms[:, :, step]
        for piece, aim in zip(parts, aims[:ended].tensor_split(len(parts)), strict=True):
            scaled = buffer.resize_(piece.shape).copy_(piece).div_(temperature)
            cumulative = nucleus(torch.softmax(scaled, dim=-1, out=scaled), top_p).cumsum_(dim=-1)
            places.append(torch.searchsorted(cumulative, aim * cumulative[:, -1:], right=True))
        # Rounding may push a draw onto the total itself, one past the last token.
        return torch.cat(places)[rows, column].clamp_(max=log_probs.shape[1] - 1)

    samples = decode_steps(
        tree, endings, choose, n_answers=uniforms.shape[1], max_new_tokens=uniforms.shape[2]
    )
    if is_model:
        for answers, sums in zip(samples, entropies.tolist(), strict=True):
            answers[:] = (
                replace(answer, path_entropy=nats)
                for answer, nats in zip(answers, sums, strict=True)
            )
    return samples


def nucleus(probabilities: Tensor, top_p: float) -> Tensor:
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
            draws[row, sample] = np.random.default_rng([seed, entropy, sample]).random(
                max_new_tokens
            )
    return torch.from_numpy(draws)
