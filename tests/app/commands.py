"""Run commands in this process, and make the records that they read."""

import json

import numpy as np
from click.testing import CliRunner

from pro_lib.app import cli


def typed(*words, code=0, stdin=None):
    """Run a command in this process; return its output and its output to stderr."""
    done = CliRunner().invoke(cli.pro, [str(word) for word in words], input=stdin)
    assert done.exit_code == code, done.output + repr(done.exception)
    return done.stdout, done.stderr


def refused(*words):
    """Run a command that fails with exit status 1; return the line that it prints."""
    _, err = typed(*words, code=1)
    assert err.count("\n") == 1
    return err.removeprefix("Error: ").strip()


def json_of(*words):
    """Return what `pro score --json` prints."""
    return json.loads(typed("score", *words, "--json")[0])


def answer(text, probability, **fields):
    """Return an answer of a record."""
    return {"text": text, "log_prob": float(np.log(probability)), **fields}


def record(number, *answers, **fields):
    """Return the record of a question with these answers."""
    question = {"question_id": f"q{number}", "question": f"{number}?"}
    return question | {"answers": list(answers)} | fields


def judged(n, *probabilities, correct=None):
    """Return a record of question n, whose answers have these probabilities.

    `correct` says whether the first answer is right.
    """
    texts = [f"{n}{letter}" for letter in "abc"]
    answers = [answer(*pair) for pair in zip(texts, probabilities, strict=False)]
    fields = {} if correct is None else {"references": [texts[0] if correct else "none"]}
    return record(n, *answers, **fields)


def write_lines(path, rows):
    """Write a JSON object a line; return the name of the file."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)
