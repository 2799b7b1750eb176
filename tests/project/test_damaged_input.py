"""Test every reader on damaged input: it returns what an independent reader finds, or an error.

`--size` says how many inputs a reader is tried on, and `WALL_SEED` chooses others; a failure names
its reader and seed.
"""

import ast
import contextlib
import copy
import csv
import io
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import time
import traceback
import warnings
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_storage import IDS, INFO, questions_of, written

from pro_lib import importing, runs
from pro_lib.app import experiment
from pro_lib.common.catalog import ROOT, fingerprint
from pro_lib.generation import models
from pro_lib.importing.records import read_labels
from pro_lib.questions import question_sets
from pro_lib.runs import storage
from pro_lib.scoring import similarity

SECONDS, MEGABYTES = 10, 1024
SEED = os.environ.get("WALL_SEED", "0")
LOGS = Path(__file__).parents[1] / "golden" / "logs"
# Inputs a reader: more than 1,000 and 10,000 for all of them together.
HOW_MANY = {"quick": 20, "all": 76, "trials": 780}
MODEL_SHARE = 0.1  # loading a model takes a second

QUESTIONS = [
    {
        "question_id": "q1",
        "question": "Capital of France?",
        "references": ["Paris", "City of Light"],
        "split": "test",
    },
    {"question_id": "q2", "question": "Symbol of sodium?", "references": ["NA"], "split": "test"},
    {
        "question_id": "3",
        "question": "Wer schrieb «Faust»?",
        "references": ["Goethe"],
        "split": "validation",
    },
]
LABELS = [("q1", "NA", True), ("q2", "007", False), ("q3", "1990", True)]
LABELS = [dict(zip(("question_id", "text", "correct"), label, strict=True)) for label in LABELS]
ANSWERS = [
    {"text": "Paris", "token_ids": [5, 6], "token_log_probs": [-0.25, -0.5], "end_log_prob": -0.25},
    {"text": "Lyon", "log_prob": -3, "end_log_prob": -1, "correct": False, "finished": True},
]
RECORDS = [
    QUESTIONS[0] | {"references": ["Paris"], "answers": ANSWERS},
    {"question_id": 2, "answers": [{"log_prob": -1.5, "mean_log_prob": -0.5, "rouge_l": 1.0}]},
]


def choice(text, *tokens, **fields):
    """A choice of a chat completion; a token is (text, log-probability)."""
    content = [{"token": t, "logprob": p, "bytes": list(t.encode())} for t, p in tokens]
    return {
        "message": {"content": text},
        "logprobs": {"content": content},
        "finish_reason": "stop",
    } | fields


def vllm_output(text, *tokens, **fields):
    """Return a CompletionOutput as JSON; a token is (id, text, log-probability)."""
    other = {"999": {"logprob": -7.5, "decoded_token": "x"}}
    steps = [
        {str(token): {"logprob": value, "decoded_token": name}} | other
        for token, name, value in tokens
    ]
    ids, _, values = zip(*tokens, strict=True)
    output = {
        "text": text,
        "token_ids": list(ids),
        "cumulative_logprob": sum(values),
        "logprobs": steps,
    }
    return output | {"finish_reason": "stop", "stop_reason": None} | fields


ROME = {"choices": [choice("Rome", ("Ro", -1.0), ("me", -2.0))]}
OPENAI = [
    {"id": "r1", "choices": [choice("Paris", ("Par", -0.25), ("is", -0.5), ("</s>", -0.125))]},
    {
        "question_id": "b",
        "references": "Lyon",
        "response": {"choices": [choice("Lyon", ("Lyon", -2.0))]},
    },
    {"custom_id": "c", "response": {"body": ROME}},
]
OUTPUT = vllm_output(" Paris", (5, " Par", -0.25), (6, "is", -0.5), (2, "</s>", -0.125))
VLLM = [
    {"request_id": str(n), "prompt": f"Of {n}?", "references": ["Paris"], "outputs": [OUTPUT]}
    for n in range(2)
]


INSPECT = [
    {"id": name, "epoch": epoch, "input": f"Capital of {name}?", "target": target,
     "output": {"model": "m", "choices": [choice("Lima", ("Li", -0.25), ("ma", -0.5 * epoch),
         stop_reason=reason)]},
     "scores": {"includes": {"value": "C"}}}
    for name, target in (("peru", ["Lima", "Ciudad"]), (2, "Lima"))
    for epoch, reason in ((1, "stop"), (2, "stop_sequence"))
]  # fmt: skip

