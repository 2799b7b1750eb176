"""What an installation brings: dependencies by extra, a wheel with all that is bundled, what make installs and says."""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import torch
import yaml
from test_project import FILES, MODULES, ROOT, TORCH, dotted, imported, modules_imported
from waiting import PATIENCE, until

import pro_lib
from pro_lib import bundled
from pro_lib.checks import extra, placing

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
ASKED = "jupyterlab torch transformers datasets rouge-score scikit-learn matplotlib seaborn ipywidgets papermill"
# Modules that load packages of an extra, by their beginning; who needs them imports them late, or says so.
OF_AN_EXTRA = {"figures": "notebooks", "explorer.widget": "notebooks", "endpoint.client": "endpoint"}
# What a requirement is imported as, where that is not its name.
CALLED = {"scikit-learn": {"sklearn"}, "pydantic": {"pydantic", "pydantic_core"}, "papermill": {"papermill", "yaml"}}


def required(*extras, called=True):
    """The packages that the base and these extras require, as they are imported or, else, as they are called."""
    names = set()
    for line in [*PROJECT["dependencies"], *(line for each in extras for line in EXTRAS[each])]:
        name, more = re.fullmatch(r"([\w-]+)(?:\[([\w,-]+)\])?[^\[\]]*", line).groups()
        if name == PROJECT["name"]:
            names |= required(*more.split(","), called=called)
        else:
            names |= CALLED.get(name, {name.replace("-", "_")}) if called else {name}
    return names


def others(names):
    """The packages among dotted names that are neither ours nor of the standard library."""
    return {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"pro_lib"}


def loaded_with(module):
    """The modules of the package that are loaded with this one: what it imports at once, and the rooms these are in."""
    found, new = set(), {module}
    while new:
        found |= new
        new = {other for each in new for other in modules_imported(MODULES[each], everywhere=False)}
        new = (new | {each.rpartition(".")[0] for each in found}) - found - {""}
    return found


def own_extras(module):
    return [each for room, each in OF_AN_EXTRA.items() if f"{module}.".startswith(f"{room}.")]


# ---- Dependencies ---------------------------------------------------------------------------------------------------


def test_the_packages_asked_for_come_with_the_notebooks_and_torch_stays_a_range():
    assert required("notebooks", called=False) >= {*ASKED.split(), "ipykernel"}
    assert [line for line in PROJECT["dependencies"] if line.startswith("torch")] == ["torch>=2.6"]
    assert not list(ROOT.glob("requirements*.txt"))


def test_the_base_is_without_notebooks_figures_servers_and_clusters():
    assert not required() & {"jupyterlab", "ipywidgets", "matplotlib", "datasets", "papermill", "httpx", "ray"}


def test_a_module_loads_the_base_and_the_extra_of_its_room_only():
    beyond = {}
    for module in MODULES.keys() - {""}:
        at_once = {name for each in loaded_with(module) for name, waits, _ in imported(MODULES[each]) if not waits}
        beyond[module] = others(at_once) - required(*own_extras(module))
    assert {module: found for module, found in beyond.items() if found} == {}


def test_what_is_imported_late_is_of_the_base_or_of_the_extra_that_is_said_there():
    for path in FILES:
        for name, _, said in imported(path):
            extras = own_extras(dotted(path)) + ([said] if said else [])
            assert set(extras) <= set(EXTRAS), path
            assert others([name]) <= required(*extras), path


def test_what_lacks_an_extra_says_what_to_install():
    """And what needs none works without; rooms that load torch are left to the trial, since torch takes long."""
    code = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(required("notebooks", "endpoint") - required())}))
import pro_lib
for name in {sorted({module.split(".")[0] for module in MODULES if module} - TORCH - {"figures", "__main__"})}:
    getattr(pro_lib, name)
for call in (
    lambda: pro_lib.figures,
    lambda: pro_lib.explorer.explore(None, None),
    lambda: pro_lib.questions.load("sciq"),
    lambda: pro_lib.endpoint.from_endpoint("http://localhost:8000/v1", None, model="mine"),
):
    try:
        call()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "drawing needs matplotlib: pip install 'pro-workbench[notebooks]'",
        "the explorer in a notebook needs anywidget: pip install 'pro-workbench[notebooks]'",
        "dataset 'sciq' of the hub needs datasets: pip install 'pro-workbench[notebooks]'",
        "asking a server needs anyio: pip install 'pro-workbench[endpoint]'",
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"quantization": "8bit"},
            r"^quantization needs (accelerate|bitsandbytes): .*'pro-workbench\[quantization\]'$",
        ),
        ({"device_map": "auto"}, r"^device_map needs accelerate: pip install 'pro-workbench\[multi-gpu\]'$"),
    ],
)
def test_weights_that_need_an_extra_say_so_too(options, said, monkeypatch):
    for name in ("accelerate", "bitsandbytes"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=said):
        pro_lib.models.load("facts-1m", device="cpu", **options)


