"""The sentences of README and docs whose numbers come from committed CSV files.

Each entry has the page, the sentence with a name in braces for each number, and the values. Its
page has the plain sentence, broken into lines as you like. A sentence that compares two values also
lists the pairs: where a CSV file has the paired difference. They make docs/claims.md. A pair
without a path says that no file has the difference yet.

Add a sentence: write it on its page, copy it here, put names in braces for its numbers, and run
`make docs-numbers`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from doc_sources import (
    ALL_QUESTIONS,
    BENCHMARK,
    COUNTED,
    EXACT_AUROC,
    GAIN,
    LLAMA,
    MEADOW,
    NQ,
    PUBLISHED,
    REAL,
    SEEN,
    SETTINGS,
    SMOLLM2,
    cell,
    fixed_k_auroc,
    interval,
    listed,
    read_csv,
    row,
    rows,
    shared_range,
    signed,
    spelled,
)

from pro_lib import scoring

# What may stand in the place of a value: numbers, or words, joined by commas, "and" or "to".
NUMBER = r"\[?[+−]?\d+(?:,\d{3})*(?:\.\d+)?(?:\s%)?\]?"
WORD = r"[A-Za-z]+"
VALUE = rf"(?:{NUMBER}(?:(?:,\s+|\s+and\s+|\s+to\s+){NUMBER})*|{WORD}(?:(?:,\s+|\s+and\s+){WORD})*)"


@dataclass(frozen=True)
class Pair:
    """A comparison of two values on the same questions, and the cell with the paired difference.

    Attributes:
        name: what is compared, such as "PRO − NLL, facts-2m, seen".
        path: the CSV file; empty if none has the difference.
        where: the values of columns that select its row.
        sign: −1 if the file has the reverse difference.
        column: the column of the difference; `low` and `high` those of its interval.
    """

    name: str
    path: str = ""
    where: Mapping[str, object] = field(default_factory=dict)
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
        """Return what finds the sentence on its page, whatever its numbers and line breaks."""
        parts = re.split(r"(\{\w+\})", self.text)
        if parts[-1] == "":
            raise ValueError(f"{self.text!r} ends with a number; add the words or the full stop behind it")
        pieces = []
        for part in parts:
            if part.startswith("{"):
                pieces.append(f"(?P<{part[1:-1]}>{VALUE})")
            else:
                pieces.append(re.sub(r"(\\?\s)+", r"\\s+", re.escape(part)))
        return re.compile(r"(?<![\w.])" + "".join(pieces))


def _nll(protocol: str) -> list[pd.Series]:
    return [row(BENCHMARK, protocol=protocol, method="NLL", **setting) for setting in SETTINGS.values()]


def _pro_minus_nll(protocol: str) -> tuple[Pair, ...]:
    return tuple(
        Pair(f"PRO − NLL, {name}", BENCHMARK, {"protocol": protocol, "method": "NLL", **setting}, sign=-1)
        for name, setting in SETTINGS.items()
    )


def _to_pro(method: str, protocol: str = "workbench") -> tuple[Pair, ...]:
    return tuple(
        Pair(f"{method} − PRO, {name}", BENCHMARK, {"protocol": protocol, "method": method, **setting})
        for name, setting in SETTINGS.items()
    )


def _differences(method: str, protocol: str = "workbench") -> list[float]:
    return [cell(BENCHMARK, "difference", method=method, protocol=protocol, **s) for s in SETTINGS.values()]


def _aurocs(method: str, protocol: str = "workbench") -> list[float]:
    return [cell(BENCHMARK, "auroc", method=method, protocol=protocol, **s) for s in SETTINGS.values()]


def _alphas(protocol: str) -> str:
    return listed(f"{cell(BENCHMARK, 'alpha', method='PRO', protocol=protocol, **s):g}" for s in SETTINGS.values())


def _gain(name: str, where: Mapping[str, object], protocol: str, chosen: str) -> Pair:
    at = {"protocol": protocol, "chosen": chosen, **where}
    return Pair(name, GAIN, at, column="median", low="low", high="high")


def _median(where: Mapping[str, object], protocol: str, chosen: str) -> str:
    return signed(cell(GAIN, "median", protocol=protocol, chosen=chosen, **where))


def _fixed(where: Mapping[str, object], k: int) -> str:
    auroc = fixed_k_auroc(f"{REAL}/04_fixed_k.csv", protocol="paper", k=k, **where)
    return f"{auroc:.3f}"


def _readme() -> list[Sentence]:
    return [
        Sentence(
            "README.md",
            "On gpt-3.5-turbo a little, if repeats count once and K is chosen ({nq} AUROC on "
            "Natural Questions, {meadow} on Meadow).",
            {"nq": _median(NQ, "workbench", "K"), "meadow": _median(MEADOW, "workbench", "K")},
            (
                _gain("PRO, K chosen − NLL, gpt-3.5, NQ, once each", NQ, "workbench", "K"),
                _gain("PRO, K chosen − NLL, gpt-3.5, Meadow, once each", MEADOW, "workbench", "K"),
            ),
        ),
        Sentence(
            "README.md",
            "If repeats count, on Natural Questions not with K ({k}), but with α ({alpha}).",
            {"k": _median(NQ, "paper", "K"), "alpha": _median(NQ, "paper", "alpha")},
            (
                _gain("PRO, K chosen − NLL, gpt-3.5, NQ, repeats kept", NQ, "paper", "K"),
                _gain("PRO, α chosen − NLL, gpt-3.5, NQ, repeats kept", NQ, "paper", "alpha"),
            ),
        ),
        Sentence(
            "README.md",
            "on Natural Questions AUROC falls from {nq_1} to {nq_10} (gpt-3.5-turbo) and "
            "from {llama_1} to {llama_10} (Llama-2).",
            {
                "nq_1": _fixed(NQ, 1),
                "nq_10": _fixed(NQ, 10),
                "llama_1": _fixed(LLAMA, 1),
                "llama_10": _fixed(LLAMA, 10),
            },
            (
                Pair(
                    "K = 10 − NLL, gpt-3.5, NQ, repeats kept",
                    f"{REAL}/08_causes.csv",
                    {"cause": "repeats kept", "score": "K = 10"},
                    column="gain",
                    low="low",
                    high="high",
                ),
                Pair("K = 10 − NLL, Llama-2-7b-chat, NQ, repeats kept"),
            ),
        ),
        Sentence(
            "README.md",
            "On Meadow it rises from {k_1} to {k_10}, a paired difference of {difference} {ends}.",
            {
                "k_1": _fixed(MEADOW, 1),
                "k_10": _fixed(MEADOW, 10),
                "difference": signed(-_meadow()["difference"]),
                "ends": interval(-_meadow()["difference_high"], -_meadow()["difference_low"]),
            },
            (
                Pair(
                    "PRO with all ten answers (α = 0) − NLL, gpt-3.5, Meadow, repeats kept",
                    f"{REAL}/06_benchmark.csv",
                    {"protocol": "paper", "method": "NLL", **MEADOW},
                    sign=-1,
                ),
            ),
        ),
    ]


def _meadow() -> pd.Series:
    return row(f"{REAL}/06_benchmark.csv", protocol="paper", method="NLL", **MEADOW)


def _benchmark() -> list[Sentence]:
    page = "docs/benchmark.md"
    nll = [*_nll("workbench"), *_nll("paper")]
    readings = [record["reading"] for record in _nll("workbench")]
    oracle = [a - b for a, b in zip(_aurocs("PRO, oracle"), _aurocs("NLL"), strict=True)]
    medians = [
        cell("figures/06_redraws.csv", "50%", protocol="workbench", **setting) - base
        for setting, base in zip(SETTINGS.values(), _aurocs("NLL"), strict=True)
    ]
    table = read_csv(BENCHMARK)
    fair = table[(table["protocol"] == "workbench") & ~table["method"].isin(["PRO, oracle", "PRO, default"])]
    best = fair.loc[fair.groupby(["dataset", "model"])["auroc"].idxmax(), "method"]
    sd, se = (rows(BENCHMARK, protocol="workbench", method=f"{name}, lexical") for name in ("SD", "SE"))
    higher = 0
    for name in ("SD", "Deg", "SE"):
        pairs = zip(_aurocs(f"{name}, alias"), _aurocs(f"{name}, lexical"), strict=True)
        higher += sum(alias > lexical for alias, lexical in pairs)
    moves = []
    for name in ("SE, lexical", "SE, alias", "SD, lexical", "SD, alias"):
        moves += [abs(a - b) for a, b in zip(_aurocs(name, "paper"), _aurocs(name), strict=True)]
    seen = {
        (method, protocol): f"{cell(BENCHMARK, 'auroc', method=method, protocol=protocol, **SEEN):.3f}"
        for method in ("NE", "PE")
        for protocol in ("paper", "workbench")
    }
    fixed = {
        (protocol, k): fixed_k_auroc("figures/04_fixed_k.csv", protocol=protocol, k=k, **SEEN)
        for protocol in ("paper", "workbench")
        for k in (1, 2, 5)
    }
    kept = {
        protocol: cell("figures/03_k_vs_alpha.csv", "mean_k", protocol=protocol, alpha=0.4, **SEEN)
        for protocol in ("paper", "workbench")
    }
    exposure = {
        score: cell("figures/00_exposure.csv", "mean", measure=score, exposure=32, conflict=0.5)
        for score in ("PRO", "NLL", "accuracy")
    }
    told = cell("figures/00_exposure.csv", "mean", measure="accuracy", exposure=8, conflict=0)
    distinct = read_csv("figures/01_generate.csv").groupby(["dataset", "model"])["n_distinct"].mean()
    return [
        Sentence(
            page,
            "by neither [way of counting](protocols.md), and nowhere more than {most} from NLL.",
            {"most": f"{max(abs(record['difference']) for record in nll):.3f}"},
            (*_pro_minus_nll("workbench"), *_pro_minus_nll("paper")),
        ),
        Sentence(
            page,
            "With the chosen α ({alphas}) PRO's AUROC minus NLL's is {differences}; {significant} is significant.",
            {
                "alphas": _alphas("workbench"),
                "differences": listed(signed(-value) for value in _differences("NLL")),
                "significant": spelled(sum(record["significant"] for record in _nll("workbench"))),
            },
            _pro_minus_nll("workbench"),
        ),
        Sentence(
            page,
            "NLL is *{first}* in the first setting and *{others}* in the others.",
            {"first": readings[0], "others": listed(dict.fromkeys(readings[1:]))},
            _to_pro("NLL"),
        ),
        Sentence(page, "Even the oracle gains at most {oracle}.", {"oracle": f"{max(oracle):.3f}"}),
        Sentence(
            page,
            "Over 200 redraws of the hundred questions the median of PRO minus NLL is {medians}.",
            {"medians": listed(map(signed, medians))},
        ),
        Sentence(
            page,
            "**ALL** is above PRO in all four by {differences}, {significant} of them significantly",
            {
                "differences": shared_range(_differences("ALL")),
                "significant": spelled(int(rows(BENCHMARK, protocol="workbench", method="ALL")["significant"].sum())),
            },
            _to_pro("ALL"),
        ),
        Sentence(
            page,
            "**SD** with ROUGE-L as judge has the highest AUROC in {count} settings, "
            "significantly above PRO in {significant}.",
            {
                "count": spelled(int((best == "SD, lexical").sum())),
                "significant": spelled(int((sd["significant"] & (sd["difference"] > 0)).sum())),
            },
            _to_pro("SD, lexical"),
        ),
        Sentence(
            page,
            "**SE** over the meanings of the beams differs from PRO significantly in {significant} setting.",
            {"significant": spelled(int(se["significant"].sum())).replace("none", "no")},
            _to_pro("SE, lexical"),
        ),
        Sentence(
            page,
            "**PE** by the paper's Eq. 2 is {differences} below PRO:",
            {"differences": shared_range([-value for value in _differences("PE")], 2)},
            _to_pro("PE"),
        ),
        Sentence(
            page,
            "SD, Deg and SE are higher with it than with ROUGE-L in {count} case of {n}.",
            {"count": spelled(higher), "n": spelled(12)},
            (Pair("SD, Deg and SE by alias − by ROUGE-L, each setting"),),
        ),
        Sentence(
            page,
            "with the chosen α ({alphas}) PRO minus NLL is {differences}.",
            {
                "alphas": _alphas("paper"),
                "differences": listed(signed(-value) for value in _differences("NLL", "paper")),
            },
            _pro_minus_nll("paper"),
        ),
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
                    "docs/audit.csv",
                    _audit("NE"),
                    -1,
                    low="low",
                    high="high",
                ),
                Pair(
                    "PE without repeats − with, facts-2m, seen",
                    "docs/audit.csv",
                    _audit("PE"),
                    -1,
                    low="low",
                    high="high",
                ),
            ),
        ),
        Sentence(page, "SE and SD move by at most {most}.", {"most": f"{max(moves):.3f}"}),
        Sentence(
            page,
            "with 95 % intervals. {count} of these differences is significant by Holm's "
            "correction over the methods of a setting.",
            {"count": spelled(sum(each["significant"] for each in _meanings())).capitalize()},
            (*_to_pro("S-NLL, lexical"), *_to_pro("S-PRO, lexical")),
        ),
        Sentence(page, "Ten beams have {distinct} distinct answers.", {"distinct": shared_range(distinct, 1)}),
        Sentence(
            page,
            "Told 32 times, half of them falsely, the model is right in {contested}.",
            {"contested": f"{exposure['accuracy']:.0%}".replace("%", " %")},
        ),
        Sentence(page, "where it is right in {told}.", {"told": f"{told:.0%}".replace("%", " %")}),
        Sentence(
            page,
            "is {nats} nats on average in that cell.",
            {"nats": f"{exposure['PRO'] - exposure['NLL']:.3f}"},
        ),
        Sentence(
            page,
            "and it falls by {second} to K = 2 and {fifth} to K = 5.",
            {
                "second": f"{fixed['paper', 1] - fixed['paper', 2]:.3f}",
                "fifth": f"{fixed['paper', 1] - fixed['paper', 5]:.3f}",
            },
            tuple(
                Pair(
                    f"K = {k} − NLL, facts-2m, seen, repeats kept",
                    "figures/08_causes.csv",
                    {"cause": "repeats kept", "score": f"K = {k}"},
                    column="gain",
                    low="low",
                    high="high",
                )
                for k in (2, 5)
            ),
        ),
        Sentence(
            page,
            "its row correlates with those printed for Gemma-2B, Gemma-7B and Llama2-13B at {correlations}.",
            {"correlations": listed(f"{value:.2f}".replace("-", "−") for value in _correlations())},
        ),
        Sentence(
            page,
            "At α = 0.4 mean K is {repeats} with repeats and {once} without.",
            {"repeats": f"{kept['paper']:.2f}", "once": f"{kept['workbench']:.2f}"},
        ),
        *_exact(page),
        *_costs(page),
        *_sampling(page),
    ]


def _meanings() -> list[pd.Series]:
    methods = ("S-NLL, lexical", "S-PRO, lexical")
    return [
        row(BENCHMARK, protocol="workbench", method=method, **setting)
        for method in methods
        for setting in SETTINGS.values()
    ]


def _audit(method: str) -> dict[str, object]:
    return {"method": method, "choice": "of the beams, repeats kept"}


def _correlations() -> list[float]:
    ours = rows("figures/04_fixed_k.csv", protocol="paper", k_choice="fixed", **SEEN)
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
            "PRO of beams differs from it by {difference} {ends}.",
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
    seconds = read_csv("docs/score_cost.csv").set_index("method")["seconds"]
    by = {
        judge: shared_range([seconds[f"{name}, {judge}"] for name in ("SE", "SD", "Deg")], 2)
        for judge in ("lexical", "alias")
    }
    return [
        Sentence(
            page,
            "NLL, PE and PRO {cheap}. SE, SD and Deg take {lexical} by ROUGE-L, {alias} by the table of names.",
            {"cheap": listed(f"{seconds[name]:.4f}" for name in ("NLL", "PE", "PRO")), **by},
        ),
    ]


def _sampling(page: str) -> list[Sentence]:
    path = "docs/sampling.csv"
    table = read_csv(path)
    pro = table[table["method"] == "PRO"]
    nll = table[table["method"] == "NLL"].set_index(["dataset", "answers"])["auroc"]
    near = [
        abs(nll[name, answers] - nll[name, "diverse_beam"])
        for name in ("world-facts", "world-facts-reworded")
        for answers in ("temperature 0.5", "nucleus 0.9")
    ]
    fixed = table[table["method"].str.startswith("PRO_")]
    gain = row(path, dataset="world-facts-reworded", answers="temperature 1.5", method="PRO_10")
    other = fixed[fixed["answers"] != "temperature 1.5"]["difference"]
    below = nll["world-facts-reworded", "diverse_beam"] - gain["auroc"]
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
            "NLL on their answers is within {most} of NLL on beams.",
            {"most": f"{max(near):.3f}"},
            (Pair("NLL on samples − NLL on beams"),),
        ),
        Sentence(
            page,
            "(reworded, K = 10: {gain} {ends}), and stays {below} below NLL on beams.",
            {
                "gain": signed(gain["difference"]),
                "ends": interval(gain["difference_low"], gain["difference_high"]),
                "below": f"{below:.2f}",
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


def _audit_page() -> list[Sentence]:
    path, page = "docs/audit.csv", "docs/audit.md"
    alias = row(path, method="PRO", choice="alias match")
    exact = row(path, method="PRO", choice="exact match")
    released = row(path, method="PRO", choice="as released, but for the cuts in the text")
    ending = row(path, method="PRO", choice="ending left out")
    own = {"choice": "this project's"}

    def pair(name: str, choice: str) -> Pair:
        return Pair(name, path, {"method": "PRO", "choice": choice}, low="low", high="high")

    return [
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
        Sentence(
            page,
            "Exact and alias match are stricter judges and *raise* AUROC by {differences}.",
            {"differences": listed(dict.fromkeys(f"{each['difference']:.3f}" for each in (exact, alias)))},
            (pair("exact match − ROUGE-L", "exact match"), pair("alias match − ROUGE-L", "alias match")),
        ),
        Sentence(
            page,
            "**All of it together** comes out {difference} {ends} beside this project's row, "
            "with an oracle α of {alpha},",
            {
                "difference": signed(released["difference"]),
                "ends": interval(released["low"], released["high"]),
                "alpha": f"{released['alpha']:g}",
            },
            (pair("as released − this project's", "as released, but for the cuts in the text"),),
        ),
    ]


def _real_models() -> list[Sentence]:
    page, benchmark = "docs/real_models.md", f"{REAL}/06_benchmark.csv"
    small = f"{SMOLLM2}/06_benchmark.csv"
    of = {name: {"dataset": name, "model": "smollm2-135m"} for name in ("world-facts", "sciq", "nq")}
    loses = row(small, protocol="paper", method="NLL", **of["world-facts"])
    redraws = rows(f"{SMOLLM2}/06_redraws.csv", **of["world-facts"])["better_than_nll"]
    sd = {name: row(small, protocol="paper", method="SD, lexical", **of[name]) for name in ("sciq", "nq")}
    errors = [cell(small, "ece", protocol="workbench", method="PRO", **of[name]) for name in of]
    all_nq = rows(ALL_QUESTIONS, protocol="paper", same_within=0, **NQ).iloc[0]
    entropy = read_csv(f"{SMOLLM2}/09_entropy.csv").groupby("dataset")[["entropy", "tree_bound"]].mean()
    guarantees = f"{SMOLLM2}/09_guarantees.csv"

    def share(name: str, target: float, method: str) -> str:
        return f"{cell(guarantees, 'coverage', target=target, method=method, **of[name]):.0%}".replace("%", " %")

    stated = row(benchmark, protocol="workbench", method="Stated", **NQ)
    return [
        Sentence(
            page,
            "on world-facts 100 validation questions chose α = 0, and with repeats counted "
            "PRO minus NLL is then {difference} {ends}.",
            {
                "difference": signed(-loses["difference"]),
                "ends": interval(-loses["difference_high"], -loses["difference_low"]),
            },
            (
                Pair(
                    "PRO − NLL, SmolLM2, world-facts, repeats kept",
                    small,
                    {"protocol": "paper", "method": "NLL", **of["world-facts"]},
                    -1,
                ),
            ),
        ),
        Sentence(
            page,
            "Of 200 redraws {share} beat NLL there.",
            {"share": f"{100 * redraws.min():.0f} to {100 * redraws.max():.0f} %"},
        ),
        Sentence(
            page,
            "SD (by words) is above PRO on SciQ and NQ by {sciq} and {nq}, neither beyond chance.",
            {"sciq": f"{sd['sciq']['difference']:.3f}", "nq": f"{sd['nq']['difference']:.3f}"},
            tuple(
                Pair(
                    f"SD, lexical − PRO, SmolLM2, {name}",
                    small,
                    {"protocol": "paper", "method": "SD, lexical", **of[name]},
                )
                for name in sd
            ),
        ),
        Sentence(
            page,
            "isotonic regression leaves an error of {errors}.",
            {"errors": listed(f"{error:.2f}" for error in errors)},
        ),
        Sentence(
            page,
            "40 % right on world-facts by PRO, for {facts} of the questions, and 30 % on "
            "SciQ, by PRO for {pro} and by ALL for {average}.",
            {
                "facts": share("world-facts", 0.4, "PRO"),
                "pro": share("sciq", 0.3, "PRO"),
                "average": share("sciq", 0.3, "ALL"),
            },
        ),
        Sentence(
            page,
            "{estimate} nats in the mean on world-facts, by samples. The tree bound of the search is {bound}.",
            {
                "estimate": f"{entropy.loc['world-facts', 'entropy']:.0f}",
                "bound": f"{entropy.loc['world-facts', 'tree_bound']:.0f}",
            },
        ),
        Sentence(
            page,
            "With K = 10 the AUROC on all questions is {pro}, NLL's {nll}.",
            {"pro": f"{all_nq['PRO_10']:.3f}", "nll": f"{all_nq['NLL']:.3f}"},
            (
                Pair(
                    "K = 10 − NLL, gpt-3.5, NQ, repeats kept, the reported questions",
                    f"{REAL}/08_causes.csv",
                    {"cause": "repeats kept", "score": "K = 10"},
                    column="gain",
                    low="low",
                    high="high",
                ),
            ),
        ),
        Sentence(
            page,
            "(PRO {pro}, NLL {nll}: a difference of {difference} {ends}).",
            {
                "pro": f"{cell(benchmark, 'auroc', protocol='workbench', method='PRO', **MEADOW):.3f}",
                "nll": f"{cell(benchmark, 'auroc', protocol='workbench', method='NLL', **MEADOW):.3f}",
                "difference": signed(-_meadow_once()["difference"]),
                "ends": interval(-_meadow_once()["difference_high"], -_meadow_once()["difference_low"]),
            },
            (
                Pair(
                    "PRO − NLL, gpt-3.5, Meadow, once each",
                    benchmark,
                    {"protocol": "workbench", "method": "NLL", **MEADOW},
                    -1,
                ),
            ),
        ),
        Sentence(
            page,
            "AUROC minus PRO's is {nq} on NQ and {meadow} on Meadow,",
            {
                name: signed(cell(benchmark, "difference", protocol="workbench", method="PE-MC", **where))
                for name, where in (("nq", NQ), ("meadow", MEADOW))
            },
            tuple(
                Pair(f"PE-MC − PRO, gpt-3.5, {name}", benchmark, {"protocol": "workbench", "method": "PE-MC", **where})
                for name, where in (("NQ", NQ), ("Meadow", MEADOW))
            ),
        ),
        Sentence(
            page,
            "AUROC {stated} [{low}, {high}] on NQ, *below* chance.",
            {name: f"{stated[column]:.3f}" for name, column in (("stated", "auroc"), ("low", "low"), ("high", "high"))},
        ),
        _guaranteed_of_published(page),
    ]


def _meadow_once() -> pd.Series:
    return row(f"{REAL}/06_benchmark.csv", protocol="workbench", method="NLL", **MEADOW)


def _guaranteed_of_published(page: str) -> Sentence:
    table = read_csv(f"{REAL}/09_guarantees.csv")
    made = table[(table["target"] == 0.7) & table["threshold"].notna()]
    below = made[made["accuracy"] < 0.7]
    return Sentence(
        page,
        "Of the {n} guarantees {below} come out below 0.7 on the reported questions, by "
        "{differences}, {covered} with 0.7 in its interval.",
        {
            "n": str(len(made)),
            "below": spelled(len(below)),
            "differences": shared_range(0.7 - below["accuracy"]),
            "covered": "each" if (below["accuracy_high"] >= 0.7).all() else f"{(below['accuracy_high'] >= 0.7).sum()}",
        },
    )


def _notebooks() -> list[Sentence]:
    page, worlds = "docs/notebooks.md", read_csv("figures/08_when_does_pro_help.csv")
    by = worlds.groupby(["panel", "level"])["gain"].agg(["min", "max"])
    calibrated = worlds[worlds["panel"] == "sharpness"]["gain"]
    causes = {"cause": "nothing changed", "score": "K = 5"}
    one = {"cause": "probabilities made to sum to 1", "score": "K = 5"}
    tail = {"cause": "answers below 0.01 left out", "score": "K = 5"}
    real = f"{REAL}/08_causes.csv"
    bars = read_csv("figures/05_rouge_threshold.csv")
    bars = bars[~bars["method"].isin(["PRO, oracle", "PRO, default"])]
    by_bar = bars.pivot_table(index=["dataset", "model", "protocol", "method"], columns="threshold", values="auroc")
    paper = read_csv("data/paper/rouge_thresholds.csv").pivot_table(index="method", columns="threshold", values="auroc")
    gains = paper.loc["PRO"] - paper.drop("PRO").max()
    appendix = read_csv("data/paper/appendix_examples.csv")
    first = appendix[appendix["question"] == appendix["question"].iloc[0]]
    guaranteed = read_csv("figures/09_guarantees.csv")
    at = {
        target: guaranteed[(guaranteed["target"] == target) & guaranteed["threshold"].notna()]
        for target in (0.7, 0.8, 0.9)
    }
    sets = read_csv("figures/09_sets.csv")
    fixed = sets[sets["delta"].isna() & (sets["alpha"] == 0.4)].iloc[0]
    issued = sets[sets["delta"] == 0.4].iloc[0]

    def gain(name: str, path: str, where: Mapping[str, object]) -> Pair:
        return Pair(name, path, where, column="gain", low="low", high="high")

    def best_world(panel: str, level: str) -> dict[str, object]:
        rows_there = worlds[(worlds["panel"] == panel) & (worlds["level"] == level)]
        return {"panel": panel, "level": level, "score": rows_there.loc[rows_there["gain"].idxmax(), "score"]}

    def percent(value: float) -> str:
        return f"{100 * value:.0f} %"

    return [
        Sentence(
            page,
            "by default repeats count once, which gives {once}. "
            "The ten probabilities of that question add up to {mass}, so the {printed} bounds no entropy.",
            {
                "once": f"{scoring.pro(np.log([first['probability']]), alpha=0.1)[0]:.3f}",
                "mass": f"{(first['probability'] * first['count']).sum():.3f}",
                "printed": f"{rows('data/paper/appendix_scores.csv', selection='adaptive')['pro'].iloc[0]:.3f}",
            },
        ),
        Sentence(page, "PRO is best at each, by {gains}.", {"gains": shared_range(gains)}),
        Sentence(
            page,
            "so no AUROC moves by more than {most}.",
            {"most": f"{(by_bar.max(axis=1) - by_bar.min(axis=1)).max():.3f}"},
        ),
        Sentence(
            page,
            "There every answer added costs ({low} to {high}).",
            {"low": signed(calibrated.min()), "high": signed(calibrated.max())},
        ),
        Sentence(
            page,
            "Split spellings alone turn it ({spellings} with five), and so does a model "
            "surer than it should be ({sure}).",
            {
                "spellings": signed(by.loc[("spellings", "5"), "max"]),
                "sure": signed(by.loc[("calibration", "0.5"), "max"]),
            },
            (
                gain("PRO − NLL, five spellings", "figures/08_when_does_pro_help.csv", best_world("spellings", "5")),
                gain(
                    "PRO − NLL, an overconfident model",
                    "figures/08_when_does_pro_help.csv",
                    best_world("calibration", "0.5"),
                ),
            ),
        ),
        Sentence(
            page,
            "An unsure one costs up to {cost}; both together give {both}.",
            {
                "cost": f"{-by.loc[('calibration', '2.0'), 'min']:.3f}",
                "both": signed(by.loc[("spellings, calibration 0.5", "5"), "max"]),
            },
            (
                gain(
                    "PRO − NLL, both together",
                    "figures/08_when_does_pro_help.csv",
                    best_world("spellings, calibration 0.5", "5"),
                ),
            ),
        ),
        Sentence(
            page,
            "On facts-2m each answer added costs too (K = 5: {gain}); with the mass of the "
            "answers made 1 nothing is left of that ({one}).",
            {
                "gain": signed(cell("figures/08_causes.csv", "gain", **causes)),
                "one": signed(cell("figures/08_causes.csv", "gain", **one)),
            },
            (
                gain("K = 5 − NLL, facts-2m", "figures/08_causes.csv", causes),
                gain("K = 5 − NLL, facts-2m, probabilities made to sum to 1", "figures/08_causes.csv", one),
            ),
        ),
        Sentence(
            page,
            "On gpt-3.5-turbo and NQ, each answer once, PRO₅ gains {gain}, without the tail {tail}.",
            {"gain": f"{cell(real, 'gain', **causes):.3f}", "tail": f"{cell(real, 'gain', **tail):.3f}"},
            (
                gain("K = 5 − NLL, gpt-3.5, NQ", real, causes),
                gain("K = 5 − NLL, gpt-3.5, NQ, without the tail", real, tail),
            ),
        ),
        Sentence(
            page,
            "All {n} scores can guarantee 70 % right, for {low} to {high} of the questions.",
            {
                "n": spelled(len(at[0.7])),
                "low": f"{100 * at[0.7]['coverage'].min():.0f}",
                "high": percent(at[0.7]["coverage"].max()),
            },
        ),
        Sentence(
            page,
            "{n} can guarantee 80 %, for {most} at most.",
            {"n": spelled(len(at[0.8])).capitalize(), "most": percent(at[0.8]["coverage"].max())},
        ),
        Sentence(page, "90 % is guaranteed by {n}.", {"n": spelled(len(at[0.9]))}),
        Sentence(
            page,
            "Sets of answers that may miss 40 % hold {size} answers.",
            {"size": f"{issued['set_size']:.1f}"},
        ),
        Sentence(
            page,
            "Those at the paper's α of 0.4 miss {missed} and are empty for {empty} of the questions.",
            {"missed": percent(fixed["missed"]), "empty": percent(fixed["share_empty"])},
        ),
        Sentence(
            page,
            "at α = 0.4 K is [{repeats} with repeats and {once} without](benchmark.md#fixed-k):",
            {
                name: f"{cell('figures/03_k_vs_alpha.csv', 'mean_k', protocol=protocol, alpha=0.4, **SEEN):.2f}"
                for name, protocol in (("repeats", "paper"), ("once", "workbench"))
            },
        ),
    ]


def _protocols() -> list[Sentence]:
    repeats = rows("figures/00_repeats.csv", repeats="counted").iloc[0]
    return [
        Sentence(
            "docs/protocols.md",
            "{above} of 3,408 questions of facts-2m have beams whose probabilities sum to "
            "more than 1, the worst to {worst}.",
            {"above": f"{repeats['n_above_one']:,}", "worst": f"{repeats['largest_mass']:.2f}"},
        ),
    ]


# Numbers with three decimals that no CSV file has, by page.
NO_FILE = {
    # Worked by hand from the formula on the page.
    "docs/concepts.md": ("0.916", "1.748"),
    # Settings and tolerances.
    "docs/doors.md": ("0.001",),
    "docs/guarantees.md": ("0.005",),
    "docs/limitations.md": ("0.001",),
    "docs/tutorials/reading_figures.md": ("0.001", "0.005"),
    # Of the made-up answers on the page; its commands print them.
    "docs/tutorials/api_responses.md": ("0.836", "0.799", "0.880"),
    # Of benchmarks/coverage.py, and constants.
    "docs/intervals.md": (
        *("0.003", "0.007", "0.684", "0.013", "0.950", "0.857", "0.947", "0.687", "0.933", "0.737"),
        *("1.960", "1.645"),
    ),
}


def _cause(score: str, cause: str = "nothing changed", path: str = "figures/08_causes.csv") -> Pair:
    counted = "repeats kept" if cause == "repeats kept" else "once each"
    name = f"{score} − NLL, facts-2m, seen, {counted}"
    return Pair(name, path, {"cause": cause, "score": score}, 1, "gain", "low", "high")


def _gains(setting: str, protocol: str) -> tuple[Pair, ...]:
    where = PUBLISHED[setting]
    names = {"K": "K", "alpha": "α"}
    return tuple(
        _gain(f"PRO, {name} chosen − NLL, {setting}, {COUNTED[protocol]}", where, protocol, chosen)
        for chosen, name in names.items()
    )


def _small(method: str, protocol: str) -> tuple[Pair, ...]:
    """Return the differences to PRO of a method of SmolLM2, on three question sets."""
    sign = -1 if method == "NLL" else 1
    name = "PRO − NLL" if method == "NLL" else f"{method} − PRO"
    pairs = []
    for dataset in ("world-facts", "sciq", "nq"):
        where = {"protocol": protocol, "method": method, "dataset": dataset}
        label = f"{name}, SmolLM2, {dataset}, {COUNTED[protocol]}"
        pairs.append(Pair(label, f"{SMOLLM2}/06_benchmark.csv", where, sign))
    return tuple(pairs)


def _in_words() -> list[Sentence]:
    """Return the sentences that compare values without printing them."""
    real, more = "docs/real_models.md", "docs/notebooks.md"
    once = tuple(_cause(f"K = {k}") for k in (2, 5, 10))
    repeats = tuple(_cause(f"K = {k}", "repeats kept") for k in (2, 5, 10))
    nll_of_published = tuple(
        Pair(
            f"PRO − NLL, {name}, {COUNTED[protocol]}",
            f"{REAL}/06_benchmark.csv",
            {"protocol": protocol, "method": "NLL", **where},
            -1,
        )
        for name, where in PUBLISHED.items()
        for protocol in ("workbench", "paper")
    )
    worst = max(-cell(GAIN, "p05", protocol=protocol, chosen="K", **LLAMA) for protocol in COUNTED)
    return [
        Sentence(
            "README.md",
            "On Llama-2-7b-chat there is no difference",
            {},
            (*_gains("Llama-2-7b-chat, NQ", "workbench"), *_gains("Llama-2-7b-chat, NQ", "paper")),
        ),
        Sentence(
            real,
            "**gpt-3.5-turbo, each answer counted once: PRO is above NLL.** "
            "The interval on NQ is without 0, that on the 501 questions of Meadow is not.",
            {},
            (*_gains("gpt-3.5, NQ", "workbench"), *_gains("gpt-3.5, Meadow", "workbench")),
        ),
        Sentence(
            real,
            "On Meadow, where few samples repeat, the gain stays.",
            {},
            _gains("gpt-3.5, Meadow", "paper"),
        ),
        Sentence(
            real,
            "Of the choices of K on validation one in twenty loses {loss} and more.",
            {"loss": f"{worst:.2f}"},
            (*_gains("Llama-2-7b-chat, NQ", "workbench"), *_gains("Llama-2-7b-chat, NQ", "paper")),
        ),
        Sentence(
            real,
            "By Holm's correction none of 06's differences between PRO and NLL is significant.",
            {},
            nll_of_published,
        ),
        Sentence(
            real,
            "By Holm's correction no difference between PRO and NLL counts.",
            {},
            (*_small("NLL", "paper"), *_small("NLL", "workbench")),
        ),
        Sentence(
            real,
            "PE and NE fall far below, PE under one half.",
            {},
            (*_small("PE", "paper"), *_small("NE", "paper")),
        ),
        Sentence(more, "K = 1 is best in both protocols;", {}, (*repeats, *once)),
        Sentence("docs/concepts.md", "in the [benchmark](benchmark.md) AUROC falls with K.", {}, once),
        Sentence(
            "docs/tutorials/reading_figures.md",
            "**It shows** that here more answers make PRO worse; "
            "each counted once (in the table) they make it much worse.",
            {},
            (*repeats, *once),
        ),
        Sentence(
            "docs/audit.md",
            "with them K = 2 costs nothing,",
            {},
            (_cause("K = 2", "repeats kept"),),
        ),
        Sentence(
            "docs/audit.md",
            "Who is judged hardly matters either.",
            {},
            (
                Pair(
                    "judged by the first beam − this project's",
                    "docs/audit.csv",
                    {"method": "PRO", "choice": "judged by the first beam, fallback on it"},
                    low="low",
                    high="high",
                ),
            ),
        ),
    ]


SENTENCES: tuple[Sentence, ...] = (
    *_readme(),
    *_benchmark(),
    *_audit_page(),
    *_real_models(),
    *_notebooks(),
    *_protocols(),
    *_in_words(),
)
