import importlib
import json
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import DebertaConfig, PreTrainedTokenizerFast, RobertaConfig

from pro_lib import correctness, meanings, scores, similarities
from pro_lib import questions as question_sets
from pro_lib.similarities import label_order

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
variants = importlib.import_module("variants")

NAN = np.nan
GOLDEN = Path(__file__).parent / "golden" / "polygraph.json"
LOG2 = math.log(2)


def nli_of(rows):
    """One question's NLI probabilities from a square of (entailment, neutral, contradiction)."""
    return np.array([rows], dtype=float)


E, N, C = (0.8, 0.1, 0.1), (0.2, 0.6, 0.2), (0.1, 0.2, 0.7)
# Answers 0 and 1 entail each other; 2 entails 0, but is neutral from 0; 3 contradicts all.
FOUR = nli_of([[E, E, N, C], [E, E, N, C], [E, N, E, C], [C, C, C, E]])


def random_case(rng, n=5, n_answers=5):
    """NLI probabilities and log-probabilities of n questions, some answers missing (NaN), one question empty."""
    nli = rng.dirichlet([0.5, 0.5, 0.5], size=(n, n_answers, n_answers))
    log_probs = np.log(rng.dirichlet(np.ones(n_answers + 1), size=n)[:, :n_answers])
    missing = rng.random((n, n_answers)) < 0.2
    missing[:, 0] = False
    missing[-1] = True
    nli[missing[:, :, None] | missing[:, None, :]] = NAN
    log_probs[missing] = NAN
    return nli, log_probs


CASES = st.integers(0, 10_000).map(lambda seed: random_case(np.random.default_rng(seed)))


def naive_same(nli, rule):
    label = [[int(np.argmax(pair)) for pair in row] for row in nli]

    def same(i, j):
        pair = (label[i][j], label[j][i])
        return {
            "entailment": pair == (0, 0),
            "non_contradiction": 2 not in pair,
            "not_both_neutral": 2 not in pair and pair != (1, 1),
            "either_entailment": 0 in pair,
        }[rule]

    return same


def naive_clusters(there, same, method):
    """Cluster lists, built one answer at a time."""
    found = []
    for i in there:
        if method == "first_member":
            home = next((cluster for cluster in found if same(cluster[0], i)), None)
        else:
            last = max((j for j in there if j < i and same(j, i)), default=None)
            home = next((cluster for cluster in found if last in cluster), None)
        if home is None:
            found.append([i])
        else:
            home.append(i)
    return found


# --- clusters ---


def clusters_by(nli, rule):
    return meanings.clusters(nli if rule == "entailment" else variants.matches(nli, rule))


def test_clusters_by_hand():
    assert meanings.clusters(FOUR).tolist() == [[0, 0, 1, 2]]
    assert clusters_by(FOUR, "non_contradiction").tolist() == [[0, 0, 0, 1]]
    assert clusters_by(FOUR, "either_entailment").tolist() == [[0, 0, 0, 1]]
    # 1 and 2 are neutral both ways, but 0 and 2 are not: the first member decides, the last match does not.
    assert clusters_by(FOUR, "not_both_neutral").tolist() == [[0, 0, 0, 1]]
    neutral = FOUR.copy()
    neutral[0, 2, 0] = N
    assert clusters_by(neutral, "not_both_neutral").tolist() == [[0, 0, 1, 2]]
    assert clusters_by(neutral, "non_contradiction").tolist() == [[0, 0, 0, 1]]


def test_first_member_and_last_match_differ_where_matching_is_not_transitive():
    # 0 matches 1, 1 matches 2, 0 does not match 2: a chain.
    chain = np.array([[[1, 1, 0], [1, 1, 1], [0, 1, 1]]], dtype=float)
    assert meanings.clusters(chain).tolist() == [[0, 0, 1]]
    assert variants.clusters_by_last_match(chain).tolist() == [[0, 0, 0]]


def test_similarities_must_reach_the_threshold_in_both_directions():
    assert meanings.clusters([[[1.0, 0.9], [0.4, 1.0]]]).tolist() == [[0, 1]]
    assert meanings.clusters([[[1.0, 0.9], [0.5, 1.0]]]).tolist() == [[0, 0]]


@given(CASES, st.sampled_from(["entailment", "non_contradiction", "not_both_neutral", "either_entailment"]))
def test_clusters_agree_with_one_answer_at_a_time(case, rule):
    nli, log_probs = case
    last_match = variants.clusters_by_last_match(variants.matches(nli, rule)) if rule != "entailment" else None
    for method, found in (("first_member", clusters_by(nli, rule)), ("last_match", last_match)):
        if found is None:
            continue
        for row, judged, numbers in zip(log_probs, nli, found, strict=True):
            there = np.flatnonzero(~np.isnan(row)).tolist()
            expected = naive_clusters(there, naive_same(judged, rule), method)
            assert numbers[np.isnan(row)].tolist() == [-1] * (len(row) - len(there))
            assert sorted(np.flatnonzero(numbers == c).tolist() for c in range(len(expected))) == sorted(expected)


