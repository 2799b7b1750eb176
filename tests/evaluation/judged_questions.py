"""Evaluations of the judged questions alone, which most tests are about."""

from pro_lib import evaluation
from pro_lib.evaluation.inputs import AlphaScore
from pro_lib.evaluation.methods import METHODS


def evaluate(*runs, **options):
    """Return the judged questions of `evaluation.evaluate`."""
    return evaluation.evaluate(*runs, **options).judged


def evaluations(*runs, **options):
    """Return the judged questions of `evaluation.evaluations`."""
    return [each.judged for each in evaluation.evaluations(*runs, **options)]


def s_pro(log_probs):
    """Return S-PRO of meanings with these log-probabilities."""
    inputs = {"log_probs": log_probs, "meaning_log_probs": log_probs, "search_alpha": None}
    return AlphaScore(METHODS["S-PRO"], inputs)
