"""The paper's five figures: table in, Matplotlib figure out; knows no number but those of its tables."""

import pandas as pd

from pro_lib.panels import (
    ALPHA_LABEL,
    COLORS,
    PRINTED,
    Figure,
    alpha_axis,
    by_protocol,
    curves,
    difference_axis,
    explain,
    handles,
    look,
    minus_nll,
    name_rows,
    note,
    panels,
    plt,
    values,
    where,
)

PAPER_METHODS = ("PRO", "NLL", "ALL", "PE", "NE", "SE", "SD", "Deg")
# Marker, size and name of a chosen α; the smaller lies upon the larger, so that all are seen where they meet.
_CHOICES = {"selected": ("o", 3, "chosen on validation"), "default": ("s", 6, "default"), "oracle": ("*", 11, "oracle")}


def auroc_vs_alpha(
    sweep: pd.DataFrame, choices: pd.DataFrame, paper: pd.DataFrame | None = None, *, columns: int = 2
) -> Figure:
    """Draw AUROC of PRO against α: a row per split, a column per dataset and protocol, a line per model.

    `sweep` is of `sweeps.alpha_sweep`, `choices` of `sweeps.alpha_choices`; `paper`, what the paper chose and printed
    for the same settings, is filled with grey.
    """
    models, mark = values(sweep, "model"), {"mfc": "white", "mew": 1.1, "ls": "", "clip_on": False}
    by = ["split", "dataset", *by_protocol(sweep)]
    with panels(sweep, *by, columns=columns, sharex=True, sharey=True) as (figure, grid):
        for ax, setting, panel in grid:
            curves(ax, panel, "model", models, "alpha", marker="")
            for choice in where(choices, setting).itertuples():
                (marker, size, _), color = _CHOICES[choice.kind], look(models.index(choice.model))["color"]
                ax.plot(choice.alpha, choice.auroc, marker=marker, ms=size, mec=color, zorder=16 - size, **mark)
            if paper is not None:
                printed = {"marker": "o", "mfc": PRINTED["color"], "ms": 5, "ls": ""}
                curves(ax, paper[paper["dataset"] == setting["dataset"]], "model", models, "alpha", **printed)
            alpha_axis(ax)
        kinds = [_CHOICES[kind] for kind in _CHOICES if kind in set(choices["kind"])]
        marks = [plt.Line2D([], [], label=name, marker=sign, ms=size, mec="k", **mark) for sign, size, name in kinds]
        explain(figure, [*handles(models, paper, marker=""), *marks], ALPHA_LABEL, "AUROC, 95 % interval")
    return figure


def k_vs_alpha(sweep: pd.DataFrame, *, columns: int = 2) -> Figure:
    """Draw the mean number of answers kept against α, of `sweeps.k_sweep`: a panel per dataset, a line per model."""
    models = values(sweep, "model")
    with panels(sweep, "dataset", *by_protocol(sweep), columns=columns, sharex=True, sharey=True) as (figure, grid):
        for ax, _, panel in grid:
            curves(ax, panel, "model", models, "alpha", "mean_kept", lw=1, clip_on=False)
            ax.axhline(1, color="black", lw=0.6, ls=":")
            alpha_axis(ax)
        explain(figure, handles(models, lw=1), ALPHA_LABEL, "mean K, 95 % interval")
    return figure


def fixed_k(sweep: pd.DataFrame, paper: pd.DataFrame | None = None, *, columns: int = 2) -> Figure:
    """Draw AUROC of PRO at fixed K beside adaptive PRO, of `sweeps.fixed_k_sweep`; adaptive K stands at the right."""
    adaptive, sweep = sweep[sweep["k"] == "adaptive"], sweep[sweep["k"] != "adaptive"].astype({"k": int})
    models, ks = values(sweep, "model"), sorted(sweep["k"].unique())
    right, lined = ks[-1] + 1.6, {"by": "model", "names": models, "x": "k", "apart": 0.16}
    with panels(sweep, "dataset", *by_protocol(sweep), columns=columns, sharex=True, sharey=True) as (figure, grid):
        for ax, setting, panel in grid:
            points = where(adaptive, setting).assign(k=right)
            curves(ax, panel, bars=True, **lined)
            curves(ax, points, bars=True, **lined, ls="")
            for point in points.itertuples():
                ax.axhline(point.auroc, color=look(models.index(point.model))["color"], lw=0.6, ls=":")
            if paper is not None:
                printed = paper[paper["dataset"] == setting["dataset"]]
                curves(ax, printed.assign(k=printed["k"].astype(float).fillna(right)), **lined, **PRINTED)
            ax.axvline(ks[-1] + 0.8, color="black", lw=0.6)
            ax.set_xticks([*ks, right], [*map(str, ks), "adapt."])
        explain(figure, handles(models, paper), "K, answers used", "AUROC, 95 % interval")
    return figure


