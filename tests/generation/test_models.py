import hashlib
import json
import os
import re
import shutil
import time
from pathlib import Path
from unittest import mock

import pytest
import torch
from conftest import ship_code
from safetensors.torch import load_file, save_file
from test_strategies import check_plain_passes
from tiny_models import FAMILIES, PAPER, tiny_tokenizer
from transformers import AutoConfig, AutoTokenizer

from pro_lib import generate, load_model
from pro_lib.common import catalog
from pro_lib.common.validation import SentenceError
from pro_lib.generation import models
from pro_lib.generation.models import UnsupportedModelError
from pro_lib.questions import question_sets


@pytest.mark.parametrize("family", sorted({*FAMILIES, *PAPER}))
def test_every_family_loads_as_a_users_would_and_answers_exactly_as_one_row_at_a_time(
    tiny_folders, family
):
    device = torch.device("cpu")
    model = load_model(tiny_folders(family), device=device, dtype="float32")
    found = (model.name, model.dtype, model.device, model.fit.plain)
    assert found == (family, "float32", device, "")
    assert model.fit.error < 1e-5
    question_set = question_sets.as_set(["Who wrote Emma?", "What is the capital of France?"])
    options = {"strategy": "threshold", "search_alpha": 0.05, "max_new_tokens": 6}
    run = generate(model, question_set, **options)
    check_plain_passes(model, question_set, run.answers, atol=1e-4)


def test_a_text_longer_than_a_window_is_for_the_plain_tree_and_longer_than_the_positions_is_refused(
    tiny_model,
):
    with pytest.raises(UnsupportedModelError, match=r"llama has 256 positions, .* 257 tokens"):
        tiny_model("llama").fit_for(257)
    model = tiny_model("mistral-window")
    assert not model.fit_for(16).plain
    with pytest.warns(
        UserWarning,
        match="model mistral-window has a sliding window of 16, texts have 17; it is asked",
    ):
        assert model.fit_for(17).cached


def with_token(folder, token):
    """Load the model of a folder after its tokenizer has got another token."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([token])
    tokenizer.save_pretrained(folder)
    return load_model(folder, device="cpu")


def test_a_token_that_was_added_beyond_the_weights_matters_only_where_a_prompt_has_it(folder):
    """As the one for images of Gemma 3's models of text alone."""
    model = with_token(folder, "picture")
    options = {"strategy": "greedy"}
    assert len(generate(model, ["What is it?"], **options).answers) == 1
    with pytest.raises(UnsupportedModelError, match="contains 'picture', which is not one of them"):
        generate(model, ["What is a picture?"], **options)


def test_a_control_token_in_a_prompt_is_encoded_as_text(facts_2m):
    """A question may be about the token; its id would end the prompt in the middle."""
    plain = facts_2m.encode("What does it mean?")
    end = facts_2m.tokenizer.eos_token_id
    with pytest.warns(
        UserWarning, match=r"^model facts-2m: '<\|endoftext\|>' in a prompt is encoded as ordinary"
    ):
        ids = facts_2m.encode("What does <|endoftext|> mean?")
    assert end not in ids[1:]
    assert facts_2m.tokenizer.decode(ids[1:]) == "What does <|endoftext|> mean?"
    assert ids[0] == plain[0]  # the beginning-of-text token stays
    assert facts_2m.encode("What does it mean?") == plain


def test_a_control_token_that_cannot_be_written_as_text_is_refused(folder):
    model = with_token(folder, "<think>")  # not called special, so tokenizers never split it
    with pytest.raises(
        UnsupportedModelError, match=r"^the prompt contains '<think>', .*; write it in another way$"
    ):
        model.encode("What is <think>?")
    assert model.encode("What is thinking?") == model.tokenizer("What is thinking?")["input_ids"]


def test_a_control_token_in_a_message_is_refused(folder):
    model = load_model(folder, device="cpu")
    end = model.tokenizer.eos_token
    with pytest.raises(
        UnsupportedModelError, match=f"contains {re.escape(repr(end))}, .* or use chat=False$"
    ):
        model.encode_chat([{"role": "user", "content": f"What is {end}?"}], {})


def test_a_model_of_the_hub_without_a_network_is_one_quick_sentence(monkeypatch):
    client = mock.Mock()
    client.head.side_effect = ConnectionError("no network")
    monkeypatch.setattr(models, "get_session", lambda: client)
    monkeypatch.setattr(models.constants, "HF_HUB_OFFLINE", False)
    words = (
        r"^model 'nobody/nothing' could not be loaded: it is not in the cache, "
        r"and https?://\S+ cannot be reached"
    )
    with pytest.raises(FileNotFoundError, match=words):
        load_model("nobody/nothing")
    assert client.head.call_count == 1


def test_a_tokenizer_that_was_changed_is_asked_anew(tiny_folders):
    model = load_model(tiny_folders("llama"), device="cpu")
    before = model.encode("Who wrote Emma?")
    with pytest.raises(ValueError, match=r"^stop='Emma' must be "):
        model.with_stop(["Emma"])
    model.tokenizer.add_tokens(["Emma"])
    after = model.encode("Who wrote Emma?")
    assert after == model.tokenizer("Who wrote Emma?")["input_ids"] != before
    assert model.with_stop(["Emma"]).ends == ("\n", "Emma")


