"""The explorer: one run, question by question, in a notebook (`widget`) or as a file (`to_html`); a browser draws."""

import html
import json
import os
import re
import string
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pro_lib import scoring
from pro_lib.common import catalog
from pro_lib.common.files import RunError, sha256, write_whole
from pro_lib.common.validation import not_empty
from pro_lib.evaluation.evaluate import DRAWN_ALPHAS, alpha_grid, evaluate
from pro_lib.importing.records import from_records
from pro_lib.metrics.correctness import Choices, rouge_and_correct
from pro_lib.runs.run import Run, identities
from pro_lib.runs.storage import CERTIFICATE_COLUMNS, RunInfo, complete_log_prob, plain
from pro_lib.scoring.similarity import lexical

PAGE, JAVASCRIPT, STYLES = (
    Path(__file__).with_name(f"explorer.{kind}") for kind in ("html", "js", "css")
)
GENERATOR = "PRO workbench"  # what a page says of its origin
_SHOWN = ("question", "split", "exposure", "conflict", "note")  # of a question, where it has them
_CERTIFICATE = [
    name for name in CERTIFICATE_COLUMNS if not name.startswith("tree_") or name == "tree_bound"
]


def run_data(run: Run, *, alpha: float = 0.4) -> dict:
    """Return a run as one JSON-able object, from which `explorer.js` computes PRO, K and AUROC; it is rounded nowhere.

    `alphas` are the slider's, which stands at `alpha` first; `log_alphas` are their logarithms, None for -inf.
    `answers` has a list for every question, downwards, those cut by length last: [text, log-probability of the complete
    answer, identity, finished, correct]. Repeats have the same identity, a number. What is missing is None.
    """
    scoring.adaptive_k(np.zeros((1, 1)), alpha)  # raises ValueError for an alpha outside [0, 1]
    if run.is_texts:
        raise RunError(
            f"run {run.name} has texts without log-probabilities, and the explorer shows probabilities"
        )
    grid = alpha_grid(run.search_alpha, of=DRAWN_ALPHAS)
    alphas = np.unique(np.round([*grid, *np.arange(1, 101) / 100, alpha], 9))
    alphas, answers = alphas[alphas >= grid[0]].tolist(), _answers(run)
    questions = []
    for row, own in zip(run.questions.to_dict("records"), answers, strict=True):
        question = {"id": row["question_id"], "question": f"question {row['question_id']}"}
        question |= {name: value for name in _SHOWN if (value := plain(row.get(name))) is not None}
        question["references"] = None if row["references"] is None else list(row["references"])
        question["correct"] = own[0][4] if own else None
        certificate = {name: plain(row[name]) for name in _CERTIFICATE if name in row}
        questions.append(question | ({"certificate": certificate} if certificate else {}))
    log_alphas = [float(np.log(value)) if value else None for value in alphas]
    has_texts = bool(run.questions["question"].notna().any() or run.answers["text"].notna().any())
    slider = {"alpha": alpha, "alphas": alphas, "log_alphas": log_alphas}
    about = {"name": run.name, "model": run.info.model, "has_texts": has_texts}
    return about | slider | {"questions": questions, "answers": answers}


def _answers(run: Run) -> list[list[list]]:
    """Return the `answers` of `run_data`."""
    ended, ids = run.ranked_answers(distinct=False), pd.Index(run.questions["question_id"])
    correct = rouge_and_correct(ended, run.questions.iloc[ended["row"]].reset_index(drop=True))[
        "correct"
    ]
    cut = run.answers[~run.answers["finished"].to_numpy(bool)]
    cut = cut.assign(
        row=ids.get_indexer(cut["question_id"]), value=cut["log_prob"], mean=np.nan, correct=None
    )
    table = pd.concat([ended.assign(correct=correct), cut], ignore_index=True)
    # A text without a log-probability has no place on the page
    table = table[table["value"].notna()]
    numbers, answers = dict[object, int](), [list[list]() for _ in ids]
    for identity, answer in zip(identities(table), table.itertuples(), strict=True):
        number, rows = numbers.setdefault(identity, len(numbers)), answers[answer.row]
        text = answer.text if isinstance(answer.text, str) else f"answer {len(rows) + 1}"
        rows.append(
            [text, float(answer.value), number, bool(answer.finished), plain(answer.correct)]
        )
    return answers


def comparison_data(run: Run, samples: Run | None = None, *, distinct: bool = True) -> dict:
    """Return every method but PRO on the questions of a run: ids, texts, correct, scores, counts.

    `samples` is a run of samples of the same questions. Raises `RunError` where no answer can be judged.
    """
    choices = Choices(distinct=distinct)
    judged = evaluate(run, samples=samples, similarities={"lexical": lexical}, choices=choices)
    return {
        "distinct": distinct,
        "ids": list(judged.answers["question_id"]),
        "texts": [plain(text) for text in judged.answers["text"]],
        "correct": judged.correct.tolist(),
        "scores": judged.baselines.to_dict("list"),
        "counts": judged.exclusions,
    }


