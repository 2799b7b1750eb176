"""From runs to tables: judged answers with their scores, sweeps over α and K, and guarantees."""

from pro_lib.evaluation.alpha_choice import AlphaChoice, choose_alpha, default_alpha
from pro_lib.evaluation.answer_comparison import AnswerComparison, Estimate, compare_answers
from pro_lib.evaluation.evaluate import MISSING_SHARE, common_methods, evaluate, evaluations
from pro_lib.evaluation.evaluation import DRAWN_ALPHAS, Evaluation, Splits, alpha_grid
from pro_lib.evaluation.guarantees import (
    Guarantee,
    guarantee,
    miss_rate,
    right_probability,
    set_threshold,
)
from pro_lib.evaluation.methods import (
    PROTOCOLS,
    SCORES,
    AnswerMatrices,
    MethodScores,
    Protocol,
    answer_matrices,
    find_protocol,
    method_scores,
    similarity_matrices,
    text_scores,
)
from pro_lib.evaluation.scored_answers import (
    Mistrust,
    ScoredAnswers,
    score_answers,
    score_texts,
)
from pro_lib.evaluation.scored_tables import auroc_table, calibration_table, risk_coverage
from pro_lib.evaluation.settings import (
    SettingCounts,
    beyond_chance,
    count_beyond_chance,
    count_settings,
)
from pro_lib.evaluation.sweeps import (
    chosen_alpha,
    redraw_benchmark,
    select_alpha,
)
from pro_lib.metrics.correctness import rouge_and_correct

__all__ = [
    "DRAWN_ALPHAS",
    "MISSING_SHARE",
    "PROTOCOLS",
    "SCORES",
    "AlphaChoice",
    "AnswerComparison",
    "AnswerMatrices",
    "Estimate",
    "Evaluation",
    "Guarantee",
    "MethodScores",
    "Mistrust",
    "Protocol",
    "ScoredAnswers",
    "SettingCounts",
    "Splits",
    "alpha_grid",
    "answer_matrices",
    "auroc_table",
    "beyond_chance",
    "calibration_table",
    "choose_alpha",
    "chosen_alpha",
    "common_methods",
    "compare_answers",
    "count_beyond_chance",
    "count_settings",
    "default_alpha",
    "evaluate",
    "evaluations",
    "find_protocol",
    "guarantee",
    "method_scores",
    "miss_rate",
    "redraw_benchmark",
    "right_probability",
    "risk_coverage",
    "rouge_and_correct",
    "score_answers",
    "score_texts",
    "select_alpha",
    "set_threshold",
    "similarity_matrices",
    "text_scores",
]
