"""The parameters of an experiment: wrong values, and values that nothing uses."""

import re

import pytest
from conftest import ROOT
from parameter_values import (
    OF_FILES,
    OTHER,
    PARAMETERS,
    other_value,
    write_files,
    write_records,
)

from pro_lib.app.experiment import Experiment
from pro_lib.common.validation import SentenceError


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


# --- Wrong values ---

WRONG = {
    "model": 5,
    "dataset": "world-fact",
    "split": "tset",
    "strategy": "beams",
    "protocol": "papers",
    "convention": "all",
    "alphas": [2.0],
    "alpha": float("nan"),
    "target": [1.5],
    "search_alpha": 0,
    "figure_columns": 3,
    "alpha_scale": "wide",
    "n_answers": 2.5,
    "temperature": 0,
    "stop": ".",
    "limit": 0,
    "seed": -1,
    "batch_size": 0,
    "dtype": "float",
    "engine": "spark",
    "similarity": "nil",
    "correctness": "rouge",
    "records": "nowhere.jsonl",
}
TOGETHER = [
    {"alpha": 0.01, "strategy": "threshold"},
    {"model": []},
]


@pytest.mark.parametrize(
    "values", [*({name: value} for name, value in WRONG.items()), *TOGETHER], ids=str
)
def test_a_wrong_value_is_one_sentence_that_names_parameter_and_value(values):
    (name, value), *_ = values.items()
    shown = repr(value[0] if name in ("alphas", "target") else value)
    with pytest.raises(ValueError, match=rf"^{name}(\[0\])?={re.escape(shown)} [^\n]*$"):
        Experiment(**values).pairs()


# --- Values that name nothing, or the same twice ---

LISTED = {"model": ["facts-1m", ""], "dataset": ["world-facts", ""], "protocol": ["paper", ""]}
LISTED |= {
    "similarity": ["alias", ""],
    "records": ["r.jsonl", ""],
    "stop": [""],
    "chat": {"": True},
    "loading": {"": 1},
}
EMPTY = [(name, value) for name in PARAMETERS for value in ("", " \n") if name != "header"]


def test_an_empty_text_is_an_error_that_names_the_parameter():
    for name, value in [*EMPTY, *LISTED.items()]:
        with pytest.raises(SentenceError, match=rf"^{name}(\[\d\])?="):
            Experiment(**{name: value})
    assert Experiment(header="").header == Experiment().header == ""


def test_a_repeated_name_is_an_error_that_names_it(tmp_path):
    records = write_records(tmp_path / "r.jsonl")
    repeated = {
        "model": "facts-1m",
        "dataset": "world-facts",
        "protocol": "paper",
        "similarity": "alias",
    }
    for name, value in {**repeated, "records": records}.items():
        with pytest.raises(SentenceError, match=f"^{name}={re.escape(repr(value))} is given twice"):
            Experiment(**{name: [value, value]})
    (tmp_path / "facts-1m").symlink_to(ROOT / "data" / "models" / "facts-1m")
    for name, pair in {"model": ["me/one", "you/one"], "similarity": ["me/nli", "you/nli"]}.items():
        with pytest.raises(SentenceError, match=f"^{name}='{pair[1]}' has the same name in tables"):
            Experiment(**{name: pair})


def test_loading_points_to_the_parameter_that_it_repeats():
    for option, parameter in {"dtype": "dtype", "torch_dtype": "dtype", "name": "model"}.items():
        with pytest.raises(SentenceError, match=f"'{option}': use the parameter {parameter}$"):
            Experiment(loading={option: "float32"})


# --- Parameters that contradict another ---


def test_every_parameter_has_another_value_in_the_table():
    assert set(OTHER) | set(OF_FILES) == set(PARAMETERS)


NOT_FOR_RECORDS = [
    "model",
    "strategy",
    "temperature",
    "top_p",
    "diversity_penalty",
    "search_alpha",
    "max_new_tokens",
    "stop",
    "n_shots",
    "header",
    "template",
    "chat",
    "loading",
    "engine",
    "batch_size",
    "dtype",
]


def test_parameters_of_generation_are_errors_beside_records(files, tmp_path):
    for name in NOT_FOR_RECORDS:
        value = other_value(name, "records", files, tmp_path)
        with pytest.raises(SentenceError, match=f"^{name}=.* contradicts records: "):
            Experiment(records=str(files / "split.jsonl"), **{name: value})


def test_workers_need_ray():
    with pytest.raises(SentenceError, match=r"^n_workers=2 needs engine='ray'"):
        Experiment(n_workers=2)
    assert Experiment(n_workers=2, engine="ray").n_workers == 2


def test_a_dataset_beside_records_is_one_question_file(files):
    for dataset in ("typo.csv", "nq", ["world-facts", "nq"]):
        with pytest.raises(SentenceError, match=rf"^dataset={re.escape(repr(dataset))} contradict"):
            Experiment(records=str(files / "split.jsonl"), dataset=dataset)


# --- Columns of question files ---

COLUMNS = [2, "Frage", {"answer": "Antwort"}, {"question": " "}, {"question": []}]


def test_wrong_columns_are_one_sentence():
    for columns in COLUMNS:
        with pytest.raises(SentenceError, match=r"^columns=.* must be a dict of names of columns"):
            Experiment(columns=columns)
    with pytest.raises(SentenceError, match=r"^columns=.* needs a question file as dataset$"):
        Experiment(columns={"question": "Frage"})


def test_the_columns_of_a_question_file_are_read_as_named(tmp_path):
    (tmp_path / "set.csv").write_text("Frage,Antwort\nA?,a\nB?,b\nC?,\n")
    columns = {"question": "Frage", "references": ["Antwort"]}
    given = {
        "model": "facts-1m",
        "dataset": str(tmp_path / "set.csv"),
        "columns": columns,
        "n_shots": 0,
    }
    with pytest.warns(UserWarning, match="1 of 3 rows cannot be used"):
        table = Experiment(**given).questions(given["dataset"]).table
    assert table["references"].tolist() == [["a"], ["b"]]
    with pytest.raises(ValueError, match=r"1 of 3 rows cannot be used: line 4: .* \(strict\)$"):
        Experiment(**given, strict=True).questions(given["dataset"])
