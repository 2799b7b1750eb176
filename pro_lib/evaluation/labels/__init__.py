"""Labels by hand: which answers to label, the label file, and estimates from some labels."""

from pro_lib.evaluation.labels.answers import Answers, collect_answers
from pro_lib.evaluation.labels.estimate import accuracy_at_coverage, estimate, judge_agreement
from pro_lib.evaluation.labels.label_file import (
    Label,
    append_label,
    append_undo,
    as_correctness,
    consistency,
    is_label_sample,
    label_table,
    labeller_agreement,
    merge_labels,
    read_label_file,
)
from pro_lib.evaluation.labels.plan import LabelPlan, Request, plan_path
from pro_lib.evaluation.labels.planned import CurrentLabels, PlanAnswers
from pro_lib.evaluation.labels.sampled import LabelSample, SampledVerdicts

__all__ = [
    "Answers",
    "CurrentLabels",
    "Label",
    "LabelPlan",
    "LabelSample",
    "PlanAnswers",
    "Request",
    "SampledVerdicts",
    "accuracy_at_coverage",
    "append_label",
    "append_undo",
    "as_correctness",
    "collect_answers",
    "consistency",
    "estimate",
    "is_label_sample",
    "judge_agreement",
    "label_table",
    "labeller_agreement",
    "merge_labels",
    "plan_path",
    "read_label_file",
]
