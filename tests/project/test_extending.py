"""Test that the additions of docs/development/extending.md work after one registration."""

from contextlib import chdir
from types import SimpleNamespace

import numpy as np
import pytest
from commands import json_of, judged, refused, typed
from conftest import ROOT
from markdown_it import MarkdownIt

import pro_lib
from pro_lib import plots
from pro_lib.app.experiment import Experiment
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation import methods
from pro_lib.plots import answered, benchmark

PAGE = ROOT / "docs" / "development" / "extending.md"
BLOCKS = [
    token.content
    for token in MarkdownIt("commonmark").parse(PAGE.read_text())
    if token.info == "python"
]


@pytest.fixture
def records(write):
    return write(judged(0, 0.5, 0.25, correct=True), judged(1, 0.4, 0.3, correct=False))


@pytest.fixture
def registered(registries, tmp_path, capsys):
    """Run the block of the page that contains a word."""

    def run(word):
        [block] = [block for block in BLOCKS if word in block]
        with chdir(tmp_path):
            exec(compile(block, str(PAGE), "exec"), {"__name__": "page"})
        return capsys.readouterr().out

    return run


MARGIN = """
def margin(log_probs):
    \"\"\"Minus the distance between the two most probable answers.\"\"\"
    two = log_probs[:, :2]
    return -(two[:, 0] - two[:, -1])
"""


def test_a_registered_score_is_in_every_table_and_figure_of_methods(registered, tmp_path):
    assert "workbench" in registered("register(margin)")
    small = {"model": "facts-1m", "dataset": "world-facts", "limit": 12, "n_validation": None}
    [splits] = Experiment(**small, generations_dir=tmp_path / "runs").splits()
    two = splits.reported.log_probs[:, :2]
    expected = -np.nan_to_num(two[:, 0] - two[:, 1])
    np.testing.assert_allclose(splits.reported.baselines["margin"], expected)
    for table in (benchmark.table([splits]), answered.table([splits])):
        assert "margin" in set(table["method"])
    drawn = benchmark.table([splits])
    assert "margin" in plots.svg_text(benchmark.draw(drawn))


def scored_methods(*words):
    """Return the names of the methods in the JSON of `pro score`."""
    return [row["method"] for row in json_of(*words)["auroc"]]


@pytest.mark.usefixtures("registries")
def test_a_score_in_a_file_is_named_on_the_command_line(records, tmp_path):
    path = tmp_path / "own.py"
    path.write_text(MARGIN)
    assert scored_methods(records, "--methods", f"PRO,{path}:margin") == ["PRO", "margin"]
    assert Experiment(methods=[f"{path}:margin"]).methods == [f"{path}:margin"]


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (MARGIN, "other", "other"),
        (MARGIN.replace("log_probs", "answers"), "margin", "answers"),
        ("1 / 0", "margin", "division by zero"),
        (MARGIN.replace("return -", "return 0 * len"), "margin", "not a number for each"),
        (MARGIN.replace("margin", "PE"), "PE", "PE"),
    ],
)
def test_a_wrong_file_of_a_score_is_named(records, tmp_path, text, name, words):
    path = tmp_path / "own.py"
    path.write_text(text)
    assert words in refused("score", records, "--methods", f"{path}:{name}")


@pytest.mark.usefixtures("registries")
def test_a_score_of_an_installed_package_is_an_entry_point(records, monkeypatch):
    def margin(log_probs):
        return -log_probs[:, 0]

    entry = SimpleNamespace(value="package:margin", load=lambda: margin)
    monkeypatch.setattr(methods, "entry_points", lambda group: [entry])
    methods.load_entry_points.cache_clear()
    assert "margin" in scored_methods(records)
    methods.load_entry_points.cache_clear()


def test_a_new_strategy_is_known_to_experiments_notebooks_and_commands(registered, tmp_path):
    with pytest.raises(SentenceError, match=r"^strategy='similar_beams' is unknown; choose greedy"):
        Experiment(strategy="similar_beams")
    assert "similar_beams" in registered("STRATEGIES[")
    for notebook in ("02_alpha_sweep", "03_k_vs_alpha", "04_fixed_k"):
        assert Experiment(notebook=notebook, strategy="similar_beams").strategy == "similar_beams"
    questions = pro_lib.load_questions("world-facts", split="test", limit=2)
    run = pro_lib.generate("facts-1m", questions, strategy="similar_beams", progress=False)
    assert run.info.strategy == "similar_beams"
    with chdir(tmp_path):
        question = "What is the capital of Peru?"
        typed("ask", question, "--model", "facts-1m", "--strategy", "similar_beams")