# --- scores by hand ---


def test_semantic_entropy_by_hand():
    # p = 1/4, 1/4, 1/8, 1/8 in meanings 0, 0, 1, 2: P = 1/2, 1/8, 1/8. In units of log 2, -log P is 1, 3, 3.
    log_probs = np.array([[-2.0, -2.0, -3.0, -3.0]]) * LOG2
    meaning = meanings.clusters(FOUR)
    expected = {
        "kuhn2023": (1 + 3 + 3) / 3,
        "lm_polygraph": (1 + 1 + 3 + 3) / 4,
        # Q = 2/3, 1/6, 1/6
        "farquhar2024": (2 / 3 * math.log2(3 / 2) + 2 / 6 * math.log2(6)),
        "discrete": 1 / 2 * 1 + 2 / 4 * 2,
        "uq_nlg": -math.log2((1 / 2 + 1 / 8 + 1 / 8) / 3),
    }
    assert set(expected) == set(variants.ENTROPIES)
    for variant, value in expected.items():
        result = variants.ENTROPIES[variant](log_probs, meaning)
        np.testing.assert_allclose(result, [value * LOG2], rtol=1e-14, err_msg=variant)


def test_one_certain_meaning_has_no_entropy():
    meaning = np.zeros((1, 2), dtype=int)
    for variant, entropy in variants.ENTROPIES.items():
        assert entropy(np.log([[0.5, 0.5]]), meaning).tolist() == [0.0], variant


def test_degree_by_hand():
    # Entailment sums: rows 0 and 1 0.8 + 0.8 + 0.2 + 0.1, row 2 0.8 + 0.2 + 0.8 + 0.1, row 3 3 * 0.1 + 0.8: 6.8 in all.
    np.testing.assert_allclose(meanings.degree(FOUR), [(16 - 6.8) / 16], rtol=1e-14)
    # A diagonal of 1 adds 4 * 0.2; the release divides by m = 4.
    np.testing.assert_allclose(variants.degree_of_uq_nlg(FOUR[..., 0]), [(16 - 7.6) / 4], rtol=1e-14)
    # Contradiction: 6 pairs with answer 3 at 0.7; of the other ten, three are neutral (0.2), seven entail (0.1).
    contradiction = 6 * 0.7 + 3 * 0.2 + 7 * 0.1
    np.testing.assert_allclose(meanings.degree(1 - FOUR[..., 2]), [contradiction / 16], rtol=1e-14)


def test_temperature_divides_the_logits():
    logits = np.random.default_rng(0).normal(size=(2, 3, 3, 3))
    judged, flattened = (torch.tensor(logits / t).softmax(-1).numpy() for t in (1, 3))
    np.testing.assert_allclose(variants.flattened(judged, 3), flattened, rtol=1e-12)


def test_semantic_density_by_hand():
    # E|v|^2 = contradiction + neutral / 2: 0.15 for E, 0.5 for N, 0.8 for C. Weights 1/2, 1/4, 1/8, 1/8.
    log_probs = np.array([[-1.0, -2.0, -3.0, -3.0]]) * LOG2
    # Both ways from answer 0: 0.15, 0.15, (0.5 + 0.15) / 2, 0.8.
    expected = (0.15 * 4 + 0.15 * 2 + 0.325 * 1 + 0.8 * 1) / 8
    np.testing.assert_allclose(meanings.semantic_density(log_probs, FOUR), [expected], rtol=1e-14)
    # An answer without a log-probability does not count.
    once = np.where([[True, False, True, True]], log_probs, NAN)
    expected = (0.15 * 4 + 0.325 * 1 + 0.8 * 1) / 6
    np.testing.assert_allclose(meanings.semantic_density(once, FOUR), [expected], rtol=1e-14)
    # Forward, with itself at distance 0; answer 1 has a text that came before.
    keep = np.array([[True, False, True, True]])
    lm_polygraph = variants.forward_density(log_probs, FOUR, keep=keep, with_itself=True)
    np.testing.assert_allclose(lm_polygraph, [(0 * 4 + 0.5 * 1 + 0.8 * 1) / 6], rtol=1e-14)
    # Forward, without itself.
    uqlm = variants.forward_density(log_probs, FOUR, with_itself=False)
    np.testing.assert_allclose(uqlm, [(0.15 * 2 + 0.5 * 1 + 0.8 * 1) / 4], rtol=1e-14)


