"""Test the comparison of an answer's text with its tokens."""

import itertools
import math
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pro_lib.importing import parsed_answers as problems
from pro_lib.importing import token_alignment as alignment
from pro_lib.importing import token_spellings
from pro_lib.importing.parsed_answers import ParsedAnswer
from pro_lib.importing.token_alignment import align


def aligned(text, tokens, log_probs=None, **more):
    """Align a text with tokens; without log-probabilities, token n has -(n + 1) / 8."""
    values = [-(n + 1) / 8 for n in range(len(tokens))] if log_probs is None else log_probs
    prompt = more.pop("prompt", None)
    return align(ParsedAnswer(text, tokens, values, **more), prompt)


def scored(result):
    """The text, the log-probabilities, and the numbers of tokens before and after them."""
    return result.text, result.token_log_probs, result.n_before, result.n_after, result.lacks_ending


def expected(text, log_probs, n_before=0, n_after=0, lacks_ending=False):
    return text, log_probs, n_before, n_after, lacks_ending


# --- Values that are worked by hand ---

# By case: the text, its tokens, the numbers of the first token that counts and of the one behind
# the last, and what else the server says.
SPELLED = {
    "the same text": ("Paris", ["Par", "is"], 0, 2),
    "bytes": ("Zoë", [b"Zo", b"\xc3", b"\xab"], 0, 3),
    "an ending": ("Paris", ["Par", "is", "</s>"], 0, 3),
    "an ending without text": ("Paris", ["Par", "is", ""], 0, 3),
    "an ending whose text is unknown": ("Paris", ["Par", "is", None], 0, 3),
    "an ending of another model": ("Paris", ["Par", "is", "<｜end▁of▁sentence｜>"], 0, 3),
    "padding behind the ending": ("Paris", ["Par", "is", "<eos>", "<pad>", "<pad>"], 0, 3),
    "white space that the server removed": ("Paris", ["\n", " Par", "is", "\n"], 0, 4),
    "a space of sentencepiece": ("Paris", ["▁", "Paris", "</s>"], 0, 3),
    "sentencepiece": ("Paris\n é", ["▁Par", "is", "<0x0A>", "▁", "<0xC3>", "<0xA9>", "</s>"], 0, 7),
    "byte-level": ("Paris\n é", ["ĠPar", "is", "Ċ", "Ġ", "Ã", "©", "<|endoftext|>"], 0, 7),
    "escaped bytes": ("é!", ["bytes:\\xc3", "bytes:\\xa9", "!"], 0, 3),
    "split characters": ("Zoë 日", ["Zo", "�", "�", " �", "�", "�"], 0, 6),
    "a split character at the cut": ("Zo�", ["Zo", b"\xc3"], 0, 2),
    "split characters behind others": ("日", ["Q", ".", "�", "�"], 2, 4),
    "reasoning": (
        "Paris",
        ["<think>", "Hm", "Paris", "?", "</think>", "\n\n", "Par", "is", "</s>"],
        6,
        9,
    ),
    "reasoning without marks": ("Paris", ["So", ".", " Par", "is"], 2, 4),
    "a mark of several tokens": ("Paris", ["Hm", "</", "think", ">", "\n", "Paris"], 5, 6),
    "white space that belongs to the text": (
        "\n\nParis",
        ["Hm", "</think>", "\n\n", "Paris"],
        2,
        4,
    ),
    "a prefill": ("Paris", ["The", " capital", " is", " Par", "is", "."[:0]], 3, 6),
    "a prompt with the same text": ("Paris", ["Paris", " or", " Rome", "?", " Paris"], 4, 5),
    "a text that is all ending": ("", ["<|im_end|>"], 0, 1),
    "a literal that looks like an ending": ("a</s>", ["a", "</", "s", ">"], 0, 4),
    "no tokens of a text that was cut": ("", [], 0, 0),
    "an ending that the server names": (
        "Paris",
        ["Par", "is", "<stop>"],
        0,
        3,
        {"token_specials": [False, False, True]},
    ),
    "unknown texts": ("Paris", [None, None], 0, 2),
    "ids as texts": ("Paris", ["token_id:5", "token_id:7"], 0, 2),
    "ids as bytes": ("Paris", [b"token_id:5", b"token_id:7"], 0, 2),
    "a stop string": ("Paris", ["Par", "is", "\nQ", ":"], 0, 4, {"stop": "\nQ:"}),
    "a stop string behind a thought": (
        "Paris",
        ["Hm", "</think>", "Paris", "\nQ", ":"],
        2,
        5,
        {"stop": "\nQ:"},
    ),
    "a stop string within the last token": ("Paris.", ["Paris", ".\nQ"], 0, 2, {"stop": "\nQ"}),
    "no known ending": ("Paris", ["Par", "is", "\n", "Q", ":"], 0, 2),
    "all that was generated": ("Paris", ["Par", "is", "\n", "Q"], 0, 4, {"n_generated": 4}),
    "all, the last in part": ("Paris.", ["Paris", ".\nQ"], 0, 2, {"n_generated": 2}),
}


