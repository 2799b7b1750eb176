import itertools
import json
import math
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
import variants
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import DebertaConfig, RobertaConfig

from pro_lib import metrics, scoring
from pro_lib.common import catalog
from pro_lib.questions import question_sets

NAN = np.nan
GOLDEN = Path(__file__).parents[1] / "golden" / "polygraph.json"
E, N, C = (0.8, 0.1, 0.1), (0.2, 0.6, 0.2), (0.1, 0.2, 0.7)
# Answers 0 and 1 entail each other; 2 entails 0, but is neutral from 0; 3 contradicts all.
FOUR = np.array([[[E, E, N, C], [E, E, N, C], [E, N, E, C], [C, C, C, E]]])


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


def test_clusters_by_hand():
    assert scoring.clusters(FOUR).tolist() == [[0, 0, 1, 2]]
    # 0 matches 1, 1 matches 2, 0 does not match 2: a chain.
    chain = np.array([[[1, 1, 0], [1, 1, 1], [0, 1, 1]]], dtype=float)
    assert scoring.clusters(chain).tolist() == [[0, 0, 1]]
    # Similarities must reach the threshold in both directions.
    assert scoring.clusters([[[1.0, 0.9], [0.4, 1.0]], [[1.0, 0.9], [0.5, 1.0]]]).tolist() == [
        [0, 1],
        [0, 0],
    ]


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
    results = {
        "kuhn2023": variants.mean_over_meanings(log_probs, meaning),
        "farquhar2024": scoring.semantic_entropy(log_probs, meaning),
        "discrete": variants.discrete_entropy(log_probs, meaning),
        "lm_polygraph": variants.mean_over_answers(log_probs, meaning),
    }
    assert all(np.isnan(values[-1]).all() for values in (meant, *results.values()))
    for q, (row, numbers) in enumerate(zip(log_probs[:-1], meaning[:-1], strict=True)):
        members = [row[numbers == c] for c in range(numbers.max() + 1)]
        masses, sizes = [sum(map(math.exp, member)) for member in members], list(map(len, members))
        assert meant[q][~np.isnan(meant[q])].tolist() == pytest.approx(sorted(masses, reverse=True))
        logs, total, count = list(map(math.log, masses)), sum(masses), sum(sizes)
        expected = {
            "kuhn2023": -sum(logs) / len(masses),
            "farquhar2024": -sum(mass / total * math.log(mass / total) for mass in masses),
            "discrete": -sum(size / count * math.log(size / count) for size in sizes),
            "lm_polygraph": -sum(size * log for size, log in zip(sizes, logs, strict=True)) / count,
        }
        assert {variant: values[q] for variant, values in results.items()} == pytest.approx(
            expected, abs=1e-12
        )


@given(CASES, st.integers(0, 4))
def test_densities_dissimilarities_and_degrees_agree_with_the_formulas(case, seed):
    nli, log_probs = case
    keep = np.random.default_rng(seed).random(log_probs.shape) < 0.7
    keep[:, 0] = True
    counted = np.where(keep, log_probs, NAN)
    results = {
        "lin2023": scoring.degree(nli),
        "qiu2024": scoring.semantic_density(counted, nli),
        "lm_polygraph": variants.forward_density(log_probs, nli, keep=keep),
        "release": variants.mean_distance(nli, keep),
    }
    assert all(math.isnan(values[-1]) for values in results.values())
    for q, row in enumerate(log_probs[:-1]):
        there = [i for i in range(len(row)) if not math.isnan(row[i])]
        distance = nli[q, :, :, 2] + nli[q, :, :, 1] / 2
        kept = [i for i in there if keep[q, i]]
        others = [i for i in kept if i != 0]
        terms = {
            "lin2023": [(1, 1 - nli[q, i, j, 0]) for i in there for j in there],
            "qiu2024": [(math.exp(row[i]), (distance[0, i] + distance[i, 0]) / 2) for i in kept],
            "lm_polygraph": [(math.exp(row[i]), distance[0, i]) for i in others]
            + [(math.exp(row[0]), 0)],
            "release": [(1, 1 - (nli[q, 0, i, 0] + nli[q, i, 0, 0]) / 2) for i in kept],
        }
        for name, pairs in terms.items():
            expected = sum(w * d for w, d in pairs) / sum(w for w, _ in pairs) if pairs else NAN
            assert results[name][q] == pytest.approx(expected, abs=1e-12, nan_ok=True), name


