"""The generated tables of README and docs: a function for each, which returns texts."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path

import click
import numpy as np
import pandas as pd

from pro_lib.app.cli import pro
from pro_lib.app.parameters import Parameters, default_values, help_texts
from pro_lib.evaluation.methods import BUILT_IN, INPUTS, METHODS
from pro_lib.importing.response_formats import RESPONSE_FORMATS

ROOT = Path(__file__).resolve().parents[2]
DATA = "docs/results/data"
SMALL = ("figures/smollm2", "figures/gemma-3-270m")

TABLES: dict[str, Callable[[], pd.DataFrame]] = {}


def on_a_page(function: Callable[[], pd.DataFrame]) -> Callable[[], pd.DataFrame]:
    """Register a function whose table stands on a page below `<!-- table: its name -->`."""
    TABLES[function.__name__] = function
    return function


def rows(path: str, **where: object) -> pd.DataFrame:
    """Return the rows of a CSV file whose columns have these values."""
    table = pd.read_csv(ROOT / path)
    for column, value in where.items():
        table = table[table[column] == value]
    return table


def typeset(text: str) -> str:
    """Return a text with − for minus, "–" for missing numbers, no sign of 0, and "5 %"."""
    text = re.sub(r"(?<![\w.])-(?=\d)", "−", text)
    text = re.sub(r"[+−](0(?:\.0+)?)(?![.\d])", r"\1", text)
    text = re.sub(r"(?<=\d)%", " %", text)
    return re.sub(r"\+?\bnan\b%?(?: \[.*?\])?", "–", text)


def written(table: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return a table of texts: for each head, a template that each row fills in."""
    texts = pd.DataFrame(index=range(len(table)))
    records = table.to_dict("records")
    for head, template in columns.items():
        texts[head] = [typeset(template.format(**record)) for record in records]
    return texts


def pivoted(table: pd.DataFrame, row: Mapping[str, str], column: str, cell: str) -> pd.DataFrame:
    """Return a table of texts with a column for each value that the template `column` gives."""
    texts = written(table, {**row, "column": column, "cell": cell})
    keys = [*row, "column"]
    wide = texts.set_index(keys)["cell"].unstack(sort=False)  # noqa: PD010 -- keeps the order
    return wide.fillna("").reset_index()


def with_interval(column: str, number: str = "+.3f") -> str:
    """Return the template of a value with its interval."""
    low, high = (f"{{{column}_{end}:{number}}}" for end in ("low", "high"))
    return f"{{{column}:{number}}} [{low},\N{NO-BREAK SPACE}{high}]"


SETTING = "{model}, {dataset}"


def benchmark_rows(path: str, **where: object) -> pd.DataFrame:
    """Return rows of the benchmark with the full names of methods, such as "SE, lexical"."""
    table = rows(path, **where)
    parts = table[["method", "similarity", "alpha_choice"]]
    names = parts.apply(lambda texts: ", ".join(texts.dropna()), axis=1)
    signs = np.where(table["auroc_minus_pro"] > 0, " ▲", " ▼")
    return table.assign(name=names, mark=np.where(table["significant"], signs, ""))


@on_a_page
def benchmark_auroc() -> pd.DataFrame:
    """Return AUROC of every method and its difference to PRO, marked if it is significant."""
    table = benchmark_rows("figures/12_benchmark.csv", protocol="workbench")
    is_shown = (table["similarity"] != "alias") & ~table["alpha_choice"].isin(["default", "oracle"])
    table = table[is_shown]
    cell = "{auroc:.3f}{mark} (" + with_interval("auroc_minus_pro") + ")"
    return pivoted(table, {"method": "{name}"}, SETTING, cell)


@on_a_page
def benchmark_choices() -> pd.DataFrame:
    """Return PRO minus NLL for two ways to choose α, in both protocols."""
    table = rows("figures/12_alpha_choices.csv")
    table = table[table["alpha_choice"] != "default"]
    row = {"setting": SETTING, "protocol": "{protocol}"}
    cell = with_interval("auroc_minus_nll") + ", α\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{alpha:g}"
    return pivoted(table, row, "{alpha_choice}", cell)


@on_a_page
def benchmark_fixed_k() -> pd.DataFrame:
    """Return PRO minus NLL at K = 2 to 10 by both protocols."""
    table = rows("figures/12_fixed_k.csv", k_choice="fixed", model="facts-2m")
    table = table[table["k"].isin([2, 5, 10])]
    row = {"dataset": "{dataset}", "protocol": "{protocol}"}
    return pivoted(table, row, "K = {k:g}", with_interval("auroc_minus_nll"))


