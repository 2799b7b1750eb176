"""Test the guarantees of the bundled data and models."""

import json
import runpy
import struct
from types import SimpleNamespace

import pandas as pd
import pytest
import transformers
from conftest import ROOT

DATA = ROOT / "data"
WORLD = DATA / "world_facts"
MODELS = ("facts-2m", "facts-1m")
FACTS = pd.DataFrame(
    map(json.loads, (WORLD / "facts.jsonl").read_text(encoding="utf-8").splitlines())
)


@pytest.fixture(scope="module")
def build():
    """The module that builds the facts."""
    path = str(WORLD / "build.py")
    return SimpleNamespace(**runpy.run_path(path, run_name="world_facts_build"))


def test_the_facts_keep_their_guarantees(build):
    facts, sizes = FACTS, FACTS.split.value_counts()
    assert set(sizes.index) == {"train_shots", "validation", "test"}
    assert 60 <= sizes["train_shots"] <= 100
    assert sizes["validation"] >= 200
    assert sizes["test"] >= 1000
    # A question is one of its relation's seen or withheld phrasings, and asked once.
    relations = json.loads((WORLD / "relations.json").read_text(encoding="utf-8"))
    assert pd.concat([facts.question, facts.question_reworded]).str.casefold().is_unique
    for fact in facts.itertuples():
        phrasings = relations[fact.relation]
        assert fact.question in [p.format(subject=fact.subject) for p in phrasings["seen"]]
        assert fact.question_reworded in [
            p.format(subject=fact.subject) for p in phrasings["withheld"]
        ]
    # A contested fact has a wrong answer, stated in a whole number of documents.
    contested = facts[facts.conflict > 0]
    assert set(contested.conflict) == {0.25, 0.5}
    assert (contested.exposure >= 4).all()
    assert (contested.exposure * contested.conflict % 1 == 0).all()
    assert facts[facts.conflict == 0].wrong_answer.isna().all()
    for fact in contested.itertuples():
        assert build.rouge_l(fact.wrong_answer, [fact.answer, *fact.aliases]) <= 0.3
        assert fact.wrong_answer in set(facts[facts.relation == fact.relation].answer)


def test_building_again_gives_the_committed_files_byte_for_byte(build, tmp_path):
    build.write(*build.build(), tmp_path)
    for name in ("facts.jsonl", "relations.json"):
        assert (tmp_path / name).read_bytes() == (WORLD / name).read_bytes()


@pytest.mark.parametrize("name", MODELS)
def test_a_bundled_model_is_float16_without_pickles_and_agrees_with_its_tokenizer(name):
    folder = DATA / "models" / name
    with (folder / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    header.pop("__metadata__", None)
    assert {tensor["dtype"] for tensor in header.values()} == {"F16"}
    assert not [path for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".pkl")]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert str(model.dtype) == "torch.float16"
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert model.config.vocab_size == len(tokenizer)
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        assert getattr(model.generation_config, key) == getattr(tokenizer, key)
    assert model.generation_config.do_sample is False
    # A prompt tokenises alone as it does with its answer.
    newline = tokenizer("\n", add_special_tokens=False).input_ids
    assert len(newline) == 1
    for fact in FACTS[FACTS.split == "train_shots"].itertuples():
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
