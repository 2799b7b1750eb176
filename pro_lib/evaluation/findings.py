"""The sentences under the figures: what a tidy table shows, and what it does not show.

Every function takes a table of `pro_lib.evaluation.tables` and returns Markdown. The rules are the
same for all of them:

- Two methods are compared by the paired difference of their AUROCs on the same questions, never by
  two separate intervals.
- A setting is a dataset and a model. Whether a difference is significant is decided for all
  settings together (Holm's correction, 5 %), and for each protocol by itself, because protocols are
  two views of the same answers and not further settings.
- A difference that is not significant was not shown. It is not called equal; the text says how
  large an effect these questions would have detected.
- Settings with fewer than 20 correct or 20 wrong answers are left out, and the text says so.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from scipy.special import ndtri

from pro_lib.common.method_labels import method_labels
from pro_lib.evaluation.settings import SettingCounts, beyond_chance, count_beyond_chance
from pro_lib.evaluation.tables.gains import BOTH_VARIED

FEWEST = 20  # correct and wrong answers that a setting needs
LEVEL = 0.05  # of the tests, for all settings together
POWER = 0.8  # with which an effect is said to be detected
EFFECT = 0.02  # the difference in AUROC whose detection the texts report
PROTOCOLS = {
    "paper": "If repeats are counted (protocol `paper`)",
    "workbench": "If each answer counts once (protocol `workbench`)",
}


# --- Statements that several notebooks share ---


def comparison(
    rows: pd.DataFrame,
    subject: str,
    reference: str,
    quantity: str,
    *,
    family: pd.DataFrame | None = None,
) -> str:
    """Return one or two sentences about the paired differences between two methods.

    Args:
        rows: a row per setting, with n_questions, n_correct, dataset, model, p_value and the
            columns `<quantity>`, `<quantity>_low` and `<quantity>_high`.
        subject: the method, such as "PRO with α chosen on validation questions".
        reference: the method that it is compared with, such as "NLL".
        quantity: the column of the difference, subject minus reference, such as auroc_minus_nll.
        family: all comparisons that Holm's correction is over, a table that has `rows` by its
            index; None for these rows alone.
    """
    kept = rows[_has_enough(rows)]
    left_out = _left_out(rows)
    if kept.empty:
        return left_out
    tests = kept if family is None else family[_has_enough(family)]
    is_significant = _significant_tests(tests).loc[kept.index]
    better = kept[is_significant & (kept[quantity] > 0)]
    worse = kept[is_significant & (kept[quantity] < 0)]
    others = kept[~is_significant]
    parts = []
    for verb, shown in (("better", better), ("worse", worse)):
        if len(shown):
            where = _in_settings(len(shown), len(kept))
            parts.append(
                f"is significantly {verb} than {reference} {where} {_values(shown, quantity)}"
            )
    if len(others):
        where = _in_settings(len(others), len(kept))
        if len(others) == len(kept) > 1:
            where = f"in any of the {len(kept)} settings"
        different = f"is not significantly different from {reference} {where}"
        parts.append(f"{different} {_values(others, quantity, len(tests))}")
    sentence = f"{subject} {'; it '.join(parts)}."
    return f"{sentence} {left_out}".strip()


def _significant_tests(tests: pd.DataFrame) -> pd.Series:
    """Return which of these tests are significant after Holm's correction over all of them."""
    return pd.Series(beyond_chance(tests["p_value"]), tests.index)


