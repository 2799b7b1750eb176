"""Samples of answers, reproducible by seed, question id and sample number."""

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
    """Draw samples by inversion of the cumulative distribution of the next token.

    Args:
        tree: the prompts.
        endings: the tokens that end an answer.
        uniforms: uniform random numbers in [0, 1), float64, `(questions, N, T)`.
        temperature: divides the logits before a draw.
        top_p: mass of the nucleus from which a token is drawn.

    Returns:
        N samples for each question. Their log-probabilities are those of the unmodified model.
        They have a `path_entropy` if the draw is not changed by `temperature` or `top_p`.
    """
    sampler = _Sampler(endings, uniforms, temperature, top_p)
    _, n_answers, max_new_tokens = uniforms.shape
    samples = decode_steps(
        tree, endings, sampler.choose, n_answers=n_answers, max_new_tokens=max_new_tokens
    )
    if not sampler.draws_from_model:
        return samples
    return [
        _with_path_entropies(answers, entropies)
        for answers, entropies in zip(samples, sampler.path_entropies.tolist(), strict=True)
    ]


def _with_path_entropies(answers: list[Outcome], entropies: list[float]) -> list[Outcome]:
    """Return the answers to one question with their path entropies in nats."""
    return [
        replace(answer, path_entropy=entropy)
        for answer, entropy in zip(answers, entropies, strict=True)
    ]


class _Sampler:
    """Draws the next token of every sample.

    `path_entropies (questions, N)` are the entropies of the next events of each sample so far.
    """

    def __init__(self, endings: Endings, uniforms: Tensor, temperature: float, top_p: float):
        self._endings = endings
        self._uniforms = uniforms.to(endings.stop.device)
        self._temperature = temperature
        self._top_p = top_p
        self.draws_from_model = temperature == 1 and top_p == 1
        self.path_entropies = torch.zeros_like(self._uniforms[:, :, 0])
        # Reused, because to free and allocate this memory costs more time than the computation.
        self._buffer = self._uniforms.new_empty(0)

    def choose(self, step: int, log_probs: Tensor, rows: Tensor, is_open: Tensor) -> Tensor:
        """Draw tokens `(questions, N)`, as in `steps.Choose`."""
        parts = pieces(log_probs)
        if self.draws_from_model:
            entropies = torch.cat([next_events(part, self._endings).entropy for part in parts])
            self.path_entropies.add_(torch.where(is_open, entropies[rows], 0.0))
        sample_numbers = torch.arange(rows.shape[1], device=rows.device).expand_as(rows)
        # The uniform number of sample `j` in row `r` is in `draws[r, j]`. One more row takes the
        # numbers of samples that have ended.
        n_rows = len(log_probs)
        draws = self._uniforms.new_zeros(n_rows + 1, rows.shape[1])
        draws[torch.where(is_open, rows, n_rows), sample_numbers] = self._uniforms[:, :, step]
        parts_of_draws = draws[:n_rows].tensor_split(len(parts))
        tokens = torch.cat(
            [
                self._invert(part, part_draws)
                for part, part_draws in zip(parts, parts_of_draws, strict=True)
            ]
        )
        # Rounding may lift a draw to the total itself, which is one past the last token.
        return tokens[rows, sample_numbers].clamp_(max=log_probs.shape[1] - 1)

    def _invert(self, log_probs: Tensor, draws: Tensor) -> Tensor:
        """Return the tokens `(rows, N)` at the draws `(rows, N)` of the cumulative distribution."""
        logits = self._buffer.resize_(log_probs.shape).copy_(log_probs).div_(self._temperature)
        probs = nucleus(torch.softmax(logits, dim=-1, out=logits), self._top_p)
        cumulative = probs.cumsum_(dim=-1)
        return torch.searchsorted(cumulative, draws * cumulative[:, -1:], right=True)


def nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Set all probabilities to 0 but those of the nucleus (Holtzman et al. 2020).

    The nucleus is the smallest set of most probable tokens whose mass reaches `top_p`.

    Args:
        probs: probabilities, `(rows, V)`.
        top_p: mass of the nucleus, in (0, 1].
    """
    if top_p >= 1.0:
        return probs
    ordered, ids = probs.sort(dim=-1, descending=True, stable=True)
    mass_before = ordered.cumsum(dim=-1) - ordered
    return torch.zeros_like(probs).scatter_(-1, ids, ordered * (mass_before < top_p))


def uniforms(seed: int, question_ids: Sequence[str], n_answers: int, max_new_tokens: int) -> Tensor:
    """Return uniform random numbers in [0, 1), one stream for each sample of each question.

    A stream depends on the seed, the question id and the sample number only.

    Returns:
        Float64 numbers `(questions, n_answers, max_new_tokens)`.
    """
    numbers = np.empty((len(question_ids), n_answers, max_new_tokens))
    for question, question_id in enumerate(question_ids):
        digest = hashlib.sha256(question_id.encode()).digest()
        question_seed = int.from_bytes(digest[:16])
        for sample in range(n_answers):
            generator = np.random.default_rng([seed, question_seed, sample])
            numbers[question, sample] = generator.random(max_new_tokens)
    return torch.from_numpy(numbers)
