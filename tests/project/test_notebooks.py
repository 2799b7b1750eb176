"""Test that every notebook runs headless, has the planned parts, and refuses wrong parameters."""

import ast
import builtins
import contextlib
import json
import re
import subprocess
import warnings
from types import SimpleNamespace
from unittest import mock

import IPython
import pandas as pd
import pytest
from conftest import ROOT
from parameter_values import OTHER, write_questions, write_records

from pro_lib.app.experiment import Experiment
from pro_lib.app.notebook_parameters import cell_values
from pro_lib.app.parameters import help_texts
from pro_lib.common.validation import SentenceError

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
# The others, whose kind this one tries as well, run in `make test-all`.
QUICK = "02_alpha_sweep"


def in_slow(path):
    return pytest.param(path, marks=() if path.stem == QUICK else pytest.mark.slow, id=path.stem)


@pytest.fixture(scope="module")
def described():
    """The parameters that each notebook declares, by its path, as papermill describes them."""
    import papermill  # takes a second

    return {path: papermill.inspect_notebook(path) for path in NOTEBOOKS}


def read_notebook(path):
    """Return a notebook with the source of each cell as one text."""
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
    return notebook


def code_cells(path):
    return [cell["source"] for cell in read_notebook(path)["cells"] if cell["cell_type"] == "code"]


@EACH
def test_its_shape(path):
    notebook = read_notebook(path)
    tagged = [
        cell for cell in notebook["cells"] if "parameters" in cell["metadata"].get("tags", [])
    ]
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert "widgets" not in notebook["metadata"]
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    assert tagged == [cells[1]]
    imports, _, experiment, *others = [cell["source"] for cell in cells]
    written = "\n".join([imports, experiment, *others])
    assert not re.search(r"\bclass |plots\.save\(|to_csv|to_parquet|savefig|open\(", written)
    assert "experiment.save(" in written
    assert max(map(len, written.splitlines())) <= 100
    for cell in (imports, *others):
        assert len(cell.splitlines()) <= 15
        kinds = {type(node) for node in ast.walk(ast.parse(cell))}
        assert not kinds & {ast.FunctionDef, ast.ClassDef, ast.Lambda}


@EACH
def test_its_cells_use_names_of_cells_above(path):
    known = {*vars(builtins), "display"}
    for number, cell in enumerate(code_cells(path)):
        nodes = list(ast.walk(ast.parse(cell)))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        set_here = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                set_here |= {alias.asname or alias.name for alias in node.names}
        read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        assert read <= known | set_here, f"code cell {number}"
        known |= set_here


@EACH
def test_it_builds_the_experiment_by_one_call_that_names_every_parameter(path):
    _, parameters, third = code_cells(path)[:3]
    names = [statement.target.id for statement in ast.parse(parameters).body]
    [assignment] = ast.parse(third).body
    arguments = {each.arg: ast.unparse(each.value) for each in assignment.value.keywords}
    assert arguments.pop("notebook") == repr(path.stem)
    assert {name: arguments[name] for name in names} == {name: name for name in names}
    fixed = [value for name, value in arguments.items() if name not in names]
    assert all(isinstance(ast.literal_eval(value), str | list) for value in fixed)


def experiment_of(path, **injected):
    """Return the experiment that a notebook's third cell creates with injected parameters."""
    _, parameters, third = code_cells(path)[:3]
    values = "# Parameters\n" + "".join(f"{name} = {value!r}\n" for name, value in injected.items())
    names = {"In": ["", parameters, values], "Experiment": Experiment}
    with mock.patch.object(IPython, "get_ipython", return_value=SimpleNamespace(user_ns=names)):
        for cell in (parameters, values, third):
            exec(cell, names)
    return names["experiment"]


@EACH
def test_every_parameter_is_accepted_whether_the_notebook_declares_it_or_fixes_it(path):
    third = code_cells(path)[2]
    declared = cell_values(path)
    for name in OTHER.keys() - {"split", "n_workers"}:
        if f"{name}=" in third and name not in declared:
            with pytest.raises(SentenceError, match=f"^{name} is fixed by notebook {path.stem}$"):
                experiment_of(path, **{name: OTHER[name]})
            continue
        value = getattr(experiment_of(path, figures_dir="x", **{name: OTHER[name]}), name)
        assert value == (tuple(OTHER[name]) if isinstance(value, tuple) else OTHER[name]), name
    for name in ("loaded_models", "generations_dir", "figures_dir"):
        with pytest.raises(SentenceError, match=f"^{name}(=| is not a parameter)"):
            experiment_of(path, **{name: ""})


