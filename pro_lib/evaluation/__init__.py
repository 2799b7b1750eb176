"""From runs to judged answers with their scores, the choice of α, and guarantees."""

from pro_lib.evaluation.alpha_choice import (
    AlphaChoice,
    Splits,
    held_out_alpha,
    select_alpha,
)
from pro_lib.evaluation.evaluation import DRAWN_ALPHAS, Evaluation, alpha_grid
from pro_lib.evaluation.guarantees import (
    Guarantee,
    guarantee,
    miss_rate,
    set_threshold,
)
from pro_lib.evaluation.inputs import PROTOCOLS, Protocol
from pro_lib.evaluation.judgement import Estimate, Judgement, Verdicts
from pro_lib.evaluation.methods import INPUTS, METHODS, Method, register
from pro_lib.evaluation.run_evaluation import evaluate, evaluations

__all__ = [
    "DRAWN_ALPHAS",
    "INPUTS",
    "METHODS",
    "PROTOCOLS",
    "AlphaChoice",
    "Estimate",
    "Evaluation",
    "Guarantee",
    "Judgement",
    "Method",
    "Protocol",
    "Splits",
    "Verdicts",
    "alpha_grid",
    "evaluate",
    "evaluations",
    "guarantee",
    "held_out_alpha",
    "miss_rate",
    "register",
    "select_alpha",
    "set_threshold",
]
