"""Define the protocols, and compute the scores of all methods under a protocol.

Correctness is not used here. `docs/explanation/protocols.md` compares the two protocols.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib import scoring
from pro_lib.metrics.auroc import FloatArray
from pro_lib.runs.run import Run
from pro_lib.scoring.similarity import Similarity, first_occurrences, lexical

Similarities = Mapping[str, Similarity | None]


# The methods that compare meanings, once for each similarity.
_MEANING_METHODS = ("SE", "SD", "Deg", "S-NLL", "SC")
_SAMPLE_METHODS = ("Deg", "SC")


@dataclass(frozen=True)
class Protocol:
    """The rules that say which answers count, and which of them each method reads.

    Attributes:
        name: the name of the protocol.
        distinct: whether each answer counts once; otherwise as often as it was found.
        sampled: whether PE-MC and NE read the samples; otherwise the beams.
        without: methods that the protocol does not have.
    """

    name: str
    distinct: bool
    sampled: bool
    without: tuple[str, ...] = ()


PROTOCOLS = {
    "paper": Protocol("paper", distinct=False, sampled=False, without=("S-NLL", "S-PRO", "SC")),
    "workbench": Protocol("workbench", distinct=True, sampled=True),
}


def find_protocol(name: str, *, distinct: bool | None = None) -> Protocol:
    """Return the protocol of this name.

    Args:
        name: `paper` or `workbench`.
        distinct: whether repeated answers count once. None keeps the rule of the protocol; another
            rule is added to the name, such as `paper, distinct`.

    Returns:
        The protocol.

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


def _average_log_likelihood(log_probs: FloatArray, means: FloatArray) -> FloatArray:
    """Return ALL, with the arguments in the order of `SCORES`."""
    return scoring.average_log_likelihood(means, log_probs)


# The registry of scores of the answers that PRO reads. A score takes their log-probabilities, of
# whole answers and per token, (n, N) each, NaN if a question has fewer answers. It returns (n,),
# higher = more uncertain. Every evaluation, and so every table of methods, has a column for each.
SCORES: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "NLL": lambda log_probs, _: scoring.nll(log_probs),
    "ALL": _average_log_likelihood,
    "PE": lambda log_probs, _: scoring.predictive_entropy(log_probs),
}


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
    texts: Any
    questions: pd.DataFrame
    n_answers: NDArray[Any]


class MethodScores(NamedTuple):
    """The scores of all methods without α, and the inputs of the methods with α.

    Attributes:
        log_probs: log-probabilities of the answers that PRO reads, (n, N).
        table: a column per method, higher = more uncertain.
        meanings: log-probabilities (n, C) that PRO over meanings reads, by its name.
    """

    log_probs: FloatArray
    table: pd.DataFrame
    meanings: dict[str, FloatArray]


def answer_matrices(run: Run, *, convention: str = "complete") -> AnswerMatrices:
    """Return the finished answers of a run as matrices with a row per question.

    Args:
        run: the run.
        convention: `complete` (ending included) or `answer_tokens` (ending left out).

    Returns:
        The matrices.

    Example:
        >>> from pro_lib.importing import from_records
        >>> answers = [{"text": "Paris", "log_prob": -0.1}, {"text": "Lyon", "log_prob": -2.5}]
        >>> run = from_records([{"question_id": "q1", "answers": answers}])
        >>> matrices = answer_matrices(run)
        >>> matrices.log_probs.tolist(), matrices.texts.tolist()
        ([[-0.1, -2.5]], [['Paris', 'Lyon']])
    """
    table = run.ranked_answers(distinct=False, convention=convention)
    n_answers = run.answers["question_id"].value_counts().reindex(run.questions["question_id"])
    return AnswerMatrices(
        log_probs=run.matrix(table, "value"),
        means=run.matrix(table, "mean"),
        repeats=run.matrix(table, "repeats", True),
        texts=run.matrix(table, "text", None),
        questions=run.questions,
        n_answers=n_answers.to_numpy(),
    )


