"""The parameters of an experiment: their values, the parameters that nothing uses, and notebooks' cells."""

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
from pro_lib.common.validation import SentenceError


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


# --- Wrong values ---

WRONG = {"model": 5, "dataset": "world-fact", "split": "tset", "strategy": "beams", "protocol": "papers"}
WRONG |= {
    "convention": "all",
    "alphas": [2.0],
    "alpha": float("nan"),
    "target": [1.5],
    "search_alpha": 0,
    "figure_columns": 3,
}
WRONG |= {"n_answers": 2.5, "temperature": 0, "stop": ".", "limit": 0, "seed": -1, "batch_size": 0, "dtype": "float"}
WRONG |= {"engine": "spark", "similarity": "nil", "correctness": "rouge", "records": "nowhere.jsonl"}
TOGETHER = [{"split": "validation", "reported": True}, {"alpha": 0.01, "strategy": "threshold"}, {"model": []}]


@pytest.mark.parametrize("values", [*({name: value} for name, value in WRONG.items()), *TOGETHER], ids=str)
def test_a_parameter_that_cannot_be_is_one_sentence_that_names_it_and_its_value(values):
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
    repeated = {"model": "facts-1m", "dataset": "world-facts", "protocol": "paper", "similarity": "alias"}
    for name, value in {**repeated, "records": records}.items():
        with pytest.raises(SentenceError, match=f"^{name}={re.escape(repr(value))} is given twice; give it once$"):
            Experiment(**{name: [value, value]})
    (tmp_path / "facts-1m").symlink_to(ROOT / "data" / "models" / "facts-1m")
    for name, pair in {"model": ["me/one", "you/one"], "similarity": ["me/nli", "you/nli"]}.items():
        with pytest.raises(SentenceError, match=f"^{name}='{pair[1]}' has the same name as '{pair[0]}'"):
            Experiment(**{name: pair})


@pytest.mark.parametrize(("option", "parameter"), [("dtype", "dtype"), ("torch_dtype", "dtype"), ("name", "model")])
def test_loading_points_to_the_parameter_that_it_repeats(option, parameter):
    with pytest.raises(SentenceError, match=f"^loading=.* must not have '{option}': use the parameter {parameter}$"):
        Experiment(loading={option: "float32"})


# --- Parameters that nothing uses ---


def test_every_parameter_has_another_value_in_the_table():
    assert set(OTHER) | set(OF_FILES) == set(PARAMETERS)


NOT_FOR_RECORDS = ["model", "strategy", "temperature", "top_p", "diversity_penalty", "search_alpha", "max_new_tokens"]
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
def test_records_refuse_what_decides_generation(name, files, tmp_path):
    value = other_value(name, "records", files, tmp_path)
    with pytest.raises(SentenceError, match=f"^{name}=.* has no effect: the answers come from records=.*; remove it$"):
        Experiment(records=str(files / "split.jsonl"), **{name: value})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_setting_of_another_strategy_names_both(strategy):
    users = {"temperature": ["multinomial"], "top_p": ["multinomial"], "diversity_penalty": ["diverse_beam"]}
    users |= {"search_alpha": ["threshold"], "n_answers": ["multinomial", "diverse_beam"]}
    for name, having in users.items():
        if strategy in having:
            assert getattr(Experiment(strategy=strategy, **{name: OTHER[name]}), name) == OTHER[name]
            continue
        words = f"strategy {strategy} does not use it; it is a parameter of {' and '.join(having)}$"
        with pytest.raises(SentenceError, match=f"^{name}={OTHER[name]} has no effect: {words}"):
            Experiment(strategy=strategy, **{name: OTHER[name]})
        assert Experiment(strategy=strategy, other_strategies=having, **{name: OTHER[name]}).strategy == strategy


def test_workers_need_ray():
    with pytest.raises(SentenceError, match=r"^n_workers=2 has no effect: only engine='ray' has workers$"):
        Experiment(n_workers=2)
    assert Experiment(n_workers=2, engine="ray").n_workers == 2


DATASETS = [("typo.csv", "is not a file"), ("nq", "is not a file"), (["world-facts", "nq"], "give one file")]


@pytest.mark.parametrize(("dataset", "words"), DATASETS, ids=str)
def test_a_dataset_beside_records_is_one_question_file(dataset, words, files):
    with pytest.raises(SentenceError, match=rf"^dataset={re.escape(repr(dataset))} .*{words}"):
        Experiment(records=str(files / "split.jsonl"), dataset=dataset)


# --- Parameters of a notebook ---

CELL = 'model: str = "facts-1m"  # a model\nalpha: float = 0.4  # the default α'


