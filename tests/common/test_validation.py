"""Errors about parameters and objects are one short line."""

import pytest

from pro_lib.common.files import parse
from pro_lib.common.validation import Format, Probability, SentenceError, checked, one_line


class Row(Format, extra="forbid"):
    share: Probability = 0


@checked
class Options:
    share: Probability = 1


def test_a_message_is_one_line_that_can_be_printed():
    assert one_line("  a\r\n\n  b\tc\x00d\u2028e  ") == "a b c d e"
    assert (
        one_line("double  spaces of a name stay, \ud800")
        == r"double  spaces of a name stay, \ud800"
    )
    # The beginning and the end are kept
    line = one_line("begin " + "x" * 200_000 + " end")
    assert (len(line), line[:6], line[-4:]) == (500, "begin ", " end")


HOSTILE = [
    "x" * 200_000,
    "one\ntwo",
    "\ud800",
    10**50,
    [["x"] * 99] * 99,
    {"k" * 500: {"\n": 1}},
    None,
    b"\n\xff",
]
READERS = [
    lambda value: parse(Row, {"share": value}, "file, line 1"),
    lambda value: parse(Row, value, "file, line 1"),
    lambda value: Options(share=value),
    lambda value: Options(**{"x" * 200_000: value}),
]


@pytest.mark.parametrize("read", READERS)
def test_hostile_values_and_names_are_told_in_one_short_line(read):
    for value in HOSTILE:
        with pytest.raises(SentenceError) as caught:
            read(value)
        assert len(str(caught.value)) <= 500
        assert str(caught.value).isprintable()
