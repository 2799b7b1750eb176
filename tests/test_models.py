import contextlib
import json
import shutil

import pandas as pd
import pytest
import torch
from conftest import FAMILIES, PAPER, WITHOUT_BOS
from transformers import BloomConfig, BloomForCausalLM, MambaConfig, MambaForCausalLM

from pro_lib import models
from pro_lib.asking import ask
from pro_lib.base.bundled import bundled_models, paper_models
from pro_lib.generate import generate
from pro_lib.models import UnsupportedModelError, find_endings
from pro_lib.questions import QuestionSet


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_loads_from_a_folder_and_passes_its_packed_step(tiny_model, family):
    model = tiny_model(family)
    assert model.packing_error < 1e-5
    assert (model.name, model.dtype, model.device.type) == (family, "float32", "cpu")


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_begin_with_the_beginning_of_text_where_the_tokenizer_has_one(tiny_model, family):
    ids = tiny_model(family).encode("Who?")
    assert (ids[0] == 1) == (family not in WITHOUT_BOS)
    assert ids[-1] != 2


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_five_load_as_a_users_would_and_answer_exactly_as_one_row_at_a_time(tiny_folders, name):
    model = models.load(tiny_folders(name), device="cpu", dtype="float32")
    assert model.name == name
    asked = QuestionSet("asked", pd.DataFrame()).with_questions(["Who wrote Emma?", "What is the capital of France?"])
    run = generate(model, asked, strategy="threshold", search_alpha=0.05, max_new_tokens=6, progress=False)
    for answer in run.answers.itertuples():
        prompt = asked.prompts()[int(answer.question_id.removeprefix("asked-"))]
        ids = [*model.encode(prompt), *answer.token_ids]
        logits = model.network(torch.tensor([ids])).logits[0, -len(answer.token_ids) - 1 : -1]
        plain = logits.double().log_softmax(-1)[range(len(answer.token_ids)), list(answer.token_ids)]
        torch.testing.assert_close(torch.tensor(answer.token_log_probs), plain, atol=1e-4, rtol=0, check_dtype=False)


def test_the_papers_names_stand_for_their_hub_ids():
    assert set(PAPER) == {model.rpartition("/")[2] for model in paper_models().values()}
    with pytest.raises(FileNotFoundError, match="model 'Gemma-2B' could not be loaded from google/gemma-2b"):
        models.load("Gemma-2B", device="cpu")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_passes_its_packed_step(tiny_folders, dtype):
    model = models.load(tiny_folders("llama"), device="cpu", dtype=dtype)
    assert model.packing_error < 0.5
    assert model.network.dtype == models.DTYPES[dtype]


def test_the_bundled_model_is_stored_in_16_bits_and_computed_in_32(facts_2m):
    config = json.loads((bundled_models()["facts-2m"] / "config.json").read_text())
    assert config.get("dtype", config.get("torch_dtype")) == "float16"
    assert facts_2m.dtype == "float32"


def test_alibi_is_refused_before_weights_are_loaded(tiny_folders, tmp_path):
    with pytest.raises(UnsupportedModelError, match="falcon-alibi uses ALiBi"):
        models.load(tiny_folders("falcon-alibi"), device="cpu")
    BloomForCausalLM(BloomConfig(vocab_size=64, hidden_size=16, n_layer=1, n_head=2)).save_pretrained(
        tmp_path / "bloom"
    )
    with pytest.raises(UnsupportedModelError, match="bloom uses ALiBi"):
        models.load(tmp_path / "bloom", device="cpu")


def test_a_recurrent_model_is_refused(tiny_folders, tmp_path):
    folder = tmp_path / "mamba"
    shutil.copytree(tiny_folders("llama"), folder, ignore=shutil.ignore_patterns("config.json", "*.safetensors"))
    MambaForCausalLM(MambaConfig(vocab_size=299, hidden_size=16, num_hidden_layers=1)).save_pretrained(folder)
    with pytest.raises(UnsupportedModelError, match=r"mamba .* packed step"):
        models.load(folder, device="cpu")


def test_a_sliding_window_shorter_than_the_text_is_refused_before_computing(tiny_model):
    model = tiny_model("mistral-window")
    model.check_length(16)
    with pytest.raises(UnsupportedModelError, match="take 17 tokens, but its sliding window is 16"):
        model.check_length(17)
    with pytest.raises(UnsupportedModelError, match="sliding window is 16"):
        ask(model, "Who wrote Emma?", n_answers=2)


def test_a_text_longer_than_the_positions_is_refused(tiny_model):
    with pytest.raises(UnsupportedModelError, match="number of positions is 256"):
        tiny_model("llama").check_length(257)


