"""The paragraphs of a caption: what is shown, what was found, and what the names mean.

Two methods are compared by the paired difference of their AUROCs on the same questions. Whether a
difference is significant is decided for all settings together (Holm's correction, 5 %), for each
protocol by itself. A difference that is not significant was not shown; it is not called equal.
Settings with fewer than 20 correct or 20 wrong answers are left out, and the sentence says so.
"""

import re
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from pro_lib.evaluation.methods import METHODS
from pro_lib.metrics.differences import SIGNIFICANT, holm, signed
from pro_lib.plots.settings import is_by_labels
from pro_lib.plots.style import PROTOCOL_WORDS, distinct_values, minus

FEWEST = 20  # correct and wrong answers that a setting needs
ABBREVIATIONS = "Abbreviations: "  # begins the last line of a caption
# What the names in pictures and captions mean, besides those of methods
_TERMS = {
    "AUROC": "probability that a wrong answer has a higher uncertainty than a correct one",
    "lexical": "meanings are compared by common words",
    "alias": "meanings are compared by a table of names",
    "NLI": "meanings are compared by a model of entailment",
    "α-floor": "lower bound of the entropy, −Σ p log p − (1 − Σ p) log α over the answers found",
    "tree bound": "lower bound of the entropy, the summed next-token entropies of the prefixes "
    "that the search expands, weighted by p",
    "probability not found": "1 − Σ p over the answers found",
    "K": "number of answers that PRO uses",
    "α": "threshold of p",
    "p": "probability of an answer",
    "setting": "a model and a dataset",
    "nats": "unit of the entropy with natural logarithms",
    "ROUGE-L": "F1 of the words that an answer shares with a reference in the same order",
    "repeats counted": "an answer that is found twice counts twice",
    "each answer once": "an answer that is found twice counts once, so that numbers can differ "
    "from figures in which repeats count",
    "exact search": "search that finds every answer with p ≥ its α, and the greedy answer",
    "facts-1m": "small model made for these questions, with 1.0 million parameters",
    "facts-2m": "small model made for these questions, with 2.3 million parameters",
    "smollm2-135m": "SmolLM2 with 135 million parameters",
    "gemma-3-270m": "Gemma 3 with 270 million parameters",
    "world-facts": "short questions about facts",
    "world-facts-reworded": "the questions of world-facts in other words",
    "sciq": "questions of science exams (SciQ)",
    "nq": "questions to a search engine (Natural Questions)",
    "nq-open": "questions to a search engine (Natural Questions)",
    "meadow": "medical flashcards",
}


def corrected(family: str, *, has_symbols: bool = True) -> str:
    """Return the sentence on Holm's correction over a family of tests."""
    subject, mark = "Statements", "significance"
    if has_symbols:
        subject, mark = "Symbols", "a symbol"
    return (
        f"{subject} are corrected for multiple comparisons (Holm: over {family}), intervals are "
        f"not, so an interval can exclude 0 without {mark}."
    )


def join_caption(shown: str, table: pd.DataFrame, *findings: str) -> str:
    """Return a caption: a paragraph on what is shown, the findings, and a line of abbreviations.

    Args:
        shown: sentences that say what the figure shows, and what its intervals are.
        table: the rows that are drawn.
        findings: sentences about the result; empty ones are left out.

    Example:
        >>> table = pd.DataFrame({"n_questions": [3408], "correctness": "exact match"})
        >>> print(join_caption("Mean of p.", table, "It is 1."))
        Mean of p. n = 3,408 questions; an answer counts as correct by exact match.
        <BLANKLINE>
        It is 1.
        <BLANKLINE>
        Abbreviations: p, probability of an answer.
    """
    found = " ".join(filter(None, findings))
    paragraphs = [f"{shown} {answer_sentence(table)}", found]
    text = "\n\n".join(filter(None, paragraphs))
    terms = f"{ABBREVIATIONS}{'; '.join(_terms(text, table))}."
    if "interval" in text and " minus " in text and "bands" not in shown:
        terms += " An interval narrower than its mark is hidden"
        are_alike = (table.get("n_differ", pd.Series()) == 0).any()
        terms += (
            "; none is drawn where both scores order all questions alike." if are_alike else "."
        )
    return f"{text}\n\n{terms}"


