"""`made_from.json` says what a figure was made from, and changes with each input."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from pro_lib import Experiment, importing
from pro_lib.app.made_from import file_digests, run_digest
from pro_lib.common import catalog
from pro_lib.common.files import RunError


def saved(folder):
    """Save a table to a folder, and return what its file says."""
    experiment = Experiment(records=str(catalog.EXAMPLE), figures_dir=folder, seed=3)
    experiment.run_of_both_splits(*experiment.pair())
    experiment.save("table", table=pd.DataFrame({"x": [1.0]}))
    return json.loads((folder / "made_from.json").read_text())


def test_entry_has_the_changed_parameters_and_a_digest_of_each_input_and_others_stay(tmp_path):
    (tmp_path / "made_from.json").write_text('{"other": {}}')
    entries = saved(tmp_path)
    assert list(entries) == ["other", "table"]
    name = catalog.EXAMPLE.name
    assert entries["table"]["parameters"] == {"records": name, "seed": 3}
    run = "world-facts/smollm2-135m/records, 788 questions"
    assert list(entries["table"]["inputs"]) == [name, run]


def test_another_file_of_that_name_is_kept(tmp_path):
    (tmp_path / "made_from.json").write_text("notes")
    with pytest.raises(RunError, match="was not written by this package"):
        saved(tmp_path)
    assert (tmp_path / "made_from.json").read_text() == "notes"


def test_digest_of_a_run_depends_on_its_parameters_and_questions_alone():
    run = importing.import_answers(catalog.EXAMPLE)
    other_parameters = replace(run, info=replace(run.info, parameters={"dtype": "float32"}))
    fewer_questions = run.select(question_ids=list(run.questions["question_id"][1:]))
    rounded = replace(run, answers=run.answers.assign(log_prob=run.answers["log_prob"].round(3)))
    digests = [run_digest(each) for each in (run, other_parameters, fewer_questions)]
    assert len(set(digests)) == 3
    assert run_digest(rounded) == digests[0]


def test_two_files_of_one_name_have_a_digest_each(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "records.jsonl").write_text(folder)
    digests = file_digests(tmp_path / folder / "records.jsonl" for folder in ("a", "b"))
    assert list(digests) == ["records.jsonl", "b/records.jsonl"]
    assert len(set(digests.values())) == 2