# --- What is written, and read by readers that share nothing with ours ---


def as_log(rows):
    return json.dumps({"version": 2, "eval": {}, "samples": rows}).encode()


def as_json_lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_csv(rows):
    table = pd.DataFrame(rows)
    return (
        table.map(lambda value: ";".join(value) if isinstance(value, list) else value)
        .to_csv(index=False)
        .encode()
    )


WRITE = {".jsonl": as_json_lines, ".csv": as_csv, ".json": as_log}
WRITE[".parquet"] = lambda rows: pd.DataFrame(rows).to_parquet(index=False)
TABLES = (".jsonl", ".csv", ".parquet")


def plainly(path):
    """The rows of a file, as the standard library or Arrow reads them."""
    data = path.read_bytes()
    if path.suffix == ".json":
        return json.loads(plain_text_of(data))["samples"]
    if path.suffix == ".parquet":
        return pq.read_table(pa.BufferReader(data)).to_pylist()
    text = plain_text_of(data)
    if path.suffix == ".csv":
        return list(csv.DictReader(io.StringIO(text, newline="")))
    if text.lstrip(" \t\r\n").startswith("["):
        return json.loads(text)
    values = []
    while text := text.lstrip():
        value, end = json.JSONDecoder().raw_decode(text)
        values.append(value)
        text = text[end:]
    return values