def test_with_the_extras_weights_are_placed_as_asked(monkeypatch):
    for name in ("accelerate", "bitsandbytes"):
        monkeypatch.setitem(sys.modules, name, sys)
    options = {"device_map": None, "quantization": None, "dtype": torch.bfloat16}
    assert placing("cpu", **options) == {}
    assert placing("cuda", **options | {"device_map": "auto"}) == {"device_map": "auto"}
    told = placing("cuda", **options | {"quantization": "8bit"})
    assert told["device_map"] == "cuda"
    assert told["quantization_config"].load_in_8bit
    assert told["quantization_config"].bnb_4bit_compute_dtype is torch.bfloat16


def test_another_fault_of_an_import_stays_as_it_is():
    with pytest.raises(ImportError, match="cannot import name 'nothing'"), extra("ray", "this"):
        from json import nothing  # noqa: F401


def test_environment_yml_holds_python_pip_the_constraints_and_the_editable_install_only():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip = {"pip": ["-c constraints.txt", "-e .[notebooks]"]}
    assert environment["dependencies"] == ["python=3.11", "pip", pip]
    assert set(environment) == {"name", "channels", "dependencies"}


def test_the_constraints_pin_every_direct_dependency():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    assert required("test", "docs", "lint", called=False) <= pinned
    assert not [line for line in lines if "+cpu" in line or "@" in line]


def test_the_version_is_written_in_the_package_and_cited():
    assert PROJECT["dynamic"] == ["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == pro_lib.__version__


# ---- The wheel ------------------------------------------------------------------------------------------------------

# Of data/, what only making it anew needs.
SOURCES = re.compile(r"data/(models/train\.py|world_facts/(build.*\.py|relations.*|long\..*))")
MINE = ["data/generations/s/m/run.json", "data/published/rank-calibration/x.json", "data/models/mine/config.json"]
MINE += ["notebooks/Untitled.ipynb", "pro_lib/x.pyc"]
# From an empty folder: a file of log-probabilities is scored, a question asked, and what is made goes there.
FIRST = """
import pro_lib
from pro_lib.settings import Settings

run = pro_lib.imports.from_records("mine.jsonl")
print(pro_lib.scores.pro(run.log_probs(), alpha=0.4).round(3).tolist())
print("{0.text} {0.status}".format(pro_lib.ask(pro_lib.models.load("facts-2m"), "What is the capital of France?")))
settings = Settings(model="facts-1m", limit=2, n_answers=2)
print(settings.run("facts-1m", "world-facts").info.provenance["commit"])
print(pro_lib.__file__)
"""
DRAW = """
import pro_lib
try:
    pro_lib.figures
except ImportError as error:
    print(error)
"""
RECORD = {"question_id": 1, "answers": [{"log_prob": -0.5}, {"log_prob": -2.0}]}


def source(folder):
    """The files that a wheel is made of, and some that must not be in it."""
    names = ["setup.py", "pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "data", "notebooks", "pro_lib"]
    ignored = shutil.ignore_patterns("generations", "__pycache__", ".ipynb_checkpoints")
    for path in map(ROOT.joinpath, names):
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, folder / path.name, **({"ignore": ignored} if path.is_dir() else {}))
    for name in MINE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder


def built(kind, folder, out):
    """The sdist or wheel of a folder, built by the environment's setuptools."""
    code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, out], cwd=folder, capture_output=True, text=True, check=True)
    (made,) = out.glob(f"*.{'whl' if kind == 'wheel' else 'tar.gz'}")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of the sdist of this checkout."""
    folder, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    sdist = built("sdist", source(folder), out)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return built("wheel", unpacked, out)


@pytest.fixture
def workplace(tmp_path):
    """A folder with nothing but log-probabilities, in a repository of somebody's, which environments lie in too."""
    (tmp_path / "work").mkdir()
    for words in ("init -q", "-c user.name=A -c user.email=a@b commit -q --allow-empty -m theirs"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    (tmp_path / "work" / "mine.jsonl").write_text(json.dumps(RECORD) + "\n")
    return tmp_path / "work"


def said(python, *words, cwd):
    """What a program says that runs with an environment's Python, away from this checkout."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([python, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def does_its_first_steps(python, package, workplace):
    before = files_of(package)
    score, answer, commit, where = said(python, "-c", FIRST, cwd=workplace).splitlines()
    # p = 0.607 and 0.135: α = 0.4 keeps the first, and PRO is its NLL.
    assert (score, answer, commit, where) == ("[0.5]", "Paris certified", "None", str(package / "__init__.py"))
    runs = workplace / "data" / "generations" / "world-facts" / "facts-1m"
    assert (runs / "diverse_beam,n_answers=2" / "run.json").is_file()
    assert files_of(package) == before


def installed_in(environment):
    return Path(sysconfig.get_path("purelib", vars={"base": environment}))


def files_of(package):
    return {path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_the_wheel_of_the_sdist_holds_what_is_tracked_and_nothing_of_the_user(wheel):
    names = {name.removeprefix("pro_lib/") for name in zipfile.ZipFile(wheel).namelist()}
    listed = ["git", "ls-files", "-co", "--exclude-standard", "pro_lib", "data", "notebooks"]
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    expected = {name.removeprefix("pro_lib/") for name in tracked if not SOURCES.fullmatch(name)}
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert len([name for name in names if name.endswith(("licenses/LICENSE", "licenses/CITATION.cff"))]) == 2
    assert wheel.stat().st_size <= 16_000_000


def test_an_installed_wheel_does_its_first_steps_in_an_empty_folder(wheel, workplace, tmp_path):
    """With the packages of this environment, but nothing of this checkout."""
    venv.create(tmp_path / "venv", symlinks=True)
    packages = installed_in(tmp_path / "venv")
    pip = ["-m", "pip", "--python", tmp_path / "venv", "install", "--no-deps", "--no-index", wheel]
    said(sys.executable, *pip, cwd=workplace)
    # Paths in a .pth file are added, but what an editable install has put there is not read.
    (packages / "these.pth").write_text(sysconfig.get_path("purelib") + "\n")
    does_its_first_steps(tmp_path / "venv" / "bin" / "python", packages / "pro_lib", workplace)


def test_a_checkout_finds_its_data_beside_the_package():
    assert bundled.CHECKOUT == bundled.ROOT == bundled.HOME == ROOT
    assert bundled.DATA == ROOT / "data"


# ---- What make installs ---------------------------------------------------------------------------------------------

# Stands for Python: becomes the environment's, writes down what pip is asked for, and waits or fails if told so.
PYTHON = """#!/bin/sh
case "$2" in
venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
pip) echo "$*" >>"$0.asked"; echo "Collecting torch"
    while [ -n "$UNTIL" ] && [ ! -e "$UNTIL" ]; do sleep 0.05; done; exit ${CODE:-0} ;;
