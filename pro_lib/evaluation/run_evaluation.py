"""Judge one answer per question, and compute all scores for the same questions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pro_lib import metrics
from pro_lib.common.files import RunError
from pro_lib.common.reasons import NO_REFERENCE, count_reasons, reasons_in_words
from pro_lib.evaluation.dependence import dependence_columns
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Evaluation
from pro_lib.evaluation.inputs import (
    PROTOCOLS,
    AnswerMatrices,
    MethodScores,
    Protocol,
    Similarities,
    compare_meanings,
    find_protocol,
    method_scores,
)
from pro_lib.evaluation.methods import METHODS, RESERVED
from pro_lib.metrics.correctness import AnswerRules, rouge_and_correct, rule_in_words
from pro_lib.runs.run import Run, most_probable_answers

# A method without a value for more than this share of the questions is left out of the comparison.
MISSING_SHARE = 0.05


def common_methods(
    table: pd.DataFrame, correct: ArrayLike
) -> tuple[pd.DataFrame, dict[str, tuple[int, int]]]:
    """Select the methods that can be compared on the same questions.

    A question counts if the judged answer is known to be right or wrong and NLL has a value; if NLL
    is missing for all of them, if some method has a value. A method that is missing for more than
    `MISSING_SHARE` of these questions is left out, because it would cost the other methods these
    questions.

    Args:
        table: a column per method, NaN if a method has no value, (n, M).
        correct: whether the judged answers are right, None or NaN if that is unknown, (n,).

    Returns:
        The table without these methods, and by the name of each: the number of questions with a
        value, and the number of all.

    Example:
        >>> table = pd.DataFrame({"NLL": [0.5, 1.0], "SC": [0.1, np.nan]})
        >>> selected, left_out = common_methods(table, [True, False])
        >>> list(selected), left_out
        (['NLL'], {'SC': (1, 2)})
    """
    has_value = table.notna()
    is_counted = pd.notna(np.asarray(correct)) & has_value.any(axis=1).to_numpy()
    if "NLL" in table and (is_counted & has_value["NLL"]).any():
        is_counted &= has_value["NLL"].to_numpy()
    n_questions = int(is_counted.sum())
    n_scored = has_value[is_counted].sum()
    is_rare = n_questions - n_scored > MISSING_SHARE * n_questions
    left_out = {str(name): (int(n_scored[name]), n_questions) for name in table.columns[is_rare]}
    return table.loc[:, ~is_rare], left_out


def evaluate(beams: Run, *, protocol: str = "workbench", **options: Any) -> Evaluation:
    """Judge and score the answers of a run under one protocol.

    Args:
        beams: the run.
        protocol: the name of the protocol.
        **options: the other arguments of `evaluations`.

    Returns:
        The evaluation.

    Raises:
        RunError: a run lacks one of the questions, or no answer can be judged.
        ValueError: the protocol is unknown.

    Example:
        >>> from pro_lib.common import catalog
        >>> from pro_lib.importing import import_answers
        >>> evaluation = evaluate(import_answers(catalog.EXAMPLE))
        >>> list(evaluation.baselines), evaluation.rule
        (['NLL', 'PE'], 'ROUGE-L > 0.3')
    """
    return evaluations(beams, protocols=[protocol], **options)[0]


def evaluations(  # noqa: PLR0913  # public; each run and rule is given by name
    beams: Run,
    *,
    protocols: Sequence[str] = tuple(PROTOCOLS),
    samples: Run | None = None,
    others: Sequence[Run] = (),
    split: str | None = None,
    similarities: Similarities | None = None,
    rules: AnswerRules | None = None,
    must_judge: bool = True,
) -> list[Evaluation]:
    """Judge one answer per question and compute all scores, once for each protocol.

    The judged answer is the most probable one that any of the runs found, the same under every
    protocol. A method that lacks a value for more than 5 % of the questions is left out
    (`common_methods`). A question that one of the other methods cannot score, or that has no answer
    to judge, is left out for all methods and counted. If most answers of `beams` are texts without
    log-probabilities, and there are `samples`, no log-probabilities are used.

    Args:
        beams: the run that PRO, NLL, ALL, PE (Eq. 2), SE and SD read, and in protocol `paper` also
            PE-MC and NE.
        protocols: names of `evaluation.PROTOCOLS`.
        samples: the run that Deg, and in protocol `workbench` also SC, PE-MC and NE, read, repeats
            kept; None leaves these methods out.
        others: further runs whose answers may be the most probable one.
        split: the split to judge; None for all questions of `beams`.
        similarities: which answers mean the same, by name. SE, SD, Deg, SC, S-NLL and S-PRO are
            computed for each, as `SE, <name>`. None stands for one that this dataset does not have.
        rules: what counts as an answer, and what makes it right.
        must_judge: whether it is an error if no answer can be judged.

    Returns:
        An evaluation of the judged questions per protocol.

    Raises:
        RunError: a run lacks one of the questions, or no answer can be judged.
        ValueError: a protocol is unknown.

    Example:
        >>> from pro_lib.common import catalog
        >>> from pro_lib.importing import import_answers
        >>> [each.protocol for each in evaluations(import_answers(catalog.EXAMPLE))]
        ['paper', 'workbench']
    """
    rules = rules or AnswerRules()
    known_protocols = [find_protocol(name, distinct=rules.distinct) for name in protocols]
    runs = _EvaluatedRuns.select(beams, samples, others, split)
    answers = _judged_answers(runs, rules)
    if must_judge and answers["correct"].isna().all():
        counts = count_reasons(runs.beams.reasons())
        unused = f" (of {len(answers):,} questions: {reasons_in_words(counts)})" if counts else ""
        raise RunError(
            f"run {beams.name}: no answer can be judged{unused}; the run needs texts and "
            "references, or a column rouge_l or correct"
        )
    rule = rule_in_words(rules, has_verdicts="correct" in beams.answers)
    matrices = AnswerMatrices.of(runs.beams, convention=rules.convention)
    sampled = matrices if runs.samples is runs.beams else None
    if sampled is None and runs.samples is not None:
        sampled = AnswerMatrices.of(runs.samples, convention=rules.convention)
    compared = compare_meanings(matrices, sampled, similarities or {}, judged=answers["text"])
    results = []
    for protocol in known_protocols:
        scores = method_scores(
            matrices, sampled, protocol, compared, search_alpha=runs.beams.search_alpha
        )
        results.append(
            _evaluation(runs, protocol, answers, scores, rule=rule, split=split or "all")
        )
    return results


@dataclass(frozen=True)
class _EvaluatedRuns:
    """The runs of the questions that are judged.

    Attributes:
        beams: the run that most methods read.
        samples: the run of samples.
        others: further runs whose answers may be the most probable one.
        are_texts: whether the log-probabilities of all runs were left out.
        n_with_log_probs: the number of questions for which beams had log-probabilities.
    """

    beams: Run
    samples: Run | None
    others: list[Run]
    are_texts: bool
    n_with_log_probs: int

    @classmethod
    def select(
        cls, beams: Run, samples: Run | None, others: Sequence[Run], split: str | None
    ) -> "_EvaluatedRuns":
        """Select the questions of a split, and leave out log-probabilities that are too few."""
        # This is decided on all questions of the run, so that its splits are scored alike.
        has_few_log_probs = 0 < beams.n_with_log_probs() < beams.n_texts_alone()
        are_texts = samples is not None and has_few_log_probs
        selected = beams if split is None else beams.select(split=split)
        question_ids = list(selected.questions["question_id"])

        def prepared(run: Run) -> Run:
            run = selected if run is beams else run.select(question_ids=question_ids)
            return run.as_texts() if are_texts else run

        prepared_beams = prepared(beams)
        prepared_samples = None
        if samples is not None:
            prepared_samples = prepared_beams if samples is beams else prepared(samples)
        prepared_others = [prepared(run) for run in others]
        n_with_log_probs = selected.n_with_log_probs()
        return cls(prepared_beams, prepared_samples, prepared_others, are_texts, n_with_log_probs)


def _judged_answers(runs: _EvaluatedRuns, rules: AnswerRules) -> pd.DataFrame:
    """Return the most probable answer to each question, whether it is right, and its cluster."""
    questions = runs.beams.questions
    all_runs = [runs.beams, *runs.others]
    if runs.samples is not None:
        all_runs.insert(1, runs.samples)
    top = most_probable_answers([run.top(convention=rules.convention) for run in all_runs])
    answers = top[["question_id", "text"]].join(rouge_and_correct(top, questions, rules))
    # Labels by hand belong to the text of the question.
    answers = answers.join(questions.filter(["question", "references"]).reset_index(drop=True))
    if rules.labels is not None:
        _check_labels(answers, rules.labels, runs.beams.name)
    answers = answers.join(dependence_columns(questions, rules.cluster))
    return answers


def _evaluation(
    runs: _EvaluatedRuns,
    protocol: Protocol,
    answers: pd.DataFrame,
    scores: MethodScores,
    *,
    rule: str,
    split: str,
) -> Evaluation:
    """Return the evaluation under one protocol, with which questions all its methods score."""
    table = scores.table.join(_given_scores(runs.beams, scores))
    if not runs.beams.is_texts and not runs.beams.has_several_answers:
        # One answer to each question says nothing about the others.
        several = [name for name in METHODS if METHODS[name].needs_several]
        table = table.drop(columns=several, errors="ignore")
    available = table.dropna(axis=1, how="all")
    alpha = max(DEFAULT_ALPHA, runs.beams.search_alpha or 0.0)
    at_alpha = {name: score(alpha) for name, score in scores.alpha_scores.items()}
    with_alpha = pd.DataFrame(at_alpha, index=available.index).dropna(axis=1, how="all")
    every_method = available.join(with_alpha)
    compared_methods, left_out = common_methods(every_method, answers["correct"])
    not_compared = list(left_out)
    if runs.are_texts:
        n_scored = (runs.n_with_log_probs, len(answers))
        left_out = {"every score of log-probabilities": n_scored, **left_out}
    reasons = runs.beams.reasons()
    is_usable, exclusions = metrics.usable(
        compared_methods.set_axis(list(runs.beams.questions["question_id"])),
        answers["correct"],
        reasons=reasons,
    )
    if left_out:
        counts = [
            f"{name} ({n:,} of {of:,} questions have it)" for name, (n, of) in left_out.items()
        ]
        exclusions += f" Left out of the comparison: {', '.join(counts)}."
    reasons = reasons.mask((reasons == "") & answers["correct"].isna(), NO_REFERENCE)
    is_scored = compared_methods.notna().all(axis=1)
    info = runs.beams.info
    whole = Evaluation(
        model=info.model,
        dataset=info.dataset,
        split=split,
        answers=answers,
        log_probs=scores.log_probs,
        baselines=available,
        exclusions=exclusions,
        unavailable=tuple(table.columns.difference(available.columns, sort=False)),
        search_alpha=runs.beams.search_alpha,
        protocol=protocol.name,
        strategy=info.strategy,
        alpha_scores={name: scores.alpha_scores[name] for name in with_alpha},
        note=info.provenance.get("note", ""),
        n_unlabelled=int((is_scored & answers["correct"].isna()).sum()),
        rule=rule,
        reasons=count_reasons(reasons),
    )
    judged = whole.without_methods(not_compared).select(is_usable)
    answers = judged.answers
    if "text_number" in answers and not answers["text_number"].duplicated().any():
        answers = answers.drop(columns="text_number")
    return replace(judged, answers=answers, selected_from=whole)


def _given_scores(beams: Run, scores: MethodScores) -> pd.DataFrame:
    """Return the scores that the records contain, with a column for each score.

    A score with the name of one that is computed here is called `<name>, given`.
    """
    columns = beams.questions.filter(regex="^score_")
    given_scores = columns.rename(columns=lambda name: name.removeprefix("score_"))
    computed = (*scores.table, *scores.alpha_scores, "PRO", *RESERVED)
    return given_scores.rename(columns={name: f"{name}, given" for name in computed})


def _check_labels(answers: pd.DataFrame, labels: pd.DataFrame, name: str) -> None:
    """Check that each question with labels has one for its judged answer.

    Raises:
        RunError: a question lacks it, or no label is for one of the questions.
    """
    labelled = answers[answers["question_id"].isin(labels["question_id"])]
    if labelled.empty:
        raise RunError(
            f"run {name}: none of the {len(labels)} labels is for one of its questions; the "
            "question_ids of both must agree"
        )
    unmatched = labelled.loc[labelled["correct"].isna(), "question_id"].tolist()
    if unmatched:
        raise RunError(
            f"run {name}: {len(unmatched)} labelled questions (first {unmatched[0]!r}) "
            "have no label for the answer that is judged; label this answer too"
        )