def plain_text_of(data):
    """The text of a file in UTF-8, else in Windows-1252."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252")


def plain_references(value, separator=";"):
    """Return the texts of a reference column, also those in lists and objects."""
    parts, waiting = [], [value]
    if isinstance(value, str):
        waiting = [plain_list(value)] if plain_list(value) is not None else []
        parts = [] if waiting else value.split(separator) if separator else [value]
    while waiting:
        inner = waiting.pop(0)
        if isinstance(inner, dict) and {"text", "value", "aliases", "spans"}.isdisjoint(inner):
            return []
        if isinstance(inner, dict):
            inner = [
                inner[name] for name in ("text", "value", "aliases") if inner.get(name) is not None
            ]
        if isinstance(inner, list):
            waiting = inner + waiting
        elif isinstance(inner, bool) or (isinstance(inner, float) and math.isinf(inner)):
            return []
        elif inner is not None and inner == inner:
            parts.append(
                str(int(inner)) if isinstance(inner, float) and inner == inner // 1 else str(inner)
            )
    return list(dict.fromkeys(part.strip() for part in parts if part.strip() not in ("", "<unk>")))


def plain_list(text):
    """The list of texts that a text writes in Python; None if it writes none."""
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    is_list = isinstance(value, list) and all(
        isinstance(inner, (str, list, dict, type(None))) for inner in value
    )
    return value if is_list else None


csv.field_size_limit(2**31 - 1)  # a column may hold whole pages


def plain_rows(path):
    """The rows of a question file that are whole, numbered among all."""
    data = path.read_bytes()
    if path.suffix == ".parquet":
        return list(enumerate(pq.read_table(pa.BufferReader(data)).to_pylist()))
    text = data.decode("utf-8-sig", "surrogateescape")
    if re.search("[\ud800-\udfff]", text) and re.sub("[\ud800-\udfff]", "", text).isascii():
        text = plain_text_of(data)
    if path.suffix == ".csv":
        header, *rows = csv.reader(io.StringIO(text, newline=""))
        header = [name.strip() for name in header]
        numbered = enumerate(row for row in rows if any(row))
        return [  # empty fields after the last column do not count
            (n, dict(zip(header, row, strict=False)))
            for n, row in numbered
            if len(row) >= len(header) and not any(row[len(header) :])
        ]
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if text.lstrip(" \t\r\n").startswith("["):
        with contextlib.suppress(ValueError):  # several lists on lines are not a list of rows
            lines = [json.dumps(row) for row in json.loads(text)]
    rows = []
    for n, line in enumerate(lines):
        with contextlib.suppress(ValueError, RecursionError):
            rows.append((n, json.loads(line)))
    return [(n, row) for n, row in rows if isinstance(row, dict)]


def plain_column(rows, *names):
    """The first of these columns that a row has, or one of another case."""
    columns = {name: None for _, row in rows for name in row}
    for name in names:
        alike = [
            other
            for other in columns
            if other.lower() == name and not re.search("[a-z0-9][A-Z]", other)
        ]
        if name in columns or alike:
            return name if name in columns else alike[0]
    return names[0]


def read_question_file(path):
    table = question_sets.load_questions(path=path, separator=";", split=None, n_shots=0).table
    return sorted(table[["question_id", "question", "references", "split"]].to_numpy().tolist())


def plain_questions(path):
    rows, questions = plain_rows(path), []
    names = {name: plain_column(rows, name) for name in ("question", "split")}
    names["id"] = plain_column(rows, "question_id", "id", "qid")
    names["references"] = plain_column(rows, "references", "reference")
    has = {name for _, row in rows for name in row}
    for n, row in rows:
        identity = row.get(names["id"]) if names["id"] in has else f"{path.stem}-{n}"
        identity = (
            int(identity) if isinstance(identity, float) and identity == identity // 1 else identity
        )
        question, split = (
            row.get(names["question"]),
            row.get(names["split"]) if names["split"] in has else "test",
        )
        is_usable = (
            isinstance(identity, (str, int)) and not isinstance(identity, bool) and str(identity)
        )
        is_number = isinstance(split, (int, float)) and not isinstance(split, bool)
        if is_number and split % 1 == 0:
            split = str(int(split))
        is_usable = is_usable and all(
            isinstance(text, str) and text.strip() for text in (question, split)
        )
        references = plain_references(row.get(names["references"]))
        is_new = str(identity) not in [known for known, *_ in questions]
        is_damaged = re.search("[\ud800-\udfff]", repr_of_texts(row))
        if is_usable and references and is_new and not is_damaged:
            questions.append([str(identity), question, references, split])
    return sorted(questions)


def repr_of_texts(value):
    """All texts within a value."""
    if isinstance(value, dict):
        return "".join(map(repr_of_texts, [*value, *value.values()]))
    return (
        "".join(map(repr_of_texts, value))
        if isinstance(value, list)
        else value
        if isinstance(value, str)
        else ""
    )


def read_label_file(path):
    return sorted(map(tuple, read_labels(path).to_numpy().tolist()))


def plain_labels(path):
    truth = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
    rows = [
        (str(row["question_id"]), row["text"], truth[str(row["correct"]).strip().lower()])
        for row in plainly(path)
    ]
    return sorted(set(rows))


def read_file(path):
    """Return the question, text and log-probability of every answer, and the questions."""
    run = importing.import_answers(path, strict=True)
    answers, questions = (
        table.astype(object).where(table.notna(), None) for table in (run.answers, run.questions)
    )
    totals = (run.answers["log_prob"] + run.answers["end_log_prob"].fillna(0.0)).round(9)
    rows = sorted(zip(answers["question_id"], answers["text"], totals, strict=True), key=repr)
    return rows, questions[["question_id", "question", "references", "split"]].to_numpy().tolist()


def _question(entry, identity, question):
    references, split = entry.get("references"), entry.get("split")
    return [
        str(identity),
        question[0] if isinstance(question, list) and len(question) == 1 else question,
        [references] if isinstance(references, str) else references,
        str(split) if type(split) is int else split,
    ]


def plain_records(path):
    answers, rows = [], []
    for n, entry in enumerate(plainly(path), start=1):
        identity = entry.get("question_id", f"{path.stem}-{n}")
        for answer in entry["answers"]:
            end, whole = answer.get("end_log_prob"), answer.get("log_prob")
            if whole is None:
                whole = sum(answer.get("token_log_probs", [math.nan]))
            total = round(float(min(whole, 0.0) + min(end or 0.0, 0.0)), 9)
            answers.append((str(identity), answer.get("text"), total))
        rows.append(_question(entry, identity, entry.get("question")))
    return sorted(answers, key=repr), rows


def plain_responses(path):
    """Return the answers of OpenAI's responses or of vLLM, joined by id or else by text."""
    records, texts, copies = {}, {}, set()
    for n, entry in enumerate(plainly(path), start=1):
        response = entry.get("response")
        body = response.get("body", response) if isinstance(response, dict) else entry
        question = next(
            (entry[key] for key in ("question", "prompt") if entry.get(key) is not None), None
        )
        question = question if isinstance(question, str) else None
        keys = ("question_id", "custom_id", "id")[: 2 if body is entry else 3]
        identity = next((entry[key] for key in keys if entry.get(key) is not None), None)
        choices = (
            [] if response == [] else body["choices"] if "choices" in body else body["outputs"]
        )
        if identity is not None and not choices:
            continue
        served = next(
            (body[key] for key in ("request_id", "id") if body.get(key) is not None), None
        )
        content = json.dumps([served, identity, question, choices])
        if served is not None and content in copies:  # a copy counts once
            continue
        copies.add(content)
        if identity is None:
            is_new = isinstance(served, (str, int)) and str(served) not in records
            identity = texts.setdefault(question or n, served if is_new else f"{path.stem}-{n}")
        answers, _ = records.setdefault(str(identity), ([], _question(entry, identity, question)))
        for choice in choices:
            text = plain_text(choice)
            if isinstance(text, str):
                answers.append(
                    (str(identity), text, *plain_tokens(choice, is_vllm="outputs" in body))
                )
    kept = [answer for answers, _ in records.values() for answer in answers if len(answer) == 3]
    return sorted(kept, key=repr), [row for _, row in records.values()]


