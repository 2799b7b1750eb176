"""Tests that tiny random models of each family behave as docs/results/data/families.csv states."""

import families
import pandas as pd
import pytest
from conftest import ROOT

TABLE = pd.read_csv(
    ROOT / "docs" / "results" / "data" / "families.csv", keep_default_na=False
).set_index("family")
MADE = [family for family in families.families() if TABLE["tree"].get(family) != "not made"]
# Their `generate` fails, or their cache differs from a forward pass beyond the window.
DIFFERENT_FROM_GENERATE = ["blt", "moshi", "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"]
OF_TIMM = ["fast_vlm", "gemma3n", "perception_lm"]
# One family of each kind: packed, a window, a state, ALiBi, a dependence on the length of the text,
# positions that do not begin at 0, a vision tower, and a family that is not a causal model.
KINDS = ("llama", "gpt_oss", "qwen3_5", "bloom", "prophetnet", "kosmos-2.5", "mistral3", "bert")
SLOW = sorted({*families.MOST_USED, *KINDS[5:]})
MARKED = [(SLOW, pytest.mark.slow), (sorted(set(MADE) - {*SLOW, *KINDS}), pytest.mark.trial)]
NAMES = [*KINDS[:5], *(pytest.param(name, marks=mark) for names, mark in MARKED for name in names)]


@pytest.mark.parametrize("name", NAMES)
def test_a_family_behaves_as_the_table_states(name):
    if name in OF_TIMM:
        pytest.importorskip("timm")
    [row] = families.table([name])
    if row["tree"] in ("refused", "not made"):
        assert len(row["said"]) <= 500
        assert name == "bert" or name not in SLOW
    else:
        assert row["error"] < 1e-4
        assert row["greedy"] == (name not in DIFFERENT_FROM_GENERATE)
    assert row["tree"] == TABLE["tree"][name]


def test_the_table_has_every_family_and_the_page_states_their_counts():
    assert set(TABLE.index) == set(families.families())
    assert TABLE.index[TABLE["greedy"] == "False"].tolist() == DIFFERENT_FROM_GENERATE
    page = (ROOT / "docs" / "explanation" / "decoding_engine.md").read_text()
    for tree, n in TABLE["tree"].value_counts().items():
        assert f"{n} {tree}" in page
