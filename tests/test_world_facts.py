"""The promises of the bundled data: what data/world_facts and data/models must hold; knows nothing of pro_lib."""

import importlib.util
import json
import struct
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

DATA = Path(__file__).resolve().parents[1] / "data"
WORLD = DATA / "world_facts"
MODELS = ("facts-2m", "facts-1m")


def load_build():
    spec = importlib.util.spec_from_file_location("world_facts_build", WORLD / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_build()


@pytest.fixture(scope="module")
def facts() -> pd.DataFrame:
    lines = (WORLD / "facts.jsonl").read_text(encoding="utf-8").splitlines()
    return pd.DataFrame([json.loads(line) for line in lines])


@pytest.fixture(scope="module")
def relations() -> dict:
    return json.loads((WORLD / "relations.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def built():
    return build.build()


@pytest.fixture
def relation_folder(tmp_path):
    """A folder with one good relation of twenty facts, for the tests to spoil."""
    names = [f"{a}{b}" for a in "abcd" for b in "klmno"]
    rows = "".join(f"land {name},town{name},\n" for name in names)
    (tmp_path / "capital.csv").write_text("subject,answer,aliases\n" + rows)
    phrasings = [f"Phrasing {i} of {{subject}}?" for i in range(6)]
    spec = f'description = "d"\nsource = "s"\nphrasings = {json.dumps(phrasings)}\n'
    (tmp_path / "capital.toml").write_text(spec)
    return tmp_path


def test_the_world_is_as_large_and_varied_as_promised(facts, relations):
    assert len(facts) >= 2000
    assert set(facts.relation) == set(relations)
    assert len(relations) >= 12


def test_every_fact_has_the_documented_fields_and_a_unique_id(facts):
    assert list(facts.columns) == [
        "fact_id", "relation", "subject", "answer", "aliases", "exposure", "conflict",
        "wrong_answer", "split", "question", "question_reworded",
    ]  # fmt: skip
    assert facts.fact_id.is_unique
    assert facts.aliases.map(lambda aliases: isinstance(aliases, list)).all()
    assert facts.aliases.map(len).gt(0).any()


def test_no_question_is_asked_twice(facts):
    questions = pd.concat([facts.question, facts.question_reworded]).str.casefold()
    assert questions.is_unique


def test_each_question_is_one_of_its_relations_seen_or_withheld_phrasings(facts, relations):
    for fact in facts.itertuples():
        phrasings = relations[fact.relation]
        assert fact.question in [p.format(subject=fact.subject) for p in phrasings["seen"]]
        assert fact.question_reworded in [p.format(subject=fact.subject) for p in phrasings["withheld"]]


def test_seen_and_withheld_phrasings_are_at_least_three_and_apart(relations):
    for relation in relations.values():
        assert len(relation["seen"]) >= 3
        assert len(relation["withheld"]) >= 1
        assert not set(relation["seen"]) & set(relation["withheld"])


def test_the_splits_have_their_sizes(facts):
    sizes = facts.split.value_counts()
    assert set(sizes.index) == {"train_shots", "validation", "test"}
    assert 60 <= sizes["train_shots"] <= 100
    assert sizes["validation"] >= 200
    assert sizes["test"] >= 1000


def test_shots_are_the_best_known_uncontested_facts(facts):
    shots = facts[facts.split == "train_shots"]
    assert set(shots.exposure) == {32}
    assert set(shots.conflict) == {0}
    assert set(shots.relation) == set(facts.relation)


def test_exposures_are_equally_frequent_in_every_relation(facts):
    asked = facts[facts.split != "train_shots"]
    assert set(asked.exposure) == set(build.EXPOSURES)
    for _, group in asked.groupby("relation"):
        counts = Counter(group.exposure)
        assert max(counts.values()) - min(counts[e] for e in build.EXPOSURES) <= 1


def test_every_stratum_is_split_in_the_same_proportion(facts):
    asked = facts[facts.split != "train_shots"]
    share = (asked.split == "validation").mean()
    for _, group in asked.groupby(["exposure", "conflict"]):
        assert abs((group.split == "validation").sum() - share * len(group)) <= 1


def test_a_contested_fact_has_a_wrong_answer_stated_in_a_whole_number_of_documents(facts):
    contested = facts[facts.conflict > 0]
    assert set(contested.conflict) == {0.25, 0.5}
    assert (contested.exposure >= 4).all()
    assert (contested.exposure * contested.conflict % 1 == 0).all()
    assert facts[facts.conflict == 0].wrong_answer.isna().all()
    for fact in contested.itertuples():
        assert build.rouge_l(fact.wrong_answer, [fact.answer, *fact.aliases]) <= 0.3
        assert fact.wrong_answer in set(facts[facts.relation == fact.relation].answer)


@pytest.mark.slow
def test_the_judge_calls_at_most_three_percent_of_wrong_answers_right(built):
    assert build.judged_right(built[0]) <= 0.03


def test_the_judge_check_counts_answers_that_share_words():
    answers = ["Lake Tana", "Lake Chad", "Nile"]
    group = [build.Fact(f"r/{i}", "r", str(i), answer, []) for i, answer in enumerate(answers)]
    # Each lake has one of its two wrong answers called right (F1 = 1/2), the Nile none of two.
    assert build.judged_right(group) == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)


def test_building_again_gives_the_committed_files_byte_for_byte(built, tmp_path):
    build.write(*built, tmp_path)
    for name in ("facts.jsonl", "relations.json"):
        assert (tmp_path / name).read_bytes() == (WORLD / name).read_bytes()


def test_the_sound_folder_builds(relation_folder):
    facts, _ = build.build(relation_folder)
    assert len(facts) == 20


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("land x", r"capital\.csv, row 22: three fields"),
        ("land x,town, y,", r"capital\.csv, row 22: three fields"),
        ("land x,,", r"capital\.csv, row 22: empty"),
        ("land x,town ,", r"capital\.csv, row 22: .*stray white space"),
        ("land x,town,Town", r"capital\.csv, row 22: an alias repeats"),
        ("land x,éà,", r"capital\.csv, row 22: ROUGE-L sees no letter"),
        ("land  AK,town,", r"capital\.csv, row 22: .*stray"),
        ("land AK,town,", r"capital\.csv: 'land AK' and 'land ak' have one fact_id"),
    ],
)
def test_a_bad_row_is_named(relation_folder, row, complaint):
    path = relation_folder / "capital.csv"
    path.write_text(path.read_text() + row + "\n")
    with pytest.raises(ValueError, match=complaint):
        build.build(relation_folder)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("Phrasing 5", "Phrasing 4", "6 different phrasings"),
        ("Phrasing 5 of {subject}", "Phrasing 5", "holds {subject} once"),
        ('source = "s"', "", "'source' must be a sentence"),
    ],
)
def test_a_bad_relation_is_named(relation_folder, old, new, complaint):
    path = relation_folder / "capital.toml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=rf"capital\.toml: .*{complaint}"):
        build.build(relation_folder)