def test_semantic_density_of_similarities_takes_them_for_the_kernel():
    similarity = np.array([[[1.0, 0.5], [0.5, 1.0]]])
    result = meanings.semantic_density(np.log([[0.5, 0.25]]), similarity)
    np.testing.assert_allclose(result, [(0 * 2 + 0.5 * 1) / 3], rtol=1e-14)


def test_what_the_release_calls_deg_is_an_unweighted_dissimilarity():
    # Samples 1, 2, 3 against the answer 0, both ways: 1 - P(entailment) is 0.2, (0.8 + 0.2) / 2, 0.9.
    result = variants.mean_distance(FOUR, np.array([[False, True, True, True]]))
    np.testing.assert_allclose(result, [(0.2 + 0.5 + 0.9) / 3], rtol=1e-14)


# --- scores against the formula, one question at a time ---


@given(CASES)
def test_semantic_entropies_agree_with_the_formulas(case):
    nli, log_probs = case
    meaning = meanings.clusters(nli)
    for variant, entropy in variants.ENTROPIES.items():
        result = entropy(log_probs, meaning)
        for row, numbers, value in zip(log_probs, meaning, result, strict=True):
            members = [row[numbers == c] for c in range(numbers.max() + 1)]
            if not members:
                assert math.isnan(value)
                continue
            masses = [sum(math.exp(x) for x in member) for member in members]
            total = sum(masses)
            expected = {
                "kuhn2023": -sum(map(math.log, masses)) / len(masses),
                "farquhar2024": -sum(m / total * math.log(m / total) for m in masses),
                "discrete": -sum(
                    len(m) / sum(map(len, members)) * math.log(len(m) / sum(map(len, members))) for m in members
                ),
                "lm_polygraph": -sum(len(k) * math.log(m) for k, m in zip(members, masses, strict=True))
                / sum(map(len, members)),
                "uq_nlg": -math.log(total / len(masses)),
            }[variant]
            assert value == pytest.approx(expected, abs=1e-12)


@given(CASES, st.sampled_from([0.0, 0.05, 0.2, 0.4, 1.0]))
def test_pro_and_nll_over_meanings_are_those_of_the_probabilities_added_up(case, alpha):
    nli, log_probs = case
    meaning = meanings.clusters(nli)
    meant = meanings.meaning_log_probs(log_probs, meaning)
    for row, numbers, found in zip(log_probs, meaning, meant, strict=True):
        masses = [sum(math.exp(x) for x in row[numbers == c]) for c in range(numbers.max() + 1)]
        masses = sorted((min(mass, 1.0) for mass in masses), reverse=True)
        assert list(np.exp(found[~np.isnan(found)])) == pytest.approx(masses)
        if masses and sum(masses) <= 1:
            kept = [mass for mass in masses if math.log(mass) >= math.log(alpha or 1e-300)] or masses[:1]
            pro = -math.log(kept[-1]) - sum(mass * math.log(mass / kept[-1]) for mass in kept)
            if all(abs(mass - alpha) > 1e-9 for mass in masses):
                assert scores.pro(found[None], alpha=alpha).item() == pytest.approx(pro, abs=1e-9)
            assert scores.nll(found[None]).item() == pytest.approx(-math.log(masses[0]), abs=1e-9)


def test_a_meaning_holds_at_most_all_the_probability():
    # A repeat counts twice: 0.6 + 0.6. The other meaning keeps its own.
    found = meanings.meaning_log_probs(np.log([[0.6, 0.6, 0.2]]), [[0, 0, 1]])
    np.testing.assert_allclose(np.exp(found[:, :2]), [[1.0, 0.2]])


