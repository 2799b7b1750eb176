"""Read, append, merge and compare labels: a file with one JSON object a line.

A line is a label with the fields of `Label`, or `{undo: true, labeller}`. The latter withdraws the
last label or change of this labeller that was not withdrawn. A label with `change: true` takes the
place of this labeller's earlier label of the answer.
"""

import itertools
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from pydantic import Field

from pro_lib.common.files import RunError, parse, reading, regular
from pro_lib.common.line_file import append_lines, read_lines
from pro_lib.common.validation import (
    Flag,
    Format,
    Name,
    PositiveInt,
    Probability,
    Text,
    WholeNumber,
)
from pro_lib.importing.label_tables import is_sampled
from pro_lib.metrics.correctness import normalized_words
from pro_lib.metrics.roc import wilson

KEY = ["dataset", "question_id", "answer"]
_MINUS = re.compile(r"(?<!\w)[-\u2212](?=[\d.])")


class Label(Format):
    """One label of one answer, as a line of the label file.

    Attributes:
        dataset: name of the dataset.
        question_id: the smallest of the questions with this text, when the plan was made.
        question: the text of the question as it was shown; empty if it is unknown, as in old files.
        references: a hash of the references that were shown (`references_digest`); empty if it is
            unknown, as in old files.
        text: the answer as it was shown.
        correct: True for right, False for wrong, None if the labeller cannot decide.
        labeller: name of the person.
        comment: what the person wrote about the answer.
        change: whether it replaces the person's earlier label of the same answer.
        adjudication: whether it decides between labellers who differ.
        time: when the label was given, ISO 8601; empty if unknown.
        repetition: whether the answer was shown a second time, to measure the labeller's
            consistency.
        phase: 1 or 2.
        probability: inclusion probability of the second phase; that of the first phase is n_first /
            n_answers.
        n_first: answers chosen in the first phase.
        n_second: answers chosen in the second phase; 0 in the first phase.
        n_answers: answers of the plan, those with the same text to the same question counted once.
        plan: digest of the answers of the plan.
    """

    dataset: Name
    question_id: Name
    question: Text = ""
    references: Text = ""
    text: Text
    correct: Flag | None
    labeller: Name
    comment: Text = ""
    change: Flag = False
    adjudication: Flag = False
    time: Text = ""
    repetition: Flag = False
    phase: PositiveInt = Field(le=2)
    probability: Probability
    n_first: WholeNumber
    n_second: WholeNumber
    n_answers: PositiveInt
    plan: Name


class _Undo(Format):
    """A line that withdraws the last label of a labeller."""

    undo: Literal[True]
    labeller: Name


def answer_key(text: str) -> str:
    """Return the key of an answer, its words in lower case: answers with one key share a label.

    Punctuation and spacing do not count. A minus sign before a number does.

    Example:
        >>> answer_key(" The  Beatles. "), answer_key("-5"), answer_key("5")
        ('the beatles', 'minus 5', '5')
    """
    return normalized_words(_MINUS.sub("minus ", text))


def append_label(path: str | Path, label: Label) -> None:
    """Append a label to a file, and write it to the disk before returning.

    A line that a killed process left unfinished is removed first, so that it cannot damage the new
    one.

    Args:
        path: the label file; it is created if it does not exist.
        label: the label. An empty `time` becomes the current time.

    Example:
        >>> label = planned.label(request, True, labeller="ada")  # doctest: +SKIP
        >>> append_label("labels.jsonl", label)  # doctest: +SKIP
    """
    values = label.model_dump()
    values["time"] = label.time or datetime.now(UTC).isoformat(timespec="seconds")
    append_lines(path, [values])


def append_undo(path: str | Path, labeller: str) -> None:
    """Withdraw the last label of a labeller, or the last change of one.

    The line of the label stays; a line that withdraws it is appended.
    """
    append_lines(path, [{"undo": True, "labeller": labeller}])


def read_label_file(path: str | Path) -> pd.DataFrame:
    """Return the labels of a file that were not withdrawn, in their order.

    An unfinished last line, which a killed process leaves, is ignored.

    Args:
        path: the label file.

    Returns:
        A row per label, with the columns of `Label`, `answer`, from `answer_key`, and `given`: the
        numbers in the order in which labels were given or changed.

    Raises:
        RunError: naming the file and the line, if the file does not exist or another line is not a
            label.

    Example:
        >>> read_label_file("labels.jsonl")  # doctest: +SKIP
    """
    if not Path(path).exists():
        raise RunError(f"{path} does not exist; give the path of a label file")
    given: list[Label] = []
    for number, values in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        if "undo" not in values:
            given.append(parse(Label, values, where))
            continue
        labeller = parse(_Undo, values, where).labeller
        own = [index for index, label in enumerate(given) if label.labeller == labeller]
        if own:
            del given[own[-1]]
    labels: list[Label] = []
    numbers: list[int] = []
    index_of: dict[tuple[object, ...], int] = {}
    for number, label in enumerate(given):
        answer = (label.dataset, label.question_id, answer_key(label.text), label.repetition)
        index = index_of.get((label.labeller, *answer))
        if label.change and index is not None:
            labels[index] = label
            numbers[index] = number
        else:
            # An answer is given anew if its question has changed since the first label.
            index_of[(label.labeller, *answer)] = len(labels)
            labels.append(label)
            numbers.append(number)
    return label_table(labels).assign(given=numbers)