def plain_text(choice):
    """The text of a choice; parts that are all texts are one."""
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    return (
        "".join(text) if isinstance(text, list) and text and {*map(type, text)} == {str} else text
    )


def plain_tokens(choice, *, is_vllm):
    """Return the sum of a choice's log-probabilities; only the ending may lack one.

    A stop string, which vLLM lists among the tokens that it generated, is an ending as well.
    """
    tokens = choice.get("logprobs")
    tokens = tokens.get("content") if isinstance(tokens, dict) else tokens
    if not isinstance(tokens, list):
        return [round(choice["cumulative_logprob"], 9)]
    if is_vllm and choice.get("token_ids") is not None:
        tokens = [
            step.get(str(token)) if isinstance(step, dict) else None
            for step, token in zip(tokens, choice["token_ids"], strict=bool(tokens))
        ]
    values, spelled, text = [], "", plain_text(choice)
    names = [plain_name(token) for token in tokens]
    for token, name in zip(tokens, names, strict=True):
        is_number = isinstance(token, (int, float)) and not is_vllm
        value = token.get("logprob") if isinstance(token, dict) else token if is_number else None
        is_behind = None not in names[:-1] and spelled.strip() == text.strip()
        if is_behind and (
            value is None or value <= -9999 or not (is_vllm or name in ("</s>", "", None))
        ):
            break
        values.append(value)
        spelled += "" if name in (None, "</s>") else name
        if is_behind and name == "</s>":  # what follows the end is padding
            break
    return [round(sum(values), 9)] if values and min(values) > -9999 else []


def plain_name(token):
    """The text of a token: that of its bytes where they are given."""
    token = token if isinstance(token, dict) else {}
    given = token.get("bytes")
    if (
        isinstance(given, list)
        and given
        and all(type(byte) is int and 0 <= byte < 256 for byte in given)
    ):
        return bytes(given).decode(errors="replace")
    name = token.get("decoded_token", token.get("token"))
    return name if isinstance(name, str) else None


def plain_log(path):
    """The answers of a log of inspect_ai or of lm-evaluation-harness, and the questions."""
    answers, rows = [], {}
    for n, entry in enumerate(plainly(path), start=1):
        if "epoch" in entry:
            choices = (
                entry["output"].get("choices") if isinstance(entry.get("output"), dict) else None
            )
            choices = [] if choices is None else choices if isinstance(choices, list) else [choices]
            if entry.get("error") or (entry.get("id") is not None and not choices):
                continue
            identity, question, target = (
                f"{path.stem}-{n}",
                entry.get("input"),
                entry.get("target"),
            )
            identity = identity if entry.get("id") is None else entry["id"]
            for choice in choices:
                text = plain_text(choice)
                if isinstance(text, str):
                    answers.append((str(identity), text, *plain_tokens(choice, is_vllm=False)))
        elif any(entry["resps"]):
            identity, question, target = plain_line(entry, answers, f"{path.stem}-{n}")
        else:
            continue
        about = {"references": plain_references(target, None) or None, "split": entry.get("split")}
        rows.setdefault(str(identity), _question(about, identity, question))
    return sorted((answer for answer in answers if len(answer) == 3), key=repr), [*rows.values()]


