import re
import string
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rouge_score import rouge_scorer

from pro_lib import metrics

WORD = st.sampled_from(["john", "Adams", "quincy,", "the", "president", "presidents"])
WORDS = st.lists(WORD, min_size=1, max_size=6)
SCORER = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=False)
ROWS = st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=3)), max_size=5)


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
        SCORER.score_multi(r, t)["rougeL"].fmeasure for t, r in zip(texts, references, strict=True)
    ]
    assert metrics.rouge_l(texts, references).tolist() == expected
    assert metrics.closeness(texts, references).tolist() == expected


def test_long_texts_are_compared_in_seconds_and_as_rouge_score_does():
    rng = np.random.default_rng(0)
    long = [" ".join(f"w{n}" for n in rng.integers(50, size=size)) for size in (900, 700)]
    expected = SCORER.score(long[1], long[0])["rougeL"].fmeasure
    assert metrics.rouge_l_between(long[:1], long[1:]).tolist() == [expected]
    longer = [" ".join(f"w{n}" for n in rng.integers(3000, size=10_000)) for _ in range(2)]
    started = time.process_time()
    assert 0 < metrics.rouge_l_between(longer[:1], longer[1:])[0] < 1
    assert time.process_time() - started < 10


def test_text_that_rouge_cannot_see_is_counted_in_one_warning():
    texts = ["Paris", "Москва", "???", "東京"]
    references = [["Paris", "Париж"], ["Moscow"], ["Rome"], ["東京", "Токио"]]
    with pytest.warns(
        metrics.TokenizerWarning, match="^6 texts and references .*first in row 0"
    ) as caught:
        result = metrics.rouge_l(texts, references)
    # The last is right, and ROUGE cannot know
    assert (len(caught), result.tolist()) == (
        1,
        [1.0, 0.0, 0.0, 0.0],
    )


@pytest.mark.parametrize("judge", [metrics.rouge_l, metrics.closeness])
def test_a_text_that_utf_8_cannot_write_is_judged_all_the_same(judge):
    assert judge(["Paris \ud800 Rome"], [["Oslo", "Paris Rome"]]).tolist() == [1.0]


REFUSED = [
    (["a", "b"], [["a"]], "texts has 2 entries, but references 1"),
    (["a", "b"], [["a"], []], "references row 1 must hold one string at least"),
    (["a"], ["abc"], "references row 0 must hold .*: 'abc'"),
    (["a"], [np.nan], "references row 0 must hold .*: nan"),
    (["a"], [["a", None]], "references row 0 must hold .*None"),
    (["a", np.nan], [["a"], ["b"]], "texts row 1 must be a string, not nan"),
]


@pytest.mark.parametrize("judge", [metrics.rouge_l, metrics.exact_match, metrics.alias_match])
def test_bad_input_names_the_row(judge):
    for texts, references, words in REFUSED:
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


def test_alias_matches_by_hand():
    # The price of containment: a list and a denial count too.
    contained = dict.fromkeys(
        ["It was John Adams.", "I think J. Adams", "John Adams or Nixon", "not J. Adams"], True
    )
    contained |= dict.fromkeys(["Adams", "John Adamson", "John Q. Adams"], False)
    assert metrics.alias_match(list(contained), [["John Adams", "J. Adams"]] * 7).tolist() == [
        *contained.values()
    ]


def test_what_nothing_is_left_of_matches_nothing():
    for match in (metrics.exact_match, metrics.alias_match):
        assert (
            match(["", "?!", "...", "Paris"], [["Paris"], ["?!"], [""], ["!!!"]]).tolist()
            == [False] * 4
        )
        assert match(["The The", "the"], [["the the"], ["A"]]).tolist() == [True, False]
        assert match(["Москва"], [["МОСКВА"]]).tolist() == [True]
        assert (match([], []).shape, match([], []).dtype) == ((0,), bool)


@given(ROWS)
def test_matches_are_those_of_comparing_word_lists(rows):
    texts, references = joined(rows)
    exact, contained = [], []
    for text, accepted in zip(texts, references, strict=True):
        words, aliases = (
            metrics.normalize(text).split(),
            [metrics.normalize(a).split() for a in accepted],
        )
        exact.append(words in aliases)
        contained.append(
            any(words[i : i + len(a)] == a for a in aliases for i in range(len(words) - len(a) + 1))
        )
    assert metrics.exact_match(texts, references).tolist() == exact
    assert metrics.alias_match(texts, references).tolist() == contained


def test_closeness_reads_every_script_and_says_so():
    # A reference that ROUGE sees in part is not matched by that part.
    texts = ["北京", "答案是上海", "東京。", "Ｔokyo", "伦敦", "2000", "Putin"]
    references = [
        ["北京"],
        ["上海"],
        ["東京"],
        ["Tokyo"],
        ["巴黎"],
        ["Путин 2000"],
        ["Путин", "Putin"],
    ]
    answers = pd.DataFrame({"text": texts, "question_id": range(7)})
    with pytest.warns(
        metrics.TokenizerWarning, match="^6 of 7 answers have references in letters"
    ) as caught:
        table = metrics.rouge_and_correct(answers, pd.DataFrame({"references": references}))
    assert (table["rouge_l"].tolist(), len(caught)) == ([1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0], 1)
    assert table["correct"].tolist() == [True, False, True, True, False, False, True]


ACCENTS = [
    ("Goethe", ["Göthe"]),
    ("Göthe", ["Goethe"]),
    ("Gothe", ["Göthe"]),
    ("Sao Paulo", ["São Paulo"]),
    ("São Paulo", ["Sao Paulo"]),
    ("Lukasz", ["Łukasz"]),
    ("Strasse", ["Straße"]),
    ("it is Sao Tome", ["São Tomé"]),
]


def test_accents_do_not_matter():
    for text, references in ACCENTS:
        assert metrics.closeness([text], [references]) > metrics.ROUGE_THRESHOLD, text
        assert " is " in text or metrics.exact_match([text], [references]), text
        assert metrics.alias_match([text], [references]), text


def test_an_answer_exactly_at_the_threshold_is_wrong():
    answers = pd.DataFrame({"question_id": ["a", "b"], "text": ["x", "y"], "rouge_l": [0.3, 0.31]})
    questions = pd.DataFrame({"question_id": ["a", "b"], "references": [None, None]})
    table = metrics.rouge_and_correct(answers, questions, metrics.Choices())
    assert table["correct"].tolist() == [False, True]
