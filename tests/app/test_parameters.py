"""The parameters of an experiment: wrong values, and values that nothing uses."""

import re

import pytest
from conftest import ROOT
from parameter_values import (
    OF_FILES,
    OTHER,
    PARAMETERS,
    STRATEGIES,
    other_value,
    write_files,
    write_records,
)

from pro_lib.app.experiment import Experiment
from pro_lib.app.parameters import NotebookUse
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
}
WRONG |= {
    "convention": "all",
    "alphas": [2.0],
    "alpha": float("nan"),
    "target": [1.5],
    "search_alpha": 0,
    "figure_columns": 3,
}
WRONG |= {
    "n_answers": 2.5,
    "temperature": 0,
    "stop": ".",
    "limit": 0,
    "seed": -1,
    "batch_size": 0,
    "dtype": "float",
}
WRONG |= {
    "engine": "spark",
    "similarity": "nil",
    "correctness": "rouge",
    "records": "nowhere.jsonl",
}
TOGETHER = [
    {"split": "validation", "reported": True},
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
EMPTY = [(name, value) for name in PARAMETERS for value in ("", "  ", "\n") if name != "header"]


@pytest.mark.parametrize(("name", "value"), [*EMPTY, *LISTED.items()], ids=str)
def test_an_empty_text_is_an_error_that_names_the_parameter(name, value):
    with pytest.raises(SentenceError, match=rf"^{name}(\[\d\])?="):
        Experiment(**{name: value})


def test_an_empty_header_is_the_default():
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
        with pytest.raises(
            SentenceError, match=f"^{name}={re.escape(repr(value))} is given twice; give it once$"
        ):
            Experiment(**{name: [value, value]})
    (tmp_path / "facts-1m").symlink_to(ROOT / "data" / "models" / "facts-1m")
    for name, pair in {"model": ["me/one", "you/one"], "similarity": ["me/nli", "you/nli"]}.items():
        with pytest.raises(
            SentenceError, match=f"^{name}='{pair[1]}' has the same name in tables as '{pair[0]}'"
        ):
            Experiment(**{name: pair})


@pytest.mark.parametrize(
    ("option", "parameter"), [("dtype", "dtype"), ("torch_dtype", "dtype"), ("name", "model")]
)
def test_loading_points_to_the_parameter_that_it_repeats(option, parameter):
    with pytest.raises(
        SentenceError, match=f"^loading=.* must not have '{option}': use the parameter {parameter}$"
    ):
        Experiment(loading={option: "float32"})


# --- Parameters that nothing uses ---


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
]
NOT_FOR_RECORDS += [
    "stop",
    "n_shots",
    "header",
    "template",
    "chat",
    "loading",
    "engine",
    "batch_size",
    "device",
    "dtype",
]


@pytest.mark.parametrize("name", [*NOT_FOR_RECORDS, "generations_dir"])
def test_parameters_of_generation_are_errors_beside_records(name, files, tmp_path):
    value = other_value(name, "records", files, tmp_path)
    with pytest.raises(
        SentenceError,
        match=f"^{name}=.* has no effect: the answers come from records=.*; remove it$",
    ):
        Experiment(records=str(files / "split.jsonl"), **{name: value})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_setting_of_another_strategy_names_both(strategy):
    users = {
        "temperature": ["multinomial"],
        "top_p": ["multinomial"],
        "diversity_penalty": ["diverse_beam"],
    }
    users |= {"search_alpha": ["threshold"], "n_answers": ["multinomial", "diverse_beam"]}
    for name, having in users.items():
        if strategy in having:
            assert (
                getattr(Experiment(strategy=strategy, **{name: OTHER[name]}), name) == OTHER[name]
            )
            continue
        words = f"strategy {strategy} does not use it; it is a parameter of {' and '.join(having)}$"
        with pytest.raises(SentenceError, match=f"^{name}={OTHER[name]} has no effect: {words}"):
            Experiment(strategy=strategy, **{name: OTHER[name]})
        assert (
            Experiment(strategy=strategy, other_strategies=having, **{name: OTHER[name]}).strategy
            == strategy
        )