@EACH
def test_what_it_comes_with_is_accepted_with_and_without_records(path, described, tmp_path, capsys):
    experiment = experiment_of(path)
    assert experiment.figures_dir == ROOT / "figures"
    assert capsys.readouterr().out == ""
    if "records" in described[path]:
        records = write_records(tmp_path / "r.jsonl")
        assert experiment_of(path, records=records, figures_dir="x").pairs() == [("records", "r")]
        for name, value in (("temperature", 0.7), ("dataset", "typo.csv")):
            with pytest.raises(SentenceError, match=rf"^{name}={value!r} contradicts records"):
                experiment_of(path, records=records, figures_dir="x", **{name: value})


@EACH
def test_its_parameters_are_typed_and_have_the_comments_of_the_package(path, described):
    comments = help_texts()
    assert described[path].keys() <= comments.keys()
    for name, parameter in described[path].items():
        said = {
            re.sub("one or several: |(the )?figures", "", text)
            for text in (parameter["help"], comments[name])
        }
        assert len(said) == 1, name
        value, kind = ast.literal_eval(parameter["default"]), parameter["inferred_type_name"]
        of = f"list[{type(value[0]).__name__}]" if isinstance(value, list) else type(value).__name__
        assert "None" in parameter["help"] if value is None else kind == of, name


def first_figure(path):
    """Return the name of the first figure of a notebook, which is mostly that of the notebook."""
    return {"11_selective": "11_answered"}.get(path.stem, path.stem)


def execute(path, folder, **parameters):
    """Run a notebook by papermill in a kernel, its figures going to the folder."""
    import papermill

    given = parameters | {"figures_dir": str(folder)}
    papermill.execute_notebook(path, folder / "out.ipynb", given, cwd=folder, progress_bar=False)


def run_cells(path, folder, **parameters):
    """Run the cells of a notebook in this process, with its figures in the folder."""
    given = parameters | {"figures_dir": str(folder)}
    namespace = {"display": print, "In": ["# Parameters\n" + "\n".join(f"{n} = 0" for n in given)]}
    shell = mock.Mock(user_ns=namespace)
    running = mock.patch.object(IPython, "get_ipython", return_value=shell)
    with running, contextlib.chdir(folder), warnings.catch_warnings(action="ignore"):
        for number, cell in enumerate(code_cells(path)):
            exec(compile(cell, f"{path.name}, code cell {number}", "exec"), namespace)
            if number == 1:  # the parameters cell
                namespace |= given


@pytest.fixture(scope="module")
def generations(tmp_path_factory):
    """One place for the runs of all notebooks, with those that a few of them need.

    The answers of beams are missing, so that the first notebook generates them in its kernel.
    """
    folder = tmp_path_factory.mktemp("generations")
    given = {"model": "facts-1m", "limit": 40, "device": "cpu", "generations_dir": folder}
    for name, settings in {
        "multinomial": {"n_answers": 4},
        "greedy": {},
        "threshold": {"search_alpha": 0.005},
    }.items():
        Experiment(**given, strategy=name, **settings).both_splits("facts-1m", "world-facts")
    return folder


@pytest.mark.parametrize("path", [*map(in_slow, NOTEBOOKS)])
def test_papermill_executes_it_with_parameters_that_its_cell_does_not_declare(
    path, request, described, tmp_path
):
    generations = tmp_path if path.stem == QUICK else request.getfixturevalue("generations")
    named = {"model": "facts-1m", "dataset": "world-facts"}
    named = (
        named
        if "model: str" in path.read_text()
        else {name: [value] for name, value in named.items()}
    )
    undeclared = {"batch_size": 8, "device": "cpu"}
    assert not undeclared.keys() & described[path].keys()
    small = {"limit": 40, "n_answers": 4, "generations_dir": str(generations)}
    execute(path, tmp_path, **named, **undeclared, **small)
    name = first_figure(path)
    _, drawn, table = made = [tmp_path / f"{name}.{kind}" for kind in ("png", "svg", "csv")]
    assert all(file.stat().st_size > 100 for file in made)
    if path.stem[:2] in ("02", "03", "04", "05"):
        assert set(pd.read_csv(table)["protocol"].str.split(", ").str[0]) == {"paper"}
        # One panel, of the protocol and split reported alone.
        assert len(set(re.findall(r'id="(axes_\d+)"', drawn.read_text()))) == 1


