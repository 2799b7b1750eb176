"""Greedy decoding and diverse beam search."""

import torch
from torch import Tensor

from pro_lib.generation.decoding.next_tokens import Endings, most_probable_tokens, pieces
from pro_lib.generation.decoding.packed_tree import Tree
from pro_lib.generation.decoding.steps import Outcome, decode_steps


def greedy(tree: Tree, endings: Endings, *, max_new_tokens: int = 32) -> list[list[Outcome]]:
    """Decode one answer per question from the most probable token of each step.

    Args:
        tree: the prompts.
        endings: the tokens that end an answer.
        max_new_tokens: number of tokens at which an answer is cut, its ending included.
    """

    def choose(step: int, log_probs: Tensor, rows: Tensor, is_open: Tensor) -> Tensor:
        return log_probs.argmax(dim=-1)[rows]  # among equals, the first

    return decode_steps(tree, endings, choose, n_answers=1, max_new_tokens=max_new_tokens)


def diverse_beam(
    tree: Tree,
    endings: Endings,
    n_answers: int = 10,
    diversity_penalty: float = 1.0,
    *,
    max_new_tokens: int = 32,
) -> list[list[Outcome]]:
    """Decode N groups of one beam each (Vijayakumar et al. 2018) with the Hamming penalty λ.

    A token loses λ nats for every earlier group that takes the same token in this step. As in
    `generate(num_beams=N, num_beam_groups=N)` of transformers, a group that ends in this step
    penalises the token that it would have taken instead of ending.

    Args:
        tree: the prompts.
        endings: the tokens that end an answer.
        n_answers: the number of groups N.
        diversity_penalty: λ in nats.
        max_new_tokens: number of tokens at which an answer is cut, its ending included.
    """

    def choose(step: int, log_probs: Tensor, rows: Tensor, is_open: Tensor) -> Tensor:
        # Only tokens that do not stop are penalised, at most one more per group. So the best token
        # of a group is among the N best of its row, and its best stop token is that of the row.
        ids, values = _best_continuations(log_probs, endings, n_answers)
        stop_values, stop_places = log_probs[:, endings.stop_ids].max(dim=-1)
        stop_ids = endings.stop_ids[stop_places]
        tokens = torch.empty_like(rows)
        continuations = torch.empty_like(rows)
        for group in range(n_answers):
            row = rows[:, group]
            is_taken = ids[row, :, None] == continuations[:, None, :group]
            n_taken = (is_taken & is_open[:, None, :group]).sum(dim=-1)
            best_value, place = (values[row] - diversity_penalty * n_taken).max(dim=-1)
            continuation = ids[row, place]
            continuations[:, group] = continuation
            stop_value = stop_values[row]
            stop_id = stop_ids[row]
            # Among equals, the token with the lower id is chosen.
            is_first = (stop_value == best_value) & (stop_id < continuation)
            ends = (stop_value > best_value) | is_first
            tokens[:, group] = torch.where(ends, stop_id, continuation)
        return tokens

    return decode_steps(tree, endings, choose, n_answers=n_answers, max_new_tokens=max_new_tokens)


def _best_continuations(log_probs: Tensor, endings: Endings, n: int) -> tuple[Tensor, Tensor]:
    """Return ids and log-probabilities `(rows, n)` of the best tokens that do not stop."""
    ids: list[Tensor] = []
    values: list[Tensor] = []
    for piece in pieces(log_probs):
        # Not a local variable: it would keep the memory of one piece while the next is processed.
        piece_ids, piece_values = most_probable_tokens(
            piece.index_fill(1, endings.stop_ids, -torch.inf), n
        )
        ids.append(piece_ids)
        values.append(piece_values)
    return torch.cat(ids), torch.cat(values)