def answer_sentence(table: pd.DataFrame) -> str:
    """Say how many questions a table is about, and which answers are correct.

    Example:
        >>> answer_sentence(pd.DataFrame({"n_questions": [3408], "correctness": "ROUGE-L > 0.3"}))
        'n = 3,408 questions; an answer counts as correct if ROUGE-L > 0.3.'
    """
    setting = table.columns.intersection(["dataset", "model", "n_questions"])
    several = len(table.drop_duplicates(setting)) > 1
    clauses = [
        f"n = {span(table['n_questions'], '{:,.0f}')} questions{' in each setting' * several}"
    ]
    n_unlabelled = table["n_unlabelled"].max() if "n_unlabelled" in table else 0
    if n_unlabelled:
        clauses.append(f"{n_unlabelled:,.0f} further questions have no label")
    rules = distinct_values(table, "correctness")
    if is_by_labels(table):
        n_labels = span(table["n_labels"], "{:,.0f}")
        clauses.append(
            f"labels of {n_labels} answers estimate which answers are correct, and ROUGE-L judges "
            "the validation questions"
        )
    elif len(rules) == 1:
        word = "if" if rules[0].startswith("ROUGE-L") else "by"
        clauses.append(f"an answer counts as correct {word} {rules[0]}")
    return f"{'; '.join(clauses)}."


def _terms(text: str, table: pd.DataFrame) -> list[str]:
    """Return the meanings of the terms of a text, and of the names that a table has."""
    columns = ("method", "similarity", "dataset", "model")
    named = [str(name) for column in columns for name in distinct_values(table, column)]
    counted = [PROTOCOL_WORDS.get(name, name) for name in distinct_values(table, "protocol")]
    words = " ".join([text, *named, *counted])
    terms = []
    meanings = {name: method.meaning for name, method in METHODS.items()} | _TERMS
    for term, meaning in meanings.items():
        if re.search(rf"(?<![\w-]){re.escape(term)}(?![\w-])", words):
            terms.append(f"{term}, {meaning}{_alpha_of_pro(table) if term == 'PRO' else ''}")
            words += f" {meaning}"
    return terms


def _alpha_of_pro(table: pd.DataFrame) -> str:
    """Return the α of PRO in parentheses, if the table has it."""
    if not {"method", "alpha", "alpha_choice"} <= set(table):
        return ""
    rows = table[(table["method"] == "PRO") & table["alpha"].notna()]
    if rows.empty:
        return ""
    is_chosen = (rows["alpha_choice"] == "validation").any()
    chosen = ", chosen on validation questions" if is_chosen else ""
    return f" (α = {span(rows['alpha'], '{:g}')}{chosen})"