@given(CASES, st.integers(0, 4))
def test_densities_dissimilarities_and_degrees_agree_with_the_formulas(case, seed):
    nli, log_probs = case
    keep = np.random.default_rng(seed).random(log_probs.shape) < 0.7
    keep[:, 0] = True
    counted = np.where(keep, log_probs, NAN)
    results = {
        "qiu2024": meanings.semantic_density(counted, nli),
        "lm_polygraph": variants.forward_density(log_probs, nli, keep=keep, with_itself=True),
        "uqlm": variants.forward_density(log_probs, nli, keep=keep, with_itself=False),
        "release": variants.mean_distance(nli, keep),
    }
    degrees = meanings.degree(nli)
    for q, row in enumerate(log_probs):
        there = [i for i in range(len(row)) if not math.isnan(row[i])]
        if not there:
            assert math.isnan(degrees[q])
            assert all(math.isnan(values[q]) for values in results.values())
            continue
        mean = sum(1 - (nli[q, i, j, 0] + nli[q, j, i, 0]) / 2 for i in there for j in there) / len(there) ** 2
        assert degrees[q] == pytest.approx(mean, abs=1e-12)
        distance = {(i, j): nli[q, i, j, 2] + nli[q, i, j, 1] / 2 for i in there for j in there}
        kept = [i for i in there if keep[q, i]]
        others = [i for i in kept if i != 0]
        terms = {
            "qiu2024": [(math.exp(row[i]), (distance[0, i] + distance[i, 0]) / 2) for i in kept],
            "uqlm": [(math.exp(row[i]), distance[0, i]) for i in others],
            "lm_polygraph": [(math.exp(row[i]), distance[0, i]) for i in others] + [(math.exp(row[0]), 0)],
            "release": [(1, 1 - (nli[q, 0, i, 0] + nli[q, i, 0, 0]) / 2) for i in kept],
        }
        for name, pairs in terms.items():
            expected = sum(w * d for w, d in pairs) / sum(w for w, _ in pairs) if pairs else NAN
            assert results[name][q] == pytest.approx(expected, abs=1e-12, nan_ok=True), name


@given(CASES, st.randoms(use_true_random=False))
def test_the_order_of_the_answers_matters_only_to_the_clusters(case, random):
    nli, log_probs = case
    others = list(range(1, log_probs.shape[1]))  # the first is the one that some scores compare the others with
    random.shuffle(others)
    order = [0, *others]
    meaning = meanings.clusters(nli)
    shuffled = nli[:, order][:, :, order]
    # To the bit, so that what ties stays a tie.
    np.testing.assert_array_equal(meanings.degree(shuffled), meanings.degree(nli))
    entropies = (
        meanings.semantic_entropy(*case) for case in ((log_probs[:, order], meaning[:, order]), (log_probs, meaning))
    )
    np.testing.assert_array_equal(*entropies)
    densities = (meanings.semantic_density(*case) for case in ((log_probs[:, order], shuffled), (log_probs, nli)))
    np.testing.assert_array_equal(*densities)


@given(CASES)
def test_merging_meanings_never_raises_the_entropy_and_scores_stay_in_range(case):
    nli, log_probs = case
    apart = np.where(np.isnan(log_probs), -1, np.cumsum(~np.isnan(log_probs), axis=1) - 1)
    meaning = meanings.clusters(nli)
    for variant in ("farquhar2024", "discrete", "lm_polygraph"):
        merged, single = (variants.ENTROPIES[variant](log_probs, m)[:-1] for m in (meaning, apart))
        assert (merged <= single + 1e-12).all(), variant
    unit = [
        meanings.degree(nli),
        meanings.semantic_density(log_probs, nli),
    ]
    for values in unit:
        known = values[~np.isnan(values)]
        assert ((known >= 0) & (known <= 1)).all()


def test_no_questions_and_no_answers():
    for n, n_answers in ((0, 3), (2, 0)):
        log_probs = np.full((n, n_answers), NAN)
        for judged in (np.full((n, n_answers, n_answers), NAN), np.full((n, n_answers, n_answers, 3), NAN)):
            meaning = meanings.clusters(judged)
            assert meaning.shape == (n, n_answers)
            results = [meanings.degree(judged), meanings.semantic_entropy(log_probs, meaning)]
            assert all(r.shape == (n,) and np.isnan(r).all() for r in results)


# --- LM-Polygraph ---


def test_the_scores_are_those_of_lm_polygraph():
    golden = json.loads(GOLDEN.read_text())
    nli, expected = np.array(golden["nli"]), golden["scores"]
    tokens, texts = golden["token_log_likelihoods"], golden["texts"]
    totals = np.array([[sum(answer) for answer in row] for row in tokens])
    means = np.array([[sum(answer) / len(answer) for answer in row] for row in tokens])
    samples, sampled = nli[:, 1:, 1:], totals[:, 1:]
    meaning = meanings.clusters(samples)
    sampled_once = np.column_stack([np.ones(len(texts), bool), similarities.distinct([row[1:] for row in texts])])
    ours = {
        "MaximumSequenceProbability": scores.nll(totals[:, :1]),
        "Perplexity": scores.average_log_likelihood(means[:, :1], totals[:, :1]),
        "MonteCarloSequenceEntropy": scores.predictive_entropy_mc(sampled),
        "MonteCarloNormalizedSequenceEntropy": scores.normalized_entropy(means[:, 1:]),
        "SemanticEntropy": variants.mean_over_answers(sampled, meaning),
        "SemanticEntropyEmpirical": variants.discrete_entropy(sampled, meaning),
        "DegMat_NLI_score_entail": meanings.degree(samples),
        "DegMat_NLI_score_contra": meanings.degree(1 - samples[..., 2]),
        "DegMat_Jaccard_score": meanings.degree(variants.jaccard([row[1:] for row in texts])),
        # Theirs is minus the density, ours 1 minus the density.
        "SemanticDensityOutput": variants.forward_density(means, nli, keep=sampled_once, with_itself=True) - 1,
    }
    assert golden["lm_polygraph"].startswith("0.7.")
    assert set(ours) == set(expected)
    assert 1 < meaning.max() < meaning.shape[1] - 1  # the clusters are neither all one nor all apart
    for name, values in ours.items():
        np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-12, err_msg=name)


