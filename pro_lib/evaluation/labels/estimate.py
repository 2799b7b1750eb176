"""Tables of estimates from labels: AUROC of each method, accuracy, agreement of each judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib import metrics
from pro_lib.common.files import RunError
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Evaluation
from pro_lib.evaluation.labels.answers import Alphas, Answers, Setting, collect_answers
from pro_lib.evaluation.labels.estimator import label_weights
from pro_lib.evaluation.labels.inference import (
    SCOPES,
    Sample,
    Scope,
    estimate_aurocs,
)
from pro_lib.evaluation.labels.intervals import (
    FEWEST_CLUSTERS,
    FEWEST_LABELS,
    FEWEST_OF_A_CLASS,
)
from pro_lib.evaluation.labels.label_file import KEY, merge_labels
from pro_lib.evaluation.labels.planned import PlanAnswers
from pro_lib.evaluation.labels.shares import Shares, estimate_shares
from pro_lib.metrics.correctness import MATCHES, ROUGE_THRESHOLD

FloatArray = NDArray[np.float64]
OUTSIDE = "an estimate is not between 0 and 1; label more answers"
SHOWN = "yes"  # in the column shown, if nothing prevents an estimate
_PHASES = ("n_first", "n_second")
_SETTING = ("dataset", "model", "strategy", "protocol", "split", "n_questions")


def estimate(
    labels: pd.DataFrame,
    evaluations: Sequence[Evaluation],
    *,
    alphas: Alphas = DEFAULT_ALPHA,
    scope: Scope = "population",
    plan: PlanAnswers | None = None,
) -> pd.DataFrame:
    """Estimate the AUROC of every method as if all answers had labels, with 95 % intervals.

    The labels must come from a `LabelPlan` for the same evaluations, because the estimate needs the
    probabilities with which answers were chosen. It uses all labels of the file, so it may be
    computed after any number of them.

    Args:
        labels: from `read_label_file`; those of several labellers are merged (`merge_labels`).
        evaluations: those of the plan, in the same order.
        alphas: α of PRO, chosen before labelling (see `collect_answers`).
        scope: "population" for intervals about the population that the questions come from, as
            everywhere else; "questions" for these questions, whose intervals have length 0
            once all answers have labels.
        plan: the answers that the labels were chosen from. Needed if the evaluations have only a
            part of them (see `LabelSample.planned_part`).

    Returns:
        A row per setting and method. Without ten labels of each class all estimates are NaN. An
        AUROC that is estimated outside (0, 1) is NaN; its differences are still shown.

    Columns:
        - dataset, model, strategy, protocol, split, n_questions: the setting.
        - method, similarity: the score; similarity is empty if it does not compare meanings.
        - auroc, auroc_low, auroc_high: AUROC by the labels. n_labels is their number.
        - auroc_by_judge: AUROC by the correctness of the evaluation.
        - auroc_minus_pro, auroc_minus_nll: differences, with _low and _high. NaN without PRO or
          NLL.
        - n_labels: decided labels, without repetitions. n_right and n_wrong are its parts.
        - n_undecided: answers that nobody could decide. n_disputed: answers that labellers decided
          differently.
        - n_effective: Kish's effective number, which shows how unequal the weights are.
        - scope: the argument. shown: "yes", or why there is no AUROC.

    Raises:
        RunError: if the labels belong to other answers, or `scope` is unknown.

    Example:
        >>> labels = read_label_file("labels.jsonl")  # doctest: +SKIP
        >>> table = estimate(labels, evaluations)  # doctest: +SKIP
        >>> table[["method", "auroc", "auroc_low", "auroc_high"]]  # doctest: +SKIP
          method  auroc  auroc_low  auroc_high
        0    NLL  0.812      0.751       0.861
        1    PRO  0.815      0.752       0.865
    """
    answers, sample, merged = _load_sample(labels, evaluations, alphas, scope, plan)
    tables = [_auroc_table(setting, sample, merged, scope) for setting in answers.settings]
    return pd.concat(tables, ignore_index=True)


def judge_agreement(
    labels: pd.DataFrame,
    evaluations: Sequence[Evaluation],
    *,
    scope: Scope = "population",
    plan: PlanAnswers | None = None,
) -> pd.DataFrame:
    """Estimate the accuracy of the answers, and the agreement of each judge with the labels.

    Args:
        labels: from `read_label_file`.
        evaluations: those of the plan, in the same order.
        scope: "population" or "questions", as for `estimate`.
        plan: as for `estimate`.

    Returns:
        A row per setting and judge.

    Columns:
        - those of the setting.
        - judge: "rouge_l" (above 0.3), "exact_match" or "alias_match".
        - accuracy_by_judge: the share of answers that the judge calls right.
        - accuracy, agreement: by the labels, each with _low and _high.
        - n_labels, n_right, n_wrong, scope and shown: as in `estimate`.

    Raises:
        RunError: as `estimate`.

    Example:
        >>> judge_agreement(labels, evaluations)[["judge", "agreement"]]  # doctest: +SKIP
                 judge  agreement
        0      rouge_l      0.884
    """
    answers, sample, merged = _load_sample(labels, evaluations, DEFAULT_ALPHA, scope, plan)
    tables = [_judge_table(setting, sample, merged, scope) for setting in answers.settings]
    return pd.concat(tables, ignore_index=True)


def accuracy_at_coverage(
    labels: pd.DataFrame,
    evaluations: Sequence[Evaluation],
    *,
    coverages: Sequence[float] = (0.2, 0.5, 0.8, 1.0),
    alphas: Alphas = DEFAULT_ALPHA,
    scope: Scope = "population",
    plan: PlanAnswers | None = None,
) -> pd.DataFrame:
    """Return the accuracy of the answers with the lowest uncertainty, for each method.

    The intervals treat the threshold of the score as fixed.

    Args:
        labels: from `read_label_file`.
        evaluations: those of the plan, in the same order.
        coverages: shares of the questions that are answered, in (0, 1]. Ties at the threshold are
            all answered.
        alphas: as for `estimate`.
        scope: "population" or "questions", as for `estimate`.
        plan: as for `estimate`.

    Returns:
        A row per setting, method and coverage. Columns: those of the setting; method and
        similarity; coverage (the share that is answered); accuracy with _low and _high; n_labels
        among the answered; scope; shown. An accuracy from fewer than 20 labels is NaN.

    Raises:
        RunError: as `estimate`, or for a coverage that is not in (0, 1].
    """
    if not all(0 < coverage <= 1 for coverage in coverages):
        raise RunError(f"coverages must be above 0 and at most 1; got {list(coverages)}")
    answers, sample, merged = _load_sample(labels, evaluations, alphas, scope, plan)
    tables = [
        _coverage_table(setting, sample, merged, coverages, scope) for setting in answers.settings
    ]
    return pd.concat(tables, ignore_index=True)


def _load_sample(
    labels: pd.DataFrame,
    evaluations: Sequence[Evaluation],
    alphas: Alphas,
    scope: str,
    plan: PlanAnswers | None = None,
) -> tuple[Answers, Sample, pd.DataFrame]:
    """Return the answers, the sample of labels, and a row per unit with the merged label."""
    if scope not in SCOPES:
        raise RunError(f"unknown scope {scope!r}; choose {' or '.join(SCOPES)}")
    missing = [column for column in ("phase", "probability", "plan") if column not in labels]
    if missing:
        names = ", ".join(missing)
        raise RunError(
            f"labels have no column {names}: without inclusion probabilities "
            "use correctness= instead"
        )
    answers = collect_answers(evaluations, alphas=alphas)
    digest = answers.digest if plan is None else plan.digest
    others = labels[labels["plan"] != digest]
    if len(others):
        raise RunError(
            f"{len(others)} labels belong to a plan for other answers, the first of them that of "
            f"question {others['question_id'].iloc[0]!r}; pass the evaluations that the plan was "
            "made for, or the plan"
        )
    sample, table = unit_labels(labels, answers, plan)
    return answers, sample, table


def unit_labels(
    labels: pd.DataFrame, answers: Answers, plan: PlanAnswers | None = None
) -> tuple[Sample, pd.DataFrame]:
    """Return the labels of answers as a sample, and a row per unit with its merged label.

    Args:
        labels: from `read_label_file`.
        answers: the units, all of which are among the answers of the plan.
        plan: the answers that the labels were chosen from; None for `answers`. Its further answers
            count for the weights of the labels only.

    Returns:
        The sample of the units, and a table with the columns of `merge_labels`, NaN for units
        without a label.

    Raises:
        RunError: if an answer is not in the plan.
    """
    plan = plan or answers.as_plan()
    merged = merge_labels(plan.current_labels(labels, answers.table).labels)
    table = merged.assign(unit=plan.positions(merged)).set_index("unit")
    # Rows and weights by the position in the plan. Labels of the first phase have n_second = 0.
    table = table.reindex(range(len(plan.table)))
    n_first, n_second = (int(merged[name].max()) if len(merged) else 0 for name in _PHASES)
    if plan.first is not None:
        n_first = len(plan.first)  # without answers that no longer exist
        n_second = len(plan.second or ())
    weights = label_weights(
        table["correct"].astype(float).to_numpy(),
        (table["phase"] == 1).to_numpy(),
        table["probability"].to_numpy(float),
        n_first=n_first,
        n_second=n_second,
    )
    places = plan.places(answers.table)
    if (places < 0).any():
        raise RunError(
            f"{np.count_nonzero(places < 0)} of the {len(places)} answers are not in the plan, "
            "so their labels cannot be estimated; leave them out by LabelSample.planned_part"
        )
    # From the answers of the plan to those of the evaluations
    table = table.iloc[places].reset_index(drop=True)
    weights = weights[places]
    decided = table["correct"].astype(float).to_numpy()
    sample = Sample.from_weights(decided, weights, answers.features)
    return sample, table.drop(columns=KEY)


def _auroc_table(
    setting: Setting, sample: Sample, merged: pd.DataFrame, scope: Scope
) -> pd.DataFrame:
    estimates = estimate_aurocs(setting.ranking, sample, scope=scope, clusters=setting.clusters)
    low, high = estimates.interval()
    table = _method_columns(setting)
    table = table.assign(auroc=estimates.auroc, auroc_low=low, auroc_high=high)
    by_judge = np.full(len(table), np.nan)
    if setting.evaluation.n_rarer:
        by_judge = metrics.auroc_intervals(setting.scores, setting.evaluation.correct)[0]
    table["auroc_by_judge"] = by_judge
    names = list(setting.scores)
    for reference in ("PRO", "NLL"):
        values: tuple[object, object, object] = (np.nan, np.nan, np.nan)
        if reference in names:
            values = estimates.difference(names.index(reference))
        for suffix, column in zip(("", "_low", "_high"), values, strict=True):
            table[f"auroc_minus_{reference.lower()}{suffix}"] = column
    counts = count_labels(sample, merged, setting.members)
    problem = auroc_problem(counts, setting, scope)
    shown = _shown(problem, np.isnan(estimates.auroc))
    if problem:
        table[table.filter(regex="^auroc(_low|_high|_minus_.*)?$").columns] = np.nan
    return _with_setting(table.assign(**counts, scope=scope, shown=shown), setting)


def _judge_table(
    setting: Setting, sample: Sample, merged: pd.DataFrame, scope: Scope
) -> pd.DataFrame:
    answers = setting.evaluation.answers
    counts = count_labels(sample, merged, setting.members)
    problem = _accuracy_problem(counts["n_labels"], setting, scope)
    rows = []
    for judge in ("rouge_l", *MATCHES):
        if judge not in answers or answers[judge].isna().any():
            continue
        verdict = answers[judge].to_numpy(float)
        verdict = verdict > ROUGE_THRESHOLD if judge == "rouge_l" else verdict > 0
        signs = np.where(verdict, 1.0, -1.0)
        shares = _shares(setting, sample, np.stack([np.ones(len(signs)), signs]), scope)
        row = {"judge": judge, "accuracy_by_judge": verdict.mean()}
        for place, name in enumerate(("accuracy", "agreement")):
            row |= {name: shares.share[place]}
            row |= {f"{name}_low": shares.low[place], f"{name}_high": shares.high[place]}
        if problem:
            hidden = [
                f"{name}{end}"
                for name in ("accuracy", "agreement")
                for end in ("", "_low", "_high")
            ]
            row |= dict.fromkeys(hidden, np.nan)
        shown = _shown(problem, np.isnan([*shares.share, *shares.low]).any()).item()
        rows.append(row | counts | {"scope": scope, "shown": shown})
    return _with_setting(pd.DataFrame(rows), setting)


def _coverage_table(
    setting: Setting, sample: Sample, merged: pd.DataFrame, coverages: Sequence[float], scope: Scope
) -> pd.DataFrame:
    n_labels = count_labels(sample, merged, setting.members)["n_labels"]
    problem = _accuracy_problem(n_labels, setting, scope)
    scores = setting.scores.to_numpy(np.float64)
    tables = []
    for coverage in coverages:
        thresholds = np.quantile(scores, coverage, axis=0, method="inverted_cdf")
        is_answered = (scores <= thresholds).T
        shares = _shares(setting, sample, is_answered.astype(np.float64), scope)
        columns = {
            "coverage": is_answered.mean(axis=1),
            "accuracy": shares.share,
            "accuracy_low": shares.low,
            "accuracy_high": shares.high,
            "n_labels": shares.n_labels,
        }
        tables.append(_method_columns(setting).assign(**columns))
    table = pd.concat(tables, ignore_index=True).assign(scope=scope)
    table["shown"] = _shown(problem, table["accuracy_low"].isna())
    is_small = table["n_labels"] < FEWEST_LABELS
    if not problem:
        table.loc[is_small, "shown"] = table["n_labels"][is_small].map(sample_problem)
    hidden = ["accuracy", "accuracy_low", "accuracy_high"]
    table.loc[is_small | bool(problem), hidden] = np.nan
    return _with_setting(table, setting)


def _shown(problem: str, is_outside: ArrayLike) -> NDArray[np.str_]:
    """Return the column shown: "yes", or why an estimate is missing."""
    if problem:
        return np.full(np.shape(is_outside), problem)
    return np.where(is_outside, OUTSIDE, SHOWN)


def _shares(setting: Setting, sample: Sample, weights: FloatArray, scope: Scope) -> Shares:
    return estimate_shares(sample, setting.codes, weights, scope=scope, clusters=setting.clusters)


def _method_columns(setting: Setting) -> pd.DataFrame:
    """Return method and similarity of each score; "SE, lexical" is SE with lexical."""
    names = pd.Series(setting.scores.columns.astype(str))
    parts = names.str.partition(", ")
    return pd.DataFrame({"method": parts[0], "similarity": parts[2]})


def count_labels(
    sample: Sample, merged: pd.DataFrame, members: NDArray[np.bool_]
) -> dict[str, float]:
    """Return how many labels of each kind some of the units have, and Kish's effective number.

    Args:
        sample: the labels of the units.
        merged: a row per unit with its merged label, from `unit_labels`.
        members: (G,) whether a unit counts.

    Returns:
        n_labels, n_right, n_wrong, n_undecided, n_disputed and n_effective.
    """
    labels = sample.labels[members]
    rows = merged[members]
    weights = sample.weights[members]
    total = weights.sum()
    n_labels = int((~np.isnan(labels)).sum())
    return {
        "n_labels": n_labels,
        "n_right": int((labels == 1).sum()),
        "n_wrong": int((labels == 0).sum()),
        "n_undecided": int(rows["phase"].notna().sum()) - n_labels,
        "n_disputed": int((rows["is_disputed"] == True).sum()),  # noqa: E712
        "n_effective": float(total**2 / (weights**2).sum()) if n_labels else 0.0,
    }


def auroc_problem(counts: Mapping[str, float], setting: Setting, scope: Scope) -> str:
    """Return why no AUROC can be shown; empty if it can."""
    return class_problem(counts) or _accuracy_problem(counts["n_labels"], setting, scope)


def class_problem(counts: Mapping[str, float]) -> str:
    """Return why there are too few labels for an AUROC; empty if there are enough."""
    for name in ("right", "wrong"):
        n = counts[f"n_{name}"]
        if n < FEWEST_OF_A_CLASS:
            return f"only {n} labels of {name} answers; {FEWEST_OF_A_CLASS} are needed"
    return ""


def _accuracy_problem(n_labels: float, setting: Setting, scope: Scope) -> str:
    """Return why no accuracy can be shown; empty if it can."""
    clusters = setting.clusters
    if clusters is None or scope == "questions":
        return sample_problem(n_labels)
    return sample_problem(n_labels, n_clusters=len(np.unique(clusters[setting.members])))


def sample_problem(n_labels: float, *, n_clusters: int | None = None) -> str:
    """Return why there are too few labels, or clusters of questions; empty if there are enough."""
    if n_labels < FEWEST_LABELS:
        return f"only {n_labels} labels; {FEWEST_LABELS} are needed"
    if n_clusters is not None and n_clusters < FEWEST_CLUSTERS:
        return f"only {n_clusters} clusters of questions; {FEWEST_CLUSTERS} are needed"
    return ""


def _with_setting(table: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """Put the columns of the setting in front."""
    evaluation = setting.evaluation
    values = [
        evaluation.dataset,
        evaluation.model,
        evaluation.strategy,
        evaluation.protocol,
        evaluation.split,
    ]
    columns = dict(zip(_SETTING, [*values, len(evaluation.answers)], strict=True))
    return table.assign(**columns)[[*_SETTING, *table.columns]]
