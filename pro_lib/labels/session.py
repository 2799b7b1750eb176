"""Label the answers of a run by hand: what the page shows, and what happens on each key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock

from pro_lib.common.files import RunError, reading, write_whole
from pro_lib.common.line_file import read_lines
from pro_lib.common.nested import json_value
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.labels.answer_units import evaluate_answers, prepare_answers, with_placeholders
from pro_lib.labels.estimates import BY_JUDGE, estimate_words, estimated_aurocs
from pro_lib.labels.file import (
    append_label,
    append_undo,
    first_labels,
    label_table,
    labeller_agreement,
    merge_labels,
    read_label_file,
)
from pro_lib.labels.plan import LabelPlan, plan_path
from pro_lib.labels.planned_answers import CurrentLabels, PlannedAnswers, Request
from pro_lib.labels.sampled_verdicts import FEWEST_LABELS
from pro_lib.runs.run import Run

DEFAULT_PLANNED = 100
ADJUDICATOR = "adjudicator"
_HISTORY_STEP = 20  # labels
_LONGEST_PAUSE = 300  # seconds between two labels; a longer one is a break
_N_RECENT = 30  # labels that tell how long one takes


@dataclass
class LabelSession:
    """The labelling of one run by one person.

    Every label is written to the file before the next answer is shown, and every reply is computed
    from the file. A session therefore continues where an earlier one ended.

    Attributes:
        planned: the answers of the plan.
        path: the label file.
        labeller: name of the person.
        is_adjudication: whether only answers are shown on which labellers differ.
        alphas: α of the scores that need one.
        alpha_sentence: where α of PRO comes from.
    """

    planned: PlannedAnswers
    path: Path
    labeller: str
    is_adjudication: bool
    alphas: Mapping[str, float]
    alpha_sentence: str
    _plan_state: tuple[int, int] | None = None

    @classmethod
    def open(
        cls,
        run: Run,
        path: str | Path,
        *,
        n_planned: int | None = None,
        labeller: str = "me",
        split: str = "test",
        is_adjudication: bool = False,
    ) -> LabelSession:
        """Start to label the answers of a run, or continue.

        Args:
            run: the run. Without references, no automatic judge is compared with the labels.
            path: the label file. `plan_path` is the file of its plan.
            n_planned: how many different answers to label; None for the stored plan, or 100. It
                cannot change after the first label.
            labeller: name of the person.
            split: only questions of this split are labelled, if the run has several splits. Those
                of split `validation` choose α of PRO.
            is_adjudication: whether only answers are shown on which labellers differ. The decisions
                are those of a labeller of their own.

        Returns:
            The session.

        Raises:
            RunError: if an answer has no text, the plan or the label file belongs to other
                answers, the plan of a label file is missing, or an adjudicator has labels.
        """
        labelled = labelled_part(run, split)
        evaluation = evaluate_answers(with_placeholders(labelled, labelled))
        evaluation, alphas, sentence = prepare_answers(evaluation, run)
        path = Path(path)
        with _lock_of(path):
            labels = _read_labels(path)
            planned = _open_plan(path, labels, evaluation, n_planned)
        own = labels[labels["labeller"] == labeller]
        if (own["adjudication"] != is_adjudication).any():
            raise RunError(
                f"{labeller!r} has other labels in {path}; labels and adjudications need different "
                "names (--labeller)"
            )
        return cls(planned, path, labeller, is_adjudication, alphas, sentence)

    def reply(
        self,
        action: str,
        n_given: int = 0,
        correct: bool | None = None,
        labels_file: str | None = None,
        text: str = "",
        place: int = 0,
        n_lines: int | None = None,
    ) -> dict[str, Any]:
        """Do what a message of the page asks, and return what the page shows next.

        Args:
            action: `open` shows the next answer, `give` labels the shown answer, `undo` withdraws
                the last label or change, `change` gives an earlier label anew, `guideline` stores
                the guideline, `labels` lists the given labels, `estimates` and `history` estimate.
            n_given: the number of labels that the page knows. If the file has another number, a
                message was sent twice or from an old page, and only the state is returned.
            n_lines: the same for the lines of this person in the file, of which a change or an undo
                adds one; None to compare only the labels.
            correct: for `give` and `change`: True for right, False for wrong, None for "cannot
                decide".
            labels_file: the label file that the page knows; None before the first reply. If it is
                another file, because another run is shown, only the state is returned.
            text: the comment of a label, or the guideline.
            place: for `change`: the place of the label among those of this person.

        Returns:
            JSON data for the page: `labels`, `estimates` or `history`, or the state. The types of
            `label_tab.js` explain their fields. A labeller must not see `agreement`,
            `consistency` and `disagreements` before the last label.
        """
        changes: dict[str, Callable[[CurrentLabels], None]] = {
            "give": lambda current: self._give(current, correct, text),
            "undo": self._undo,
            "change": lambda current: self._change(current, place, correct, text),
            "guideline": lambda _: write_whole(text.encode("utf-8"), guideline_path(self.path)),
        }
        views = {"labels": self._list, "estimates": self._estimates, "history": self._history}
        actions = ("open", *changes, *views)
        if action not in actions:
            raise RunError(f"Unknown action {action!r}. Choose {', '.join(actions)}.")
        with _lock_of(self.path):
            current = self._read_and_advance()
            is_same_file = labels_file in (None, str(self.path))
            is_same_number = n_lines is None or n_lines == self._n_lines()
            is_current = is_same_file and is_same_number and n_given == len(self._own(current))
            if is_current and action in changes:
                changes[action](current)
                current = self._read_and_advance()
        # Other keys do not wait for estimates, because these are computed without the lock.
        data = {action: views[action](current)} if action in views else self._state(current)
        reply: dict[str, Any] = json_value({"kind": "label", **data})
        return reply

    def _give(self, current: CurrentLabels, correct: bool | None, comment: str) -> None:
        request = self._next_request(current)
        if request is not None:
            self._append(request, correct, comment=comment)

    def _change(
        self, current: CurrentLabels, place: int, correct: bool | None, comment: str
    ) -> None:
        row = self._own(current).iloc[place]
        request = self.planned.request(row["position"], bool(row["repetition"]))
        self._append(request, correct, comment=comment, change=True)

    def _append(self, request: Request, correct: bool | None, **values: Any) -> None:
        values |= {"labeller": self.labeller, "adjudication": self.is_adjudication}
        append_label(self.path, self.planned.label(request, correct, **values))

    def _undo(self, current: CurrentLabels) -> None:
        """Withdraw the last label of this person, unless the page did not show it."""
        labels = _read_labels(self.path)
        last = _last_given(labels[labels["labeller"] == self.labeller])
        if last.index.isin(self._own(current).index).any():
            append_undo(self.path, self.labeller)

    def _read_and_advance(self) -> CurrentLabels:
        """Return the labels of the file that count, after drawing the second phase if it is time.

        It is drawn once: a second phase that another session has saved is read.
        """
        plan_file = plan_path(self.path)
        plan = self.planned.plan
        state = plan_file.stat()
        plan_state = (state.st_mtime_ns, state.st_ino)
        # Reading the plan of many answers takes longer than a key may take.
        if not plan.is_drawn and plan_state != self._plan_state:
            saved = LabelPlan.read(plan_file)
            if saved.model_copy(update={"second": None, "probabilities": None}) != plan:
                raise RunError(
                    f"{plan_file} was replaced by another plan; open the label file again"
                )
            self._plan_state = plan_state
            if saved.is_drawn:
                self.planned = self.planned.with_plan(saved)
        current = self.planned.current_labels(_read_labels(self.path), is_whole=True)
        advanced = self.planned.advance(current, self.alphas)
        if advanced is not self.planned:
            advanced.plan.save(plan_file)
            self.planned = advanced
        return current

    def _n_lines(self) -> int:
        return sum(values.get("labeller") == self.labeller for values in read_lines(self.path))

    def _own(self, current: CurrentLabels) -> pd.DataFrame:
        return current.existing[current.existing["labeller"] == self.labeller]

    def _next_request(self, current: CurrentLabels) -> Request | None:
        if not self.is_adjudication:
            return self.planned.next_request(current, self.labeller)
        disputed = self._disputed(current)
        return self.planned.request(disputed[0], False) if disputed else None

    def _disputed(self, current: CurrentLabels) -> list[int]:
        """Return the positions on which labellers differ and nobody has decided."""
        merged = merge_labels(current.existing)
        return list(merged["position"][merged["is_disputed"]])

    def _state(self, current: CurrentLabels) -> dict[str, Any]:
        own = self._own(current)
        request = self._next_request(current)
        n_left = self.planned.n_requests - len(own)
        if self.is_adjudication:
            n_left = len(self._disputed(current))
        state: dict[str, Any] = {
            "n_given": len(own),
            "n_lines": self._n_lines(),
            "n_left": n_left,
            "n_requests": len(own) + n_left,
            "minutes": n_left * _seconds_per_label(own) / 60,
            "labels_file": str(self.path),
            "is_adjudication": self.is_adjudication,
            "notes": [*self.planned.notes, *current.notes],
            "guideline": _read_guideline(self.path),
            "last": None,
            "answer": None,
            "agreement": [],
        }
        if len(own):
            last = _last_given(own)[["text", "correct", "comment"]].iloc[0]
            state["last"] = {**last, "text": _visible(last["text"])}
        if request is not None:
            state["answer"] = self._shown(request.position)
            if self.is_adjudication:
                state["answer"]["votes"] = _votes(current, request.position)
            return state
        rows = labeller_agreement(current.labels)
        is_pair = rows["other_labeller"].notna()
        state["agreement"] = rows[is_pair].to_dict("records")
        repeated = rows[~is_pair & (rows["labeller"] == self.labeller)]
        state["consistency"] = next(iter(repeated.to_dict("records")), None)
        state["disagreements"] = [
            self._shown(position) | {"votes": _votes(current, position)}
            for position in self._disputed(current)
        ]
        return state

    def _shown(self, position: int) -> dict[str, Any]:
        """Return the question, the references and the answer at a position of the plan."""
        request = self.planned.request(position, False)
        return {
            "question": request.question or f"question {request.question_id}",
            "references": list(request.references or []),
            "text": _visible(request.text),
        }

    def _list(self, current: CurrentLabels) -> list[dict[str, Any]]:
        """Return the labels of this person, without the repetitions, which must stay unnoticed."""
        own = self._own(current).reset_index(drop=True)
        rows = own[~own["repetition"]].reset_index(names="place")
        given = rows[["place", "correct", "comment"]].to_dict("records")
        shown = [self._shown(position) for position in rows["position"]]
        return [answer | label for answer, label in zip(shown, given, strict=True)]

    def _estimates(self, current: CurrentLabels) -> dict[str, Any]:
        """Return the estimates as words, or why they are not shown.

        A labeller must not be influenced by the labels of others, and the values by the judge come
        after the last label.
        """
        is_end = self._next_request(current) is None
        data = {"rows": [], "alpha": self.alpha_sentence}
        if self.is_adjudication and not is_end:
            return data | {"sentence": "The estimates are shown after the last decision."}
        if len(self._own(current)) < FEWEST_LABELS and not is_end:
            return data | {"sentence": f"Not shown before {FEWEST_LABELS} labels of yours."}
        words, sentences = self._words(current.labels)
        if not is_end:
            words = words.drop(columns=BY_JUDGE, errors="ignore")
        return data | {"rows": words.to_dict("records"), "sentence": " ".join(sentences)}

    def _history(self, current: CurrentLabels) -> list[dict[str, str]]:
        """Return estimates from the first labels of this person alone, as words."""
        own = self._own(current)
        first = own[~own["repetition"] & ~own["adjudication"]]
        rows = []
        for n_labels in range(FEWEST_LABELS, len(first), _HISTORY_STEP):
            words = self._words(first.head(n_labels))[0].set_index("method")
            row = {"your labels": str(n_labels)}
            row["difference of PRO to NLL"] = words["difference to NLL"].get("PRO", "–")
            row["AUROC of NLL"] = words["AUROC by labels"].get("NLL", "–")
            rows.append(row)
        return rows

    def _words(self, labels: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
        table = estimated_aurocs(self.planned, labels, alphas=self.alphas)
        return estimate_words(table, labels["labeller"])


def _open_plan(
    path: Path, labels: pd.DataFrame, evaluation: Evaluation, n_planned: int | None
) -> PlannedAnswers:
    """Return the plan of a label file; it is made, or made anew, before the first label."""
    plan_file = plan_path(path)
    if plan_file.exists() or len(labels):
        planned = PlannedAnswers.read(plan_file, evaluation)
        plan = planned.plan
        n_planned = plan.n_labels if n_planned is None else n_planned
        is_planned = min(n_planned, len(plan.answers)) == plan.n_labels
        if is_planned and (len(labels) or not planned.notes):
            plan.check(labels)
            return planned
        if len(labels):
            raise RunError(
                f"{plan_file} plans {plan.n_labels} labels, not {n_planned}; after the "
                "first label the number cannot change, so use another label file"
            )
    plan = LabelPlan.create(
        evaluation, n_labels=DEFAULT_PLANNED if n_planned is None else n_planned
    )
    plan.save(plan_file)
    return PlannedAnswers(plan, evaluation)


def labelled_part(run: Run, split: str) -> Run:
    """Return the questions of a split, or the run if all its questions are of one split or none.

    AUROCs are reported for one split. Labels of other questions would not serve them.
    """
    splits = set(run.questions["split"].dropna())
    return run.select(split=split) if len(splits) > 1 else run


def guideline_path(path: str | Path) -> Path:
    """Return the file of the guideline of a label file, which all labellers see."""
    plan_file = plan_path(path)
    return plan_file.with_name(plan_file.name.removesuffix(".plan.json") + ".guideline.txt")


def _read_guideline(path: Path) -> str:
    file = guideline_path(path)
    with reading(file):
        return file.read_text(encoding="utf-8") if file.exists() else ""


def _seconds_per_label(own: pd.DataFrame) -> float:
    """Return the median time between two labels of the last ones; NaN if it is unknown."""
    times = pd.to_datetime(own["time"], errors="coerce", utc=True, format="ISO8601")
    seconds = times.diff().dt.total_seconds()
    return float(seconds[seconds.between(0, _LONGEST_PAUSE)].tail(_N_RECENT).median())


def _visible(text: str) -> str:
    return text if text.strip() else "(empty answer)"


def _votes(current: CurrentLabels, position: int) -> list[dict[str, Any]]:
    """Return what each labeller said about an answer of the plan."""
    labels = current.labels[current.labels["position"] == position]
    labels = first_labels(labels[~labels["adjudication"]])
    votes: list[dict[str, Any]] = labels[["labeller", "correct", "comment"]].to_dict("records")
    return votes


def _lock_of(path: Path) -> FileLock:
    """Return the lock of a label file and its plan, which other processes may write too."""
    return FileLock(path.with_name(f".{path.name}.lock"))


def _read_labels(path: Path) -> pd.DataFrame:
    return read_label_file(path) if path.exists() else label_table([]).assign(given=[])


def _last_given(labels: pd.DataFrame) -> pd.DataFrame:
    """Return the row of the label that was given or changed last, which undo withdraws."""
    return labels.sort_values("given").tail(1)
