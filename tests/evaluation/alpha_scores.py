"""Scores that need an α, for evaluations that tests make up."""

from pro_lib.evaluation.inputs import AlphaScore
from pro_lib.evaluation.methods import METHODS


def s_pro(log_probs):
    """Return S-PRO of meanings with these log-probabilities."""
    inputs = {"log_probs": log_probs, "meaning_log_probs": log_probs, "search_alpha": None}
    return AlphaScore(METHODS["S-PRO"], inputs)
