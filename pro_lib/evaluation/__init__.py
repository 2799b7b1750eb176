"""From runs to judged answers with their scores, the choice of α, and guarantees."""

from pro_lib.evaluation.alpha_choice import (
    AlphaChoice,
    Splits,
    default_alpha,
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
from pro_lib.evaluation.inputs import PROTOCOLS, Protocol, find_protocol
from pro_lib.evaluation.judgement import Estimate, Judgement, Verdicts
from pro_lib.evaluation.methods import INPUTS, METHODS, Method, register
from pro_lib.evaluation.run_evaluation import MISSING_SHARE, common_methods, evaluate, evaluations
from pro_lib.metrics.correctness import rouge_and_correct

__all__ = [
    "DRAWN_ALPHAS",
    "INPUTS",
    "METHODS",
    "MISSING_SHARE",
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
    "common_methods",
    "default_alpha",
    "evaluate",
    "evaluations",
    "find_protocol",
    "guarantee",
    "held_out_alpha",
    "miss_rate",
    "register",
    "rouge_and_correct",
    "select_alpha",
    "set_threshold",
]
