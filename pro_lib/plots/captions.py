"""The sentences of captions: what is shown, about which answers, and what was found.

Two methods are compared by the paired difference of their AUROCs on the same questions. Whether a
difference is significant is decided for all settings together (Holm's correction, 5 %), for each
protocol by itself. A difference that is not significant was not shown; it is not called equal, and
the sentence says how large a difference these questions would have shown. Settings with fewer than
20 correct or 20 wrong answers are left out, and the sentence says so.
"""

from collections.abc import Iterable, Iterator
from math import ceil

import numpy as np
import pandas as pd
from scipy.special import ndtri

from pro_lib.evaluation.methods import METHODS
from pro_lib.metrics.differences import holm, signed
from pro_lib.plots.settings import is_by_labels
from pro_lib.plots.style import PROTOCOLS, distinct_values, minus

FEWEST = 20  # correct and wrong answers that a setting needs
_SIMILARITIES = {
    "lexical": "common words (lexical)",
    "alias": "a table of names (alias)",
    "nli": "a model of entailment (nli)",
}
_BUNDLED = (
    "facts-1m and facts-2m are bundled models with 1.0 and 2.3 million parameters; "
    "world-facts-reworded has the questions of world-facts in other words."
)
LEVEL = 0.05  # of the tests, for all settings together
POWER = 0.8  # with which a difference is said to be detected
_COUNTED = {
    "paper": "Repeats are counted: an answer that is found twice counts twice.",
    "workbench": "An answer that is found twice counts once.",
}
AUROC = "AUROC (the probability that a wrong answer gets a higher uncertainty than a correct one)"
TREE_BOUND = "the summed next-token entropies of the prefixes that it expands, weighted by p"
PRO_AND_NLL = f"PRO is {METHODS['PRO'].meaning}; NLL is {METHODS['NLL'].meaning}."
PRO_AT_K = f"{PRO_AND_NLL} With a fixed K, it uses the K most probable answers."


def join_caption(shown: str, table: pd.DataFrame, *findings: str) -> str:
    """Return a caption: what is shown, of which methods, questions and answers, and the findings.

    The findings are a paragraph of their own.

    Args:
        shown: sentences that say what the figure shows, and what its intervals are.
        table: the rows that are drawn.
        findings: sentences about the result; empty ones are left out.
    """
    description = [shown, methods_sentence(table), answer_sentence(table)]
    paragraphs = (" ".join(filter(None, each)) for each in (description, findings))
    return "\n\n".join(filter(None, paragraphs))


def answer_sentence(table: pd.DataFrame) -> str:
    """Say how many questions a table is about, which answers are correct, and how they count.

    Example:
        >>> table = pd.DataFrame({"n_questions": [3408], "correctness": "exact match"})
        >>> answer_sentence(table)
        'n = 3,408 questions. The most probable answer counts as correct by this rule: exact match.'
    """
    setting = table.columns.intersection(["dataset", "model", "n_questions"])
    several = len(table.drop_duplicates(setting)) > 1
    each = " in each setting (a model and a dataset)" if several else ""
    sentences = [f"n = {span(table['n_questions'], '{:,.0f}')} questions{each}."]
    if "world-facts" in distinct_values(table, "dataset"):
        sentences.append(_BUNDLED)
    protocols = distinct_values(table, "protocol")
    if len(protocols) == 1:
        sentences.append(_COUNTED.get(protocols[0], ""))
    n_unlabelled = table["n_unlabelled"].max() if "n_unlabelled" in table else 0
    if n_unlabelled:
        sentences.append(f"{n_unlabelled:,.0f} further questions have no label.")
    rules = distinct_values(table, "correctness")
    if is_by_labels(table):
        n_labels = span(table["n_labels"], "{:,.0f}")
        sentences.append(
            f"Labels of {n_labels} answers estimate which answers are correct, and ROUGE-L judges "
            "the validation questions."
        )
    elif len(rules) == 1:
        sentences.append(f"The most probable answer counts as correct by this rule: {rules[0]}.")
    return " ".join(filter(None, sentences))