esac
"""
PACKAGE, NOTEBOOKS, TEST = (
    f"-m pip install --progress-bar off --constraint constraints.txt {words}"
    for words in ("--no-deps --editable .", "pro-workbench[notebooks]", "pro-workbench[test]")
)


@pytest.fixture
def make(tmp_path):
    """Make stamps in this checkout, in an environment of its own whose Python only writes down what it is asked for."""
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)

    def made(*stamps, output=subprocess.PIPE, wait=True, **environment):
        command = ["make", f"VENV={tmp_path}/venv", f"PYTHON={tmp_path}/python"]
        command += [f"{tmp_path}/venv/{stamp}" for stamp in stamps]
        options = {"env": os.environ | environment, "stdout": output, "stderr": output, "text": True}
        return (subprocess.run if wait else subprocess.Popen)(command, cwd=ROOT, **options)

    return made


def asked(folder):
    return (folder / "venv" / "bin" / "python.asked").read_text().splitlines()


def test_make_adds_what_a_target_needs_once_and_anew_when_versions_change(make, tmp_path):
    for stamps, pip in (
        ([".installed"], [PACKAGE, NOTEBOOKS]),
        ([".installed-test"], [PACKAGE, NOTEBOOKS, TEST]),
        ([".installed-test", ".installed"], [PACKAGE, NOTEBOOKS, TEST]),
    ):
        assert make(*stamps).returncode == 0
        assert asked(tmp_path) == pip
    os.utime(tmp_path / "venv" / ".package", (0, 0))
    assert make(".installed").returncode == 0
    assert asked(tmp_path) == [PACKAGE, NOTEBOOKS, TEST, PACKAGE, NOTEBOOKS]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("flock") is None, reason="flock is not installed")
def test_of_two_makes_at_once_one_waits_and_finds_it_done(make, tmp_path):
    said = tmp_path / "said"
    with open(said, "w") as output:
        both = [make(".installed", output=output, wait=False, UNTIL=f"{tmp_path}/go") for _ in range(2)]
        until(lambda: "waiting for another make" in said.read_text())
        (tmp_path / "go").touch()
        assert [each.wait(PATIENCE) for each in both] == [0, 0]
    assert asked(tmp_path) == [PACKAGE, NOTEBOOKS]


def test_a_failed_installation_says_why_and_is_tried_again(make, tmp_path):
    failed = make(".installed", CODE="7")
    assert failed.returncode != 0
    assert "Collecting torch\n" in failed.stdout
    assert make(".installed").returncode == 0
    assert asked(tmp_path) == [PACKAGE, PACKAGE, NOTEBOOKS]


@pytest.mark.slow
def test_on_a_terminal_one_line_shows_that_installation_is_alive(make, tmp_path):
    ours, theirs = pty.openpty()
    installs, said = make(".package", output=theirs, wait=False, UNTIL=f"{tmp_path}/go"), ""
    while "  4 s, " not in said and select.select([ours], [], [], PATIENCE)[0]:
        said += os.read(ours, 10_000).decode()
    (tmp_path / "go").touch()
    assert installs.wait(PATIENCE) == 0
    for each in (ours, theirs):
        os.close(each)
    assert re.search(r"\r\n  2 s, \d+ MB: Collecting torch\x1b\[K\r  4 s, ", said)


# ---- For long -------------------------------------------------------------------------------------------------------


@pytest.mark.trial
def test_a_wheel_in_a_new_environment_draws_a_figure_in_an_empty_folder(wheel, workplace, tmp_path):
    """With the base alone what needs none of the extras, then a notebook; packages come from the network."""
    venv.create(tmp_path / "venv", symlinks=True, with_pip=True)
    python, package = tmp_path / "venv" / "bin" / "python", installed_in(tmp_path / "venv") / "pro_lib"
    install = [python, "-m", "pip", "install", "--constraint", ROOT / "constraints.txt"]
    said(*install, wheel, cwd=workplace)
    does_its_first_steps(python, package, workplace)
    assert (
        said(python, "-c", DRAW, cwd=workplace) == "drawing needs matplotlib: pip install 'pro-workbench[notebooks]'\n"
    )
    said(*install, "pro-workbench[notebooks]", cwd=workplace)  # as the sentence says
    notebook, small = package / "notebooks" / "02_alpha_sweep.ipynb", ["-p", "model", "facts-1m", "-p", "limit", "30"]
    said(python, "-m", "papermill", "--no-progress-bar", notebook, "out.ipynb", *small, cwd=workplace)
    assert len([*workplace.glob("figures/other/*/02_alpha_sweep.png")]) == 1


@pytest.mark.trial
def test_the_readmes_first_screen_does_line_by_line_in_an_empty_folder(tmp_path):
    """But make, which the next trial runs; a bundled model stands for one of the hub."""
    screen = (ROOT / "README.md").read_text().partition("## In Python")[0]
    lines = [line for block in re.findall(r"```sh\n(.*?)```", screen, re.DOTALL) for line in block.splitlines()]
    assert [line.split()[0] for line in lines] == ["pip", "pro", "pro", "pro", "pro", "pro", "pro", "make", "make"]
    subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "pro-workbench"], check=True)
    table = pro_lib.questions.load("world-facts", split="test", limit=60).table
    asked = table[["question_id", "question", "references"]].to_dict("records")
    found = [[row["references"][0], "nobody"][:: n % 3 - 1 or 1] for n, row in enumerate(asked)]  # right, or not, first
    likely = [[{"text": text, "log_prob": -1.0 - n % 7 - k} for k, text in enumerate(of)] for n, of in enumerate(found)]
    answers = [row | {"answers": each} for row, each in zip(asked, likely, strict=True)]
    for name, rows in {"my_questions": asked, "responses": answers}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    venv.create(tmp_path / "venv", symlinks=True, with_pip=True)
    for line in lines[:-2]:
        typed = line.replace("google/gemma-2b", "pro-workbench/data/models/facts-1m")
        said("env", f"PATH={tmp_path}/venv/bin:{os.environ['PATH']}", "sh", "-c", typed, cwd=tmp_path)
    assert {path.name for path in tmp_path.glob("figures/other/*/*.png")} == {"02_alpha_sweep.png", "04_fixed_k.png"}


@pytest.mark.trial
def test_the_readmes_commands_do_on_a_fresh_clone(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OMP_NUM_THREADS")}
    subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "clone"], check=True)
    for target in ("figures", "test"):
        subprocess.run(["make", target], cwd=tmp_path / "clone", env=environment, check=True)
