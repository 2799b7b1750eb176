"""The generated tables of the docs; each function returns a table of texts from CSV files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields

import pandas as pd
from doc_sources import (
    ALL_QUESTIONS,
    BENCHMARK,
    COUNTED,
    EXACT,
    EXACT_AUROC,
    GAIN,
    GEMMA,
    METHODS,
    PUBLISHED,
    SEEN,
    SELF_EVALUATION,
    SETTINGS,
    SMOLLM2,
    cell,
    difference_with_interval,
    fixed_k_auroc,
    gain_with_interval,
    interval,
    read_csv,
    row,
    rows,
    signed,
)

from pro_lib.app.parameters import Parameters, default_values, help_texts
from pro_lib.evaluation.methods import BUILT_IN, INPUTS
from pro_lib.evaluation.methods import METHODS as REGISTRY

# The types of parameters in words.
_TYPE_WORDS = {
    "Names": "text or list of texts",
    "Text": "text",
    "Template": "text",
    "Name": "text",
    "Convention": "text",
    "Dtype": "text",
    "Engine": "text",
    "_Folder": "path",
    "tuple[Name, ...]": "list of texts",
    "Probability": "number from 0 to 1",
    "Probabilities": "list of numbers from 0 to 1",
    "PositiveShare": "number above 0, at most 1",
    "Positive": "number above 0",
    "NotNegative": "number, 0 or more",
    "PositiveInt": "whole number above 0",
    "WholeNumber": "whole number, 0 or more",
    "Flag": "True or False",
    "Chat": "True, False or dict",
    "Columns": "dict",
    "Rule": "text or function",
    "Literal[1, 2]": "1 or 2",
    "Literal['log', 'linear']": "text",
}
EMPTY = " "  # the head of a column without a name; further ones have more spaces


def _auroc(record: pd.Series) -> str:
    return f"{record['auroc']:.3f} [{record['auroc_low']:.3f}, {record['auroc_high']:.3f}]"


def benchmark_auroc() -> pd.DataFrame:
    """Return the AUROC of every method in protocol `workbench`, marked if it differs from PRO."""
    methods = [
        _method_name(each)
        for each in rows(BENCHMARK, protocol="workbench", **SEEN).to_dict("records")
    ]
    columns = {"method": methods}
    for name, setting in SETTINGS.items():
        texts = []
        for method in methods:
            record = row(BENCHMARK, protocol="workbench", **METHODS[method], **setting)
            mark = "\N{NO-BREAK SPACE}▲" if record["auroc_minus_pro"] > 0 else "\N{NO-BREAK SPACE}▼"
            texts.append(_auroc(record) + (mark if record["significant"] else ""))
        columns[name] = texts
    return pd.DataFrame(columns)


def alpha_choices() -> pd.DataFrame:
    """Return the mean AUROC of PRO minus that of NLL for rules that choose α."""
    path = "docs/results/data/alpha_choices.csv"
    measured = rows(path, protocol="workbench", rule="α chosen")
    records = []
    for (setting, strategy), group in measured.groupby(["setting", "strategy"], sort=False):
        where = {"protocol": "workbench", "setting": setting, "strategy": strategy}
        words = "" if strategy == "records" else f", {strategy}"
        record = {"answers": f"{setting.replace('_', ', ')}{words}"}
        record["α = 0.4"] = signed(cell(path, "gain", rule="α = 0.4", n_judged=300, **where))
        gains = group.set_index("n_judged")["gain"]
        for count in (40, 100, 300, 1000):
            record[f"chosen on {count:,}"] = signed(gains[count]) if count in gains else "–"
        kept = cell(path, "gain", rule="2 answers kept", n_judged=300, **where)
        record["two answers kept"] = signed(kept)
        records.append(record)
    return pd.DataFrame(records)


def alpha_choice_coverage() -> pd.DataFrame:
    """Return the coverage of the interval at the chosen α, by world and number of questions."""
    measured = read_csv("docs/results/data/alpha_choice_coverage.csv")
    records = []
    for world, group in measured.groupby("world", sort=False):
        record = {"world": world}
        for each in group.itertuples():
            head = f"{each.n_questions:,} questions"
            record[head] = f"{each.coverage:.3f} ± {each.coverage_error:.3f}"
        records.append(record)
    return pd.DataFrame(records)


def _method_name(record: Mapping | pd.Series) -> str:
    """Return the name of a row's method on the pages."""
    for name, where in METHODS.items():
        if all(record[column] == value for column, value in where.items()):
            return name
    raise LookupError(f"METHODS has no name for {record['method']!r}")