def test_a_stop_ends_the_answers_of_a_run_and_is_no_part_of_them(tiny_model):
    for stop in ("xyz", "", " "):
        with pytest.raises(ValueError, match=f"^stop='{stop}' must be "):
            tiny_model("llama").with_stop([stop])
    options = {"strategy": "multinomial", "n_answers": 8, "max_new_tokens": 12}
    texts = [f"Who wrote Emma {n}?" for n in range(8)]
    answers = generate(tiny_model("llama"), texts, stop=[*"aeiou"], **options).answers
    assert answers["finished"].sum() > 10
    assert not answers["text"].str.contains("[aeiou]").any()
    # Before a closing token's stop stands text of the answer, which has no ending of its own.
    assert (answers["finished"] & answers["end_log_prob"].isna()).any()


@pytest.fixture
def folder(tiny_folders, tmp_path):
    """A copy of a tiny model's folder, to be damaged."""
    return Path(shutil.copytree(tiny_folders("llama"), tmp_path / "damaged"))


UP = "model.layers.1.mlp.up_proj.weight"


def save_weights(folder, weights):
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def without_a_weight(folder):
    weights = load_file(folder / "model.safetensors")
    del weights[UP]
    save_weights(folder, weights)


def with_a_nan(folder):
    weights = load_file(folder / "model.safetensors")
    save_weights(folder, weights | {UP: weights[UP].fill_(torch.nan)})


def with_a_pipe(folder):
    shards = dict.fromkeys(load_file(folder / "model.safetensors"), "shard.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": shards})
    )
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "shard.safetensors")


def test_a_model_that_ships_code_is_refused_unless_asked_for(folder):
    ran = ship_code(folder)
    with pytest.raises(FileNotFoundError, match=r"damaged' could not be loaded"):
        load_model(folder, device="cpu")
    assert not ran.exists()
    with pytest.raises(FileNotFoundError):  # the code runs, and makes no model
        load_model(folder, device="cpu", trust_remote_code=True)
    assert ran.exists()


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda folder: os.truncate(folder / "model.safetensors", 90_000), "Safetensor"),
        pytest.param(
            with_a_pipe,
            "not a regular",
            marks=pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes"),
        ),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "damaged"),
        (
            lambda folder: tiny_tokenizer(bos=True, merges=60).save_pretrained(folder),
            "but its tokenizer has 318; use the tokenizer of this model",
        ),
        (lambda folder: AutoConfig.for_model("bart").save_pretrained(folder), "encoder-decoder"),
        (without_a_weight, UP),
        (with_a_nan, "not numbers"),
    ],
)
def test_a_damaged_folder_ends_in_one_sentence_that_names_it(folder, damage, word):
    damage(folder)
    with pytest.raises((FileNotFoundError, SentenceError), match="damaged") as raised:
        load_model(folder, device="cpu")
    assert word in str(raised.value)
    assert "\n" not in str(raised.value)


NAMES = [(name, {}) for name in ("./nowhere", "no-such/model", "Gemma-2B")]
OPTIONS = [
    ("facts-2m", option)
    for option in ({"dtype": "float31"}, {"device": "gpu7"}, {"quantization": "3bit"})
]


@pytest.mark.parametrize(("name", "options"), NAMES + OPTIONS)
def test_what_is_no_model_here_and_no_option_is_named(name, options):
    with pytest.raises((ValueError, FileNotFoundError), match=f"'{[name, *options.values()][-1]}'"):
        load_model(name, **options)


def test_the_fingerprint_of_a_model_is_of_every_byte_that_is_loaded_read_once(
    tmp_path, monkeypatch
):
    weights = "model.safetensors"
    fingerprints = []
    contents = [(weights, bytes(2**20 + 10)), (weights, bytes(2**20 + 9) + b"1")]
    contents += [
        (name, b"a b")
        for name in ("config.json", "chat_template.jinja", "merges.txt", "modeling_own.py")
    ]
    for name, content in contents:
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").replace(tmp_path / name)
        fingerprints.append(catalog.fingerprint(tmp_path))
    assert len(set(fingerprints)) == 6
    (tmp_path / "README.md").write_text("which is not loaded")
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert catalog.fingerprint(tmp_path) == fingerprints[-1]


def test_weights_that_were_overwritten_in_place_have_another_fingerprint(tmp_path):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"before")
    before = catalog.fingerprint(tmp_path)
    status = weights.stat()
    time.sleep(0.05)  # the clock of the file system has ticked
    weights.write_bytes(b"behind")
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert catalog.fingerprint(tmp_path) != before


def test_a_network_and_its_tokenizer_are_a_model(facts_2m):
    pair = facts_2m.network, facts_2m.tokenizer
    model = load_model(pair)
    assert model.network is facts_2m.network
    named = models.wrap_network(*pair, name="mine")
    assert (named.name, named.fingerprint) == ("mine", model.fingerprint)
    untrained = type(facts_2m.network)(facts_2m.network.config)
    assert load_model((untrained, facts_2m.tokenizer)).fingerprint != model.fingerprint


@pytest.mark.parametrize(
    ("option", "value"),
    [("dtype", "float32"), ("device", "cpu"), ("quantization", "4bit"), ("revision", "main")],
)
def test_a_pair_is_used_as_it_is(facts_2m, option, value):
    with pytest.raises(ValueError, match=f"^{option} cannot be set for a pair"):
        load_model((facts_2m.network, facts_2m.tokenizer), **{option: value})
