"""What only the logs of lm-evaluation-harness have: choices, metrics and filters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pro_lib.common.nested import as_items, inner_value, value_at
from pro_lib.common.validation import SentenceError
from pro_lib.importing.parsed_answers import Problem
from pro_lib.questions.question_files import references_beside

if TYPE_CHECKING:
    from pro_lib.importing.responses import Response

# The metrics of older versions, which do not name them.
_METRICS = ("acc", "exact_match", "em", "acc_norm")
_OTHER_FILTER = Problem("", words="that another filter judges again")


def answers_in(line: dict) -> list[dict]:
    """Return the texts of a line, or its choices."""
    requests = line.get("arguments")
    requests = list(requests.values()) if isinstance(requests, dict) else as_items(requests)
    groups = as_items(line["resps"])
    if len(groups) != len(requests):
        raise SentenceError(
            f"resps has {len(groups)} entries, but arguments has {len(requests)}; each request "
            "needs one"
        )
    answers = []
    for n, (request, replies) in enumerate(zip(requests, groups, strict=True)):
        for reply in as_items(replies):
            answer = {"text": reply, "finish_reason": "stop", "index": n}
            if isinstance(reply, list):
                text = inner_value(request, "arg_1" if isinstance(request, dict) else 1)
                if not isinstance(text, str):
                    raise SentenceError(f"arguments has a choice that is not a text: {text!r:.60}")
                answer |= {"text": text.strip(), "log_prob": _number(inner_value(reply, 0))}
            answers.append(answer)
    return answers


def _number(value: object) -> object:
    """Return a number that is written as text, and any other value as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def log_fields(line: dict) -> dict[str, Any]:
    """Return the question, the references, the filter and the metrics of a line.

    The target of a task with choices is the index of one, or several indexes.
    """
    metrics = as_items(line.get("metrics", _METRICS))
    answers = answers_in(line)
    choices = {str(answer["index"]): answer["text"] for answer in answers if "log_prob" in answer}
    targets = as_items(value_at(line, "doc.mc2_targets || target"))
    targets = [choices.get(str(value), value) for value in targets]
    return {
        "question": value_at(line, "doc.question || arguments.gen_args_0.arg_0"),
        "references": references_beside({"answer": targets}),
        "filter": line.get("filter"),
        "log_metrics": {name: line[name] for name in metrics if line.get(name) is not None},
    }


def reject_other_filters(responses: Iterable[Response]) -> None:
    """Reject the lines about another filter than the first of their question."""
    first_filters: dict[str, str] = {}
    for response in responses:
        if response.filter is not None and response.problem is None:
            name = str(response.filter)
            if first_filters.setdefault(str(response.question_id), name) != name:
                response.reject(_OTHER_FILTER)


def judged_rows(metric: str, rows: list[int], columns: Mapping[str, list]) -> list[int]:
    """Return those of the answers to a question that a metric judges.

    It judges the best of several choices, but none of several samples.
    """
    if len(rows) < 2:
        return rows
    log_probs = columns["log_prob"]
    if any(log_probs[row] is None for row in rows):
        return []
    by_length = metric.endswith("norm")
    sizes = {row: len(columns["text"][row]) if by_length else 1 for row in rows}
    return [max(rows, key=lambda row: log_probs[row] / max(sizes[row], 1))]
