"""Test logs of other packages, samples without log-probabilities, and PRO in other libraries."""

import math
import re
import sys
import types
import zipfile

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from test_likelihood import naive_pro

from pro_lib import evaluation, import_answers
from pro_lib.app import explorer
from pro_lib.app.scored_answers import score_answers
from pro_lib.common.files import RunError
from pro_lib.scoring.similarity import lexical


def test_a_zipped_log_of_inspect_ai_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as log:
        log.writestr("samples/peru_epoch_1.json", "{}")
    with pytest.raises(RunError, match="a zipped log of inspect_ai; convert it"):
        import_answers(tmp_path / "log.eval")


# --- Texts of samples alone ---

# The first question has meanings of 1 and 3 samples.
SAMPLES = {
    "a": ["Oslo", "Rome", "rome.", "Rome"],
    "b": ["Lima"] * 4,
    "c": ["Bern", "Kyiv", "Riga", "Nuuk"],
}
BOX = [
    {
        "question_id": name,
        "references": [right],
        "answers": [{"text": text} for text in SAMPLES[name]],
    }
    for name, right in {"a": "Rome", "b": "Lima", "c": "Tirana"}.items()
]


def test_samples_without_log_probabilities_have_sc_deg_and_se_by_counts():
    run = import_answers(BOX)
    table = score_answers(run).questions
    # The most frequent, by its words; the first of equals
    assert table["text"].tolist() == [
        "Rome",
        "Lima",
        "Bern",
    ]
    np.testing.assert_allclose(table["SC"], [1 / 4, 0, 3 / 4])
    shares = [[1 / 4, 3 / 4], [1], [1 / 4] * 4]
    np.testing.assert_allclose(
        table["SE"], [-sum(p * math.log(p) for p in row) for row in shares], atol=1e-15
    )
    np.testing.assert_allclose(table["Deg"], [1 - sum(p * p for p in row) for row in shares])
    flat = pd.DataFrame(
        [{"question_id": name, "text": text} for name, texts in SAMPLES.items() for text in texts]
    )
    again = score_answers(import_answers(flat)).questions
    pd.testing.assert_frame_equal(again[["SC", "Deg", "SE"]], table[["SC", "Deg", "SE"]])
    judged = evaluation.evaluate(run, samples=run, similarities={"lexical": lexical})
    for name in ("SC", "Deg", "SE"):
        np.testing.assert_array_equal(judged.baselines[f"{name}, lexical"], table[name])
    for call in (lambda: judged.pro(0.4), lambda: explorer.run_data(run)):
        with pytest.raises(RunError, match="log-probabilities"):
            call()


# --- PRO within other libraries ---

RECIPES = re.findall(
    r"```python\n(.*?)```",
    (ROOT / "docs" / "how_to" / "score_in_other_libraries.md").read_text(),
    re.DOTALL,
)


class Estimator:
    """The parts of LM-Polygraph on which the recipe relies."""

    def __init__(self, stats_dependencies, level):
        self.stats_dependencies, self.level = stats_dependencies, level


class LogprobsScorer:
    """The parts of uqlm on which the recipe relies."""

    def extract_logprobs(self, tokens):
        return np.array([token["logprob"] for token in tokens])


def recipe(monkeypatch, module, stand_in):
    """Return the names that a recipe defines, with a substitute for the library's class."""
    library = types.SimpleNamespace(**{stand_in.__name__: stand_in})
    monkeypatch.setitem(sys.modules, module, library)
    names = {}
    exec(next(code for code in RECIPES if f"from {module} import" in code), names)
    return names


def naive(log_probs, alpha):
    probabilities = {math.exp(value) for value in log_probs}
    return naive_pro(probabilities, max(1, sum(p >= alpha for p in probabilities)))


DRAWN = np.random.default_rng(5)
TOKENS = [
    [[-0.8 - float(value) for value in DRAWN.exponential(0.5, 2)] for _ in range(4)]
    for _ in range(50)
]
TOTALS = [[sum(tokens) for tokens in [*row, row[0]]] for row in TOKENS]  # one is drawn twice
EXPECTED = {alpha: [naive(row, alpha) for row in TOTALS] for alpha in (0.02, 0.1)}


@pytest.mark.parametrize("alpha", EXPECTED)
def test_pro_is_an_estimator_of_lm_polygraph(monkeypatch, alpha):
    names = recipe(monkeypatch, "lm_polygraph.estimators.estimator", Estimator)
    estimator, ids = names["PRO"](alpha), [[[n, 1] for n in (0, 1, 2, 3, 0)]] * len(TOTALS)
    assert (str(estimator), estimator.level) == (f"PRO_{alpha:g}", "sequence")
    values = estimator({"sample_tokens": ids, "sample_log_probs": TOTALS})
    np.testing.assert_allclose(values, EXPECTED[alpha], rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", EXPECTED)
def test_pro_is_a_scorer_of_uqlm(monkeypatch, alpha):
    names = recipe(monkeypatch, "uqlm.white_box.baseclass.logprobs_scorer", LogprobsScorer)
    rows = [
        [[{"token": f"{n}", "logprob": v} for v in a] for n, a in enumerate(row)] for row in TOKENS
    ]
    given = {
        "logprobs_results": [row[0] for row in rows],
        "sampled_logprobs_results": [[*r[1:], r[0]] for r in rows],
    }
    scored = names["PROScorer"](alpha).evaluate(
        **given, responses=None, prompts=None, progress_bar=None
    )
    np.testing.assert_allclose(-np.log(scored["pro"]), EXPECTED[alpha], rtol=0, atol=1e-12)
