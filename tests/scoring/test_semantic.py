import itertools
import json
import re
import shutil
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
import variants
from conftest import ROOT, ship_code
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from pro_lib import metrics, scoring
from pro_lib.common import catalog

NAN = np.nan
GOLDEN = ROOT / "tests" / "golden" / "polygraph.json"


def random_case(rng, n=5, n_answers=5):
    """Return NLI probabilities and log-probabilities of n questions.

    Some answers are missing (NaN), and the last question has none.
    """
    nli = rng.dirichlet([0.5, 0.5, 0.5], size=(n, n_answers, n_answers))
    log_probs = np.log(rng.dirichlet(np.ones(n_answers + 1), size=n)[:, :n_answers])
    missing = rng.random((n, n_answers)) < 0.2
    missing[:, 0] = False
    missing[-1] = True
    nli[missing[:, :, None] | missing[:, None, :]] = NAN
    log_probs[missing] = NAN
    return nli, log_probs


CASES = st.integers(0, 10_000).map(lambda seed: random_case(np.random.default_rng(seed)))


def naive_clusters(there, label):
    """Return cluster lists, built one answer at a time.

    An answer joins the first cluster whose first member entails it and is entailed by it.
    """
    clusters = []
    for i in there:
        homes = [
            cluster for cluster in clusters if label[cluster[0], i] == label[i, cluster[0]] == 0
        ]
        clusters += [] if homes else [[]]
        (homes or clusters[-1:])[0].append(i)
    return clusters


def test_similarities_must_reach_the_threshold_in_both_directions():
    pairs = [[[1.0, 0.9], [0.4, 1.0]], [[1.0, 0.9], [0.5, 1.0]]]
    assert scoring.clusters(pairs).tolist() == [[0, 1], [0, 0]]


@given(CASES)
def test_clusters_agree_with_one_answer_at_a_time(case):
    for row, judged, numbers in zip(case[1], case[0], scoring.clusters(case[0]), strict=True):
        expected = naive_clusters(np.flatnonzero(~np.isnan(row)).tolist(), judged.argmax(axis=-1))
        assert (numbers[np.isnan(row)] == -1).all()
        assert [np.flatnonzero(numbers == c).tolist() for c in range(len(expected))] == expected


@given(CASES)
def test_probabilities_of_meanings_and_semantic_entropies_agree_with_the_formulas(case):
    nli, log_probs = case
    meaning = scoring.clusters(nli)
    meant = np.exp(scoring.meaning_log_probs(log_probs, meaning))
    entropy = scoring.semantic_entropy(log_probs, meaning)
    by_kuhn = variants.mean_over_meanings(log_probs, meaning)
    for q, (row, numbers) in enumerate(zip(log_probs[:-1], meaning[:-1], strict=True)):
        masses = np.array([np.exp(row[numbers == c]).sum() for c in range(numbers.max() + 1)])
        shares = masses / masses.sum()
        assert meant[q][~np.isnan(meant[q])] == pytest.approx(sorted(masses, reverse=True))
        assert entropy[q] == pytest.approx(-(shares * np.log(shares)).sum(), abs=1e-12)
        assert by_kuhn[q] == pytest.approx(-np.log(masses).mean(), abs=1e-12)
    assert np.isnan([*meant[-1], entropy[-1], by_kuhn[-1]]).all()


@given(CASES, st.integers(0, 4))
def test_densities_dissimilarities_and_degrees_agree_with_the_formulas(case, seed):
    nli, log_probs = case
    keep = np.random.default_rng(seed).random(log_probs.shape) < 0.7
    keep[:, 0] = True
    degree = scoring.degree(nli)
    density = scoring.semantic_density(np.where(keep, log_probs, NAN), nli)
    of_release = variants.mean_distance(nli, keep)
    for q, row in enumerate(log_probs[:-1]):
        present = ~np.isnan(row)
        entails = nli[q, :, :, 0]
        assert degree[q] == pytest.approx(np.nanmean(1 - entails), abs=1e-12)
        kept = present & keep[q]
        distance = nli[q, :, :, 2] + nli[q, :, :, 1] / 2
        from_first = (distance[0] + distance[:, 0])[kept] / 2
        expected = np.average(from_first, weights=np.exp(row[kept]))
        assert density[q] == pytest.approx(expected, abs=1e-12)
        expected = (1 - (entails[0] + entails[:, 0])[kept] / 2).mean()
        assert of_release[q] == pytest.approx(expected, abs=1e-12)
    assert np.isnan([degree[-1], density[-1], of_release[-1]]).all()