@on_a_page
def benchmark_exact_search() -> pd.DataFrame:
    """Return the results and the cost of exact search at each α."""
    table = rows("figures/07_exact_search.csv")
    table["cost"] = table["token_forwards"] / table["greedy_forwards"]
    columns = {
        "α": "{alpha:g}",
        "certified": "{share_certified:.3f}",
        "fallback": "{share_fallback:.3f}",
        "answers": "{mean_answers:.2f}",
        "recall of ten beams": "{recall:.3f}",
        "α-floor": "{alpha_floor:.2f}",
        "tree bound": "{tree_bound:.2f}",
        "token-forwards, greedy = 1": "{cost:.2f}",
    }
    return written(table, columns)


@on_a_page
def exact_auroc() -> pd.DataFrame:
    """Return AUROC of NLL and of PRO on beams, minus that of PRO on an exact search."""
    folders = ("figures", *SMALL)
    table = pd.concat(rows(f"{folder}/07_exact_search_auroc.csv") for folder in folders)
    is_beams = (table["strategy"] == "diverse_beam") & (table["alpha_choice"] == "validation")
    table = table[is_beams | (table["method"] == "NLL")]
    column = "{method}, {strategy}"
    return pivoted(table, {"setting": SETTING}, column, with_interval("auroc_minus_pro"))


@on_a_page
def small_searches() -> pd.DataFrame:
    """Return the cost of exact search and the recall of beams at α = 0.05 on two small models."""
    table = pd.concat(rows(f"{folder}/07_exact_search.csv") for folder in SMALL)
    columns = {
        "model, dataset": SETTING,
        "certified": "{share_certified:.2f}",
        "recall of ten beams": "{recall:.2f}",
        "token-forwards: search": "{token_forwards:.1f}",
        "ten beams": "{beam_forwards:.1f}",
        "greedy": "{greedy_forwards:.1f}",
    }
    return written(table[table["alpha"] == 0.05], columns)


@on_a_page
def self_evaluation() -> pd.DataFrame:
    """Return AUROC of P(True), and the agreement of two models as judges, on world-facts."""
    columns = {
        "model, questions": "{model}, {n_questions:,}",
        "method": "{method}",
        "AUROC": with_interval("auroc", ".3f"),
        "minus PRO": with_interval("auroc_minus_pro"),
        "agrees with the aliases": with_interval("agreement", ".2f"),
        "says right": "{called_right:.2f}",
        "right": "{accuracy:.2f}",
    }
    return written(rows(f"{DATA}/self_evaluation.csv"), columns)


FIELDS = {"model": "{model}", "field": "{field}"}


@on_a_page
def fields_auroc() -> pd.DataFrame:
    """Return AUROC of three scores on the fields of records."""
    row = FIELDS | {"fields": "{n_fields}", "right": "{accuracy:.1%}"}
    table = rows(f"{DATA}/fields.csv")
    return pivoted(table[table["accuracy"] > 0], row, "{method}", with_interval("auroc", ".3f"))


@on_a_page
def fields_differences() -> pd.DataFrame:
    """Return paired differences of two scores to the NLL of the whole answer."""
    table = rows(f"{DATA}/fields.csv")
    table = table[(table["method"] != "NLL of the answer") & (table["accuracy"] > 0)]
    return pivoted(table, FIELDS, "{method}", with_interval("difference"))


@on_a_page
def fields_searches() -> pd.DataFrame:
    """Return the results of the exact search of each field."""
    columns = FIELDS | {
        "certified": "{certified:.0%}",
        "no value reaches α": "{fallback:.0%}",
        "several values": "{several_values:.0%}",
        "wrong": "{n_wrong}",
        "wrong, and the right value was found": "{wrong_with_right_value:.1%}",
    }
    return written(rows(f"{DATA}/fields.csv", method="PRO of the field"), columns)


def choices(table: pd.DataFrame) -> pd.DataFrame:
    """Return PRO minus NLL for each way to choose α or K."""
    row = {"answers, questions": SETTING + ", {n_questions:,}", "protocol": "{protocol}"}
    return pivoted(table, row, "{choice}", with_interval("auroc_minus_nll"))


@on_a_page
def published_choices() -> pd.DataFrame:
    """Return PRO minus NLL on published answers."""
    return choices(rows("figures/real_models/12_protocols.csv"))


@on_a_page
def small_choices() -> pd.DataFrame:
    """Return PRO minus NLL on two small models."""
    table = pd.concat(rows(f"{folder}/12_protocols.csv") for folder in SMALL)
    return choices(table[table["choice"].isin(["α chosen", "K = 2", "K = 10"])])


@on_a_page
def published_redraws() -> pd.DataFrame:
    """Return how often PRO is above NLL over draws of the validation questions."""
    table = rows("figures/real_models/12_redraws.csv")
    cell = "{share_better_than_nll:.0%}"
    return pivoted(table, {"answers": SETTING}, "{protocol}", cell)