def notebook(*cells, **constants):
    """What `Experiment.from_notebook(globals(), ...)` returns in a notebook whose cells so far are these."""
    names = {"In": ["", *cells]}
    for cell in cells:
        exec(cell, names)
    return Experiment.from_notebook(names, **constants)


def test_what_is_declared_or_injected_counts_and_nothing_else_that_a_cell_leaves():
    made = notebook("seed = 7\nlimit = 3", CELL, "n_answers = 2")
    assert (made.model, made.alpha, made.seed, made.limit, made.n_answers) == ("facts-1m", 0.4, 0, None, None)
    made = notebook(CELL, "# Parameters\nalpha = 0.3\nbatch_size = 8\n")
    assert (made.alpha, made.batch_size) == (0.3, 8)
    made = notebook(CELL, "# Parameters\nalpha = 0.3\n", CELL.replace("0.4", "0.2"))
    assert made.alpha == 0.2  # the latest parameters cell counts
    assert notebook(CELL, strategy="threshold", reported=True).strategy == "threshold"
    with pytest.raises(SentenceError, match=r"^alhpa is no parameter; the nearest is alpha$"):
        notebook(CELL, "# Parameters\nalhpa = 0.3\n")


OTHER_LINES = {
    "plain assignment": "seed = 3",
    "import": "import math",
    "branch": "if True: seed: int = 3",
    "call": "print('hello')",
    "text": "'my parameters'",
    "value missing": "limit: int",
    "attribute": "pytest.seed: int = 3",
    "line magic": "%matplotlib inline",
    "shell": "!ls",
}


@pytest.mark.parametrize("line", OTHER_LINES.values(), ids=OTHER_LINES)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
def test_another_line_in_the_parameters_cell_is_an_error_that_shows_it(line, is_first):
    cell = f"{line}\n{CELL}" if is_first else f"{CELL}\n{line}"
    words = rf"^the parameters cell has the line {re.escape(repr(line))}; expected only lines of the form"
    with pytest.raises(SentenceError, match=words):
        Experiment.from_notebook({"In": ["", cell], "model": "facts-1m", "alpha": 0.4})


def test_a_magic_over_the_parameters_cell_is_an_error_and_one_over_another_cell_is_not():
    with pytest.raises(SentenceError, match=r"^the parameters cell has the line '%%time'"):
        Experiment.from_notebook({"In": ["", f"%%time\n{CELL}"], "model": "facts-1m", "alpha": 0.4})
    names = {"In": ["", CELL, "%%time\nx = 1", "%matplotlib inline", "this is not Python"], "model": "facts-1m"}
    assert Experiment.from_notebook(names | {"alpha": 0.4}).model == "facts-1m"


def test_a_parameters_cell_may_begin_with_the_comment_of_an_injected_one():
    assert notebook(f"# Parameters\n{CELL}").model == "facts-1m"


FOLDERS = [({"alpha": 0.3, "limit": 200}, "alpha=0.3,limit=200"), ({"seed": 0, "generations_dir": "runs"}, None)]


@pytest.mark.parametrize(("given", "name"), [*FOLDERS, ({"model": ["facts-2m"], "stop": []}, None)])
def test_figures_of_other_values_have_a_folder_of_their_own(given, name, capsys, tmp_path):
    injected = "# Parameters\n" + "".join(f"{key} = {value!r}\n" for key, value in given.items())
    cell = CELL.replace("facts-1m", "facts-2m")
    folder = ROOT / "figures" / "other" / name if name else ROOT / "figures"
    assert notebook(cell, injected).figures_dir == folder
    assert capsys.readouterr().out == (f"Figures go to {folder}\n" if name else "")
    assert notebook(cell, f"{injected}figures_dir = {str(tmp_path)!r}\n").figures_dir == tmp_path


def test_a_value_of_another_notebook_has_a_folder_of_its_own(capsys):
    cell = "similarity: list[str] = ['lexical', 'alias']"
    folder = ROOT / "figures" / "other" / "similarity=lexical"
    assert notebook(cell, "# Parameters\nsimilarity = 'lexical'\n").figures_dir == folder
    assert capsys.readouterr().out == f"Figures go to {folder}\n"


def test_labels_that_cannot_be_read_end_a_notebook_before_anything_is_made(tmp_path):
    (labels := tmp_path / "labels.csv").write_text("question_id,text\n1,yes\n")
    injected = f"# Parameters\ngenerations_dir = {str(tmp_path / 'runs')!r}\ncorrectness = {str(labels)!r}\n"
    with pytest.raises(ValueError, match=f"^{re.escape(str(labels))}, line 2: correct"):
        notebook(CELL, injected)
    assert list(tmp_path.iterdir()) == [labels]