# --- similarities ---


def test_lexical_is_rouge_l_between_answers():
    # "john adams" and "john quincy adams": F1 0.8 (2/2 and 2/3); "rome" shares nothing; one text is missing.
    judged = similarities.Lexical()([["John Adams", "John Quincy Adams", "Rome", None], ["x", "x", NAN]])
    assert judged.shape == (2, 4, 4)
    np.testing.assert_allclose(judged[0, :3, :3], [[1, 0.8, 0], [0.8, 1, 0], [0, 0, 1]], rtol=1e-15)
    assert np.isnan(judged[0, 3]).all()
    assert np.isnan(judged[0, :, 3]).all()
    np.testing.assert_array_equal(judged[1, :2, :2], np.ones((2, 2)))
    assert np.isnan(judged[1, 2:]).all()


def test_equal_texts_match_even_where_rouge_sees_nothing():
    np.testing.assert_array_equal(similarities.Lexical()([["Москва", "Москва"]]), np.ones((1, 2, 2)))


def test_jaccard_by_hand():
    judged = variants.jaccard([["the Red house", "red house", "blue", ""]])
    np.testing.assert_allclose(judged[0, 0], [1, 2 / 3, 0, 0], rtol=1e-15)


def test_lexical_is_that_of_each_pair_wherever_the_texts_stand():
    rows = [["a b", None, "a c", "a b"], ["d"], []]
    judged = similarities.Lexical()(rows)
    for q, row in enumerate(rows):
        for i, first in enumerate(row):
            for j, second in enumerate(row):
                missing = first is None or second is None
                expected = np.nan if missing else correctness.rouge_l([first], [[second]])[0]
                np.testing.assert_array_equal(judged[q, i, j], expected)


TABLE = pd.DataFrame(
    {
        "question_id": ["us/1", "us/2", "us/6", "capital/us", "money/iq", "money/tn"],
        "relation": ["president"] * 3 + ["capital"] + ["money"] * 2,
        "references": [
            ["George Washington", "Washington"],
            ["John Adams", "Adams"],
            ["John Quincy Adams", "J. Q. Adams"],
            ["Washington, D.C.", "D.C."],
            ["dinar", "Iraqi dinar"],
            ["dinar", "Tunisian dinar"],
        ],
    }
)


def asked(*ids):
    return pd.DataFrame({"question_id": ids, "question": [f"Q {i}?" for i in ids]})


def test_alias_matches_right_answers_wrong_answers_and_spellings():
    answers = ["the washington", "George Washington", "Adams", "John Adams", "J.Q. Adams", "Nixon", "nixon!"]
    judged = similarities.Alias(TABLE)([answers], asked("us/1"))[0]
    np.testing.assert_array_equal(judged, judged.T)
    groups = [{0, 1}, {2, 3}, {4}, {5, 6}]  # "J.Q. Adams" is "j q adams", and so is its reference
    for i in range(7):
        assert set(np.flatnonzero(judged[i])) == next(group for group in groups if i in group)
    assert similarities.Alias(TABLE)([["J. Q. Adams", "John Quincy Adams"]], asked("us/2"))[0, 0, 1] == 1


def test_alias_knows_names_of_the_same_relation_only():
    judged = similarities.Alias(TABLE)([["Washington", "Washington, D.C.", "D.C."]] * 2, asked("us/2", "capital/us"))
    assert judged[0, 1, 2] == 0  # no names of a president
    assert judged[1, 1, 2] == 1
    assert judged[:, 0, 1].tolist() == [0, 0]


def test_an_accepted_answer_never_matches_one_that_is_not():
    answers = ["dinar", "Iraqi dinar", "Tunisian dinar"]
    judged = similarities.Alias(TABLE)([answers] * 2, asked("money/tn", "money/iq"))
    np.testing.assert_array_equal(judged[0], [[1, 0, 1], [0, 1, 0], [1, 0, 1]])
    np.testing.assert_array_equal(judged[1], [[1, 1, 0], [1, 1, 0], [0, 0, 1]])


