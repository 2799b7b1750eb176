"""Compute what the methods read, and the scores of all methods under a protocol.

Correctness is not used here. `docs/explanation/protocols.md` compares the two protocols.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib import scoring
from pro_lib.evaluation.methods import Method, computed_methods, score_of
from pro_lib.metrics.roc import FloatArray
from pro_lib.runs.run import Run
from pro_lib.scoring.similarity import Similarity, first_occurrences

Similarities = Mapping[str, Similarity | None]
_SAMPLE_INPUTS = frozenset(["sample_similarity", "agreement"])


@dataclass(frozen=True)
class Protocol:
    """The rules that say which answers count, and which of them each method reads.

    Attributes:
        name: the name of the protocol.
        distinct: whether each answer counts once; otherwise as often as it was found.
        is_paper: whether the protocol has the methods of the paper only, and these read the beams
            where other protocols read samples (PE-MC and NE).
    """

    name: str
    distinct: bool
    is_paper: bool = False


PROTOCOLS = {
    "paper": Protocol("paper", distinct=False, is_paper=True),
    "workbench": Protocol("workbench", distinct=True),
}


def find_protocol(name: str, *, distinct: bool | None = None) -> Protocol:
    """Return the protocol of this name.

    Args:
        name: `paper` or `workbench`.
        distinct: whether repeated answers count once. None keeps the rule of the protocol; another
            rule is added to the name, such as `paper, distinct`.

    Raises:
        ValueError: the name is unknown.

    Example:
        >>> find_protocol("paper", distinct=True).name
        'paper, distinct'
    """
    if name not in PROTOCOLS:
        raise ValueError(f"protocol={name!r} is unknown; choose {' or '.join(PROTOCOLS)}")
    protocol = PROTOCOLS[name]
    if distinct is None or distinct == protocol.distinct:
        return protocol
    rule = "distinct" if distinct else "repeats"
    return replace(protocol, name=f"{name}, {rule}", distinct=distinct)


class AnswerMatrices(NamedTuple):
    """The finished answers of a run, (n, N) each, most probable first, repeats kept.

    Attributes:
        log_probs: log-probabilities of the answers.
        means: log-probabilities per token.
        repeats: whether an earlier answer is the same.
        texts: the texts, None for a missing one.
        questions: the questions, a row each.
        n_answers: the number of answers to each question, with those cut by length, (n,).
    """

    log_probs: FloatArray
    means: FloatArray
    repeats: NDArray[np.bool_]
    texts: NDArray[Any]
    questions: pd.DataFrame
    n_answers: NDArray[Any]

    @classmethod
    def of(cls, run: Run, *, convention: str = "complete") -> AnswerMatrices:
        """Return the matrices of a run.

        Args:
            run: the run.
            convention: `complete` (ending included) or `answer_tokens` (ending left out).

        Example:
            >>> from pro_lib.importing import import_answers
            >>> answers = [{"text": "Paris", "log_prob": -0.1}, {"text": "Lyon", "log_prob": -2.5}]
            >>> run = import_answers([{"question_id": "q1", "answers": answers}])
            >>> matrices = AnswerMatrices.of(run)
            >>> matrices.log_probs.tolist(), matrices.texts.tolist()
            ([[-0.1, -2.5]], [['Paris', 'Lyon']])
        """
        table = run.ranked_answers(distinct=False, convention=convention)
        n_answers = run.answers["question_id"].value_counts().reindex(run.questions["question_id"])
        return cls(
            log_probs=run.matrix(table, "value"),
            means=run.matrix(table, "mean"),
            repeats=run.matrix(table, "repeats", True),
            texts=run.matrix(table, "text", None),
            questions=run.questions,
            n_answers=n_answers.to_numpy(),
        )

    @property
    def are_texts(self) -> bool:
        """Whether no answer has a log-probability."""
        return bool(np.isnan(self.log_probs).all())

    @property
    def has_text(self) -> NDArray[np.bool_]:
        """Whether the text of an answer is known, (n, N)."""
        return np.asarray(~pd.isna(self.texts))

    @property
    def texts_known(self) -> NDArray[np.bool_]:
        """Whether the text of every answer is known, for each question (n,)."""
        is_known = (self.has_text | np.isnan(self.log_probs)).all(axis=1)
        return np.asarray(is_known & self.has_text.any(axis=1))

    @property
    def means_known(self) -> NDArray[np.bool_]:
        """Whether every answer has a log-probability per token if it has one, (n,)."""
        return np.asarray((~np.isnan(self.means) | np.isnan(self.log_probs)).all(axis=1))

    def only(self, is_counted: NDArray[np.bool_]) -> AnswerMatrices:
        """Return the answers of a mask (n, N), without gaps between them."""
        order, is_kept = _packing(is_counted)

        def packed(values: NDArray[Any], missing: Any) -> NDArray[Any]:
            moved = np.take_along_axis(values, order, axis=1)
            moved[~is_kept] = missing
            return moved

        return self._replace(
            log_probs=packed(self.log_probs, np.nan),
            means=packed(self.means, np.nan),
            repeats=packed(self.repeats, True),
            texts=packed(self.texts, None),
        )


def _packing(is_counted: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the order (n, N) that puts the answers of a mask first, and the mask in this order."""
    order = np.argsort(~is_counted, axis=1, kind="stable")
    return order, np.take_along_axis(is_counted, order, axis=1)


