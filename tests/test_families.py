"""Families of models, tiny and random, beside plain forward passes and `generate`, as docs/families.csv has them."""

import importlib
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from pro_lib import models
from pro_lib import questions as question_sets
from pro_lib.generate import generate

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

families = importlib.import_module("families")

TABLE = pd.read_csv(ROOT / "docs" / "families.csv", keep_default_na=False).set_index("family")
ASKED = [family for family in families.families() if TABLE["tree"].get(family) != "not made"]
# A cache that gives something else beyond its window than a pass over the text does; a `generate` that fails.
OF_TWO_MINDS = ["blt", "moshi", "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"]
OF_TIMM = ["fast_vlm", "gemma3n", "perception_lm"]
# A kind each: packed, a window, a state, ALiBi, a vision tower, and what is none.
KINDS = ("llama", "gpt_oss", "qwen3_5", "bloom", "mistral3", "bert")
# Asked for most, and once not asked at ten shots: the tree of each, as its runs say it.
PLAIN = "plain, since the model has "
AT_TEN_SHOTS = dict.fromkeys(("qwen3_5", "granitemoehybrid"), f"{PLAIN}layers (linear_attention)")
AT_TEN_SHOTS |= {"lfm2": f"{PLAIN}layers (conv)", "gpt_oss": f"{PLAIN}a sliding window of 64, texts have "}
AT_TEN_SHOTS |= {"mistral3": "packed", "ministral3": "packed"}


def holds(name):
    """No traceback and no silent wrong answer, and what the table says."""
    if name in OF_TIMM:
        pytest.importorskip("timm")
    [row] = families.table([name])
    if row["tree"] in ("refused", "not made"):
        assert len(row["said"]) <= 300
    else:
        assert row["error"] < 1e-4
        assert row["greedy"] == (name not in OF_TWO_MINDS)
    assert row["tree"] == TABLE["tree"][name]
    return row


@pytest.mark.parametrize("name", KINDS[:4])
def test_a_family_is_asked_as_the_table_says(name):
    holds(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*families.MOST_USED, *KINDS[4:]}))
def test_the_most_used_families_are_asked_as_the_table_says(name):
    row = holds(name)
    assert row["tree"] != "refused" or name == "bert"


@pytest.mark.trial
@pytest.mark.parametrize("name", sorted(set(ASKED) - {*families.MOST_USED, *KINDS}))
def test_every_family_is_asked_as_the_table_says(name):
    holds(name)


@torch.inference_mode()
def plainly(model, prompt, answer):
    """The oracle: of each token of an answer, and of its end, what one plain forward pass of the whole text gives."""
    logits = model.network(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 :]
    log_probs = torch.log_softmax(logits.float(), dim=-1).double()
    return [*log_probs[range(len(answer)), answer].tolist(), log_probs[-1, model.endings.stop].logsumexp(0).item()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*asked on the plain tree:UserWarning")
@pytest.mark.parametrize("name", AT_TEN_SHOTS)
def test_at_ten_shots_a_family_answers_as_generate_and_plain_passes_do(name, tmp_path):
    families.make(name, tmp_path / name)
    model = models.load(tmp_path / name, device="cpu")
    questions = question_sets.load("world-facts", split="test", limit=3, n_shots=10)
    prompts = dict(zip(questions.table["question_id"], map(model.encode, questions.prompts()), strict=True))
    assert min(map(len, prompts.values())) > 128  # what gpt-oss itself sees in half of its layers
    n_tokens, how = 0, {"max_new_tokens": 8, "n_answers": 3, "search_alpha": 3e-5, "progress": False}
    for strategy in ("greedy", "diverse_beam", "threshold"):
        run = generate(model, questions, strategy=strategy, **how)
        assert run.info.provenance["tree"].startswith(AT_TEN_SHOTS[name])
        assert len(run.answers) >= {"greedy": 3, "diverse_beam": 9, "threshold": 7}[strategy]
        for answer in run.answers.itertuples():
            prompt, ids, stored = prompts[answer.question_id], list(answer.token_ids), list(answer.token_log_probs)
            ends = answer.finished and answer.end_log_prob == answer.end_log_prob
            plain = plainly(model, prompt, ids)
            stored, plain = ([*stored, answer.end_log_prob], plain) if ends else (stored, plain[:-1])
            assert stored == pytest.approx(plain, abs=1e-4)
            n_tokens += len(ids)
            if strategy == "greedy":
                given = model.network.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=9)
                given = given[0, len(prompt) :].tolist()
                assert given[: len(ids)] == ids
                assert model.endings.stop[given[len(ids)]] if ends else answer.finished or len(ids) == 8
    assert n_tokens > 30


def test_the_table_has_every_family_and_the_page_says_how_many_are_which():
    assert set(TABLE.index) == set(families.families())
    assert TABLE.index[TABLE["greedy"] == "False"].tolist() == OF_TWO_MINDS
    page = (ROOT / "docs" / "families.md").read_text()
    for tree, n in TABLE["tree"].value_counts().items():
        assert f"{n} {tree}" in page