def methods_sentence(table: pd.DataFrame) -> str:
    """Say what the methods of a table are, if there are several, in the registry's first words.

    Example:
        >>> methods_sentence(pd.DataFrame({"method": ["NLL", "ALL"]}))
        'Methods: NLL (−log p of the most probable answer) and ALL (NLL per token).'
    """
    names = [name for name in distinct_values(table, "method") if name in METHODS]
    if len(names) < 2:
        return ""
    meanings = {name: METHODS[name].meaning.partition(",")[0] for name in names}
    sentence = f"Methods: {listed(f'{name} ({words})' for name, words in meanings.items())}."
    compared = table["similarity"].dropna().unique() if "similarity" in table else []
    if len(compared):
        names = [_SIMILARITIES.get(each, each) for each in compared]
        sentence += f" Meanings are compared by {listed(names)}."
    return sentence


def by_protocol(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows of each protocol, with the words in front of a sentence about them.

    There are no such words if the table has one protocol.
    """
    protocols = distinct_values(table, "protocol")
    if len(protocols) <= 1:
        yield "", table
        return
    for protocol in protocols:
        yield f"With {PROTOCOLS.get(protocol, protocol)}: ", table[table["protocol"] == protocol]


def comparison(
    rows: pd.DataFrame,
    subject: str,
    *,
    reference: str = "NLL",
    quantity: str = "auroc_minus_nll",
    family: pd.DataFrame | None = None,
    says_detectable: bool = True,
) -> str:
    """Return a sentence or two about the paired differences between two methods, by protocol.

    Args:
        rows: a row per setting, with n_questions, n_correct, dataset, model, p_value and the
            columns `<quantity>`, `<quantity>_low` and `<quantity>_high`.
        subject: the method, such as "PRO with α chosen on validation questions".
        reference: the method that it is compared with.
        quantity: the column of the difference, subject minus reference.
        family: all comparisons that Holm's correction is over, a table that has `rows` by its
            index; None for these rows alone.
        says_detectable: whether to say how large a difference would have been detected, if one was
            not shown.
    """
    every = rows if family is None else family
    sentences: list[str] = []
    for (words, some), (_, tests) in zip(by_protocol(rows), by_protocol(every), strict=True):
        kept = some[has_enough(some) & some[f"{quantity}_low"].notna()]
        if len(kept):
            signs = significant_signs(tests[has_enough(tests)], quantity)
            verdict = _verdict(kept, signs[kept.index], reference, quantity)
            sentences.append(f"{words}{subject} is {verdict}.")
            others = kept[signs[kept.index] == 0]
            if len(others) and says_detectable:
                detectable = _detectable(others, quantity, signs.size)
                sentences.append(
                    f"A difference of {detectable:.2f} would have been detected with a probability "
                    f"of 80 %{f', corrected for {signs.size} tests' * (signs.size > 1)}."
                )
        left_out = some.drop(index=kept.index)
        names = dict.fromkeys(f"{row.model} on {row.dataset}" for row in left_out.itertuples())
        if names:
            sentences.append(f"There are too few answers for a statement about {listed(names)}.")
    return " ".join(sentences)


def _verdict(rows: pd.DataFrame, signs: pd.Series, reference: str, quantity: str) -> str:
    """Return in how many settings a method differs from another, with the differences."""
    parts: list[str] = []
    for words, chosen in verdicts(rows, signs):
        where = f" in {len(chosen)} of {len(rows)} settings" if len(rows) > 1 else ""
        part = f"{words} {reference}{where}"
        if parts:
            part = f"{words.rpartition(' ')[0]} in {len(chosen)}"
        parts.append(f"{part} ({difference_values(chosen, quantity)})")
    return listed(parts)


def _detectable(rows: pd.DataFrame, quantity: str, n_tests: int) -> float:
    """Return the difference that each of some tests would have shown with a probability of 80 %."""
    width = (rows[f"{quantity}_high"] - rows[f"{quantity}_low"]).max()
    factor = ndtri(1 - LEVEL / (2 * n_tests)) + ndtri(POWER)
    return ceil(100 * factor * width / (2 * ndtri(0.975))) / 100


def significant_signs(tests: pd.DataFrame, quantity: str = "auroc_minus_nll") -> pd.Series:
    """Return 1 or -1 for differences that are significantly above or below 0, and 0 for others.

    Holm's correction is over all of these tests. If all hypotheses are true, the probability that
    any test is significant is at most 5 %, however the tests depend on each other. NaN is not a
    test.
    """
    is_significant = holm(tests["p_value"]) <= LEVEL
    return np.sign(tests[quantity]).where(is_significant, 0)


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
    low, high = (signed(rows[f"{quantity}_{end}"].iloc[0]) for end in ("low", "high"))
    return f"{values}, 95 % interval {low} to {high}"


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
