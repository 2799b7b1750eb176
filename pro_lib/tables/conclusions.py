"""What came out, in sentences made from the numbers of tables, whichever way they point; knows no run and no score."""

import numpy as np
import pandas as pd


def against(table: pd.DataFrame, method: str, *, subject: str = "PRO") -> str:
    """Where the subject exceeds a method, falls below it or cannot be told apart: `difference` to it, _low, _high."""
    rows = table[table["method"] == method]
    gain, low, high = -rows["difference"], -rows["difference_high"], -rows["difference_low"]
    verdicts = np.select([low > 0, high < 0], ["exceeds", "falls below"], "cannot be told apart from")
    said = _settings(rows) + [f" ({d:+.3f} [{of:+.3f}, {to:+.3f}])" for d, of, to in zip(gain, low, high, strict=True)]
    parts = {f"{subject} {verdict} {method}": said[verdicts == verdict] for verdict in dict.fromkeys(verdicts)}
    return " ".join(f"{verdict} in {len(of)} of {len(rows)}: {'; '.join(of)}." for verdict, of in parts.items())


def best(table: pd.DataFrame) -> str:
    """Of `sweeps.benchmark`: which method is best where; the oracle is none."""
    rows = table[~table["method"].str.contains("oracle")]
    tops = rows.loc[rows.groupby(_settings(rows), sort=False)["auroc"].idxmax()]
    named = tops["method"] + tops["auroc"].map(" ({:.3f}; ".format) + _settings(tops) + ")"
    return f"PRO is best in {tops['method'].str.startswith('PRO').sum()} of {len(tops)}. Best are {'; '.join(named)}."


def chosen(choices: pd.DataFrame, sweep: pd.DataFrame) -> str:
    """Of `sweeps.alpha_choices` and `alpha_sweep` on one split: what choosing α is worth beside NLL, which is α = 1."""
    index = choices.columns.intersection(["dataset", "model", "protocol"]).to_list()
    of = choices.pivot_table(index=index, columns="kind", values="auroc", sort=False)
    nll = sweep[sweep["alpha"] == 1].set_index(index)["auroc"]
    alphas = choices.loc[choices["kind"] == "selected", "alpha"]
    ends = (of["selected"] - nll, of["default"] - nll, of["oracle"] - of["selected"])
    selected, default, oracle = (span(each, "+.3f") for each in ends)
    return (
        f"The α chosen is {span(alphas, 'g')}. AUROC minus NLL's is {selected} with it and {default} with the default. "
        f"Choosing on the reported questions themselves would have added {oracle}."
    )


def kept(sweep: pd.DataFrame, alpha: float) -> str:
    """Of `sweeps.k_sweep`: how many answers a question keeps at the α nearest to the one named, and at the smallest."""
    ends = {sweep.loc[(sweep["alpha"] - at).abs().idxmin(), "alpha"] for at in (alpha, 0)}
    by, parts = ["alpha", *sweep.columns.intersection(["protocol"])], []
    for (at, *protocol), rows in sweep[sweep["alpha"].isin(ends)].groupby(by, sort=False):
        counted = "".join(f" in protocol `{name}`" for name in protocol)
        parts.append(f"{span(rows['mean_kept'])} at α = {at:g}{counted}")
    return f"Answers that a question keeps, the mean of each setting: {'; '.join(parts)}."


def fixed(sweep: pd.DataFrame) -> str:
    """Of `sweeps.fixed_k_sweep`: which K is best and worst, and what adaptive K adds to the best."""
    parts = []
    for name, rows in sweep.groupby(_settings(sweep), sort=False):
        by_k = rows.set_index("k")["auroc"].astype(float)
        more = by_k.pop("adaptive") - by_k.max()
        top, low = (f"K = {at} ({by_k[at]:.3f})" for at in (by_k.idxmax(), by_k.idxmin()))
        parts.append(f"{name}: best at {top}, worst at {low}, adaptive {more:+.3f} beside the best")
    return f"{'; '.join(parts)}."


def thresholds(sweep: pd.DataFrame) -> str:
    """Of `sweeps.rouge_threshold_sweep`: how far AUROCs move with the bar, and whether the order of methods does."""
    rows = sweep.assign(setting=_settings(sweep))
    of = rows.pivot_table(index=["setting", "method"], columns="threshold", values="auroc")
    moved, (first, *_, last) = of.max(axis=1) - of.min(axis=1), of.columns
    ranks = of.groupby(level="setting").apply(lambda each: each[first].corr(each[last], method="kendall"))
    (setting, method), order = moved.idxmax(), "stays" if ranks.min() > 0.9 else "changes"
    return (
        f"From {first:g} to {last:g} no AUROC moves by more than {moved.max():.3f} ({method}; {setting}). The order of "
        f"the methods {order}: Kendall's τ between these two bars is {span(ranks)}."
    )