def test_workers_need_ray():
    with pytest.raises(
        SentenceError, match=r"^n_workers=2 has no effect: only engine='ray' has workers$"
    ):
        Experiment(n_workers=2)
    assert Experiment(n_workers=2, engine="ray").n_workers == 2


DATASETS = [
    ("typo.csv", "is not a file"),
    ("nq", "is not a file"),
    (["world-facts", "nq"], "give one file"),
]


@pytest.mark.parametrize(("dataset", "words"), DATASETS, ids=str)
def test_a_dataset_beside_records_is_one_question_file(dataset, words, files):
    with pytest.raises(SentenceError, match=rf"^dataset={re.escape(repr(dataset))} .*{words}"):
        Experiment(records=str(files / "split.jsonl"), dataset=dataset)


# --- Parameters of a notebook ---


def in_notebook(changed, *, uses=None, **others):
    """Return an experiment of a notebook that reads `uses` and whose user has changed values."""
    values = {"model": "facts-2m", "figures_dir": "figures"}
    return Experiment(**values | others | changed, use=NotebookUse(uses, tuple(changed)))


def test_a_parameter_that_the_notebook_does_not_use_is_an_error():
    words = r"^target=\(0.9,\) is not used by this notebook; "
    words += "beside its models, questions and answers it uses alpha$"
    with pytest.raises(SentenceError, match=words):
        in_notebook({"target": [0.9]}, uses=("alpha",))
    assert in_notebook({"target": [0.9]}, uses=("alpha", "target")).target == (0.9,)
    assert in_notebook({"target": [0.9]}).target == (0.9,)


def test_values_of_a_shipped_notebook_are_accepted_beside_records(files):
    shipped = {"search_alpha": 0.005, "other_strategies": ["threshold"]}
    records = {"records": str(files / "split.jsonl")}
    assert in_notebook(records, uses=(), **shipped).records
    with pytest.raises(
        SentenceError, match=r"^search_alpha=0.1 has no effect: the answers come from records="
    ):
        in_notebook({**records, "search_alpha": 0.1}, uses=(), other_strategies=["threshold"])


def test_a_seed_needs_something_to_draw(files):
    with pytest.raises(SentenceError, match=r"^seed=1 has no effect: nothing is drawn at random"):
        in_notebook({"seed": 1}, uses=("alpha",))
    for more in (
        {"limit": 5},
        {"strategy": "multinomial"},
        {"records": str(files / "unsplit.jsonl")},
    ):
        assert in_notebook({"seed": 1, **more}, uses=("alpha",)).seed == 1
    with pytest.raises(SentenceError, match=r"^seed=1 has no effect"):
        in_notebook({"seed": 1, "records": str(files / "split.jsonl")}, uses=("alpha",))


def test_n_validation_needs_questions_without_a_validation_split(files):
    words = r"^n_validation=5 has no effect: this notebook does not choose alpha"
    with pytest.raises(SentenceError, match=words):
        in_notebook({"n_validation": 5}, uses=("alpha",))
    lending = {"n_validation": 5, "dataset": str(files / "questions.jsonl")}
    assert in_notebook(lending, uses=("alpha",)).n_validation == 5


# --- Columns of question files ---

COLUMNS = [
    (2, r"columns=2 must be names of columns, such as .*; the width of a figure is figure_columns"),
    ("Frage", r"columns='Frage' must be a dict, such as "),
    (
        {"answer": "Antwort"},
        r"columns=.* must have keys among question_id, .*, choices, separator; 'answer' is",
    ),
    ({"question": " "}, r"columns=.* must name a column, or several, for each key"),
    (
        {"question": "Frage"},
        r"columns=.* has no effect: it is about a question file, and dataset names none",
    ),
]


@pytest.mark.parametrize(("columns", "words"), COLUMNS, ids=str)
def test_wrong_columns_are_one_sentence(columns, words):
    with pytest.raises(SentenceError, match=f"^{words}"):
        Experiment(columns=columns)


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