def plain_line(entry, answers, default_id):
    """Return the question and the right answers of a line of a log, and add its answers."""
    identity = default_id if entry.get("doc_id") is None else entry["doc_id"]
    given, target, right = entry["arguments"], entry.get("target"), []
    given = [*given.values()] if isinstance(given, dict) else given
    doc = entry.get("doc") if isinstance(entry.get("doc"), dict) else {}
    question = given[0]["arg_0"] if doc.get("question") is None else doc["question"]
    resps = entry["resps"]
    for n, replies in enumerate([resps] if isinstance(resps, str) else resps):
        for reply in [replies] if isinstance(replies, str) else replies:
            if isinstance(reply, list):
                text = (given[n]["arg_1"] if isinstance(given[n], dict) else given[n][1]).strip()
                answers.append((str(identity), text, round(min(float(reply[0]), 0.0), 9)))
                right += [text] * (str(target) in (str(n), text))
            else:
                answers.append((str(identity), reply, math.nan))
    return identity, question if isinstance(question, str) else None, right or target


def read_run(path):
    """A run as notebooks read it, and as generation goes on from it."""
    with storage.RunFolder(path, INFO) as folder:
        folder.missing(questions_of(IDS), per_part=4)
    run = runs.read_run(path)
    return run.answers.to_json(), run.questions.to_json(), repr(run.info)


def read_model(path):
    model = models.load_model(path, device="cpu", dtype="float32")
    assert model.endings.stop.any()
    return fingerprint(path)


def read_parameters(path):
    given = json.loads(path.read_text())
    result = experiment.Experiment(**given)
    return {name: getattr(result, name) for name in given}


# --- Damage ---

BYTES = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b"NaN",
    b"-1e999",
    b"9" * 400,
    b'"\\ud800"',
    b"\n",
    b"\r",
    b"\0",
    b'"',
    b",",
    b";",
]
BYTES += [b"\xff", b"\xef\xbb\xbf", b"PAR1", b"[" * 5000, b"x" * 200_000]
VALUES = [
    None,
    math.nan,
    math.inf,
    -math.inf,
    10**400,
    -(10**400),
    2**63,
    -1,
    0,
    1,
    0.5,
    1e-320,
    True,
    False,
    "",
    " ",
]
VALUES += [
    "\ud800",
    "\0",
    "a\nb\u2028c",
    "x" * 200_000,
    "NA",
    "007",
    [],
    {},
    [[[[[[]]]]]],
    [None],
    {"a": {"b": None}},
]
VALUES += [
    [["x"] * 50] * 50,
    "x;y",
    -9999.0,
    ["x"] * 1000,
    "../..",
    "cuda:99",
    "2020",
    [0.5],
    "test",
]


def some_bytes(data, rng):
    """Bytes flipped, cut, doubled, inserted, overwritten, moved, or gone."""
    start = rng.randrange(len(data) + 1)
    stop = min(len(data), start + rng.choice([1, 2, 8, 64, 512]))
    piece = data[start:stop]
    other = rng.randrange(len(data) + 1)
    flipped = bytes([piece[0] ^ (1 << rng.randrange(8))]) + piece[1:] if piece else b""
    strange = rng.choice(BYTES)
    new = [
        flipped,
        flipped,
        b"",
        piece * 2,
        strange + piece,
        strange,
        data[other : other + len(piece)],
    ]
    damaged = [data[:start] + part + data[stop:] for part in new]
    return rng.choice([*damaged, data[:start], data[start:], b""])