@on_a_page
def audit_choices() -> pd.DataFrame:
    """Return how much each choice of the released code changes the AUROC."""
    columns = {
        "method": "{method}",
        "choice": "{choice}",
        "α": "{alpha:g}",
        "AUROC": "{auroc:.3f}",
        "difference": "{difference:+.3f} [{low:+.3f}, {high:+.3f}]",
    }
    return written(rows(f"{DATA}/audit.csv"), columns)


@on_a_page
def intervals_differences() -> pd.DataFrame:
    """Return how often the intervals of differences contain the true value, and their power."""
    table = rows(f"{DATA}/difference_intervals.csv")
    counted = table["delong_covered"] >= 0.93
    table = table.assign(
        below=table["covered"] < 0.93,
        power=table["power"].where(counted),
        delong_power=table["delong_power"].where(counted & table["power"].notna()),
    )
    cells = pd.concat([table, table.assign(scores="all")]).groupby("scores", sort=False)
    summary = cells.agg(
        n=("covered", "size"),
        lowest=("covered", "min"),
        below=("below", "sum"),
        delong=("delong_covered", "min"),
        auroc=("auroc_covered", "min"),
        power=("power", "mean"),
        delong_power=("delong_power", "mean"),
    )
    columns = {
        "scores": "{scores}",
        "cells": "{n}",
        "lowest coverage": "{lowest:.3f}",
        "below 0.93": "{below}",
        "DeLong, lowest": "{delong:.3f}",
        "single AUROC, lowest": "{auroc:.3f}",
        "power": "{power:.3f}",
        "power of DeLong": "{delong_power:.3f}",
    }
    return written(summary.reset_index(), columns)


def guarantee_rows(**where: object) -> pd.DataFrame:
    """Return rows of the simulation of guarantees."""
    table = rows(f"{DATA}/guarantees.csv", **where)
    return table[table["made"] > 0]


@on_a_page
def guarantees_draws() -> pd.DataFrame:
    """Return how often guarantees of PRO are given and false, with and without a shift."""
    table = guarantee_rows(rule="guarantee", score="PRO")
    columns = {
        "model, validation": "{model}, {validation:,}",
        "shift": "{shift}",
        "target": "{level:g}",
        "guaranteed": "{made:.1%}",
        "answered": "{coverage:.1%}",
        "false": "{failed:.1%}",
    }
    return written(table, columns)


@on_a_page
def guarantees_sets() -> pd.DataFrame:
    """Return how often answer sets are issued and miss."""
    columns = {
        "δ": "{level:g}",
        "issued": "{made:.1%}",
        "issued and missed": "{failed:.1%} ± {error:.1%}",
        "answers in a set": "{size:.2f}",
    }
    table = guarantee_rows(kind="sets", rule="issued and missed", shift=False)
    return written(table, columns)


def times(path: str) -> pd.DataFrame:
    """Return the milliseconds per question of each decoding method."""
    row = {"method": "{arm}", "what it does": "{what}"}
    column = "{model}, batch {batch_size}"
    return pivoted(rows(path, shots=10).sort_values("arm"), row, column, "{ms_min:.1f}")


@on_a_page
def speed_cpu() -> pd.DataFrame:
    """Return the milliseconds of each decoding method on a CPU."""
    return times(f"{DATA}/speed.csv")


@on_a_page
def speed_gpu() -> pd.DataFrame:
    """Return the milliseconds of each decoding method on a GPU."""
    return times(f"{DATA}/gpu_ladder.csv")


@on_a_page
def label_criteria() -> pd.DataFrame:
    """Return the criteria of estimates from labels, with the worst setting of two simulations."""
    columns = {
        "criterion": "{criterion}",
        "settings": "{n_cells}; {n_cells_again}",
        "worst setting": "{worst:.3f}; {worst_again:.3f}",
        "beyond the limit": "{n_beyond}; {n_beyond_again}",
        "significantly beyond": "{n_significant:.0f}; {n_significant_again:.0f}",
    }
    again = rows(f"{DATA}/label_criteria_again.csv").add_suffix("_again")
    return written(rows(f"{DATA}/label_criteria.csv").join(again), columns)


@on_a_page
def label_errors() -> pd.DataFrame:
    """Return bias and errors of estimates from 100 labels, by kind of setting."""
    columns = {
        "kind": "{kind}",
        "settings": "{n_cells}",
        "shown: lowest; median": "{shown_lowest:.2f}; {shown_median:.2f}",
        "largest bias": "{largest_bias:.3f}",
        "AUROC ratio: median": "{auroc_ratio_median:.2f}",
        "AUROC ratio: largest": "{auroc_ratio_largest:.2f}",
        "differences ratio: median": "{differences_ratio_median:.2f}",
        "differences ratio: largest": "{differences_ratio_largest:.2f}",
    }
    return written(rows(f"{DATA}/label_errors.csv", n_labels=100), columns)