@pytest.mark.parametrize("case", SPELLED)
def test_tokens_that_spell_the_text_are_scored(case):
    text, tokens, start, stop, *more = SPELLED[case]
    result = aligned(text, tokens, finished=bool(tokens), **dict(*more))
    assert (result.text, result.n_before) == (text, start)
    assert result.n_after == len(tokens) - stop - tokens.count("<pad>")
    assert result.token_log_probs == [-(n + 1) / 8 for n in range(start, stop)]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Paris<|im_end|>", ["Par", "is", "<|im_end|>"]),
        ("Paris</s>", ["Par", "is", ""]),
        ("Paris <end_of_turn>\n", ["Par", "is"]),
        ("[/INST] Paris</s><pad>", ["[/INST]", " Par", "is", "</s>", "<pad>"]),
    ],
)
def test_special_tokens_at_the_ends_of_the_text_are_removed(text, tokens):
    result = aligned(text, tokens)
    assert result.text.strip() == "Paris"
    n_before = tokens.count("[/INST]")
    assert result.token_log_probs == [
        -(n + 1) / 8 for n in range(n_before, len(tokens) - tokens.count("<pad>"))
    ]


# By reason why answers are left out: their texts, their tokens, and what else the server says.
LEFT_OUT = {
    alignment.TOO_FEW: [
        ("Paris", ["Par"]),
        ("Paris", ["is", "</s>"]),
        (" Paris", ["Paris"]),  # outer white space is missing
        ("Paris", []),
    ],
    alignment.DIFFERENT: [
        ("a b", ["a", "b"]),  # white space is missing
        ("Paris", ["Lima"]),
        ("", ["Lima"]),
        ("日!", [b"\x97\xa5!"]),  # a part of a character is missing
        ("Paris", ["Paris", " is"], {"finished": False}),  # a cut answer has no ending
        ("A", ["A", " or B?"], {"has_thoughts": True}),  # tokens of reasoning alone
    ],
    problems.NOT_RETURNED: [("", [])],
    problems.THOUGHT_IN_TOKENS: [
        ("", ["<think>", "</think>", "</s>"]),
        ("a", [None, None], {"has_thoughts": True}),
    ],
    problems.OPEN_THOUGHT: [("Paris", ["<think>", "Is it ", "Paris"])],
    alignment.STARTS_WITHIN: [
        ("Paris", ["</think>Par", "is"]),
        ("日!", [b"Hm \xe6", b"\x97\xa5!"]),
    ],
    alignment.STARTS_WITHIN_WORD: [("5", ["1", "5"])],
    alignment.ENDS_WITHIN: [
        ("Paris.", ["Paris", ".\nQ"]),
        ("Paris.", ["Paris", ".!\nQ"], {"stop": "\nQ"}),  # more text before the stop string
    ],
    alignment.SPECIAL_WITHIN: [
        ("Hm Paris", ["Hm", "</think>", " Paris"]),
        ("A<|x|>B", ["A", "<|x|>", "B"]),
    ],
    alignment.PARTLY_UNKNOWN: [("Paris", [None, "is"])],
    alignment.SPLIT_UNKNOWN: [("é", ["�", "�", " or ", "�", "�"])],
    alignment.UNEVEN: [("Paris", ["Par", "is"], {"log_probs": [-0.5]})],
}


@pytest.mark.parametrize("reason", LEFT_OUT)
def test_an_answer_that_cannot_be_compared_is_left_out_with_the_reason(reason):
    for text, tokens, *more in LEFT_OUT[reason]:
        assert aligned(text, tokens, **dict(*more)) == reason, tokens


# --- Placeholders ---


