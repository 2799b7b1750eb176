"""The summary of `pro score`: how well the scores separate right answers from wrong ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pro_lib.common.reasons import NO_REFERENCE, reasons_in_words
from pro_lib.common.validation import printable
from pro_lib.evaluation.methods import short_name
from pro_lib.metrics.differences import signed

if TYPE_CHECKING:
    from pro_lib.app.answer_comparison import AnswerComparison
    from pro_lib.app.mistrust import Mistrust
    from pro_lib.app.sampled_evaluation import SampledEvaluation
    from pro_lib.app.scored_answers import ScoredAnswers

_FEWEST_WITHOUT_CAUTION = 20  # right answers, and wrong ones
_AUROC_TITLE = (
    "AUROC, the probability that a wrong answer is scored as more uncertain than a right one "
    "(95 % interval):"
)
NOT_JUDGED = (
    "Accuracy and AUROC are unknown, because the right answers are not known. Give them with "
    "--questions FILE (questions with references) or --labels FILE (question_id, text, correct)."
)


def summary(scored: ScoredAnswers, *, method: str) -> list[str]:
    """Return the lines above the table: verdict, counts, α, AUROCs and the most certain answers.

    Args:
        scored: the scored answers.
        method: the method that selects the most certain answers.
    """
    from pro_lib import metrics

    lines = head_lines(scored, method)
    if not scored.has_both_classes:
        return lines
    if scored.sampled is not None:
        lines += _label_lines(scored.sampled)
    else:
        width = max(len(name) for name in scored.methods)
        lines += ["", _AUROC_TITLE]
        for row in scored.comparison.itertuples():
            auroc = metrics.auroc_in_words(row.auroc, row.auroc_low, row.auroc_high)
            lines.append(f"  {row.method:{width}}  {auroc}")
        lines += [*difference_lines(scored), *reservations(scored)]
    if method in scored.reported_scores:
        lines += ["", f"Accuracy of the most certain questions by {method}:"]
        for row in scored.most_certain(method).itertuples():
            interval = f"({row.accuracy_low:.1%} to {row.accuracy_high:.1%})"
            accuracy = f"{row.accuracy:6.1%} right {interval}"
            if row.accuracy != row.accuracy:  # NaN
                accuracy = "not shown (too few labels)"
            lines.append(f"  {row.coverage:5.0%}  {row.n_answered:7,} questions  {accuracy}")
    return lines


def _label_lines(sampled: SampledEvaluation) -> list[str]:
    """Return the estimates from labels of a sample, in the words of the page of `pro label`."""
    from pro_lib.labels.estimates import SHOWN, estimate_words, estimated_aurocs
    from pro_lib.labels.file import labeller_agreement

    sample = sampled.sample
    planned = sample.planned_answers(sampled.evaluation)
    estimates = estimated_aurocs(planned, sample.labels, alphas=sampled.alphas)
    table, sentences = estimate_words(estimates, sample.labels["labeller"])
    rows = table.map(printable).to_string(index=False).split("\n")
    lines = ["", "Estimates from the labels:", *rows, *sentences]
    judges = sample.judge_agreement(sampled.evaluation)
    for row in judges.itertuples():
        if row.judge == "rouge_l" and row.shown == SHOWN:
            interval = f"({row.agreement_low:.1%} to {row.agreement_high:.1%})"
            share = f"{row.agreement:.1%} {interval} of the answers"
            lines.append(f"ROUGE-L > 0.3 and the labels agree on an estimated {share}.")
    labellers = labeller_agreement(planned.current_labels(sample.labels).labels)
    for row in labellers[labellers["n_both"] > 0].itertuples():
        same = f"the same for {row.n_same:,} of {row.n_both:,} answers"
        if row.other_labeller is None:
            text = f"The label of {row.labeller} was {same} that were shown twice."
        else:
            pair = f"The labels of {row.labeller} and {row.other_labeller}"
            kappa = "unknown" if row.kappa != row.kappa else f"{row.kappa:.2f}"  # NaN
            text = f"{pair} are {same} (Cohen's κ {kappa})."
        lines.append(text)
    return lines


def head_lines(scored: ScoredAnswers, method: str) -> list[str]:
    """Return the verdict on a method, the counts of questions and answers, and α."""
    lines = [scored.separation_sentence(method), *_count_lines(scored), *_alpha_lines(scored)]
    if not scored.n_judged:
        lines.append(NOT_JUDGED)
    elif scored.reported.one_class():
        lines.append(f"AUROC is not defined: {scored.reported.one_class()}.")
    return [line for line in lines if line]


def _count_lines(scored: ScoredAnswers) -> list[str]:
    """Return the numbers of questions and right answers, and what is not used, and why."""
    judged = scored.judged
    questions = f"{len(scored.questions):,} questions"
    if not scored.n_judged:
        without_answer = {
            reason: count for reason, count in judged.reasons.items() if reason != NO_REFERENCE
        }
        counts = reasons_in_words(without_answer)
        unused = f"Questions without a usable answer: {counts}." if counts else ""
        lines = [f"{questions}, {len(scored.run.answers):,} answers.", unused]
    else:
        counts = judged.judgement.counts_in_words
        rule = f"Right means: {judged.judgement.rule}."
        first = f"{questions}, {judged.accuracy:.1%} answered correctly ({counts}). {rule}"
        lines = [first, judged.exclusions, judged.cautions()]
    return [*lines, *_unused_lines(scored)]


def _unused_lines(scored: ScoredAnswers) -> list[str]:
    """Return which answers are not used, and how many of those that were cut are more probable."""
    counts = reasons_in_words(scored.run.unused_answers())
    lines = [f"Answers that are not used: {counts}."] if counts else []
    n_likelier = int(scored.run.has_likelier_cut().sum())
    if n_likelier:
        questions = "1 question" if n_likelier == 1 else f"{n_likelier:,} questions"
        lines.append(
            f"In {questions}, marked with … in the table, a cut answer is more probable than the "
            "judged one, which is the most probable answer that ended."
        )
    return lines


def _alpha_lines(scored: ScoredAnswers) -> list[str]:
    """Return where α comes from, and an α at which PRO would keep more answers."""
    if scored.run.is_texts:
        return [
            "The answers have no log-probabilities. SC, Deg and SE need only texts; PRO needs "
            "probabilities."
        ]
    alpha_methods = map(short_name, scored.judged.whole.alpha_names)
    has_alpha = not set(scored.methods).isdisjoint(alpha_methods)
    if not has_alpha and scored.alpha.is_reported is None:
        return []
    lines = [scored.alpha.reason]
    n_texts_alone = scored.run.n_texts_alone()
    if n_texts_alone:
        share = f"{n_texts_alone:,} of {len(scored.questions):,} questions"
        lines.append(f"{share} have answers without log-probabilities, which PRO and NLL need.")
    if scored.questions["n_kept"].max() <= 1:
        lines.append("PRO keeps one answer of each question, so it equals NLL.")
    more = scored.alpha_that_keeps_two()
    if more is not None:
        alpha, n_questions = more
        counts = f"{n_questions:,} of {len(scored.questions):,} questions"
        lines.append(f"With --alpha {alpha:g}, PRO keeps two or more answers of {counts}.")
    return lines


def difference_lines(scored: ScoredAnswers) -> list[str]:
    """Return the paired differences to the reference.

    If the reference is NLL, only the difference of PRO is returned.
    """
    from pro_lib import metrics

    table = scored.comparison
    reference = scored.reference
    if reference == "NLL":
        table = table[table["method"].isin([scored.main_method, "NLL"])]
    differences = metrics.differences_in_words(table, reference)
    if not differences:
        return []
    return [f"Paired difference (95 % interval): {'; '.join(differences)}."]


def reservations(scored: ScoredAnswers) -> list[str]:
    """Return sentences about the intervals: clusters of questions, and few answers of a kind."""
    reported = scored.reported
    sentences = []
    clusters = reported.answers.get("cluster")
    if clusters is not None:
        n_clusters = f"{clusters.nunique():,} clusters"
        sentences.append(
            f"The intervals of AUROC are by cluster of questions ({n_clusters}); those of "
            "accuracies take questions as independent."
        )
    if reported.n_rarer < _FEWEST_WITHOUT_CAUTION:
        rarer_kind = "right" if reported.accuracy < 0.5 else "wrong"
        count = reported.n_rarer
        answers_are = "1 answer is" if count == 1 else f"{count} answers are"
        sentences.append(f"Only {answers_are} {rarer_kind}, so the intervals are wide.")
    return sentences


def mistrust_line(scored: ScoredAnswers, mistrust: Mistrust) -> str:
    """Return the rule of the marks in the table, and how many marked answers are wrong."""
    is_marked = mistrust.is_mistrusted
    n = int(is_marked.sum())
    if not n:
        return mistrust.sentence
    answers = "1 answer" if n == 1 else f"{n:,} answers"
    line = f"{mistrust.sentence} This marks {answers} with !."
    is_wrong = scored.questions["correct"].eq(False).to_numpy(bool)
    is_judged = scored.questions["correct"].notna().to_numpy()
    if not is_judged.any():
        return line
    marked = f"{(is_wrong & is_marked).sum():,} of {(is_judged & is_marked).sum():,}"
    others = f"{(is_wrong & ~is_marked).sum():,} of {(is_judged & ~is_marked).sum():,}"
    return f"{line} Of the marked answers, {marked} are wrong; of the others, {others}."


def summary_json(scored: ScoredAnswers, mistrust: Mistrust) -> dict[str, Any]:
    """Return the summary as data of JSON.

    Unknown values are None. `texts` is the summary of the texts alone, if only some questions have
    log-probabilities.
    """
    from pro_lib.app.mistrust import find_mistrust

    data: dict[str, Any] = {
        "n_questions": len(scored.questions),
        "n_judged": scored.n_judged,
        "n_reported": len(scored.reported.answers),
        "not_used": {
            "questions": dict(scored.judged.reasons),
            "answers": scored.run.unused_answers(),
        },
        "n_likelier_cut": int(scored.run.has_likelier_cut().sum()),
        "rule": None,
        "accuracy": None,
        "verdict": scored.separation_sentence(mistrust.method) or None,
        "alpha": {"value": scored.alpha.alpha, "reason": scored.alpha.reason},
        "auroc": None,
        "most_certain": None,
        "mistrust": {"method": mistrust.method, "sentence": mistrust.sentence},
    }
    if mistrust.by_field is not None:
        data["fields"] = mistrust.by_field.to_dict("records")
    if scored.texts is not None:
        texts = scored.texts
        data["texts"] = summary_json(texts, find_mistrust(texts, texts.main_method))
    if scored.n_judged:
        data["rule"] = scored.judged.judgement.rule
        data["accuracy"] = scored.judged.accuracy
        data["exclusions"] = scored.judged.exclusions
        data["cautions"] = scored.judged.cautions()
    if scored.has_both_classes:
        columns = ["auroc", "auroc_low", "auroc_high"]
        columns += ["difference", "difference_low", "difference_high"]
        data["auroc"] = scored.comparison[["method", *columns]].to_dict("records")
        if mistrust.method in scored.reported_scores:
            data["most_certain"] = scored.most_certain(mistrust.method).to_dict("records")
    return data


def comparison_lines(comparison: AnswerComparison, names: tuple[str, str]) -> list[str]:
    """Return the lines that compare two files.

    Args:
        comparison: the result of `compare_answers`.
        names: the names of the files.
    """
    by = "Intervals are by cluster; the p-value is not." if comparison.by_cluster else ""
    difference = comparison.accuracy_difference
    lines = [
        f"A: {names[0]}",
        f"B: {names[1]}",
        f"{comparison.n_questions:,} judged questions are in both. Right means: {comparison.rule}.",
        f"Accuracy: A {comparison.accuracy[0]:.1%}, B {comparison.accuracy[1]:.1%}. B minus A "
        f"{signed(100 * difference.value, 1)} points "
        f"[{signed(100 * difference.low, 1)}, {signed(100 * difference.high, 1)}], "
        f"p = {comparison.p_value:.2g} (McNemar's exact test). {comparison.only_first:,} questions "
        f"are right only in A and {comparison.only_second:,} only in B. {by}".rstrip(),
    ]
    if comparison.auroc.empty:
        reason = "no method scores the answers of both files"
        if not {0.0, 1.0}.isdisjoint(comparison.accuracy):
            reason = "the answers of one file are all right or all wrong"
        return [*lines, f"AUROC cannot be compared, because {reason}."]
    lines.append("AUROC on these questions, with the 95 % interval of the paired difference:")
    width = max(len(name) for name in comparison.auroc["method"])
    for row in comparison.auroc.itertuples():
        ends = "without an interval: fewer than 5 right or wrong answers"
        if row.low == row.low:  # not NaN
            ends = f"[{signed(row.low)}, {signed(row.high)}]"
        both = f"A {row.first:.3f}, B {row.second:.3f}, B minus A {signed(row.difference)} {ends}"
        lines.append(f"  {row.method:{width}}  {both}")
    return lines


def comparison_json(comparison: AnswerComparison) -> dict[str, Any]:
    """Return a comparison as data of JSON."""
    difference = comparison.accuracy_difference
    return vars(comparison) | {
        "accuracy_difference": [difference.value, difference.low, difference.high],
        "auroc": comparison.auroc.to_dict("records"),
    }