@on_a_page
def label_widths() -> pd.DataFrame:
    """Return half the width of the intervals of estimates from labels."""
    names = {
        "auroc": "AUROC",
        "difference_1": "difference of a score with another AUROC",
        "difference_2": "difference of a score that differs on one question in five",
    }
    table = rows(f"{DATA}/label_widths.csv").replace({"quantity": names})
    return pivoted(table, {"labels": "{n_labels}"}, "{quantity}", "±{median:.3f}")


@on_a_page
def label_real() -> pd.DataFrame:
    """Return errors and coverage of estimates from labels of real answers."""
    columns = {"dataset": "{source}", "labels": "{n_labels}"}
    for name, words in (("auroc", "AUROC of NLL"), ("difference_1", "ALL minus NLL")):
        errors = f"{{{name}_random_rmse:.3f}} → {{{name}_rmse:.3f}}"
        columns[f"{words}: random → these labels"] = errors
        columns[f"{words}: bias"] = f"{{{name}_bias:+.3f}}"
        columns[f"{words}: coverage"] = f"{{{name}_questions_covered:.3f}}"
    return written(rows(f"{DATA}/label_real.csv", n_questions="all"), columns)


# The addresses of the papers that the registry of methods names.
PAPERS = {
    "Farquhar et al. 2024": "https://doi.org/10.1038/s41586-024-07421-0",
    "Kadavath et al. 2022": "https://arxiv.org/abs/2207.05221",
    "Lin et al. 2023": "https://arxiv.org/abs/2305.19187",
    "Malinin and Gales 2021": "https://arxiv.org/abs/2002.07650",
    "Nguyen, Gupta and Le 2026, Eq. 6": "https://arxiv.org/abs/2511.07694",
    "Qiu and Miikkulainen 2024": "https://arxiv.org/abs/2405.13845",
}
# The types of parameters in words.
TYPE_WORDS = {
    "Names": "text or list",
    "Text": "text",
    "Template": "text",
    "Name": "text",
    "Convention": "text",
    "Dtype": "text",
    "Engine": "text",
    "_Folder": "path",
    "tuple[Name, ...]": "list of texts",
    "Probability": "probability",
    "Probabilities": "list of probabilities",
    "PositiveShare": "positive probability",
    "Positive": "positive number",
    "NotNegative": "non-negative number",
    "PositiveInt": "positive integer",
    "WholeNumber": "non-negative integer",
    "Flag": "True or False",
    "Chat": "True, False or dict",
    "Columns": "dict",
    "Rule": "text or function",
    "Literal[1, 2]": "1 or 2",
    "Literal['log', 'linear']": "text",
}


@on_a_page
def methods() -> pd.DataFrame:
    """Return the methods of the registry."""
    lines = []
    for name in [name for name in METHODS if name in BUILT_IN]:
        source = METHODS[name].source
        link = f"[{source}]({PAPERS[source]})" if source else "–"
        lines.append([name, METHODS[name].meaning, link])
    return pd.DataFrame(lines, columns=["method", "meaning", "source"])


@on_a_page
def formats() -> pd.DataFrame:
    """Return the response formats with the options for log-probabilities."""
    lines = []
    for each in sorted(RESPONSE_FORMATS, key=lambda each: each.name):
        option = f"`{each.request}`" if each.request else "–"
        lines.append([f"`{each.name}`", each.source, option])
    return pd.DataFrame(lines, columns=["format", "from", "option for log-probabilities"])


@on_a_page
def score_options() -> pd.DataFrame:
    """Return the options of `pro score` with their help."""
    command = pro.commands["score"]
    options = [each for each in command.params if isinstance(each, click.Option)]
    records = [each.get_help_record(click.Context(command)) for each in options]
    lines = [[f"`{names}`".replace("|", r"\|"), effect] for names, effect in records]
    return pd.DataFrame(lines, columns=["option", "effect"])


@on_a_page
def parameters() -> pd.DataFrame:
    """Return the parameters of notebooks with their types in words."""
    types = {item.name: str(item.type).split(" | ") for item in fields(Parameters)}
    defaults = default_values() | {"generations_dir": None, "figures_dir": None}
    lines = []
    for name, text in help_texts().items():
        words = " or ".join(TYPE_WORDS.get(kind, kind) for kind in types[name])
        lines.append([f"`{name}`", words, f"`{defaults[name]!r}`", text])
    return pd.DataFrame(lines, columns=["parameter", "type", "default", "meaning"])


@on_a_page
def method_inputs() -> pd.DataFrame:
    """Return the inputs that a method may have."""
    lines = [[f"`{name}`", words] for name, words in INPUTS.items()]
    return pd.DataFrame(lines, columns=["argument", "what it is"])
