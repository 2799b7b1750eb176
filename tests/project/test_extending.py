"""Test that the additions of docs/development/extending.md work after one registration."""

from contextlib import chdir
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import ROOT
from markdown_it import MarkdownIt

import pro_lib
from pro_lib.app.cli import pro
from pro_lib.app.experiment import Experiment
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation import SCORES, tables
from pro_lib.generation.decoding import STRATEGIES
from pro_lib.scoring.similarity import SIMILARITIES

PAGE = ROOT / "docs" / "development" / "extending.md"
BLOCKS = [
    token.content
    for token in MarkdownIt("commonmark").parse(PAGE.read_text())
    if token.info == "python"
]


@pytest.fixture
def registered(tmp_path, monkeypatch, capsys):
    """Run the block of the page that contains a word, and undo its registration."""
    before = [(registry, dict(registry)) for registry in (SCORES, STRATEGIES, SIMILARITIES)]

    def run(word):
        [block] = [block for block in BLOCKS if word in block]
        with chdir(tmp_path):
            exec(compile(block, str(PAGE), "exec"), {"__name__": "page"})
        return capsys.readouterr().out

    yield run
    for registry, entries in before:
        registry.clear()
        registry.update(entries)


def test_a_new_score_is_in_evaluations_and_the_benchmark(registered, tmp_path):
    assert "margin" in registered("SCORES[")
    [splits, *_] = Experiment(
        limit=30, generations_dir=tmp_path / "runs", n_validation=None
    ).splits()
    assert "margin" in list(tables.benchmark([splits])["method"])
    top_two = splits.reported.log_probs[:, :2]
    expected = -np.nan_to_num(top_two[:, 0] - top_two[:, 1], nan=0.0)
    np.testing.assert_allclose(splits.reported.baselines["margin"], expected)


def test_a_new_strategy_is_known_to_experiments_notebooks_and_commands(registered, tmp_path):
    with pytest.raises(
        SentenceError, match=r"^strategy='similar_beams' is an unknown strategy; choose greedy"
    ):
        Experiment(strategy="similar_beams")
    assert "similar_beams" in registered("STRATEGIES[")
    for notebook in ("02_alpha_sweep", "03_k_vs_alpha", "04_fixed_k"):
        assert Experiment(notebook=notebook, strategy="similar_beams").strategy == "similar_beams"
    questions = pro_lib.load_questions("world-facts", split="test", limit=2)
    run = pro_lib.generate("facts-1m", questions, strategy="similar_beams", progress=False)
    assert run.info.strategy == "similar_beams"
    with chdir(tmp_path):
        words = ["ask", "What is the capital of Peru?", "--model", "facts-1m"]
        asked = CliRunner().invoke(pro, [*words, "--strategy", "similar_beams"])
    assert asked.exit_code == 0, asked.output


def test_a_new_similarity_is_known_by_its_name(registered, monkeypatch):
    with pytest.raises(SentenceError, match=r"^similarity='first_letter' is unknown"):
        Experiment(similarity="first_letter")

    def first_letter(texts, questions):
        raise NotImplementedError

    monkeypatch.setitem(SIMILARITIES, "first_letter", first_letter)
    experiment = replace(Experiment(), similarity="first_letter")
    assert experiment.similarities("facts-2m", "world-facts") == {"first_letter": first_letter}


def test_the_page_names_files_that_exist():
    text = PAGE.read_text()
    for name in (
        "evaluation/methods.py",
        "scoring/similarity.py",
        "generation/decoding/strategies.py",
        "plots/",
    ):
        assert f"`{name}`" in text
        assert (ROOT / "pro_lib" / name).exists()
    for name in (
        "scoring/test_likelihood.py",
        "generation/test_strategies.py",
        "app/parameter_values.py",
    ):
        assert f"`tests/{name}`" in text
        assert (ROOT / "tests" / name).is_file()