def _texts_known(answers: AnswerMatrices) -> NDArray[np.bool_]:
    """Return whether the text of every answer is known, for each question (n,)."""
    has_text = np.asarray(~pd.isna(answers.texts))
    is_known = (has_text | np.isnan(answers.log_probs)).all(axis=1) & has_text.any(axis=1)
    return np.asarray(is_known)


def _means_known(answers: AnswerMatrices) -> NDArray[np.bool_]:
    """Return whether every answer with a log-probability has one per token, for each question."""
    return np.asarray((~np.isnan(answers.means) | np.isnan(answers.log_probs)).all(axis=1))


def similarity_matrices(
    beams: AnswerMatrices,
    samples: AnswerMatrices | None,
    similarities: Similarities,
    *,
    judged: pd.Series,
) -> dict[str, list[FloatArray]]:
    """Compute each similarity once for all protocols.

    Args:
        beams: the answers that most methods read.
        samples: the samples, if there are any.
        similarities: the similarities by name; None for one that cannot be computed.
        judged: the text of the judged answer to each question.

    Returns:
        By name, the similarities (n, N, N) or (n, N, N, 3) of the beams and then of the samples, of
        which the first is the judged answer. The list is empty if there is nothing to compare.
    """
    compared_texts: list[Any] = []
    if _texts_known(beams).any():
        compared_texts.append(beams.texts)
        if samples is not None:
            compared_texts.append(np.column_stack([judged, samples.texts]))
    results: dict[str, list[FloatArray]] = {}
    for name, similarity in similarities.items():
        results[name] = []
        if similarity is not None:
            results[name] = [similarity(texts, beams.questions) for texts in compared_texts]
    return results


def text_scores(run: Run) -> pd.DataFrame:
    """Return the scores that need texts only, from samples without log-probabilities.

    Args:
        run: the samples.

    Returns:
        A row per question with the columns question_id, question, text (the most frequent one), SC,
        Deg and SE, which compare words; higher = more uncertain.

    Example:
        >>> from pro_lib.importing import from_records
        >>> answers = [{"text": "Paris"}, {"text": "Paris"}, {"text": "Lyon"}, {"text": "Paris"}]
        >>> record = {"question_id": "q1", "question": "Capital of France?", "answers": answers}
        >>> run = from_records([record])
        >>> text_scores(run)[["text", "SC"]].values.tolist()
        [['Paris', 0.25]]
    """
    samples = answer_matrices(run)
    top = run.questions[["question_id", "question"]].assign(text=run.top()["text"].to_numpy())
    compared = similarity_matrices(samples, samples, {"lexical": lexical}, judged=top["text"])
    scores = method_scores(samples, samples, PROTOCOLS["workbench"], compared).table
    names = {"SC, lexical": "SC", "Deg, lexical": "Deg", "SE, lexical": "SE"}
    return top.join(scores[list(names)].rename(columns=names))


