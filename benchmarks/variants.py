"""Formulas of other releases for SE, Deg and SD, for the audit and the tests.

docs/explanation/semantic_scores.md states the source of each formula. As in `pro_lib.scoring`,
`nli` is (n, N, N, 3), and `log_probs` and `meaning` are (n, N). The functions return scores (n,),
higher = more uncertain, unless they state another shape.
"""

import numpy as np

from pro_lib import scoring


def mean_over_meanings(log_probs: np.ndarray, meaning: np.ndarray) -> np.ndarray:
    """Return SE as -mean_c log P(c) over meanings (Kuhn et al. 2023; PRO's release adds 5)."""
    member = meaning[:, :, None] == np.arange(max(meaning.max(initial=0) + 1, 1))
    masses = np.logaddexp.reduce(
        np.where(member, log_probs[:, :, None], -np.inf), axis=1, initial=-np.inf
    )
    is_present = np.isfinite(masses)
    return _ratio(-np.where(is_present, masses, 0).sum(axis=1), is_present.sum(axis=1))


def discrete_entropy(log_probs: np.ndarray, meaning: np.ndarray) -> np.ndarray:
    """Return SE of shares of answers (Farquhar et al. 2024, discrete; LM-Polygraph, frequency)."""
    return scoring.semantic_entropy(np.where(np.isnan(log_probs), np.nan, 0.0), meaning)


def mean_over_answers(log_probs: np.ndarray, meaning: np.ndarray) -> np.ndarray:
    """Return SE as -mean_i log P(c(i)) over answers (LM-Polygraph)."""
    is_present = meaning >= 0
    same = (meaning[:, :, None] == meaning[:, None, :]) & is_present[:, None, :]
    of_answer = np.logaddexp.reduce(
        np.where(same, log_probs[:, None, :], -np.inf), axis=2, initial=-np.inf
    )
    return _ratio(-np.where(is_present, of_answer, 0).sum(axis=1), is_present.sum(axis=1))


def forward_density(
    mean_log_probs: np.ndarray, compared: np.ndarray, *, keep: np.ndarray | None = None
) -> np.ndarray:
    """Return SD with the first answer as the only premise, which itself counts once (LM-Polygraph).

    Args:
        mean_log_probs: mean log-probabilities per token (n, N).
        compared: comparisons of answers, as in `pro_lib.scoring`.
        keep: which of the other answers count (n, N); None for all.
    """
    kernel = (
        compared[:, 0] if compared.ndim == 3 else compared[:, 0, :, 0] + compared[:, 0, :, 1] / 2
    )
    distances = 1 - kernel
    counts = ~np.isnan(distances) & (True if keep is None else keep)
    counts[:, 0] = ~np.isnan(distances[:, 0])
    distances[:, 0] *= 0
    weights = np.where(counts, np.exp(mean_log_probs), 0)
    density = _ratio(np.nansum(weights * distances, axis=1), weights.sum(axis=1))
    return np.where(np.isnan(distances[:, 0]), np.nan, density)


def mean_distance(compared: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Return Deg of PRO's release: the mean distance of the first answer to those to keep."""
    similarity = compared if compared.ndim == 3 else compared[..., 0]
    distances = 1 - (similarity[:, 0] + similarity[:, :, 0]) / 2
    counts = keep & ~np.isnan(distances)
    return _ratio(np.where(counts, distances, 0).sum(axis=1), counts.sum(axis=1))


def jaccard(answers: list[list[str]]) -> np.ndarray:
    """Return the Jaccard index of the words of two answers (n, N, N)."""
    words = [[frozenset(text.lower().split()) for text in row] for row in answers]
    return np.array(
        [[[len(a & b) / max(len(a | b), 1) for b in row] for a in row] for row in words]
    )


def _ratio(values: np.ndarray, totals: np.ndarray) -> np.ndarray:
    return np.divide(values, totals, out=np.full(len(totals), np.nan), where=totals > 0)
