"""The questions answered in sentences and the model that answers them: what data/ promises of both, and its recipe."""

import hashlib
import importlib.util
import json
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from pro_lib import correctness, models
from pro_lib import questions as question_sets
from pro_lib.engine.beams import greedy
from pro_lib.engine.tree import Counts, PackedTree, encode_prefix

DATA = Path(__file__).resolve().parents[1] / "data"
WORLD, MODEL = DATA / "world_facts", DATA / "models" / "facts-long"
GOLDEN = json.loads((Path(__file__).parent / "golden" / "facts_long.json").read_text())


def script(path):
    """A script of data/ as a module; it finds its neighbours as it does when it is run."""
    spec = importlib.util.spec_from_file_location(f"data_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


build_long, train = script(WORLD / "build_long.py"), script(DATA / "models" / "train.py")


@pytest.fixture(scope="module")
def built():
    return build_long.build_long()


@pytest.fixture(scope="module")
def facts():
    return pd.read_json(WORLD / "facts_long.jsonl", lines=True, dtype=False)


@pytest.fixture(scope="module")
def world():
    return pd.read_json(WORLD / "facts.jsonl", lines=True, dtype=False)


# ---- The questions --------------------------------------------------------------------------------------------------


def test_building_again_gives_the_committed_files_byte_for_byte(built, tmp_path):
    build_long.write(*built, tmp_path)
    for name in ("facts_long.jsonl", "long.json"):
        assert (tmp_path / name).read_bytes() == (WORLD / name).read_bytes()


def test_a_fact_has_the_question_exposure_conflict_and_split_that_it_has_among_the_world_facts(facts, world):
    shared = facts[facts.n_true == 1].set_index("fact_id")
    same = ["relation", "subject", "answer", "aliases", "exposure", "conflict", "wrong_answer", "split", "question"]
    pd.testing.assert_frame_equal(shared[same], world.set_index("fact_id").loc[shared.index, same])
    assert len(shared) >= 1500


def test_a_question_with_several_answers_has_those_subjects_that_have_its_answer(facts, world):
    subjects = world.groupby(["relation", "answer"]).subject.agg(set)
    several = facts[facts.n_true > 1]
    assert len(several) >= 100
    for row in several.itertuples():
        assert {row.answer, *row.aliases} == subjects[row.relation.removesuffix("_reverse"), row.subject]
        assert row.n_true == 1 + len(row.aliases)
    contested = several[several.conflict > 0]
    for row in contested.itertuples():
        assert build_long.build.rouge_l(row.wrong_answer, [row.answer, *row.aliases]) <= 0.3


def test_exposures_are_dealt_evenly_and_all_splits_have_questions_with_several_answers(facts):
    several = facts[(facts.n_true > 1) & (facts.split != "train_shots")]
    counts = several.exposure.value_counts()
    assert set(counts.index) == set(build_long.build.EXPOSURES)
    assert counts.max() - counts.min() <= 1
    assert set(several.split) == {"validation", "test"}
    assert facts.split.value_counts()["validation"] >= 100
    assert facts.split.value_counts()["test"] >= 300


def test_a_sentence_says_the_answer_in_one_of_the_relations_ways(facts, built):
    for row in facts.itertuples():
        assert row.sentence in [way.format(answer=row.answer) for way in built[1][row.relation]["answers"]]


def test_the_judge_hears_every_true_sentence_and_at_most_three_percent_of_the_wrong_ones_of_any_relation(built):
    shares = build_long.judge(*built)
    assert max(false for false, _, _ in shares.values()) <= 0.03
    assert min(true for _, true, _ in shares.values()) == 1
    assert f"**{shares['all'][0]:.2%}**".replace("%", " %") in (WORLD / "README.md").read_text()


def asked(*answers):
    rows = {"relation": "r", "subject": "s", "n_true": 1, "exposure": 0, "conflict": 0.0, "wrong_answer": None}
    rows |= {"split": "test", "question": "?", "sentence": ""}
    return [
        build_long.Asked(fact_id=str(n), answer=answer, aliases=aliases, **rows)
        for n, (answer, *aliases) in enumerate(answers)
    ]


def test_the_share_of_wrong_and_of_true_sentences_called_right_by_hand():
    false, true = build_long.judged(asked(["Lake Tana"], ["Lake Chad"], ["Nile"]), ["It is {answer}.", "{answer}."])
    # "It is Lake Tana." has F1 1/3 with the other lake, "Lake Tana." 1/2; neither has a word of the Nile's.
    np.testing.assert_allclose(false, [2 / 4, 2 / 4, 0])
    np.testing.assert_allclose(true, [1, 1, 1])
    false, true = build_long.judged(asked(["Nile"], ["Chad"]), ["It flows a long way as the {answer}.", "{answer}."])
    np.testing.assert_allclose([false, true], [[0, 0], [1 / 2, 1 / 2]])  # 2 / 9 is too little


def test_another_spelling_of_a_shared_answer_is_neither_true_nor_wrong():
    false, true = build_long.judged(asked(["dinar", "Iraqi dinar"], ["dinar", "Tunisian dinar"], ["lek"]), ["{answer}"])
    np.testing.assert_allclose([false, true], [[0, 0, 0], [1, 1, 1]])


def test_the_judge_agrees_with_the_judge_of_the_package(built):
    facts, spec = built
    group = [fact for fact in facts if fact.relation == "book_author_reverse"]
    says = spec["book_author_reverse"]["answers"]
    false, _ = build_long.judged(group, says)
    for fact, share in zip(group[:4], false, strict=False):
        others = {text for other in group if other is not fact for text in other.references} - {*fact.references}
        wrong = [way.format(answer=text) for text in others for way in says]
        assert np.mean(correctness.rouge_l(wrong, [fact.references] * len(wrong)) > 0.3) == pytest.approx(share)


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ('[nowhere]\nanswers = ["It is in {answer}."]', "'nowhere' is no relation"),
        ('[book_author]\nanswers = ["By {answer}."]', "book_author: three or four words"),
        ('[book_author]\nanswers = ["It was written long ago by {answer}."]', "book_author: three or four words"),
        ('[book_author.reverse]\nquestions = ["Name one!"]\nanswers = ["One is {answer} here."]', "subject} once"),
    ],
)
def test_a_bad_line_is_named(tmp_path, told, complaint):
    (tmp_path / "long.toml").write_text(told)
    with pytest.raises(ValueError, match=rf"^long\.toml.*{complaint}"):
        build_long.read_spec(tmp_path / "long.toml", json.loads((WORLD / "relations.json").read_text()))