@given(CASES, st.permutations(range(1, 5)))
def test_the_order_of_the_answers_matters_only_to_the_clusters(case, others):
    nli, log_probs = case
    order = [0, *others]  # the first is the one that some scores compare the others with
    meaning, moved = scoring.clusters(nli), (nli[:, order][:, :, order], log_probs[:, order])
    # To the bit, so that what ties stays a tie.
    entropy = scoring.semantic_entropy(log_probs, meaning)
    np.testing.assert_array_equal(scoring.semantic_entropy(moved[1], meaning[:, order]), entropy)
    np.testing.assert_array_equal(scoring.degree(moved[0]), scoring.degree(nli))
    np.testing.assert_array_equal(
        scoring.semantic_density(*moved[::-1]), scoring.semantic_density(log_probs, nli)
    )


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0), (0, 3, 3, 3), (2, 0, 0, 3)])
def test_no_questions_and_no_answers(shape):
    judged = np.full(shape, NAN)
    meaning = scoring.clusters(judged)
    assert meaning.shape == shape[:2]
    for values in (
        scoring.degree(judged),
        scoring.semantic_entropy(np.full(shape[:2], NAN), meaning),
    ):
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
    rows = [["John Adams", None, "John Quincy Adams", "John Adams"], ["d", NAN], []]
    judged = scoring.lexical(rows)
    assert judged.shape == (3, 4, 4)
    for q, row in enumerate(rows):
        for (i, first), (j, second) in itertools.product(enumerate(row), repeat=2):
            missing = not (isinstance(first, str) and isinstance(second, str))
            expected = NAN if missing else metrics.rouge_l([first], [[second]])[0]
            np.testing.assert_array_equal(judged[q, i, j], expected)
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
    assert [np.flatnonzero(row).tolist() for row in judged] == [
        group for group in same for _ in group
    ]


def test_alias_without_relations_compares_accepted_names_only():
    judged = scoring.Alias(TABLE.drop(columns="relation"))(
        [["Adams", "John Adams"]] * 2, asked("us/2", "us/1")
    )
    assert judged[:, 0, 1].tolist() == [1, 0]


def test_alias_reads_the_bundled_questions():
    table = question_sets.load_questions(
        "world-facts", split=["train_shots", "validation", "test"], n_shots=0
    ).table
    questions = table[table["references"].str.len() > 1].head(200)
    judged = scoring.Alias(table)(
        [[*names[:2], "no such name"] for names in questions["references"]], questions
    )
    assert (judged[:, 0, 1] == 1).all()
    assert (judged[:, :2, 2] == 0).all()


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
}
# So that pairs are judged differently
SMALL |= {
    "max_position_embeddings": 64,
    "initializer_range": 0.35,
}


