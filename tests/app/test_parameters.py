"""The parameters of an experiment: wrong values, and values that nothing uses."""

import re

import pytest
from conftest import ROOT
from parameter_values import OF_FILES, OTHER, PARAMETERS, other_value, write_records

from pro_lib.app.experiment import Experiment
from pro_lib.common.validation import SentenceError

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


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_one_sentence_that_names_parameter_and_value(name):
    value = WRONG[name]
    shown = repr(value[0] if name in ("alphas", "target") else value)
    with pytest.raises(ValueError, match=rf"^{name}(\[0\])?={re.escape(shown)} [^\n]*$"):
        Experiment(**{name: value}).pairs()


# --- Values that name nothing, or the same twice ---

LISTED = {name: ["x", ""] for name in ("model", "dataset", "protocol", "similarity", "records")}
LISTED |= {"stop": [""], "chat": {"": True}, "loading": {"": 1}}
EMPTY = [(name, value) for name in PARAMETERS for value in ("", " \n") if name != "header"]


def test_an_empty_text_is_an_error_that_names_the_parameter():
    for name, value in [*EMPTY, *LISTED.items()]:
        with pytest.raises(SentenceError, match=rf"^{name}(\[\d\])?="):
            Experiment(**{name: value})
    assert Experiment(header="").header == Experiment().header == ""


def test_a_repeated_name_is_an_error_that_names_it(tmp_path):
    repeated = {"model": "facts-1m", "protocol": "paper", "similarity": "alias"}
    repeated |= {"records": write_records(tmp_path / "r.jsonl"), "dataset": "world-facts"}
    for name, value in repeated.items():
        with pytest.raises(SentenceError, match=f"^{name}={re.escape(repr(value))} is given twice"):
            Experiment(**{name: [value, value]})
    (tmp_path / "facts-1m").symlink_to(ROOT / "data" / "models" / "facts-1m")
    for name, pair in {"model": ["me/one", "you/one"], "similarity": ["me/nli", "you/nli"]}.items():
        with pytest.raises(SentenceError, match=f"^{name}='{pair[1]}' has the same name in tables"):
            Experiment(**{name: pair})


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


CONTRADICTIONS = [
    ({"model": []}, r"model=\[\] "),
    ({"alpha": 0.01, "strategy": "threshold"}, "alpha=0.01 "),
    ({"n_workers": 2}, "n_workers=2 needs engine='ray'"),
    ({"columns": {"question": "Frage"}}, "columns=.* needs a question file as dataset$"),
]
CONTRADICTIONS += [
    ({"columns": columns}, "columns=.* must be a dict of names of columns")
    for columns in (2, "Frage", {"answer": "Antwort"}, {"question": " "}, {"question": []})
]
CONTRADICTIONS += [
    ({"loading": {option: "float32"}}, f".*'{option}': use the parameter {parameter}$")
    for option, parameter in {"dtype": "dtype", "torch_dtype": "dtype", "name": "model"}.items()
]


def test_parameters_that_contradict_others_are_named(tmp_path):
    records = {"records": write_records(tmp_path / "split.jsonl")}
    others = {name: other_value(name, "records", None, tmp_path) for name in NOT_FOR_RECORDS}
    beside = [records | {name: value} for name, value in others.items()]
    beside += [
        records | {"dataset": dataset} for dataset in ("typo.csv", "nq", ["world-facts", "nq"])
    ]
    rows = [(each, f"{[*each][1]}=.* contradicts records[:;] ") for each in beside]
    for values, words in [*CONTRADICTIONS, *rows]:
        with pytest.raises(SentenceError, match=f"^{words}"):
            Experiment(**values).pairs()
    assert Experiment(n_workers=2, engine="ray").n_workers == 2


# --- Columns of question files ---


def test_the_columns_of_a_question_file_are_read_as_named(tmp_path):
    (tmp_path / "set.csv").write_text("Frage,Antwort\nA?,a\nB?,b\nC?,\n")
    given = {"model": "facts-1m", "dataset": str(tmp_path / "set.csv"), "n_shots": 0}
    given["columns"] = {"question": "Frage", "references": ["Antwort"]}
    with pytest.warns(UserWarning, match="1 of 3 rows cannot be used"):
        table = Experiment(**given).questions(given["dataset"]).table
    assert table["references"].tolist() == [["a"], ["b"]]
    with pytest.raises(ValueError, match=r"1 of 3 rows cannot be used: line 4: .* \(strict\)$"):
        Experiment(**given, strict=True).questions(given["dataset"])
