"""Every notebook runs headless, has the shape the design asks for, and stops early on a wrong parameter."""

import ast
import json
import re
import subprocess
from dataclasses import fields

import nbformat
import pandas as pd
import papermill
import pytest
from conftest import ROOT

from pro_lib.settings import Settings

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
# Those whose kind a quicker one tries as well run in `make test-all`.
QUICK = ("02_alpha_sweep", "06_benchmark")


def in_slow(path):
    return pytest.param(path, marks=() if path.stem in QUICK else pytest.mark.slow, id=path.stem)


@EACH
def test_its_shape(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    [tagged] = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    assert notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)
    assert cells[1] is tagged
    assert re.fullmatch(r"settings = Settings\.of\(globals\(\).*\)", cells[2].source)
    lines = [line for cell in cells if cell is not tagged for line in cell.source.splitlines() if line.strip()]
    written = "\n".join(lines)
    assert not re.search(r"\bclass |save\(|to_csv|to_parquet|savefig|open\(", written)
    assert "settings.store(" in written


@EACH
def test_its_parameters_are_typed_and_have_the_comments_of_the_package(path):
    declared = {field.name: field.default for field in fields(Settings)}
    source = (ROOT / "pro_lib" / "settings.py").read_text()
    comments = dict(re.findall(r"^    (\w+): .*?  # (.*)$", source, re.MULTILINE))
    described = papermill.inspect_notebook(path)
    assert set(described) <= declared.keys() == comments.keys()
    for name, parameter in described.items():
        said = {re.sub("one or several: |(the )?figures", "", text) for text in (parameter["help"], comments[name])}
        assert len(said) == 1, name
        value, kind = ast.literal_eval(parameter["default"]), parameter["inferred_type_name"]
        of = f"list[{type(value[0]).__name__}]" if isinstance(value, list) else type(value).__name__
        assert "None" in parameter["help"] if value is None else kind == of, name


def execute(path, folder, **parameters):
    """Run a notebook by papermill in a kernel, its figures going to the folder."""
    given = parameters | {"figures_dir": str(folder)}
    papermill.execute_notebook(path, folder / "out.ipynb", given, cwd=folder, progress_bar=False)


@pytest.mark.parametrize("path", [*map(in_slow, NOTEBOOKS)])
def test_papermill_executes_it_with_parameters_that_its_cell_does_not_declare(path, tmp_path):
    named = {"model": "facts-1m", "dataset": "world-facts"}
    named = named if "model: str" in path.read_text() else {name: [value] for name, value in named.items()}
    undeclared = {"batch_size": 8, "device": "cpu"}
    assert not undeclared.keys() & papermill.inspect_notebook(path).keys()
    # One place for runs, so that a notebook finds what another has generated.
    small = named | undeclared | {"limit": 40, "n_answers": 4, "generations_dir": str(tmp_path.parent / "generations")}
    execute(path, tmp_path, **small)
    _, drawn, table = made = [tmp_path / f"{path.stem}.{kind}" for kind in ("png", "svg", "csv")]
    assert all(file.stat().st_size > 100 for file in made)
    if path.stem[:2] in ("02", "03", "04", "05"):
        assert set(pd.read_csv(table)["protocol"].str.split(", ").str[0]) == {"paper", "workbench"}
        # One panel, of the protocol and split reported alone.
        assert len(set(re.findall(r'id="(axes_\d+)"', drawn.read_text()))) == 1


@pytest.fixture(scope="session")
def records(tmp_path_factory):
    """Log-probabilities made elsewhere: 300 questions, three answers each, right or wrong from outside."""
    path, rows = tmp_path_factory.mktemp("records") / "answers.jsonl", []
    for i in range(300):
        likeliest = round(-0.1 * (i % 5) - (0.2 if i % 3 and i % 7 else 1.4), 4)
        answers = [{"log_prob": one, "mean_log_prob": one / 5, "rouge_l": 0.0} for one in (likeliest, -3.0, -3.2)]
        answers[0]["rouge_l"] = float(i % 3 > 0)
        rows.append(json.dumps({"question_id": i, "answers": answers}))
    path.write_text("\n".join(rows))
    return path


ON_RECORDS = [path for path in NOTEBOOKS if "records" in papermill.inspect_notebook(path)]


@pytest.mark.slow
@pytest.mark.parametrize("path", ON_RECORDS, ids=lambda path: path.stem)
def test_it_runs_on_records(path, records, tmp_path):
    execute(path, tmp_path, records=str(records), n_answers=3, generations_dir=str(tmp_path / "none"))
    assert (tmp_path / f"{path.stem}.csv").stat().st_size > 100
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_06_runs_on_twelve_questions(records, tmp_path):
    (tmp_path / "few.jsonl").write_text("\n".join(records.read_text().splitlines()[:12]))
    [path] = [path for path in ON_RECORDS if path.stem.startswith("06")]
    execute(path, tmp_path, records=str(tmp_path / "few.jsonl"), n_answers=3)


def test_make_figures_runs_all_notebooks():
    line = ["make", "--dry-run", "-o", ".venv/.installed", "figures"]
    words = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert sorted(re.findall(r"run --executed build/notebooks (\w+)$", words, re.MULTILINE)) == NAMES