def test_alias_without_relations_compares_accepted_names_only():
    table = TABLE.drop(columns="relation")
    judged = similarities.Alias(table)([["Adams", "John Adams"]] * 2, asked("us/2", "us/1"))
    assert judged[:, 0, 1].tolist() == [1, 0]


def test_alias_reads_the_bundled_questions():
    table = question_sets.load("world-facts", split=["train_shots", "validation", "test"], n_shots=0).table
    questions = table[table["references"].str.len() > 1].head(200)
    judged = similarities.Alias(table)([[*names[:2], "no such name"] for names in questions["references"]], questions)
    assert (judged[:, 0, 1] == 1).all()
    assert (judged[:, :2, 2] == 0).all()


def test_alias_refuses_what_it_cannot_look_up():
    with pytest.raises(ValueError, match=r"^the alias table has no question 'us/9' \(1 are missing\)$"):
        similarities.Alias(TABLE)([["a"], ["b"]], asked("us/1", "us/9"))
    with pytest.raises(ValueError, match="alias needs questions"):
        similarities.Alias(TABLE)([["a"]], None)


def test_names_match_as_normalised_and_by_themselves_where_nothing_is_left():
    judged = similarities.Alias(TABLE)([["The  Beatles", "beatles!", "???", "!!!", "", "A", "a"]], asked("us/1"))[0]
    same = [[0, 1], [2], [3], [4], [5, 6]]
    assert [np.flatnonzero(row).tolist() for row in judged] == [group for group in same for _ in group]


# --- NLI ---

LABEL_ORDERS = {
    "contradiction first": {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"},
    "entailment first": {0: "entailment", 1: "neutral", 2: "contradiction"},
}
ANSWERS = [["Paris", "the city of Paris", "Rome"], ["Austen", None, "Austen", "J. Austen"]]
QUESTIONS = pd.DataFrame({"question": ["What is the capital of France?", "Who wrote Emma?"]})
SMALL = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.35,  # so that pairs are judged differently
}


def pair_tokenizer():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["What is the capital of France? Paris", "Who wrote Emma? Jane Austen"], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    names |= {"cls_token": "<s>", "sep_token": "</s>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **names
    )


def save_classifier(family, folder, id2label):
    """A tiny random model of the family, whose three outputs mean what id2label says."""
    tokenizer = pair_tokenizer()
    ids = {"vocab_size": len(tokenizer), "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    labels = {"id2label": id2label, "label2id": {label: i for i, label in id2label.items()}}
    config = {
        "deberta": lambda: DebertaConfig(
            **SMALL, **ids, **labels, relative_attention=True, pos_att_type=["c2p", "p2c"], type_vocab_size=0
        ),
        "roberta": lambda: RobertaConfig(**SMALL, **ids, **labels, type_vocab_size=1),
    }[family]()
    torch.manual_seed(3)
    network = transformers.AutoModelForSequenceClassification.from_config(config)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory):
    root = tmp_path_factory.mktemp("nli")
    return {
        (family, order): save_classifier(family, root / f"{family} {order}", id2label)
        for family in ("deberta", "roberta")
        for order, id2label in LABEL_ORDERS.items()
    }


@pytest.fixture
def counted(monkeypatch):
    """The pairs that reach a network."""
    pairs = []
    original = similarities.Nli._computed

    def counting(self, wanted, order):
        pairs.extend(wanted)
        return original(self, wanted, order)

    monkeypatch.setattr(similarities.Nli, "_computed", counting)
    return pairs


@pytest.mark.parametrize("family", ["deberta", "roberta"])
def test_nli_agrees_with_one_pair_at_a_time_whatever_the_labels_order(classifiers, family):
    judged = {}
    for order, id2label in LABEL_ORDERS.items():
        folder = classifiers[family, order]
        judged[order] = similarities.Nli(folder, device="cpu", batch_size=3)(ANSWERS, QUESTIONS)
        network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        place = {label.lower(): i for i, label in id2label.items()}
        for q, row in enumerate(ANSWERS):
            for i, first in enumerate(row):
                for j, second in enumerate(row):
                    if first is None or second is None:
                        assert np.isnan(judged[order][q, i, j]).all()
                        continue
                    texts = [f"{QUESTIONS['question'][q]} {text}" for text in (first, second)]
                    with torch.no_grad():
                        probs = network(**tokenizer(*texts, return_tensors="pt")).logits[0].softmax(-1)
                    expected = [float(probs[place[label]]) for label in similarities.LABELS]
                    if first == second:
                        expected = [1, 0, 0]  # without asking
                    np.testing.assert_allclose(judged[order][q, i, j], expected, rtol=0, atol=1e-5)
    first, second = judged.values()
    # The same outputs, read by the other order, are the probabilities backwards.
    apart = first[..., 0] < 1
    assert apart.sum() == 6 + 4
    np.testing.assert_allclose(first[apart], second[apart][:, ::-1], rtol=0, atol=1e-6)
    spread = first[apart].std(axis=0)
    assert (spread > 0.01).all()  # the pairs are told apart, so mixing them up would show
    assert first.shape == (2, 4, 4, 3)


