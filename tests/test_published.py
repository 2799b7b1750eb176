"""Published outputs: read as they lie in their repository, aligned, counted, and held against plain Python."""

import json
import math
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pro_lib import bundled, metrics, scores
from pro_lib.evaluation import Choices, evaluations
from pro_lib.files import RunError
from pro_lib.imports import from_published, from_records
from pro_lib.imports.published import folder
from pro_lib.settings import Settings

NAME = "rank-calibration/some-model-1.5/nq-open"
SETTING = "some-model-1.5_nq-open_1.0"
FILES = {
    "rouge": f"{SETTING}_rouge.json",
    "likelihoods": f"calibrate_{SETTING}_none_whitebox.json",
    "agreement": f"calibrate_{SETTING}_agreement_blackbox.json",
    "disagreement": f"calibrate_{SETTING}_disagreement_blackbox.json",
    "stated": f"calibrate_{SETTING}_disagreement_verbalized.json",
}


def made(n_questions=60, n_samples=10, seed=0):
    """The files of a setting as Python has them: few answers, so that samples repeat; ROUGE in another order."""
    rng = np.random.default_rng(seed)
    entries = {name: [] for name in FILES}
    for number in range(n_questions):
        length = rng.integers(1, 9, 6)
        nll = length * rng.uniform(0.02, 1.5, 6)
        rouge = rng.choice([0, 0.2, 0.3, 0.4, 1], 6)
        drawn = rng.integers(0, 6, n_samples)
        entries["likelihoods"].append(
            {"unnormalized_nll": list(nll[drawn]), "normalized_nll": list((nll / length)[drawn]), "entropy": 0.5}
        )
        entries["rouge"].append({"id": number, "normalized_score": [], "unnormalized_score": list(rouge[drawn])})
        for kind in ("agreement", "disagreement"):
            degree, ecc, spectral = rng.uniform(-1, 5, 3)
            entries[kind].append(
                {"idx": number, "degree_u": degree, "ecc_u": ecc, "spectral_u": spectral, "ecc_c": [0.1]}
            )
        if number % 5:
            entries["stated"].append({"idx": number, "verbalized": list(rng.choice([0.2, 0.9, 1], n_samples))})
    rng.shuffle(entries["rouge"])
    return entries


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Write entries where they are looked for."""
    monkeypatch.setattr(bundled, "HOME", tmp_path)
    folder().mkdir(parents=True)

    def write(entries, setting=SETTING):
        for name, listed in entries.items():
            text = json.dumps(listed, default=lambda value: value.item())
            (folder() / FILES[name].replace(SETTING, setting)).write_text(text)

    return write


def plain(entries, *, distinct):
    """Of every question its log-probabilities downwards and whether the most probable answer is right, step by step."""
    rouge = {entry["id"]: entry["unnormalized_score"] for entry in entries["rouge"]}
    found = []
    for number, said in enumerate(entries["likelihoods"]):
        samples = []
        for nll, mean, score in zip(said["unnormalized_nll"], said["normalized_nll"], rouge[number], strict=True):
            sample = (-nll, round(nll / mean), score)
            if not (distinct and sample in samples):
                samples.append(sample)
        samples.sort(key=lambda sample: -sample[0])
        found.append(([sample[0] for sample in samples], samples[0][2] > 0.3))
    return found


def plain_auroc(uncertainty, correct):
    pairs = [(w, r) for w, ok in zip(uncertainty, correct, strict=True) if not ok
             for r, right in zip(uncertainty, correct, strict=True) if right]  # fmt: skip
    return sum((w > r) + (w == r) / 2 for w, r in pairs) / len(pairs)


def plain_pro(log_probs, k):
    kept = log_probs[:k]
    return -kept[-1] - sum(math.exp(each) * (each - kept[-1]) for each in kept)


@pytest.mark.filterwarnings("ignore::pro_lib.scores.PremiseWarning")
@pytest.mark.parametrize(("protocol", "distinct"), [("paper", False), ("workbench", True)])
def test_aurocs_are_those_of_plain_python(put, protocol, distinct):
    entries = made()
    put(entries)
    (judged,) = evaluations(from_published(NAME), protocols=[protocol])
    found = plain(entries, distinct=distinct)
    correct = [right for _, right in found]
    assert judged.correct.tolist() == correct
    for k in (1, 2, 5, 10):
        expected = plain_auroc([plain_pro(log_probs, k) for log_probs, _ in found], correct)
        assert metrics.auroc(scores.pro_at_k(judged.log_probs, k), judged.correct) == pytest.approx(expected, abs=1e-12)
    kept = [plain_pro(log_probs, max(1, sum(math.exp(each) >= 0.4 for each in log_probs))) for log_probs, _ in found]
    np.testing.assert_allclose(scores.pro(judged.log_probs, alpha=0.4), kept, atol=1e-12)
    for kind in ("agreement", "disagreement"):
        for method, field in (("Deg", "degree_u"), ("Ecc", "ecc_u"), ("EigV", "spectral_u")):
            assert judged.baselines[f"{method}, NLI {kind}"].tolist() == [entry[field] for entry in entries[kind]]


def test_a_confidence_is_that_stated_with_the_most_probable_answer_and_a_missing_one_is_counted(put):
    entries = {
        "likelihoods": [
            {"unnormalized_nll": [1.0, 0.5, 0.5], "normalized_nll": [0.5, 0.25, 0.25]},
            {"unnormalized_nll": [1.0, 2.0, 3.0], "normalized_nll": [1.0, 2.0, 3.0]},
            {"unnormalized_nll": [1.0, 2.0, 3.0], "normalized_nll": [1.0, 2.0, 3.0]},
        ],
        "rouge": [{"id": 1, "unnormalized_score": [1, 0, 0]}, {"id": 0, "unnormalized_score": [0, 1, 1]},
                  {"id": 2, "unnormalized_score": [0, 0, 0]}],
        "stated": [{"idx": 0, "verbalized": [0.1, 0.8, 0.4]}, {"idx": 2, "verbalized": [None, 1, 1]}],
    }  # fmt: skip
    put(entries)
    run = from_published(NAME)
    assert run.questions["score_Stated"].tolist() == pytest.approx([0.4, 1, 1])
    (judged,) = evaluations(run, protocols=["workbench"])
    assert list(judged.baselines) == ["NLL", "ALL", "PE", "Stated"]
    assert "2 of 3 questions state no confidence" in judged.sentence()
    assert "Endings are unknown; no bound of the entropy is claimed." in judged.sentence()


def test_it_says_no_endings_and_splits_and_claims_none(put):
    put(made(n_questions=3))
    run = from_published(NAME)
    assert run.answers["end_log_prob"].isna().all()
    assert not run.answers["closed"].any()
    assert run.questions[["question", "references", "split"]].isna().all(axis=None)
    assert (run.info.model, run.info.dataset) == ("some-model-1.5", "nq-open")
    with pytest.raises(RunError, match="does not say what its endings cost"):
        run.log_probs(convention="answer_tokens")


def test_another_temperature_is_another_setting_and_nli_scores_and_confidence_may_be_missing(put):
    entries = made(n_questions=3)
    put({name: entries[name] for name in ("rouge", "likelihoods")}, "some-model-1.5_nq-open_0.6")
    run = from_published(f"{NAME}/0.6")
    assert run.info.model == "some-model-1.5 at 0.6"
    assert not [name for name in run.questions if name.startswith("score_")]


def damaged(change):
    entries = made(n_questions=6)
    change(entries)
    return entries


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        # Question 3 has repeats, so that ROUGE-L of another question shows.
        (lambda e: next(r for r in e["rouge"] if r["id"] == 3).update(unnormalized_score=list(np.arange(10) / 10)),
         f"{FILES['rouge']}, question 3: samples of equal log-probability and length differ in ROUGE-L"),
        (lambda e: e["likelihoods"][2]["normalized_nll"].pop(),
         f"{FILES['likelihoods']}, question 2: 10 log-probabilities, 9 per token, 10 of ROUGE-L"),
        (lambda e: e["likelihoods"][2].update(unnormalized_nll=["x"]), f"{FILES['likelihoods']}, entry 3: unnorm"),
        (lambda e: e["rouge"].append({"id": 6, "unnormalized_score": [0] * 10}),
         f"{FILES['rouge']}, entry 7: question 6 is not one of the 6"),
        (lambda e: e["rouge"].append(e["rouge"][0]), f"{FILES['rouge']}, entry 7: question_id"),
        (lambda e: e["agreement"][1].update(ecc_u=math.nan), f"{FILES['agreement']}, entry 2: ecc_u"),
        (lambda e: e["stated"][0].update(verbalized=[95]), f"{FILES['stated']}, entry 1: verbalized"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_named(put, change, sentence):
    put(damaged(change))
    with pytest.raises(RunError) as error:
        from_published(NAME)
    assert sentence in str(error.value)


def test_where_files_are_missing_it_says_what_to_type(put):
    put({"rouge": made(n_questions=2)["rouge"]})
    with pytest.raises(RunError, match=rf"none_whitebox.json is not in .*pro download {NAME}$"):
        from_published(NAME)
    with pytest.raises(ValueError, match="is not rank-calibration/<model>/<dataset>"):
        from_published("rank-calibration/model")


def test_a_question_without_rouge_is_left_out_and_counted(put):
    entries = made(n_questions=6)
    entries["rouge"] = [entry for entry in entries["rouge"] if entry["id"] != 4]
    put(entries)
    (judged,) = evaluations(from_published(NAME), protocols=["workbench"])
    assert judged.answers["question_id"].tolist() == ["0", "1", "2", "3", "5"]
    assert "1 of 6 questions are left out (4): correct is missing for 1." in judged.sentence()


def within(log_probs, lengths, same_within, distinct=True):
    answers = [{"log_prob": each, "mean_log_prob": each / n} for each, n in zip(log_probs, lengths, strict=True)]
    run = from_records([{"question_id": "q", "answers": answers}])
    return run.log_probs(same_within=same_within, distinct=distinct)[0].tolist()


def test_near_repeats_by_hand():
    log_probs, lengths = [-1.0, -1.25, -1.5, -1.125, -1.25], [4, 4, 4, 5, 4]
    assert within(log_probs, lengths, 0) == [-1.0, -1.125, -1.25, -1.5]
    # -1.25 repeats -1.0; -1.5 is within 0.25 of -1.25, which is a repeat, but not of -1.0; -1.125 has another length.
    assert within(log_probs, lengths, 0.25) == [-1.0, -1.125, -1.5]
    assert within(log_probs, lengths, 0.5) == [-1.0, -1.125]
    assert within(log_probs, lengths, 0.5, distinct=False) == sorted(log_probs, reverse=True)
    # Equal log-probabilities of two lengths are two answers.
    assert within([-2.0, -2.0], [2, 4], 0) == [-2.0, -2.0]


def test_texts_say_what_is_the_same_where_there_are_any():
    answers = [{"text": "a", "log_prob": -1}, {"text": "b", "log_prob": -1}, {"text": "a", "log_prob": -1.5}]
    run = from_records([{"question_id": "q", "answers": answers}])
    assert run.log_probs(same_within=1)[0].tolist() == [-1, -1]


@given(st.lists(st.tuples(st.integers(-40, -1), st.integers(1, 2)), min_size=1, max_size=8), st.integers(0, 10))
def test_answers_that_are_one_span_no_more_than_they_may(samples, steps):
    log_probs, lengths = zip(*[(value / 8, length) for value, length in samples], strict=True)
    expected = []
    for value, length in sorted(zip(log_probs, lengths, strict=True), reverse=True):
        same = [first for first, other in expected if other == length and first - value <= steps / 8]
        expected += [] if same else [(value, length)]
    assert within(log_probs, lengths, steps / 8) == sorted((value for value, _ in expected), reverse=True)


def test_near_repeats_reach_what_pro_reads(put):
    likelihoods = [{"unnormalized_nll": [1.0, 1.01, 2.0], "normalized_nll": [0.5, 0.505, 1.0]}] * 2
    rouge = [{"id": n, "unnormalized_score": [n, n, 0]} for n in range(2)]
    put({"likelihoods": likelihoods, "rouge": rouge})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        judged = evaluations(from_published(NAME), choices=Choices(same_within=0.02))
    assert [each.log_probs.shape[1] for each in judged] == [3, 2]


@pytest.mark.filterwarnings("ignore")
def test_notebooks_read_several_by_name_and_report_on_all_questions(put, tmp_path):
    put(made())
    put(made(seed=1), SETTING.replace("nq-open", "meadow"))
    names = [NAME, NAME.replace("nq-open", "meadow")]
    settings = Settings(records=names, split="all", n_validation=10, reported=True, figures_dir=tmp_path)
    assert settings.pairs() == [("some-model-1.5", "nq-open"), ("some-model-1.5", "meadow")]
    splits = settings.splits(settings.compared)
    assert [each.labels() for each in splits] == [
        {"dataset": dataset, "model": "some-model-1.5", "protocol": protocol, "split": "all", "n_questions": 60}
        for dataset in ("nq-open", "meadow")
        for protocol in ("paper", "workbench")
    ]
    assert {len(each.validation.correct) for each in splits} == {10}
    assert "Stated" in splits[0].reported.baselines
    near = Settings(records=NAME, same_within=5.0).judged(*settings.pairs()[0], "test")[1]
    far = Settings(records=NAME).judged(*settings.pairs()[0], "test")[1]
    assert (~np.isnan(near.log_probs)).sum() < (~np.isnan(far.log_probs)).sum()
    figure = plt.figure()
    figure.supxlabel("K")
    settings.store(pd.DataFrame({"p": [0.5]}), "of_no_data", figure)
    assert figure.get_supxlabel() == "K"
    settings.store(pd.DataFrame(near.labels(), index=[0]), "name", figure)
    text = " ".join(figure.get_supxlabel().split())
    assert text.startswith("K Published samples without texts: paper keeps repeats")
    assert text.endswith("no bound of the entropy is claimed.")


def test_records_are_there_and_each_has_a_name_of_its_own(put, tmp_path):
    put(made(n_questions=3))
    for folder_name in ("a", "b"):
        (tmp_path / folder_name).mkdir()
        (tmp_path / folder_name / "x.jsonl").write_text("{}")
    with pytest.raises(ValueError, match=r"b/x.jsonl' has the name of '.*a/x.jsonl': one of them at a time"):
        Settings(records=[str(tmp_path / "a" / "x.jsonl"), str(tmp_path / "b" / "x.jsonl")])
    with pytest.raises(ValueError, match=r"records='x.jsonl' is not a file"):
        Settings(records=[NAME, "x.jsonl"])
    with pytest.raises(RunError, match="pro download rank-calibration/m/nq"):
        Settings(records="rank-calibration/m/nq").run("m", "nq")
    with pytest.raises(ValueError, match=r"same_within=-0.1 must be 0 or more"):
        Settings(records=NAME, same_within=-0.1)
