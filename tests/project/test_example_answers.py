"""The answers of `pro score --example`, and the script that makes them from a run."""

import json
import re
import runpy

import numpy as np
import pandas as pd
import pytest
from commands import typed
from conftest import ROOT
from doc_pages import find_page

from pro_lib import importing
from pro_lib.app.scored_answers import score_answers
from pro_lib.common import catalog
from pro_lib.runs.run import Run
from pro_lib.runs.storage import Cost, RunInfo

SCRIPT = ROOT / "data" / "examples" / "make.py"
# Right answers of four validation questions, by relation
N_RIGHT = {"never": 0, "sometimes": 1, "mostly": 3, "always": 4}


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def run():
    """Return four validation questions and a test question of each relation."""
    rows = []
    for relation, n_right in N_RIGHT.items():
        for n in range(5):
            split = "test" if n == 4 else "validation"
            rows.append((f"{relation}{n}", relation, split, "yes" if n < n_right else "no"))
    questions = pd.DataFrame(rows, columns=["question_id", "relation", "split", "text"])
    questions = questions.assign(question="Really?", references=[["yes"]] * len(rows))
    answers = questions[["question_id", "text"]].assign(
        rank=0, log_prob=np.log(0.5), end_log_prob=0.0, finished=True
    )
    answers["token_ids"] = [[1]] * len(rows)
    answers["token_log_probs"] = [[np.log(0.5)]] * len(rows)
    info = RunInfo("facts", "toy", "diverse_beam", cost=Cost())
    return Run(answers, questions.drop(columns="text"), info)


def test_relations_are_chosen_by_their_accuracy_on_validation_questions(script, run):
    assert script["chosen_relations"](run) == {"sometimes", "mostly"}


def test_the_script_writes_the_test_questions_of_the_chosen_relations(
    script, run, tmp_path, monkeypatch
):
    output = tmp_path / "answers.jsonl"
    main = script["main"]
    monkeypatch.setitem(main.__globals__, "OUTPUT", output)
    monkeypatch.setattr("pro_lib.runs.read_run", lambda _folder: run)
    main("run")
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert {record["question_id"] for record in records} == {"sometimes4", "mostly4"}
    assert records[0]["model"] == "toy"
    assert {record["relation"] for record in records} == {"sometimes", "mostly"}
    assert records[0]["answers"] == [{"text": "no", "log_prob": -0.6931}]


def test_the_example_has_enough_right_and_wrong_answers_and_pro_differs_from_nll():
    scored = score_answers(importing.import_answers(catalog.EXAMPLE))
    judged = scored.judged
    assert (len(scored.rows), scored.n_judged, judged.n_correct) == (788, 788, 269)
    assert judged.answers["cluster"].nunique() == 13
    assert (scored.alpha.alpha, int(scored.alpha.is_reported.sum())) == (0.05, 523)
    n_kept = scored.rows["n_kept"]
    assert (int((n_kept > 1).sum()), int(n_kept.max())) == (350, 6)


def test_the_page_about_fields_shows_what_its_command_prints(monkeypatch):
    monkeypatch.chdir(ROOT)
    page = find_page("score_fields.md").read_text()
    command = re.search(r"^pro (score .*--fields)$", page, re.MULTILINE)[1]
    shown = re.search(r"```text\n(PRO separates.*?)```", page, re.DOTALL)[1]
    output, _ = typed(*command.split())
    assert set(shown.splitlines()) - {"…"} <= set(output.splitlines())