def to_html(
    run: Run, path: str | Path, *, alpha: float = 0.4, source: str | Path | None = None
) -> Path:
    """Write the explorer of a run, its slider at `alpha`, into one file that needs no kernel or network; return it.

    The page says which package wrote it, and a digest of `source`, the file or folder that the run was read from.
    """
    not_empty(path, "path")
    scoring.adaptive_k(np.zeros((1, 1)), alpha, search_alpha=run.search_alpha)
    try:
        methods = comparison_data(run)
    except RunError as error:
        methods = {"why": str(error)}
    # In JSON, < occurs in texts only, and there it may be written so; nothing can then end the element it stands in.
    data = json.dumps([run_data(run, alpha=alpha), methods], ensure_ascii=False, allow_nan=False)
    parts = {"title": html.escape(run.name), "data": data.replace("<", "\\u003c")}
    parts |= {
        "styles": STYLES.read_text(encoding="utf-8"),
        "javascript": JAVASCRIPT.read_text(encoding="utf-8"),
    }
    parts["generator"] = GENERATOR
    parts["source"] = "" if source is None else source_digest(source)
    write_whole(
        string.Template(PAGE.read_text(encoding="utf-8")).substitute(parts).encode(), Path(path)
    )
    return Path(path)


def source_digest(path: str | Path) -> str:
    """Return eight digits that stand for the place of a file or folder, links resolved."""
    return sha256(os.fsencode(os.path.realpath(path)))[:8]


def page_source(path: Path) -> str | None:
    """Return the `source_digest` in a page of `to_html`, empty where none was given; None if it is another file."""
    with open(path, "rb") as file:
        head = file.read(2000)
    marks = rb'<meta name="generator" content="([^"]*)">\s*<meta name="source" content="(\w*)">'
    found = re.search(marks, head)
    return found[2].decode() if found and found[1] == GENERATOR.encode() else None


def appendix_run() -> Run:
    """Return the three questions of the paper's appendix as a run; what the paper prints of each is its `note`."""
    table, printed = catalog.paper("appendix_examples"), catalog.paper("appendix_scores")
    table = table.loc[table.index.repeat(table["count"])].rename(columns={"answer": "text"})
    table = table.assign(question_id=table["question"], log_prob=np.log(table["probability"]))
    run = from_records(table.assign(references=[[truth] for truth in table["truth"]]))
    adaptive = (
        printed[printed["selection"] == "adaptive"]
        .set_index("question")
        .loc[run.questions["question"]]
    )
    rows = adaptive.itertuples()
    notes = [
        f"The paper prints PRO = {row.pro:g} at α = {row.alpha:g}, repeats counted." for row in rows
    ]
    return Run(
        run.answers,
        run.questions.assign(note=notes),
        RunInfo("nq", "Gemma-7B", "the paper's appendix"),
    )


def prefix_tree(
    run: Run, decode: Callable[[Sequence[int]], str], *, n_nodes: int = 30
) -> pd.DataFrame:
    """Return the prefix tree that was searched for the one question of `run`, a row per node, parents first.

    Columns: node, parent (-1: none), kind, text (what it adds), probability, greedy. A `prefix` was put through the
    model, an `answer` ended, `open` was cut at the length limit. A `cut` is the rest of a prefix: all but the greedy
    path and the `n_nodes` most probable. The leaves' probabilities sum to 1. A prefix with one continuation, which
    loses at most 0.005 besides, is one node with it. Raises `RunError` where the run is no exact search.
    """
    run.tree()  # says what is missing
    search = run.questions.iloc[0]
    parents, greedy, p = (
        search["tree_parents"],
        search["tree_greedy"],
        np.exp(np.asarray(search["tree_log_probs"])),
    )
    paths: list[tuple[int, ...]] = []
    for parent, token in zip(parents, search["tree_tokens"], strict=True):
        paths.append((*paths[parent], int(token)) if parent >= 0 else ())
    nodes = sorted(
        {*np.argsort(-p, kind="stable")[:n_nodes].tolist(), *np.flatnonzero(greedy).tolist()}
    )
    places, ends, rows = {paths[v]: v for v in nodes}, defaultdict(list), list[tuple]()
    log_probs = complete_log_prob(run.answers["log_prob"], run.answers["end_log_prob"])
    for answer in run.answers.assign(probability=np.exp(log_probs)).itertuples():
        # Under the prefix that was expanded, or where the last token closes the answer or it is cut.
        ids = tuple(answer.token_ids)
        ends[places.get(ids if answer.finished and ids in places else ids[:-1])].append(answer)

    def add(v: int, parent: int, text: str, lost: float) -> None:
        # Some tokenizers cannot spell the last token alone
        whole, before = (
            decode(paths[v]),
            decode(paths[v][:-1]),
        )
        text += whole[len(before) :] if whole.startswith(before) else decode(paths[v][-1:])
        below = [u for u in nodes if parents[u] == v]
        lost += p[v] - sum(p[u] for u in below) - sum(answer.probability for answer in ends[v])
        if len(below) == 1 and not ends[v] and lost < 0.005:
            return add(below[0], parent, text, lost)
        node, is_last = len(rows), bool(greedy[v]) and not any(greedy[u] for u in below)
        rows.append((node, parent, "prefix", text, p[v], bool(greedy[v])))
        for answer in ends[v]:
            kind = "answer" if answer.finished else "open"
            rows.append((len(rows), node, kind, answer.text, answer.probability, is_last))
        for u in below:
            add(u, node, "", 0.0)
        rows.append((len(rows), node, "cut", "cut", max(lost, 0.0), False))

    add(0, -1, "", 0.0)
    return pd.DataFrame(rows, columns=["node", "parent", "kind", "text", "probability", "greedy"])
