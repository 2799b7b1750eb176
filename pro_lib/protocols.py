"""How answers are counted, by the paper's rules or by ours, and what every method says of them then.

The room knows runs, scores and similarities; it does not know which answers are right, splits, or which α is chosen.
`docs/protocols.md` has the two line by line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib import meanings, scores
from pro_lib.runs import Run
from pro_lib.similarities import Similarity, distinct

Floats, Similarities = NDArray[np.float64], Mapping[str, Similarity | None]
# What α is chosen from: every α that the paper prints is one of these. Finer ones near 0 are for a logarithmic axis
# only: chosen from on 100 questions, they were seen to cost up to 0.05 of AUROC.
ALPHA_GRID = tuple(step / 20 for step in range(21))
DRAWN_ALPHAS = tuple(sorted({*ALPHA_GRID, 0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04}))


@dataclass(frozen=True)
class Protocol:
    """Which answers count, and which of them each method reads."""

    name: str
    distinct: bool  # every answer counts once; otherwise as often as it was found
    sampled: bool  # PE-MC and NE, averages over samples, read the samples; otherwise the beams
    without: tuple[str, ...] = ()  # methods that it does not have


_PAPER = Protocol("paper", distinct=False, sampled=False, without=("S-NLL", "S-PRO", "SC"))
PROTOCOLS = {protocol.name: protocol for protocol in (_PAPER, Protocol("workbench", distinct=True, sampled=True))}


def named(name: str, *, distinct: bool | None = None) -> Protocol:
    """The protocol of this name, or a `ValueError`; with another `distinct` than its own it says so in its name."""
    if name not in PROTOCOLS:
        raise ValueError(f"protocol={name!r} is unknown; choose {' or '.join(PROTOCOLS)}")
    if distinct in (None, PROTOCOLS[name].distinct):
        return PROTOCOLS[name]
    return replace(PROTOCOLS[name], name=f"{name}, {'distinct' if distinct else 'repeats'}", distinct=distinct)


def alpha_grid(search_alpha: float | None = None, *, of: Sequence[float] = ALPHA_GRID) -> Floats:
    """The αs (A,), from the `search_alpha` on where the answers are those of an exact search; that α included."""
    if search_alpha is None:
        return np.array(of)
    return np.unique([search_alpha, *(alpha for alpha in of if alpha > search_alpha)])


class Found(NamedTuple):
    """The answers of a run, (n, N) each, most probable first, repeats kept; `texts` where they are asked for."""

    log_probs: Floats
    means: Floats  # log-probabilities per token
    repeats: NDArray[np.bool_]  # an answer before it is the same
    texts: NDArray | None

    @classmethod
    def of(cls, run: Run, *, texts: bool, **counted: object) -> Found:
        """Those of a run, `counted` as `Run.ranked` does."""
        ranked = run.ranked(distinct=False, **counted)
        read = run.matrix(ranked, "value"), run.matrix(ranked, "mean"), run.matrix(ranked, "repeats", True)
        return cls(*read, run.matrix(ranked, "text", None) if texts else None)


class Answers(NamedTuple):
    """Beams and samples of the same questions, and what similarities say of them, by name."""

    beams: Found
    samples: Found | None
    compared: dict[str, Floats | None]  # the beams, (n, N, N) or more; None where a similarity cannot be asked
    sampled: dict[str, dict[str, Floats]]  # Deg and SC of the samples, (n,)

    @classmethod
    def of(
        cls, beams: Run, samples: Run | None, similarities: Similarities, *, judged: pd.Series, **counted: object
    ) -> Answers:
        """Read the runs, answers `counted` as `Run.ranked` does, and ask each similarity once for all protocols.

        `judged` (n,) are the texts of the answers judged. A sample that was cut by length means the same as none.
        """
        found = Found.of(beams, texts=bool(similarities), **counted)
        drawn = samples and Found.of(samples, texts=bool(similarities), **counted)
        n_drawn = samples and np.isfinite(samples.outcome_log_probs()).sum(axis=1)
        unknown = np.isnan(found.means) | (pd.isna(found.texts) if similarities else False)
        lacking = (unknown & ~np.isnan(found.log_probs)).any()
        compared, sampled = dict.fromkeys(similarities), {}
        for name, similarity in similarities.items():
            if similarity is not None and not lacking:
                compared[name] = similarity(found.texts, beams.questions)
                if drawn:
                    said = similarity(np.column_stack([judged, drawn.texts]), beams.questions)
                    share = meanings.matches(said)[:, 0, 1:].sum(axis=1) / n_drawn
                    sampled[name] = {"Deg": meanings.degree(said[:, 1:, 1:]), "SC": 1 - share}
        return cls(found, drawn, compared, sampled)

    def under(self, protocol: Protocol) -> tuple[Floats, pd.DataFrame, dict[str, Floats]]:
        """Under a protocol, what PRO reads (n, N), the other methods, a column each, and what S-PRO reads, by name."""
        out = self.beams.repeats & protocol.distinct
        log_probs, means = (np.where(out, np.nan, values) for values in self.beams[:2])
        beams = self.beams._replace(log_probs=log_probs, means=means)
        methods = _likelihoods(beams, self.samples if protocol.sampled else beams)
        without, meant_by_name = {*protocol.without, *(() if self.samples else ("Deg", "SC"))}, {}
        for name, compared in self.compared.items():
            said = dict.fromkeys(("SE", "SD", "Deg", "S-NLL", "SC"), np.nan)
            if compared is not None:
                counted = compared.copy()
                counted[out[:, :, None] | out[:, None, :]] = np.nan
                said |= _meanings(beams, counted, once=protocol.distinct) | self.sampled.get(name, {})
            if (meant := said.pop("S-PRO", None)) is not None and "S-PRO" not in without:
                meant_by_name[f"S-PRO, {name}"] = meant
            methods |= {f"{method}, {name}": values for method, values in said.items() if method not in without}
        read = -np.sort(-log_probs, axis=1)  # downwards, NaN last
        width = max(1, (~np.isnan(read)).sum(axis=1).max(initial=0))
        return read[:, :width], pd.DataFrame(methods, index=range(len(read))), meant_by_name


def _likelihoods(beams: Found, drawn: Found | None) -> dict[str, Floats]:
    methods = {
        "NLL": scores.nll(beams.log_probs),
        "ALL": scores.average_log_likelihood(beams.means, beams.log_probs),
        "PE": scores.predictive_entropy(beams.log_probs),
    }
    if drawn:
        methods["PE-MC"] = scores.predictive_entropy_mc(drawn.log_probs)
        methods["NE"] = scores.normalized_entropy(drawn.means)
    return methods


def _meanings(beams: Found, compared: Floats, *, once: bool) -> dict[str, Floats]:
    """The methods that compare meanings; `once`: SD counts each text once.

    SE is the entropy over meanings itself, of the probabilities found, made to sum to 1. S-PRO: what it reads, its α
    being chosen later.
    """
    meaning = meanings.clusters(compared)
    meant = meanings.meaning_log_probs(beams.log_probs, meaning)
    counts = distinct(beams.texts) if once else True
    return {
        "SE": meanings.semantic_entropy(beams.log_probs, meaning),
        "SD": meanings.semantic_density(np.where(counts, beams.means, np.nan), compared),
        "S-NLL": scores.nll(meant),
        "S-PRO": meant,
    }