def save_classifier(family, folder, id2label):
    """A tiny random model of the family, whose three outputs mean what id2label says."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(catalog.locate("facts-2m"))
    options = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, **SMALL}
    options |= {"id2label": id2label, "label2id": {label: i for i, label in id2label.items()}}
    kinds = {
        "deberta": partial(
            DebertaConfig, relative_attention=True, pos_att_type=["c2p", "p2c"], type_vocab_size=0
        )
    }
    config = kinds.get(family, partial(RobertaConfig, type_vocab_size=1))(**options)
    torch.manual_seed(3)
    for part in (transformers.AutoModelForSequenceClassification.from_config(config), tokenizer):
        part.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory):
    keys, root = (
        list(itertools.product(("deberta", "roberta"), LABEL_ORDERS)),
        tmp_path_factory.mktemp("nli"),
    )
    return {
        key: save_classifier(key[0], root / " ".join(key), LABEL_ORDERS[key[1]]) for key in keys
    }


@pytest.mark.parametrize("order", LABEL_ORDERS)
@pytest.mark.parametrize("family", ["deberta", "roberta"])
def test_nli_agrees_with_one_pair_at_a_time_whatever_the_labels_order(classifiers, family, order):
    folder = classifiers[family, order]
    judged = scoring.Nli(folder, device="cpu", batch_size=3)(ANSWERS, QUESTIONS)
    assert judged.shape == (2, 4, 4, 3)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    place = {label.lower(): i for i, label in LABEL_ORDERS[order].items()}
    for question, row, probabilities in zip(QUESTIONS["question"], ANSWERS, judged, strict=True):
        for (i, first), (j, second) in itertools.product(enumerate(row), repeat=2):
            expected = [1, 0, 0]  # equal texts entail each other, without asking
            if first is None or second is None:
                expected = [NAN] * 3
            elif first != second:
                texts = [f"{question} {text}" for text in (first, second)]
                with torch.no_grad():
                    probs = network(**tokenizer(*texts, return_tensors="pt")).logits[0].softmax(-1)
                expected = [float(probs[place[label]]) for label in scoring.LABELS]
            np.testing.assert_allclose(probabilities[i, j], expected, rtol=0, atol=1e-5)
    apart = judged[judged[..., 0] < 1]
    assert len(apart) == 6 + 4
    assert (
        apart.std(axis=0) > 0.01
    ).all()  # the pairs are told apart, so mixing them up would show


def test_each_ordered_pair_is_computed_once_and_kept_on_disk(classifiers, tmp_path, monkeypatch):
    counted, computed = [], scoring.Nli._computed

    def counting(self, pairs, order):
        counted.extend(pairs)
        return computed(self, pairs, order)

    monkeypatch.setattr(scoring.Nli, "_computed", counting)
    folder = classifiers["deberta", "contradiction first"]
    answers = [["Rome", "Paris", "Rome"], ["Paris", "Rome", "Oslo"]]
    judge, later = (scoring.Nli(folder, device="cpu", cache=tmp_path) for _ in range(2))
    first = judge(answers)
    assert sorted(counted) == list(itertools.permutations(("Oslo", "Paris", "Rome"), 2))
    with monkeypatch.context() as patched:  # weights that were loaded would be a TypeError
        patched.setattr(transformers.AutoModelForSequenceClassification, "from_pretrained", None)
        for again in (judge, scoring.Nli(folder, cache=tmp_path)):
            np.testing.assert_array_equal(again(answers), first)
    np.testing.assert_array_equal(later([["Rome", "Paris", "Bern"]])[0, :2, :2], first[0, :2, :2])
    judge([["Rome", "Bern"]])  # computed by the other meanwhile
    assert sorted(counted[6:]) == [
        ("Bern", "Paris"),
        ("Bern", "Rome"),
        ("Paris", "Bern"),
        ("Rome", "Bern"),
    ]
    (path,) = tmp_path.glob("nli-*.parquet")
    table = pd.read_parquet(path)
    assert (list(table), len(table)) == (["premise", "hypothesis", *scoring.LABELS], 10)
    scoring.Nli(classifiers["roberta", "contradiction first"], device="cpu", cache=tmp_path)(
        answers
    )
    assert len(counted) == 10 + 6  # another model has another file
    assert len(list(tmp_path.glob("nli-*.parquet"))) == 2


def test_code_that_ships_with_a_model_is_not_run_and_nobody_is_asked(tmp_path, monkeypatch):
    """Transformers asks at a prompt where it is not told, and `y` ran the code."""
    ran = tmp_path / "ran"
    config = {"model_type": "own-code", "auto_map": {"AutoConfig": "configuration_own.OwnConfig"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    code = "from pathlib import Path\nfrom transformers import BertConfig\n"
    code += f"Path({str(ran)!r}).touch()\n"
    code += "class OwnConfig(BertConfig):\n    model_type = 'own-code'\n"
    (tmp_path / "configuration_own.py").write_text(code)
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(ValueError, match=r"NLI model .* could not be loaded; "):
        nli(tmp_path)
    assert not ran.exists()


def nli(folder, answers=(("Rome", "Paris"),)):
    return scoring.Nli(folder, device="cpu")(answers)


def refused_weights(folder, classifier):
    """Transformers would make the head up at random, and every load would say something else."""
    shutil.copytree(classifier, folder, dirs_exist_ok=True)
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("classifier.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    nli(folder)


REFUSED = {
    "answers row 1": lambda *_: scoring.lexical([["a"], "bc"]),
    "answers row 0": lambda *_: scoring.lexical([["a", 3]]),
    "answers has 1 rows": lambda *_: scoring.lexical([["a"]], QUESTIONS),
    "'us/9'": lambda *_: scoring.Alias(TABLE)([["a"], ["b"]], asked("us/1", "us/9")),
    "'alias' needs questions=": lambda *_: scoring.Alias(TABLE)([["a"]], None),
    "has the labels": lambda folder, _: nli(
        save_classifier("roberta", folder, {0: "entailment", 1: "not_entailment"})
    ),
    "a pair of answers has 8": lambda _, classifier: nli(classifier, [["x " * 41, "y"]]),
    "lacks weights: classifier": refused_weights,
    "nowhere' could not be loaded": lambda folder, _: nli(folder / "nowhere"),
    "log_probs must have the shape (1, 4)": lambda *_: scoring.semantic_density([[-1.0] * 3], FOUR),
    "log_probs must be NaN where there is no answer": lambda *_: scoring.semantic_entropy(
        [[-1.0, -2.0]], [[0, -1]]
    ),
    "log_probs row 0, answer 3 is 0.5": lambda *_: scoring.semantic_density(
        [[-1.0] * 3 + [0.5]], FOUR
    ),
    "compared must have the shape": lambda *_: scoring.degree(np.ones((2, 3, 4))),
    "compared[0, 0, 1] is 2.0": lambda *_: scoring.degree([[[1.0, 2.0], [0.0, 1.0]]]),
    "compared[0, 0, 1] is nan": lambda *_: scoring.degree([[[1.0, NAN], [0.0, 1.0]]]),
    "compared[0, 0, 0] is": lambda *_: scoring.degree(FOUR * 0.9),
}


def test_what_does_not_fit_is_refused_in_one_sentence(tmp_path, classifiers):
    for number, (words, call) in enumerate(REFUSED.items()):
        (tmp_path / str(number)).mkdir()
        with pytest.raises(ValueError, match=re.escape(words)) as caught:
            call(tmp_path / str(number), classifiers["roberta", "entailment first"])
        assert str(caught.value).isprintable()