class Compared(NamedTuple):
    """The similarities of the beams and of the samples by one measure, None if unknown.

    Attributes:
        beams: (n, N, N) or (n, N, N, 3).
        samples: the same of the samples, of which the first is the judged answer.
    """

    beams: FloatArray | None = None
    samples: FloatArray | None = None


def compare_meanings(
    beams: AnswerMatrices,
    samples: AnswerMatrices | None,
    similarities: Similarities,
    *,
    judged: pd.Series,
) -> dict[str, Compared]:
    """Compute each similarity once for all protocols.

    Args:
        beams: the answers that most methods read.
        samples: the samples, if there are any; they may be the beams.
        similarities: the similarities by name; None for one that cannot be computed.
        judged: the text of the judged answer to each question.
    """
    results: dict[str, Compared] = {}
    for name, similarity in similarities.items():
        results[name] = Compared()
        if similarity is None or not beams.texts_known.any():
            continue
        of_samples = None
        if samples is not None:
            texts: Any = np.column_stack([judged, samples.texts])
            of_samples = similarity(texts, beams.questions)
        if samples is beams and of_samples is not None:
            of_beams = of_samples[:, 1:, 1:]
        else:
            beam_texts: Any = beams.texts
            of_beams = similarity(beam_texts, beams.questions)
        results[name] = Compared(of_beams, of_samples)
    return results


@dataclass(frozen=True)
class AlphaScore:
    """A score that needs an α, with what it reads.

    Attributes:
        method: the method.
        inputs: the inputs of the method, arrays with a row per question, and `search_alpha`.
    """

    method: Method
    inputs: Mapping[str, Any]

    def __call__(self, alpha: float | FloatArray) -> FloatArray:
        """Return the scores (n,), or (n, A) for several α."""
        # `Evaluation.sentence` reports the questions that the warning is about.
        with warnings.catch_warnings(action="ignore", category=scoring.PremiseWarning):
            return score_of(self.method, self.inputs, alpha=alpha)

    def select(self, positions: NDArray[np.intp]) -> AlphaScore:
        """Return the score of some of the questions.

        Args:
            positions: those of the questions, (k,).
        """
        inputs = {
            name: value[positions] if isinstance(value, np.ndarray) else value
            for name, value in self.inputs.items()
        }
        return replace(self, inputs=inputs)


class MethodScores(NamedTuple):
    """The scores of all methods.

    Attributes:
        log_probs: log-probabilities of the answers that PRO reads, (n, N).
        table: a column per method without α, higher = more uncertain. A method that compares
            meanings has the name of the similarity behind its own, as in "SE, lexical".
        alpha_scores: the scores besides PRO that need an α, by name.
    """

    log_probs: FloatArray
    table: pd.DataFrame
    alpha_scores: dict[str, AlphaScore]