@given(CASES, st.permutations(range(1, 5)))
def test_the_order_of_the_answers_matters_only_to_the_clusters(case, others):
    nli, log_probs = case
    order = [0, *others]  # the first is the one that some scores compare the others with
    meaning = scoring.clusters(nli)
    moved = nli[:, order][:, :, order]
    moved_probs = log_probs[:, order]
    # To the bit, so that what ties stays a tie.
    for score, change in (
        (
            scoring.semantic_entropy(log_probs, meaning),
            scoring.semantic_entropy(moved_probs, meaning[:, order]),
        ),
        (scoring.degree(nli), scoring.degree(moved)),
        (scoring.semantic_density(log_probs, nli), scoring.semantic_density(moved_probs, moved)),
    ):
        np.testing.assert_array_equal(change, score)


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0), (0, 3, 3, 3), (2, 0, 0, 3)])
def test_no_questions_and_no_answers(shape):
    judged = np.full(shape, NAN)
    meaning = scoring.clusters(judged)
    assert meaning.shape == shape[:2]
    entropy = scoring.semantic_entropy(np.full(shape[:2], NAN), meaning)
    for values in (scoring.degree(judged), entropy):
        np.testing.assert_array_equal(values, np.full(shape[0], NAN))


def test_the_scores_are_those_of_lm_polygraph():
    golden = json.loads(GOLDEN.read_text())
    nli, expected = np.array(golden["nli"]), golden["scores"]
    tokens, texts = golden["token_log_likelihoods"], golden["texts"]
    totals = np.array([[sum(answer) for answer in row] for row in tokens])
    means = np.array([[sum(answer) / len(answer) for answer in row] for row in tokens])
    samples, sampled = nli[:, 1:, 1:], totals[:, 1:]
    meaning = scoring.clusters(samples)
    sampled_once = np.column_stack(
        [np.ones(len(texts), bool), scoring.first_occurrences([row[1:] for row in texts])]
    )
    ours = {
        "MaximumSequenceProbability": scoring.nll(totals[:, :1]),
        "Perplexity": scoring.average_log_likelihood(means[:, :1], totals[:, :1]),
        "MonteCarloSequenceEntropy": scoring.predictive_entropy_mc(sampled),
        "MonteCarloNormalizedSequenceEntropy": scoring.normalized_entropy(means[:, 1:]),
        "SemanticEntropy": variants.mean_over_answers(sampled, meaning),
        "SemanticEntropyEmpirical": variants.discrete_entropy(sampled, meaning),
        "DegMat_NLI_score_entail": scoring.degree(samples),
        "DegMat_NLI_score_contra": scoring.degree(1 - samples[..., 2]),
        "DegMat_Jaccard_score": scoring.degree(variants.jaccard([row[1:] for row in texts])),
        # Theirs is minus the density, ours 1 minus the density.
        "SemanticDensityOutput": variants.forward_density(means, nli, keep=sampled_once) - 1,
    }
    assert golden["lm_polygraph"].startswith("0.7.")
    assert set(ours) == set(expected)
    # The clusters are neither all one nor all apart
    assert 1 < meaning.max() < meaning.shape[1] - 1
    for name, values in ours.items():
        np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-12, err_msg=name)


def test_lexical_is_that_of_each_pair_wherever_the_texts_stand():
    row = ["John Adams", None, "John Quincy Adams", "John Adams"]
    judged = scoring.lexical([row, ["d", NAN], []])
    assert judged.shape == (3, 4, 4)
    f1 = metrics.rouge_l_between(row[:1], row[2:3])[0]
    expected = [[1, NAN, f1, 1], [NAN] * 4, [f1, NAN, 1, f1], [1, NAN, f1, 1]]
    np.testing.assert_array_equal(judged[0], expected)
    assert judged[1, 0, 0] == 1
    assert np.isnan(judged).sum() == 7 + 15 + 16
    assert scoring.lexical([["Москва", "Москва"]]).min() == 1  # equal, though ROUGE sees nothing


NAMES = [
    ("president", "us/1", ["George Washington", "Washington"]),
    ("president", "us/2", ["John Adams", "Adams"]),
    ("president", "us/6", ["John Quincy Adams", "J. Q. Adams"]),
    ("capital", "capital/us", ["Washington, D.C.", "D.C."]),
    ("money", "money/iq", ["dinar", "Iraqi dinar"]),
    ("money", "money/tn", ["dinar", "Tunisian dinar"]),
]
TABLE = pd.DataFrame(NAMES, columns=["relation", "question_id", "references"])


def asked(*ids):
    return pd.DataFrame({"question_id": ids, "question": [f"Q {i}?" for i in ids]})