def test_questions_are_part_of_the_texts_where_asked_for(classifiers, counted):
    folder = classifiers["roberta", "entailment first"]
    similarities.Nli(folder, device="cpu")([["Rome", "Paris"]], QUESTIONS[:1])
    similarities.Nli(folder, device="cpu")([["Rome", "Paris"]])
    prefix = "What is the capital of France? "
    alone = [("Paris", "Rome"), ("Rome", "Paris")]
    assert counted == [(prefix + a, prefix + b) for a, b in alone] + alone


def test_each_ordered_pair_is_computed_once_and_kept_on_disk(classifiers, counted, tmp_path, monkeypatch):
    folder = classifiers["deberta", "contradiction first"]
    answers = [["Rome", "Paris", "Rome"], ["Paris", "Rome", "Oslo"]]
    judge = similarities.Nli(folder, device="cpu", cache=tmp_path / "run")
    first = judge(answers)
    assert sorted(counted) == sorted(
        (a, b) for a in ("Rome", "Paris", "Oslo") for b in ("Rome", "Paris", "Oslo") if a != b
    )
    np.testing.assert_array_equal(judge(answers), first)
    assert len(counted) == 6

    def refuse(*args, **kwargs):
        raise AssertionError("weights are loaded though every pair is known")

    with monkeypatch.context() as patched:
        patched.setattr(transformers.AutoModelForSequenceClassification, "from_pretrained", refuse)
        np.testing.assert_array_equal(similarities.Nli(folder, cache=tmp_path / "run")(answers), first)
    later = similarities.Nli(folder, device="cpu", cache=tmp_path / "run")([["Rome", "Paris", "Bern"]])
    assert sorted(counted[6:]) == [("Bern", "Paris"), ("Bern", "Rome"), ("Paris", "Bern"), ("Rome", "Bern")]
    np.testing.assert_array_equal(later[0, :2, :2], first[0, :2, :2])
    stored = [path.name for path in (tmp_path / "run").iterdir()]
    assert len(stored) == 1
    assert list(pd.read_parquet(tmp_path / "run" / stored[0])) == ["premise", "hypothesis", *similarities.LABELS]
    assert len(pd.read_parquet(tmp_path / "run" / stored[0])) == 10


def test_two_similarities_share_what_is_on_disk(classifiers, counted, tmp_path):
    folder = classifiers["roberta", "contradiction first"]
    here, there = (similarities.Nli(folder, device="cpu", cache=tmp_path) for _ in range(2))
    here([["Rome", "Paris"]])
    there([["Rome", "Oslo"]])
    here([["Rome", "Oslo"]])
    assert len(counted) == 4
    (path,) = tmp_path.glob("*.parquet")
    assert len(pd.read_parquet(path)) == 4


def test_another_model_has_another_cache(classifiers, counted, tmp_path):
    for folder in classifiers.values():
        similarities.Nli(folder, device="cpu", cache=tmp_path)([["Rome", "Paris"]])
    assert len(counted) == 8
    assert len(list(tmp_path.glob("nli-*.parquet"))) == 4


def test_equal_texts_entail_each_other_without_asking(classifiers, counted):
    judged = similarities.Nli(classifiers["roberta", "entailment first"], device="cpu")([["Rome", "Rome"]])
    assert judged.tolist() == [[[[1.0, 0.0, 0.0]] * 2] * 2]
    assert counted == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:100]),
        lambda path: path.write_bytes(b""),
        lambda path: pd.read_parquet(path).assign(neutral=0.5).to_parquet(path),
        lambda path: pd.read_parquet(path).drop(columns="neutral").to_parquet(path),
        lambda path: pd.read_parquet(path).assign(premise=5).to_parquet(path),
    ],
)
def test_a_damaged_cache_is_named(classifiers, tmp_path, damage):
    folder = classifiers["roberta", "entailment first"]
    similarities.Nli(folder, device="cpu", cache=tmp_path)([["Rome", "Paris"]])
    (path,) = tmp_path.glob("*.parquet")
    damage(path)
    with pytest.raises(ValueError, match=rf"^{path} (is missing or damaged|was cut short or altered).*; delete it"):
        similarities.Nli(folder, device="cpu", cache=tmp_path)([["Rome", "Paris"]])