@pytest.mark.parametrize("value", [None, -9999, -9999.0, -1e9, -math.inf, math.nan])
def test_a_placeholder_is_allowed_in_the_place_of_the_ending_only(value):
    assert alignment.is_placeholder(value)
    for ending in ("", "</s>", "\n"):
        result = aligned("Paris", ["Par", "is", ending], [-0.25, -0.5, value])
        assert scored(result) == expected("Paris", [-0.25, -0.5], lacks_ending=True)
    unknown = problems.NOT_RETURNED
    assert aligned("Paris", ["Par", "is"], [-0.25, value]) == unknown
    assert aligned("Paris", ["Pa", "r", "is", ""], [-0.25, value, -0.5, -0.125]) == unknown
    assert aligned("Paris", [None, None], [-0.25, value]) == unknown
    assert aligned("", [""], [value]) == unknown


def test_a_placeholder_before_the_answer_does_not_matter():
    result = aligned("Paris", ["Hm", "</think>", "Paris"], [-9999.0, None, -0.5])
    assert scored(result) == expected("Paris", [-0.5], n_before=2)


@pytest.mark.parametrize("value", [0.0, 0, -9998.9])
def test_a_log_probability_is_no_placeholder(value):
    assert not alignment.is_placeholder(value)


# --- Prompts in the text ---

ECHO = ["Capital", " of", " France", "?", " Paris"]
ECHOED = [None, -3.0, -2.0, -0.5, -0.25]


# By case: what the server says about the prompt that the text repeats.
ECHOES = {
    "the prompt": {"prompt": "Capital of France?"},
    "a space after the prompt": {"prompt": "Capital of France? "},
    "its number of tokens": {"n_prompt_tokens": 4},
    "no probability of any": {"log_probs": [None] * 4 + [-0.25]},
}
UNKNOWN = [
    {},
    {"prompt": "Capital of Peru?"},
    {"prompt": "Capital of Fra"},  # ends within a token
    {"prompt": "Capital of France? Paris"},  # nothing is left
    {"n_prompt_tokens": 5},
    {"n_prompt_tokens": 2, "prompt": "Capital of France?"},
]


@pytest.mark.parametrize("case", ECHOES)
def test_an_echoed_prompt_is_cut_off(case):
    text = "".join(ECHO)
    more = {"log_probs": ECHOED} | ECHOES[case]
    assert scored(aligned(text, ECHO, **more)) == expected("Paris", [-0.25], n_before=4)
    more["log_probs"] = [None, *more["log_probs"], -0.125]
    if "n_prompt_tokens" in more:
        more["n_prompt_tokens"] += 1
    begun = aligned(text, ["<s>", *ECHO, "</s>"], **more)
    assert scored(begun) == expected("Paris", [-0.25, -0.125], n_before=5)


@pytest.mark.parametrize("more", UNKNOWN, ids=str)
def test_an_echoed_prompt_whose_end_is_unknown_is_left_out(more):
    assert aligned("".join(ECHO), ECHO, ECHOED, **more) == alignment.ECHO_UNKNOWN


def test_a_question_that_is_a_part_of_an_echoed_prompt_does_not_show_its_end():
    tokens = ["Capital of France?", "\nAnswer", ":", " Paris"]
    result = aligned("".join(tokens), tokens, ECHOED[:4], prompt=tokens[0])
    assert result == alignment.ECHO_UNKNOWN


# --- Random answers ---

BYTE_CHARACTERS = {byte: character for character, byte in token_spellings.BYTE_OF_CHARACTER.items()}
WORDS = st.text("ab é日😀", min_size=1, max_size=8)
SPELLINGS = ("bytes", "text", "sentencepiece", "byte-level")


def pieces(text, cuts):
    """The bytes of a text, cut at some of them."""
    data = text.encode()
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def shown(piece, spelling):
    """A token as a server shows it, in one of four spellings."""
    if spelling == "bytes":
        return piece
    if spelling == "byte-level":
        return "".join(BYTE_CHARACTERS[byte] for byte in piece)
    text = piece.decode("utf-8", "replace")
    if (
        spelling == "text" or "�" in text
    ):  # sentencepiece has a token for a byte, but no token of parts
        return text
    return text.replace(" ", "▁")


def sentencepieces(piece):
    """Pieces that sentencepiece knows: whole characters, or single bytes."""
    try:
        piece.decode()
    except UnicodeDecodeError:
        return [piece[n : n + 1] for n in range(len(piece))]
    return [piece]