@pytest.mark.parametrize(
    ("identity", "answers", "same"),
    [
        # "J.Q. Adams" is "j q adams", and so is its reference.
        ("us/1",
         ["the washington", "George Washington", "Adams", "John Adams", "J.Q. Adams", "Nixon",
          "nixon!"],
         [[0, 1], [2, 3], [4], [5, 6]]),
        ("us/2", ["J. Q. Adams", "John Quincy Adams"], [[0, 1]]),
        # Names count within a relation: "D.C." is not the name of a president.
        ("us/2", ["Washington", "Washington, D.C.", "D.C."], [[0], [1], [2]]),
        ("capital/us", ["Washington", "Washington, D.C.", "D.C."], [[0], [1, 2]]),
        # An accepted answer never matches one that is not.
        ("money/tn", ["dinar", "Tunisian dinar", "Iraqi dinar"], [[0, 1], [2]]),
        ("money/iq", ["dinar", "Iraqi dinar", "Tunisian dinar"], [[0, 1], [2]]),
        # By themselves where normalising leaves nothing.
        ("us/1",
         ["The  Beatles", "beatles!", "???", "!!!", "", "A", "a"],
         [[0, 1], [2], [3], [4], [5, 6]]),
    ],
)  # fmt: skip
def test_alias_matches_right_answers_wrong_answers_and_spellings(identity, answers, same):
    judged = scoring.Alias(TABLE)([answers], asked(identity))[0]
    matches = [np.flatnonzero(row).tolist() for row in judged]
    assert matches == [group for group in same for _ in group]


def test_alias_without_relations_compares_accepted_names_only():
    judged = scoring.Alias(TABLE.drop(columns="relation"))(
        [["Adams", "John Adams"]] * 2, asked("us/2", "us/1")
    )
    assert judged[:, 0, 1].tolist() == [1, 0]


LABEL_ORDERS = {
    "contradiction first": {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"},
    "entailment first": {0: "entailment", 1: "neutral", 2: "contradiction"},
}
ANSWERS = [["Paris", "the city of Paris", "Rome"], ["Austen", None, "Austen", "J. Austen"]]
QUESTIONS = pd.DataFrame({"question": ["What is the capital of France?", "Who wrote Emma?"]})
SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 2, "max_position_embeddings": 64}
SMALL |= {"initializer_range": 0.35}  # so that pairs are judged differently
CONFIGS = {
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0},
    "roberta": {"type_vocab_size": 1},
}


