"""Texts of control tokens, such as the end of a text or of a chat turn."""

import re

_BETWEEN_BARS = r"<\|[^<>|\s]{1,40}\|>|<｜[^<>｜\s]{1,40}｜>"  # <|im_end|>, <｜end▁of▁sentence｜>
_AFTER_BAR = r"<\|[a-z_]{1,20}>|<[a-z_]{1,20}\|>"  # <|turn>, <turn|>
_ABBREVIATION = r"</?(?:s|eos|bos|pad|unk|sep|cls|mask|eod|eot|sop|eop)>"
_THOUGHT = r"</?(?:think|thinking|thought|reasoning|seed:think)>"
_TURN = r"<[a-z]{1,12}_of_[a-z]{1,12}>"  # <end_of_turn>
_IN_BRACKETS = r"\[/?(?:INST|THINK|EOS|BOS|PAD|UNK|SEP|CLS|MASK|gMASK|SYSTEM_PROMPT)\]"
_KIMI_THOUGHT = r"◁/?think▷"

# Control tokens in the text of an answer, which may also contain HTML, code or words in brackets.
CONTROL_TOKEN = re.compile(
    "|".join(
        [_BETWEEN_BARS, _AFTER_BAR, _ABBREVIATION, _THOUGHT, _TURN, _IN_BRACKETS, _KIMI_THOUGHT]
    )
)
# Every control token of `CONTROL_TOKEN` contains one of these characters.
CONTROL_SIGNS = ("<", "[", "◁")

_ANY_BETWEEN_BARS = r"<[|｜][^<>\s]+[|｜]>"
_TOOL = r"</?(?:tools|tool_\w+)>"
_ANY_TURN = r"<(?:start|end)_of_\w+>"
_UNUSED = r"<unused\d+>"
_ANY_IN_BRACKETS = r"\[/?[A-Z_]{3,}\]"
_ANY_KIMI = r"◁[^\s]+▷"

# Control tokens among the added tokens of a tokenizer that are not marked as special. The pattern
# is wider, since it is not applied to other texts. HTML tags are excluded: they are text tokens of
# Gemma.
ADDED_CONTROL_TOKEN = re.compile(
    "|".join([_ANY_BETWEEN_BARS, _THOUGHT, _TOOL, _ANY_TURN, _UNUSED, _ANY_IN_BRACKETS, _ANY_KIMI])
)