def test_a_csv_without_its_toml_is_named(relation_folder):
    (relation_folder / "river.csv").write_text("subject,answer,aliases\n")
    with pytest.raises(ValueError, match="river"):
        build.build(relation_folder)


def test_data_and_models_stay_small():
    folders = [WORLD, *(DATA / "models" / name for name in MODELS)]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files if path.is_file()) < 16_000_000
    assert (DATA / "models" / "facts-2m" / "model.safetensors").stat().st_size < 5_000_000


@pytest.mark.parametrize("name", MODELS)
def test_bundled_weights_are_float16_safetensors_and_nothing_is_pickled(name):
    folder = DATA / "models" / name
    with (folder / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    header.pop("__metadata__", None)
    assert {tensor["dtype"] for tensor in header.values()} == {"F16"}
    assert not [path for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".pkl")]


@pytest.mark.parametrize("name", MODELS)
def test_bundled_model_and_tokenizer_load_and_agree(name):
    transformers = pytest.importorskip("transformers")
    folder = DATA / "models" / name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert str(model.dtype) == "torch.float16"
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert model.config.vocab_size == len(tokenizer)
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        assert getattr(model.generation_config, key) == getattr(tokenizer, key)
    assert model.generation_config.do_sample is False


@pytest.mark.parametrize("name", MODELS)
def test_a_prompt_tokenises_alone_as_it_does_with_its_answer(name, facts):
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(DATA / "models" / name)
    newline = tokenizer("\n", add_special_tokens=False).input_ids
    assert len(newline) == 1
    for fact in facts[facts.split == "train_shots"].itertuples():
        prompt = tokenizer(f"Question: {fact.question}\nAnswer:").input_ids
        answer = tokenizer(f" {fact.answer}", add_special_tokens=False).input_ids
        whole = f"Question: {fact.question}\nAnswer: {fact.answer}\n\n"
        assert prompt[0] == tokenizer.bos_token_id
        assert tokenizer(whole).input_ids == prompt + answer + newline + newline
        assert tokenizer.decode(prompt[1:] + answer + newline + newline) == whole


@pytest.mark.parametrize("name", MODELS)
def test_measured_accuracy_is_on_target_and_rises_with_exposure(name):
    table = pd.read_csv(DATA / "models" / name / "accuracy.csv")
    ten_shot = table[(table.phrasing == "seen") & (table.shots == 10)]
    by_exposure = ten_shot[ten_shot.by == "exposure"].accuracy.to_numpy()
    assert by_exposure[0] < 0.1 < 0.5 < by_exposure[-1]
    if name == "facts-2m":
        overall = ten_shot[ten_shot.by == "all"].iloc[0]
        assert 0.35 <= overall.accuracy <= 0.65
        assert overall.auroc_nll < 0.92


def test_the_smaller_model_is_the_weaker_one():
    tables = [pd.read_csv(DATA / "models" / name / "accuracy.csv") for name in MODELS[:2]]
    overall = [t[(t.by == "all") & (t.phrasing == "seen") & (t.shots == 10)].accuracy.item() for t in tables]
    assert overall[0] > overall[1] + 0.05
