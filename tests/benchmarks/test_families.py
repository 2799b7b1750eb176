"""Families of models, tiny and random, beside plain forward passes and `generate`, as docs/results/data/families.csv has them."""

import families
import pandas as pd
import pytest
from conftest import ROOT

TABLE = pd.read_csv(
    ROOT / "docs" / "results" / "data" / "families.csv", keep_default_na=False
).set_index("family")
ASKED = [family for family in families.families() if TABLE["tree"].get(family) != "not made"]
# A cache that gives something else beyond its window than a pass over the text does; a `generate` that fails.
OF_TWO_MINDS = ["blt", "moshi", "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"]
OF_TIMM = ["fast_vlm", "gemma3n", "perception_lm"]
# A kind each: packed, a window, a state, ALiBi, positions that begin elsewhere, one that sees how long a text is, a
# vision tower, and what is none.
KINDS = ("llama", "gpt_oss", "qwen3_5", "bloom", "kosmos-2.5", "prophetnet", "mistral3", "bert")
SLOW = sorted({*families.MOST_USED, *KINDS[6:]})
MARKED = [(SLOW, pytest.mark.slow), (sorted(set(ASKED) - {*SLOW, *KINDS}), pytest.mark.trial)]
NAMES = [*KINDS[:6], *(pytest.param(name, marks=mark) for names, mark in MARKED for name in names)]


@pytest.mark.parametrize("name", NAMES)
def test_a_family_is_asked_as_the_table_says(name):
    """No traceback and no silent wrong answer, and what the table says."""
    if name in OF_TIMM:
        pytest.importorskip("timm")
    [row] = families.table([name])
    if row["tree"] in ("refused", "not made"):
        assert len(row["said"]) <= 500
        assert name == "bert" or name not in SLOW
    else:
        assert row["error"] < 1e-4
        assert row["greedy"] == (name not in OF_TWO_MINDS)
    assert row["tree"] == TABLE["tree"][name]


def test_the_table_has_every_family_and_the_page_says_how_many_are_which():
    assert set(TABLE.index) == set(families.families())
    assert TABLE.index[TABLE["greedy"] == "False"].tolist() == OF_TWO_MINDS
    page = (ROOT / "docs" / "reference" / "model_families.md").read_text()
    for tree, n in TABLE["tree"].value_counts().items():
        assert f"{n} {tree}" in page
