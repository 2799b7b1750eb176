"""Test the figure of PRO minus NLL by both ways to count repeated answers."""

import pandas as pd
from figure_checks import check_figure, finding, legend
from invented_settings import SPLITS, setting_row

from pro_lib import metrics
from pro_lib.plots import protocols


def invented(**others):
    rows = []
    for protocol, difference in (("paper", -0.1), ("workbench", 0.05)):
        for choice in ("α chosen", "α = 0.4", "K = 2"):
            row = setting_row(difference, protocol=protocol, choice=choice, p_value=1e-9)
            rows.append(row | others)
    return pd.DataFrame(rows)


def test_the_table_has_a_row_for_each_choice_of_k():
    table = protocols.table(SPLITS[:1], alpha=0.3)
    assert table["choice"].tolist() == ["α chosen", "α = 0.3", "K = 2", "K = 5", "K = 10"]
    reported = SPLITS[0].reported
    scores = [reported.pro(SPLITS[0].alpha()), reported.pro(0.3), reported.pro(k=2)]
    expected = [metrics.auroc(score, reported.correct) for score in scores]
    assert table["auroc"].tolist()[:3] == expected
    assert table["alpha"].tolist()[1] == 0.3
    assert table["k"].tolist()[2:] == [2, 5, 10]


def test_it_can_be_read_at_both_widths():
    settings = [{"dataset": d, "model": m} for d in ("world-facts", "mine") for m in "ab"]
    check_figure(protocols.draw, pd.concat(invented(**each) for each in settings), n_panels=4)


def test_protocols_have_their_marks():
    figure = protocols.draw(invented())
    marks = ["significantly better than NLL", "significantly worse than NLL"]
    assert legend(figure) == ["repeats counted", "each answer once", *marks]
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 3]
    values = {line.get_marker(): set(line.get_xdata()) for line in lines}
    assert values == {"o": {-0.1}, "x": {1}, "s": {0.05}, "+": {1}}
    assert len(legend(protocols.draw(invented().drop(columns="p_value")))) == 2
    assert len(legend(protocols.draw(invented(n_correct=1)))) == 2


def test_the_caption_compares_pro_with_nll_in_each_protocol():
    assert finding(protocols.caption(invented())) == (
        "With the chosen α, PRO is significantly better than NLL in 1 of 2 cases and worse in 1 "
        "(mean difference: −0.100 with repeats counted and +0.050 with each answer once). With a "
        "fixed K, PRO is significantly better than NLL in 1 of 2 cases and worse in 1 (mean "
        "difference: −0.100 with repeats counted and +0.050 with each answer once)."
    )
