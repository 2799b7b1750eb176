"""The paper's figures of hyperparameters: α, K and the ROUGE-L threshold; knows no number but those of its tables."""

import pandas as pd
from matplotlib.figure import Figure

from pro_lib.figures.lines import BEYOND, PRINTED, curves, difference_axis, explain, handle, handles, minus_nll
from pro_lib.figures.panels import ALPHA_LABEL, alpha_axis, by_protocol, interval, need, panels, values, where
from pro_lib.figures.style import look

# Marker, its size and its name; the smaller lies upon the larger, so that all are seen where they meet.
_CHOICES = {"selected": ("o", 3, "chosen on validation"), "default": ("s", 6, "default"), "oracle": ("*", 11, "oracle")}
# The paper's own choice: the mark of one chosen on validation, filled, its edge in the colour of its model.
_PRINTED = {"marker": "o", "mfc": PRINTED["color"], "ms": 5, "ls": ""}


def auroc_vs_alpha(
    sweep: pd.DataFrame, choices: pd.DataFrame, paper: pd.DataFrame | None = None, *, columns: int = 2
) -> Figure:
    """AUROC of PRO against α: a row per split, a column per dataset and protocol, a line per model.

    `sweep` has columns dataset, model, split, alpha, auroc and, for bands, low and high; `choices` has dataset,
    model, split, alpha, auroc and kind (`selected`, `default` or `oracle`), drawn as markers; lines have none. `paper`,
    what the paper chose and printed for the same settings (dataset, model, alpha, auroc), is filled with grey.
    """
    need(sweep, "sweep", "dataset", "model", "split", "alpha", "auroc")
    if odd := set(choices["kind"]) - set(_CHOICES):
        raise ValueError(f"choices: kind {sorted(odd)[0]!r} is none of {', '.join(_CHOICES)}")
    models, open_mark = values(sweep, "model"), {"mfc": "white", "mew": 1.1, "ls": "", "clip_on": False}
    by, across = ["split", "dataset", *by_protocol(sweep)], 2 * columns if by_protocol(sweep) else None
    with panels(sweep, *by, columns=columns, per_line=across, sharex=True, sharey=True) as (figure, grid):
        for ax, setting, panel in grid:
            curves(ax, panel, "model", models, "alpha", marker="")
            for choice in where(choices, setting).itertuples():
                (marker, size, _), color = _CHOICES[choice.kind], look(models.index(choice.model))["color"]
                ax.plot(choice.alpha, choice.auroc, marker=marker, ms=size, mec=color, zorder=16 - size, **open_mark)
            if paper is not None:
                curves(ax, paper[paper["dataset"] == setting["dataset"]], "model", models, "alpha", **_PRINTED)
            alpha_axis(ax)
        kinds = [_CHOICES[kind] for kind in _CHOICES if kind in set(choices["kind"])]
        marks = [handle(name, marker=marker, ms=size, mec="k", **open_mark) for marker, size, name in kinds]
        if paper is not None and len(paper):
            marks.append(handle("the paper", color="k", **_PRINTED))
        explain(figure, [*handles(models, marker=""), *marks], ALPHA_LABEL, interval("AUROC", sweep))
    return figure


def k_vs_alpha(sweep: pd.DataFrame, *, columns: int = 2) -> Figure:
    """Mean number of answers kept against α: a panel per dataset and protocol, a line per model.

    `sweep` has columns dataset, model, alpha, mean_kept and, for bands, low and high (of mean_kept).
    """
    need(sweep, "sweep", "dataset", "model", "alpha", "mean_kept")
    models = values(sweep, "model")
    by = ["dataset", *by_protocol(sweep)]
    with panels(sweep, *by, columns=columns, sharex=True, sharey=True) as (figure, grid):
        for ax, _, panel in grid:
            curves(ax, panel, "model", models, "alpha", "mean_kept", lw=1, edged=False, clip_on=False)
            ax.axhline(1, color="black", lw=0.6, ls=":")
            alpha_axis(ax)
        explain(figure, handles(models, lw=1), ALPHA_LABEL, interval("mean K", sweep))
    return figure


def fixed_k(sweep: pd.DataFrame, paper: pd.DataFrame | None = None, *, columns: int = 2) -> Figure:
    """AUROC of PRO at fixed K beside adaptive PRO: a panel per dataset and protocol, a line per model.

    `sweep` has columns dataset, model, k, auroc and, for bars, low and high; where k is `adaptive` it is drawn at the
    right of each panel. `paper`, what the paper printed for the same settings (dataset, model, selection, k, auroc), is
    drawn in grey.
    """
    need(sweep, "sweep", "dataset", "model", "k", "auroc")
    adaptive, sweep = sweep[sweep["k"] == "adaptive"], sweep[sweep["k"] != "adaptive"]
    need(adaptive, "sweep at k = adaptive", "auroc")
    sweep = sweep.astype({"k": int})
    models, ks = values(sweep, "model"), sorted(sweep["k"].unique())
    right = ks[-1] + 1.6
    lined, by = {"by": "model", "names": models, "x": "k", "apart": 0.16}, ["dataset", *by_protocol(sweep)]
    with panels(sweep, *by, columns=columns, sharex=True, sharey=True) as (figure, grid):
        for ax, setting, panel in grid:
            points = where(adaptive, setting).assign(k=right)
            curves(ax, panel, bars=True, **lined)
            curves(ax, points, bars=True, ls="", **lined)
            for point in points.itertuples():
                ax.axhline(point.auroc, color=look(models.index(point.model))["color"], lw=0.6, ls=":")
            if paper is not None:
                printed = paper[paper["dataset"] == setting["dataset"]]
                curves(ax, printed.assign(k=printed["k"].astype(float).fillna(right)), **lined, **PRINTED)
            ax.axvline(ks[-1] + 0.8, color="black", lw=0.6)
            ax.set_xticks([right, *ks], ["adaptive", *map(str, ks)])
        explain(figure, handles(models, paper), "K, answers used", interval("AUROC", sweep))
    return figure


def rouge_thresholds(sweep: pd.DataFrame, paper: pd.DataFrame | None = None, *, columns: int = 2) -> Figure:
    """AUROC of every method, minus NLL's, against the threshold: a row per model, a column per dataset and protocol.

    `sweep` has columns dataset, model, threshold, method, auroc and, for bars, difference_low and difference_high (of
    the difference to NLL), and for the share of right answers accuracy; `paper`, what the paper printed for the same
    settings (dataset, model, method, threshold, auroc), is drawn in grey, minus its own NLL.
    """
    need(sweep, "sweep", "dataset", "model", "threshold", "method", "auroc")
    methods, has_shares = [name for name in values(sweep, "method") if name != "NLL"], "accuracy" in sweep
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
            shares = [f"\n({share:.0%})" for share in at["accuracy"]] if has_shares else [""] * len(at)
            ax.set_xticks(at["threshold"], [f"{t:g}{share}" for t, share in zip(at["threshold"], shares, strict=True)])
        xlabel = "right if ROUGE-L > threshold" + " (share right)" * has_shares
        label = "AUROC minus NLL's" + ", 95 % interval" * ("difference_low" in sweep) + BEYOND
        explain(figure, handles(methods, paper), xlabel, label)
    return figure