def benchmark_meanings() -> pd.DataFrame:
    """Return the differences of S-NLL and S-PRO by ROUGE-L to PRO."""
    lines = []
    for name, setting in SETTINGS.items():
        nll, pro = (
            row(BENCHMARK, protocol="workbench", **METHODS[f"{method}, lexical"], **setting)
            for method in ("S-NLL", "S-PRO")
        )
        differences = [
            difference_with_interval(record, column="auroc_minus_pro") for record in (nll, pro)
        ]
        lines.append([name, *differences, f"{pro['alpha']:g}"])
    return pd.DataFrame(lines, columns=["setting", "S-NLL − PRO", "S-PRO − PRO", "α of S-PRO"])


def benchmark_exposure() -> pd.DataFrame:
    """Return accuracy, NLL and PRO by exposure and conflict of the facts."""
    path = "figures/00_exposure.csv"
    lines = []
    for documents, false, name in (
        (0, 0, "0"),
        (8, 0, "8, none"),
        (8, 0.5, "8, half"),
        (32, 0, "32, none"),
        (32, 0.5, "32, half"),
    ):
        at = {"exposure": documents, "conflict": false}
        accuracy = row(path, measure="accuracy", **at)
        line = [
            name,
            str(accuracy["n_in_group"]),
            "{mean:.3f} [{mean_low:.3f}, {mean_high:.3f}]".format(**accuracy),
        ]
        line += [
            "{mean:.2f} [{mean_low:.2f}, {mean_high:.2f}]".format(**row(path, measure=score, **at))
            for score in ("NLL", "PRO")
        ]
        lines.append(line)
    return pd.DataFrame(lines, columns=["documents, of them false", "n", "accuracy", "NLL", "PRO"])


def benchmark_fixed_k() -> pd.DataFrame:
    """Return the AUROC at K = 1 to 10 by both protocols, and a printed row of the paper."""
    ks = range(1, 11)
    lines = []
    for name, protocol in (("kept", "paper"), ("once", "workbench")):
        aurocs = [
            fixed_k_auroc("figures/12_fixed_k.csv", protocol=protocol, k=k, **SEEN) for k in ks
        ]
        lines.append([name, *(f"{auroc:.3f}" for auroc in aurocs)])
    printed = {"dataset": "TriviaQA", "model": "Gemma-2B", "selection": "fixed"}
    aurocs = rows("data/paper/fixed_k.csv", **printed).sort_values("k")["auroc"]
    lines.append(["Gemma-2B on TriviaQA, as printed", *(f"{auroc:.3f}" for auroc in aurocs)])
    return pd.DataFrame(lines, columns=["repeats", *map(str, ks)])


def benchmark_exact_search() -> pd.DataFrame:
    """Return the results and the cost of exact search at each α."""
    table = rows(EXACT, **SEEN)
    cost = table["token_forwards"] / table["greedy_forwards"]
    columns = {
        "α": table["alpha"].map("{:g}".format),
        "certified": table["share_certified"].map("{:.3f}".format),
        "fallback": table["share_fallback"].map("{:.3f}".format),
        "answers": table["mean_answers"].map("{:.2f}".format),
        "recall of ten beams": table["recall"].map("{:.3f}".format),
        "α-floor": table["alpha_floor"].map("{:.2f}".format),
        "tree bound": table["tree_bound"].map("{:.2f}".format),
        "token-forwards, greedy = 1": cost.map("{:.2f}".format),
    }
    return pd.DataFrame(columns)


def benchmark_exact_auroc() -> pd.DataFrame:
    """Return the AUROC of the scores of an exact search, and their differences to its PRO."""
    names = {
        "PRO, exact": {"method": "PRO", "strategy": "threshold"},
        "PRO, beams": {"method": "PRO", "strategy": "diverse_beam", "alpha_choice": "validation"},
        "α-floor": {"method": "α-floor"},
        "tree bound": {"method": "tree bound"},
        "mass not found": {"method": "probability not found"},
        "NLL": {"method": "NLL"},
        "ALL": {"method": "ALL"},
    }
    columns = {EMPTY: ["AUROC", "minus PRO, exact"]}
    for name, where in names.items():
        record = row(EXACT_AUROC, **where, **SEEN)
        alpha = "" if pd.isna(record["alpha"]) else f", α = {record['alpha']:g}"
        difference = difference_with_interval(record, column="auroc_minus_pro")
        auroc = f"{record['auroc']:.3f} [{record['auroc_low']:.3f}, {record['auroc_high']:.3f}]"
        columns[name + alpha] = [auroc, "" if name == "PRO, exact" else difference]
    return pd.DataFrame(columns)