def method_scores(
    beams: AnswerMatrices,
    samples: AnswerMatrices | None,
    protocol: Protocol,
    compared: Mapping[str, Sequence[FloatArray]],
) -> MethodScores:
    """Compute the scores of all methods without α under a protocol.

    SE is the entropy over meanings, whose probabilities are made to sum to 1; if there are no
    log-probabilities, each sample has the same weight. SD uses each text once if answers count
    once. A sample that was cut by length differs in meaning from all others.

    Args:
        beams: the answers that most methods read.
        samples: the samples, if there are any.
        protocol: the rules.
        compared: the result of `similarity_matrices`.

    Returns:
        The scores, and the inputs of the methods with α.
    """
    are_texts = bool(np.isnan(beams.log_probs).all())
    is_counted = ~(beams.repeats & (protocol.distinct and not are_texts))
    counted = beams._replace(
        log_probs=np.where(is_counted, beams.log_probs, np.nan),
        means=np.where(is_counted, beams.means, np.nan),
    )
    table = pd.DataFrame(
        {name: score(counted.log_probs, counted.means) for name, score in SCORES.items()}
    )
    averaged = samples if protocol.sampled else counted
    if averaged is not None:
        table["PE-MC"] = scoring.predictive_entropy_mc(averaged.log_probs)
        entropies = scoring.normalized_entropy(averaged.means)
        table["NE"] = np.where(_means_known(averaged), entropies, np.nan)
    comparable = _with_known_texts(counted, _texts_known(beams), _means_known(beams))
    absent = set(protocol.without)
    if samples is None:
        absent.update(_SAMPLE_METHODS)
    meanings: dict[str, FloatArray] = {}
    for name, matrices in compared.items():
        columns: dict[str, Any] = dict.fromkeys(_MEANING_METHODS, np.nan)
        if matrices:
            similarity = _among_counted(matrices[0], is_counted)
            meaning = scoring.clusters(similarity)
            weights = np.where(meaning < 0, np.nan, 0.0) if are_texts else comparable.log_probs
            meaning_log_probs = scoring.meaning_log_probs(comparable.log_probs, meaning)
            columns["SE"] = scoring.semantic_entropy(weights, meaning)
            columns["SD"] = _semantic_density(comparable, similarity, protocol)
            columns["S-NLL"] = scoring.nll(meaning_log_probs)
            if "S-PRO" not in absent:
                meanings[f"S-PRO, {name}"] = meaning_log_probs
        if matrices and samples is not None:
            columns |= _sample_scores(samples, matrices[1])
        for method, values in columns.items():
            if method not in absent:
                table[f"{method}, {name}"] = values
    return MethodScores(_descending(counted.log_probs), table, meanings)


def _among_counted(similarity: FloatArray, is_counted: NDArray[np.bool_]) -> FloatArray:
    """Return the similarities of answers that count, NaN for the others."""
    are_both_counted = is_counted[:, :, None] & is_counted[:, None, :]
    result = similarity.copy()
    result[~are_both_counted] = np.nan
    return result


def _with_known_texts(
    answers: AnswerMatrices, are_texts_known: NDArray[np.bool_], are_means_known: NDArray[np.bool_]
) -> AnswerMatrices:
    """Return the answers without the log-probabilities of questions with unknown texts.

    Log-probabilities per token are left out if one of a question is unknown.
    """
    has_means = are_texts_known & are_means_known
    return answers._replace(
        log_probs=np.where(are_texts_known[:, None], answers.log_probs, np.nan),
        means=np.where(has_means[:, None], answers.means, np.nan),
    )


def _semantic_density(
    answers: AnswerMatrices, similarity: FloatArray, protocol: Protocol
) -> FloatArray:
    """Return SD (n,).

    If answers count once, each text does.
    """
    means = answers.means
    if protocol.distinct:
        means = np.where(first_occurrences(answers.texts), means, np.nan)
    return scoring.semantic_density(means, similarity)


def _sample_scores(samples: AnswerMatrices, similarity: FloatArray) -> dict[str, FloatArray]:
    """Return Deg and SC (n,).

    The first answer in `similarity` is the judged one.
    """
    degree = scoring.degree(similarity[:, 1:, 1:])
    n_matches = scoring.matches(similarity)[:, 0, 1:].sum(axis=1)
    agreement = n_matches / samples.n_answers
    is_scored = _texts_known(samples) | pd.isna(samples.texts).all(axis=1)
    return {
        "Deg": np.where(is_scored, degree, np.nan),
        "SC": np.where(is_scored, 1 - agreement, np.nan),
    }


def _descending(log_probs: FloatArray) -> FloatArray:
    """Return log-probabilities in descending order, without columns of NaN only."""
    ordered: FloatArray = -np.sort(-log_probs, axis=1)  # NaN is last
    n_answers = (~np.isnan(ordered)).sum(axis=1)
    return ordered[:, : max(1, n_answers.max(initial=0))]