def by_protocol(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows of each protocol, with the words in front of a sentence about them.

    There are no such words if the table has one protocol.
    """
    protocols = distinct_values(table, "protocol")
    if len(protocols) <= 1:
        yield "", table
        return
    for protocol in protocols:
        words = PROTOCOL_WORDS.get(protocol, protocol)
        yield f"With {words}: ", table[table["protocol"] == protocol]


def comparison(
    rows: pd.DataFrame,
    subject: str,
    *,
    reference: str = "NLL",
    quantity: str = "auroc_minus_nll",
    family: pd.DataFrame | None = None,
) -> str:
    """Return a sentence about the paired differences between two methods, for each protocol.

    Args:
        rows: a row per setting, with n_questions, n_correct, dataset, model, p_value and the
            columns `<quantity>`, `<quantity>_low` and `<quantity>_high`.
        subject: the method, such as "PRO with α chosen on validation questions".
        reference: the method that it is compared with.
        quantity: the column of the difference, subject minus reference.
        family: all comparisons that Holm's correction is over, a table that has `rows` by its
            index; None for these rows alone.
    """
    every = rows if family is None else family
    sentences: list[str] = []
    for (words, some), (_, tests) in zip(by_protocol(rows), by_protocol(every), strict=True):
        kept = some[has_enough(some) & some[f"{quantity}_low"].notna()]
        signs = significant_signs(tests[has_enough(tests)], quantity)
        parts: list[str] = []
        for verdict, chosen in verdicts(kept, signs[kept.index]):
            where = f" in {len(chosen)} of {len(kept)} settings" if len(kept) > 1 else ""
            part = f"{verdict} {reference}{where}"
            if parts:
                part = f"{verdict.rpartition(' ')[0]} in {len(chosen)}"
            values = difference_values(chosen, quantity)
            if len(chosen) == 1 < len(kept):
                values = f"{setting_names(chosen).iloc[0]}: {values}"
            parts.append(f"{part} ({values})")
        if parts:
            sentences.append(f"{words}{subject} is {listed(parts)}.")
        sentences.append(too_few(some.drop(index=kept.index)))
    return " ".join(filter(None, sentences))


def too_few(left_out: pd.DataFrame) -> str:
    """Say which settings have too few answers, if there are any."""
    names = setting_names(left_out).unique()
    if not len(names):
        return ""
    return f"There are too few answers for a statement about {listed(names)}."


def setting_names(rows: pd.DataFrame) -> pd.Series:
    """Return the setting of each row, such as "gpt2 on sciq"."""
    return rows["model"].astype(str) + " on " + rows["dataset"].astype(str)


def significant_signs(tests: pd.DataFrame, quantity: str = "auroc_minus_nll") -> pd.Series:
    """Return 1 or -1 for differences that are significantly above or below 0, and 0 for others.

    Holm's correction is over all of these tests. If all hypotheses are true, the probability that
    any test is significant is at most 5 %, however the tests depend on each other. NaN is not a
    test.
    """
    is_significant = holm(tests["p_value"]) <= SIGNIFICANT
    return np.sign(tests[quantity]).where(is_significant, 0)


def with_signs(table: pd.DataFrame, *by: str, quantity: str = "auroc_minus_nll") -> pd.DataFrame:
    """Return a table with the column sign (`significant_signs`), 0 without a test.

    Holm's correction is over the tests with the same values of those columns `by` that exist.
    """
    table = table.reset_index(drop=True).assign(sign=0.0)
    if "p_value" in table:
        tests = table[has_enough(table)]
        columns = [tests[name] for name in by if name in tests]
        for _, family in tests.groupby(columns or np.zeros(len(tests)), dropna=False):
            table.loc[family.index, "sign"] = significant_signs(family, quantity)
    return table


def verdicts(rows: pd.DataFrame, signs: pd.Series) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the words of each verdict about a difference, with its rows, if there are any."""
    for words, sign in (
        ("significantly better than", 1),
        ("significantly worse than", -1),
        ("not significantly different from", 0),
    ):
        chosen = rows[signs == sign]
        if len(chosen):
            yield words, chosen


def difference_values(rows: pd.DataFrame, quantity: str) -> str:
    """Return the differences, and the confidence interval of a single one."""
    values = signed_span(rows[quantity])
    if len(rows) > 1:
        return f"differences {values}"
    ends = signed_span(rows[[f"{quantity}_low", f"{quantity}_high"]].iloc[0])
    return values if ends == values else f"{values}, 95 % interval {ends}"


def has_enough(rows: pd.DataFrame) -> pd.Series:
    """Return whether each setting has enough correct and enough wrong answers, if it is known."""
    if "n_correct" not in rows:
        return pd.Series(True, rows.index)
    wrong = rows["n_questions"] - rows["n_correct"]
    return (rows["n_correct"] >= FEWEST) & (wrong >= FEWEST)


def span(values: pd.Series, form: str = "{:.3f}") -> str:
    """Return the smallest and the largest value as text, or the only one.

    Example:
        >>> span(pd.Series([0.71234, 0.6, 0.8]))
        '0.600 to 0.800'
    """
    low, high = (minus(form.format(value)) for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def signed_span(values: pd.Series) -> str:
    """Return the smallest and the largest difference with their signs, or the only one.

    Example:
        >>> signed_span(pd.Series([0.012, -0.03]))
        '−0.030 to +0.012'
    """
    low, high = signed(values.min()), signed(values.max())
    return low if low == high else f"{low} to {high}"


def percent_span(shares: pd.Series) -> str:
    """Return the smallest and the largest share in percent, with one decimal."""
    return f"{span(100 * shares, '{:.1f}')} %"


def listed(names: Iterable[str]) -> str:
    """Join names as "a, b and c"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