def benchmark_sampling() -> pd.DataFrame:
    """Return the differences of PRO and fixed K to NLL on samples."""
    path, lines = "docs/results/data/sampling.csv", []
    names = {
        "diverse_beam": "ten beams",
        **{
            name: name
            for name in ("temperature 0.5", "temperature 1", "temperature 1.5", "nucleus 0.9")
        },
    }
    for answers, name in names.items():
        of = {"dataset": "world-facts", "answers": answers}
        nll, pro, fixed = (row(path, method=method, **of) for method in ("NLL", "PRO", "PRO_10"))
        line = [
            f"{name}, seen",
            f"{nll['distinct']:.1f}",
            f"{nll['finds_the_judged']:.2f}",
            f"{nll['auroc']:.3f}",
        ]
        lines.append(
            [
                *line,
                difference_with_interval(pro),
                f"{pro['alpha']:g}",
                difference_with_interval(fixed),
            ]
        )
    head = ["answers, wording", "distinct", "finds it", "NLL", "PRO − NLL", "α", "PRO_10 − NLL"]
    return pd.DataFrame(lines, columns=head)


# Rows of docs/results/data/audit.csv that the page leaves out.
AUDIT_LEFT_OUT = {
    "PRO": (
        "α from a grid with finer steps near 0",
        "p > α",
        "repeated beams kept, the finer grid",
        "K = 7",
        "K = 2, repeats kept",
        "K = 7, repeats kept",
        "exact match",
        "judged by the beams' own answer",
    ),
    "SE, lexical": None,  # but for these
}
AUDIT_SE = ("this project's", "kuhn2023", "kuhn2023 on samples")


def audit_choices() -> pd.DataFrame:
    """Return how much each choice of the released code changes the AUROC."""
    lines = []
    for record in read_csv("docs/results/data/audit.csv").to_dict("records"):
        method, choice = record["method"], record["choice"]
        is_project = choice == "this project's"
        if choice in (AUDIT_LEFT_OUT.get(method) or ()) or (
            method == "SE, lexical" and choice not in AUDIT_SE
        ):
            continue
        if method in ("PE", "PE-MC", "NE") and is_project:
            continue
        if method not in ("PRO", "PE", "PE-MC", "NE", "SE, lexical", "SD, lexical", "Deg, lexical"):
            continue
        alpha = "" if pd.isna(record["alpha"]) else f"{record['alpha']:g}"
        option = "" if pd.isna(record["option"]) else record["option"]
        difference = f"{signed(record['difference'])} {interval(record['low'], record['high'])}"
        lines.append(
            [
                method,
                choice,
                option,
                alpha,
                f"{record['auroc']:.3f}",
                "" if is_project else difference,
            ]
        )
    return pd.DataFrame(lines, columns=["method", "choice", "option", "α", "AUROC", "difference"])


def real_prompting() -> pd.DataFrame:
    """Return the quality of SmolLM2's answers by shots and chat template."""
    path, lines = "docs/results/data/prompting.csv", []
    for shots in (0, 5, 10):
        for form in ("text", "chat", "chat, system"):
            line = [f"{shots}, {form}"]
            for name in ("world-facts", "sciq", "nq"):
                record = row(path, set=name, shots=shots, prompted_as=form)
                shares = (record[column] for column in ("complete", "rouge_l", "contains", "exact"))
                line.append(", ".join(f"{share:.2f}".removeprefix("0") for share in shares))
            lines.append(line)
    return pd.DataFrame(lines, columns=["shots, as", "world-facts", "sciq", "nq"])


