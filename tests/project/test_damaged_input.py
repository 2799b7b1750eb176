"""Test every reader on damaged input: it reads the rows that are intact, or raises an error.

`--size` says how many inputs a reader is tried on, and `WALL_SEED` chooses others; a failure names
its reader and seed.
"""

import contextlib
import copy
import csv
import io
import json
import math
import os
import random
import resource
import signal
import time
import traceback
import warnings
from functools import reduce
from operator import getitem

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT

from pro_lib import importing
from pro_lib.importing.label_tables import read_labels
from pro_lib.questions import question_sets

SECONDS, MEGABYTES = 10, 1024
SEED = os.environ.get("WALL_SEED", "0")
# Inputs a reader: more than 10,000 for all of them together in the trials.
HOW_MANY = {"quick": 20, "all": 100, "trials": 800}

QUESTIONS = [
    ("q1", "Capital of France?", ["Paris", "City of Light"], "test"),
    ("q2", "Symbol of sodium?", ["NA"], "test"),
    ("3", "Wer schrieb «Faust»?", ["Goethe"], "validation"),
]
QUESTIONS = pd.DataFrame(QUESTIONS, columns=["question_id", "question", "references", "split"])
LABELS = [("q1", "NA", True), ("q2", "007", False), ("q3", "1990", True)]
LABELS = pd.DataFrame(LABELS, columns=["question_id", "text", "correct"])
ANSWERS = [
    {"text": "Paris", "token_ids": [5, 6], "token_log_probs": [-0.25, -0.5], "end_log_prob": -0.25},
    {"text": "Lyon", "log_prob": -3, "end_log_prob": -1, "correct": False, "finished": True},
]
RECORDS = [
    {"question_id": "q1", "question": "Capital?", "references": ["Paris"], "answers": ANSWERS},
    {"question_id": 2, "answers": [{"log_prob": -1.5, "mean_log_prob": -0.5, "rouge_l": 1.0}]},
]


# --- What is written ---


def as_json_lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_csv(rows):
    table = pd.DataFrame(rows)
    joined = table.map(lambda value: ";".join(value) if isinstance(value, list) else value)
    return joined.to_csv(index=False).encode()


def as_parquet(rows):
    return pd.DataFrame(rows).to_parquet(index=False)


WRITE = {".jsonl": as_json_lines, ".csv": as_csv, ".parquet": as_parquet}


# --- What is read ---


def read_question_file(path):
    table = question_sets.load_questions(path=path, separator=";", split=None, n_shots=0).table
    return table[["question_id", "question", "references", "split"]].to_numpy().tolist()


def read_label_file(path):
    return read_labels(path).to_numpy().tolist()


def read_answers(path):
    """Return the id, question, references, text and log-probability of every answer."""
    run = importing.import_answers(path, strict=True)
    table = run.answers.merge(run.questions, on="question_id")
    totals = (table["log_prob"] + table["end_log_prob"].fillna(0.0)).round(9)
    columns = table[["question_id", "question", "references", "text"]].assign(total=totals)
    return columns.astype(object).where(columns.notna(), None).to_numpy().tolist()


csv.field_size_limit(2**31 - 1)  # a column may hold whole pages
IDS_OF_ROWS = ("question_id", "id", "doc_id")


def rows_of(path):
    """Return the rows of a file that the standard library or Arrow can read, by their ids."""
    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
    else:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        is_csv = path.suffix == ".csv"
        rows = csv.DictReader(io.StringIO(text, newline="")) if is_csv else parsed_rows(text)
    by_id = {}
    for row in rows:
        row_id = next((str(row[name]) for name in IDS_OF_ROWS if name in row), None)
        by_id.setdefault(row_id, []).append(row)
    return by_id


def parsed_rows(text):
    """Return the objects of those lines that can be parsed."""
    values = []
    for line in [text, *text.splitlines()]:
        with contextlib.suppress(ValueError, RecursionError):
            values.append(json.loads(line))
    return [value for value in values if isinstance(value, dict)]


def rows_with(ids, reading):
    """Return what was read for these ids, in one order."""
    return sorted((row for row in reading if row[0] in ids), key=repr)


# --- Damage ---

BYTES = [b"", b"null", b"[]", b"{}", b"NaN", b"-1e999", b"9" * 400, b'"\\ud800"', b"\n", b"\r"]
BYTES += [b"\0", b'"', b",", b";", b"\xff", b"\xef\xbb\xbf", b"PAR1", b"[" * 5000, b"x" * 200_000]
VALUES = [None, math.nan, math.inf, -math.inf, 10**400, 2**63, -1, 0, 0.5, 1e-320, True, False]
VALUES += ["", " ", "\ud800", "\0", "a\nb\u2028c", "x" * 200_000, "NA", "007", "x;y", "2020"]
VALUES += [[], {}, [[[[[[]]]]]], [None], {"a": {"b": None}}, [["x"] * 50] * 50, -9999.0, [0.5]]