def method_scores(
    beams: AnswerMatrices,
    samples: AnswerMatrices | None,
    protocol: Protocol,
    compared: Mapping[str, Compared],
    *,
    search_alpha: float | None = None,
) -> MethodScores:
    """Compute the scores of all methods under a protocol.

    SE is the entropy over meanings, whose probabilities are made to sum to 1; if there are no
    log-probabilities, each sample has the same weight. SD uses each text once if answers count
    once. A sample that was cut by length differs in meaning from all others.

    Args:
        beams: the answers that most methods read.
        samples: the samples, if there are any.
        protocol: the rules.
        compared: the result of `compare_meanings`.
        search_alpha: the α of an exact search.
    """
    is_counted = ~(beams.repeats & (protocol.distinct and not beams.are_texts))
    counted = beams.only(is_counted)
    inputs: dict[str, Any] = {
        "log_probs": counted.log_probs,
        "mean_log_probs": counted.means,
        "texts": counted.texts,
        "search_alpha": search_alpha,
    }
    averaged = counted if protocol.is_paper else samples
    if averaged is not None:
        inputs["sample_log_probs"] = averaged.log_probs
        known_means = np.where(averaged.means_known[:, None], averaged.means, np.nan)
        inputs["sample_mean_log_probs"] = known_means
    table = {}
    alpha_scores = {}
    inputs_by_suffix = {"": inputs}
    for name, similarity in compared.items():
        of_meanings = _similarity_inputs(beams, samples, counted, is_counted, similarity, protocol)
        inputs_by_suffix[f", {name}"] = inputs | of_meanings
    for suffix, known in inputs_by_suffix.items():
        for method in computed_methods(is_paper=protocol.is_paper):
            if method.name == "PRO" or method.per_similarity != bool(suffix):
                continue
            name = f"{method.name}{suffix}"
            if not method.reads <= set(known):
                # It is unavailable only because meanings cannot be compared here.
                lacks_samples = samples is None and method.reads & _SAMPLE_INPUTS
                if suffix and not method.needs_alpha and not lacks_samples:
                    table[name] = np.full(len(beams.log_probs), np.nan)
            elif method.needs_alpha:
                used = {name: known[name] for name in {*method.reads, "log_probs"}}
                alpha_scores[name] = AlphaScore(method, used)
            else:
                table[name] = score_of(method, known)
    width = max(1, (~np.isnan(counted.log_probs)).sum(axis=1).max(initial=0))
    scores = pd.DataFrame(table, index=range(len(beams.log_probs)))
    return MethodScores(counted.log_probs[:, :width], scores, alpha_scores)


def _similarity_inputs(
    beams: AnswerMatrices,
    samples: AnswerMatrices | None,
    counted: AnswerMatrices,
    is_counted: NDArray[np.bool_],
    compared: Compared,
    protocol: Protocol,
) -> dict[str, Any]:
    """Return the inputs that compare meanings, as far as they are known.

    If not all texts of a question are known, it has no log-probabilities here.
    """
    if compared.beams is None:
        return {}
    similarity = _counted_similarity(compared.beams, is_counted)
    meaning = scoring.clusters(similarity)
    texts_known = beams.texts_known
    log_probs = np.where(texts_known[:, None], counted.log_probs, np.nan)
    has_means = texts_known & beams.means_known
    means = np.where(has_means[:, None], counted.means, np.nan)
    if protocol.distinct:
        means = np.where(first_occurrences(counted.texts.tolist()), means, np.nan)
    inputs = {
        "similarity": similarity,
        "meaning": meaning,
        "weights": np.where(meaning < 0, np.nan, 0.0) if beams.are_texts else log_probs,
        "density_log_probs": means,
        "meaning_log_probs": scoring.meaning_log_probs(log_probs, meaning),
    }
    if samples is not None and compared.samples is not None:
        is_scored = samples.texts_known | ~samples.has_text.any(axis=1)
        n_matches = scoring.matches(compared.samples)[:, 0, 1:].sum(axis=1)
        inputs["agreement"] = np.where(is_scored, n_matches / samples.n_answers, np.nan)
        of_samples = compared.samples[:, 1:, 1:].copy()
        of_samples[~is_scored] = np.nan
        inputs["sample_similarity"] = of_samples
    return inputs


def _counted_similarity(similarity: FloatArray, is_counted: NDArray[np.bool_]) -> FloatArray:
    """Return the similarities of the answers that count, in the places of `AnswerMatrices.only`."""
    if is_counted.all():
        return similarity
    order, is_kept = _packing(is_counted)
    rows = np.arange(len(order))[:, None, None]
    packed = similarity[rows, order[:, :, None], order[:, None, :]]
    packed[~(is_kept[:, :, None] & is_kept[:, None, :])] = np.nan
    return packed