def _short(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".removeprefix("0")


def real_smollm2() -> pd.DataFrame:
    """Return the results of SmolLM2 on three question sets."""
    return _small_model(SMOLLM2, "smollm2-135m")


def real_gemma() -> pd.DataFrame:
    """Return the results of Gemma 3 270M on three question sets."""
    return _small_model(GEMMA, "gemma-3-270m")


def real_self_evaluation() -> pd.DataFrame:
    """Return AUROC of P(True), and the agreement of two models as judges, on world-facts."""
    lines = []
    for name, model in (("SmolLM2-135M", "smollm2-135m"), ("Gemma 3 270M", "gemma-3-270m")):
        p_true, nll, judge = (
            row(SELF_EVALUATION, model=model, method=method)
            for method in ("P(True)", "NLL", "judge")
        )
        agreement = (
            f"{judge['agreement']:.2f} [{judge['agreement_low']:.2f}, "
            f"{judge['agreement_high']:.2f}]"
        )
        lines.append(
            [
                f"{name}, {p_true['n_questions']:,}",
                _auroc(p_true),
                _auroc(nll),
                difference_with_interval(p_true, column="auroc_minus_pro"),
                agreement,
                f"{judge['called_right']:.2f}",
                f"{judge['accuracy']:.2f}",
            ]
        )
    columns = [
        "model, questions",
        "AUROC of P(True)",
        "AUROC of NLL",
        "P(True) − PRO",
        "judge agrees with the aliases",
        "judge says right",
        "right by the aliases",
    ]
    return pd.DataFrame(lines, columns=columns)


def _small_model(figures: str, model: str) -> pd.DataFrame:
    """Return the results of a model on three question sets, from the CSV files of its figures."""
    benchmark, exact = f"{figures}/06_benchmark.csv", f"{figures}/07_exact_search.csv"
    bars = f"{figures}/05_rouge_threshold.csv"
    columns = {}
    names = [
        "right by ROUGE-L > 0.3",
        "AUROC of NLL, answers once",
        "PRO − NLL, repeats counted; its α; they differ on",
        "PRO − NLL, answers once; its α; they differ on",
        "the highest AUROC, repeats counted",
        "questions certified at α = 0.05; 0.02; 0.005",
        "share of the answers with p ≥ 0.05; 0.005 that ten beams find",
        "token-forwards for α = 0.05; 0.005; ten beams; greedy",
    ]
    for name, title in (("world-facts", "world-facts"), ("sciq", "SciQ"), ("nq", "NQ")):
        of = {"dataset": name, "model": model}
        nll = row(benchmark, protocol="workbench", method="NLL", **of)
        where = {"protocol": "paper", "rouge_threshold": 0.3, "method": "NLL", **of}
        accuracy = cell(bars, "accuracy", **where)
        texts = [
            f"{accuracy:.3f}",
            _auroc(nll),
        ]
        for protocol in ("paper", "workbench"):
            alpha = cell(benchmark, "alpha", protocol=protocol, **METHODS["PRO"], **of)
            other = row(benchmark, protocol=protocol, method="NLL", **of)
            texts.append(
                f"{difference_with_interval(other, -1, 'auroc_minus_pro')}; {alpha:g}; "
                f"{other['n_differ']:,}"
            )
        table = rows(benchmark, protocol="paper", **of)
        best = (
            table[~table["alpha_choice"].isin(["oracle", "default"])].nlargest(1, "auroc").iloc[0]
        )
        texts.append(f"{_method_name(best)} {best['auroc']:.3f}")
        at = {alpha: row(exact, alpha=alpha, **of) for alpha in (0.05, 0.02, 0.005)}
        texts.append("; ".join(f"{at[alpha]['share_certified']:.2f}" for alpha in at))
        texts.append("; ".join(f"{at[alpha]['recall']:.2f}" for alpha in (0.05, 0.005)))
        forwards = [at[0.05]["token_forwards"], at[0.005]["token_forwards"]]
        forwards += [at[0.05]["beam_forwards"], at[0.05]["greedy_forwards"]]
        texts.append("; ".join(f"{value:.1f}" for value in forwards))
        columns[f"{title}, {nll['n_questions']:,}"] = texts
    return pd.DataFrame({EMPTY: names, **columns})


def _published(
    path: str, protocols: Iterable[str] = ("workbench", "paper")
) -> Iterable[tuple[str, str, pd.DataFrame]]:
    for name, setting in PUBLISHED.items():
        for protocol in protocols:
            yield name, protocol, rows(path, protocol=protocol, **setting)


def real_gain() -> pd.DataFrame:
    """Return the gain of PRO over NLL with K or α chosen on validation questions."""
    lines = []
    for name, protocol, table in _published(GAIN):
        for record in table.to_dict("records"):
            chosen = record["chosen"].replace("alpha", "α")
            lines.append(
                [
                    f"{name}, {record['n_questions']:,}",
                    COUNTED[protocol],
                    chosen,
                    gain_with_interval(record),
                    f"{chosen} = {record['choice']:g}",
                    f"{signed(record['p05'])} to {signed(record['p95'])}",
                    f"{record['above_nll']:.0%}",
                ]
            )
    head = [
        "reported questions",
        "counted",
        "chosen",
        "median gain, 95 % interval",
        "at",
        "redraws, 5 % to 95 %",
    ]
    return pd.DataFrame(lines, columns=[*head, "above NLL"])


def real_all_questions() -> pd.DataFrame:
    """Return the AUROC on all published questions at fixed K and α."""
    columns = {"NLL": "NLL", "PRO_2": "PRO_2", "PRO_5": "PRO_5", "PRO_10": "PRO_10"}
    columns |= {"alpha_0.4": "α = 0.4", "Deg": "Deg, NLI agreement"}
    lines = []
    for name, protocol, table in _published(ALL_QUESTIONS):
        record = table[table["same_within"] == 0].iloc[0]
        lines.append([name, COUNTED[protocol], *(f"{record[column]:.3f}" for column in columns)])
    return pd.DataFrame(lines, columns=["answers of all questions", "counted", *columns.values()])


def intervals_coverage() -> pd.DataFrame:
    """Return how often the intervals of single AUROCs contain the true value."""
    table = read_csv("docs/results/data/coverage.csv")
    lines = []
    for name, cells in table.groupby("scores", sort=False):
        rarer = cells["n_questions"] * cells["share_right"].where(
            cells["share_right"] < 0.5, 1 - cells["share_right"]
        )
        both = cells[(rarer > 29.99) & (cells["auroc"] <= 0.9)]["covered"]
        line = [name, len(cells), f"{cells['covered'].min():.3f}", (cells["covered"] < 0.93).sum()]
        line += [f"{both.max():.3f}", (both > 0.97).sum()]
        lines.append([*line, f"{cells['delong'].min():.3f}", (cells["delong"] < 0.93).sum()])
    head = [
        "scores",
        "cells",
        "lowest",
        "below 0.93",
        "highest, 30 of both",
        "above 0.97",
        "DeLong, lowest",
    ]
    return pd.DataFrame(lines, columns=[*head, "DeLong, below 0.93"])


def intervals_differences() -> pd.DataFrame:
    """Return how often the intervals of differences contain the true value, and their power."""
    table = read_csv("docs/results/data/difference_intervals.csv")
    lines = []
    for name, cells in [*table.groupby("scores", sort=False), ("all", table)]:
        counted = cells[(cells["delong_covered"] >= 0.93) & cells["power"].notna()]
        power = counted["power"].mean() / counted["delong_power"].mean()
        ratios = counted["power"] / counted["delong_power"]
        line = {
            "scores": name,
            "cells": len(cells),
            "lowest coverage": f"{cells['covered'].min():.3f}",
            "below 0.93": (cells["covered"] < 0.93).sum(),
            "DeLong, lowest": f"{cells['delong_covered'].min():.3f}",
            "DeLong, below 0.93": (cells["delong_covered"] < 0.93).sum(),
            "power": f"{power:.2f}",
            "by cell": f"{ratios.mean():.2f}",
            "AUROC, lowest": f"{cells['auroc_covered'].min():.3f}",
        }
        lines.append(line)
    return pd.DataFrame(lines)


GUARANTEES = "docs/results/data/guarantees.csv"
POOLS = {"facts-2m, 305": "facts-2m", "gpt-3.5, NQ, 1,000": "gpt-3.5-turbo"}


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def guarantees_random_splits() -> pd.DataFrame:
    """Return how often guarantees are given and false, over random splits."""
    scores = {
        "facts-2m, 305": ("PRO", "Deg, lexical"),
        "gpt-3.5, NQ, 1,000": ("PRO", "NLL", "Deg, NLI agreement"),
    }
    lines = []
    for name, model in POOLS.items():
        for score in scores[name]:
            for target in (0.7, 0.8, 0.9) if model == "facts-2m" else (0.7, 0.8):
                of = {"model": model, "score": score, "level": target, "shift": False}
                rules = ("guarantee", "guarantee, own percentiles", "walks", "validation accuracy")
                ours, own, walks, naive = (row(GUARANTEES, rule=rule, **of) for rule in rules)
                values = [ours["made"], ours["coverage"], ours["failed"], own["failed"]]
                values += [walks["coverage"], walks["failed"], naive["failed"]]
                lines.append([name, score, f"{target:g}", *map(_percent, values)])
    head = [
        "setting, validation",
        "score",
        "target",
        "guaranteed",
        "answered",
        "false",
        "own percentiles: false",
    ]
    return pd.DataFrame(
        lines, columns=[*head, "walks: answered", "walks: false", "validation accuracy: false"]
    )


def guarantees_shift() -> pd.DataFrame:
    """Return how often guarantees fail after a shift between validation and use."""
    lines = []
    for name, model in POOLS.items():
        for target in (0.7, 0.8, 0.9) if model == "facts-2m" else (0.7, 0.8):
            of = {
                "model": model,
                "score": "PRO",
                "level": target,
                "shift": True,
                "rule": "guarantee",
            }
            record = row(GUARANTEES, **of)
            values = (record[column] for column in ("made", "coverage", "failed"))
            lines.append([name, f"{target:g}", *map(_percent, values)])
    return pd.DataFrame(
        lines, columns=["setting, validation", "target", "guaranteed", "answered", "false"]
    )


def guarantees_sets() -> pd.DataFrame:
    """Return how often answer sets are issued and miss."""
    lines = []
    for level in (0.35, 0.37, 0.4, 0.5, 0.6):
        of = {"model": "facts-2m", "kind": "sets", "level": level}
        both = row(GUARANTEES, rule="issued and missed", shift=False, **of)
        given = row(GUARANTEES, rule="missed, given issued", shift=False, **of)
        shifted = row(GUARANTEES, rule="issued and missed", shift=True, **of)
        missed = f"{_percent(both['failed'])} ± {100 * both['error']:.1f}"
        cells = [_percent(both["made"]), missed, _percent(given["failed"]), f"{both['size']:.2f}"]
        lines.append([f"{level:g}", *cells, _percent(shifted["failed"])])
    head = ["δ", "issued", "issued and missed", "missed, given issued", "answers in a set"]
    return pd.DataFrame(lines, columns=[*head, "with the shift: issued and missed"])


SPEED = "docs/results/data/speed.csv"
SPEED_COLUMNS = {
    "facts-2m, ten shots": ("facts-2m", 10),
    "facts-2m, zero shots": ("facts-2m", 0),
    "random-35m, ten shots": ("random-35m", 10),
    "random-35m, zero shots": ("random-35m", 0),
    "random-200m, ten shots": ("random-200m", 10),
}
# Numerator, denominator, batch sizes, goals. Batch 32 of A and B is one question at a time.
SPEED_RATIOS = (
    ("A", "B", (32,), ("",)),
    ("B", "C", (32,), ("",)),
    ("C", "D", (32,), ("",)),
    ("A", "D", (32,), ("≥ 6",)),
    ("A", "F 0.05", (32, 1), ("≥ 40", "≥ 20")),
    ("D", "F 0.05", (32,), ("≥ 4",)),
    ("F 0.05", "E", (32, 1), ("≤ 2", "≤ 1.25")),
    ("F 0.01", "E", (32,), ("≤ 5",)),
    ("E", "G", (32, 1), ("≤ 1", "≤ 1")),
    ("H", "E", (32,), ("",)),
    ("J", "I", (32,), ("",)),
    ("K", "E", (32, 1), ("",)),
    ("L", "I", (32,), ("",)),
)


def speed_ratios() -> pd.DataFrame:
    """Return the ratios of the speed benchmark; ratios that miss their goal are bold."""
    lines = []
    for over, under, batches, goals in SPEED_RATIOS:
        line = [f"{over} ÷ {under}", "; ".join(map(str, batches)), "; ".join(dict.fromkeys(goals))]
        for model, shots in SPEED_COLUMNS.values():
            cells = []
            for batch, goal in zip(batches, goals * len(batches), strict=False):
                ends = [_speed(arm, model, shots, batch, "ms_min") for arm in (over, under)]
                if None not in ends:
                    cells.append(_against_goal(ends[0] / ends[1], goal))
            line.append("; ".join(cells))
        lines.append(line)
    memory = ["D ÷ C (memory)", "32", "≤ 0.5"]
    for model, shots in SPEED_COLUMNS.values():
        ends = [_speed(arm, model, shots, 32, "peak_mib") for arm in ("D", "C")]
        memory.append("" if None in ends else _against_goal(ends[0] / ends[1], "≤ 0.5"))
    return pd.DataFrame(
        [*lines, memory], columns=["ratio", "batch", "goal (ten shots)", *SPEED_COLUMNS]
    )


def speed_gpu() -> pd.DataFrame:
    """Return the milliseconds of each decoding method on a GPU, by shape and batch size."""
    found = read_csv("docs/results/data/gpu_ladder.csv")
    values = found.pivot_table(
        index=["arm", "what"], columns=["model", "batch_size"], values="ms_min"
    )
    names = values.index.to_frame(index=False)
    columns = {"method": names["arm"], "what it does": names["what"]}
    for model, batch_size in values:
        name = f"{model.removeprefix('random-')}, batch {batch_size}"
        columns[name] = [_milliseconds(value) for value in values[model, batch_size]]
    return pd.DataFrame(columns)


def _milliseconds(value: float) -> str:
    """Return a time with one decimal, or nothing if it was not measured."""
    return "" if pd.isna(value) else f"{value:.1f}"


def _speed(arm: str, model: str, shots: int, batch: int, column: str) -> float | None:
    """Return a value of an arm at a batch size; A and B run one question at a time."""
    size = 1 if arm in ("A", "B") else batch
    table = rows(SPEED, arm=arm, model=model, shots=shots, batch_size=size)
    values = table[column].dropna()
    return values.iloc[0] if len(values) else None


def _against_goal(ratio: float, goal: str) -> str:
    text = f"{ratio:.2f}"
    if not goal:
        return text
    sign, limit = goal.split()
    is_met = ratio >= float(limit) if sign == "≥" else ratio <= float(limit)
    return text if is_met else f"**{text}**"


LABEL_QUANTITIES = {
    "auroc": "AUROC",
    "difference_1": "difference of a score with another AUROC",
    "difference_2": "difference of a score that differs on one question in five",
}


def label_criteria() -> pd.DataFrame:
    """Return the criteria of estimates from labels, with the worst setting of each."""
    return _criteria_table("docs/results/data/label_criteria.csv")


def label_criteria_again() -> pd.DataFrame:
    """Return the same criteria for the second simulation."""
    return _criteria_table("docs/results/data/label_criteria_again.csv")


def _criteria_table(path: str) -> pd.DataFrame:
    found = read_csv(path)
    has_test = found["n_significant"].notna()
    significant = found["n_significant"].map("{:.0f}".format).where(has_test, "–")
    columns = {
        "criterion": found["criterion"],
        "settings": found["n_cells"].map(str),
        "worst setting": found["worst"].map("{:.3f}".format),
        "settings beyond the limit": found["n_beyond"].map(str),
        "significantly beyond": significant,
    }
    return pd.DataFrame(columns)


def label_errors() -> pd.DataFrame:
    """Return bias and errors of estimates from labels, by kind of setting."""
    found = read_csv("docs/results/data/label_errors.csv")
    number = "{:.2f}".format
    columns = {
        "kind": found["kind"],
        "labels": found["n_labels"].map(str),
        "settings": found["n_cells"].map(str),
        "shown: lowest; median": (
            found["shown_lowest"].map(number) + "; " + found["shown_median"].map(number)
        ),
        "largest bias": found["largest_bias"].map("{:.3f}".format),
        "AUROC ratio: median": found["auroc_ratio_median"].map(number),
        "AUROC ratio: largest": found["auroc_ratio_largest"].map(number),
        "differences ratio: median": found["differences_ratio_median"].map(number),
        "differences ratio: largest": found["differences_ratio_largest"].map(number),
    }
    return pd.DataFrame(columns)


def label_widths() -> pd.DataFrame:
    """Return half the width of the intervals of estimates from labels."""
    found = read_csv("docs/results/data/label_widths.csv")
    by_quantity = found.pivot_table("median", "n_labels", "quantity")
    columns = {"labels": by_quantity.index.map(str)}
    for name, words in LABEL_QUANTITIES.items():
        columns[words] = by_quantity[name].map("±{:.3f}".format).to_numpy()
    return pd.DataFrame(columns)


def label_real() -> pd.DataFrame:
    """Return errors and coverage of estimates from labels of real answers."""
    found = rows("docs/results/data/label_real.csv", n_questions="all")
    texts = {"dataset": found["source"], "labels": found["n_labels"].map(str)}
    for name, words in (("auroc", "AUROC of NLL"), ("difference_1", "ALL minus NLL")):
        errors = found[f"{name}_random_rmse"].map("{:.3f}".format)
        errors += " → " + found[f"{name}_rmse"].map("{:.3f}".format)
        texts[f"{words}: random → these labels"] = errors
        texts[f"{words}: bias"] = found[f"{name}_bias"].map(signed)
        texts[f"{words}: coverage"] = found[f"{name}_questions_covered"].map("{:.3f}".format)
    return pd.DataFrame(texts)


def label_accuracies() -> pd.DataFrame:
    """Return coverage and bias of the accuracies of groups that labels estimate, by setting."""
    found = read_csv("docs/results/data/label_accuracies.csv")
    of_quarter = rows(
        "docs/results/data/label_accuracy_widths.csv",
        method="NLL",
        quantity="accuracy of the most certain 25%",
    )
    widths = of_quarter.set_index(["dataset", "model", "n_labels"])["width"]
    number = "{:.3f}".format
    texts = []
    for (dataset, model, n_labels), part in found.groupby(
        ["dataset", "model", "n_labels"], sort=False
    ):
        shown = part[part["n_intervals"] >= 20]
        source = dataset if model == "records" else f"{model} on {dataset}"
        row = {
            "answers": source,
            "labels": str(n_labels),
            "accuracies: lowest coverage": number(shown["coverage"].min()),
            "accuracies: largest bias": number(shown["bias"].abs().max()),
            "accuracy of the most certain 25 %: width": number(widths[dataset, model, n_labels]),
        }
        for name, words in (("auarc", "AUARC"), ("prr", "PRR"), ("brier", "Brier score")):
            row[f"{words}: largest bias"] = number(
                part.loc[part["quantity"] == name, "bias"].abs().max()
            )
        texts.append(row)
    return pd.DataFrame(texts)


# The addresses of the papers that the registry of methods names.
PAPERS = {
    "Farquhar et al. 2024": "https://doi.org/10.1038/s41586-024-07421-0",
    "Kadavath et al. 2022": "https://arxiv.org/abs/2207.05221",
    "Lin et al. 2023": "https://arxiv.org/abs/2305.19187",
    "Malinin and Gales 2021": "https://arxiv.org/abs/2002.07650",
    "Nguyen, Gupta and Le 2026, Eq. 6": "https://arxiv.org/abs/2511.07694",
    "Qiu and Miikkulainen 2024": "https://arxiv.org/abs/2405.13845",
}


def methods() -> pd.DataFrame:
    """Return the methods of the registry."""
    lines = []
    for name in REGISTRY:
        if name in BUILT_IN:
            source = REGISTRY[name].source
            link = f"[{source}]({PAPERS[source]})" if source else "–"
            lines.append([name, REGISTRY[name].meaning, link])
    return pd.DataFrame(lines, columns=["method", "meaning", "source"])


def parameters() -> pd.DataFrame:
    """Return the parameters of notebooks with their types in words."""
    types = {item.name: str(item.type).split(" | ") for item in fields(Parameters)}
    defaults = default_values() | {"generations_dir": None, "figures_dir": None}
    lines = []
    for name, text in help_texts().items():
        words = " or ".join(_TYPE_WORDS.get(kind, kind) for kind in types[name])
        lines.append([f"`{name}`", words, f"`{defaults[name]!r}`", text])
    return pd.DataFrame(lines, columns=["parameter", "type", "default", "meaning"])


def method_inputs() -> pd.DataFrame:
    """Return the inputs that a method may have."""
    lines = [[f"`{name}`", words] for name, words in INPUTS.items()]
    return pd.DataFrame(lines, columns=["argument", "what it is"])


TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    function.__name__: function
    for function in (
        methods,
        method_inputs,
        parameters,
        alpha_choices,
        alpha_choice_coverage,
        benchmark_auroc,
        benchmark_meanings,
        benchmark_exposure,
        benchmark_fixed_k,
        benchmark_exact_search,
        benchmark_exact_auroc,
        benchmark_sampling,
        audit_choices,
        real_prompting,
        real_smollm2,
        real_gemma,
        real_self_evaluation,
        real_gain,
        real_all_questions,
        intervals_coverage,
        intervals_differences,
        label_criteria,
        label_errors,
        label_real,
        label_criteria_again,
        label_widths,
        label_accuracies,
        guarantees_random_splits,
        guarantees_shift,
        guarantees_sets,
        speed_ratios,
        speed_gpu,
    )
}