def some_bytes(data, rng):
    """Flip, cut, double, insert, overwrite or move bytes."""
    start = rng.randrange(len(data))
    stop = min(len(data), start + rng.choice([1, 2, 8, 64, 512]))
    piece = data[start:stop]
    other = rng.randrange(len(data) + 1)
    flipped = bytes([piece[0] ^ (1 << rng.randrange(8))]) + piece[1:]
    strange = rng.choice(BYTES)
    new = [flipped, flipped, b"", piece * 2, strange + piece, strange, data[other:][: len(piece)]]
    damaged = [data[:start] + part + data[stop:] for part in new]
    return rng.choice([*damaged, data[:start], data[start:], b""])


def places_of(value, path=()):
    """Return the path to everything inside a JSON value."""
    inner = enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, dict):
        inner = value.items()
    places = [path] if path else []
    for key, part in inner:
        places += places_of(part, (*path, key))
    return places


def some_values(data, rng):
    """Replace, drop, double or rename a value of JSON."""
    lines = [json.loads(line) for line in data.decode().splitlines()]
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
    return b"\n".join(json.dumps(line).encode() for line in lines)


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
    columns += [pa.array([2**60 + 1] + [None] * (size - 1)), pa.array([1.0] * size, pa.float32())]
    columns += [pa.array([2**62] * size, pa.timestamp("us"))]
    columns += [pa.array(["a"] * size).dictionary_encode()]
    columns += [pa.array(["1990"] * size, pa.large_string())]
    kind = rng.choice(["double", "drop", "rename", "type", "type", "type", "row", "twice"])
    names = [*table.column_names]
    if kind == "double":
        table = table.append_column(names[n], table.column(rng.randrange(table.num_columns)))
    elif kind == "drop":
        table = table.remove_column(n)
    elif kind == "rename":
        names[n] = rng.choice(["", "x" * 5000, names[0]])
        table = table.rename_columns(names)
    elif kind == "type":
        table = table.set_column(n, names[n], rng.choice(columns))
    else:
        n_doubled = rng.randrange(3) if kind == "twice" else 0
        table = pa.concat_tables([table.slice(1), table.slice(0, n_doubled)])
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


WAYS = {".jsonl": some_values, ".csv": some_fields, ".parquet": some_columns}


# --- The readers ---

# By name, the function that reads a file, the suffix and the content.
READERS = {
    f"{name}{suffix}": (read, suffix, write(table.to_dict("records")))
    for name, table, read in (
        ("questions", QUESTIONS, read_question_file),
        ("labels", LABELS, read_label_file),
    )
    for suffix, write in WRITE.items()
}
READERS["records"] = (read_answers, ".jsonl", as_json_lines(RECORDS))
ANSWER_FILES = ("dataset_rows", "harness_index", "ids", "split_characters")
READERS |= {
    path.stem: (read_answers, ".jsonl", path.read_bytes())
    for path in (ROOT / "tests" / "data" / "answers").iterdir()
    if path.stem in ANSWER_FILES
}


# --- What must hold ---


def read_damaged(read, path, again):
    """Read a damaged input; return what is read, or None if it is refused with a sentence."""
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)  # too long: as Ctrl-C
    signal.alarm(10 * SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reading = read(path)
    except KeyboardInterrupt:
        raise AssertionError(f"hang: {again}") from None
    except Exception as error:
        sentence = str(error)
        reading = None
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if not frame.f_globals.get("__name__", "").startswith("pro_lib."):
            raise AssertionError(f"raw {type(error).__name__}: {again}") from error
        assert len(sentence) <= 500, f"a sentence of {len(sentence)} characters: {again}"
        assert sentence.isprintable(), f"a sentence of several lines: {again}"
        is_named = str(path.parent)[:100] in sentence
        assert is_named, f"a sentence that names no file, {sentence}: {again}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert time.process_time() - started < SECONDS, f"hang: {again}"
    assert grown < MEGABYTES, f"{grown:.0f} MiB: {again}"
    return reading


@pytest.mark.parametrize("name", READERS)
def test_damaged_inputs_are_read_as_they_are_or_refused_in_a_sentence(name, size, tmp_path):
    read, suffix, content = READERS[name]
    path = tmp_path / f"input{suffix}"
    path.write_bytes(content)
    original = read(path)
    rows = rows_of(path)
    assert rows_with(rows, original) == sorted(original, key=repr)
    for seed in range(HOW_MANY[size]):
        rng = random.Random(f"{SEED} {name} {seed}")
        damage = rng.choice([some_bytes, WAYS[suffix]])
        path.write_bytes(damage(content, rng))
        again = f"WALL_SEED={SEED}, {name} {seed} ({damage.__name__})"
        reading = read_damaged(read, path, again)
        if reading is None:
            continue
        damaged_rows = rows_of(path)
        intact = {one for one, group in rows.items() if damaged_rows.get(one) == group}
        found, expected = rows_with(intact, reading), rows_with(intact, original)
        assert repr(found) == repr(expected), (
            f"silent change: {found!r:.300} is not {expected!r:.300}: {again}"
        )
