"""If a server dies, only the questions in flight are asked again, and the run is the same."""

import random
from collections import Counter
from contextlib import nullcontext

import pytest
from fake_server import connected, searched, serving
from pandas.testing import assert_frame_equal

from pro_lib import load_questions, read_run
from pro_lib.common.files import RunError

N_QUESTIONS = 6


@pytest.fixture(scope="module")
def question_set():
    return load_questions("world-facts", split="validation", limit=N_QUESTIONS)


def times_asked(requests, prompts):
    """How often the server was asked for what follows each prompt itself."""
    sent = Counter(tuple(body["prompt"]) for body in requests if isinstance(body, dict))
    return [sent[prompt] for prompt in prompts]


def run_until(model, question_set, out, *, dies_after=None, concurrency=1):
    """Ask a new server until it dies after a number of completions; return the requests."""
    requests = []

    def lie(reply, n, prompt):
        return (200, b"dead") if dies_after is not None and n >= dies_after else reply

    with serving(model, lie, requests=requests) as url:
        ends = (
            nullcontext()
            if dies_after is None
            else pytest.raises(RunError, match="no complete answer")
        )
        with ends:
            searched(connected(url, model, top=300, concurrency=concurrency), question_set, out=out)
    return requests


def moments(size):
    """Draw the numbers of requests after which the server dies; `make trials` has 20."""
    # Two probes of three requests come first; an unbroken run has more than 85 completions.
    n_moments = {"quick": 1, "all": 3, "trials": 20}[size]
    return random.Random(0).sample(range(7, 85), n_moments)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_run_whose_server_died_goes_on_where_it_stopped(
    facts_2m, question_set, tmp_path, size, concurrency
):
    whole = run_until(facts_2m, question_set, tmp_path / "whole")
    n_completions = sum(isinstance(body, dict) for body in whole)
    assert n_completions > 85
    [folder] = (tmp_path / "whole").glob("*/*/*")
    unbroken = read_run(folder)
    prompts = [tuple(facts_2m.encode(prompt)) for prompt in question_set.prompts()]
    once = times_asked(whole, prompts)
    assert all(once)
    n_resumed = 0
    for moment in moments(size):
        out = tmp_path / str(moment)
        first = run_until(facts_2m, question_set, out, dies_after=moment, concurrency=concurrency)
        second = run_until(facts_2m, question_set, out, concurrency=concurrency)
        resumed = read_run(next(out.glob("*/*/*")))
        assert_frame_equal(resumed.answers, unbroken.answers)
        assert_frame_equal(resumed.questions, unbroken.questions)
        assert resumed.info.n_planned == N_QUESTIONS
        before = times_asked(first, prompts)
        after = times_asked(second, prompts)
        asked_twice = sum(bool(a) and bool(b) for a, b in zip(before, after, strict=True))
        assert asked_twice <= concurrency
        # Questions that were answered before the server died are not asked again.
        assert (
            sum(bool(count) for count in after) < N_QUESTIONS
            or sum(map(bool, before)) <= concurrency
        )
        n_resumed += any(before)
    assert n_resumed == len(moments(size))
