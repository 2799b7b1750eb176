"""The summary of `pro score`: how well the scores separate right answers from wrong ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pro_lib.common.validation import printable

if TYPE_CHECKING:
    import pandas as pd

    from pro_lib.evaluation.answer_comparison import AnswerComparison
    from pro_lib.evaluation.scored_answers import Mistrust, ScoredAnswers

_AUROC_TITLE = (
    "AUROC, the probability that a wrong answer is scored as more uncertain than a right one "
    "(95 % interval):"
)
NOT_JUDGED = (
    "Accuracy and AUROC are unknown, because the right answers are not known. Give them with "
    "--questions FILE (questions with references) or --labels FILE (question_id, text, correct)."
)


def summary(scored: ScoredAnswers, *, method: str) -> list[str]:
    """Return the lines above the table: counts, accuracy, α, AUROCs and the most certain answers.

    Args:
        scored: the scored answers.
        method: the method that selects the most certain answers.
    """
    lines = [*count_lines(scored), *alpha_lines(scored)]
    evaluation = scored.evaluation
    if evaluation is None:
        return [*lines, NOT_JUDGED]
    if evaluation.one_class():
        return [*lines, f"AUROC is not defined: {printable(evaluation.one_class())}."]
    lines += ["", _AUROC_TITLE, *_auroc_lines(scored), *difference_lines(scored)]
    lines += reservations(scored)
    if method in scored.judged_scores():
        lines += ["", f"Accuracy if only the most certain questions by {method} are answered:"]
        lines += _certain_lines(scored.most_certain(method))
    return lines


def count_lines(scored: ScoredAnswers) -> list[str]:
    """Return the numbers of questions and right answers, and which questions are left out."""
    n = len(scored.rows)
    words = f"{n:,} questions"
    evaluation = scored.evaluation
    if evaluation is None or not len(evaluation.correct):
        return [f"{words}, {len(scored.run.answers):,} answers."]
    n_judged = len(evaluation.correct)
    n_right = int(evaluation.correct.sum())
    counts = f"{n_right:,} of {n_judged:,} judged answers"
    lines = [f"{words}, {evaluation.correct.mean():.1%} answered correctly ({counts})."]
    lines += [printable(evaluation.exclusions), evaluation.cautions()]
    return [line for line in lines if line]


def alpha_lines(scored: ScoredAnswers) -> list[str]:
    """Return where α comes from, and an α at which PRO would keep more answers."""
    if scored.run.is_texts:
        words = (
            "The answers have no log-probabilities. SC, Deg and SE need only texts; PRO needs "
            "probabilities."
        )
        return [words]
    has_alpha = not {"PRO", "S-PRO"}.isdisjoint(scored.methods)
    if not has_alpha and scored.alpha.reported is None:
        return []
    lines = [scored.alpha.reason]
    if scored.n_texts_alone:
        share = f"{scored.n_texts_alone:,} of {len(scored.rows):,} questions"
        lines.append(f"{share} have answers without log-probabilities, which PRO and NLL need.")
    if scored.rows["n_kept"].max() <= 1:
        lines.append("PRO keeps one answer of each question, so it equals NLL.")
    more = scored.alpha_that_keeps_two()
    if more is not None:
        alpha, n_questions = more
        counts = f"{n_questions:,} of {len(scored.rows):,} questions"
        lines.append(f"With --alpha {alpha:g}, PRO keeps two or more answers of {counts}.")
    return lines


def _auroc_lines(scored: ScoredAnswers) -> list[str]:
    from pro_lib import metrics

    width = max(len(name) for name in scored.methods)
    lines = []
    for row in scored.comparison.itertuples():
        words = metrics.auroc_in_words(row.auroc, row.low, row.high)
        lines.append(f"  {printable(row.method):{width}}  {words}")
    return lines


def difference_lines(scored: ScoredAnswers) -> list[str]:
    """Return the paired differences to the reference.

    If the reference is NLL, only the difference of PRO is returned.
    """
    from pro_lib import metrics

    table = scored.comparison
    reference = "NLL" if "NLL" in set(table["method"]) else str(table["method"].iloc[0])
    if reference == "NLL":
        table = table[table["method"].isin(["PRO", "NLL"])]
    words = metrics.differences_in_words(table, reference)
    if not words:
        return []
    return [f"Paired difference (95 % interval): {'; '.join(words)}."]


def reservations(scored: ScoredAnswers) -> list[str]:
    """Return sentences about the intervals: clusters of questions, and few answers of a kind."""
    from pro_lib.evaluation.scored_answers import FEW

    evaluation = scored.judged()
    sentences = []
    clusters = evaluation.answers.get("cluster")
    if clusters is not None:
        sentences.append(
            f"The intervals of AUROC are by cluster of questions ({clusters.nunique():,} clusters)."
        )
    if evaluation.n_rarer < FEW:
        rarer_kind = "right" if evaluation.correct.mean() < 0.5 else "wrong"
        count = evaluation.n_rarer
        answers_are = "1 answer is" if count == 1 else f"{count} answers are"
        sentences.append(f"Only {answers_are} {rarer_kind}, so the intervals are wide.")
    return sentences


def _certain_lines(table: pd.DataFrame) -> list[str]:
    lines = []
    for row in table.itertuples():
        interval = f"({row.low:.1%} to {row.high:.1%})"
        words = f"{row.accuracy:6.1%} right {interval}"
        lines.append(f"  {row.coverage:5.0%}  {row.n_answered:7,} questions  {words}")
    return lines


def mistrust_line(mistrust: Mistrust) -> str:
    """Return the rule of the marks in the table."""
    n = int(mistrust.is_mistrusted.sum())
    answers = "1 answer" if n == 1 else f"{n:,} answers"
    return f"{mistrust.sentence} This marks {answers} with !."


def summary_data(scored: ScoredAnswers, mistrust: Mistrust) -> dict[str, Any]:
    """Return the summary as data of JSON.

    Unknown values are None.
    """
    evaluation = scored.evaluation
    data: dict[str, Any] = {
        "n_questions": len(scored.rows),
        "n_judged": 0,
        "n_reported": 0,
        "accuracy": None,
        "alpha": {"value": scored.alpha.alpha, "reason": scored.alpha.reason},
        "auroc": None,
        "most_certain": None,
        "mistrust": {"method": mistrust.method, "sentence": mistrust.sentence},
    }
    if evaluation is None or not len(evaluation.correct):
        return data
    data["n_judged"] = len(evaluation.correct)
    data["n_reported"] = len(scored.judged().correct)
    data["accuracy"] = float(evaluation.correct.mean())
    data["exclusions"] = evaluation.exclusions
    data["cautions"] = evaluation.cautions()
    if evaluation.one_class():
        return data
    columns = ["method", "auroc", "low", "high", "difference", "difference_low", "difference_high"]
    data["auroc"] = scored.comparison[columns].to_dict("records")
    if mistrust.method in scored.judged_scores():
        data["most_certain"] = scored.most_certain(mistrust.method).to_dict("records")
    return data


def comparison_lines(comparison: AnswerComparison, names: tuple[str, str]) -> list[str]:
    """Return the lines that compare two files.

    Args:
        comparison: the result of `evaluation.compare_answers`.
        names: the names of the files.
    """
    first, second = map(printable, names)
    by = "Intervals are by cluster; the p-value is not." if comparison.is_clustered else ""
    difference = comparison.difference
    lines = [
        f"A: {first}",
        f"B: {second}",
        f"{comparison.n_questions:,} judged questions are in both.",
        f"Accuracy: A {comparison.accuracies[0]:.1%}, B {comparison.accuracies[1]:.1%}. B minus A "
        f"{_percent(difference.value)} points "
        f"[{_percent(difference.low)}, {_percent(difference.high)}], "
        f"p = {comparison.p_value:.2g} (McNemar's exact test). {comparison.only_first:,} questions "
        f"are right only in A and {comparison.only_second:,} only in B. {by}".rstrip(),
    ]
    if comparison.aurocs.empty:
        return [
            *lines,
            "AUROC cannot be compared, because the answers of one file are all right or all wrong.",
        ]
    lines.append("AUROC on these questions, with the 95 % interval of the paired difference:")
    width = max(len(name) for name in comparison.aurocs["method"])
    for row in comparison.aurocs.itertuples():
        ends = "without an interval: fewer than 5 right or wrong answers"
        if row.low == row.low:  # not NaN
            ends = f"[{_signed(row.low)}, {_signed(row.high)}]"
        words = f"A {row.first:.3f}, B {row.second:.3f}, B minus A {_signed(row.difference)} {ends}"
        lines.append(f"  {printable(row.method):{width}}  {words}")
    return lines


def comparison_data(comparison: AnswerComparison) -> dict[str, Any]:
    """Return a comparison as data of JSON."""
    difference = comparison.difference
    return {
        "n_questions": comparison.n_questions,
        "accuracy": list(comparison.accuracies),
        "only_first": comparison.only_first,
        "only_second": comparison.only_second,
        "accuracy_difference": [difference.value, difference.low, difference.high],
        "p_value": comparison.p_value,
        "auroc": comparison.aurocs.to_dict("records"),
        "by_cluster": comparison.is_clustered,
    }


def _signed(value: float) -> str:
    """Return a number with its sign, and zero without one."""
    text = f"{value:+z.3f}"
    return text.lstrip("+") if float(text) == 0 else text.replace("-", "−")


def _percent(share: float) -> str:
    """Return a difference of shares in percentage points, with its sign."""
    text = f"{100 * share:+z.1f}"
    return text.lstrip("+") if float(text) == 0 else text.replace("-", "−")
