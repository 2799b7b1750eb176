"""How answers are counted, by the paper's rules or by ours, and what every method says of them then.

It knows runs, scores and similarities, not which answers are right. `docs/protocols.md` has the two line by line.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib import scoring
from pro_lib.runs.run import Run
from pro_lib.scoring.likelihood import FloatArray
from pro_lib.scoring.similarity import Similarity, first_occurrences, lexical

Similarities = Mapping[str, Similarity | None]


@dataclass(frozen=True)
class Protocol:
    """Which answers count, and which of them each method reads."""

    name: str
    distinct: bool  # every answer counts once; otherwise as often as it was found
    sampled: bool  # PE-MC and NE, averages over samples, read the samples; otherwise the beams
    without: tuple[str, ...] = ()  # methods that it does not have


PROTOCOLS = {
    "paper": Protocol("paper", distinct=False, sampled=False, without=("S-NLL", "S-PRO", "SC")),
    "workbench": Protocol("workbench", distinct=True, sampled=True),
}


def find_protocol(name: str, *, distinct: bool | None = None) -> Protocol:
    """Return the protocol of this name, or raise `ValueError`; one with another `distinct` says so in its name."""
    if name not in PROTOCOLS:
        raise ValueError(f"protocol={name!r} is unknown; choose {' or '.join(PROTOCOLS)}")
    if distinct in (None, PROTOCOLS[name].distinct):
        return PROTOCOLS[name]
    return replace(
        PROTOCOLS[name], name=f"{name}, {'distinct' if distinct else 'repeats'}", distinct=distinct
    )


def _average_log_likelihood(log_probs: FloatArray, means: FloatArray) -> FloatArray:
    return scoring.average_log_likelihood(means, log_probs)


# The registry of scores of the answers that PRO reads. A score takes their log-probabilities, of whole answers and per
# token, (n, N) each, NaN where a question has fewer answers, and returns (n,), higher = more uncertain. Every
# evaluation, and so every table of methods, has a column for each.
SCORES: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "NLL": lambda log_probs, _: scoring.nll(log_probs),
    "ALL": _average_log_likelihood,
    "PE": lambda log_probs, _: scoring.predictive_entropy(log_probs),
}


class AnswerMatrices(NamedTuple):
    """The finished answers of a run, (n, N) each, most probable first, repeats kept."""

    log_probs: FloatArray
    means: FloatArray  # log-probabilities per token
    repeats: NDArray[np.bool_]  # an answer before it is the same
    texts: Any  # None where there is none
    questions: pd.DataFrame
    n_found: NDArray  # (n,), those cut by length among them


def answer_matrices(run: Run, *, convention: str = "complete") -> AnswerMatrices:
    """Lay out the finished answers of a run, a row per question."""
    table = run.ranked_answers(distinct=False, convention=convention)
    log_probs, means = run.matrix(table, "value"), run.matrix(table, "mean")
    repeats, texts = run.matrix(table, "repeats", True), run.matrix(table, "text", None)
    n_found = run.answers["question_id"].value_counts().reindex(run.questions["question_id"])
    return AnswerMatrices(log_probs, means, repeats, texts, run.questions, n_found.to_numpy())


def _texts_known(found: AnswerMatrices) -> NDArray[np.bool_]:
    """Return whether the text of every answer is known, for each question (n,)."""
    has_text = np.asarray(~pd.isna(found.texts))
    is_known = (has_text | np.isnan(found.log_probs)).all(axis=1) & has_text.any(axis=1)
    return np.asarray(is_known)


def _means_known(found: AnswerMatrices) -> NDArray[np.bool_]:
    """Return whether every answer with a log-probability also has one per token, for each question (n,)."""
    return np.asarray((~np.isnan(found.means) | np.isnan(found.log_probs)).all(axis=1))


def similarity_matrices(
    beams: AnswerMatrices,
    samples: AnswerMatrices | None,
    similarities: Similarities,
    *,
    judged: pd.Series,
) -> dict[str, list[FloatArray]]:
    """Ask each similarity once for all protocols, by its name; where it cannot be asked there is nothing.

    First what it says of the beams, (n, N, N) or (n, N, N, 3), then of samples, before which stands the text judged.
    """
    matrices: list[Any] = [beams.texts]
    if samples:
        matrices.append(np.column_stack([judged, samples.texts]))
    if not _texts_known(beams).any():
        matrices = []
    results: dict[str, list[FloatArray]] = {}
    for name, similarity in similarities.items():
        results[name] = (
            [similarity(texts, beams.questions) for texts in matrices] if similarity else []
        )
    return results


def text_scores(run: Run) -> pd.DataFrame:
    """Return how uncertain the most frequent text to each question is, by the words of a black box's samples.

    Columns: question_id, question, text, SC, Deg and SE, higher = more uncertain.
    """
    samples = answer_matrices(run)
    top = run.questions[["question_id", "question"]].assign(text=run.top()["text"].to_numpy())
    compared = similarity_matrices(samples, samples, {"lexical": lexical}, judged=top["text"])
    table = method_scores(samples, samples, PROTOCOLS["workbench"], compared)[1]
    return top.join(
        table[["SC, lexical", "Deg, lexical", "SE, lexical"]].set_axis(["SC", "Deg", "SE"], axis=1)
    )


def method_scores(
    beams: AnswerMatrices,
    samples: AnswerMatrices | None,
    protocol: Protocol,
    compared: Mapping[str, Sequence[FloatArray]],
) -> tuple[FloatArray, pd.DataFrame, dict[str, FloatArray]]:
    """Return what PRO reads (n, N), the other methods, a column each, and what PRO over meanings reads, by its name.

    SE is the entropy over meanings itself, of the probabilities found, made to sum to 1; of samples without any, each
    counts the same. SD counts each text once where answers count once. A sample cut by length means the same as none.
    """
    are_texts = np.isnan(beams.log_probs).all()
    drops_repeats = protocol.distinct and not are_texts
    counts = ~(beams.repeats & drops_repeats)
    log_probs, means = (
        np.where(counts, values, np.nan) for values in (beams.log_probs, beams.means)
    )
    read_by_pro = dict[str, FloatArray]()
    table = pd.DataFrame({name: score(log_probs, means) for name, score in SCORES.items()})
    averaged = samples if protocol.sampled else beams._replace(log_probs=log_probs, means=means)
    if averaged:
        table["PE-MC"] = scoring.predictive_entropy_mc(averaged.log_probs)
        table["NE"] = np.where(
            _means_known(averaged), scoring.normalized_entropy(averaged.means), np.nan
        )
    without = {*protocol.without, *(() if samples else ("Deg", "SC"))}
    has_texts = _texts_known(beams)
    known_log_probs = np.where(has_texts[:, None], log_probs, np.nan)
    known_means = np.where((has_texts & _means_known(beams))[:, None], means, np.nan)
    for name, alike in compared.items():
        column: dict[str, Any] = dict.fromkeys(("SE", "SD", "Deg", "S-NLL", "SC"), np.nan)
        if alike:
            of_beams = alike[0].copy()
            of_beams[~(counts[:, :, None] & counts[:, None, :])] = np.nan
            meaning = scoring.clusters(of_beams)
            weights = np.where(meaning < 0, np.nan, 0.0) if are_texts else known_log_probs
            meant = scoring.meaning_log_probs(known_log_probs, meaning)
            once = first_occurrences(beams.texts) if protocol.distinct else True
            column["SE"] = scoring.semantic_entropy(weights, meaning)
            column["SD"] = scoring.semantic_density(np.where(once, known_means, np.nan), of_beams)
            column["S-NLL"] = scoring.nll(meant)
            read_by_pro |= {} if "S-PRO" in without else {f"S-PRO, {name}": meant}
        if alike and samples:
            # Without the answer judged, which stands first
            degree = scoring.degree(alike[1][:, 1:, 1:])
            agreement = scoring.matches(alike[1])[:, 0, 1:].sum(axis=1) / samples.n_found
            is_scored = _texts_known(samples) | pd.isna(samples.texts).all(axis=1)
            column["Deg"] = np.where(is_scored, degree, np.nan)
            column["SC"] = np.where(is_scored, 1 - agreement, np.nan)
        kept = {
            f"{method}, {name}": values
            for method, values in column.items()
            if method not in without
        }
        table = table.assign(**kept)
    downwards = -np.sort(-log_probs, axis=1)  # NaN last
    width = max(1, (~np.isnan(downwards)).sum(axis=1).max(initial=0))
    return downwards[:, :width], table, read_by_pro
