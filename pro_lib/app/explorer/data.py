"""The data that the explorer shows: a run, scores of other methods, the examples of the paper."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pro_lib import scoring
from pro_lib.app.explorer.intervals import comparisons, sweeps
from pro_lib.common import catalog
from pro_lib.common.files import RunError
from pro_lib.common.reasons import reasons_in_words
from pro_lib.evaluation.evaluation import DRAWN_ALPHAS, alpha_grid
from pro_lib.evaluation.methods import find_methods, select_methods
from pro_lib.evaluation.run_evaluation import evaluate
from pro_lib.importing.answer_files import import_answers
from pro_lib.metrics.correctness import (
    ROUGE_THRESHOLD,
    AnswerRules,
    TokenizerWarning,
    nearest_reference,
    rouge_and_correct,
    rule_in_words,
)
from pro_lib.runs.question_table import json_cell
from pro_lib.runs.run import Run, identities
from pro_lib.runs.storage import CERTIFICATE_COLUMNS, RunInfo
from pro_lib.scoring.similarity import lexical

# Columns of a question that the page shows, if the run has them
_QUESTION_COLUMNS = (
    "question",
    "split",
    "exposure",
    "conflict",
    "note",
    "reason",
    "likelier_cut",
)
_CERTIFICATE_COLUMNS = [
    name for name in CERTIFICATE_COLUMNS if not name.startswith("tree_") or name == "tree_bound"
]


def run_data(run: Run, *, alpha: float = 0.4, rules: AnswerRules | None = None) -> dict[str, Any]:
    """Return a run as JSON data, from which the page computes PRO and K.

    Args:
        run: a run with log-probabilities.
        alpha: where the slider stands first.
        rules: what makes an answer right.

    Returns:
        A dict with the keys

        - `name`, `model`, `has_texts`: about the run;
        - `alpha`, `alphas`, `log_alphas`: the slider. `log_alphas` has None for log 0;
        - `sweeps`: AUROC and mean K with their intervals, as `sweeps` of intervals.py returns them;
        - `questions`: a dict per question, with the reason why it has no usable answer ("" if it
          has one), and whether a cut answer is more probable than the judged one (likelier_cut);
        - `unused_answers`: the answers that are not used, counted by reason, as text;
        - `answers`: a list per question, in descending order of probability, those that were cut
          last. An answer is a list [text, log-probability of the complete answer in nats,
          identity, finished, correct]. Repeats have the same identity, which is a number.

        Numbers are not rounded. A missing value is None.

    Raises:
        ValueError: if `alpha` is outside [0, 1].
        RunError: if the run has texts without log-probabilities.
    """
    scoring.check_alpha(alpha)
    if run.is_texts:
        reason = "has texts without log-probabilities, and the explorer shows probabilities"
        raise RunError(f"run {run.name} {reason}")
    rules = rules or AnswerRules()
    judged = _judged_answers(run, rules)
    answers = _answer_lists(judged, len(run.questions))
    judgements = _judgements(run, judged, rules)
    reasons = run.reasons().to_numpy()
    table = run.questions.assign(reason=reasons, likelier_cut=run.has_likelier_cut())
    rows = table.to_dict("records")
    questions = [_question_data(*each) for each in zip(rows, answers, judgements, strict=True)]
    has_questions = run.questions["question"].notna().any()
    has_answers = run.answers["text"].notna().any()
    alphas = _slider_alphas(run, alpha)
    return {
        "name": run.name,
        "model": run.info.model,
        "has_texts": bool(has_questions or has_answers),
        "alpha": alpha,
        "alphas": alphas,
        "log_alphas": [float(np.log(value)) if value else None for value in alphas],
        "sweeps": sweeps(run, alphas, rules),
        "questions": questions,
        "answers": answers,
        "unused_answers": reasons_in_words(run.unused_answers()),
    }


def _slider_alphas(run: Run, alpha: float) -> list[float]:
    """Return the values of the slider: hundredths, those of figures, and `alpha`.

    Values below the α of a search are left out, because the search did not look for them.
    """
    grid = alpha_grid(run.search_alpha, alphas=DRAWN_ALPHAS)
    hundredths = np.arange(1, 101) / 100
    alphas = np.unique(np.round([*grid, *hundredths, alpha], 9))
    return alphas[alphas >= grid[0]].tolist()


def _question_data(
    row: Mapping[Hashable, Any], answers: list[list], judgement: dict[str, Any] | None
) -> dict[str, Any]:
    """Return a question with its references, its certificate, and why its answer is correct."""
    question = {"id": row["question_id"], "question": f"question {row['question_id']}"}
    for name in _QUESTION_COLUMNS:
        value = json_cell(row.get(name))
        if value is not None:
            question[name] = value
    question["references"] = None if row["references"] is None else list(row["references"])
    question["correct"] = answers[0][4] if answers else None
    question["judgement"] = judgement
    certificate = {name: json_cell(row[name]) for name in _CERTIFICATE_COLUMNS if name in row}
    if certificate:
        question["certificate"] = certificate
    return question


def _judged_answers(run: Run, rules: AnswerRules) -> pd.DataFrame:
    """Return the ranked answers and then those that were cut, with `rouge_l` and `correct`."""
    ended = run.ranked_answers(distinct=False)
    questions = run.questions.iloc[ended["row"]].reset_index(drop=True)
    with warnings.catch_warnings(action="ignore", category=TokenizerWarning):
        judged = rouge_and_correct(ended, questions, rules)
    ended = ended.assign(rouge_l=judged["rouge_l"], correct=judged["correct"])
    cut = run.answers[~run.answers["finished"].to_numpy(bool)]
    rows = pd.Index(run.questions["question_id"]).get_indexer(cut["question_id"])
    cut = cut.assign(row=rows, value=cut["log_prob"], mean=np.nan, correct=None)
    table = pd.concat([ended, cut], ignore_index=True)
    # A text without a log-probability has no place on the page.
    return table[table["value"].notna()]


def _answer_lists(answers: pd.DataFrame, n_questions: int) -> list[list[list]]:
    """Return the lists of answers that `run_data` describes."""
    numbers: dict[object, int] = {}
    lists: list[list[list]] = [[] for _ in range(n_questions)]
    for identity, answer in zip(identities(answers), answers.itertuples(), strict=True):
        entries = lists[answer.row]
        text = answer.text if isinstance(answer.text, str) else f"answer {len(entries) + 1}"
        number = numbers.setdefault(identity, len(numbers))
        verdict = json_cell(answer.correct)
        entries.append([text, float(answer.value), number, bool(answer.finished), verdict])
    return lists


def _judgements(run: Run, answers: pd.DataFrame, rules: AnswerRules) -> list[dict[str, Any] | None]:
    """Return why the most probable answer to each question is right or wrong.

    It is a dict with `rule`, the name of the rule, or None for an answer that is not judged. If the
    rule is ROUGE-L, it has `rouge_l` and `threshold` instead, and `reference`, the nearest
    reference, if there is one that is not entirely different.
    """
    has_verdicts = "correct" in run.answers
    rule = rule_in_words(rules, has_verdicts=has_verdicts)
    is_rouge = rules.correctness == "rouge_l" and rules.labels is None and not has_verdicts
    judgements: list[dict[str, Any] | None] = [None] * len(run.questions)
    top = answers.drop_duplicates("row")
    for answer in top[top["correct"].notna()].itertuples():
        judgement: dict[str, Any] = {"rule": rule}
        if is_rouge:
            judgement = {"rouge_l": answer.rouge_l, "threshold": ROUGE_THRESHOLD}
        if is_rouge and "rouge_l" not in run.answers and answer.rouge_l > 0:
            references = run.questions["references"].iloc[answer.row]
            judgement["reference"] = nearest_reference(answer.text, references)
        judgements[answer.row] = judgement
    return judgements


def comparison_data(
    run: Run,
    samples: Run | None = None,
    *,
    alpha: float = 0.4,
    distinct: bool = True,
    rules: AnswerRules | None = None,
    methods: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the scores of every method but PRO on the questions of a run, as JSON data.

    Args:
        run: a run with log-probabilities.
        samples: a run of samples of the same questions, for the methods that need them.
        alpha: where the slider stands first.
        distinct: whether repeated answers count once.
        rules: what makes an answer right.
        methods: the methods to show besides PRO and NLL; None for all.

    Returns:
        A dict with the lists `ids`, `texts` and `correct`, the lists of `scores` by method,
        `counts`, a sentence about the questions that are left out, and `splits`, AUROCs and
        differences as `comparisons` of intervals.py returns them.

    Raises:
        RunError: if no answer can be judged.
        SentenceError: if a method is unknown or needs other data.
    """
    rules = replace(rules or AnswerRules(), distinct=distinct)
    similarities = {"lexical": lexical}
    judged = evaluate(run, samples=samples, similarities=similarities, rules=rules)
    if methods is not None:
        selected = select_methods(["PRO", *judged.baselines], find_methods(methods))
        compared = ("NLL", *selected)  # NLL is always compared
        others = [name for name in judged.baselines if name not in compared]
        judged = judged.without_methods(others)
    return {
        "distinct": distinct,
        "ids": list(judged.answers["question_id"]),
        "texts": [json_cell(text) for text in judged.answers["text"]],
        "correct": judged.correct.tolist(),
        "scores": judged.baselines.to_dict("list"),
        "counts": judged.exclusions,
        "splits": comparisons(run, judged, _slider_alphas(run, alpha)),
    }


def appendix_run() -> Run:
    """Return the three questions of the paper's appendix as a run.

    The column `note` of its questions says which PRO the paper prints.
    """
    answers = catalog.paper("appendix_examples")
    answers = answers.loc[answers.index.repeat(answers["count"])].rename(columns={"answer": "text"})
    answers = answers.assign(
        question_id=answers["question"],
        log_prob=np.log(answers["probability"]),
        references=[[truth] for truth in answers["truth"]],
    )
    run = import_answers(answers)
    scores = catalog.paper("appendix_scores")
    scores = scores[scores["selection"] == "adaptive"].set_index("question")
    notes = []
    for row in scores.loc[run.questions["question"]].itertuples():
        notes.append(f"The paper prints PRO = {row.pro:g} at α = {row.alpha:g}, repeats counted.")
    info = RunInfo("nq", "Gemma-7B", "the paper's appendix")
    return Run(run.answers, run.questions.assign(note=notes), info)