@pytest.mark.parametrize("name", ["figures_dir", "generations_dir"])
def test_an_empty_folder_in_a_notebook_is_an_error_and_not_the_committed_one(name):
    with pytest.raises(SentenceError, match=f"^{name}='' must be a path"):
        notebook(CELL, f"# Parameters\n{name} = ''\n")


def test_a_parameter_that_the_notebook_does_not_use_is_an_error():
    words = r"^target=\(0.9,\) is not used by this notebook; beside its models, questions and answers it uses alpha$"
    with pytest.raises(SentenceError, match=words):
        notebook(CELL, "# Parameters\ntarget = [0.9]\n", uses=["alpha"])
    assert notebook(CELL, "# Parameters\ntarget = [0.9]\n", uses=["alpha", "target"]).target == (0.9,)
    assert notebook(CELL, "# Parameters\ntarget = [0.9]\n").target == (0.9,)


def test_a_parameter_that_the_notebook_fixes_is_an_error():
    words = r"^strategy='greedy' has no effect: this notebook fixes strategy='threshold'; remove it$"
    with pytest.raises(SentenceError, match=words):
        notebook(CELL, "# Parameters\nstrategy = 'greedy'\n", strategy="threshold")
    assert notebook(CELL, "# Parameters\nstrategy = 'threshold'\n", strategy="threshold").strategy == "threshold"


def test_what_a_notebook_comes_with_is_no_error_beside_records(files):
    cell = "model: list[str] = ['facts-2m', 'facts-1m']\nsearch_alpha: float = 0.005"
    injected = f"# Parameters\nrecords = {str(files / 'split.jsonl')!r}\nfigures_dir = 'figures'\n"
    assert notebook(cell, injected, uses=[], other_strategies=["threshold"]).records
    with pytest.raises(SentenceError, match=r"^search_alpha=0.1 has no effect: the answers come from records="):
        notebook(cell, f"{injected}search_alpha = 0.1\n", uses=[], other_strategies=["threshold"])


def test_a_seed_needs_something_to_draw(files):
    cell = CELL.replace("facts-1m", "facts-2m")
    seeded = "# Parameters\nfigures_dir = 'figures'\nseed = 1\n"
    with pytest.raises(SentenceError, match=r"^seed=1 has no effect: nothing is drawn at random"):
        notebook(cell, seeded, uses=["alpha"])
    for more in ("limit = 5", "strategy = 'multinomial'", f"records = {str(files / 'unsplit.jsonl')!r}"):
        assert notebook(cell, f"{seeded}{more}\n", uses=["alpha"]).seed == 1
    with pytest.raises(SentenceError, match=r"^seed=1 has no effect"):
        notebook(cell, f"{seeded}records = {str(files / 'split.jsonl')!r}\n", uses=["alpha"])


def test_n_validation_needs_questions_without_a_validation_split(files):
    given = "# Parameters\nfigures_dir = 'figures'\nn_validation = 5\n"
    with pytest.raises(SentenceError, match=r"^n_validation=5 has no effect: this notebook does not choose alpha"):
        notebook(CELL, given, uses=["alpha"])
    lending = f"{given}dataset = {str(files / 'questions.jsonl')!r}\n"
    assert notebook(CELL, lending, uses=["alpha"]).n_validation == 5


# --- Columns of question files ---

COLUMNS = [
    (2, r"columns=2 must be names of columns, such as .*; the width of a figure is figure_columns"),
    ("Frage", r"columns='Frage' must be a dict, such as "),
    ({"answer": "Antwort"}, r"columns=.* must have keys among question_id, question, references, split; 'answer' is"),
    ({"question": " "}, r"columns=.* must name a column, or several, for each key"),
    ({"question": "Frage"}, r"columns=.* has no effect: it is about a question file, and dataset names none"),
]


@pytest.mark.parametrize(("columns", "words"), COLUMNS, ids=str)
def test_columns_that_cannot_be_are_one_sentence(columns, words):
    with pytest.raises(SentenceError, match=f"^{words}"):
        Experiment(columns=columns)


def test_the_columns_of_a_question_file_are_read_as_named(tmp_path):
    (tmp_path / "set.csv").write_text("Frage,Antwort\nA?,a\nB?,b\nC?,\n")
    columns = {"question": "Frage", "references": ["Antwort"]}
    given = {"model": "facts-1m", "dataset": str(tmp_path / "set.csv"), "columns": columns, "n_shots": 0}
    with pytest.warns(UserWarning, match="1 of 3 rows cannot be used"):
        table = Experiment(**given).questions(given["dataset"]).table
    assert table["references"].tolist() == [["a"], ["b"]]
    with pytest.raises(ValueError, match=r"1 of 3 rows cannot be used: line 4: .* \(strict\)$"):
        Experiment(**given, strict=True).questions(given["dataset"])