@pytest.fixture(scope="session")
def records(tmp_path_factory):
    """Return records of 300 questions with three answers each and their labels."""
    path, rows = tmp_path_factory.mktemp("records") / "answers.jsonl", []
    for i in range(300):
        likeliest = round(-0.1 * (i % 5) - (0.2 if i % 3 and i % 7 else 1.4), 4)
        answers = [
            {"log_prob": one, "mean_log_prob": one / 5, "rouge_l": 0.0}
            for one in (likeliest, -3.0, -3.2)
        ]
        answers[0]["rouge_l"] = float(i % 3 > 0)
        rows.append(json.dumps({"question_id": i, "answers": answers}))
    path.write_text("\n".join(rows))
    return path


ON_RECORDS = [path for path in NOTEBOOKS if "records" in cell_values(path)]


@pytest.mark.slow
@pytest.mark.parametrize("path", ON_RECORDS, ids=lambda path: path.stem)
def test_it_runs_on_records(path, records, tmp_path):
    run_cells(path, tmp_path, records=str(records), n_answers=3)
    assert (tmp_path / f"{first_figure(path)}.csv").stat().st_size > 100


def table_of(path, folder, **parameters):
    """The table of a notebook's figure, for some parameters."""
    folder.mkdir()
    run_cells(path, folder, **parameters)
    return pd.read_csv(folder / f"{path.stem}.csv")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*validation split:UserWarning")
def test_04_applies_limit_answers_and_split_to_records(tmp_path):
    [path] = [path for path in ON_RECORDS if path.stem.startswith("04")]
    records, questions = (
        write_records(tmp_path / "r.jsonl", 200),
        write_questions(tmp_path / "q.jsonl", 200),
    )
    usual = table_of(path, tmp_path / "usual", records=records)
    assert set(usual["n_questions"]) == {100}
    more = {"limit": 30, "split": "all", "n_answers": 2, "dataset": questions}
    for name, value in more.items():
        changed = table_of(path, tmp_path / name, records=records, **{name: value})
        assert not changed.equals(usual), name


@pytest.mark.slow
def test_06_draws_its_samples_at_the_temperature_given(tmp_path):
    [path] = [path for path in NOTEBOOKS if path.stem.startswith("06")]
    small = {
        "model": ["facts-1m"],
        "dataset": ["world-facts"],
        "limit": 40,
        "n_answers": 4,
        "similarity": "lexical",
    }
    small |= {"generations_dir": str(tmp_path / "runs"), "protocol": "workbench"}
    tables = [table_of(path, tmp_path / f"{t}", temperature=t, **small) for t in (1.0, 0.3)]
    of_samples, of_beams = (
        [table.loc[table["method"].isin(names), "auroc"].tolist() for table in tables]
        for names in (["PE-MC", "NE", "Deg"], ["NLL", "SE"])
    )
    assert [len(aurocs) for aurocs in (*of_samples, *of_beams)] == [3, 3, 2, 2]
    assert of_samples[0] != of_samples[1]
    assert of_beams[0] == of_beams[1]


@pytest.mark.slow
def test_06_runs_on_twelve_questions(records, tmp_path):
    (tmp_path / "few.jsonl").write_text("\n".join(records.read_text().splitlines()[:12]))
    [path] = [path for path in ON_RECORDS if path.stem.startswith("06")]
    run_cells(path, tmp_path, records=str(tmp_path / "few.jsonl"), n_answers=3)


def test_make_figures_runs_all_notebooks():
    line = ["make", "--dry-run", "-o", ".venv/.installed", "figures"]
    words = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (
        sorted(re.findall(r"run --executed build/notebooks (\w+)$", words, re.MULTILINE)) == NAMES
    )
