import re
import string
import time
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pro_lib import metrics

WORD = st.sampled_from(["john", "Adams", "quincy,", "the", "president", "presidents"])
WORDS = st.lists(WORD, min_size=1, max_size=6)
ROWS = st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=3)), max_size=5)


@cache
def scorer():
    from rouge_score import rouge_scorer  # takes a second

    return rouge_scorer.RougeScorer(["rougeL"], use_stemmer=False)


def joined(rows):
    """Texts and references of lists of words."""
    references = [[" ".join(words) for words in accepted] for _, accepted in rows]
    return [" ".join(words) for words, _ in rows], references


@given(ROWS)
@example([])
@example([([], [["Paris"]]), ([" \n"], [["Paris"]]), (["x"], [[""]])])
def test_values_of_plain_letters_are_those_of_rouge_score(rows):
    texts, references = joined(rows)
    expected = [
        scorer().score_multi(r, t)["rougeL"].fmeasure
        for t, r in zip(texts, references, strict=True)
    ]
    assert metrics.rouge_l(texts, references).tolist() == expected
    assert metrics.closeness(texts, references).tolist() == expected


def test_long_texts_are_compared_as_rouge_score_does_and_in_seconds():
    rng = np.random.default_rng(0)
    texts = [" ".join(map(str, rng.integers(50, size=size))) for size in (500, 400)]
    expected = scorer().score(texts[1], texts[0])["rougeL"].fmeasure
    assert metrics.rouge_l_between(texts[:1], texts[1:]).tolist() == [expected]
    long = [" ".join(map(str, rng.integers(3000, size=10_000))) for _ in range(2)]
    started = time.process_time()
    metrics.rouge_l_between(long[:1], long[1:])
    assert time.process_time() - started < 10


@pytest.mark.parametrize("judge", [metrics.rouge_l, metrics.closeness])
def test_a_text_that_utf_8_cannot_write_is_judged_all_the_same(judge):
    assert judge(["Paris \ud800 Rome"], [["Oslo", "Paris Rome"]]).tolist() == [1.0]


def test_text_that_rouge_cannot_see_is_counted_in_one_warning():
    texts = ["Paris", "Москва", "???", "東京"]
    references = [["Paris", "Париж"], ["Moscow"], ["Rome"], ["東京", "Токио"]]
    with pytest.warns(metrics.TokenizerWarning, match="^6 texts .*first in row 0") as caught:
        result = metrics.rouge_l(texts, references)
    assert len(caught) == 1
    assert result.tolist() == [1, 0, 0, 0]  # the last is right, and ROUGE cannot know


@pytest.mark.parametrize(
    "judge", [metrics.rouge_l, metrics.exact_match, metrics.alias_match, metrics.value_match]
)
@pytest.mark.parametrize(
    ("texts", "references", "words"),
    [
        (["a", "b"], [["a"]], "texts has 2 entries, but references 1"),
        (["a", "b"], [["a"], []], "references row 1 must hold one string at least"),
        (["a"], ["abc"], "references row 0 must hold .*: 'abc'"),
        (["a"], [["a", None]], "references row 0 must hold .*None"),
        (["a", np.nan], [["a"], ["b"]], "texts row 1 must be a string, not nan"),
    ],
)
def test_bad_input_names_the_row(judge, texts, references, words):
    with pytest.raises(ValueError, match=words):
        judge(texts, references)


NORMAL = {
    "The United States of America.": "united states of america",
    "  U.S.\n": "us",
    "an Apple, a pear & the plum": "apple pear plum",
    "Theatre Straße": "theatre strasse",
    "E\u0301tienne-Étienne": "etienneetienne",
    "«Москва» — город": "москва город",
    "rock ’n’ roll, don´t": "rock n roll dont",
}
NORMAL |= {"$5": "5", "The The": "the the", "A": "a", "?!": ""}
WORD_BY_WORD = {
    "The Rome.": "the rome",
    " São  Paulo": "são paulo",
    "O'Neill": "o neill",
    "?": "?",
    "ﬁ": "fi",
}


def test_normalize_and_words_by_hand():
    assert {text: metrics.normalize(text) for text in NORMAL} == NORMAL
    assert {text: metrics.normalized_words(text) for text in WORD_BY_WORD} == WORD_BY_WORD


