"""The page of claims: every listed sentence that compares two values, with its paired differences."""

from doc_sentences import SENTENCES, Pair, Sentence
from doc_sources import difference_with_interval, row

HEAD = """# Claims and their differences

This page is generated (`make docs-numbers`); the sentences are listed in `docs/sourced/doc_sentences.py`. It has
the sentences of README and docs, but for the log, that compare two values on the same questions. Beside each stands the
paired difference with its 95 % interval, and the cell of the CSV file that it comes from. The difference is the first
value minus the second. *None yet* says that no committed file has the paired difference: the sentence then describes
the two values and supports no conclusion about which is larger.

"""


def claims_page() -> str:
    """Return the page as Markdown."""
    parts = [HEAD]
    pages = dict.fromkeys(sentence.page for sentence in SENTENCES if sentence.pairs)
    for page in pages:
        parts.append(f"## {page}\n\n")
        parts += [_entry(sentence) for sentence in SENTENCES if sentence.page == page and sentence.pairs]
    return "".join(parts).rstrip("\n") + "\n"


def _entry(sentence: Sentence) -> str:
    lines = ["| compared | difference, 95 % interval | cell |\n", "|---|---|---|\n"]
    lines += [f"| {pair.name} | {_difference(pair)} | {_place(pair)} |\n" for pair in sentence.pairs]
    return f"> {sentence.plain()}\n\n{''.join(lines)}\n"


def _difference(pair: Pair) -> str:
    if not pair.path:
        return "none yet"
    record = row(pair.path, **pair.where)
    names = {pair.column: "difference", pair.low: "difference_low", pair.high: "difference_high"}
    return difference_with_interval(record.rename(names), pair.sign)


def _place(pair: Pair) -> str:
    if not pair.path:
        return ""
    conditions = ", ".join(f"{name} = {value}" for name, value in pair.where.items())
    reverse = ", with the other sign" if pair.sign < 0 else ""
    return f"[{pair.path.split('/', 1)[1]}]({_link(pair.path)}): `{pair.column}` where {conditions}{reverse}"


def _link(path: str) -> str:
    return path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"