def places_of(value, path=()):
    """The path to everything inside a JSON value."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path] * bool(path) + [
        place for key, part in inner for place in places_of(part, (*path, key))
    ]


def some_values(data, rng):
    """A value of JSON replaced, dropped, doubled or renamed."""
    try:
        lines = [json.loads(data)]
    except ValueError:
        lines = [json.loads(line) for line in data.decode().splitlines()]
    for _ in range(rng.choice([1, 1, 1, 2])):
        *path, last = rng.choice(places_of(lines))
        inner = reduce(getitem, path, lines)
        kind = rng.choice(["replace", "replace", "replace", "drop", "double", "swap"])
        if kind == "replace":
            inner[last] = copy.deepcopy(rng.choice(VALUES))
        elif kind == "drop":
            del inner[last]
        elif isinstance(inner, list):
            inner.insert(last, inner[last] if kind == "double" else rng.choice(inner))
        else:
            inner[rng.choice([f"{last}_", "x" * 5000, *inner])] = inner[last]
        if not lines:
            break
    return b"\n".join(json.dumps(line).encode() for line in lines)


def some_parameters(data, rng):
    """Parameters of other values, or of other names."""
    given = json.loads(data)
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice([*given, *given, *given, "", "limits", "x" * 5000])
        given[name] = rng.choice(VALUES)
    return json.dumps(given).encode()


def some_fields(data, rng):
    """Double, drop or rename a column of CSV, change a field, or drop or double a row."""
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    n, place = rng.randrange(len(rows[0])), rng.randrange(len(rows))
    kind = rng.choice(["column", "rename", "value", "row"])
    if kind == "column":
        times = rng.choice([0, 2])
        rows = [row[:n] + [row[n]] * times + row[n + 1 :] for row in rows]
    elif kind == "rename":
        rows[0][n] = rng.choice(["", "x" * 5000, rows[0][0], "\n"])
    elif kind == "value":
        rows[rng.randrange(1, len(rows))][n] = repr(rng.choice(VALUES[6:]))
    else:
        rows[place : place + 1] = [rows[place]] * rng.choice([0, 2])
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def some_columns(data, rng):
    """Double, drop, rename or convert a column of Parquet, or drop or double a row."""
    table = pq.read_table(pa.BufferReader(data)).replace_schema_metadata(None)
    n, size = rng.randrange(table.num_columns), len(table)
    values = [b"\xff", math.nan, None, {"a": 1}, [None, "x"], "x" * 200_000, True]
    columns = [pa.array([value] * size) for value in values]
    columns += [
        pa.array([2**60 + 1] + [None] * (size - 1)),
        pa.array([2**62] * size, pa.timestamp("us")),
    ]
    columns += [
        pa.array(["a"] * size).dictionary_encode(),
        pa.array(["1990"] * size, pa.large_string()),
    ]
    columns += [pa.array([1.0] * size, pa.float32())]
    kind = rng.choice(["double", "drop", "rename", "type", "type", "type", "row", "twice"])
    names = [*table.column_names]
    if kind == "double":
        table = table.append_column(names[n], table.column(rng.randrange(table.num_columns)))
    elif kind == "drop":
        table = table.remove_column(n)
    elif kind == "rename":
        table = table.rename_columns(
            [*names[:n], rng.choice(["", "x" * 5000, names[0]]), *names[n + 1 :]]
        )
    elif kind == "type":
        table = table.set_column(n, names[n], rng.choice(columns))
    else:
        table = pa.concat_tables(
            [table.slice(1), table.slice(0, rng.randrange(3) if kind == "twice" else 0)]
        )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


# By suffix, how an input is damaged; what is not here, in its bytes.
WAYS = {suffix: [some_bytes, some_values] for suffix in (".json", ".jsonl")}
WAYS |= {
    ".csv": [some_bytes, some_fields],
    ".parquet": [some_bytes, some_columns],
}
WAYS[".parameters"] = [some_parameters]


def damage(path, rng):
    """Damage an input; how."""
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    file = rng.choice(files)
    if len(files) > 1 and rng.random() < 0.1:
        other = rng.choice(files)
        shutil.copy(other, file) if other != file else file.write_bytes(b"")
        return f"{file.name} from {other.name}"
    way = rng.choice(WAYS.get(file.suffix, [some_bytes]))
    file.write_bytes(way(file.read_bytes(), rng))
    return f"{way.__name__} of {file.name}"


# --- The readers ---


class Reader(NamedTuple):
    """How an input is made and read, and what it must say (None: what was written)."""

    make: object
    read: object
    plain: object = None


def file_of(name, rows):
    def make(folder):
        (folder / name).write_bytes(WRITE[Path(name).suffix](rows))
        return folder / name

    return make


def make_run(folder):
    written(folder / "run")
    (folder / "run" / ".lock").unlink()
    return folder / "run"


def make_nli(folder):
    pairs = {(a, b): [0.5, 0.25, 0.25] for a in ("Rome", "Paris") for b in ("Oslo", "Bern", "Кий")}
    similarity._store(pairs, folder, "nli-0")
    return next(folder.glob("nli-0-*"))


def copy_of(path):
    def make(folder):
        copy = shutil.copytree if path.is_dir() else shutil.copy
        return Path(copy(path, folder / path.name))

    return make


def make_parameters(folder):
    given = {
        "model": ["facts-2m", "facts-1m"],
        "dataset": "world-facts",
        "split": "test",
        "strategy": "greedy",
    }
    given |= {
        "alpha": 0.4,
        "search_alpha": 0.02,
        "n_answers": 10,
        "limit": None,
        "n_validation": 100,
        "seed": 0,
    }
    given |= {
        "device": "cpu",
        "similarity": "lexical",
        "correctness": "rouge_l",
        "chat": False,
        "figure_columns": 2,
    }
    (folder / "set.parameters").write_text(json.dumps(given))
    return folder / "set.parameters"


READERS = {
    **{
        f"questions{s}": Reader(file_of(f"set{s}", QUESTIONS), read_question_file, plain_questions)
        for s in TABLES
    },
    **{
        f"labels{s}": Reader(file_of(f"labels{s}", LABELS), read_label_file, plain_labels)
        for s in TABLES
    },
    "records": Reader(file_of("r.jsonl", RECORDS), read_file, plain_records),
    "openai": Reader(file_of("r.jsonl", OPENAI), read_file, plain_responses),
    "vllm": Reader(file_of("r.jsonl", VLLM), read_file, plain_responses),
    "inspect_ai": Reader(file_of("r.json", INSPECT), read_file, plain_log),
    "lm-eval": Reader(copy_of(LOGS / "lm_eval_texts.jsonl"), read_file, plain_log),
    "choices": Reader(copy_of(LOGS / "lm_eval_choices.jsonl"), read_file, plain_log),
    "nli cache": Reader(make_nli, similarity._read),
    "run": Reader(make_run, read_run),
    "parameters": Reader(
        make_parameters, read_parameters, lambda path: json.loads(path.read_text())
    ),
    "model": Reader(copy_of(ROOT / "data" / "models" / "facts-1m"), read_model, fingerprint),
}


# --- What must hold ---


def same(reading, expected):
    """Whether two readings agree, NaN being NaN."""
    return repr(reading) == repr(expected) or reading == expected


def tried(reader, original, rng, folder, again):
    """Damage an input and read it; return whether it was read or refused with a sentence."""
    path = reader.make(folder)
    again = f"{again} ({damage(path, rng)})"
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)  # too long: as Ctrl-C
    signal.alarm(10 * SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reading, is_read = reader.read(path), True
    except KeyboardInterrupt:
        raise AssertionError(f"hang: {again}") from None
    except Exception as error:
        sentence, is_read = str(error), False
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if not frame.f_globals.get("__name__", "").startswith("pro_lib."):
            raise AssertionError(f"raw {type(error).__name__}: {again}") from error
        assert len(sentence) <= 500, f"a sentence of {len(sentence)} characters: {again}"
        assert sentence.isprintable(), f"a sentence of several lines: {again}"
        named = reader.make is make_parameters or str(folder)[:100] in sentence
        assert named, f"a sentence that names no file, {sentence}: {again}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert time.process_time() - started < SECONDS, f"hang: {again}"
    assert grown < MEGABYTES, f"{grown:.0f} MiB: {again}"
    if is_read:
        try:
            expected = reader.plain(path) if reader.plain else original
        except Exception as error:
            raise AssertionError(f"read what nobody else can, {error!r}: {again}") from error
        assert same(reading, expected), (
            f"silent change: {reading!r:.300} is not {expected!r:.300}: {again}"
        )


@pytest.mark.parametrize("name", READERS)
def test_damaged_inputs_are_read_as_they_are_or_refused_in_a_sentence(name, size, tmp_path):
    reader, whole = READERS[name], READERS[name].make(tmp_path)
    original = reader.read(whole)
    assert same(original, reader.plain(whole) if reader.plain else original)
    for seed in range(max(20, int(HOW_MANY[size] * (MODEL_SHARE if name == "model" else 1)))):
        (folder := tmp_path / str(seed)).mkdir()
        tried(
            reader,
            original,
            random.Random(f"{SEED} {name} {seed}"),
            folder,
            f"WALL_SEED={SEED}, {name} {seed}",
        )
        shutil.rmtree(folder)
