"""Formulas of other releases for SE, Deg, SD and clusters, in terms of `pro_lib.scoring`; for the audit and the tests.

`docs/semantic_variants.md` says whose is whose. `nli` is (n, N, N, 3), `log_probs` and `meaning` are (n, N), as in
`pro_lib.scoring`; what comes back is (n,), higher = more uncertain, but where another shape is named.
"""

import numpy as np

from pro_lib import scoring


def matches(nli: np.ndarray, rule: str) -> np.ndarray:
    """Which answers match, as similarities 0 and 1 (n, N, N), by the most probable label of each direction.

    `non_contradiction` both ways (releases of Kuhn et al. and of PRO, UQ-NLG), `not_both_neutral`, which is that
    without pairs neutral both ways (the looser rule of Farquhar et al. 2024), `either_entailment` (uqlm).
    """
    label = np.nan_to_num(nli).argmax(axis=-1)
    back = label.transpose(0, 2, 1)
    same = {
        "non_contradiction": (label != 2) & (back != 2),
        "not_both_neutral": (label != 2) & (back != 2) & ~((label == 1) & (back == 1)),
        "either_entailment": (label == 0) | (back == 0),
    }[rule]
    return np.where(np.isnan(nli[..., 0]), np.nan, same | np.eye(label.shape[1], dtype=bool))


def clusters_by_last_match(same: np.ndarray) -> np.ndarray:
    """Meanings (n, N) as from `clusters`, an answer joining the last one before it that it matches (Kuhn's release)."""
    meaning = np.full(same.shape[:2], -1)
    for numbers, matching in zip(meaning, same, strict=True):
        for i in np.flatnonzero(~np.isnan(np.diagonal(matching))):
            before = np.flatnonzero((matching[:i, i] == 1) & (matching[i, :i] == 1))
            numbers[i] = numbers[before[-1]] if len(before) else numbers.max(initial=-1) + 1
    return meaning


def flattened(nli: np.ndarray, temperature: float) -> np.ndarray:
    """The probabilities as if their logits had been divided by the temperature (3 in the release of Lin et al.)."""
    powers = nli ** (1 / temperature)
    return powers / powers.sum(axis=-1, keepdims=True)


def mean_over_meanings(log_probs: np.ndarray, meaning: np.ndarray) -> np.ndarray:
    """SE as -mean_c log P(c), over the meanings (Kuhn et al. 2023, and PRO's release, which adds 5)."""
    member = meaning[:, :, None] == np.arange(max(meaning.max(initial=0) + 1, 1))
    masses = np.logaddexp.reduce(
        np.where(member, log_probs[:, :, None], -np.inf), axis=1, initial=-np.inf
    )
    there = np.isfinite(masses)
    return _ratio(-np.where(there, masses, 0).sum(axis=1), there.sum(axis=1))


def discrete_entropy(log_probs: np.ndarray, meaning: np.ndarray) -> np.ndarray:
    """SE of the shares of answers (Farquhar et al. 2024, discrete; LM-Polygraph's frequency)."""
    return scoring.semantic_entropy(np.where(np.isnan(log_probs), np.nan, 0.0), meaning)


def mean_over_answers(log_probs: np.ndarray, meaning: np.ndarray) -> np.ndarray:
    """SE as -mean_i log P(c(i)), over answers (LM-Polygraph)."""
    there = meaning >= 0
    same = (meaning[:, :, None] == meaning[:, None, :]) & there[:, None, :]
    of_answer = np.logaddexp.reduce(
        np.where(same, log_probs[:, None, :], -np.inf), axis=2, initial=-np.inf
    )
    return _ratio(-np.where(there, of_answer, 0).sum(axis=1), there.sum(axis=1))


def log_of_the_mean(log_probs: np.ndarray, meaning: np.ndarray) -> np.ndarray:
    """SE as -log mean_c P(c) (UQ-NLG)."""
    return -np.log(
        _ratio(np.nansum(np.exp(log_probs), axis=1), meaning.max(axis=1, initial=-1) + 1)
    )


ENTROPIES = {
    "kuhn2023": mean_over_meanings,
    "farquhar2024": scoring.semantic_entropy,
    "discrete": discrete_entropy,
    "lm_polygraph": mean_over_answers,
    "uq_nlg": log_of_the_mean,
}


def degree_of_uq_nlg(similarity: np.ndarray) -> np.ndarray:
    """Deg as the release of Lin et al. has it: the diagonal (n, N, N) set to 1, and m times the paper's."""
    own = np.eye(similarity.shape[1], dtype=bool) & ~np.isnan(similarity)
    return scoring.degree(np.where(own, 1.0, similarity)) * own.any(axis=2).sum(axis=1)


def forward_density(
    mean_log_probs: np.ndarray,
    compared: np.ndarray,
    *,
    with_itself: bool,
    keep: np.ndarray | None = None,
) -> np.ndarray:
    """SD with the first answer as the only premise: it counts once with K = 1 (LM-Polygraph), or not at all (uqlm).

    `compared` is as `pro_lib.scoring` takes it; `keep` (n, N) says which of the other answers count.
    """
    kernel = (
        compared[:, 0] if compared.ndim == 3 else compared[:, 0, :, 0] + compared[:, 0, :, 1] / 2
    )
    distances = 1 - kernel
    counts = ~np.isnan(distances) & (True if keep is None else keep)
    counts[:, 0] = with_itself & ~np.isnan(distances[:, 0])
    distances[:, 0] *= 0
    weights = np.where(counts, np.exp(mean_log_probs), 0)
    density = _ratio(np.nansum(weights * distances, axis=1), weights.sum(axis=1))
    return np.where(np.isnan(distances[:, 0]), np.nan, density)


def mean_distance(compared: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """What PRO's release calls Deg: mean of 1 - similarity, both ways, of the first answer to those kept (n, N)."""
    similarity = compared if compared.ndim == 3 else compared[..., 0]
    distances = 1 - (similarity[:, 0] + similarity[:, :, 0]) / 2
    counts = keep & ~np.isnan(distances)
    return _ratio(np.where(counts, distances, 0).sum(axis=1), counts.sum(axis=1))


def jaccard(answers: list[list[str]]) -> np.ndarray:
    """Jaccard index of the words of two answers, (n, N, N); every question has N."""
    words = [[frozenset(text.lower().split()) for text in row] for row in answers]
    return np.array(
        [[[len(a & b) / max(len(a | b), 1) for b in row] for a in row] for row in words]
    )


def _ratio(values: np.ndarray, totals: np.ndarray) -> np.ndarray:
    return np.divide(values, totals, out=np.full(len(totals), np.nan), where=totals > 0)
