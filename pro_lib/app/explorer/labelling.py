"""Label the answers of a run by hand: what the Label tab shows, and what happens on each key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock

from pro_lib.common.files import RunError
from pro_lib.evaluation.evaluate import evaluate
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.evaluation.labels import (
    CurrentLabels,
    LabelPlan,
    append_label,
    append_undo,
    consistency,
    estimate,
    label_table,
    labeller_agreement,
    merge_labels,
    plan_path,
    read_label_file,
)
from pro_lib.evaluation.labels.intervals import FEWEST_LABELS
from pro_lib.evaluation.labels.label_file import KEY
from pro_lib.runs.question_table import plain
from pro_lib.runs.run import Run
from pro_lib.scoring.similarity import lexical

DEFAULT_PLANNED = 100
DEFAULT_LABELLER = "me"
DEFAULT_SPLIT = "test"
_HISTORY_STEP = 20  # labels


@dataclass
class LabelSession:
    """The labelling of one run by one person.

    Every label is written to the file before the next answer is shown, and every reply is computed
    from the file. A session therefore continues where an earlier one ended.

    Attributes:
        questions: the questions of the run, by question_id.
        plan: which answers are shown, in which order.
        path: the label file.
        labeller: name of the person.
    """

    questions: pd.DataFrame
    plan: LabelPlan
    path: Path
    labeller: str

    def __post_init__(self) -> None:
        self._lock = Lock()
        # The estimates after each of the first labels, by what these labels are.
        self._earlier_estimates: dict[tuple[Any, ...], dict[str, Any]] = {}

    @classmethod
    def open(
        cls,
        run: Run,
        path: str | Path,
        *,
        n_planned: int | None = None,
        labeller: str = DEFAULT_LABELLER,
        seed: int = 0,
        split: str = DEFAULT_SPLIT,
    ) -> LabelSession:
        """Start to label the answers of a run, or continue.

        Args:
            run: the run. Without references, no automatic judge is compared with the labels.
            path: the label file. `plan_path` is the file of its plan.
            n_planned: how many different answers to label; None for the stored plan, or 100. It
                cannot change after the first label.
            labeller: name of the person.
            seed: of the choice of answers.
            split: only questions of this split are labelled, if the run has several splits.

        Returns:
            The session.

        Raises:
            RunError: if an answer has no text, the plan or the label file belongs to other
                answers, or the plan of a label file is missing.
        """
        run = labelled_part(run, split)
        # The order of the questions must not matter: notebooks show them in random order.
        run = run.select(question_ids=sorted(run.questions["question_id"]))
        evaluations = [evaluate(_judged(run), similarities={"lexical": lexical}).judged]
        path = Path(path)
        labels = _read_labels(path)
        plan_file = plan_path(path)
        if plan_file.exists():
            plan = LabelPlan.read(plan_file, evaluations)
            n_new = plan.n_labels
            if n_planned is not None:
                n_new = min(n_planned, len(plan.planned.table))
            if labels.empty and (n_new != plan.n_labels or plan.notes):
                plan = LabelPlan.create(evaluations, n_labels=n_new, seed=seed)
                plan.save(plan_file)
            elif n_new != plan.n_labels:
                raise RunError(
                    f"{plan_file} plans {plan.n_labels} labels, not {n_planned}; after the "
                    "first label the number cannot change, so use another label file"
                )
        elif len(labels):
            raise RunError(
                f"{path} has labels, but its plan {plan_file} is missing; "
                "restore the plan or use another label file"
            )
        else:
            n_new = DEFAULT_PLANNED if n_planned is None else n_planned
            plan = LabelPlan.create(evaluations, n_labels=n_new, seed=seed)
            plan.save(plan_file)
        questions = run.questions.set_index(run.questions["question_id"].astype(str))
        plan.planned.check(labels)
        return cls(questions, plan, path, labeller)

    @property
    def evaluations(self) -> list[Evaluation]:
        """The evaluation of the planned answers that the run has."""
        return [setting.evaluation for setting in self.plan.answers.settings]

    @property
    def notes(self) -> list[str]:
        """Sentences about what has changed since the plan was made and the labels were given."""
        return [*self.plan.notes, *self._current_labels().notes]

    def reply(
        self,
        action: str,
        n_given: int = 0,
        correct: bool | None = None,
        labels_file: str | None = None,
    ) -> dict[str, Any]:
        """Do what the page asks, and return what it shows next.

        Args:
            action: `open` shows the next answer, `give` labels the shown answer, `undo` withdraws
                the last label.
            n_given: the number of labels that the page knows. If the file has another number, a
                message was sent twice or from an old page, and only the state is returned.
            correct: for `give`: True for right, False for wrong, None for "cannot decide".
            labels_file: the label file that the page knows; None before the first reply. If it is
                another file, because another run is shown, only the state is returned.

        Returns:
            The state of the page, as JSON data:

            - `n_given`, `n_requests`: labels of this person, and those of the whole plan.
            - `labels_file`: the path of the label file. `notes`: as in `notes`.
            - `answer`: question, references and text; None at the end.
            - `estimates`: the table of `estimate`. `history`: the intervals after fewer labels.
            - at the end, `labellers` (the agreement of several labellers), `consistency` and
              `disagreements`. A labeller must not see them before.
        """
        if action not in ("open", "give", "undo"):
            raise RunError(f"Unknown action {action!r}. Choose open, give or undo.")
        if correct not in (True, False, None):
            raise RunError(f"correct must be true, false or null; got {correct!r}")
        # Sessions of other processes may write the same files.
        with self._lock, FileLock(self.path.with_name(f".{self.path.name}.lock")):
            is_same_file = labels_file in (None, str(self.path))
            is_current = is_same_file and n_given == len(self._labels_of_labeller())
            if action == "undo" and is_current and self._can_undo():
                append_undo(self.path, self.labeller)
            if action == "give" and is_current:
                self._append(correct)
            return self._state()

    def _append(self, correct: bool | None) -> None:
        self._advance_plan()
        request = self.plan.next_request(_read_labels(self.path), self.labeller)
        if request is not None:
            label = self.plan.label(request, correct, labeller=self.labeller)
            append_label(self.path, label)

    def _advance_plan(self) -> None:
        """Draw the second phase as soon as the first is complete, and save it.

        It is drawn once: a second phase that another session has saved is read.
        """
        if self.plan.is_complete_plan:
            return
        self.plan = self.plan.reread(plan_path(self.path))
        plan = self.plan.advance(_read_labels(self.path))
        if plan is not self.plan:
            plan.save(plan_path(self.path))
            self.plan = plan

    def _current_labels(self) -> CurrentLabels:
        """Return the labels of the file that count for the answers of today."""
        return self.plan.current_labels(_read_labels(self.path))

    def _labels_of_labeller(self) -> pd.DataFrame:
        labels = self._current_labels().labels
        return labels[labels["labeller"] == self.labeller]

    def _can_undo(self) -> bool:
        """Return whether the last label of the labeller counts, so that the page showed it."""
        labels = _read_labels(self.path)
        own_rows = labels.index[labels["labeller"] == self.labeller]
        return own_rows[-1:].isin(self._labels_of_labeller().index).any()

    def _state(self) -> dict[str, Any]:
        self._advance_plan()
        labels = self._current_labels().labels
        request = self.plan.next_request(labels, self.labeller)
        n_given = np.count_nonzero(labels["labeller"] == self.labeller)
        state: dict[str, Any] = {
            "kind": "label",
            "n_given": n_given,
            "n_requests": self.plan.n_requests,
            "labels_file": str(self.path),
            "notes": self.notes,
            "answer": None,
            # A labeller must not be influenced by the labels of others.
            **self._estimates(labels if n_given >= FEWEST_LABELS else labels.head(0)),
            "labellers": [],
        }
        if request is None:
            if len(labels["labeller"].unique()) > 1:
                state["labellers"] = labeller_agreement(labels).to_dict("records")
            shares = consistency(labels).set_index("labeller")
            state["consistency"] = shares.loc[self.labeller].to_dict() if n_given else None
            state["disagreements"] = self._disagreements(labels)
            return _without_nan(state)
        question = self.questions.loc[request.question_id]
        references = question["references"]
        state["answer"] = {
            "question": _question_text(question, request.question_id),
            "references": [] if references is None else list(references),
            "text": request.text,
        }
        return _without_nan(state)

    def _estimates(self, labels: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
        """Return the estimates from all labels, and those of NLL and PRO from fewer labels.

        Both are empty as long as there are too few labels for any.
        """
        if len(labels) < FEWEST_LABELS:
            return {"estimates": [], "history": []}
        table = self._estimate(labels)
        columns = ["method", "similarity", "shown", "auroc_by_judge", "n_labels", "n_effective"]
        for name in ("auroc", "auroc_minus_nll"):
            columns += [name, f"{name}_low", f"{name}_high"]
        history = []
        for n_labels in range(FEWEST_LABELS, len(labels), _HISTORY_STEP):
            history.append(self._earlier_estimate(labels.head(n_labels)))
        history.append(_history_row(table))
        return {"estimates": table[columns].to_dict("records"), "history": history}

    def _estimate(self, labels: pd.DataFrame) -> pd.DataFrame:
        return estimate(labels, self.evaluations, plan=self.plan.existing)

    def _earlier_estimate(self, labels: pd.DataFrame) -> dict[str, Any]:
        """Return the row of the history for some labels, which is computed once."""
        columns = ["question_id", "answer", "correct", "labeller", "repetition"]
        key = tuple(map(tuple, labels[columns].to_numpy().tolist()))
        if key not in self._earlier_estimates:
            self._earlier_estimates[key] = _history_row(self._estimate(labels))
        return self._earlier_estimates[key]

    def _disagreements(self, labels: pd.DataFrame) -> list[dict[str, Any]]:
        """Return the answers that labellers decided differently, with the label of each."""
        merged = merge_labels(labels)
        first = labels[~labels["repetition"].astype(bool)]
        rows = []
        for label in merged[merged["is_disputed"]].to_dict("records"):
            is_same = (first[KEY] == [label[name] for name in KEY]).all(axis=1)
            decided = first[is_same].dropna(subset="correct").drop_duplicates("labeller")
            question_id = label["question_id"]
            question = label["question"] or _question_text(
                self.questions.loc[question_id], question_id
            )
            rows.append(
                {
                    "question": question,
                    "text": label["text"],
                    "right": decided["labeller"][decided["correct"].eq(True)].tolist(),
                    "wrong": decided["labeller"][decided["correct"].eq(False)].tolist(),
                }
            )
        return rows


def labelled_part(run: Run, split: str) -> Run:
    """Return the questions of a split, or the run if all its questions are of one split or none.

    AUROCs are reported for one split. Labels of other questions would not serve them.
    """
    splits = run.questions["split"].dropna().unique()
    return run.select(split=split) if len(splits) > 1 else run


def _judged(run: Run) -> Run:
    """Return the run, or one with a placeholder in place of verdicts if nothing can give them.

    All answers of the placeholder are wrong, so that no AUROC by a judge exists.
    """
    has_verdicts = run.answers.filter(["correct", "rouge_l"]).notna().any(axis=None)
    if has_verdicts or run.questions["references"].notna().any():
        return run
    return replace(run, answers=run.answers.assign(correct=False))


def _history_row(table: pd.DataFrame) -> dict[str, Any]:
    """Return AUROC of NLL and the difference of PRO to it from a table of estimates."""
    row: dict[str, Any] = {"n_labels": int(table["n_labels"].iloc[0])}
    for method, name in (("NLL", "auroc"), ("PRO", "auroc_minus_nll")):
        rows = table[table["method"] == method]
        for column in (name, f"{name}_low", f"{name}_high"):
            row[column] = rows[column].iloc[0] if len(rows) else None
    return row


def _question_text(question: pd.Series, question_id: str) -> str:
    return str(plain(question.get("question")) or f"question {question_id}")


def _read_labels(path: Path) -> pd.DataFrame:
    return read_label_file(path) if path.exists() else label_table([])


def _without_nan(value: Any) -> Any:
    """Return JSON data with None in place of NaN."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return plain(value)
