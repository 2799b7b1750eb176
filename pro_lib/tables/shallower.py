"""What a search would have found and claimed at a larger α, read off a deeper one; knows runs, and no network.

A search expands a prefix if its probability reaches α or it is greedy, whatever α is: the tree of a deeper search holds
that of every shallower one, with the same entropies, and its answers hold theirs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from pro_lib.engine.certificate import Certificate, Masses, SearchTree, certify
from pro_lib.runs import Run
from pro_lib.store import complete_log_prob

_MASS_LEFT = dict.fromkeys(("small_endings", "pruned", "length_cut", "budget_cut"), np.nan)


def at_alpha(run: Run, alpha: float) -> Run:
    """The run of a search as it would be at another α: its answers, status, α-floor, tree bound, prefixes, tokens.

    They agree with those of a search at that α as two packs of one question do. What cannot be known from the deeper
    search is missing: the masses besides `found_mass`, the upper bound; the run's cost is that of the deeper one.

    Raises:
        ValueError: no search for all answers down to an α of at most this one, or one with a budget or whose
            log-probabilities may be off.
    """
    questions = run.questions
    if alpha == run.search_alpha:
        return run
    if run.search_alpha is None or alpha < run.search_alpha:
        raise ValueError(f"alpha={alpha!r} is below the search_alpha of the run, {run.search_alpha}")
    if run.info.parameters.get("budget") is not None or (questions["epsilon"] > 0).any():
        raise ValueError(f"run {run.name} has a budget or log-probabilities that may be off")
    answers = _Answers.of(run.answers)
    of = run.answers.groupby("question_id", sort=False).indices
    certificates, kept = [], []
    for row in questions.to_dict("records"):
        places = of.get(row["question_id"], np.arange(0))
        certificate, held = _shallower(row, answers.at(places), float(np.log(alpha)))
        certificates.append(vars(certificate) | {"prompt_tokens": row["prompt_tokens"]})
        kept.append(places[held])
    info = replace(run.info, parameters=run.info.parameters | {"search_alpha": alpha})
    said = pd.DataFrame(certificates, index=questions.index).astype({"upper_bound": float})
    held = run.answers.iloc[np.sort(np.concatenate(kept))].reset_index(drop=True)
    return replace(run, answers=held, questions=questions.assign(**said), info=info)


class _Answers(NamedTuple):
    value: np.ndarray
    finished: np.ndarray
    closed: np.ndarray  # whether the last token carries the ending, or is where the answer was cut
    token_ids: np.ndarray

    @classmethod
    def of(cls, table: pd.DataFrame) -> _Answers:
        ending, finished = table["end_log_prob"].to_numpy(float), table["finished"].to_numpy(bool)
        value = complete_log_prob(table["log_prob"].to_numpy(float), ending)
        return cls(value, finished, np.isnan(ending) | ~finished, table["token_ids"].map(tuple).to_numpy(object))

    def at(self, places: np.ndarray) -> _Answers:
        return _Answers(*(column[places] for column in self))


def _shallower(row: dict, answers: _Answers, log_alpha: float) -> tuple[Certificate, np.ndarray]:
    """The certificate of one question, and which of its answers are kept: those that reach α, and the greedy one."""
    deep = SearchTree(*(np.asarray(row[f"tree_{name}"]) for name in SearchTree._fields))
    expanded = np.flatnonzero(deep.greedy | (deep.log_probs >= log_alpha))
    tree = SearchTree(*(column[expanded] for column in deep))
    tree = tree._replace(parents=np.where(tree.parents < 0, -1, np.searchsorted(expanded, tree.parents)))
    reaches, p = answers.value >= log_alpha, np.exp(answers.value)
    held, found = p[reaches], reaches & answers.finished
    certificate = certify(
        tree=tree,
        masses=Masses(found=p[found].sum(), **_MASS_LEFT),
        doubts={"a prefix at or above α is still open at the length limit": (reaches & ~answers.finished).any()},
        n_found=int(found.sum()),
        search_alpha=float(np.exp(log_alpha)),
        epsilon=0.0,
        alpha_floor=-float((held * answers.value[reaches]).sum() + (1 - held.sum()) * log_alpha),
        open_entropy=None,
        token_forwards=len(expanded) - 1,
    )
    return certificate, reaches | _is_greedy(tree, answers)


def _is_greedy(tree: SearchTree, answers: _Answers) -> np.ndarray:
    """Of the answers that follow the greedy path where it was expanded last, the most probable one."""
    path = tuple(int(token) for token, greedy in zip(tree.tokens, tree.greedy, strict=True) if greedy and token >= 0)
    before = (ids[:-1] if closed else ids for ids, closed in zip(answers.token_ids, answers.closed, strict=True))
    follows = np.array([ids == path for ids in before], dtype=bool)
    return follows & (answers.value == answers.value[follows].max(initial=-np.inf))
