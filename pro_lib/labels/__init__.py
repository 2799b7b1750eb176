"""Labels by hand: which answers to label, the label file, and estimates from some labels."""

from pro_lib.labels.estimates import LabelSample
from pro_lib.labels.file import (
    Label,
    append_label,
    append_undo,
    is_label_sample,
    label_table,
    labeller_agreement,
    merge_labels,
    read_label_file,
)
from pro_lib.labels.plan import LabelPlan, plan_path
from pro_lib.labels.planned_answers import PlannedAnswers, Request
from pro_lib.labels.sampled_verdicts import SampledVerdicts

__all__ = [
    "Label",
    "LabelPlan",
    "LabelSample",
    "PlannedAnswers",
    "Request",
    "SampledVerdicts",
    "append_label",
    "append_undo",
    "is_label_sample",
    "label_table",
    "labeller_agreement",
    "merge_labels",
    "plan_path",
    "read_label_file",
]