@st.composite
def answers(draw, before, after):
    """Draw a text, its tokens as bytes and as shown, and the numbers of tokens."""
    text = draw(WORDS)
    spelling = draw(st.sampled_from(SPELLINGS))
    cut = st.lists(st.integers(0, 40), max_size=5)
    parts = [pieces(part, draw(cut)) for part in (draw(before), text, draw(after))]
    if spelling == "sentencepiece":
        parts = [[byte for piece in part for byte in sentencepieces(piece)] for part in parts]
    mark = draw(st.sampled_from([[], ["</think>"]])) if parts[0] else []
    ending = (
        draw(st.sampled_from([[], [""], ["</s>"], ["<|im_end|>", "<pad>"]])) if not parts[2] else []
    )
    tokens = [*parts[0], *mark, *parts[1], *ending, *parts[2]]
    spelled = [b"" if isinstance(token, str) else token for token in tokens]
    server = [token if isinstance(token, str) else shown(token, spelling) for token in tokens]
    if spelling == "sentencepiece":
        singles = {n for n, token in enumerate(spelled) if len(token) == 1 and token[0] > 127}
        server = [
            f"<0x{spelled[n][0]:02X}>" if n in singles else token for n, token in enumerate(server)
        ]
    if draw(st.booleans()):
        text = text.strip()
    return text, spelled, server, len(parts[0]) + len(mark), len(parts[1])


def naive_ranges(text, spelled):
    """All ranges of tokens that spell a text, with white space around it: naive, by trying each."""
    found = []
    for start in range(len(spelled)):
        for stop in range(start + 1, len(spelled) + 1):
            joined = b"".join(spelled[start:stop]).decode("utf-8", "surrogateescape")
            if text in joined and joined.strip() == text.strip():
                found.append((start, stop))
    return found


def is_covered(text, spelled, result):
    """Whether the tokens of a result spell the text, and no later tokens that reach the end do."""
    start, n_scored = result.n_before, len(result.token_log_probs)
    ranges = naive_ranges(text, spelled)
    if (start, start + n_scored) not in ranges:
        return False
    at_end = [first for first, last in ranges if not b"".join(spelled[last:]).strip()]
    later = [first for first in at_end if b"".join(spelled[start:first]).strip()]
    return not later


ANY = st.one_of(st.just(""), WORDS)


@given(answers(ANY, ANY), st.none() | st.integers(0, 60))
def test_random_answers_are_scored_on_tokens_that_spell_them_or_left_out(answer, missing):
    text, spelled, server, _, _ = answer
    assume(text.strip() and len(spelled) > 1)
    if missing is not None:
        missing %= len(spelled)
        # Any two parts of characters that are shown as U+FFFD look like a whole one.
        assume("�" not in "".join(map(_text_of, server)))
        del spelled[missing], server[missing]
    log_probs = [-(2.0 ** (n / 4)) for n in range(len(server))]
    result = align(ParsedAnswer(text, server, log_probs))
    if isinstance(result, ParsedAnswer):
        first, n_scored = result.n_before, len(result.token_log_probs)
        assert result.token_log_probs == log_probs[first : first + n_scored]
        assert is_covered(text, spelled, result)


def _text_of(token):
    return token if isinstance(token, str) else ""


FOREIGN = st.text("XYZ ", min_size=1, max_size=6).map(lambda text: f"{text}.")


@given(answers(st.one_of(st.just(""), FOREIGN), st.one_of(st.just(""), FOREIGN)))
def test_random_answers_between_other_tokens_are_scored_exactly(answer):
    text, spelled, server, n_before, n_tokens = answer
    has_after = any(token and token[-1:] == b"." for token in spelled[n_before + n_tokens :])
    assume(text.strip() and not (has_after and (n_before or "�" in "".join(map(_text_of, server)))))
    log_probs = [-(2.0 ** (n / 4)) for n in range(len(server))]
    result = align(ParsedAnswer(text, server, log_probs))
    if has_after:  # the ending is unknown then
        start, stop = 0, n_tokens
    else:
        start, stop = n_before, len(server) - server.count("<pad>")
    # White space of the tokens that the text does not have counts as long as nothing else is
    # left out.
    has_space = text and (text[0] != " ")
    while start and has_space and not spelled[start].strip():
        start += 1
    while has_after and not spelled[stop - 1].strip() and text[-1:] != " ":
        stop -= 1
    # Parts of characters that are shown as U+FFFD look like others, so where the answer
    # starts may be undecidable.
    if isinstance(result, str) and any("�" in _text_of(token) for token in server):
        return
    assert isinstance(result, ParsedAnswer), result
    assert result.token_log_probs == log_probs[start:stop]
    assert result.n_before == start


def test_a_hundred_thousand_answers_take_seconds():
    answer = ParsedAnswer("Paris", ["Par", "is", "</s>"], [-0.25, -0.5, -0.125])
    start = time.process_time()
    for _ in range(10_000):
        align(answer)
    assert time.process_time() - start < 2