class Words:
    """A tokenizer with the token texts given."""

    def __init__(self, *texts, eos_token_id=None):
        self.texts, self.eos_token_id = texts, eos_token_id

    def __len__(self):
        return len(self.texts)

    def decode(self, ids, **_):
        return "".join(self.texts[i] for i in ids)


def endings_of(network, *texts, eos=0, vocabulary=None):
    found = find_endings(Words(*texts, eos_token_id=eos), network, vocabulary or len(texts))
    return [t.nonzero().squeeze(1).tolist() for t in (found.stop, found.closing)]


def test_the_stop_set_is_every_end_of_text_and_every_newline(tiny_model):
    network = tiny_model("llama").network  # its configuration adds id 2
    texts = ("</s>", "a", "<eot>", "\n", " \n", "\n\n", ".\n", " b", " ", "c\nd", "\nd")
    assert endings_of(network, *texts) == [[0, 2, 3, 4, 5, 10], [6, 9]]


def test_outputs_beyond_the_tokenizer_end_nothing(tiny_model):
    assert endings_of(tiny_model("llama").network, "</s>", "a", "b", vocabulary=6) == [[0, 2], []]


def test_a_caller_may_add_stops_of_one_token(tiny_model):
    model = tiny_model("llama")
    dot = model.tokenizer(".", add_special_tokens=False)["input_ids"][0]
    assert not model.endings.stop[dot]
    assert model.with_stop(["."]).endings.stop[dot]
    with pytest.raises(ValueError, match=r"stop='xyz' is 3 tokens of llama"):
        model.with_stop(["xyz"])


def test_an_answers_text_ends_before_its_first_newline(tiny_model):
    model = tiny_model("llama")
    ids = model.tokenizer(" Jane\nAusten", add_special_tokens=False)["input_ids"]
    assert model.decode([*ids, 2]) == "Jane"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dtype": "float31"}, "dtype='float31' is unknown; choose auto, float32, bfloat16, float16"),
        ({"device": "gpu7"}, "device='gpu7' is no device that this torch sees; choose cpu or auto"),
        ({"quantization": "3bit"}, "quantization='3bit' is unknown; choose 8bit, 4bit"),
    ],
)
def test_an_unknown_option_is_named(tiny_folders, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        models.load(tiny_folders("llama"), **options)


def test_a_name_that_is_neither_bundled_nor_to_be_had_is_named():
    with pytest.raises(FileNotFoundError, match="model 'no-such/model' could not be loaded"):
        models.load("no-such/model")


@pytest.mark.parametrize("name", ["/nowhere/model", "./nowhere", "a/b/c", "fact-2m"])
def test_a_name_that_is_no_model_and_no_hub_id_is_named_with_those_that_are_there(name):
    with pytest.raises(
        ValueError, match=rf"model='{name.removeprefix('./')}' is neither bundled \(.*facts-2m.*\), .* nor a folder"
    ):
        models.load(name)


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        models.load(tmp_path)


def test_damaged_weights_are_one_sentence(tiny_folders, tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(tiny_folders("llama"), folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(FileNotFoundError, match=r"damaged.* could not be loaded"):
        models.load(folder, device="cpu")


def test_loading_never_changes_what_the_files_say(tiny_folders):
    model = models.load(tiny_folders("llama"), device="cpu", dtype="float32")
    stored = models.AutoModelForCausalLM.from_pretrained(tiny_folders("llama"), dtype=torch.float32)
    for name, parameter in stored.named_parameters():
        assert torch.equal(parameter, model.network.get_parameter(name))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="device='cuda:1' is no device that this torch sees; choose cpu or auto"):
        models.load("facts-1m", device="cuda:1")


def test_a_model_that_ships_code_is_refused_unless_asked_for(tiny_folders, tmp_path):
    folder, ran = tmp_path / "own-code", tmp_path / "ran"
    shutil.copytree(tiny_folders("llama"), folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own-code", "auto_map": {"AutoConfig": "configuration_own.OwnConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    code = f"""
from pathlib import Path

from transformers import LlamaConfig

Path({str(ran)!r}).touch()


class OwnConfig(LlamaConfig):
    model_type = "own-code"
"""
    (folder / "configuration_own.py").write_text(code)
    with pytest.raises(FileNotFoundError, match=r"own-code' could not be loaded"):
        models.load(folder, device="cpu")
    assert not ran.exists()
    with contextlib.suppress(FileNotFoundError):  # the code runs; that it makes no model is another matter
        models.load(folder, device="cpu", trust_remote_code=True)
    assert ran.exists()


def test_a_model_in_the_folder_above_has_a_name_and_not_two_dots(tiny_folders, tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    shutil.copytree(tiny_folders("llama"), folder)
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert models.load("..", device="cpu").name == "mine"