def rouge_thresholds(sweep: pd.DataFrame, paper: pd.DataFrame | None = None, *, columns: int = 2) -> Figure:
    """Draw AUROC of every method, minus NLL's, against the threshold, of `sweeps.rouge_threshold_sweep`."""
    methods = [name for name in values(sweep, "method") if name != "NLL"]
    lined = {"by": "method", "x": "threshold", "apart": 0.006, "y": "difference", "of": "difference_"}
    by = ["model", "dataset", *by_protocol(sweep)]
    with panels(sweep, *by, columns=columns, sharey=True) as (figure, grid):
        for ax, setting, panel in grid:
            curves(ax, minus_nll(panel, "threshold", "auroc"), names=methods, bars=True, **lined)
            if paper is not None:
                bare = [method.split(", ")[0] for method in methods]
                printed = where(paper, {name: setting[name] for name in ("model", "dataset")})
                curves(ax, minus_nll(printed, "threshold", "auroc"), names=bare, **lined, **PRINTED)
            difference_axis(ax)
            at = panel.drop_duplicates("threshold").sort_values("threshold")
            ax.set_xticks(at["threshold"], [f"{row.threshold:g}\n({row.accuracy:.0%})" for row in at.itertuples()])
        label = "AUROC minus NLL's, 95 % interval\n(log scale beyond ±0.05)"
        explain(figure, handles(methods, paper), "right if ROUGE-L > threshold (share right)", label)
    return figure


def benchmark(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """Draw AUROC of the paper's eight methods and at most four more, with interval and value: a panel per setting.

    `table` is of `sweeps.benchmark`. Methods stand in the order of their means. The axis begins 0.2 below the best, and
    what lies below it stands at its edge. ▲ and ▼ mark methods that differ from PRO (DeLong, Holm-corrected).
    """
    table = table[table["method"].str.split(", ").str[0].isin(PAPER_METHODS) & (table["method"] != "PRO, default")]
    means = table.groupby("method", sort=False)["auroc"].mean().sort_values(ascending=False, kind="stable")
    methods = list(means.index[:12])
    table = table[table["method"].isin(methods)]
    left, by = table["auroc"].max() - 0.2, ["model", "dataset", *by_protocol(table)]
    shape = {"height": 0.14 * max(len(methods), 5), "sharex": True, "sharey": True}
    with panels(table, *by, columns=columns, **shape) as (figure, grid):
        for ax, _, panel in grid:
            for point in panel.itertuples():
                at = methods.index(point.method)
                color = COLORS[7 if "oracle" in point.method else 0 if point.method.startswith("PRO") else 6]
                ax.hlines(at, point.low, point.high, color=color, lw=1)
                marker = "o" if point.auroc >= left else 4  # 4: an arrow at the edge
                ax.plot(max(point.auroc, left), at, marker=marker, color=color, clip_on=False, zorder=3)
                mark = ("▲" if point.difference > 0 else "▼") if point.significant else ""
                note(ax, f"{point.auroc:.3f}".lstrip("0") + mark, (1, at))
            name_rows(ax, methods, panel["method"])
            ax.axvline(panel["auroc"].max(), color="black", lw=0.6, ls=":")
            ax.set_xlim(left, None)
        explain(figure, [], "AUROC, 95 % interval (dotted: the best)\n▲ above PRO, ▼ below: DeLong, Holm-corrected")
    return figure
