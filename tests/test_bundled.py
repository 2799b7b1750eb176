"""The engine on the bundled model: against beams of transformers 4.56.2 (golden/) and plain forward passes."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_strategies import check_plain_passes

from pro_lib import bundled
from pro_lib import questions as question_sets
from pro_lib.bundled import DATA
from pro_lib.engine.tree import Counts, PackedTree, encode_prefix
from pro_lib.engine.walk import diverse_beam, greedy
from pro_lib.generate import generate

GOLDEN = json.loads((Path(__file__).parent / "golden" / "diverse_beam.json").read_text())


def test_the_golden_file_belongs_to_the_committed_weights():
    weights = (DATA / "models" / "facts-2m" / "model.safetensors").read_bytes()
    assert GOLDEN["weights"] == hashlib.sha256(weights).hexdigest()
    assert GOLDEN["versions"]["transformers"] == "4.56.2"


def tree_of(model, prompts):
    ids = [prompt["ids"] for prompt in prompts]
    return PackedTree(model.network, ids, encode_prefix(model.network, ids[0]).shared_with(ids), Counts())


@pytest.mark.parametrize("n_shots", [0, 10])
@pytest.mark.parametrize("n_answers", [1, 4, 10])
def test_diverse_beams_are_those_of_transformers_4_56_2(facts_2m, n_answers, n_shots):
    prompts = [prompt for prompt in GOLDEN["prompts"] if prompt["n_shots"] == n_shots]
    assert len(prompts) >= 30
    assert torch.equal(facts_2m.endings.stop.nonzero().squeeze(1), torch.tensor(GOLDEN["stop_ids"]))
    found = diverse_beam(tree_of(facts_2m, prompts), facts_2m.endings, n_answers=n_answers)
    for prompt, answers in zip(prompts, found, strict=True):
        expected = sorted(prompt["answers"][str(n_answers)], key=lambda a: (a["ids"], a["finished"]))
        mine = sorted(answers, key=lambda a: (a.token_ids, a.finished))
        assert [list(a.token_ids) for a in mine] == [a["ids"] for a in expected]
        assert [a.finished for a in mine] == [a["finished"] for a in expected]
        for ours, theirs in zip(mine, expected, strict=True):
            np.testing.assert_allclose(ours.token_log_probs, theirs["log_probs"], atol=1e-4)
            assert ours.end_log_prob == pytest.approx(theirs["end"], abs=1e-4)


def test_one_beam_is_greedy(facts_2m):
    prompts = GOLDEN["prompts"][:32]
    one_beam = diverse_beam(tree_of(facts_2m, prompts), facts_2m.endings, n_answers=1)
    assert one_beam == greedy(tree_of(facts_2m, prompts), facts_2m.endings)


@pytest.mark.parametrize("strategy", ["greedy", "multinomial", "diverse_beam"])
def test_a_question_alone_and_among_64_gives_the_same_and_so_does_a_plain_forward_pass(facts_2m, strategy):
    many = question_sets.load("world-facts", split="validation", limit=64)
    options = {"strategy": strategy, "progress": False}
    packed = generate(facts_2m, many, batch_size=64, **options)
    for place in (0, 31, 63):
        one = replace(many, table=many.table.iloc[[place]])
        alone = generate(facts_2m, one, **options).answers
        among = packed.select(question_ids=list(one.table["question_id"])).answers
        assert list(map(list, alone["token_ids"])) == list(map(list, among["token_ids"]))
        np.testing.assert_allclose(alone["log_prob"], among["log_prob"], atol=1e-5)
        np.testing.assert_allclose(alone["end_log_prob"], among["end_log_prob"], atol=1e-5)
        check_plain_passes(facts_2m, one, among)


def test_the_fingerprint_of_a_model_is_of_every_byte_that_is_loaded_read_once(tmp_path, monkeypatch):
    weights, fingerprints = "model.safetensors", []
    contents = [(weights, bytes(2**20 + 10)), (weights, bytes(2**20 + 9) + b"1")]
    contents += [(name, b"a b") for name in ("config.json", "chat_template.jinja", "merges.txt", "modeling_own.py")]
    for name, content in contents:
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").replace(tmp_path / name)
        fingerprints.append(bundled.fingerprint(tmp_path))
    assert len(set(fingerprints)) == 6
    (tmp_path / "README.md").write_text("which is not loaded")
    monkeypatch.setattr(bundled.hashlib, "file_digest", None)
    assert bundled.fingerprint(tmp_path) == fingerprints[-1]
