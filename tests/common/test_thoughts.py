"""Thoughts in the text of an answer, and the answer behind them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pro_lib.common.thoughts import THOUGHT_MARKS, thought_mark, without_thoughts

TEXTS = [
    ("Paris", "Paris", False),
    (" Paris ", " Paris ", False),
    ("2 < 3 [so]", "2 < 3 [so]", False),
    ("analysis of variance", "analysis of variance", False),
    ("<think>Hm.</think><think>Well.</think> Paris", "Paris", True),
    ("<think>\nHm", "", True),  # it was cut within the thought
    (
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Paris",
        "Paris",
        True,
    ),
    ("analysisThe user asks.assistantfinalParis", "Paris", True),
    ("Use <think> as a mark", "Use <think> as a mark", False),
]


@pytest.mark.parametrize(("text", "answer", "has_thought"), TEXTS)
def test_thoughts_are_taken_off_the_beginning_of_a_text(text, answer, has_thought):
    assert without_thoughts(text) == (answer, has_thought)


@given(st.sampled_from(list(THOUGHT_MARKS)), st.text("ab \n."), st.text("xy Z"), st.booleans())
def test_what_stands_behind_a_thought_is_the_answer_whatever_the_thought_says(
    mark, thought, answer, is_opened
):
    text = (mark if is_opened else "") + thought + THOUGHT_MARKS[mark] + answer
    assert without_thoughts(text) == (answer.lstrip(), True)
    assert thought_mark(text) == (mark if is_opened else None)
