"""The sentences of README and docs whose numbers come from committed CSV files.

Each entry has the page, the sentence with a name in braces for each number, and the values. Its
page has the plain sentence, with any line breaks. A sentence that compares two values also lists
the pairs: the cells of CSV files with the paired differences. docs/results/claims.md is generated
from them. A comparison without a paired difference does not belong on a page.

Add a sentence: write it on its page, copy it here, put names in braces for its numbers, and run
`make docs-numbers`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from doc_sources import (
    BENCHMARK,
    CLUSTER_INTERVAL,
    COUNTED,
    EXACT_AUROC,
    GAIN,
    GEMMA,
    LLAMA,
    MEADOW,
    METHODS,
    NQ,
    PAIRED,
    PUBLISHED,
    REAL,
    SEEN,
    SETTINGS,
    SMOLLM2,
    cell,
    fixed_k_auroc,
    interval,
    listed,
    percent,
    read_csv,
    row,
    rows,
    shared_range,
    signed,
    spelled,
)

from pro_lib import metrics, scoring

# A value in a sentence: numbers or words, joined by commas, "and" or "to".
NUMBER = r"\[?[+−]?\d+(?:,\d{3})*(?:\.\d+)?(?:\s%)?\]?"
WORD = r"[A-Za-z]+"
VALUE = rf"(?:{NUMBER}(?:(?:,\s+|\s+and\s+|\s+to\s+){NUMBER})*|{WORD}(?:(?:,\s+|\s+and\s+){WORD})*)"


@dataclass(frozen=True)
class Pair:
    """A comparison of two values on the same questions, and the cell with the paired difference.

    Attributes:
        name: what is compared, such as "PRO − NLL, facts-2m, seen".
        path: the CSV file.
        where: the values of columns that select its row.
        sign: −1 if the file has the reverse difference.
        column: the column of the difference; `low` and `high` those of its interval.
    """

    name: str
    path: str
    where: Mapping[str, object]
    sign: int = 1
    column: str = "difference"
    low: str = "difference_low"
    high: str = "difference_high"


@dataclass(frozen=True)
class Sentence:
    """A sentence of a page with its values by name, and what it compares."""

    page: str
    text: str
    numbers: Mapping[str, str]
    pairs: tuple[Pair, ...] = ()

    def plain(self) -> str:
        """Return the sentence with its numbers."""
        return self.text.format(**self.numbers)

    def pattern(self) -> re.Pattern:
        """Return the pattern of the sentence, with any numbers and line breaks."""
        parts = re.split(r"(\{\w+\})", self.text)
        if parts[-1] == "":
            raise ValueError(
                f"{self.text!r} ends with a number; add the words or the full stop behind it"
            )
        pieces = []
        for part in parts:
            if part.startswith("{"):
                pieces.append(f"(?P<{part[1:-1]}>{VALUE})")
            else:
                pieces.append(re.sub(r"(\\?\s)+", r"\\s+", re.escape(part)))
        return re.compile(r"(?<![\w.])" + "".join(pieces))


def _nll(protocol: str) -> list[pd.Series]:
    return [
        row(BENCHMARK, protocol=protocol, method="NLL", **setting) for setting in SETTINGS.values()
    ]


def _minus_pro(name: str, path: str, where: Mapping[str, object], sign: int = 1) -> Pair:
    """Return a difference to PRO from a table of notebook 06."""
    quantity = "auroc_minus_pro"
    return Pair(name, path, where, sign, quantity, f"{quantity}_low", f"{quantity}_high")


def _pro_minus_nll(protocol: str) -> tuple[Pair, ...]:
    return tuple(
        _minus_pro(
            f"PRO − NLL, {name}", BENCHMARK, {"protocol": protocol, **METHODS["NLL"], **setting}, -1
        )
        for name, setting in SETTINGS.items()
    )


def _to_pro(method: str, protocol: str = "workbench") -> tuple[Pair, ...]:
    return tuple(
        _minus_pro(
            f"{method} − PRO, {name}",
            BENCHMARK,
            {"protocol": protocol, **METHODS[method], **setting},
        )
        for name, setting in SETTINGS.items()
    )


def _paired(method: str, reference: str) -> list[Pair]:
    """Return the pairs of two methods in `PAIRED`, one for each setting."""
    where = {"method": method, "reference": reference}
    return [
        Pair(f"{method} − {reference}, {name}", PAIRED, {**where, **each})
        for name, each in SETTINGS.items()
    ]


def _differences(method: str, protocol: str = "workbench") -> list[float]:
    return [
        cell(BENCHMARK, "auroc_minus_pro", **METHODS[method], protocol=protocol, **s)
        for s in SETTINGS.values()
    ]


def _aurocs(method: str, protocol: str = "workbench") -> list[float]:
    return [
        cell(BENCHMARK, "auroc", **METHODS[method], protocol=protocol, **s)
        for s in SETTINGS.values()
    ]


def _alphas(protocol: str) -> str:
    where = {"protocol": protocol, **METHODS["PRO"]}
    return listed(f"{cell(BENCHMARK, 'alpha', **where, **s):g}" for s in SETTINGS.values())


def _gain(name: str, where: Mapping[str, object], protocol: str, chosen: str) -> Pair:
    at = {"protocol": protocol, "chosen": chosen, **where}
    return Pair(name, GAIN, at, column="median", low="low", high="high")


def _with_ends(
    name: str, record: pd.Series, quantity: str = "difference", ends: str = "{}"
) -> dict[str, str]:
    """Return a difference and its interval as the values `name` and `name_ends` of a sentence."""
    low, high = (record[ends.format(end)] for end in ("low", "high"))
    return {name: signed(record[quantity]), f"{name}_ends": interval(low, high)}


def _readme_gains() -> list[Sentence]:
    """Return the sentences about the gains on published answers."""
    alpha = {name: _gained(where, "paper", "alpha") for name, where in PUBLISHED.items()}
    nq, meadow, llama = alpha.values()
    return [
        Sentence(
            "README.md",
            "With gpt-3.5-turbo, PRO's AUROC minus NLL's is {nq} {nq_ends} on Natural Questions "
            "and "
            "{meadow} {meadow_ends} on Meadow. With Llama-2-7b-chat on Natural Questions it is "
            "{llama} {llama_ends}.",
            {
                **_with_ends("nq", nq, "median"),
                **_with_ends("meadow", meadow, "median"),
                **_with_ends("llama", llama, "median"),
            },
            tuple(
                _gain(f"PRO, α chosen − NLL, {name}, repeats kept", where, "paper", "alpha")
                for name, where in PUBLISHED.items()
            ),
        ),
        Sentence(
            "README.md",
            "In 200 random draws of these questions, PRO had a higher AUROC than NLL on Meadow in "
            "only {share} of the draws.",
            {"share": percent(meadow["above_nll"])},
            (
                _gain(
                    "PRO, α chosen − NLL, gpt-3.5, Meadow, repeats kept", MEADOW, "paper", "alpha"
                ),
            ),
        ),
    ]


def _readme_models() -> list[Sentence]:
    """Return the sentences about the differences of the bundled and small models."""
    small = [
        record
        for folder in (SMOLLM2, GEMMA)
        for record in rows(f"{folder}/06_benchmark.csv", protocol="paper", method="NLL").to_dict(
            "records"
        )
    ]
    others = [*_nll("paper"), *small]
    return [
        Sentence(
            "README.md",
            "In the {n} settings of the bundled models, SmolLM2-135M and Gemma 3 270M, PRO's AUROC "
            "minus NLL's is {low} to {high}. It is significant in {count} of them.",
            {
                "n": spelled(len(others)),
                "low": signed(-max(each["auroc_minus_pro"] for each in others)),
                "high": signed(-min(each["auroc_minus_pro"] for each in others)),
                "count": spelled(sum(each["significant"] for each in others)),
            },
            (
                *_pro_minus_nll("paper"),
                *_small("NLL", "paper"),
                *_small("NLL", "paper", GEMMA, "Gemma"),
            ),
        ),
    ]


def _readme_fixed_k() -> list[Sentence]:
    """Return the sentences about the gains with ten answers to every question."""
    causes = {"cause": "repeats kept", "k": 10}
    return [
        Sentence(
            "README.md",
            "With ten answers to every question, PRO's AUROC minus NLL's is {nq} {nq_ends} on "
            "Natural Questions and {meadow} {meadow_ends} on Meadow (gpt-3.5-turbo).",
            {
                **_with_ends(
                    "nq",
                    row(f"{REAL}/08_causes.csv", **causes),
                    "auroc_minus_nll",
                    "auroc_minus_nll_{}",
                ),
                "meadow": signed(-_meadow()["auroc_minus_pro"]),
                "meadow_ends": interval(
                    -_meadow()["auroc_minus_pro_high"], -_meadow()["auroc_minus_pro_low"]
                ),
            },
            (
                Pair(
                    "K = 10 − NLL, gpt-3.5, NQ, repeats kept",
                    f"{REAL}/08_causes.csv",
                    causes,
                    column="auroc_minus_nll",
                    low="auroc_minus_nll_low",
                    high="auroc_minus_nll_high",
                ),
                _minus_pro(
                    "PRO with all ten answers (α = 0) − NLL, gpt-3.5, Meadow, repeats kept",
                    f"{REAL}/12_benchmark.csv",
                    {"protocol": "paper", "method": "NLL", **MEADOW},
                    -1,
                ),
            ),
        ),
    ]


def _readme() -> list[Sentence]:
    return [
        *_readme_gains(),
        *_readme_models(),
        *_readme_fixed_k(),
    ]


def _gained(where: Mapping[str, object], protocol: str, chosen: str) -> pd.Series:
    return row(GAIN, protocol=protocol, chosen=chosen, **where)


def _meadow() -> pd.Series:
    return row(f"{REAL}/12_benchmark.csv", protocol="paper", method="NLL", **MEADOW)


def _benchmark_pro_and_nll() -> list[Sentence]:
    """Return the sentences about the differences between PRO and NLL."""
    page = "docs/results/benchmark.md"
    nll = [*_nll("workbench"), *_nll("paper")]
    readings = [record["reading"] for record in _nll("workbench")]
    oracles = rows(PAIRED, method="PRO, oracle", reference="NLL")
    oracle = oracles.loc[oracles["difference"].idxmax()]
    medians = [
        cell("figures/12_redraws.csv", "auroc_median", protocol="workbench", **setting) - base
        for setting, base in zip(SETTINGS.values(), _aurocs("NLL"), strict=True)
    ]
    table = read_csv(BENCHMARK)
    return [
        Sentence(
            page,
            "The 95 % [intervals](../explanation/intervals.md) are by {unit}.",
            {"unit": "relation" if "by cluster" in set(table.get("interval", ())) else "question"},
        ),
        Sentence(
            page,
            "by either [protocol](../explanation/protocols.md), and its AUROC differs from "
            "NLL's by {most} at most.",
            {"most": f"{max(abs(record['auroc_minus_pro']) for record in nll):.3f}"},
            (*_pro_minus_nll("workbench"), *_pro_minus_nll("paper")),
        ),
        Sentence(
            page,
            "With the chosen α ({alphas}) PRO's AUROC minus NLL's is {differences}; {significant} "
            "is significant.",
            {
                "alphas": _alphas("workbench"),
                "differences": listed(signed(-value) for value in _differences("NLL")),
                "significant": spelled(sum(record["significant"] for record in _nll("workbench"))),
            },
            _pro_minus_nll("workbench"),
        ),
        Sentence(
            page,
            "is *{first}* in the first setting, and *{second}*, *{third}* and *{fourth}* in the "
            "others.",
            dict(zip(("first", "second", "third", "fourth"), readings, strict=True)),
            _to_pro("NLL"),
        ),
        Sentence(
            page,
            "Even the oracle's AUROC minus NLL's is at most {oracle} {oracle_ends}.",
            _with_ends("oracle", oracle, ends="difference_{}"),
            tuple(_paired("PRO, oracle", "NLL")),
        ),
        Sentence(
            page,
            "Over 200 redraws of the hundred questions the median of PRO minus NLL is {medians}.",
            {"medians": listed(map(signed, medians))},
        ),
    ]


def _benchmark_methods() -> list[Sentence]:
    """Return the sentences about the differences between PRO and the other methods."""
    page = "docs/results/benchmark.md"
    table = read_csv(BENCHMARK)
    fair = table[
        (table["protocol"] == "workbench") & ~table["alpha_choice"].isin(["oracle", "default"])
    ]
    best = fair.loc[fair.groupby(["dataset", "model"])["auroc"].idxmax()]
    is_sd = (best["method"] == "SD") & (best["similarity"] == "lexical")
    sd, se = (
        rows(BENCHMARK, protocol="workbench", **METHODS[f"{name}, lexical"])
        for name in ("SD", "SE")
    )
    return [
        Sentence(
            page,
            "**ALL** is above PRO in all four settings, by {differences}. With intervals by "
            "relation, {significant} of these differences is significant.",
            {
                "differences": shared_range(_differences("ALL")),
                "significant": spelled(
                    int(rows(BENCHMARK, protocol="workbench", method="ALL")["significant"].sum())
                ),
            },
            _to_pro("ALL"),
        ),
        Sentence(
            page,
            "**SD**, with ROUGE-L to compare meanings, has the highest AUROC in {count} "
            "settings. It is significantly above PRO in {significant}.",
            {
                "count": spelled(int(is_sd.sum())),
                "significant": spelled(
                    int((sd["significant"] & (sd["auroc_minus_pro"] > 0)).sum())
                ),
            },
            _to_pro("SD, lexical"),
        ),
        Sentence(
            page,
            "**SE** over the meanings of the beams differs from PRO significantly in {significant} "
            "setting.",
            {"significant": spelled(int(se["significant"].sum())).replace("none", "no")},
            _to_pro("SE, lexical"),
        ),
        Sentence(
            page,
            "**PE** by the paper's Eq. 2 is {differences} below PRO.",
            {"differences": shared_range([-value for value in _differences("PE")], 2)},
            _to_pro("PE"),
        ),
    ]


def _benchmark_meanings() -> list[Sentence]:
    """Return the sentences about methods that compare meanings by aliases."""
    page = "docs/results/benchmark.md"
    judges = rows(PAIRED).query("reference != 'NLL'")
    is_significant = metrics.holm(judges["p_value"]) <= 0.05
    return [
        Sentence(
            page,
            "With it the AUROCs of SD, Deg and SE minus those with ROUGE-L are {low} to {high} in "
            "the {n} cases. By "
            "Holm's correction over these, {lower} is significantly lower and {higher} "
            "significantly higher.",
            {
                "low": signed(judges["difference"].min()),
                "high": signed(judges["difference"].max()),
                "n": spelled(len(judges)),
                "lower": spelled(int((is_significant & (judges["difference"] < 0)).sum())),
                "higher": spelled(int((is_significant & (judges["difference"] > 0)).sum())),
            },
            tuple(
                pair
                for name in ("SD", "Deg", "SE")
                for pair in _paired(f"{name}, alias", f"{name}, lexical")
            ),
        ),
    ]


def _benchmark_protocols() -> list[Sentence]:
    """Return the sentences about the differences between the protocols."""
    page = "docs/results/benchmark.md"
    moves = []
    for name in ("SE, lexical", "SE, alias", "SD, lexical", "SD, alias"):
        moves += [abs(a - b) for a, b in zip(_aurocs(name, "paper"), _aurocs(name), strict=True)]
    return [
        Sentence(
            page,
            "with the chosen α ({alphas}) PRO minus NLL is {differences}.",
            {
                "alphas": _alphas("paper"),
                "differences": listed(signed(-value) for value in _differences("NLL", "paper")),
            },
            _pro_minus_nll("paper"),
        ),
        Sentence(page, "SE and SD change by at most {most}.", {"most": f"{max(moves):.3f}"}),
        Sentence(
            page,
            "with 95 % intervals. {count} of these differences is significant by Holm's "
            "correction over the methods of a setting.",
            {"count": spelled(sum(each["significant"] for each in _meanings())).capitalize()},
            (*_to_pro("S-NLL, lexical"), *_to_pro("S-PRO, lexical")),
        ),
    ]


def _benchmark_repeats() -> list[Sentence]:
    """Return the sentences about NE and PE with and without repeats."""
    page = "docs/results/benchmark.md"
    seen = {
        (
            method,
            protocol,
        ): f"{cell(BENCHMARK, 'auroc', **METHODS[method], protocol=protocol, **SEEN):.3f}"
        for method in ("NE", "PE")
        for protocol in ("paper", "workbench")
    }
    return [
        Sentence(
            page,
            "for facts-2m, seen, NE has {beams} on beams and {samples} on samples. PE has "
            "{repeats} with repeats and {once} without.",
            {
                "beams": seen["NE", "paper"],
                "samples": seen["NE", "workbench"],
                "repeats": seen["PE", "paper"],
                "once": seen["PE", "workbench"],
            },
            (
                Pair(
                    "NE on samples − on beams, facts-2m, seen",
                    "docs/results/data/audit.csv",
                    _audit("NE"),
                    -1,
                    low="low",
                    high="high",
                ),
                Pair(
                    "PE without repeats − with, facts-2m, seen",
                    "docs/results/data/audit.csv",
                    _audit("PE"),
                    -1,
                    low="low",
                    high="high",
                ),
            ),
        ),
    ]


def _benchmark_answers() -> list[Sentence]:
    """Return the sentences about the answers of the bundled models and their documents."""
    page = "docs/results/benchmark.md"
    exposure = {
        score: cell("figures/00_exposure.csv", "mean", measure=score, exposure=32, conflict=0.5)
        for score in ("PRO", "NLL", "accuracy")
    }
    told = cell("figures/00_exposure.csv", "mean", measure="accuracy", exposure=8, conflict=0)
    distinct = (
        read_csv("figures/01_generate.csv").groupby(["dataset", "model"])["n_distinct"].mean()
    )
    return [
        Sentence(
            page,
            "the ten beams of a question contain {distinct} distinct answers.",
            {"distinct": shared_range(distinct, 1)},
        ),
        Sentence(
            page,
            "If 32 documents state a fact and half of them are false, the model is right in "
            "{contested}.",
            {"contested": f"{exposure['accuracy']:.0%}".replace("%", " %")},
        ),
        Sentence(page, "where it is right in {told}.", {"told": f"{told:.0%}".replace("%", " %")}),
        Sentence(
            page,
            "is {nats} nats on average for these questions.",
            {"nats": f"{exposure['PRO'] - exposure['NLL']:.3f}"},
        ),
    ]


def _benchmark_k() -> list[Sentence]:
    """Return the sentences about fixed K and mean K."""
    page = "docs/results/benchmark.md"
    fixed = {
        (protocol, k): fixed_k_auroc("figures/12_fixed_k.csv", protocol=protocol, k=k, **SEEN)
        for protocol in ("paper", "workbench")
        for k in (1, 2, 5)
    }
    kept = {
        protocol: cell("figures/12_k_vs_alpha.csv", "mean_k", protocol=protocol, alpha=0.4, **SEEN)
        for protocol in ("paper", "workbench")
    }
    return [
        Sentence(
            page,
            "and AUROC falls by {second} to K = 2 and {fifth} to K = 5.",
            {
                "second": f"{fixed['paper', 1] - fixed['paper', 2]:.3f}",
                "fifth": f"{fixed['paper', 1] - fixed['paper', 5]:.3f}",
            },
            tuple(
                Pair(
                    f"K = {k} − NLL, facts-2m, seen, repeats kept",
                    "figures/08_causes.csv",
                    {"cause": "repeats kept", "k": k},
                    column="auroc_minus_nll",
                    low="auroc_minus_nll_low",
                    high="auroc_minus_nll_high",
                )
                for k in (2, 5)
            ),
        ),
        Sentence(
            page,
            "the row *kept* of facts-2m correlates with those printed for Gemma-2B, Gemma-7B and "
            "Llama2-13B at {correlations}.",
            {"correlations": listed(f"{value:.2f}".replace("-", "−") for value in _correlations())},
        ),
        Sentence(
            page,
            "At α = 0.4 mean K is {repeats} with repeats and {once} without.",
            {"repeats": f"{kept['paper']:.2f}", "once": f"{kept['workbench']:.2f}"},
        ),
    ]


def _benchmark() -> list[Sentence]:
    page = "docs/results/benchmark.md"
    return [
        *_benchmark_pro_and_nll(),
        *_benchmark_methods(),
        *_benchmark_meanings(),
        *_benchmark_protocols(),
        *_benchmark_repeats(),
        *_benchmark_answers(),
        *_benchmark_k(),
        *_exact(page),
        *_costs(page),
        *_sampling(page),
    ]


def _meanings() -> list[pd.Series]:
    methods = ("S-NLL, lexical", "S-PRO, lexical")
    return [
        row(BENCHMARK, protocol="workbench", **METHODS[method], **setting)
        for method in methods
        for setting in SETTINGS.values()
    ]


def _audit(method: str) -> dict[str, object]:
    return {"method": method, "choice": "of the beams, repeats kept"}


def _correlations() -> list[float]:
    ours = rows("figures/12_fixed_k.csv", protocol="paper", k_choice="fixed", **SEEN)
    ours = ours.sort_values("k")["auroc"].reset_index(drop=True)
    values = []
    for model in ("Gemma-2B", "Gemma-7B", "Llama2-13B"):
        printed = rows("data/paper/fixed_k.csv", selection="fixed", model=model).sort_values("k")
        values.append(ours.corr(printed["auroc"].reset_index(drop=True)))
    return values


def _exact(page: str) -> list[Sentence]:
    scores = {
        "NLL": {"method": "NLL"},
        "α-floor": {"method": "α-floor"},
        "tree bound": {"method": "tree bound"},
        "mass not found": {"method": "probability not found"},
        "PRO, beams": {"method": "PRO", "strategy": "diverse_beam", "alpha_choice": "validation"},
    }
    records = {name: row(EXACT_AUROC, **where) for name, where in scores.items()}
    pairs = {name: _to_exact(f"{name} − PRO, exact", where) for name, where in scores.items()}
    pairs["NLL"] = _to_exact("PRO, exact − NLL", scores["NLL"], sign=-1)
    nll = records["NLL"]
    beams = records["PRO, beams"]
    searched = ("α-floor", "tree bound", "mass not found")
    floor, tree, rest = (signed(records[name]["auroc_minus_pro"]) for name in searched)
    return [
        Sentence(
            page,
            "with α chosen on validation its AUROC minus NLL's is {difference} {ends}.",
            {
                "difference": signed(-nll["auroc_minus_pro"]),
                "ends": interval(-nll["auroc_minus_pro_high"], -nll["auroc_minus_pro_low"]),
            },
            (pairs["NLL"],),
        ),
        Sentence(
            page,
            "The scores that only a search can give are worse than PRO of the search: "
            "α-floor {floor}, tree bound {tree}, mass not found {rest}.",
            {"floor": floor, "tree": tree, "rest": rest},
            tuple(pairs[name] for name in searched),
        ),
        Sentence(
            page,
            "The AUROC of PRO of beams differs from that of PRO of the search by {difference} "
            "{ends}.",
            {
                "difference": signed(beams["auroc_minus_pro"]),
                "ends": interval(beams["auroc_minus_pro_low"], beams["auroc_minus_pro_high"]),
            },
            (pairs["PRO, beams"],),
        ),
    ]


def _to_exact(name: str, where: Mapping[str, object], sign: int = 1) -> Pair:
    """Return the difference of a score to PRO of the exact search."""
    ends = {"low": "auroc_minus_pro_low", "high": "auroc_minus_pro_high"}
    return Pair(name, EXACT_AUROC, where, sign, "auroc_minus_pro", **ends)


def _costs(page: str) -> list[Sentence]:
    seconds = read_csv("docs/results/data/score_cost.csv").set_index("method")["seconds"]
    by = {
        judge: shared_range([seconds[f"{name}, {judge}"] for name in ("SE", "SD", "Deg")], 2)
        for judge in ("lexical", "alias")
    }
    return [
        Sentence(
            page,
            "NLL, PE and PRO take {cheap}. SE, SD and Deg take {lexical} if ROUGE-L compares "
            "the answers, and {alias} with the table of aliases.",
            {"cheap": listed(f"{seconds[name]:.4f}" for name in ("NLL", "PE", "PRO")), **by},
        ),
    ]


def _sampling(page: str) -> list[Sentence]:
    path = "docs/results/data/sampling.csv"
    table = read_csv(path)
    pro = table[table["method"] == "PRO"]
    fixed = table[table["method"].str.startswith("PRO_")]
    gain = row(path, dataset="world-facts-reworded", answers="temperature 1.5", method="PRO_10")
    other = fixed[fixed["answers"] != "temperature 1.5"]["difference"]
    pairs = [
        Pair(
            f"PRO − NLL, {record.answers}, {record.dataset}",
            path,
            {"dataset": record.dataset, "answers": record.answers, "method": "PRO"},
        )
        for record in pro.itertuples()
    ]
    at = {"dataset": "world-facts-reworded", "answers": "temperature 1.5", "method": "PRO_10"}
    return [
        Sentence(
            page,
            "with α from validation they differ by {most} at most.",
            {"most": f"{pro['difference'].abs().max():.3f}"},
            tuple(pairs),
        ),
        Sentence(
            page,
            "(reworded, K = 10: {gain} {ends}).",
            {
                "gain": signed(gain["difference"]),
                "ends": interval(gain["difference_low"], gain["difference_high"]),
            },
            (Pair("K = 10 − NLL, temperature 1.5, reworded", path, at),),
        ),
        Sentence(
            page,
            "Elsewhere every fixed K from 2 on is below NLL, by {differences}.",
            {"differences": shared_range(-other)},
            tuple(
                Pair(
                    f"K = {record.method[4:]} − NLL, {record.answers}, {record.dataset}",
                    path,
                    {"dataset": record.dataset, "answers": record.answers, "method": record.method},
                )
                for record in fixed[fixed["answers"] != "temperature 1.5"].itertuples()
            ),
        ),
    ]


def _audit_choices() -> list[Sentence]:
    """Return the sentences about choices that lower or raise AUROC."""
    path = "docs/results/data/audit.csv"
    page = "docs/results/audit.md"
    ending = row(path, method="PRO", choice="ending left out")
    own = {"choice": "this project's"}
    default = row(path, method="PRO", choice="α = 0.4, not chosen")
    repeats = row(path, method="PRO", choice="repeated beams kept")
    judged = row(path, method="PRO", choice="judged by the first beam, fallback on it")
    n_significant = sum(not each["low"] <= 0 <= each["high"] for each in (default, repeats))

    def pair(name: str, choice: str) -> Pair:
        return Pair(name, path, {"method": "PRO", "choice": choice}, low="low", high="high")

    return [
        Sentence(
            page,
            "With the default α = 0.4 instead of the chosen α, AUROC changes by {default} "
            "{default_ends}. With repeated beams it changes by {repeats} {repeats_ends}; {count} "
            "is significant. With another rule for the judged answer it changes by {judged} "
            "{judged_ends}.",
            {
                **_with_ends("default", default),
                **_with_ends("repeats", repeats),
                "count": {0: "neither", 1: "one", 2: "each"}[n_significant],
                **_with_ends("judged", judged),
            },
            (
                pair("α = 0.4 − the chosen α", default["choice"]),
                pair("repeated beams kept − once each", repeats["choice"]),
                pair("judged by the first beam − this project's", judged["choice"]),
            ),
        ),
        Sentence(
            page,
            "NE has {ne} on samples, PE by Eq. 2 {pe} on distinct beams.",
            {
                "ne": f"{cell(path, 'auroc', method='NE', **own):.3f}",
                "pe": f"{cell(path, 'auroc', method='PE', **own):.3f}",
            },
        ),
        Sentence(
            page,
            "gives {share} of the questions a mass above 1 even without repeats.",
            {"share": f"{ending['above_one'] / ending['n_questions']:.0%}".replace("%", " %")},
        ),
    ]


def _audit_release() -> list[Sentence]:
    """Return the sentences about other judges and all choices of the release."""
    path = "docs/results/data/audit.csv"
    page = "docs/results/audit.md"
    alias = row(path, method="PRO", choice="alias match")
    exact = row(path, method="PRO", choice="exact match")
    released = row(path, method="PRO", choice="as released, but for the cuts in the text")

    def pair(name: str, choice: str) -> Pair:
        return Pair(name, path, {"method": "PRO", "choice": choice}, low="low", high="high")

    return [
        Sentence(
            page,
            "Exact and alias match are stricter judges and *raise* AUROC by {differences}.",
            {
                "differences": listed(
                    dict.fromkeys(f"{each['difference']:.3f}" for each in (exact, alias))
                )
            },
            (
                pair("exact match − ROUGE-L", "exact match"),
                pair("alias match − ROUGE-L", "alias match"),
            ),
        ),
        Sentence(
            page,
            "**All choices of the release together** make a difference of {difference} "
            "{difference_ends}, an "
            "interval that {verdict} 0, with an oracle α of {alpha},",
            {
                **_with_ends("difference", released),
                "verdict": "contains" if released["low"] <= 0 <= released["high"] else "excludes",
                "alpha": f"{released['alpha']:g}",
            },
            (pair("as released − this project's", "as released, but for the cuts in the text"),),
        ),
    ]


def _audit_page() -> list[Sentence]:
    return [
        *_audit_choices(),
        *_audit_release(),
    ]


SMOLLM2_SETTINGS = {
    name: {"dataset": name, "model": "smollm2-135m"} for name in ("world-facts", "sciq", "nq")
}


def _smollm2_and_nll() -> list[Sentence]:
    """Return the sentences about PRO and NLL of SmolLM2-135M."""
    page = "docs/results/real_models.md"
    small = f"{SMOLLM2}/06_benchmark.csv"
    loses = row(small, protocol="paper", method="NLL", **SMOLLM2_SETTINGS["world-facts"])
    redraws = rows(f"{SMOLLM2}/06_redraws.csv", **SMOLLM2_SETTINGS["world-facts"])[
        "share_better_than_nll"
    ]
    return [
        Sentence(
            page,
            "on world-facts 100 validation questions chose α = 0, and with repeats counted "
            "PRO minus NLL is then {difference} {ends}.",
            {
                "difference": signed(-loses["auroc_minus_pro"]),
                "ends": interval(-loses["auroc_minus_pro_high"], -loses["auroc_minus_pro_low"]),
            },
            (
                _minus_pro(
                    "PRO − NLL, SmolLM2, world-facts, repeats kept",
                    small,
                    {"protocol": "paper", "method": "NLL", **SMOLLM2_SETTINGS["world-facts"]},
                    -1,
                ),
            ),
        ),
        Sentence(
            page,
            "In 200 redraws of the validation questions, PRO beats NLL in {share} of the redraws.",
            {"share": f"{100 * redraws.min():.0f} to {100 * redraws.max():.0f} %"},
        ),
    ]


def _smollm2_scores() -> list[Sentence]:
    """Return the sentences about SD and the calibration of SmolLM2-135M."""
    page = "docs/results/real_models.md"
    small = f"{SMOLLM2}/06_benchmark.csv"
    sd = {
        name: row(small, protocol="paper", **METHODS["SD, lexical"], **SMOLLM2_SETTINGS[name])
        for name in ("sciq", "nq")
    }
    errors = [
        cell(small, "ece", protocol="workbench", **METHODS["PRO"], **SMOLLM2_SETTINGS[name])
        for name in SMOLLM2_SETTINGS
    ]
    return [
        Sentence(
            page,
            "The AUROC of SD (by words) minus PRO's is {sciq} {sciq_ends} on SciQ and {nq} "
            "{nq_ends} on NQ, {count} "
            "significant.",
            {
                **_with_ends("sciq", sd["sciq"], "auroc_minus_pro", "auroc_minus_pro_{}"),
                **_with_ends("nq", sd["nq"], "auroc_minus_pro", "auroc_minus_pro_{}"),
                "count": {0: "neither", 1: "one", 2: "both"}[
                    sum(each["significant"] for each in sd.values())
                ],
            },
            tuple(
                _minus_pro(
                    f"SD, lexical − PRO, SmolLM2, {name}",
                    small,
                    {"protocol": "paper", **METHODS["SD, lexical"], **SMOLLM2_SETTINGS[name]},
                )
                for name in sd
            ),
        ),
        Sentence(
            page,
            "With isotonic regression, the calibration error on other questions is {errors}.",
            {"errors": listed(f"{error:.2f}" for error in errors)},
        ),
    ]


def _smollm2_guarantees() -> list[Sentence]:
    """Return the sentences about the guarantees and the entropy of SmolLM2-135M."""
    page = "docs/results/real_models.md"
    entropy = (
        read_csv(f"{SMOLLM2}/09_entropy.csv").groupby("dataset")[["entropy", "tree_bound"]].mean()
    )
    guarantees = f"{SMOLLM2}/09_guarantees.csv"

    def share(name: str, target: float, method: str) -> str:
        where = {"target": target, "method": method, **SMOLLM2_SETTINGS[name]}
        return f"{cell(guarantees, 'coverage', **where):.0%}".replace("%", " %")

    issued = read_csv(guarantees).query("threshold.notna()")
    most = issued.groupby("dataset")["target"].max()
    return [
        Sentence(
            page,
            "on world-facts PRO guarantees that 40 % of the answers are right, for {facts} of the "
            "questions, and ALL "
            "guarantees {best}, for {all_facts}. On SciQ the highest guaranteed accuracy is "
            "{sciq}: PRO guarantees it "
            "for {pro} of the questions and ALL for {average}.",
            {
                "facts": share("world-facts", 0.4, "PRO"),
                "best": percent(most["world-facts"]),
                "all_facts": share("world-facts", most["world-facts"], "ALL"),
                "sciq": percent(most["sciq"]),
                "pro": share("sciq", most["sciq"], "PRO"),
                "average": share("sciq", most["sciq"], "ALL"),
            },
        ),
        Sentence(
            page,
            "Its estimate is {estimate} nats in the mean on world-facts, by samples. The tree"
            " bound of the search is {bound}.",
            {
                "estimate": f"{entropy.loc['world-facts', 'entropy']:.0f}",
                "bound": f"{entropy.loc['world-facts', 'tree_bound']:.0f}",
            },
        ),
    ]


def _gemma_guarantees() -> list[Sentence]:
    """Return the sentences about the guarantees and the entropy of Gemma 3 270M."""
    page = "docs/results/real_models.md"
    gemma_entropy = (
        read_csv(f"{GEMMA}/09_entropy.csv").groupby("dataset")[["entropy", "tree_bound"]].mean()
    )
    gemma_pro = read_csv(f"{GEMMA}/09_guarantees.csv").query(
        "dataset == 'world-facts' and method == 'PRO' and threshold.notna()"
    )
    gemma_target = gemma_pro["target"].max()
    gemma_share = gemma_pro.set_index("target").loc[gemma_target, "coverage"]
    return [
        Sentence(
            page,
            "on world-facts PRO and NLL both guarantee that {best} of the answers are right, for "
            "{facts} of the questions.",
            {"best": percent(gemma_target), "facts": percent(gemma_share)},
        ),
        Sentence(
            page,
            "The estimated mean entropy is {estimates} nats on world-facts, SciQ and NQ. The mean "
            "tree bound of the search is {bounds}.",
            {
                "estimates": listed(
                    f"{gemma_entropy.loc[name, 'entropy']:.0f}" for name in SMOLLM2_SETTINGS
                ),
                "bounds": listed(
                    f"{gemma_entropy.loc[name, 'tree_bound']:.0f}" for name in SMOLLM2_SETTINGS
                ),
            },
        ),
    ]


def _published_alpha_gains() -> list[Sentence]:
    """Return the sentences about the gains on published answers with a chosen α."""
    page = "docs/results/real_models.md"
    once, kept = (
        {name: _gained(where, p, "alpha") for name, where in PUBLISHED.items()} for p in COUNTED
    )
    nq, meadow = "gpt-3.5, NQ", "gpt-3.5, Meadow"
    return [
        Sentence(
            page,
            "The gain is {nq} {nq_ends} with repeats counted and {nq_once} {nq_once_ends} with "
            "each answer once. On "
            "Meadow it is {meadow} {meadow_ends} and {meadow_once} {meadow_once_ends}, so no "
            "difference is shown.",
            {
                **_with_ends("nq", kept[nq], "median"),
                **_with_ends("nq_once", once[nq], "median"),
                **_with_ends("meadow", kept[meadow], "median"),
                **_with_ends("meadow_once", once[meadow], "median"),
            },
            tuple(
                _gain(
                    f"PRO, α chosen − NLL, {name}, {COUNTED[protocol]}",
                    PUBLISHED[name],
                    protocol,
                    "alpha",
                )
                for name in (nq, meadow)
                for protocol in COUNTED
            ),
        ),
    ]


def _published_k_gains() -> list[Sentence]:
    """Return the sentences about the gains on published answers with a chosen K."""
    page = "docs/results/real_models.md"
    k_once, k_kept = (
        {name: _gained(where, p, "K") for name, where in PUBLISHED.items()} for p in COUNTED
    )
    nq, meadow = "gpt-3.5, NQ", "gpt-3.5, Meadow"
    ten = row(f"{REAL}/08_causes.csv", cause="repeats kept", k=10)
    return [
        Sentence(
            page,
            "On NQ the gain is {nq} {nq_ends} with repeats and {nq_once} {nq_once_ends} "
            "without. On Meadow it is {meadow} {meadow_ends} with repeats and {meadow_once} "
            "{meadow_once_ends} without. With K = 10 and repeats, AUROC minus NLL's on NQ is "
            "{ten} {ten_ends}:",
            {
                **_with_ends("nq", k_kept[nq], "median"),
                **_with_ends("nq_once", k_once[nq], "median"),
                **_with_ends("meadow", k_kept[meadow], "median"),
                **_with_ends("meadow_once", k_once[meadow], "median"),
                **_with_ends("ten", ten, "auroc_minus_nll", "auroc_minus_nll_{}"),
            },
            (
                *(
                    _gain(
                        f"PRO, K chosen − NLL, {name}, {COUNTED[protocol]}",
                        PUBLISHED[name],
                        protocol,
                        "K",
                    )
                    for name in (nq, meadow)
                    for protocol in COUNTED
                ),
                Pair(
                    "K = 10 − NLL, gpt-3.5, NQ, repeats kept",
                    f"{REAL}/08_causes.csv",
                    {"cause": "repeats kept", "k": 10},
                    column="auroc_minus_nll",
                    low="auroc_minus_nll_low",
                    high="auroc_minus_nll_high",
                ),
            ),
        ),
    ]


def _published_methods() -> list[Sentence]:
    """Return the sentences about the methods on published answers."""
    page = "docs/results/real_models.md"
    benchmark = f"{REAL}/12_benchmark.csv"
    meadow_once = {"protocol": "workbench", **MEADOW}
    stated = row(benchmark, protocol="workbench", method="Stated", **NQ)
    mc = {"protocol": "workbench", "method": "PE-MC"}
    return [
        Sentence(
            page,
            "(PRO {pro}, NLL {nll}: a difference of {difference} {ends}).",
            {
                "pro": f"{cell(benchmark, 'auroc', **METHODS['PRO'], **meadow_once):.3f}",
                "nll": f"{cell(benchmark, 'auroc', method='NLL', **meadow_once):.3f}",
                "difference": signed(-_meadow_once()["auroc_minus_pro"]),
                "ends": interval(
                    -_meadow_once()["auroc_minus_pro_high"], -_meadow_once()["auroc_minus_pro_low"]
                ),
            },
            (
                _minus_pro(
                    "PRO − NLL, gpt-3.5, Meadow, once each",
                    benchmark,
                    {"protocol": "workbench", "method": "NLL", **MEADOW},
                    -1,
                ),
            ),
        ),
        Sentence(
            page,
            "its AUROC minus PRO's is {nq} {nq_ends} on NQ and {meadow} {meadow_ends} on Meadow.",
            {
                **_with_ends(
                    "nq", row(benchmark, **mc, **NQ), "auroc_minus_pro", "auroc_minus_pro_{}"
                ),
                **_with_ends(
                    "meadow",
                    row(benchmark, **mc, **MEADOW),
                    "auroc_minus_pro",
                    "auroc_minus_pro_{}",
                ),
            },
            tuple(
                _minus_pro(f"PE-MC − PRO, gpt-3.5, {name}", benchmark, {**mc, **where})
                for name, where in (("NQ", NQ), ("Meadow", MEADOW))
            ),
        ),
        Sentence(
            page,
            "AUROC {stated} [{low}, {high}] on NQ, *below* chance.",
            {
                "stated": f"{stated['auroc']:.3f}",
                "low": f"{stated['auroc_low']:.3f}",
                "high": f"{stated['auroc_high']:.3f}",
            },
        ),
    ]


def _real_models() -> list[Sentence]:
    page = "docs/results/real_models.md"
    return [
        *_smollm2_and_nll(),
        *_smollm2_scores(),
        *_smollm2_guarantees(),
        *_gemma_guarantees(),
        *_published_alpha_gains(),
        *_published_k_gains(),
        *_published_methods(),
        _guaranteed_of_published(page),
    ]


def _meadow_once() -> pd.Series:
    return row(f"{REAL}/12_benchmark.csv", protocol="workbench", method="NLL", **MEADOW)


def _guaranteed_of_published(page: str) -> Sentence:
    table = read_csv(f"{REAL}/09_guarantees.csv")
    made = table[(table["target"] == 0.7) & table["threshold"].notna()]
    below = made[made["accuracy"] < 0.7]
    return Sentence(
        page,
        "There are {n} guarantees. On the reported questions, {below} of them have an accuracy "
        "below 0.7; the lowest accuracy is {lowest}.",
        {
            "n": str(len(made)),
            "below": spelled(len(below)),
            "lowest": f"{made['accuracy'].min():.2f}",
        },
    )


def _printed_values() -> list[Sentence]:
    """Return the sentences about values that the paper prints."""
    page = "docs/explanation/notebooks_and_paper.md"
    read_csv("figures/08_when_does_pro_help.csv")
    bars = read_csv("figures/12_rouge_threshold.csv")
    by_bar = bars.pivot_table(
        index=["dataset", "model", "protocol", "method", "similarity"],
        columns="rouge_threshold",
        values="auroc",
        dropna=False,
    )
    paper = read_csv("data/paper/rouge_thresholds.csv").pivot_table(
        index="method", columns="threshold", values="auroc"
    )
    gains = paper.loc["PRO"] - paper.drop("PRO").max()
    appendix = read_csv("data/paper/appendix_examples.csv")
    first = appendix[appendix["question"] == appendix["question"].iloc[0]]
    printed = rows("data/paper/appendix_scores.csv", selection="adaptive")
    mean_k = "figures/12_k_vs_alpha.csv"
    return [
        Sentence(
            page,
            "by default the notebook counts each repeated answer once, which gives {once} for one "
            "of these "
            "questions. "
            "With repeats, the ten printed probabilities of this question add up to {mass}. "
            "So the printed value {printed} is not a lower bound of an entropy.",
            {
                "once": f"{scoring.pro(np.log([first['probability']]), alpha=0.1)[0]:.3f}",
                "mass": f"{(first['probability'] * first['count']).sum():.3f}",
                "printed": f"{printed['pro'].iloc[0]:.3f}",
            },
        ),
        Sentence(
            page, "PRO is best at each threshold, by {gains}.", {"gains": shared_range(gains)}
        ),
        Sentence(
            page,
            "So no AUROC changes by more than {most}.",
            {"most": f"{(by_bar.max(axis=1) - by_bar.min(axis=1)).max():.3f}"},
        ),
        Sentence(
            page,
            "mean K at α = 0.4 is [{repeats} with repeats and {once} "
            "without](../results/benchmark.md#fixed-k), because",
            {
                name: f"{cell(mean_k, 'mean_k', protocol=protocol, alpha=0.4, **SEEN):.2f}"
                for name, protocol in (("repeats", "paper"), ("once", "workbench"))
            },
        ),
    ]


def _simulated_worlds() -> list[Sentence]:
    """Return the sentences about the simulated worlds."""
    page = "docs/explanation/notebooks_and_paper.md"
    worlds = read_csv("figures/08_when_does_pro_help.csv")
    world_gains = worlds.groupby(["varied", "calibration", "n_spellings"])["auroc_minus_nll"].agg(
        ["min", "max"]
    )
    calibrated = worlds[worlds["varied"] == "sharpness of probabilities"]["auroc_minus_nll"]
    five = ("spellings of each meaning", 1.0, 5)
    sure = ("calibration (below 1: overconfident)", 0.5, 1)
    unsure = ("calibration (below 1: overconfident)", 2.0, 1)
    five_and_sure = ("spellings and calibration", 0.5, 5)

    def gain(name: str, path: str, where: Mapping[str, object]) -> Pair:
        ends = {"low": "auroc_minus_nll_low", "high": "auroc_minus_nll_high"}
        return Pair(name, path, where, column="auroc_minus_nll", **ends)

    def world_gain(name: str, properties: tuple[str, float, int]) -> Pair:
        where = dict(zip(("varied", "calibration", "n_spellings"), properties, strict=True))
        best = rows("figures/08_when_does_pro_help.csv", **where)
        where["k"] = int(best.loc[best["auroc_minus_nll"].idxmax(), "k"])
        return gain(name, "figures/08_when_does_pro_help.csv", where)

    return [
        Sentence(
            page,
            "**Worlds**: {n} simulated settings, fixed before any result was seen.",
            # A panel repeats the base setting, whose accuracy and NLL are the same.
            {"n": str(len(worlds.drop_duplicates("world")))},
        ),
        Sentence(
            page,
            "every additional answer lowers the AUROC ({low} to {high}).",
            {"low": signed(calibrated.min()), "high": signed(calibrated.max())},
        ),
        Sentence(
            page,
            "Split spellings alone make PRO better than NLL ({spellings} with five spellings). "
            "So does an overconfident model ({sure}).",
            {
                "spellings": signed(world_gains["max"][five]),
                "sure": signed(world_gains["max"][sure]),
            },
            (
                world_gain("PRO − NLL, five spellings", five),
                world_gain("PRO − NLL, an overconfident model", sure),
            ),
        ),
        Sentence(
            page,
            "An underconfident model lowers the AUROC by up to {cost}. "
            "Five spellings and an overconfident model together give {both}.",
            {
                "cost": f"{-world_gains['min'][unsure]:.3f}",
                "both": signed(world_gains["max"][five_and_sure]),
            },
            (world_gain("PRO − NLL, both together", five_and_sure),),
        ),
    ]


def _causes_of_gains() -> list[Sentence]:
    """Return the sentences about the causes of gains and losses."""
    page = "docs/explanation/notebooks_and_paper.md"
    read_csv("figures/08_when_does_pro_help.csv")
    causes = {"cause": "nothing changed", "k": 5}
    one = {"cause": "probabilities made to sum to 1", "k": 5}
    tail = {"cause": "answers below 0.01 left out", "k": 5}
    real = f"{REAL}/08_causes.csv"

    def gain(name: str, path: str, where: Mapping[str, object]) -> Pair:
        ends = {"low": "auroc_minus_nll_low", "high": "auroc_minus_nll_high"}
        return Pair(name, path, where, column="auroc_minus_nll", **ends)

    return [
        Sentence(
            page,
            "On facts-2m, each additional answer lowers the AUROC (K = 5: {gain}). If the "
            "probabilities "
            "of the answers are scaled to sum to 1, the loss disappears ({one}).",
            {
                "gain": signed(cell("figures/08_causes.csv", "auroc_minus_nll", **causes)),
                "one": signed(cell("figures/08_causes.csv", "auroc_minus_nll", **one)),
            },
            (
                gain("K = 5 − NLL, facts-2m", "figures/08_causes.csv", causes),
                gain(
                    "K = 5 − NLL, facts-2m, probabilities made to sum to 1",
                    "figures/08_causes.csv",
                    one,
                ),
            ),
        ),
        Sentence(
            page,
            "On gpt-3.5-turbo and Natural Questions, with each answer once, PRO₅ gains {gain}, "
            "and {tail} without improbable answers.",
            {
                "gain": f"{cell(real, 'auroc_minus_nll', **causes):.3f}",
                "tail": f"{cell(real, 'auroc_minus_nll', **tail):.3f}",
            },
            (
                gain("K = 5 − NLL, gpt-3.5, NQ", real, causes),
                gain("K = 5 − NLL, gpt-3.5, NQ, without the tail", real, tail),
            ),
        ),
    ]


def _notebook_guarantees() -> list[Sentence]:
    """Return the sentences about guarantees and sets of answers."""
    page = "docs/explanation/notebooks_and_paper.md"
    read_csv("figures/08_when_does_pro_help.csv")
    guaranteed = read_csv("figures/09_guarantees.csv")
    at = {
        target: guaranteed[(guaranteed["target"] == target) & guaranteed["threshold"].notna()]
        for target in (0.7, 0.8, 0.9)
    }
    sets = read_csv("figures/09_sets.csv")
    fixed = sets[sets["delta"].isna() & (sets["alpha"] == 0.4)].iloc[0]
    issued = sets[sets["delta"] == 0.4].iloc[0]
    return [
        Sentence(
            page,
            "all {n} scores can guarantee 70 % right answers, for {low} to {high} of the "
            "questions.",
            {
                "n": spelled(len(at[0.7])),
                "low": f"{100 * at[0.7]['coverage'].min():.0f}",
                "high": percent(at[0.7]["coverage"].max()),
            },
        ),
        Sentence(
            page,
            "{n} scores can guarantee 80 %, for {most} of the questions at most.",
            {"n": spelled(len(at[0.8])).capitalize(), "most": percent(at[0.8]["coverage"].max())},
        ),
        Sentence(page, "{n} can guarantee 90 %.", {"n": spelled(len(at[0.9])).capitalize()}),
        Sentence(
            page,
            "sets that may miss every right answer for 40 % of the questions have {size} answers.",
            {"size": f"{issued['set_size']:.1f}"},
        ),
        Sentence(
            page,
            "Sets at the paper's α of 0.4 miss for {missed} of the questions and are empty for "
            "{empty} of the questions.",
            {"missed": percent(fixed["missed"]), "empty": percent(fixed["share_empty"])},
        ),
    ]


def _notebooks() -> list[Sentence]:
    return [
        *_printed_values(),
        *_simulated_worlds(),
        *_causes_of_gains(),
        *_notebook_guarantees(),
    ]


def _protocols() -> list[Sentence]:
    repeats = rows("figures/00_repeats.csv", repeats="counted").iloc[0]
    return [
        Sentence(
            "docs/explanation/protocols.md",
            "{above} of 3,408 questions of facts-2m have beams whose probabilities sum to "
            "more than 1, the worst to {worst}.",
            {"above": f"{repeats['n_above_one']:,}", "worst": f"{repeats['largest_mass']:.2f}"},
        ),
    ]


def _intervals_by_cluster() -> list[Sentence]:
    """Return the sentences about the simulations with clusters."""
    page = "docs/explanation/intervals.md"
    single = row(CLUSTER_INTERVAL, interval="by cluster")
    ends = {
        name: (f"{record['auroc_low']:.3f}", f"{record['auroc_high']:.3f}")
        for name in ("by cluster", "by question", "bootstrap")
        for record in [row(CLUSTER_INTERVAL, interval=name)]
    }
    return [
        Sentence(
            page,
            "On world-facts the {n} relations are clusters. The interval of PRO's AUROC on "
            "facts-2m at α = 0.4 is "
            "{low} to {high} by relation and {question_low} to {question_high} by question; a "
            "bootstrap of the "
            "relations gives {bootstrap_low} to {bootstrap_high} (",
            {
                "n": str(single["n_clusters"]),
                "low": ends["by cluster"][0],
                "high": ends["by cluster"][1],
                "question_low": ends["by question"][0],
                "question_high": ends["by question"][1],
                "bootstrap_low": ends["bootstrap"][0],
                "bootstrap_high": ends["bootstrap"][1],
            },
        ),
    ]


def _intervals_page() -> list[Sentence]:
    return [
        *_intervals_by_cluster(),
    ]


# Numbers with three decimals that no CSV file has, by page.
NO_FILE = {
    # Worked by hand from the formula on the page.
    "docs/explanation/pro.md": ("0.916", "1.748"),
    # Settings and tolerances.
    "docs/how_to/use_a_server.md": ("0.001",),
    "docs/explanation/guarantees.md": ("0.005",),
    "docs/how_to/run_notebooks.md": ("0.001",),
    "docs/explanation/limitations.md": ("0.001",),
    "docs/how_to/read_a_figure.md": ("0.001", "0.005"),
    # The commands on the page print them for its invented answers.
    "docs/tutorials/api_responses.md": ("0.836", "0.799"),
    # From the formula on the page, an earlier benchmarks/coverage.py, and simulation errors.
    "docs/explanation/intervals.md": (*("0.003", "0.007", "0.684", "0.008", "0.014"),),
}


def _cause(k: int, cause: str = "nothing changed", path: str = "figures/08_causes.csv") -> Pair:
    counted = "repeats kept" if cause == "repeats kept" else "once each"
    name = f"K = {k} − NLL, facts-2m, seen, {counted}"
    column = "auroc_minus_nll"
    return Pair(name, path, {"cause": cause, "k": k}, 1, column, f"{column}_low", f"{column}_high")


def _gains(setting: str, protocol: str) -> tuple[Pair, ...]:
    where = PUBLISHED[setting]
    names = {"K": "K", "alpha": "α"}
    return tuple(
        _gain(f"PRO, {name} chosen − NLL, {setting}, {COUNTED[protocol]}", where, protocol, chosen)
        for chosen, name in names.items()
    )


def _small(
    method: str, protocol: str, figures: str = SMOLLM2, model: str = "SmolLM2"
) -> tuple[Pair, ...]:
    """Return the differences to PRO of a method of a small model, on three question sets."""
    sign = -1 if method == "NLL" else 1
    name = "PRO − NLL" if method == "NLL" else f"{method} − PRO"
    pairs = []
    for dataset in ("world-facts", "sciq", "nq"):
        where = {"protocol": protocol, **METHODS[method], "dataset": dataset}
        label = f"{name}, {model}, {dataset}, {COUNTED[protocol]}"
        pairs.append(_minus_pro(label, f"{figures}/06_benchmark.csv", where, sign))
    return tuple(pairs)


def _count_significant(pairs: Sequence[Pair]) -> str:
    """Return in how many of some pairs the difference is significant, in words."""
    return spelled(sum(bool(cell(pair.path, "significant", **pair.where)) for pair in pairs))


def _lowest_and_highest(path: str, method: str) -> dict[str, str]:
    """Return the lowest and the highest AUROC of a method with repeats counted."""
    values = rows(path, protocol="paper", method=method)["auroc"]
    return {"low": f"{values.min():.3f}", "high": f"{values.max():.3f}"}


def _signed_range(pairs: Sequence[Pair]) -> str:
    """Write the smallest and the largest difference of some pairs."""
    differences = [pair.sign * cell(pair.path, pair.column, **pair.where) for pair in pairs]
    return f"{signed(min(differences))} to {signed(max(differences))}"


def _published_in_words() -> list[Sentence]:
    """Return the sentences about published answers, most of them without a number."""
    real = "docs/results/real_models.md"
    nll_of_published = tuple(
        _minus_pro(
            f"PRO − NLL, {name}, {COUNTED[protocol]}",
            f"{REAL}/12_benchmark.csv",
            {"protocol": protocol, "method": "NLL", **where},
            -1,
        )
        for name, where in PUBLISHED.items()
        for protocol in ("workbench", "paper")
    )
    worst = max(-cell(GAIN, "p05", protocol=protocol, chosen="K", **LLAMA) for protocol in COUNTED)
    return [
        Sentence(
            real,
            "**Llama-2-7b-chat: no difference is shown.**",
            {},
            (*_gains("Llama-2-7b-chat, NQ", "workbench"), *_gains("Llama-2-7b-chat, NQ", "paper")),
        ),
        Sentence(
            real,
            "If K is chosen on validation questions, one choice in twenty loses {loss} or more.",
            {"loss": f"{worst:.2f}"},
            (*_gains("Llama-2-7b-chat, NQ", "workbench"), *_gains("Llama-2-7b-chat, NQ", "paper")),
        ),
        Sentence(
            real,
            "With Holm's correction, PRO is significantly better than NLL for gpt-3.5-turbo on NQ "
            "in this draw, and nowhere else.",
            {},
            nll_of_published,
        ),
    ]


def _small_models_in_words() -> list[Sentence]:
    """Return the sentences about SmolLM2-135M and Gemma 3 270M that compare methods."""
    real = "docs/results/real_models.md"
    return [
        Sentence(
            real,
            "By Holm's correction no difference between PRO and NLL is significant.",
            {},
            (*_small("NLL", "paper"), *_small("NLL", "workbench")),
        ),
        Sentence(
            real,
            "PE minus PRO is {pe} on the three sets, NE minus PRO {ne}.",
            {name: _signed_range(_small(name.upper(), "paper")) for name in ("pe", "ne")},
            (*_small("PE", "paper"), *_small("NE", "paper")),
        ),
        Sentence(
            real,
            "With α chosen on validation questions and repeats counted, PRO minus NLL is {nll}, "
            "significant in {count} of the three sets.",
            {
                "nll": _signed_range(_small("NLL", "paper", GEMMA, "Gemma")),
                "count": _count_significant(_small("NLL", "paper", GEMMA, "Gemma")),
            },
            _small("NLL", "paper", GEMMA, "Gemma"),
        ),
        Sentence(
            real,
            "With each answer once it is {nll}, significant in {count}.",
            {
                "nll": _signed_range(_small("NLL", "workbench", GEMMA, "Gemma")),
                "count": _count_significant(_small("NLL", "workbench", GEMMA, "Gemma")),
            },
            _small("NLL", "workbench", GEMMA, "Gemma"),
        ),
        Sentence(
            real,
            "PE minus PRO is {pe} on the three sets: the AUROC of PE is {low} to {high}, below "
            "chance.",
            {
                "pe": _signed_range(_small("PE", "paper", GEMMA, "Gemma")),
                **_lowest_and_highest(f"{GEMMA}/06_benchmark.csv", "PE"),
            },
            _small("PE", "paper", GEMMA, "Gemma"),
        ),
        Sentence(
            real,
            "SD (by words) minus PRO is {sd}, significant in {count} of the three sets.",
            {
                "sd": _signed_range(_small("SD, lexical", "paper", GEMMA, "Gemma")),
                "count": _count_significant(_small("SD, lexical", "paper", GEMMA, "Gemma")),
            },
            _small("SD, lexical", "paper", GEMMA, "Gemma"),
        ),
    ]


def _bundled_in_words() -> list[Sentence]:
    """Return the sentences about the bundled models that print no number."""
    more = "docs/explanation/notebooks_and_paper.md"
    once = tuple(_cause(k) for k in (2, 5, 10))
    repeats = tuple(_cause(k, "repeats kept") for k in (2, 5, 10))
    return [
        Sentence(more, "K = 1 is best in both protocols.", {}, (*repeats, *once)),
        Sentence(
            "docs/explanation/pro.md",
            "in the [benchmark](../results/benchmark.md) AUROC falls with K.",
            {},
            once,
        ),
        Sentence(
            "docs/how_to/read_a_figure.md",
            "**The figure shows** that more answers make PRO worse here. "
            "If each answer counts once (in the table), they make it much worse.",
            {},
            (*repeats, *once),
        ),
        Sentence(
            "docs/results/audit.md",
            "with them K = 2 costs nothing,",
            {},
            (_cause(2, "repeats kept"),),
        ),
    ]


def _labels() -> list[Sentence]:
    """Return the sentences about labels by hand."""
    path = "figures/10_label_answers.csv"
    where = {"protocol": "workbench", "method": "NLL"}
    by_labels = row(path, judge="labels", **where)
    values = {name: f"{by_labels[name]:.3f}" for name in ("auroc", "auroc_low", "auroc_high")}
    values["rouge"] = f"{cell(path, 'auroc', judge='rouge_l', **where):.3f}"
    return [
        Sentence(
            "docs/explanation/notebooks_and_paper.md",
            "{auroc} (95 % confidence interval {auroc_low} to {auroc_high}) by the labels, and "
            "{rouge} by ROUGE-L.",
            values,
        )
    ]


def _in_words() -> list[Sentence]:
    """Return the sentences that compare values without printing them."""
    return [
        *_published_in_words(),
        *_small_models_in_words(),
        *_bundled_in_words(),
    ]


SENTENCES: tuple[Sentence, ...] = (
    *_readme(),
    *_benchmark(),
    *_audit_page(),
    *_intervals_page(),
    *_real_models(),
    *_notebooks(),
    *_labels(),
    *_protocols(),
    *_in_words(),
)
