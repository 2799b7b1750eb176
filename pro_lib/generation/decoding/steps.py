"""Token-by-token decoding: the loop that greedy decoding, beams and samples share, and its answers.

The bookkeeping is on the host, which waits for the device once a step.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from pro_lib.generation.decoding.next_tokens import Endings, check_numbers
from pro_lib.generation.decoding.packed_tree import Tree, to_device


@dataclass(frozen=True)
class Outcome:
    """One answer: a path through the tree, with log-probabilities under the unmodified model.

    Attributes:
        token_ids: tokens of the answer.
        token_log_probs: log-probability of each token in nats.
        end_log_prob: log-probability in nats that the answer ends after its tokens, by any stop
            token. None if the last token contains the newline that ends the answer, and 0 if the
            answer is cut.
        finished: whether the answer ended before it was cut at the greatest length.
        path_entropy: for a sample, the sum of H(next | v) over the prefixes v of its path, in nats.
            Its mean over samples of the model estimates the entropy H(Y).

    Example:
        >>> Outcome((5, 7), (-0.5, -1.0), end_log_prob=-0.25, finished=True).complete_log_prob
        -1.75
    """

    token_ids: tuple[int, ...]
    token_log_probs: tuple[float, ...]
    end_log_prob: float | None
    finished: bool
    path_entropy: float | None = None

    @property
    def log_prob(self) -> float:
        """Return the log-probability of the tokens without the ending, in nats.

        They are added in the same order as in the exact search, so that rounding is the same. An
        answer with p = α then has p ≥ α in both.
        """
        return reduce(operator.add, self.token_log_probs, 0.0)

    @property
    def complete_log_prob(self) -> float:
        """Return the log-probability of the tokens and of the ending, in nats."""
        return self.log_prob + (self.end_log_prob or 0.0)


# Chooses the next token of every answer, `(questions, answers)`. Its arguments are the number of
# the step, the log-probabilities `(rows, V)`, and for each answer its row and whether it is open,
# both `(questions, answers)`.
Choose = Callable[[int, Tensor, Tensor, Tensor], Tensor]


class _Step(NamedTuple):
    """The next token of every answer, each field `(questions, answers)`.

    `stops` and `closes` say whether the token ends an open answer, and are on the host like
    `tokens`. `end_log_probs` are those of ending instead of the token.
    """

    tokens: Tensor
    stops: Tensor
    closes: Tensor
    token_log_probs: Tensor
    end_log_probs: Tensor


def decode_steps(
    tree: Tree, endings: Endings, choose: Choose, *, n_answers: int, max_new_tokens: int
) -> list[list[Outcome]]:
    """Decode answers token by token.

    Answers with the same beginning share its nodes.

    Args:
        tree: the prompts.
        endings: the tokens that end an answer.
        choose: chooses the next token of every answer.
        n_answers: number of answers per question.
        max_new_tokens: number of tokens at which an answer is cut, its ending included.

    Returns:
        The `n_answers` answers to each question, in the order of the tree.
    """
    log_probs = tree.plant()
    vocabulary = log_probs.shape[1]
    rows = torch.arange(len(log_probs))[:, None].repeat(1, n_answers)
    is_open = torch.ones_like(rows, dtype=torch.bool)
    steps: list[_Step] = []
    for number in range(max_new_tokens):
        step = _next_step(number, log_probs, endings, choose, rows, is_open)
        steps.append(step)
        is_open = is_open & ~step.stops & ~step.closes
        if number + 1 == max_new_tokens or not is_open.any():
            break
        # One child for each distinct pair of row and token of the open answers.
        pairs = rows[is_open] * vocabulary + step.tokens[is_open]
        children, child_rows = torch.unique(pairs, return_inverse=True)
        log_probs = torch.empty(0)  # frees the memory that the next ones need
        log_probs = tree.grow(children // vocabulary, children % vocabulary)
        # A closed answer has no row; 0 is never read.
        rows = torch.zeros_like(rows).masked_scatter_(is_open, child_rows)
    return _outcomes(steps)


def _next_step(
    number: int,
    log_probs: Tensor,
    endings: Endings,
    choose: Choose,
    rows: Tensor,
    is_open: Tensor,
) -> _Step:
    """Choose the next token of every answer."""
    is_stop, is_closing = endings.on_host
    device_rows, device_is_open = to_device(log_probs.device, rows.numpy(), is_open.numpy())
    device_tokens = choose(number, log_probs, device_rows, device_is_open)
    tokens = device_tokens.cpu()
    return _Step(
        tokens=tokens,
        stops=is_open & is_stop[tokens],
        closes=is_open & is_closing[tokens],
        token_log_probs=log_probs[device_rows, device_tokens],
        end_log_probs=endings.log_prob(log_probs)[device_rows],
    )


def _outcomes(steps: list[_Step]) -> list[list[Outcome]]:
    """Return the answers that the steps lead to."""
    # Steps after the end of an answer are ignored.
    columns = zip(*steps, strict=True)
    # A step whose fields are `(questions, answers, steps)`.
    paths = _Step(*(torch.stack(column, dim=-1).cpu() for column in columns))
    check_numbers(paths.token_log_probs)
    is_end = paths.stops | paths.closes
    is_finished = is_end.any(dim=-1)
    n_steps = torch.where(is_finished, is_end.int().argmax(dim=-1) + 1, len(steps))
    # A stop token is not a part of the answer.
    lengths = n_steps - paths.stops.any(dim=-1).int()
    end_log_probs = torch.where(paths.stops, paths.end_log_probs, 0.0).sum(dim=-1)
    is_closed = paths.closes.any(dim=-1)
    token_log_probs = paths.token_log_probs.double()

    fields = (paths.tokens, token_log_probs, lengths, end_log_probs, is_closed, is_finished)
    outcomes: list[list[Outcome]] = []
    for question in zip(*(field.tolist() for field in fields), strict=True):
        answers = [
            Outcome(
                token_ids=tuple(token_ids[:length]),
                token_log_probs=tuple(log_probs[:length]),
                end_log_prob=None if closes else end_log_prob,
                finished=finished,
            )
            for token_ids, log_probs, length, end_log_prob, closes, finished in zip(
                *question, strict=True
            )
        ]
        outcomes.append(answers)
    return outcomes
