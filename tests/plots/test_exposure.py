"""Test the figure of accuracy and scores by the training documents of a bundled model."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from figure_checks import check_figure, finding, grid
from invented_settings import beams

from pro_lib import metrics
from pro_lib.plots import exposure


def test_exposure_groups_questions_by_what_the_model_was_told():
    run = beams()
    assert exposure.table(run).empty
    told = replace(run, questions=run.questions.assign(exposure=[0, 8], conflict=[0.0, 0.5]))
    assert exposure.table(told).empty  # another model was told other things
    table = exposure.table(replace(told, info=replace(run.info, model="facts-1m")), alpha=0.5)
    means = table.set_index(["measure", "exposure"])["mean"]
    assert means["accuracy"].to_dict() == {0: 0.0, 8: 1.0}
    assert means["NLL"].to_dict() == pytest.approx({0: -np.log(0.6), 8: -np.log(0.2)})
    assert table["n_in_group"].tolist() == [1] * 6
    low, high = metrics.wilson(1.0, 1)
    last = table[(table["measure"] == "accuracy") & (table["exposure"] == 8)].iloc[0]
    assert last[["mean_low", "mean_high"]].tolist() == [low, high]


def test_it_can_be_read_at_both_widths():
    setting = {"dataset": ["d"], "model": ["a"], "measure": ["PRO", "accuracy", "NLL"]}
    table = grid(**setting, exposure=[0, 4, 32], conflict=[0.0, 0.25])
    table = table.assign(mean=table["auroc"], mean_low=0.5, mean_high=1.0)
    check_figure(exposure.draw, table, n_panels=2)


def test_the_caption_says_what_no_and_many_documents_do():
    rows = {
        "measure": ["PRO", "accuracy"] * 3,
        "exposure": [32, 32, 0, 0, 32, 32],
        "conflict": [0, 0, 0, 0, 0.5, 0.5],
        "mean": [0.2, 0.9, 2.0, 0.05, 0.6, 0.4],
    }
    table = pd.DataFrame(rows).assign(model="m", n_questions=1234)
    assert finding(exposure.caption(table, alpha=0.4)) == (
        "With 32 documents, 90.0 % of the answers are correct if 0 % of the documents are false "
        "(mean PRO: 0.20 nats), but 40.0 % of the answers are correct if 50 % of the documents are "
        "false (mean PRO: 0.60 nats)."
    )
