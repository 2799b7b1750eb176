"""What the project promises about itself: one source of dependencies, layers that stay layers, no heavy import."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "pro_lib").glob("*.py"))
TORCH = {"models", "engine", "strategies", "generate", "semantic"}


def imports(path):
    """Modules of pro_lib and top-level packages that a module imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "pro_lib":
            found |= {f"pro_lib.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            own = node.module.startswith("pro_lib.")
            found.add(node.module if own else node.module.split(".")[0])
    return found


def test_environment_yml_holds_python_pip_and_the_editable_install_only():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["dependencies"] == ["python=3.11", "pip", {"pip": ["-e ."]}]
    assert set(environment) == {"name", "channels", "dependencies"}


def test_dependencies_are_named_in_pyproject_alone_and_torch_stays_a_range():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {requirement.split(">")[0].split("<")[0].split("=")[0] for requirement in project["dependencies"]}
    asked = "jupyterlab torch transformers datasets rouge-score scikit-learn matplotlib seaborn ipywidgets papermill"
    assert names >= {*asked.split(), "ipykernel"}
    assert [r for r in project["dependencies"] if r.startswith("torch")] == ["torch>=2.6"]
    assert not list(ROOT.glob("requirements*.txt"))


def test_the_constraints_pin_every_direct_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    extras = project["optional-dependencies"]
    installed = ("dev", "docs", "embedding", "ray", "browser")
    direct = [*project["dependencies"], *(requirement for name in installed for requirement in extras[name])]
    assert {r.split(">")[0].split("[")[0].lower() for r in direct} <= pinned
    assert not [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "+cpu" in line or "@" in line]


def test_at_most_sixteen_modules_and_each_opens_with_its_contract():
    assert len(MODULES) - 1 <= 16
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text())), path.name


def test_only_the_decoding_layers_import_torch():
    assert {path.stem for path in MODULES if "torch" in imports(path)} <= TORCH


def test_imports_never_form_a_circle():
    graph = {p.stem: {i.removeprefix("pro_lib.") for i in imports(p) if i.startswith("pro_lib.")} for p in MODULES}
    while leaves := [name for name, needs in graph.items() if not needs & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert not graph


@pytest.mark.parametrize(
    "module",
    ["qa", "generations", "scores", "semantic", "metrics", "sweeps", "correctness", "workbench", "figures", "explorer"],
)
def test_importing_what_reads_and_scores_does_not_load_torch(module):
    code = f"import sys, pro_lib; pro_lib.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_function_of_the_design_is_there():
    import pro_lib

    calls = """
        models.load question_sets.load generate.generate run_tables.read imports.from_records scores.pro scores.pro_at_k
        scores.adaptive_k scores.nll scores.predictive_entropy correctness.rouge_l metrics.auroc ask
    """
    for dotted in calls.split():
        target = pro_lib
        for name in dotted.split("."):
            target = getattr(target, name)
        assert callable(target)


def test_the_papers_main_table_is_whole_and_its_averages_come_out():
    import pandas as pd

    table = pd.read_csv(ROOT / "data" / "paper" / "main_table.csv").pivot_table(
        index=["dataset", "model"], columns="method", values="auroc", sort=False
    )
    assert table.shape == (15, 8)
    printed = {
        "SD": 0.709,
        "SE": 0.618,
        "Deg": 0.695,
        "NE": 0.595,
        "PE": 0.600,
        "ALL": 0.646,
        "NLL": 0.715,
        "PRO": 0.739,
    }
    for method, mean in printed.items():
        assert table[method].mean() == pytest.approx(mean, abs=0.001), method


def test_no_notebook_carries_what_a_run_leaves():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        content = json.loads(path.read_text())
        assert all(not cell.get("outputs") for cell in content["cells"]), path.name


def test_the_readmes_python_runs_and_prints_what_it_says(tmp_path):
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", readme, re.DOTALL)
    # Blocks go on where the one before stopped, as a reader who types them would.
    code, printed = ("".join(parts) for parts in zip(*blocks, strict=True))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == printed
    assert len([line for line in blocks[0][0].splitlines() if line]) == 8


def test_every_file_the_readme_names_is_there():
    readme = (ROOT / "README.md").read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", readme):
        assert (ROOT / target).exists(), target
    tree = re.search(r"## What is here\n\n```\n(.*?)```", readme, re.DOTALL).group(1)
    named = set(re.findall(r"^  (\w+\.py)", tree, re.MULTILINE))
    assert named == {path.name for path in MODULES} - {"__init__.py"}