def save_classifier(family, folder, id2label):
    """A tiny random model of the family, whose three outputs mean what id2label says."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(catalog.locate("facts-2m"))
    config = transformers.AutoConfig.for_model(
        family,
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        id2label=id2label,
        label2id={label: number for number, label in id2label.items()},
        **SMALL,
        **CONFIGS[family],
    )
    torch.manual_seed(3)
    transformers.AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory):
    """Return the folder of a tiny model of a family, with the labels in some order."""
    root = tmp_path_factory.mktemp("nli")
    return cache(
        lambda family, order: save_classifier(family, root / family / order, LABEL_ORDERS[order])
    )


@pytest.mark.parametrize("order", LABEL_ORDERS)
@pytest.mark.parametrize("family", CONFIGS)
def test_nli_agrees_with_one_pair_at_a_time_whatever_the_labels_order(classifiers, family, order):
    folder = classifiers(family, order)
    judged = scoring.Nli(folder, device="cpu", batch_size=3)(ANSWERS, QUESTIONS)
    assert judged.shape == (2, 4, 4, 3)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    outputs = {label.lower(): number for number, label in LABEL_ORDERS[order].items()}
    different = []
    for question, row, probabilities in zip(QUESTIONS["question"], ANSWERS, judged, strict=True):
        for (i, first), (j, second) in itertools.product(enumerate(row), repeat=2):
            expected = [1, 0, 0]  # equal texts entail each other, without a call of the model
            if first is None or second is None:
                expected = [NAN] * 3
            elif first != second:
                inputs = tokenizer(
                    f"{question} {first}", f"{question} {second}", return_tensors="pt"
                )
                with torch.no_grad():
                    output = network(**inputs).logits[0].softmax(-1)
                expected = [float(output[outputs[label]]) for label in scoring.LABELS]
                different.append(expected)
            np.testing.assert_allclose(probabilities[i, j], expected, rtol=0, atol=1e-5)
    # The pairs are told apart, so mixing them up would show.
    assert (np.std(different, axis=0) > 0.01).all()


@pytest.fixture
def computed_pairs(monkeypatch):
    """Return the list of the pairs that NLI models compute from now on."""
    pairs = []
    computed = scoring.Nli._computed

    def counting(self, new_pairs, outputs):
        pairs.extend(new_pairs)
        return computed(self, new_pairs, outputs)

    monkeypatch.setattr(scoring.Nli, "_computed", counting)
    return pairs


def test_each_ordered_pair_is_computed_once_and_kept_on_disk(
    classifiers, computed_pairs, tmp_path, monkeypatch
):
    folder = classifiers("deberta", "contradiction first")
    answers = [["Rome", "Paris", "Rome"], ["Paris", "Rome", "Oslo"]]
    judge, later = (scoring.Nli(folder, device="cpu", cache=tmp_path) for _ in range(2))
    first = judge(answers)
    assert sorted(computed_pairs) == list(itertools.permutations(("Oslo", "Paris", "Rome"), 2))
    with monkeypatch.context() as patched:  # weights that were loaded would be a TypeError
        patched.setattr(transformers.AutoModelForSequenceClassification, "from_pretrained", None)
        for again in (judge, scoring.Nli(folder, cache=tmp_path)):
            np.testing.assert_array_equal(again(answers), first)
    later([["Rome", "Paris", "Bern"]])
    assert {"Bern"} < {text for pair in computed_pairs[6:] for text in pair}
    judge([["Rome", "Bern"]])  # computed by the other meanwhile
    assert len(computed_pairs) == 6 + 4
    [path] = tmp_path.glob("nli-*.parquet")
    assert len(pd.read_parquet(path)) == 10


def test_another_nli_model_has_another_file(classifiers, tmp_path):
    for family in CONFIGS:
        scoring.Nli(classifiers(family, "contradiction first"), device="cpu", cache=tmp_path)(
            [["Rome", "Paris"]]
        )
    assert len(list(tmp_path.glob("nli-*.parquet"))) == 2


def test_code_that_ships_with_a_model_is_not_run_and_nobody_is_asked(tmp_path, monkeypatch):
    """Transformers asks at a prompt where it is not told, and `y` ran the code."""
    ran = ship_code(tmp_path)
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(ValueError, match=r"NLI model .* could not be loaded; "):
        nli(tmp_path)
    assert not ran.exists()


def nli(folder, answers=(("Rome", "Paris"),)):
    return scoring.Nli(folder, device="cpu")(answers)


def test_a_model_without_a_head_is_refused(tmp_path, classifiers):
    """Transformers would make the head up at random, and every load would say something else."""
    folder = shutil.copytree(classifiers("roberta", "entailment first"), tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("classifier.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="lacks weights: classifier"):
        nli(folder)


def test_nli_models_that_do_not_fit_are_refused(tmp_path, classifiers):
    two_labels = {0: "entailment", 1: "not_entailment"}
    with pytest.raises(ValueError, match="has the labels"):
        nli(save_classifier("roberta", tmp_path, two_labels))
    with pytest.raises(ValueError, match="a pair of answers has 8"):
        nli(classifiers("roberta", "entailment first"), [["x " * 41, "y"]])
    with pytest.raises(ValueError, match="nowhere' could not be loaded"):
        nli(tmp_path / "nowhere")


ALIAS = scoring.Alias(TABLE)
FOUR = np.full((1, 4, 4, 3), 1 / 3)
REFUSED = [
    ("answers row 1", scoring.lexical, [["a"], "bc"]),
    ("answers row 0", scoring.lexical, [["a", 3]]),
    ("answers has 1 rows", scoring.lexical, [["a"]], QUESTIONS),
    ("'us/9'", ALIAS, [["a"], ["b"]], asked("us/1", "us/9")),
    ("'alias' needs questions=", ALIAS, [["a"]], None),
    ("log_probs must have the shape (1, 4)", scoring.semantic_density, [[-1.0] * 3], FOUR),
    ("log_probs must be NaN where", scoring.semantic_entropy, [[-1.0, -2.0]], [[0, -1]]),
    ("log_probs row 0, answer 3 is 0.5", scoring.semantic_density, [[-1.0] * 3 + [0.5]], FOUR),
    ("compared must have the shape", scoring.degree, np.ones((2, 3, 4))),
    ("compared[0, 0, 1] is 2.0", scoring.degree, [[[1.0, 2.0], [0.0, 1.0]]]),
    ("compared[0, 0, 1] is nan", scoring.degree, [[[1.0, NAN], [0.0, 1.0]]]),
    ("compared[0, 0, 0] is", scoring.degree, FOUR * 0.9),
]


@pytest.mark.parametrize("refused", REFUSED)
def test_arguments_that_do_not_fit_are_refused(refused):
    words, function, *arguments = refused
    with pytest.raises(ValueError, match=re.escape(words)):
        function(*arguments)