# Tables with numbers that are not generated, by page and the first words of the head: why.
NOT_GENERATED = {
    (
        "docs/results/audit.md",
        "choice | the release",
    ): "definitions; the example is in tests/scoring/test_likelihood.py",
    ("docs/how_to/use_a_server.md", "argument"): "defaults",
    ("docs/how_to/use_in_transformers.md", "option"): "an example of a value",
    (
        "docs/how_to/use_a_server.md",
        "SmolLM2-135M, Q4_1",
    ): "made by benchmarks/served.py, of a server",
    ("docs/explanation/decoding_engine.md", "strategy"): "definitions",
    ("docs/reference/response_formats.md", "response format"): "versions",
    (
        "docs/reference/table_columns.md",
        "column | tables",
    ): "names; tests/project/test_docs.py compares them with the tables",
    (
        "docs/reference/parameters.md",
        "parameter | type",
    ): "defaults; tests/project/test_docs.py compares them with the package",
    ("docs/explanation/protocols.md", "rule"): "definitions",
    ("docs/reference/model_families.md", "decoding"): "measured once, of one machine",
    ("docs/results/speed.md", "step"): "measured once, of one machine",
    ("docs/explanation/semantic_scores.md", "name here"): "versions",
    ("docs/results/speed.md", "method"): "definitions",
    ("docs/results/speed.md", "| steps"): "made by benchmarks/gpu_model.py, a model",
}
