"""What exact searches found, claim and cost, alone and beside beams; knows runs, scores and evaluations, no files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from pro_lib import intervals, metrics, protocols, scores, sweeps
from pro_lib.evaluation import Evaluation, evaluate
from pro_lib.runs import Run

_AGREEMENT = "^SC,|^Deg,|^agreement"


def _beside(run: Run, others: Sequence[Run]) -> Run:
    return next(other for other in others if other.info.labels() == run.info.labels())


def search_table(runs: Sequence[Run], **others: Sequence[Run]) -> pd.DataFrame:
    """What searches found, claim and cost, a row per run; means over questions, bounds and PRO in nats.

    `others` are runs of the same settings by other strategies; `<name>_forwards` are their token-forwards per question.
    Columns: dataset, model, alpha (of the search), n_questions, certified, fallback, undecided (shares), answers (with
    p ≥ α), pro, found_mass, alpha_floor, tree_bound, expanded_prefixes, token_forwards, live_width,
    largest_width.
    """
    table = pd.DataFrame([_summed_up(run) for run in runs])
    for name, of in others.items():
        infos = [_beside(run, of).info for run in runs]
        table[f"{name}_forwards"] = [info.cost.token_forwards / info.n_planned for info in infos]
    return table


def _summed_up(run: Run) -> dict[str, float]:
    questions, log_probs, alpha = run.questions, run.log_probs(), run.search_alpha
    means = ["found_mass", "alpha_floor", "tree_bound", "expanded_prefixes", "token_forwards", "live_width"]
    return {
        **run.info.labels(),
        "alpha": alpha,
        "n_questions": len(questions),
        **{status: (questions["status"] == status).mean() for status in ("certified", "fallback", "undecided")},
        "answers": (log_probs >= np.log(alpha)).sum(axis=1).mean(),
        "pro": np.nanmean(scores.pro(log_probs, alpha=alpha, search_alpha=alpha)),
        **questions[means].mean(),
        "largest_width": questions["live_width"].max(),
    }


def recall_table(searches: Sequence[Run], others: Sequence[Run], *, alphas: Sequence[float]) -> pd.DataFrame:
    """How many of the answers with p ≥ α another run of the setting found, over the questions of the search.

    `searches` are runs of `threshold`; α below their own is refused. A row per search and α. Columns: dataset, model,
    alpha, answers (with p ≥ α, certainly), found (of them, by token ids), recall, all_found (share of the questions
    whose answers with p ≥ α are all found, of those that have one), questions (that have one).
    """
    return pd.DataFrame([row for run in searches for row in _recalls(run, _beside(run, others), alphas)])


def _recalls(exact: Run, other: Run, alphas: Sequence[float]) -> Iterator[dict[str, object]]:
    if exact.search_alpha is None or min(alphas) < exact.search_alpha:
        raise ValueError(f"alphas must be at least the search_alpha of the run, {exact.search_alpha}")
    theirs = other.select(question_ids=list(exact.questions["question_id"])).ranked(distinct=False)
    answers = exact.ranked()
    known, keys = (
        pd.MultiIndex.from_arrays([table["question_id"], table["token_ids"].map(tuple)]) for table in (theirs, answers)
    )
    answers = answers.assign(found=keys.isin(known))
    for alpha in alphas:
        likely = answers[answers["value"] >= np.log(alpha)]
        whole = likely.groupby("question_id")["found"].all()
        found = {"answers": len(likely), "found": int(likely["found"].sum()), "recall": likely["found"].mean()}
        yield exact.info.labels() | {"alpha": alpha, **found, "all_found": whole.mean(), "questions": len(whole)}


def bounds_table(searches: Sequence[Run], drawn: Sequence[Run]) -> pd.DataFrame:
    """The bounds of searches beside the entropy estimated by searches of the setting with draws, a row per search.

    All is of the questions drawn from that the search *certified*, where PRO is a bound: rows are of different
    questions, and of fewer as α rises. Columns: dataset, model, alpha, n_questions (drawn from), certified (how many of
    them), pro, alpha_floor, tree_bound, entropy, entropy_low, entropy_high (95 % interval of the mean over these
    questions), means in nats; width and anytime_width, how far the limits of a question's entropy lie apart, Student's
    and such as hold whenever one stops drawing.
    """
    return pd.DataFrame([_bounds(run, _beside(run, drawn)) for run in searches])


def _bounds(run: Run, drawn: Run) -> dict[str, object]:
    run = run.select(question_ids=list(drawn.questions["question_id"]))
    certified = (run.questions["status"] == "certified").to_numpy()
    pro = scores.pro(run.log_probs(), alpha=run.search_alpha, search_alpha=run.search_alpha)
    bounds, known = run.questions[certified], _entropies(drawn)[certified]
    low, high = intervals.normal(known["estimate"].mean(), known["estimate"].sem(ddof=0))
    return {
        **run.info.labels(),
        "alpha": run.search_alpha,
        "n_questions": len(run.questions),
        "certified": certified.sum(),
        "pro": pd.Series(pro[certified]).mean(),
        **bounds[["alpha_floor", "tree_bound"]].mean(),
        **{"entropy": known["estimate"].mean(), "entropy_low": low, "entropy_high": high},
        "width": (known["high"] - known["low"]).mean(),
        "anytime_width": (known["anytime_high"] - known["anytime_low"]).mean(),
    }


def entropy_table(drawn: Sequence[Run]) -> pd.DataFrame:
    """The entropy of each question of searches with draws, with both kinds of limits, nats.

    Columns: dataset, model, n_questions, question_id, tree_bound, estimate, low, high, anytime_low, anytime_high,
    upper_bound, draws (their number), token_forwards (of the search and the draws).
    """
    return pd.concat([_entropies(run) for run in drawn], ignore_index=True) if drawn else pd.DataFrame()


def _entropies(run: Run) -> pd.DataFrame:
    known, wide = run.questions, run.entropy(anytime=True)
    return known[["question_id", "tree_bound", "upper_bound"]].assign(
        **run.info.labels(),
        **run.entropy()._asdict(),
        n_questions=len(known),
        anytime_low=wide.low,
        anytime_high=wide.high,
        draws=known["remainder_draws"].str.len(),
        token_forwards=known["token_forwards"] + known["remainder_forwards"],
    )


def merged_table(runs: Sequence[Run], *, alphas: Sequence[float]) -> pd.DataFrame:
    """What adding up the spellings of an answer does to PRO, a row per search, α (at least the search's) and question.

    Columns: dataset, model, alpha, question_id, kept and pro as they are, kept_merged and pro_merged with texts merged,
    changed (whether PRO did), certain: whether the kept texts are surely the most probable ones. They are where the
    mass not found is smaller than the smallest kept text, even if all of it belonged to one that is not kept. Bounds on
    the entropy of token sequences say nothing about the merged set.
    """
    return pd.concat([_merged(run, max(a, run.search_alpha)) for run in runs for a in alphas], ignore_index=True)


def _merged(run: Run, alpha: float) -> pd.DataFrame:
    table = pd.DataFrame({"question_id": run.questions["question_id"]}).assign(**run.info.labels(), alpha=alpha)
    merged = run.log_probs(merge_by="text")
    for suffix, log_probs in (("", run.log_probs()), ("_merged", merged)):
        table[f"kept{suffix}"] = scores.adaptive_k(log_probs, alpha, search_alpha=run.search_alpha)
        table[f"pro{suffix}"] = scores.pro(log_probs, alpha=alpha, search_alpha=run.search_alpha)
    kept, probabilities = table["kept_merged"].to_numpy(), np.nan_to_num(np.exp(merged))
    is_kept = np.arange(merged.shape[1]) < kept[:, None]
    smallest = np.where(is_kept, probabilities, np.inf).min(axis=1)
    runner_up = np.where(is_kept, 0.0, probabilities).max(axis=1)
    certain = (kept > 0) & (runner_up + (1 - probabilities.sum(axis=1)) < smallest)
    return table.assign(changed=(table["pro"] - table["pro_merged"]).abs() > 1e-9, certain=certain)


@dataclass(frozen=True)
class Searched:
    """An exact search and beams on the same questions, judged on the same answers, row by row.

    `judged` is of the search; `beams` (n, N) are the beams' log-probabilities, `still_open` (n, M) those of prefixes
    open at the length cut, `prefixes` and `entropies` log p(v) and H(next | v) of the expanded prefixes, (n, P) each.
    """

    judged: Evaluation
    beams: np.ndarray
    still_open: np.ndarray
    prefixes: np.ndarray
    entropies: np.ndarray

    def only(self, question_ids: Sequence[str]) -> Searched:
        """Those of the questions that are named, in their order."""
        rows = self.judged.answers["question_id"].isin(set(question_ids)).to_numpy()
        arrays = {name: values[rows] for name, values in vars(self).items() if name != "judged"}
        return Searched(self.judged.only(question_ids), **arrays)

    def alpha_scores(self) -> dict[str, tuple[np.ndarray, sweeps.AlphaScore]]:
        """By name, the array a score reads and the score as a function of it and `alpha`."""
        exact, known = self.judged.log_probs, {"search_alpha": self.judged.search_alpha}
        floor = partial(scores.alpha_floor, open_log_probs=self.still_open, **known)
        return {
            "PRO, exact": (exact, partial(scores.pro, **known)),
            "PRO, beams": (self.beams, scores.pro),
            "α-floor": (exact, floor),
            "tree bound": (self.prefixes, partial(scores.tree_bound, next_entropies=self.entropies)),
            "mass not found": (exact, partial(scores.mass_not_found, **known)),
        }


def searched(
    exact: Run,
    beams: Run,
    *,
    others: Sequence[Run] = (),
    split: str | None = None,
    samples: Run | None = None,
    similarities: protocols.Similarities | None = None,
) -> Searched:
    """Line up a search and beams; the answer judged is the most probable one that any of these runs found.

    A question that either of them, or NLL or ALL, cannot score is left out. With `samples`, which judge nothing, the
    search's agreement by each of the `similarities` stands beside it, and the samples' SC and Deg (1 if all were cut).
    """
    by_search = evaluate(exact, others=[beams, *others], split=split)
    by_beams = evaluate(beams.select(question_ids=list(by_search.answers["question_id"])), others=[exact, *others])
    ids = list(by_beams.answers["question_id"])
    run, judged = exact.select(question_ids=ids), by_search.only(ids)
    if samples:
        drawn, texts = samples.select(question_ids=ids), judged.answers["text"]
        found = protocols.Answers.of(run, drawn, similarities or {}, judged=texts)
        said = found.under(protocols.PROTOCOLS["workbench"])[1].filter(regex=_AGREEMENT).dropna(axis=1, how="all")
        judged = replace(judged, baselines=judged.baselines.join(said.fillna(1.0)))
    return Searched(judged, by_beams.log_probs, run.open_log_probs(), *run.tree())


def search_benchmark(pairs: Iterable[tuple[Searched, Searched]], *, seed: int = 0) -> pd.DataFrame:
    """AUROC of the scores on exact sets and of PRO on beams, each with its α chosen on validation.

    A pair is a setting: its validation questions, and those reported. All look at one grid, from the search's α on.
    NLL and ALL are those of the search's most probable answer; with samples there are agreement, SC and Deg.
    Columns: dataset, model, split, n_questions, method, alpha, those of `metrics.bootstrap_auroc`, differences to
    `PRO, exact`, and of that and NLL auroc_least and auroc_most (`sweeps.alpha_sweep`).
    """
    return pd.concat([_benchmark(*pair, seed) for pair in pairs], ignore_index=True)


def _benchmark(validation: Searched, reported: Searched, seed: int) -> pd.DataFrame:
    grid = sweeps.alpha_grid(validation.judged.search_alpha)
    chosen, uncertainties, on_reported = {}, {}, reported.alpha_scores()
    for name, (array, score) in validation.alpha_scores().items():
        chosen[name] = sweeps.select_alpha(replace(validation.judged, log_probs=array), alphas=grid, score=score)
        array, score = on_reported[name]
        uncertainties[name] = score(array, alpha=chosen[name])
    methods = pd.DataFrame(uncertainties).join(reported.judged.baselines.filter(regex=f"NLL|ALL|{_AGREEMENT}"))
    table = metrics.bootstrap_auroc(methods, reported.judged.correct, reference="PRO, exact", seed=seed)
    table.insert(1, "alpha", table["method"].map(chosen))
    # PRO that keeps p = 1 alone is NLL.
    limits = sweeps.alpha_sweep(reported.judged, alphas=[chosen["PRO, exact"], 1.0]).set_axis(["PRO, exact", "NLL"])
    return sweeps.labelled(table.join(limits[["auroc_least", "auroc_most"]], on="method"), reported.judged)
