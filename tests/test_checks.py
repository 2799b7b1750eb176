"""Sentences that say what is wrong with a parameter or an object read: one line, short enough to be read."""

import pytest

from pro_lib.checks import Format, Probability, SentenceError, checked, fitted, one_line


class Row(Format, extra="forbid"):
    text: str
    share: Probability = 0


@checked
class Options:
    share: Probability = 1


def test_a_message_is_one_line_that_can_be_printed():
    assert one_line("  a\r\n\n  b\tc\x00d\u2028e  ") == "a b c d e"
    assert one_line("double  spaces of a name stay") == "double  spaces of a name stay"
    assert one_line("\ud800") == r"\ud800"


def test_of_a_long_message_the_beginning_and_the_end_are_kept():
    assert one_line("x" * 300) == "x" * 300
    line = one_line("begin " + "x" * 200_000 + " end")
    assert (len(line), line[:6], line[-4:]) == (300, "begin ", " end")


HOSTILE = ["x" * 200_000, "one\ntwo", "\ud800", 10**50, [["x"] * 99] * 99, {"k" * 500: {"\n": 1}}, None, b"\n\xff"]


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_values_and_names_are_told_in_one_short_line(value):
    for wrong in (
        lambda: fitted(Row, {"text": 1, "share": value}, "file, line 1"),
        lambda: fitted(Row, {"text": "a", "share": value}, "file, line 1"),
        lambda: fitted(Row, value, "file, line 1"),
        lambda: Options(share=value),
        lambda: Options(**{"x" * 200_000: 1}),
    ):
        with pytest.raises(SentenceError) as caught:
            wrong()
        said = str(caught.value)
        assert len(said) <= 300
        assert said.isprintable()