def searched(recall: pd.DataFrame, costs: pd.DataFrame, bounds: pd.DataFrame, table: pd.DataFrame) -> str:
    """Of the tables of notebook 07: what beams find, what is certified, whether the bounds are in order, and AUROC."""
    by_alpha = (table.groupby("alpha")[name].mean() for table, name in ((recall, "recall"), (costs, "certified")))
    ends = pd.concat(by_alpha, axis=1).iloc[[-1, 0]]
    said = (f"{at.recall:.1%} and {at.certified:.1%} at α = {at.Index:g}" for at in ends.itertuples())
    order = bounds[["pro", "alpha_floor", "tree_bound", "entropy"]].diff(axis=1).iloc[:, 1:].ge(-1e-9).all(axis=1)
    known = bounds.loc[bounds["alpha"] == bounds["alpha"].min(), ["width", "anytime_width"]]
    widths = " and ".join(span(known[name]) for name in known)
    return (
        f"Answers with p ≥ α that the beams found, and questions certified: {', '.join(said)}. PRO ≤ α-floor ≤ tree "
        f"bound ≤ H in {order.sum()} of {len(order)} rows. The limits of a certified question's H lie {widths} nats "
        f"apart, Student's and such as hold at any time. {against(table, 'PRO, beams', subject='PRO, exact')}"
    )


def helps(worlds: pd.DataFrame, causes: pd.DataFrame, regrets: pd.DataFrame) -> str:
    """Of the tables of notebook 08: where PRO exceeds NLL in simulation, what moves it here, what the rule is worth."""
    most, calibrated = worlds.loc[worlds["gain"].idxmax()], worlds.loc[worlds["panel"] == "sharpness", "gain"]
    n, above = (len(rows.drop_duplicates(["panel", "level"])) for rows in (worlds, worlds[worlds["low"] > 0]))
    as_it_is, moved = causes.loc[causes["cause"] == "as it is", "gain"], causes.loc[causes["change"].abs().idxmax()]
    cannot = ", ".join(causes.loc[causes["score"].isna(), "cause"]) or "nothing"
    means = regrets.groupby("policy", sort=False)[["took", "regret"]].mean()
    lost = ", ".join(f"{policy} {regret:.4f}" for policy, regret in means["regret"].sort_values().items())
    return (
        f"In {above} of {n} worlds the AUROC of some PRO lies above NLL's, its interval too, most in {most['panel']} "
        f"{most['level']} ({most['score']}, {most['gain']:+.3f}); in those of a calibrated model with one spelling of "
        f"each answer, however sharp, the difference is {span(calibrated, '+.3f')}.\n\n"
        f"On the setting looked into it is {span(as_it_is, '+.3f')}; of the causes removed alone *{moved['cause']}* "
        f"moves it most ({moved['score']}, {moved['change']:+.3f} [{moved['low']:+.3f}, {moved['high']:+.3f}]), and "
        f"{cannot} cannot be had on this data.\n\nFrom the validation questions the rule takes PRO in "
        f"{means.loc['the rule', 'took']:.0%} of the redraws, and the mean regrets are: {lost}."
    )


def promised(promises: pd.DataFrame, sets: pd.DataFrame, agreements: pd.DataFrame, entropies: pd.DataFrame) -> str:
    """Of the tables of notebook 09, the last three of which may be empty: what may be relied on, and what may not."""
    said = []
    for target, rows in promises.groupby("target"):
        made = rows[rows["threshold"].notna()]
        best, kept = made.nlargest(1, "coverage"), (made["accuracy"] >= target).sum()
        most = "".join(f", most by {each.method} ({each.coverage:.0%})" for each in best.itertuples())
        shown = f" More than that was right of what {kept} of them answered." * bool(len(made))
        said.append(
            f"{target:.0%} right is promised by {len(made)} of {len(rows)} scores, each by itself{most}.{shown}"
        )
    for each in sets[sets["delta"].notna()].itertuples() if len(sets) else ():
        issued = f"p ≥ {each.alpha:.3f}, {each.size:.1f} answers in the mean, miss {each.missed:.1%}"
        said.append(f"Sets that may miss {each.delta:.0%}: {issued if each.alpha == each.alpha else 'none is issued'}.")
    for name, rows in agreements.groupby(["similarity", "of"], sort=False) if len(agreements) else ():
        at = rows.loc[rows["alpha"].idxmin()]
        cost = f"{at['search_forwards']:.0f} token-forwards, ten draws {at['sample_forwards']:.0f}"
        said.append(
            f"Agreement ({', '.join(name)}) is certain within {at['width']:.3f} at α = {at['alpha']:g} ({cost}); "
            f"{at['outside']:.0%} of the draws' estimates lie outside, {at['distance']:.3f} in the mean of all."
        )
    if len(entropies):
        ends = {"Student's": "", "at any time": "anytime_"}
        widths = {name: (entropies[f"{of}high"] - entropies[f"{of}low"]).mean() for name, of in ends.items()}
        apart = ", ".join(f"{width:.1f} nats ({name})" for name, width in widths.items())
        said.append(f"The entropy is {entropies['estimate'].mean():.2f} nats in the mean, its limits apart by {apart}.")
    return "\n\n".join(said)


def span(values: pd.Series, form: str = ".2f") -> str:
    """The least and the largest value, or the one that there is."""
    return " to ".join(dict.fromkeys(f"{end:{form}}" for end in (values.min(), values.max())))


def _settings(table: pd.DataFrame) -> pd.Series:
    return table.reindex(columns=["dataset", "model", "protocol"]).dropna(axis=1).agg(", ".join, axis=1)
