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
from pro_lib.common.catalog import ROOT
from pro_lib.generation import models
from pro_lib.importing.records import read_labels
from pro_lib.questions import question_sets
from pro_lib.runs import storage
from pro_lib.scoring import similarity

SECONDS, MEGABYTES = 10, 1024
SEED = os.environ.get("WALL_SEED", "0")
LOGS = Path(__file__).parents[1] / "data" / "answers"
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

# --- What is written ---


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


def read_run(path):
    """A run as notebooks read it, and as generation goes on from it."""
    with storage.RunFolder(path, INFO) as folder:
        folder.missing(questions_of(IDS), per_part=4)
    run = runs.read_run(path)
    return run.answers.to_json(), run.questions.to_json(), repr(run.info)


def read_model(path):
    assert models.load_model(path, device="cpu", dtype="float32").endings.stop.any()


def read_parameters(path):
    """Return the parameters that have another value than in the file."""
    given = json.loads(path.read_text())
    result = experiment.Experiment(**given)
    return [name for name in given if getattr(result, name) != given[name]]


csv.field_size_limit(2**31 - 1)  # a column may hold whole pages
IDS_OF_ROWS = ("question_id", "custom_id", "id", "doc_id", "request_id")


def rows_of(path):
    """Return the rows of a file that the standard library or Arrow can read, by their ids."""
    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
    elif path.suffix == ".csv":
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        rows = csv.DictReader(io.StringIO(text, newline=""))
    else:
        rows = parsed_rows(path.read_text(encoding="utf-8-sig", errors="replace"))
    by_id = {}
    for row in rows:
        row_id = next((str(row[name]) for name in IDS_OF_ROWS if name in row), None)
        by_id.setdefault(row_id, []).append(row)
    return by_id


def parsed_rows(text):
    """Return the objects of a log, or those of the lines that can be parsed."""
    values = []
    for line in [text, *text.splitlines()]:
        with contextlib.suppress(ValueError, RecursionError):
            values.append(json.loads(line))
    if values and isinstance(values[0], dict) and isinstance(values[0].get("samples"), list):
        values = values[0]["samples"]
    return [value for value in values if isinstance(value, dict)]


def rows_with(ids, reading):
    """Return what was read for these ids, in one order."""
    return sorted((row for row in reading if row[0] in ids), key=repr)


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
    b"\xff",
    b"\xef\xbb\xbf",
    b"PAR1",
    b"[" * 5000,
    b"x" * 200_000,
]
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
    """How an input is made and read, and whether its intact rows can be read alone."""

    make: object
    read: object
    has_rows: bool = False


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
        f"questions{suffix}": Reader(file_of(f"set{suffix}", QUESTIONS), read_question_file, True)
        for suffix in TABLES
    },
    **{
        f"labels{suffix}": Reader(file_of(f"labels{suffix}", LABELS), read_label_file, True)
        for suffix in TABLES
    },
    "records": Reader(file_of("r.jsonl", RECORDS), read_answers, True),
    "openai": Reader(file_of("r.jsonl", OPENAI), read_answers, True),
    "vllm": Reader(file_of("r.jsonl", VLLM), read_answers, True),
    "inspect_ai": Reader(file_of("r.json", INSPECT), read_answers, True),
    "lm-eval": Reader(copy_of(LOGS / "lm_eval_texts.jsonl"), read_answers, True),
    "choices": Reader(copy_of(LOGS / "lm_eval_choices.jsonl"), read_answers, True),
    "nli cache": Reader(make_nli, similarity._read),
    "run": Reader(make_run, read_run),
    "parameters": Reader(make_parameters, read_parameters),
    "model": Reader(copy_of(ROOT / "data" / "models" / "facts-1m"), read_model),
}


# --- What must hold ---


def read_damaged(reader, path, again):
    """Read a damaged input; return what is read, or None if it is refused with a sentence."""
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)  # too long: as Ctrl-C
    signal.alarm(10 * SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reading = reader.read(path)
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
        named = reader.make is make_parameters or str(path.parent)[:100] in sentence
        assert named, f"a sentence that names no file, {sentence}: {again}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert time.process_time() - started < SECONDS, f"hang: {again}"
    assert grown < MEGABYTES, f"{grown:.0f} MiB: {again}"
    return reading


@pytest.mark.parametrize("name", READERS)
def test_damaged_inputs_are_read_as_they_are_or_refused_in_a_sentence(name, size, tmp_path):
    reader = READERS[name]
    whole = reader.make(tmp_path)
    original = reader.read(whole)
    if reader.has_rows:
        assert rows_with(rows_of(whole), original) == sorted(original, key=repr)
    for seed in range(max(20, int(HOW_MANY[size] * (MODEL_SHARE if name == "model" else 1)))):
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = reader.make(folder)
        rng = random.Random(f"{SEED} {name} {seed}")
        again = f"WALL_SEED={SEED}, {name} {seed} ({damage(path, rng)})"
        reading = read_damaged(reader, path, again)
        expected = original
        if reading is not None and reader.has_rows:
            rows = rows_of(path)
            intact = {one for one, group in rows_of(whole).items() if rows.get(one) == group}
            reading, expected = rows_with(intact, reading), rows_with(intact, original)
        assert reading is None or repr(reading) == repr(expected), (
            f"silent change: {reading!r:.300} is not {expected!r:.300}: {again}"
        )
        shutil.rmtree(folder)