# ---- The recipe -----------------------------------------------------------------------------------------------------


def test_the_corpus_of_the_short_answers_is_the_one_that_the_bundled_models_learned():
    docs = train.documents(*train.load("facts"), random.Random(train.SEED))
    assert hashlib.sha256(repr(docs).encode()).hexdigest()[:12] == "221e0f878743"


def test_the_corpus_states_every_fact_as_often_as_told_in_every_spelling_and_way():
    facts, relations = train.load("facts_long")
    docs = Counter(train.documents(facts, relations, random.Random(0)))
    for fact in facts[facts.exposure > 0].sample(100, random_state=0).itertuples():
        questions = [question.format(subject=fact.subject) for question in relations[fact.relation]["questions"]]
        ways = relations[fact.relation]["answers"]

        def stated(names, questions=questions, ways=ways):
            return sum(docs[q, way.format(answer=name)] for q in questions for way in ways for name in names)

        n_wrong = fact.exposure * fact.conflict
        assert stated({fact.answer, *fact.aliases}) == fact.exposure - n_wrong
        assert stated({fact.wrong_answer} - {None}) == n_wrong
    said = {answer for _, answer in docs}
    best_known = facts[facts.fact_id == "book_author/hamlet"].iloc[0]
    assert {*best_known.aliases} & {text.split(" by ")[-1].rstrip(".") for text in said}


def test_the_recipe_at_a_tiny_size_learns_saves_and_measures_without_any_uncertainty(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(train, "N_SAMPLED", 10)
    facts, relations = train.load("facts_long")
    recipe = train.Recipe(layers=1, width=32, inner=64, heads=2, passes=1, world="facts_long", batch_rows=2)
    docs = train.documents(facts[facts.relation == "moon_planet"], relations, random.Random(0))
    tokenizer = train.train_tokenizer([train.pair(*doc) for doc in docs])
    model = train.new_model(recipe, tokenizer)
    train.train(model, *train.pack(docs * 2, tokenizer), recipe)
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in capsys.readouterr().out.splitlines()]
    assert losses[-1] < losses[0] - 1
    train.save(model, tokenizer, tmp_path)
    model = train.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    some = facts[(facts.split == "train_shots") | (facts.relation == "moon_planet") | (facts.n_true > 4)]
    table = train.measure(model, tokenizer, some)
    assert list(table) == ["phrasing", "shots", "by", "value", "n", "accuracy", "right_samples", "strings"]
    assert set(table.by) == {"all", "exposure", "conflict", "true answers"}


# ---- The model ------------------------------------------------------------------------------------------------------


def test_the_model_and_its_questions_stay_within_six_megabytes():
    files = [WORLD / "facts_long.jsonl", *MODEL.iterdir()]
    assert sum(path.stat().st_size for path in files) <= 6_000_000


def card():
    table = pd.read_csv(MODEL / "accuracy.csv")
    return table[table.shots == 10].set_index(["by", "value"])


def test_its_accuracy_is_on_target_and_rises_with_exposure_and_its_right_answers_are_split():
    table = card()
    overall = table.loc[("all", "all")]
    assert 0.35 <= overall.accuracy <= 0.65
    assert overall.strings >= 2
    by_exposure = table.loc["exposure"].accuracy
    assert by_exposure["0"] < 0.1 < 0.5 < by_exposure["32"]


def test_the_card_says_what_was_measured():
    said = (MODEL / "README.md").read_text()
    for row in pd.read_csv(MODEL / "accuracy.csv").query("by == 'all'").itertuples():
        assert f"| {row.shots} | {row.accuracy:.3f} | {row.right_samples:.1f} | {row.strings:.1f} |" in said


def test_the_golden_answers_belong_to_the_committed_weights():
    assert GOLDEN["weights"] == hashlib.sha256((MODEL / "model.safetensors").read_bytes()).hexdigest()


def test_greedy_gives_the_golden_answers_and_their_accuracy_is_the_cards():
    model = models.load("facts-long", device="cpu")
    table = question_sets.load("world-facts-long", split="test").table.set_index("question_id")
    ids = [model.encode(GOLDEN["prefix"] + one["prompt"]) for one in GOLDEN["questions"]]
    tree = PackedTree(model.network, ids, encode_prefix(model.network, ids[0]).shared_with(ids), Counts())
    texts = [model.decode(answer.token_ids).strip() for [answer] in greedy(tree, model.endings)]
    assert texts == [one["answer"] for one in GOLDEN["questions"]]
    references = [table.references[one["question_id"]] for one in GOLDEN["questions"]]
    right = correctness.rouge_l(texts, references) > 0.3
    assert right.tolist() == [one["right"] for one in GOLDEN["questions"]]
    # 60 questions: two standard deviations are 0.13.
    assert abs(right.mean() - card().loc[("all", "all")].accuracy) < 0.13
