"""What makes an answer right: the values of `--correctness` and of the parameter `correctness`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pro_lib import importing
from pro_lib.common.validation import SentenceError
from pro_lib.metrics.correctness import CORRECTNESS, AnswerRules, Rule

if TYPE_CHECKING:
    from pro_lib.labels.estimates import LabelSample

_LOG = "log:"  # begins the name of a metric in a log, as in log:exact_match


@dataclass(frozen=True)
class Correctness:
    """What makes an answer right.

    Attributes:
        rules: a rule, or labels of the answers.
        sample: labels of a sample of the answers, which replace the verdicts of the rule.
        log_metric: the metric of a log that says which answers are right.
    """

    rules: AnswerRules = field(default_factory=AnswerRules)
    sample: LabelSample | None = None
    log_metric: str | None = None


def read_correctness(
    value: str | Rule, *, accepts_sample: bool = True, fields: bool = False, **rules: Any
) -> Correctness:
    """Return what makes an answer right.

    Args:
        value: a rule or a function, a file of labels, or `log:NAME` for a metric of a log; for
            fields also rules such as `value_match,note=rouge_l`. "" is the usual rule.
        accepts_sample: whether labels of a sample, from `pro label`, may judge the answers.
        fields: whether the answers are fields of structured answers.
        rules: other fields of `AnswerRules`.

    Raises:
        SentenceError: if there is neither a rule nor a file of this name.
        RunError: if a file of labels is damaged, or has labels of a sample that are not accepted.
    """
    usual = "value_match" if fields else "rouge_l"
    value = value or usual
    if callable(value) or value in CORRECTNESS:
        return Correctness(AnswerRules(correctness=value, **rules))
    if value.startswith(_LOG):
        return Correctness(AnswerRules(**rules), log_metric=value.removeprefix(_LOG))
    by_field = {"": usual}
    for part in value.split(","):
        name, _, rule = part.rpartition("=")
        by_field[name] = rule
    if fields and set(by_field.values()) <= set(CORRECTNESS):
        return Correctness(AnswerRules(correctness=by_field.pop(""), by_field=by_field, **rules))
    if not os.path.isfile(value):
        raise SentenceError(
            f"correctness={value!r} is unknown. Choose {', '.join(CORRECTNESS)}, a file of "
            "labels, or log:NAME for a verdict of a log."
        )
    from pro_lib.labels.estimates import LabelSample
    from pro_lib.labels.file import is_label_sample

    if accepts_sample and is_label_sample(value):
        return Correctness(AnswerRules(**rules), LabelSample.read(value))
    name = os.path.basename(value)
    labels = importing.read_labels(value)
    return Correctness(AnswerRules(labels=labels, labels_name=name, **rules))