@given(st.text(alphabet="aAnNtThHeEbB 19.,-'_$\n", max_size=25))
def test_normalize_is_that_of_squad_on_ascii(text):
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    expected = " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())
    normal = metrics.normalize(text)
    assert normal == expected or (expected == "" and set(normal.split()) <= {"a", "an", "the"})
    assert metrics.normalize(normal) == normal


@pytest.mark.parametrize("match", [metrics.exact_match, metrics.alias_match])
@pytest.mark.parametrize(
    ("text", "reference", "is_match"),
    [
        ("", "Paris", False),
        ("?!", "?!", False),
        ("...", "", False),
        ("Paris", "!!!", False),
        ("the", "A", False),
    ],
)
def test_what_nothing_is_left_of_matches_nothing(match, text, reference, is_match):
    assert match([text], [[reference]]).tolist() == [is_match]


@pytest.mark.parametrize(
    ("text", "reference", "is_match"),
    [
        ("12.50", " 12.5 ", True),
        ("1e3", "1000", True),
        ("-0.0", "0", True),
        ("-5", "5", False),
        ("1,000", "1000", True),  # not a number of JSON, so as in an exact match
        ("ACME, Inc.", "Acme Inc", True),
        ("Nancy", "nancy", True),
        ("NaN", "nan", True),
        ("", "", True),
        ("?", "?", True),
        ("?", "!", False),
    ],
)
def test_values_are_equal_as_numbers_or_as_normalized_texts(text, reference, is_match):
    assert metrics.value_match([text], [["other", reference]]).tolist() == [is_match]


@given(ROWS)
def test_matches_are_those_of_comparing_word_lists(rows):
    texts, references = joined(rows)
    exact, contained = [], []
    for text, accepted in zip(texts, references, strict=True):
        words = metrics.normalize(text)
        aliases = [metrics.normalize(alias) for alias in accepted]
        exact.append(words in aliases)
        # The price of containment: a list and a denial count too.
        contained.append(any(f" {alias} " in f" {words} " for alias in aliases if alias))
    assert metrics.exact_match(texts, references).tolist() == exact
    assert metrics.alias_match(texts, references).tolist() == contained


# By answer: its references, and its closeness to them.
SCRIPTS = {
    "北京": (["北京"], 1),
    "答案是上海": (["上海"], 0),
    "東京。": (["東京"], 1),
    "Ｔokyo": (["Tokyo"], 1),
    "伦敦": (["巴黎"], 0),
    "2000": (["Путин 2000"], 0),  # ROUGE sees a part of the reference
    "Putin": (["Путин", "Putin"], 1),
}


def test_closeness_reads_every_script_and_says_so():
    answers = pd.DataFrame({"text": list(SCRIPTS), "question_id": range(len(SCRIPTS))})
    references, expected = zip(*SCRIPTS.values(), strict=True)
    questions = pd.DataFrame({"references": references})
    with pytest.warns(metrics.TokenizerWarning, match="^6 of 7 answers have") as caught:
        table = metrics.rouge_and_correct(answers, questions)
    assert len(caught) == 1
    assert table["rouge_l"].tolist() == list(expected)
    assert table["correct"].tolist() == list(map(bool, expected))


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("Goethe", "Göthe"),
        ("Gothe", "Göthe"),
        ("São Paulo", "Sao Paulo"),
        ("Lukasz", "Łukasz"),
        ("Strasse", "Straße"),
    ],
)
def test_accents_do_not_matter(text, reference):
    assert metrics.closeness([text], [[reference]]) == 1
    assert metrics.exact_match([text], [[reference]])
    assert metrics.alias_match([f"it is {text}"], [[reference]])


def test_an_answer_exactly_at_the_threshold_is_wrong():
    answers = pd.DataFrame({"question_id": ["a", "b"], "text": ["x", "y"], "rouge_l": [0.3, 0.31]})
    questions = pd.DataFrame({"question_id": ["a", "b"], "references": [None, None]})
    table = metrics.rouge_and_correct(answers, questions, metrics.AnswerRules())
    assert table["correct"].tolist() == [False, True]