def is_label_sample(path: str | Path) -> bool:
    """Return whether a file has labels of a sample, with inclusion probabilities.

    Args:
        path: a file of labels of any kind. Its first line decides.
    """
    with reading(path), open(regular(path), "rb") as file:
        line = file.readline()
    try:
        values = json.loads(line)
    except ValueError:
        return False
    return isinstance(values, dict) and is_sampled(values)


def label_table(labels: Iterable[Label]) -> pd.DataFrame:
    """Return a table of labels, a row each, with the columns of `Label` and `answer`."""
    rows = [label.model_dump() for label in labels]
    table = pd.DataFrame(rows, columns=list(Label.model_fields))
    table = table.astype(
        {"correct": object, "repetition": bool, "adjudication": bool, "change": bool}
    )
    table["answer"] = [answer_key(text) for text in table["text"]]
    return table


def merge_labels(labels: pd.DataFrame) -> pd.DataFrame:
    """Merge the labels of several labellers into one label per answer.

    The first label of each labeller counts; repetitions only serve `labeller_agreement`. Most
    labellers decide, and a tie is undecided. An adjudication decides alone.

    Args:
        labels: from `read_label_file`, of one plan (`LabelPlan.check`). All labellers of a plan use
            one file, because each file has its own second phase.

    Returns:
        A row per answer, with the columns of `labels` and `is_disputed`: whether labellers differ,
        without an adjudication. `correct` is None where nobody decides or as many say right as
        wrong.

    Example:
        >>> merged = merge_labels(read_label_file("labels.jsonl"))  # doctest: +SKIP
        >>> merged["is_disputed"].sum()  # doctest: +SKIP
        3
    """
    first = first_labels(labels)
    votes = first["correct"].map({True: 1, False: -1}).mask(first["adjudication"]).fillna(0)
    answer = [first[name] for name in KEY]
    balance = votes.groupby(answer).transform("sum")
    n_votes = votes.abs().groupby(answer).transform("sum")
    majority = np.sign(balance).map({1: True, -1: False, 0: None}).astype(object)
    merged = first.assign(correct=majority, is_disputed=n_votes > balance.abs())
    merged = merged.drop_duplicates(KEY).set_index(KEY)
    decisions = first[first["adjudication"]].drop_duplicates(KEY, keep="last").set_index(KEY)
    merged.loc[decisions.index, "correct"] = decisions["correct"]
    merged.loc[decisions.index, "is_disputed"] = False
    return merged.reset_index()[[*labels.columns, "is_disputed"]]


def first_labels(labels: pd.DataFrame) -> pd.DataFrame:
    """Return the first label of each labeller for each answer, without the repetitions."""
    shown_first = labels[~labels["repetition"]]
    return shown_first.drop_duplicates([*KEY, "labeller"])


def labeller_agreement(labels: pd.DataFrame) -> pd.DataFrame:
    """Compare the labels of each labeller who saw an answer twice, and those of each two labellers.

    Args:
        labels: from `read_label_file`. Adjudications do not count.

    Returns:
        A row per labeller, in which other_labeller is None, and a row per pair: labeller,
        other_labeller, n_both (answers with two decided labels), n_same, agreement with
        agreement_low and agreement_high (Wilson's 95 % interval; NaN without answers) and kappa,
        Cohen's κ of a pair; NaN if both gave all answers the same label. An answer whose first
        label was changed does not count for the labeller's own agreement.

    Example:
        >>> labeller_agreement(read_label_file("labels.jsonl"))  # doctest: +SKIP
    """
    labels = labels[~labels["adjudication"]]
    first = labels[~labels["repetition"]]
    again = labels[labels["repetition"]]
    labellers = sorted(labels["labeller"].unique())
    rows = [
        {"labeller": name, "other_labeller": None}
        | _comparison(_decisions(first[~first["change"]], name), _decisions(again, name))
        | {"kappa": np.nan}
        for name in labellers
    ]
    for name, other in itertools.combinations(labellers, 2):
        compared = _comparison(_decisions(first, name), _decisions(first, other))
        rows.append({"labeller": name, "other_labeller": other} | compared)
    nobody = pd.Series(dtype=bool)
    columns = ["labeller", "other_labeller", *_comparison(nobody, nobody)]
    others = pd.Series([row["other_labeller"] for row in rows], dtype=object)  # None stays None
    return pd.DataFrame(rows, columns=columns).assign(other_labeller=others)


def _decisions(labels: pd.DataFrame, labeller: str) -> pd.Series:
    """Return the decided labels of a labeller, by answer."""
    own = labels[labels["labeller"] == labeller].drop_duplicates(KEY)
    return own.dropna(subset="correct").set_index(KEY)["correct"].astype(bool)


def _comparison(one: pd.Series, other: pd.Series) -> dict[str, float]:
    """Return how often two series of labels agree on the answers of both, and Cohen's κ."""
    both = pd.DataFrame({"one": one, "other": other}).dropna().to_numpy(bool)
    n = len(both)
    n_same = int((both[:, 0] == both[:, 1]).sum())
    agreement = n_same / n if n else np.nan
    low, high = map(float, wilson(agreement, n))
    share, other_share = both.sum(axis=0) / max(n, 1)
    by_chance = share * other_share + (1 - share) * (1 - other_share)
    kappa = float((agreement - by_chance) / (1 - by_chance)) if by_chance < 1 else np.nan
    shares = {"agreement": agreement, "agreement_low": low, "agreement_high": high}
    return {"n_both": n, "n_same": n_same, **shares, "kappa": kappa}
