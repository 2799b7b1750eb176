"""Make the example labels: 200 labels of facts-2m's answers, given by the alias table.

Run `pro generate facts-2m diverse_beam` first, then `python data/world_facts/label_answers.py`.
"""

from pathlib import Path

from pro_lib import Experiment
from pro_lib.common.catalog import EXAMPLE_LABELS
from pro_lib.labels import Label, append_label, label_table, plan_path
from pro_lib.labels.session import LabelSession

LABELLER = "alias table"
N_LABELS = 200
TIME = "2026-11-27T00:00:00+00:00"  # so that the file does not depend on when it is made


def main() -> None:
    """Write the label file and its plan to `data/examples`."""
    for path in (EXAMPLE_LABELS, plan_path(EXAMPLE_LABELS)):
        Path(path).unlink(missing_ok=True)
    run = Experiment(model="facts-2m", dataset="world-facts").single_run
    session = LabelSession.open(run, EXAMPLE_LABELS, n_planned=N_LABELS, labeller=LABELLER)
    planned = session.planned
    answers = planned.answers.evaluation.answers
    is_right = dict(zip(answers["question_id"], answers["alias_match"] > 0, strict=True))
    labels: list[Label] = []
    while True:
        current = planned.current_labels(label_table(labels))
        planned = planned.advance(current)
        request = planned.next_request(current, LABELLER)
        if request is None:
            break
        correct = bool(is_right[request.question_id])
        label = planned.label(request, correct, labeller=LABELLER)
        labels.append(label.model_copy(update={"time": TIME}))
    planned.plan.save(plan_path(EXAMPLE_LABELS))
    for label in labels:
        append_label(EXAMPLE_LABELS, label)


if __name__ == "__main__":
    main()
