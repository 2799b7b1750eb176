"""Greedy decoding and diverse beam search."""

import torch
from torch import Tensor

from pro_lib.generation.decoding.next_tokens import Endings, most_probable_tokens, pieces
from pro_lib.generation.decoding.packed_tree import Tree
from pro_lib.generation.decoding.steps import Outcome, decode_steps


def greedy(tree: Tree, endings: Endings, *, max_new_tokens: int = 32) -> list[list[Outcome]]:
    """Take the most probable next token, again and again: one answer per question."""

    def choose(step: int, log_probs: Tensor, rows: Tensor, is_open: Tensor) -> Tensor:
        return log_probs.argmax(dim=-1)[rows]  # the first of equals

    return decode_steps(tree, endings, choose, n_answers=1, max_new_tokens=max_new_tokens)


def diverse_beam(
    tree: Tree,
    endings: Endings,
    n_answers: int = 10,
    diversity_penalty: float = 1.0,
    *,
    max_new_tokens: int = 32,
) -> list[list[Outcome]]:
    """Grow N groups of one beam each (Vijayakumar et al. 2018); a token costs λ for every earlier group that took it.

    As `generate(num_beams=N, num_beam_groups=N)` did it, a group that ends penalises what it would have taken instead.
    """

    def choose(step: int, log_probs: Tensor, rows: Tensor, is_open: Tensor) -> Tensor:
        # Only tokens that do not stop are ever penalised, at most one more per group. So a group's best of them is
        # among the N best of its row, and its best stop token is the row's.
        others = (piece.index_fill(1, endings.stop_ids, -torch.inf) for piece in pieces(log_probs))
        ids, values = map(
            torch.cat,
            zip(*(most_probable_tokens(piece, n_answers) for piece in others), strict=True),
        )
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

    return decode_steps(tree, endings, choose, n_answers=n_answers, max_new_tokens=max_new_tokens)