@pytest.mark.parametrize(
    "labels", [["LABEL_0", "LABEL_1", "LABEL_2"], ["entailment", "not_entailment"], ["entailment", "neutral"]]
)
def test_labels_that_are_not_those_of_nli_are_refused(labels):
    with pytest.raises(ValueError, match=r"^some/model has the labels \[.*\], not entailment, neutral, contradiction$"):
        label_order(dict(enumerate(labels)), "some/model")


def test_labels_are_found_whatever_their_order_and_case():
    assert label_order({0: "Neutral", 1: "CONTRADICTION", 2: "entailment "}, "m") == [2, 0, 1]


def test_a_pair_longer_than_the_model_sees_is_refused(classifiers):
    folder = classifiers["roberta", "entailment first"]
    with pytest.raises(ValueError, match=r"^a pair of answers has \d+ tokens, but .* sees 62$"):
        similarities.Nli(folder, device="cpu")([["x" * 80, "y"]])


# --- what is refused ---


def test_similarities_have_names():
    assert isinstance(similarities.similarity("lexical"), similarities.Lexical)
    assert similarities.similarity("nli", model="some/model").model == "some/model"
    with pytest.raises(ValueError, match=r"^similarity 'rouge' is unknown; choose lexical, alias, nli$"):
        similarities.similarity("rouge")


def test_distinct_marks_first_occurrences():
    answers = [["a", "b", "a", None, "b"], ["c", "c"]]
    assert similarities.distinct(answers).tolist() == [[True, True, False, False, False], [True] + [False] * 4]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: similarities.Lexical()([["a"], "bc"]), "answers row 1 must hold texts"),
        (lambda: similarities.Lexical()([["a", 3]]), "answers row 0 must hold texts"),
        (lambda: similarities.Lexical()([["a"]], QUESTIONS), "answers has 1 rows, but questions 2"),
        (lambda: meanings.semantic_density([[-1.0] * 3], FOUR), r"log_probs has the shape \(1, 3\), but the answers"),
        (
            lambda: meanings.semantic_entropy([[-1.0, -2.0]], [[0, -1]]),
            r"log_probs\[0, 1\] is -2.0, but it must be finite",
        ),
        (lambda: meanings.semantic_density([[-1.0] * 3 + [0.5]], FOUR), r"log_probs\[0, 3\] is 0.5, but it must be"),
        (lambda: meanings.degree(np.ones((2, 3))), r"compared must have the shape \(n, N, N\)"),
        (lambda: meanings.degree(np.ones((2, 3, 4))), r"compared must have the shape \(n, N, N\)"),
        (
            lambda: meanings.degree([[[1.0, 2.0], [0.0, 1.0]]]),
            r"compared\[0, 0, 1\] is 2.0, but it must be a similarity",
        ),
        (
            lambda: meanings.degree([[[1.0, NAN], [0.0, 1.0]]]),
            r"compared\[0, 0, 1\] is nan, but it must be a similarity",
        ),
        (lambda: meanings.degree(FOUR * 0.9), r"compared\[0, 0, 0\] is"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


def test_an_nli_model_that_cannot_be_had_is_one_sentence(tmp_path):
    with pytest.raises(
        ValueError, match=r"NLI model '.*nowhere' could not be loaded: .*\(alias and lexical need no model\)"
    ):
        similarities.Nli(model=str(tmp_path / "nowhere"))([["a", "b"]])


def test_code_that_ships_with_a_model_is_not_run_and_nobody_is_asked(tmp_path, monkeypatch):
    """Transformers asks at a prompt where it is not told, and `y` ran the code."""
    ran = tmp_path / "ran"
    config = {"model_type": "own-code", "auto_map": {"AutoConfig": "configuration_own.OwnConfig"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    code = f"from pathlib import Path\nfrom transformers import BertConfig\nPath({str(ran)!r}).touch()\n"
    code += "class OwnConfig(BertConfig):\n    model_type = 'own-code'\n"
    (tmp_path / "configuration_own.py").write_text(code)
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(ValueError, match=r"NLI model .* could not be loaded: "):
        similarities.Nli(tmp_path, device="cpu")([["Rome", "Paris"]])
    assert not ran.exists()


def test_an_nli_model_without_its_head_is_refused(classifiers, tmp_path):
    """Transformers would make the head up at random, and every load would say something else."""
    folder = shutil.copytree(next(iter(classifiers.values())), tmp_path / "headless")
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("classifier.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"NLI model '.*headless' lacks weights: classifier\.bias, classifier"):
        similarities.Nli(folder, device="cpu")([["Rome", "Paris"]])
