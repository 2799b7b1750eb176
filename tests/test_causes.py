"""Why PRO differs from NLL: gains and their changes by hand, and causes that are there and are not."""

import numpy as np
import pandas as pd
import pytest
from pro_lib.tables import conclusions

from pro_lib import evaluation, imports, metrics, scores, tables


def records(n, seed=0, *, texts=True, ending=None):
    """Three answers to a question, the second now and then the first again; sure ones are right more often."""
    rng, made = np.random.default_rng(seed), []
    for number in range(n):
        first = rng.uniform(0.2, 0.8)
        probs = [first, *rng.dirichlet([1, 1]) * (1 - first) * 0.9]
        lengths = rng.integers(1, 4, 3)
        right = rng.random() < first
        answers = [
            {"log_prob": np.log(p), "mean_log_prob": np.log(p) / length, "rouge_l": float(right and not at)}
            for at, (p, length) in enumerate(zip(probs, lengths, strict=True))
        ]
        answers = [*answers, answers[0]] if number % 3 == 0 else answers
        if texts:
            answers = [each | {"text": f"answer {each['log_prob']:.9f}"} for each in answers]
        answers = [each if ending is None else each | {"end_log_prob": ending * first} for each in answers]
        made.append({"question_id": number, "answers": answers})
    return imports.from_records(made)


def table_of(run):
    judged = evaluation.evaluate(run)
    return judged, tables.causes_table(judged, run).set_index(["cause", "score"])


def test_the_table_says_of_what_data_it_is_so_that_its_figure_can_say_what_that_lacks():
    judged, table = table_of(records(40))
    assert (table[list(judged.labels())] == list(judged.labels().values())).all(axis=None)


def gain(log_probs, correct, k):
    return metrics.auroc(scores.pro_at_k(log_probs, k), correct) - metrics.auroc(scores.nll(log_probs), correct)


def test_gains_and_changes_are_those_of_scores_made_anew():
    judged, table = table_of(records(200))
    found, correct = judged.log_probs, judged.correct
    at = table.loc[("as it is", "K = 2")]
    assert at["gain"] == pytest.approx(gain(found, correct, 2))
    assert (table.loc["as it is", "change"] == 0).all()
    pair = pd.DataFrame({"NLL": scores.nll(found), "PRO": scores.pro_at_k(found, 2)})
    low, high = metrics.differences(pair, correct, reference="NLL").interval()
    assert at["gain_low"] == pytest.approx(low[1], abs=2e-3)
    assert at["gain_high"] == pytest.approx(high[1], abs=2e-3)
    made_1 = found - np.log(np.nansum(np.exp(found), axis=1, keepdims=True))
    at = table.loc[("mass made 1", "K = 5")]
    assert at["gain"] == pytest.approx(gain(made_1, correct, 5))
    assert at["nll"] == pytest.approx(metrics.auroc(scores.nll(made_1), correct))
    assert at["change"] == pytest.approx(at["gain"] - table.loc[("as it is", "K = 5"), "gain"])
    assert at["low"] < at["change"] < at["high"]


def test_pairs_of_one_length_against_counting_them():
    judged, table = table_of(records(60))
    nll, pro = judged.baselines["NLL"].to_numpy(), scores.pro_at_k(judged.log_probs, 2)
    lengths, won, n = np.rint(nll / judged.baselines["ALL"]).to_numpy(), np.zeros(2), 0
    for wrong in np.flatnonzero(~judged.correct):
        for right in np.flatnonzero(judged.correct):
            if lengths[wrong] == lengths[right]:
                n += 1
                won += [of[wrong] > of[right] for of in (nll, pro)]
    at = table.loc[("pairs of one length", "K = 2")]
    assert at["nll"] == pytest.approx(won[0] / n)
    assert at["gain"] == pytest.approx((won[1] - won[0]) / n)


def test_what_cannot_be_removed_is_a_row_without_a_value():
    _, with_texts = table_of(records(60))
    _, without = table_of(records(60, texts=False))
    _, ended = table_of(records(60, texts=False, ending=-0.5))
    missing = [{cause for cause, score in of.index if pd.isna(score)} for of in (with_texts, without, ended)]
    never = {"spellings merged", "endings left out"}
    assert missing == [never | {"near-repeats merged"}, never, {"spellings merged"}]
    assert {cause for cause, _ in without.index} == {cause for cause, _ in with_texts.index}
    assert ended.loc[("endings left out", "K = 2"), "change"] != 0


def test_removing_a_cause_that_is_all_there_is_takes_the_gain_away():
    """Right answers are those with a likely rival: PRO_2 alone sees it, and cutting the tail off takes it away."""
    rng, made = np.random.default_rng(0), []
    for number in range(200):
        right, first = bool(rng.random() < 0.5), rng.uniform(0.5, 0.6)
        answers = [{"log_prob": np.log(p), "mean_log_prob": np.log(p), "rouge_l": float(right)} for p in
                   (first, rng.uniform(0.005, 0.009) if right else rng.uniform(0.001, 0.002))]  # fmt: skip
        made.append({"question_id": number, "answers": answers})
    _, table = table_of(imports.from_records(made))
    assert table.loc[("as it is", "K = 2"), "gain_low"] > 0.2
    assert table.loc[("tail below 0.01 left out", "K = 2"), "gain"] == 0
    assert table.loc[("tail below 0.01 left out", "K = 2"), "high"] < 0


def test_what_places_add_is_the_whole_gain():
    judged, _ = table_of(records(200))
    places = tables.places_table(judged, k=2)
    assert places["n"].sum() == 200
    assert set(places["answer"]) == {"right", "wrong"}
    assert places["gain"].sum() == pytest.approx(gain(judged.log_probs, judged.correct, 2))


def test_the_three_sentences_say_the_numbers_of_the_tables():
    run = records(120)
    judged, _ = table_of(run)
    causes, regrets = tables.causes_table(judged, run), tables.regret_table([judged], n_redraws=5)
    worlds = pd.DataFrame({"panel": ["sharpness", "spellings"], "level": ["1.0", "5"], "score": "K = 2"})
    worlds = worlds.assign(gain=[-0.012, 0.034], low=[-0.02, 0.03], high=[0.0, 0.04])
    first, second, third = conclusions.helps(worlds, causes, regrets).split("\n\n")
    assert first.startswith("In 1 of 2 worlds")
    assert "most in spellings 5 (K = 2, +0.034)" in first
    assert first.endswith("the difference is -0.012.")
    assert "spellings merged, near-repeats merged, endings left out cannot be had on this data" in second
    regret = regrets.set_index("policy").loc["the rule"]
    assert f"the rule {regret['regret']:.4f}" in third
    assert f"takes PRO in {regret['took']:.0%} of the redraws" in third
    below = conclusions.helps(worlds.assign(low=-0.1), causes, regrets)
    assert below.startswith("In 0 of 2 worlds")
