"""Tests of the audit: the choices, the paired difference, and a run on a bundled model."""

from functools import partial

import audit
import numpy as np
import pandas as pd
import pytest

from pro_lib import metrics


def test_the_fallback_is_the_first_beam_only_where_nothing_is_kept():
    log_probs = np.log([[0.5, 0.2], [0.3, 0.2]])
    score = audit.falling_back_on({id(log_probs): np.log([0.2, 0.1])}, strict=False)
    np.testing.assert_allclose(score(log_probs, alpha=0.4), -np.log([0.5, 0.1]))
    np.testing.assert_allclose(score(log_probs, alpha=0.3), -np.log([0.5, 0.3]))
    strict = audit.falling_back_on({id(log_probs): np.log([0.2, 0.1])}, strict=True)
    np.testing.assert_allclose(strict(log_probs, alpha=0.3), -np.log([0.5, 0.1]))
    several = score(log_probs, alpha=np.array([0.3, 0.4]))
    np.testing.assert_allclose(several.T, [score(log_probs, alpha=a) for a in (0.3, 0.4)])


def test_the_paired_difference_has_the_interval_of_the_jackknife_over_clusters():
    rng = np.random.default_rng(0)
    uncertainty = rng.integers(6, size=(2, 24)).astype(float)
    correct = rng.random((2, 24)) < 0.5
    sides = [
        audit.Row("PRO", "", np.arange(24), *pair)
        for pair in zip(uncertainty, correct, strict=True)
    ]
    clusters = np.arange(24) % 6

    def naive(kept):
        first, second = (
            metrics.auroc(side.uncertainty[kept], side.correct[kept]) for side in sides
        )
        return first - second

    difference, low, high = audit.paired_difference(*sides, clusters)
    assert difference == pytest.approx(naive(np.arange(24)), abs=1e-12)
    squares = sum((naive(clusters != cluster) - difference) ** 2 for cluster in range(6))
    # The quantile of Student's t with 5 degrees of freedom
    half = 2.570582 * np.sqrt(5 / 6 * squares)
    assert (low, high) == pytest.approx((difference - half, difference + half), abs=1e-6)


@pytest.mark.slow
def test_the_audit_runs_on_the_bundled_model_and_differs_where_it_must(
    tmp_path, capsys, monkeypatch
):
    small = partial(audit.Experiment, generations_dir=tmp_path, n_answers=4)
    monkeypatch.setattr(audit, "Experiment", small)
    audit.main(["--model", "facts-1m", "--limit", "60", "--csv", str(tmp_path / "a.csv")])
    table = pd.read_csv(tmp_path / "a.csv")
    assert len(capsys.readouterr().out.splitlines()) == len(table) + 1
    pro = table[table["method"] == "PRO"].set_index("choice")
    oracle = pro.loc["α best on the test questions (oracle)", "auroc"]
    assert oracle >= pro.loc[["this project's", "α = 0.4, not chosen"], "auroc"].max()
    assert table.set_index("choice").loc["of one beam, as released", "auroc"] == 0.5