def by_protocol(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the rows of each protocol, with the words that begin a sentence about them."""
    parts = []
    for protocol, rows in table.groupby("protocol", sort=False):
        words = PROTOCOLS.get(str(protocol), f"In protocol `{protocol}`")
        parts.append((words, rows))
    return parts


def span(values: pd.Series, form: str = "{:.3f}") -> str:
    """Return the smallest and the largest value as text, or the only one."""
    low, high = (form.format(value).replace("-", "−") for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def signed_span(values: pd.Series) -> str:
    """Return the smallest and the largest difference with their signs, or the only one."""
    return span(values.round(3) + 0.0, "{:+z.3f}")


# --- The notebooks ---


def examples(repeats: pd.DataFrame, exposure: pd.DataFrame, alpha: float) -> str:
    """Return the findings of notebook 00.

    Args:
        repeats: the table of `tables.repeats`.
        exposure: the table of `tables.exposure`, which may be empty.
        alpha: the α of both tables.
    """
    rows = repeats.set_index("repeats")
    shares = rows["n_above_one"] / rows["n_questions"]
    several = f"{100 * rows.loc['left out', 'share_several']:.2f} %"
    sentences = [
        f"At α = {alpha:g}, PRO keeps more than one distinct answer for {several} of the questions; for "
        f"the others, PRO equals NLL. If repeats are counted, the probabilities of the answers sum to "
        f"more than 1 for {100 * shares['counted']:.1f} % of the questions, and to "
        f"{rows.loc['counted', 'largest_mass']:.2f} at most; without repeats, for "
        f"{100 * shares['left out']:.1f} %."
    ]
    if not exposure.empty:
        sentences.append(_exposure_sentence(exposure))
    return "\n\n".join(sentences)


def _exposure_sentence(exposure: pd.DataFrame) -> str:
    """Return the means for facts with the fewest and the most documents, none of them false."""
    consistent = exposure[exposure["conflict"] == exposure["conflict"].min()]
    accuracy = consistent[consistent["measure"] == "accuracy"].sort_values("exposure")
    scores = consistent[consistent["measure"] == "PRO"].sort_values("exposure")
    parts = []
    for place in (0, -1):
        row = accuracy.iloc[place]
        ends = f"{100 * row['mean_low']:.1f} to {100 * row['mean_high']:.1f} %"
        parts.append(
            f"{row['exposure']} training documents, {100 * row['mean']:.1f} % of the answers are correct "
            f"(95 % confidence interval {ends}) and the mean of PRO is {scores['mean'].iloc[place]:.2f} nats"
        )
    return f"For facts with {parts[0]}. With {parts[1]}."


def generated_answers(table: pd.DataFrame, alpha: float) -> str:
    """Return the findings of notebook 01 from the table of `tables.generated_answers`.

    Args:
        table: the table.
        alpha: the α at which its column k counts the answers that PRO keeps.
    """
    is_above = table["mass_with_repeats"] > 1 + 1e-6
    table = table.assign(is_above=is_above, has_several=table["k"] > 1)
    columns = ["n_answers", "n_distinct", "mass", "is_above", "has_several"]
    means = table.groupby(["dataset", "model"])[columns].mean()
    where = "" if len(means) == 1 else f" in the {len(means)} settings"
    return (
        f"A question has {span(means['n_answers'], '{:.1f}')} answers on average{where}, of which "
        f"{span(means['n_distinct'], '{:.1f}')} are distinct. The probabilities of the distinct answers sum "
        f"to {span(means['mass'], '{:.2f}')} on average. If repeats are counted, the sum is above 1 for "
        f"{_percent_span(means['is_above'])} of the questions. At α = {alpha:g}, PRO keeps more than "
        f"one answer for {_percent_span(means['has_several'])} of the questions; for the others, PRO "
        f"equals NLL."
    )


def alpha_sweep(choices: pd.DataFrame) -> str:
    """Return the findings of notebook 02 from the table of `tables.alpha_choices`."""
    paragraphs = []
    for words, rows in by_protocol(choices):
        chosen = rows[rows["alpha_choice"] == "validation"]
        default = rows[rows["alpha_choice"] == "default"]
        names = {
            "validation": "PRO with α chosen on validation questions",
            "default": f"PRO with the default α = {default['alpha'].iloc[0]:g}",
        }
        sentences = [
            f"{words}, the α chosen on validation questions is {span(chosen['alpha'], '{:g}')}.",
            comparison(chosen, names["validation"], "NLL", "auroc_minus_nll"),
        ]
        if _has_enough(rows).any():
            sentences.append(comparison(default, names["default"], "NLL", "auroc_minus_nll"))
            sentences.append(_oracle_sentence(rows[_has_enough(rows)]))
        paragraphs.append(" ".join(sentences))
    return "\n\n".join(paragraphs)


def k_vs_alpha(table: pd.DataFrame, alpha: float) -> str:
    """Return the findings of notebook 03 from the table of `tables.k_vs_alpha`.

    Args:
        table: the table.
        alpha: the default α. If the table does not have it, the nearest α is reported.
    """
    distances = (table["alpha"] - alpha).abs()
    nearest = table.loc[distances.idxmin(), "alpha"]
    sentences = []
    for words, rows in by_protocol(table):
        at_default = rows.loc[rows["alpha"] == nearest, "mean_k"]
        smallest = rows["alpha"].min()
        at_smallest = rows.loc[rows["alpha"] == smallest, "mean_k"]
        sentences.append(
            f"{words}, PRO keeps {span(at_default, '{:.2f}')} answers of a question on average at "
            f"α = {nearest:g}, and {span(at_smallest, '{:.2f}')} at α = {smallest:g}."
        )
    return "\n\n".join(sentences)


def fixed_k(table: pd.DataFrame) -> str:
    """Return the findings of notebook 04 from the table of `tables.fixed_k`."""
    paragraphs = []
    for words, rows in by_protocol(table):
        fixed = rows[rows["k_choice"] == "fixed"]
        adaptive = rows[rows["k_choice"] == "adaptive"]
        largest = fixed["k"].max()
        sentences = [f"{words}:"]
        if largest > 1:
            most_answers = fixed[fixed["k"] == largest]
            subject = f"PRO with K = {largest} for every question"
            sentences.append(comparison(most_answers, subject, "NLL (K = 1)", "auroc_minus_nll"))
        if _has_enough(rows).any():
            subject = "PRO with adaptive K (α chosen on validation questions)"
            sentences.append(comparison(adaptive, subject, "NLL", "auroc_minus_nll"))
        paragraphs.append(" ".join(sentences))
    return "\n\n".join(paragraphs)


def rouge_thresholds(table: pd.DataFrame) -> str:
    """Return the findings of notebook 05 from the table of `tables.rouge_thresholds`."""
    paragraphs = []
    for words, rows in by_protocol(table):
        ends = sorted({rows["rouge_threshold"].min(), rows["rouge_threshold"].max()})
        sentences = [f"{words}:"]
        for threshold in ends:
            at_end = rows[(rows["method"] == "PRO") & (rows["rouge_threshold"] == threshold)]
            subject = f"At ROUGE-L > {threshold:g}, PRO with α chosen on validation questions"
            sentences.append(comparison(at_end, subject, "NLL", "auroc_minus_nll"))
        if len(ends) > 1:
            sentences.append(_order_sentence(rows, *ends))
        paragraphs.append(" ".join(filter(None, sentences)))
    return "\n\n".join(paragraphs)


def _order_sentence(rows: pd.DataFrame, first: float, last: float) -> str:
    """Return how far the threshold moves AUROCs and their order, in settings with enough answers."""
    setting = ["dataset", "model"]
    has_enough = _has_enough(rows).groupby([rows[name] for name in setting]).transform("all")
    kept = rows[has_enough]
    if kept.empty:
        return ""
    by_method = kept.assign(label=method_labels(kept)).pivot_table(
        index=[*setting, "label"], columns="rouge_threshold", values="auroc"
    )
    moves = by_method.max(axis=1) - by_method.min(axis=1)
    dataset, model, label = moves.idxmax()
    where = f"({label}, {model} on {dataset})"
    text = f"The threshold changes no AUROC by more than {moves.max():.3f} {where}."
    taus = pd.Series(
        [
            part[first].corr(part[last], method="kendall")
            for _, part in by_method.groupby(setting, sort=False)
        ]
    ).dropna()
    if taus.empty:
        return f"{text} The order of the methods cannot be compared, because they tie."
    return (
        f"{text} Kendall's τ between the order of the methods at {first:g} and that at {last:g} is "
        f"{span(taus, '{:.2f}')} (1 is the same order). Whether the threshold changes the order of "
        f"two methods was not tested."
    )


def benchmark(table: pd.DataFrame, redraws: pd.DataFrame) -> str:
    """Return the findings of notebook 06.

    Args:
        table: the table of `tables.benchmark`.
        redraws: the table of `tables.redraws` of AUROC.
    """
    paragraphs = []
    for words, rows in by_protocol(table):
        protocol = rows["protocol"].iloc[0]
        is_further_row = rows["alpha_choice"].isin(["default", "oracle"])
        is_reference = (rows["method"] == "PRO") & ~is_further_row
        others = rows[~is_further_row & ~is_reference]
        enough = others[_has_enough(others)]
        nll = _reversed_to_nll(others[others["method"] == "NLL"])
        sentences = [f"{words}:"]
        if len(nll):
            subject = "PRO with α chosen on validation questions"
            sentences.append(comparison(nll, subject, "NLL", "auroc_minus_nll", family=others))
        else:
            sentences.append(_left_out(rows[is_reference]))
        if len(enough):
            sentences.append(_n_differ_sentence(nll[_has_enough(nll)]))
            sentences.append(_redraws_sentence(redraws[redraws["protocol"] == protocol]))
        paragraphs.append(" ".join(text for text in sentences if text))
        paragraphs += _method_sentences(enough)
    return "\n\n".join(paragraphs)


def _reversed_to_nll(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of NLL minus PRO with the columns of PRO minus NLL."""
    return rows.assign(
        auroc_minus_nll=-rows["auroc_minus_pro"],
        auroc_minus_nll_low=-rows["auroc_minus_pro_high"],
        auroc_minus_nll_high=-rows["auroc_minus_pro_low"],
    )


def _n_differ_sentence(nll: pd.DataFrame) -> str:
    """Return on how many questions PRO and NLL differ."""
    if nll.empty:
        return ""
    sentence = f"The two scores differ on {span(nll['n_differ'], '{:,.0f}')} questions of a setting"
    n_same = int((nll["n_differ"] == 0).sum())
    if n_same:
        sentence = (
            f"{sentence}; {_in_settings(n_same, len(nll))} they are the same on every question"
        )
    return f"{sentence}."


def _redraws_sentence(redraws: pd.DataFrame) -> str:
    """Return how often α that is chosen on other validation questions gives PRO the higher AUROC."""
    shares = redraws.loc[_has_enough(redraws), "share_better_than_nll"].dropna()
    if shares.empty:
        return (
            "The validation questions cannot be redrawn, so it is not known how much the choice of α "
            "changes the AUROC of PRO."
        )
    return (
        f"If α is chosen on other validation questions, the AUROC of PRO on the same reported "
        f"questions is above that of NLL in {_percents(shares)} of the redraws, by however little."
    )


def _method_sentences(others: pd.DataFrame) -> list[str]:
    """Return which methods are significantly better or worse than PRO, and which intervals are below 0.5."""
    others = others.assign(label=method_labels(others), is_significant=_significant_tests(others))
    others = others[others["method"] != "NLL"]
    n_settings = others.groupby("label", sort=False).size()
    difference = others["auroc_minus_pro"]
    sentences = []
    for verb, has_sign in (("better", difference > 0), ("worse", difference < 0)):
        parts = []
        for label, shown in others[others["is_significant"] & has_sign].groupby(
            "label", sort=False
        ):
            where = _in_settings(len(shown), n_settings[label])
            parts.append(f"{label} {where} {_values(shown, 'auroc_minus_pro')}")
        if parts:
            items = "\n".join(f"- {part}" for part in parts)
            sentences.append(f"Significantly {verb} than PRO:\n\n{items}")
    is_open = ~others.groupby("label")["is_significant"].transform("any")
    if is_open.any():
        names = ", ".join(dict.fromkeys(others.loc[is_open, "label"]))
        values = _values(others[is_open], "auroc_minus_pro")
        sentences.append(
            f"No significant difference to PRO was shown in any setting for {names} {values}."
        )
    below = others[others["auroc_high"] < 0.5].groupby("label", sort=False).size()
    if len(below):
        parts = [
            f"{label} {_in_settings(number, n_settings[label])}" for label, number in below.items()
        ]
        sentences.append(
            f"Worse than chance, with a 95 % interval of AUROC that is entirely below 0.5: "
            f"{', '.join(parts)} (each interval by itself)."
        )
    return sentences


def exact_search(table: pd.DataFrame, bounds: pd.DataFrame, aurocs: pd.DataFrame) -> str:
    """Return the findings of notebook 07.

    Args:
        table: the table of `tables.exact_search`.
        bounds: the table of `tables.entropy_bounds`.
        aurocs: the table of `tables.exact_search_auroc`.
    """
    found = []
    for alpha in dict.fromkeys((table["alpha"].max(), table["alpha"].min())):
        rows = table[table["alpha"] == alpha]
        certified = _percent_span(rows["share_certified"])
        recall = rows["recall"].dropna()
        beams = f"beams find {_percent_span(recall)} of the answers with p ≥ α"
        if recall.empty:
            beams = "no answer has p ≥ α"
        found.append(f"At α = {alpha:g}, {beams}, and {certified} of the questions are certified.")
    compared = []
    scores = _search_scores(aurocs[_has_enough(aurocs)])
    for subject, rows in scores.items():
        if len(rows):
            exact = "PRO of the exact search"
            compared.append(comparison(rows, subject, exact, "auroc_minus_pro"))
    one_per_setting = aurocs[aurocs["method"] == "NLL"]
    paragraphs = [" ".join(found), _bounds_sentences(bounds), *compared, _left_out(one_per_setting)]
    return "\n\n".join(text for text in paragraphs if text)


def _search_scores(aurocs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each score that is compared with PRO of the exact search."""
    is_pro = aurocs["method"] == "PRO"
    is_exact = aurocs["strategy"] == "threshold"
    has_same_alpha = aurocs["alpha_choice"] == "exact search"
    own_alpha = "PRO of beams, with its own α chosen on validation questions,"
    scores = {
        own_alpha: aurocs[is_pro & ~is_exact & ~has_same_alpha],
        "PRO of beams at the α of the search": aurocs[is_pro & has_same_alpha],
    }
    names = {
        "NLL": "NLL",
        "α-floor": "The α-floor",
        "tree bound": "The tree bound",
        "probability not found": "The probability not found",
    }
    for method, subject in names.items():
        scores[subject] = aurocs[aurocs["method"] == method]
    return scores


def _bounds_sentences(bounds: pd.DataFrame) -> str:
    certified = bounds[bounds["n_certified"] > 0]
    if certified.empty:
        return "No question is certified at any α, so the bounds are not compared."
    n_pairs = certified["n_certified"].sum()
    n_violations = n_pairs - certified["n_ordered"].sum()
    order = "PRO ≤ α-floor ≤ tree bound holds for every certified question at every α."
    if n_violations:
        order = (
            f"PRO ≤ α-floor ≤ tree bound is violated in {n_violations:,} of {n_pairs:,} cases (a "
            f"certified question at one α), which contradicts the proof."
        )
    known = certified.dropna(subset=["entropy_minus_tree_bound_low"])
    if known.empty:
        return f"{order} The interval of the entropy is unknown."
    low = _signed(known["entropy_minus_tree_bound_low"].min())
    high = _signed(known["entropy_minus_tree_bound_high"].max())
    deepest = known[known["alpha"] == known["alpha"].min()]
    width = span(deepest["entropy_interval_width"], "{:.2f}")
    return (
        f"{order} The mean entropy, estimated by samples, minus the mean tree bound is "
        f"{signed_span(known['entropy_minus_tree_bound'])} nats (95 % confidence intervals within "
        f"{low} to {high}). The entropy of a single question is known less well: at "
        f"α = {known['alpha'].min():g} its 95 % interval is {width} nats wide on average."
    )


def guarantees(table: pd.DataFrame) -> str:
    """Return the findings of notebook 09 from the table of `tables.guarantees`."""
    confidence = f"{100 * table['confidence'].iloc[0]:g} % confidence, each by itself"
    n_settings = len(table[["dataset", "model"]].drop_duplicates())
    methods = "methods" if n_settings == 1 else "pairs of a method and a setting"
    sentences = []
    for target, rows in table.groupby("target"):
        goal = f"An accuracy of at least {_percent(target)} is guaranteed"
        made = rows[rows["threshold"].notna()]
        if made.empty:
            reason = "the validation questions do not show it"
            sentences.append(f"{goal} for none of the {len(rows)} {methods}: {reason}.")
            continue
        below = int((made["accuracy_high"] < target).sum())
        sentences.append(
            f"{goal} for {len(made)} of {len(rows)} {methods} ({confidence}). They answer "
            f"{_percent_span(made['coverage'])} of the questions, and {_percent_span(made['accuracy'])} of "
            f"these answers are correct. The 95 % interval of this accuracy is entirely below the "
            f"target for {below} of these {len(made)}."
        )
    return "\n\n".join(sentences)


def answer_sets(table: pd.DataFrame) -> str:
    """Return the findings of notebook 09 from the table of `tables.answer_sets`; empty if it is."""
    if table.empty:
        return ""
    sentences = []
    for delta, rows in table.dropna(subset=["delta"]).groupby("delta"):
        goal = f"Sets that may miss every correct answer for at most {_percent(delta)} of the questions"
        issued = rows.dropna(subset=["alpha"])
        if issued.empty:
            reason = "the search finds a correct answer for too few validation questions"
            sentences.append(f"{goal} cannot be issued: {reason}.")
            continue
        where = "" if len(rows) == 1 else f" {_in_settings(len(issued), len(rows))}"
        ends = pd.concat([issued["missed_low"], issued["missed_high"]])
        sentences.append(
            f"{goal} consist of the answers with p ≥ {span(issued['alpha'])}{where}. They miss "
            f"{_percent_span(issued['missed'])} (95 % confidence interval {_percent_span(ends)}), and have "
            f"{span(issued['set_size'], '{:.1f}')} answers on average."
        )
    return "\n\n".join(sentences)


def entropies(table: pd.DataFrame) -> str:
    """Return the findings of notebook 09 from the table of `tables.entropies`; empty if it is."""
    if table.empty:
        return ""
    table = table.assign(width=table["entropy_high"] - table["entropy_low"])
    by_setting = table.groupby(["dataset", "model"], sort=False)
    means = by_setting[["entropy", "tree_bound", "width"]].mean()
    sentence = (
        f"The entropy is {span(means['entropy'], '{:.2f}')} nats on average over questions; the "
        f"tree bound of the search is {span(means['tree_bound'], '{:.2f}')} nats."
    )
    if means["width"].isna().any():
        return f"{sentence} One sample does not give an interval."
    width = span(means["width"], "{:.1f}")
    return f"{sentence} The 95 % limits of a single question are {width} nats apart on average."


def when_does_pro_help(worlds: pd.DataFrame, causes: pd.DataFrame) -> str:
    """Return the findings of notebook 08.

    Args:
        worlds: the table of `tables.worlds`.
        causes: the table of `tables.causes`.
    """
    return "\n\n".join([_worlds_sentences(worlds), _causes_sentences(causes)])


def worlds_title(rows: pd.DataFrame, family: pd.DataFrame) -> str:
    """Return the title of a figure of some worlds: in how many of them PRO is better than NLL.

    Args:
        rows: the rows of `tables.worlds` that the figure shows.
        family: the whole table; Holm's correction is for all comparisons in it.
    """
    counts = _count_worlds(rows, family)
    where = f"{counts.higher} of {counts.n_settings} simulated worlds"
    return f"PRO is significantly better than NLL, at some α or K, in {where}"


def _one_per_world(worlds: pd.DataFrame) -> pd.DataFrame:
    """Return each comparison once; the base world stands in several groups of the table."""
    return worlds.drop_duplicates(["world", "k_choice", "k", "alpha"])


def _count_worlds(rows: pd.DataFrame, family: pd.DataFrame) -> SettingCounts:
    every = _one_per_world(family)
    some = every[every["world"].isin(rows["world"])]
    return count_beyond_chance(some, family=every, difference="auroc_minus_nll", by=["world"])


def _worlds_sentences(worlds: pd.DataFrame) -> str:
    every = _one_per_world(worlds)
    counts = _count_worlds(worlds, worlds)
    scores = _listed(dict.fromkeys(_score_names(every)))
    most = every.loc[every["auroc_minus_nll"].idxmax()]
    low, high = (_signed(most[f"auroc_minus_nll_{end}"]) for end in ("low", "high"))
    is_ideal = (every["calibration"] == 1) & (every["n_spellings"] == 1)
    ideal = every[is_ideal]
    ideal_counts = _count_worlds(ideal, worlds)
    sentences = [
        f"PRO with at least one of the choices {scores} is significantly better than NLL in "
        f"{counts.higher} of {counts.n_settings} simulated worlds. It is significantly worse with at "
        f"least one of them in {counts.lower}.",
        f"The largest gain is {_signed(most['auroc_minus_nll'])} (95 % confidence interval {low} to "
        f"{high}), with {_score_names(most.to_frame().T)[0]} in the world with {_world_name(most)}. "
        f"It is the largest of {len(every)} values, so part of it is chance.",
    ]
    if len(ideal):
        sentences.append(
            f"In the {ideal_counts.n_settings} worlds of a calibrated model with one spelling of each "
            f"meaning, PRO is significantly better in {ideal_counts.higher} and significantly worse in "
            f"{ideal_counts.lower} (differences {signed_span(ideal['auroc_minus_nll'])})."
        )
    return " ".join(sentences)


def _causes_sentences(causes: pd.DataFrame) -> str:
    """Return a list with a line per cause; Holm's correction is for all comparisons in it."""
    setting = causes.iloc[:1]
    if not _has_enough(setting).all():
        return _left_out(setting)
    is_significant = _significant_tests(causes)
    row = setting.iloc[0]
    lines = [f"{row['model']} on {row['dataset']}, {row['n_questions']:,} questions:\n"]
    for cause, rows in causes.groupby("cause", sort=False):
        difference = rows["auroc_minus_nll"]
        parts = []
        for words, chosen in (
            ("significantly better than NLL", is_significant[rows.index] & (difference > 0)),
            ("significantly worse than NLL", is_significant[rows.index] & (difference < 0)),
            ("not significantly different from NLL", ~is_significant[rows.index]),
        ):
            shown = rows[chosen]
            if len(shown):
                scores = _listed(_score_names(shown))
                parts.append(f"{words} with {scores} {_values(shown, 'auroc_minus_nll')}")
        lines.append(f"- {str(cause).capitalize()}: PRO is {'; it is '.join(parts)}.")
    return "\n".join(lines)


def _score_names(rows: pd.DataFrame) -> list[str]:
    """Return the choice of K of each row, such as "K = 2" or "α = 0.4"."""
    names = []
    for row in rows.to_dict("records"):
        is_adaptive = row["k_choice"] == "adaptive"
        names.append(f"α = {row['alpha']:g}" if is_adaptive else f"K = {row['k']}")
    return names


def _world_name(row: pd.Series) -> str:
    if row["varied"] == BOTH_VARIED:
        return f"calibration {row['calibration']:g} and {row['level']} spellings of each meaning"
    return f"{row['varied']} {row['level']}"


def _listed(names: Iterable[str]) -> str:
    """Join names as "a, b and c"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _oracle_sentence(rows: pd.DataFrame) -> str:
    setting = ["dataset", "model"]
    aurocs = rows.pivot_table(index=setting, columns="alpha_choice", values="auroc", sort=False)
    gains = aurocs["oracle"] - aurocs["validation"]
    return (
        f"The oracle, the best α on the reported questions themselves, has an AUROC that is "
        f"{signed_span(gains)} higher than the α chosen on validation questions. Part of this gain "
        f"is chance, because the same questions choose α and measure it."
    )


# --- Parts of sentences ---


def _has_enough(rows: pd.DataFrame) -> pd.Series:
    wrong = rows["n_questions"] - rows["n_correct"]
    return (rows["n_correct"] >= FEWEST) & (wrong >= FEWEST)


def _left_out(rows: pd.DataFrame) -> str:
    """Return the sentence about settings with too few answers; empty if there are none."""
    few = rows[~_has_enough(rows)]
    if few.empty:
        return ""
    names = ", ".join(f"{row.model} on {row.dataset}" for row in few.itertuples())
    verb = "setting has" if len(few) == 1 else "settings have"
    reason = f"fewer than {FEWEST} correct or {FEWEST} wrong answers"
    return f"{len(few)} {verb} {reason}, too few for a statement ({names})."


def _in_settings(number: int, total: int) -> str:
    if total == 1:
        return "in the only setting"
    if number == total:
        return f"in all {total} settings"
    return f"in {number} of {total} settings"


def _values(rows: pd.DataFrame, quantity: str, n_tests: int | None = None) -> str:
    """Return the differences in parentheses; with `n_tests` also what would have been detected."""
    if len(rows) == 1:
        [row] = rows.to_dict("records")
        low, high = (_signed(row[f"{quantity}_{end}"]) for end in ("low", "high"))
        text = f"difference {_signed(row[quantity])}, 95 % confidence interval {low} to {high}"
    else:
        low, high = rows[f"{quantity}_low"].min(), rows[f"{quantity}_high"].max()
        limits = f"95 % confidence intervals within {_signed(low)} to {_signed(high)}"
        text = f"differences {signed_span(rows[quantity])}, {limits}"
    if n_tests is not None:
        text = f"{text}; {_detectable(rows, quantity, n_tests)}"
    return f"({text})"


def _percent_span(shares: pd.Series) -> str:
    return f"{span(100 * shares, '{:.1f}')} %"


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _percents(shares: pd.Series) -> str:
    """Return the smallest and the largest share in percent, or the only one."""
    return f"{span(100 * shares, '{:.0f}')} %"


def _signed(value: float) -> str:
    return f"{value:+z.3f}".replace("-", "−")


def _detectable(rows: pd.DataFrame, quantity: str, n_tests: int) -> str:
    """Return in how many settings an effect would have been detected with a probability of 80 %."""
    width = rows[f"{quantity}_high"] - rows[f"{quantity}_low"]
    standard_error = width / (2 * ndtri(0.975))
    smallest = (ndtri(1 - LEVEL / (2 * n_tests)) + ndtri(POWER)) * standard_error
    number = int((smallest <= EFFECT).sum())
    effect = f"an effect of {EFFECT:g} or more"
    if number == 0:
        needed = span(smallest, "{:.2f}")
        return f"there are too few questions to detect {effect}, only effects of about {needed}"
    if len(rows) == 1:
        return f"{effect} would have been detected"
    where = "all of them" if number == len(rows) else f"{number} of them"
    return f"{effect} would have been detected in {where}"
