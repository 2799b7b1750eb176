"""Exact search over a text-completions server: real HTTP on loopback, with faults, held against the local search."""

import asyncio
import gzip
import http.server
import itertools
import json
import math
import os
import random
import resource
import shutil
import signal
import socket
import threading
import time
import traceback
import zlib
from contextlib import contextmanager
from dataclasses import replace
from email.utils import formatdate
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from test_threshold import World, entropy, worlds
from transformers import AutoTokenizer

from pro_lib import endpoint, generate, models, scores
from pro_lib import questions as question_sets
from pro_lib.endpoint import client, from_endpoint, vocabulary
from pro_lib.endpoint.asking import Asking
from pro_lib.endpoint.cache import opened
from pro_lib.endpoint.noise import Noise, noise_of
from pro_lib.endpoint.vocabulary import Vocabulary
from pro_lib.storage import CERTIFICATE_COLUMNS, RunError

KEY = "sk-very-secret-0123456789"
HOST = "127.0.0.1"
AS_MEASURED = {name: getattr(endpoint, name) for name in ("QUESTIONS", "PLACES", "ALONE", "TOGETHER")}


class Server(http.server.ThreadingHTTPServer):
    """Answers `POST /v1/completions` with what `respond(body)` returns; `fault(handler, body)` may do it first."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, respond, fault=None):
        super().__init__((HOST, 0), Handler)
        self.respond, self.fault, self.log, self.headers, self.busy = respond, fault, [], [], set()
        self.taken_up, self.open = [], set()
        self.url = f"http://{HOST}:{self.server_port}/v1"

    def handle_error(self, request, client_address):
        pass  # a client that has gone away

    def process_request(self, request, client_address):
        self.open.add(client_address)
        self.taken_up.append(client_address)
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.open.discard(client_address)

    def settle(self):
        """Wait for the requests of a client that is gone, and forget them all."""
        with socket.create_connection(self.server_address) as last:  # taken up after those of the client
            while last.getsockname() not in self.taken_up:
                time.sleep(0.005)
        while self.open:
            time.sleep(0.005)
        self.log.clear()

    @property
    def prompts(self):
        return [body["prompt"] for body in self.log]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.busy.add(self)
        try:
            self.answer()
        finally:
            self.server.busy.discard(self)

    def answer(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.headers.append(dict(self.headers))
        if self.server.fault and self.server.fault(self, body):
            return
        self.server.log.append(body)
        assert self.path == "/v1/completions"
        self.say(200, json.dumps(self.server.respond(body)).encode())

    def say(self, status, data, *, length=None, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": length or len(data), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@contextmanager
def serving(respond, fault=None):
    server = Server(respond, fault)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def quick_and_past_the_proxies_of_the_environment(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{HOST}:9")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(client, "FIRST_WAIT", 0.005)
    for name in AS_MEASURED:
        monkeypatch.setattr(endpoint, name, 1)


@pytest.fixture
def measuring(monkeypatch):
    """The noise is measured as it is for users."""
    for name, number in AS_MEASURED.items():
        monkeypatch.setattr(endpoint, name, number)


def listing(pairs, *, n_prompt_tokens=7):
    """A response as OpenAI lays it out; `pairs` are the tokens and probabilities listed, the chosen one first."""
    values = {text: math.log(p) if p > 0 else -9999.0 for text, p in pairs}
    first = next(iter(values), "")
    text = "" if first.startswith("<") else first
    logprobs = {"tokens": [first], "token_logprobs": [0.0], "top_logprobs": [values], "text_offset": [0]}
    return {
        "choices": [{"text": text, "logprobs": logprobs, "finish_reason": "length"}],
        "usage": {"prompt_tokens": n_prompt_tokens},
    }


def asked(n=1, names=None):
    names = names or [f"q{i}" for i in range(n)]
    table = pd.DataFrame({"question_id": names, "question": names, "references": [[x] for x in names], "split": "test"})
    return question_sets.QuestionSet("toy", table, template="{question}>")


def search(server, questions=None, **options):
    """What these servers tell is exact, unless a test says otherwise."""
    questions = asked() if questions is None else questions
    return from_endpoint(server.url, questions, model="toy", progress=False, **{"epsilon": 0.0} | options)


def by_table(table):
    """Responses from `{text after the prompt: [(token, probability)]}`, cut at what is asked for."""
    ends = [("\n", 1.0)]  # every other answer ends for sure

    def respond(body):
        pairs = table.get(body["prompt"].split(">", 1)[1], ends)
        return {"choices": [{"text": "", "logprobs": None}]} if pairs is None else listing(pairs[: body["logprobs"]])

    return respond


def searched(table, **options):
    with serving(by_table(table)) as server:
        run = search(server, **options)
    return run.answers, run.questions.iloc[0]


def h(*values):
    return -sum(x * math.log(x) for x in values if x > 0)


def masses(ledger):
    names = ("found", "small_endings", "pruned", "length_cut", "budget_cut")
    return [ledger[f"{name}_mass"] for name in names]


# By hand --------------------------------------------------------------------------------------------------------------

WHOLE = {
    "": [("a", 0.6), ("\n", 0.25), ("b", 0.1), ("</s>", 0.05)],
    "a": [("\n", 0.5), ("</s>", 0.4), ("c", 0.1)],
}


def test_where_everything_is_listed_the_search_is_the_local_one_by_hand():
    """Two stop tokens of 0.25 and 0.05 make one ending of 0.3; after 'a' the answer ends with 0.9 of 0.6."""
    answers, ledger = searched(WHOLE, search_alpha=0.2, max_new_tokens=2)
    assert answers["text"].tolist() == ["a", ""]
    assert np.exp(answers["log_prob"] + answers["end_log_prob"]).tolist() == pytest.approx([0.54, 0.3])
    assert answers["end_log_prob"].tolist() == pytest.approx(answers["end_log_prob_lower"].tolist())
    assert (ledger["status"], ledger["why"], ledger["expanded_prefixes"], ledger["depth"]) == ("certified", "", 2, 1)
    assert masses(ledger) == pytest.approx([0.84, 0, 0.1, 0.06, 0])
    assert ledger["tree_bound"] == pytest.approx(h(0.3, 0.6, 0.1) + 0.6 * h(0.9, 0.1))
    assert ledger["alpha_floor"] == pytest.approx(h(0.3, 0.54) - 0.16 * math.log(0.2))
    assert ledger["tree_parents"].tolist() == [-1, 0]
    assert ledger["tree_log_probs"].tolist() == pytest.approx([0, math.log(0.6)])
    assert (ledger["token_forwards"], ledger["prompt_tokens"], ledger["live_width"]) == (1, 7, 1)
    assert ledger["epsilon"] == pytest.approx(0, abs=1e-9)
    assert np.isnan(ledger["upper_bound"])


# 0.2 is not listed, at most 0.1 of it in one token.
PART = {"": [("a", 0.5), ("b", 0.2), ("\n", 0.1)], "a": [("\n", 0.7), ("c", 0.2), ("d", 0.1)]}


@pytest.mark.parametrize(
    ("n_stop_tokens", "root"),
    [
        (1, h(0.5, 0.2, 0.1) - 0.2 * math.log(0.1)),
        (2, h(0.5, 0.2) + min(h(0.1) - 0.2 * math.log(0.1), h(0.2) - 0.1 * math.log(0.1))),
        (None, h(0.5, 0.2) + min(h(0.1) - 0.2 * math.log(0.1), h(0.3))),
    ],
)
def test_what_is_not_listed_is_lumped_and_the_bounds_widen(n_stop_tokens, root):
    answers, ledger = searched(PART, top=3, search_alpha=0.31, n_stop_tokens=n_stop_tokens)
    assert (ledger["status"], answers["text"].tolist()) == ("certified", ["a"])
    assert ledger["tree_bound"] == pytest.approx(root + 0.5 * h(0.7, 0.2, 0.1))
    assert masses(ledger) == pytest.approx([0.35, 0.1, 0.55, 0, 0])
    assert ledger["alpha_floor"] == pytest.approx(h(0.35) - 0.65 * math.log(0.31))


@pytest.mark.parametrize(
    ("alpha", "n_stop_tokens", "status", "why"),
    [
        (0.12, 1, "certified", ""),  # no other stop token is left: the ending has 0.1
        (0.12, 2, "undecided", "an answer reaches α or not"),  # a second one may have up to 0.1 more
        (0.31, None, "certified", ""),  # all stop tokens together may have 0.3, and no more
        (0.29, None, "undecided", "an answer reaches α or not"),
        (0.09, 1, "undecided", "tokens that the server did not list may reach α"),
    ],
)
def test_stop_tokens_that_may_be_missing_leave_it_undecided_unless_the_bound_decides(alpha, n_stop_tokens, status, why):
    _, ledger = searched(PART, top=3, search_alpha=alpha, n_stop_tokens=n_stop_tokens)
    assert ledger["status"] == status
    assert why in ledger["why"]
    assert (ledger["why"] == "") == (status == "certified")


def test_a_found_answer_gets_what_may_be_its_own_and_too_much_of_that_is_undecided():
    table = {"": [("a", 0.99), ("\n", 0.01)], "a": [("\n", 0.9), ("c", 0.06)]}
    answers, ledger = searched(table, top=2, search_alpha=0.2)
    assert ledger["status"] == "undecided"
    assert "may add 0.04 to an answer's probability" in ledger["why"]
    answers, ledger = searched(table, top=2, search_alpha=0.2, tolerance=0.05)
    assert ledger["status"] == "certified"
    row = answers.iloc[0]
    assert np.exp([row["end_log_prob"], row["end_log_prob_lower"]]) == pytest.approx([0.94, 0.9])
    assert ledger["epsilon"] == pytest.approx(math.log(0.94 / 0.9))
    assert masses(ledger) == pytest.approx([0.99 * 0.94, 0.01, 0.99 * 0.06, 0, 0])
    assert ledger["alpha_floor"] == pytest.approx(h(0.99 * 0.94) - (1 - 0.99 * 0.94) * math.log(0.2))
    assert ledger["tree_bound"] == pytest.approx(h(0.99, 0.01) + 0.99 * h(0.94, 0.06))


def test_nothing_reaches_alpha_and_the_greedy_answer_stands_for_all():
    table = {"": [("a", 0.6), ("\n", 0.4)], "a": [("c", 0.5), ("\n", 0.5)], "ac": [("\n", 1.0)]}
    answers, ledger = searched(table, search_alpha=0.5, n_stop_tokens=1)
    assert (ledger["status"], ledger["why"]) == ("fallback", "no answer reaches α")
    assert answers["text"].tolist() == ["ac"]
    assert ledger["alpha_floor"] == pytest.approx(-math.log(0.5))
    assert ledger["tree_greedy"].tolist() == [True, True, True]


def test_closing_tokens_end_an_answer_by_themselves():
    table = {"": [("a\nb", 0.6), (" \n", 0.3), ("c", 0.1)], "c": [("\n", 1.0)]}
    answers, ledger = searched(table, search_alpha=0.05)
    assert answers["text"].tolist() == ["a", "", "c"]
    assert answers["end_log_prob"].tolist() == pytest.approx([math.nan, math.log(0.3), 0], nan_ok=True)
    assert ledger["status"] == "certified"
    assert ledger["tree_bound"] == pytest.approx(h(0.6, 0.3, 0.1))


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ([("caf\ufffd", 0.9), ("\n", 0.1)], "cannot be sent"),
        ([("bytes:\\xc3", 0.9), ("\n", 0.1)], "cannot be sent"),
        # A token without text may be an end of text.
        ([("", 0.9), ("\n", 0.1)], "an answer reaches α or not"),
        ([("", 0.9), ("\n", 0.1)], "goes on with a token that the server did not tell"),
        ([], "tokens that the server did not list may reach α"),
        # So llama.cpp says that the token chosen is part of a character.
        (None, "tokens that the server did not list may reach α"),
        (None, "goes on with a token that the server did not tell"),
        # Two of three: a third one may have been written like one of them.
        ([("\n", 0.3), ("b", 0.05)], "tokens that the server did not list may reach α"),
    ],
)
def test_what_cannot_be_read_or_sent_is_undecided(after, why):
    _, ledger = searched({"": [("a", 0.9), ("\n", 0.1)], "a": after}, top=3, search_alpha=0.2)
    assert ledger["status"] == "undecided"
    assert why in ledger["why"]
    assert sum(masses(ledger)) == pytest.approx(1)


def test_an_empty_text_may_be_named_as_a_stop():
    answers, ledger = searched({"": [("", 0.9), ("\n", 0.1)]}, top=2, search_alpha=0.2, stop=["", "</s>"])
    assert (ledger["status"], answers["text"].tolist()) == ("certified", [""])


def test_open_at_its_length_or_for_want_of_requests_is_undecided():
    table = {"a" * n: [("a", 0.9), ("\n", 0.1)] for n in range(4)}
    answers, ledger = searched(table, search_alpha=0.5, max_new_tokens=3)
    assert ledger["why"] == "a prefix at or above α is still open at 3 tokens"
    assert answers[["text", "finished"]].to_numpy().tolist() == [["aaa", False]]
    assert masses(ledger) == pytest.approx([0, 0.271, 0, 0.729, 0])
    _, ledger = searched(table, search_alpha=0.5, budget=2)
    assert "the budget of 2 requests was spent with a prefix" in ledger["why"]
    assert (ledger["expanded_prefixes"], masses(ledger)[4]) == (2, pytest.approx(0.81))
    assert ledger["tree_bound"] == pytest.approx(1.9 * h(0.9, 0.1))


def test_what_lies_within_epsilon_of_alpha_is_undecided():
    table = {"": [("a", 0.5), ("\n", 0.3), ("b\n", 0.2)], "a": [("\n", 1.0)]}
    for alpha, epsilon, near in ((0.29, 0.0, False), (0.29, 0.05, True), (0.31, 0.05, True), (0.201, 0.01, True)):
        answers, ledger = searched(table, search_alpha=alpha, epsilon=epsilon, n_stop_tokens=1)
        assert (ledger["status"] == "undecided") == ("as close to α as" in ledger["why"]) == near
        assert {"a", ""} <= set(answers["text"]) or alpha == 0.31


def test_a_little_error_is_taken_for_granted_since_one_that_is_always_the_same_shows_nowhere():
    """0.2995 may be 0.3."""
    table = {"": [("a", 0.7005), ("\n", 0.2995)], "a": [("\n", 1.0)]}
    options = {"model": "toy", "search_alpha": 0.3, "n_stop_tokens": 1, "progress": False}
    with serving(by_table(table)) as server:
        runs = from_endpoint(server.url, asked(), **options), from_endpoint(server.url, asked(), epsilon=0.0, **options)
    assert [run.questions["status"].item() for run in runs] == ["undecided", "certified"]


def test_errors_add_up_along_an_answer():
    """Every number is within 0.05 of the truth, whose answer of 0.5³ = 0.125 looks like 0.108 at α = 0.115."""
    low = 0.5 * math.exp(-0.05)
    table = {"a" * n: [("a" if n < 2 else "\n", low), ("b", 0.4), ("c", 0.6 - low)] for n in range(3)}
    for epsilon, status in ((0.0, "certified"), (0.02, "certified"), (0.05, "undecided")):
        _, ledger = searched(table, search_alpha=0.115, epsilon=epsilon, n_stop_tokens=1)
        assert ledger["status"] == status
    assert ledger["epsilon"] >= 0.1499


def test_what_repeats_show_is_told_by_hand_and_bounds_odds():
    repeats = [{"a": math.log(p), "b": math.log(q)} for p, q in ((0.5, 0.2), (0.6, 0.2), (0.5, 0.25))]
    measured = noise_of([repeats, [{"a": -0.1}]], stated=0.01)
    assert (measured.stated, measured.sums_to_one) == (0.01, True)
    assert measured.measured == pytest.approx(math.log(0.6 / 0.4))
    assert math.exp(math.log(0.5) + measured.off(0.5, 1)) == pytest.approx(0.6 * math.exp(1e-3))
    above = noise_of([[*repeats, {"a": math.log(0.9), "b": math.log(0.2)}]], stated=0.01)
    assert (above.sums_to_one, above.off(0.9, 1)) == (False, pytest.approx(math.log(0.9 / 0.5)))


@given(st.integers(0, 2**32), st.integers(2, 8), st.sampled_from([0.0, 0.01, 0.1, 1.0]), st.booleans())
def test_an_event_is_no_farther_off_than_noise_says(seed, n, size, is_stated):
    """Logits that move by half of ε each move every log-odds, and every log-probability, by at most ε."""
    rng = np.random.default_rng(seed)
    told = np.log(rng.dirichlet(np.full(n, 0.3)) + 1e-12)
    true = told + rng.uniform(-size / 2, size / 2, n)
    told, true = (np.exp(values - np.logaddexp.reduce(values)) for values in (told, true))
    noise = Noise(size) if is_stated else Noise(0.0, size)
    for event in (slice(0, 1), slice(0, n // 2), slice(1, None)):
        told_p, true_p = told[event].sum(), true[event].sum()
        off = math.log(true_p / told_p)
        assert -noise.off(told_p, -1) - 1e-9 <= off <= noise.off(told_p, 1) + 1e-9
        assert noise.off(told_p, 1) <= size


def test_lists_may_add_up_to_more_than_one_as_far_as_noise_explains_it():
    table = {"": [("a", 0.72), ("\n", 0.3)]}
    for epsilon, sentence in ((0.0, "add up to 1.02"), (0.01, "more than an error of 0.01 nats explains")):
        with pytest.raises(RunError, match=sentence):
            searched(table, search_alpha=0.2, epsilon=epsilon)
    assert searched(table, search_alpha=0.2, epsilon=0.05, n_stop_tokens=1)[1]["status"] == "certified"
    # The first place adds up, another one does not: what was measured did not show this.
    table = {"": [("a", 0.7), ("\n", 0.3)], "a": [("\n", 0.72), ("c", 0.3)]}
    _, ledger = searched(table, search_alpha=0.2, epsilon=0.05, n_stop_tokens=1)
    assert "add up to more than 1, which they did not" in ledger["why"]


@pytest.mark.parametrize("concurrently", [False, True])
def test_noise_is_measured_alone_and_concurrently_before_anything_is_certified(concurrently, measuring):
    """An answer of 0.52 or 0.48 at α = 0.5; servers differ by themselves, or only when they are busy."""
    lock, told = threading.Lock(), itertools.cycle([0.52, 0.48])

    def respond(body):
        with lock:
            p = next(told) if len(server.busy) > 1 or not concurrently else 0.52
        time.sleep(0.02 * concurrently)  # so that they meet
        return listing([("\n", p), ("b", 1 - p)])

    with serving(respond) as server:
        run = search(server, asked(8), search_alpha=0.5, n_stop_tokens=1)
        assert len(server.log) >= 2 * AS_MEASURED["QUESTIONS"]
    assert set(run.questions["status"]) == {"undecided"}
    assert run.info.provenance["noise"]["measured"] == pytest.approx(2 * math.log(0.52 / 0.48))


def test_tokens_listed_with_ids_and_bytes_as_llama_cpp_does_are_read():
    def respond(body):
        table = WHOLE[body["prompt"].split(">", 1)[1]]
        entries = [
            {"id": n, "token": text, "bytes": list(text.encode()), "logprob": math.log(p)}
            for n, (text, p) in enumerate(table)
        ]
        step = {**entries[0], "top_logprobs": entries}
        return {"choices": [{"text": table[0][0], "logprobs": {"content": [step]}, "finish_reason": "length"}]}

    with serving(respond) as server:
        run = search(server, search_alpha=0.2, max_new_tokens=2)
    answers, ledger = searched(WHOLE, search_alpha=0.2, max_new_tokens=2)
    assert_frame_equal(run.answers, answers)
    assert run.questions["tree_bound"].item() == ledger["tree_bound"]


# Against brute force --------------------------------------------------------------------------------------------------


def texts_of(world):
    """The tokens of a random world as texts: stops, closing tokens, letters."""
    kinds = [f"<{n}>" for n in range(world.n_stops)] + [f"{chr(65 + n)}\n" for n in range(world.n_closing)]
    return kinds + [chr(97 + n) for n in range(world.vocabulary - len(kinds))]


def answering(world, top, noise=0.0):
    """What a server says whose logits are off by half of `noise`: at a place always the same."""
    texts = texts_of(world)
    places = {text: n for n, text in enumerate(texts)}

    async def complete(self, prompt):
        question, path = prompt.split(">", 1)
        path = tuple(places[letter] for letter in path)
        logits = world.log_probs(int(question), path).double().numpy()
        logits = logits + np.random.default_rng([world.seed, *path]).uniform(-noise / 2, noise / 2, len(logits))
        probs = np.exp(logits - np.logaddexp.reduce(logits))
        return listing([(texts[n], probs[n]) for n in np.argsort(-probs, kind="stable")[:top]])

    return complete


@given(
    worlds(),
    st.sampled_from([0.7, 0.4, 0.2, 0.1, 0.05, 0.01, 1e-3]),
    st.integers(1, 12),
    st.booleans(),
    st.sampled_from([None, 1, 4]),
    st.sampled_from([0.0, 0.0, 0.01, 0.2]),
)
def test_what_it_certifies_is_what_brute_force_finds(world, alpha, top, counted, budget, noise):
    stops = texts_of(world)[: world.n_stops]
    questions = asked(names=[str(n) for n in range(world.n_questions)])
    options = {"search_alpha": alpha, "max_new_tokens": world.length, "budget": budget, "tolerance": 1e-4}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.Client, "complete", answering(world, top, noise))
        run = from_endpoint(
            "http://x/v1",
            questions,
            model="toy",
            top=top,
            stop=stops,
            n_stop_tokens=world.n_stops if counted else None,
            progress=False,
            concurrency=1,
            epsilon=noise,
            **options,
        )
    log_probs, places = run.log_probs(), {text: n for n, text in enumerate(texts_of(world))}
    for question, ledger in run.questions.iterrows():
        outcomes, _ = world.outcomes(question)
        assert sum(masses(ledger)) == pytest.approx(1, abs=1e-5)
        assert ledger["alpha_floor"] <= ledger["tree_bound"] + 1e-6
        assert noise or ledger["tree_bound"] <= entropy(outcomes) + 1e-5
        complete = {ids: math.exp(v) for (ids, finished), v in outcomes.items() if finished}
        mine = run.answers[(run.answers["question_id"] == str(question)) & run.answers["finished"]]
        mine = mine.fillna({"end_log_prob": 0.0})  # a closing token carries it
        for row in mine.itertuples():
            p = complete[tuple(places[text] for text in row.token_texts)]
            assert math.exp(row.log_prob + row.end_log_prob_lower - noise * (len(row.token_ids) + 1)) <= p + 1e-6
        if ledger["status"] == "undecided" or any(abs(p - alpha) < 1e-6 for p in complete.values()):
            continue
        likely = {ids: p for ids, p in complete.items() if p >= alpha}
        assert (ledger["status"] == "certified") == bool(likely)
        assert not any(math.exp(v) >= alpha + 1e-6 for (_, finished), v in outcomes.items() if not finished)
        found = {
            tuple(places[text] for text in row.token_texts): math.exp(row.log_prob + row.end_log_prob)
            for row in mine.itertuples()
            if math.exp(row.log_prob + row.end_log_prob) >= alpha
        }
        assert found.keys() == likely.keys()
        for ids, p in likely.items():
            assert abs(math.log(found[ids] / p)) <= ledger["epsilon"] + 1e-5
            assert noise or p - 1e-6 <= found[ids] <= p + 1.1e-4
        if likely:
            assert scores.pro(log_probs, alpha=alpha)[question] <= ledger["alpha_floor"] + 1e-6


# Against the bundled model --------------------------------------------------------------------------------------------


class Served:
    """The bundled model behind `respond`: a plain forward pass per prompt; the most probable tokens and their texts.

    `noise(log-probabilities, token ids)` is added anew at every request.
    """

    def __init__(self, model, noise=None):
        self.model, self.noise, self.known, self.lock = model, noise, {}, threading.Lock()

    def __call__(self, body):
        as_ids = not isinstance(body["prompt"], str)
        ids = tuple(body["prompt"] if as_ids else self.model.encode(body["prompt"]))
        with self.lock:
            if ids not in self.known:
                with torch.inference_mode():
                    logits = self.model.network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
                self.known[ids] = torch.log_softmax(logits.double(), dim=-1).float()
            told = self.known[ids] if self.noise is None else self.noise(self.known[ids], ids)
        values, tokens = (top.tolist() for top in told.topk(body["logprobs"]))
        assert (body["max_tokens"], body["temperature"], body.get("echo", False)) == (1, 0, False)
        as_ids = body.get("return_tokens_as_token_ids", False)
        texts = [f"token_id:{t}" if as_ids else self.model.tokenizer.decode([t]) for t in tokens]
        logprobs = {"tokens": texts[:1], "top_logprobs": [dict(zip(texts, values, strict=True))]}
        text = "" if tokens[0] == self.model.tokenizer.eos_token_id else self.model.tokenizer.decode(tokens[:1])
        return {"choices": [{"text": text, "logprobs": logprobs}], "usage": {"prompt_tokens": len(ids)}}


class Faults:
    """At random, but the same ones in the same order: 429, 500, silence, cut JSON, a lost connection."""

    def __init__(self, *, share, silence):
        self.rng, self.share, self.silence = random.Random(0), share, silence
        self.lock, self.met = threading.Lock(), []

    def __call__(self, handler, body):
        with self.lock:
            if self.rng.random() > self.share:
                return False
            self.met.append(kind := self.rng.choice(["429", "500", "silence", "cut", "short", "lost"]))
        whole = json.dumps(handler.server.respond(body)).encode()
        if kind == "429":
            handler.say(429, b"{}", Retry_After="0.01")
        elif kind == "500":
            handler.say(500, b"oops")
        elif kind == "silence":
            time.sleep(self.silence)
        elif kind == "cut":
            handler.say(200, whole[: len(whole) // 2])
        elif kind == "short":
            handler.say(200, whole[: len(whole) // 2], length=len(whole))
        handler.close_connection = True
        return True


@pytest.fixture(scope="module")
def bundled():
    model = models.load("facts-1m")
    questions = question_sets.load("world-facts", split="test", limit=20, seed=0)
    local = {
        alpha: generate.generate(model, questions, strategy="threshold", search_alpha=alpha, progress=False)
        for alpha in (0.1, 0.05)
    }
    return SimpleNamespace(model=model, questions=questions, local=local, served=Served(model))


def probabilities(run, question_id, alpha, key):
    rows = run.answers[(run.answers["question_id"] == question_id) & run.answers["finished"]]
    values = np.exp(rows["log_prob"] + rows["end_log_prob"].fillna(0.0))
    return {key(row): p for row, p in zip(rows.itertuples(), values, strict=True) if p >= alpha}


@pytest.mark.parametrize("alpha", [pytest.param(0.1, marks=pytest.mark.slow), 0.05])
@pytest.mark.parametrize("as_ids", [True, False], ids=["ids", "texts"])
def test_the_bundled_model_behind_a_failing_server_answers_as_it_does_here(bundled, alpha, as_ids, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model, questions, local = bundled.model, bundled.questions, bundled.local[alpha]
    how = {"tokenizer": model.tokenizer} if as_ids else {"n_stop_tokens": 2}
    faults = Faults(share=0.2, silence=1.2)
    with serving(bundled.served, faults) as server:
        options = {"model": "facts-1m", "search_alpha": alpha, "tolerance": 1e-4, "timeout": 1.0, "retries": 12}
        options |= {"epsilon": 0.0}
        run = from_endpoint(server.url, questions, progress=False, **options, **how)
    assert set(faults.met) == {"429", "500", "silence", "cut", "short", "lost"}
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    assert run.name == "world-facts/facts-1m/threshold"
    assert run.questions["question_id"].tolist() == local.questions["question_id"].tolist()

    # A server reads texts anew: only where every prefix comes back as the tokens it was made of is the tree the same.
    def is_read_back(prompt, row):
        paths = []
        for parent, token in zip(row["tree_parents"], row["tree_tokens"], strict=True):
            paths.append([] if parent < 0 else [*paths[parent], int(token)])
        ids = model.encode(prompt)
        return all(model.encode(prompt + model.tokenizer.decode(path)) == ids + path for path in paths)

    compared = []
    for prompt, (_, mine), (_, theirs) in zip(
        questions.prompts(), run.questions.iterrows(), local.questions.iterrows(), strict=True
    ):
        if not as_ids and not is_read_back(prompt, theirs):
            continue
        assert mine["alpha_floor"] <= mine["tree_bound"] + 1e-9
        assert mine["tree_bound"] <= theirs["tree_bound"] + 1e-6
        assert mine["expanded_prefixes"] == theirs["expanded_prefixes"]
        if mine["status"] == "undecided":
            continue
        assert mine["status"] == theirs["status"]
        key = (lambda row: tuple(row.token_ids)) if as_ids else (lambda row: row.text)
        here, there = (probabilities(x, mine["question_id"], alpha, key) for x in (local, run))
        assert there == pytest.approx(here, abs=1e-4)
        compared.append(mine["status"])
    assert compared.count("certified") >= 8
    assert "fallback" in compared
    assert (scores.pro(run.log_probs(), alpha=0.4) > 0).all()


class Naming:
    """The bundled model behind a server that tells named tokens as vLLM does: these and the chosen one, no others."""

    def __init__(self, served, most=128):
        self.served, self.most, self.asked_for = served, most, []

    def __call__(self, body):
        if (ids := body.get("logprob_token_ids")) is None:
            return self.served(body)
        self.asked_for.append(ids)
        assert 1 <= len(ids) <= self.most
        told = self.served(body)
        logprobs = told["choices"][0]["logprobs"]
        values = self.served.known[tuple(body["prompt"])][ids].tolist()
        named = {f"token_id:{n}": value for n, value in zip(ids, values, strict=True)}
        logprobs["top_logprobs"] = [{name: logprobs["top_logprobs"][0][name] for name in logprobs["tokens"]} | named]
        return told


class Cutting(Naming):
    """As vLLM 0.32 does: a list computed beside named tokens loses all but the chosen one, and says -9999 of token 0.

    Requests take a moment, so that they meet; every `often`-th list is cut as well, as another client's doing.
    """

    def __init__(self, served, often=0):
        super().__init__(served)
        self.now, self.often, self.n_lists, self.n_cut, self.guard = set(), often, 0, 0, threading.Lock()

    def __call__(self, body):
        me = (object(), "logprob_token_ids" in body)
        with self.guard:
            self.now.add(me)
        time.sleep(0.004)
        told = super().__call__(body)
        with self.guard:
            naming = any(names for _, names in self.now)
            self.now.discard(me)
            if me[1]:
                return told
            self.n_lists += 1
            if not naming and not (self.often and self.n_lists % self.often == 0):
                return told
            self.n_cut += 1
        logprobs = told["choices"][0]["logprobs"]
        [chosen], [values] = logprobs["tokens"], logprobs["top_logprobs"]
        logprobs["top_logprobs"] = [{"token_id:0": -9999.0} | {chosen: values[chosen]}]
        return told


def decided(run, bundled):
    """How many questions are decided, each as in this process."""
    local, n_decided = bundled.local[0.05], 0
    for question_id, status in zip(run.questions["question_id"], run.questions["status"], strict=True):
        if status != "undecided":
            here, there = (probabilities(x, question_id, 0.05, lambda row: tuple(row.token_ids)) for x in (local, run))
            truth = local.questions.set_index("question_id").loc[question_id, "status"]
            assert (status, there) == (truth, pytest.approx(here, abs=1e-5))
            n_decided += 1
    return n_decided


@pytest.mark.parametrize("most", [128, pytest.param(1, marks=pytest.mark.slow)])
def test_stop_tokens_that_are_not_listed_are_named_where_the_server_takes_names(bundled, most, monkeypatch):
    """With no tolerance for what they may add, none is left open; asked for one by one, too."""
    monkeypatch.setattr(vocabulary, "_MOST_NAMED", most)
    options = {"model": "facts-1m", "search_alpha": 0.05, "epsilon": 0.0, "tolerance": 1e-6, "progress": False}
    options |= {"tokenizer": bundled.model.tokenizer}
    with serving(respond := Naming(bundled.served, most)) as server:
        named = from_endpoint(server.url, bundled.questions, **options)
        assert named.info.cost.model_calls == len(server.log) - 2  # the noise is measured
    with serving(bundled.served) as server:
        bounded = from_endpoint(server.url, bundled.questions, **options)
    assert decided(named, bundled) == len(named.questions)
    assert decided(bounded, bundled) <= len(named.questions) / 2
    stops = set(bundled.model.endings.stop.nonzero().squeeze(1).tolist())
    assert {n for ids in respond.asked_for for n in ids} == stops
    assert (named.answers["end_log_prob"] - named.answers["end_log_prob_lower"]).max() < 1e-4
    assert named.info.provenance["stop_tokens"] == "named where they are not listed"


NAMED = {"model": "facts-1m", "search_alpha": 0.05, "epsilon": 0.0, "tolerance": 1e-6, "progress": False}


def test_lists_are_never_asked_for_beside_names_which_would_cut_them(bundled):
    with serving(respond := Cutting(bundled.served)) as server:
        run = from_endpoint(server.url, bundled.questions, tokenizer=bundled.model.tokenizer, **NAMED)
    assert (respond.n_cut, len(respond.asked_for) > 20) == (0, True)
    assert decided(run, bundled) == len(run.questions)


def test_a_list_that_was_cut_is_asked_for_again_and_what_it_leaves_out_is_not_taken_for_impossible(bundled):
    few = replace(bundled.questions, table=bundled.questions.table.head(8))
    with serving(respond := Cutting(bundled.served, often=3)) as server:
        run = from_endpoint(server.url, few, tokenizer=bundled.model.tokenizer, **NAMED)
        assert respond.n_cut > 5
        assert run.info.cost.model_calls == len(server.log) - 2  # the noise is measured
    assert decided(run, bundled) == 8
    with serving(Cutting(bundled.served, often=1)) as server:
        run = from_endpoint(server.url, few, tokenizer=bundled.model.tokenizer, retries=0, **NAMED)
        assert decided(run, bundled) < 8


def test_what_a_list_says_nothing_of_is_bounded_and_in_a_whole_list_stays_impossible(bundled):
    words = Vocabulary(Asking(f"http://{HOST}/v1", "m", tokenizer=bundled.model.tokenizer))
    exact = Noise(0.0, 0.0, True)
    cut = words.read(listing([("token_id:90", 0.6), ("token_id:0", 0)]), "here")
    assert cut.is_cut
    told = words.after(cut.filled(), exact)
    assert (told.ending, told.hidden_ending) == (0.0, pytest.approx(0.4))
    assert 0 in words.unlisted(cut.filled())[0]
    whole = words.read(listing([("token_id:90", 0.6), ("token_id:91", 0.4), ("token_id:0", 0)]), "here")
    assert not whole.is_cut
    assert words.after(whole.filled(), exact).hidden_ending == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("refuses", [False, True])
def test_where_a_server_ignores_or_refuses_names_stop_tokens_are_bounded_and_it_is_said(bundled, refuses):
    def fault(handler, body):
        if refuses and "logprob_token_ids" in body:
            handler.server.log.append(body)
            return handler.say(400, b"extra fields not permitted") or True

    options = {"model": "facts-1m", "search_alpha": 0.05, "tolerance": 1e-6, "progress": False, "concurrency": 1}
    with serving(bundled.served, fault) as server:
        run = from_endpoint(server.url, bundled.questions, tokenizer=bundled.model.tokenizer, **options)
        assert sum("logprob_token_ids" in body for body in server.log) == 1
        assert run.info.cost.model_calls == len(server.log) - 2
        counted = from_endpoint(server.url, bundled.questions, n_stop_tokens=2, **options)
    assert run.questions["status"].tolist().count("undecided") >= counted.questions["status"].tolist().count(
        "undecided"
    )
    assert "the server does not tell those named" in run.info.provenance["stop_tokens"]
    assert any("stop tokens that the server did not list may add" in why for why in run.questions["why"])


@pytest.mark.slow
def test_where_all_of_the_vocabulary_is_listed_nothing_is_open(bundled):
    options = {"model": "facts-1m", "search_alpha": 0.05, "epsilon": 0.0, "tolerance": 1e-6, "progress": False}
    with serving(bundled.served) as server:
        few = replace(bundled.questions, table=bundled.questions.table.head(3))
        run = from_endpoint(server.url, few, tokenizer=bundled.model.tokenizer, top=3000, **options)
        assert not any("logprob_token_ids" in body for body in server.log)
    assert decided(run, bundled) == len(run.questions)


def test_where_stop_tokens_are_not_counted_fewer_questions_are_certain_and_none_wrongly(bundled):
    with serving(bundled.served) as server:
        options = {"model": "facts-1m", "search_alpha": 0.1, "progress": False}
        counted = from_endpoint(server.url, bundled.questions, n_stop_tokens=2, **options)
        unknown = from_endpoint(server.url, bundled.questions, **options)
    sure = [(run.questions["status"] != "undecided").to_numpy() for run in (counted, unknown)]
    assert (sure[1] <= sure[0]).all()
    assert 3 <= sure[1].sum() < sure[0].sum()


def gaussian(size):
    return lambda values, ids: torch.log_softmax(values + size * torch.randn(len(values)), dim=-1)


def uniform(size):
    return lambda values, ids: torch.log_softmax(values + size * (2 * torch.rand(len(values)) - 1), dim=-1)


def another(size):
    """Another implementation: always the same numbers, a little beside ours."""

    def noise(values, ids):
        shift = torch.rand(len(values), generator=torch.Generator().manual_seed(zlib.crc32(repr(ids).encode())))
        return torch.log_softmax(values + size * (2 * shift - 1), dim=-1)

    return noise


NOISES = {
    "none": None,
    "another implementation, 0.003": another(0.003),
    "uniform 0.01": uniform(0.01),
    "uniform 0.025": uniform(0.025),
    "uniform 0.05": uniform(0.05),
    "Gaussian 0.01": gaussian(0.01),
    "Gaussian 0.025": gaussian(0.025),
    "Gaussian 0.05": gaussian(0.05),
    "not normalised 0.01": lambda values, ids: values + 0.01 * torch.randn(len(values)),
    "not normalised 0.025": lambda values, ids: values + 0.025 * torch.randn(len(values)),
    "Gaussian 0.01, late and failing": gaussian(0.01),
}


@pytest.fixture(scope="module")
def noisy(bundled, size):
    """Model, questions and the exact search in this process; what has been decided over servers, by their noise."""
    if size != "trials":
        return SimpleNamespace(**vars(bundled) | {"local": bundled.local[0.05]}, decided={})
    model, questions = models.load("facts-2m"), question_sets.load("world-facts", split="test", limit=500, seed=1)
    local = generate.generate(model, questions, strategy="threshold", search_alpha=0.05, progress=False)
    return SimpleNamespace(model=model, questions=questions, local=local, served=Served(model), decided={})


QUICK = ("none", "Gaussian 0.01, late and failing")


@pytest.mark.parametrize("kind", [pytest.param(of, marks=() if of in QUICK else pytest.mark.slow) for of in NOISES])
def test_noisy_servers_decide_less_and_nothing_falsely(kind, noisy, measuring, size):
    """False: decided, where status, or the answers said to reach α, are not those of the model itself."""
    torch.manual_seed(0)
    served = Served(noisy.model, NOISES[kind])
    served.known = noisy.served.known
    fault = Faults(share=0.05, silence=0.02) if "late" in kind else None
    with serving(served, fault) as server:
        options = {"model": "m", "search_alpha": 0.05, "progress": False, "retries": 12}
        run = from_endpoint(server.url, noisy.questions, tokenizer=noisy.model.tokenizer, **options)
    false = []
    for (_, mine), (_, truth) in zip(run.questions.iterrows(), noisy.local.questions.iterrows(), strict=True):
        here, there = (
            probabilities(x, mine["question_id"], 0.05, lambda row: tuple(row.token_ids)) for x in (noisy.local, run)
        )
        if mine["status"] != "undecided" and (mine["status"] != truth["status"] or here.keys() != there.keys()):
            false.append(mine["question_id"])
    noisy.decided[kind] = (run.questions["status"] != "undecided").mean()
    print(f"\n| {kind} | {noisy.decided[kind]:.3f} | {len(false)} | {run.info.provenance['noise']} |")
    assert false == []
    if size == "trials" and "0.01" in kind and "not" not in kind:
        assert noisy.decided[kind] >= 0.8 * noisy.decided["none"]


# A server that fails --------------------------------------------------------------------------------------------------


def once(*faults):
    """Faults to be met one after the other, then none; an entry is the arguments of `Handler.say`, or makes them."""
    left = list(faults)

    def fault(handler, body):
        if not left:
            return False
        status, data, headers = now() if callable(now := left.pop(0)) else now
        handler.say(status, data, **headers)
        return True

    return fault


@pytest.mark.parametrize("spelled", ["seconds", "date"])
def test_retry_after_is_obeyed(spelled):
    def later():
        return 429, b"", {"Retry_After": "1" if spelled == "seconds" else formatdate(time.time() + 2, usegmt=True)}

    with serving(by_table(WHOLE), once(later)) as server:
        started = time.monotonic()
        run = search(server, search_alpha=0.2)
    assert time.monotonic() - started > 0.9
    assert run.questions["status"].item() == "certified"


def test_waiting_doubles_with_chance_and_nonsense_is_not_obeyed(monkeypatch):
    monkeypatch.setattr(client, "FIRST_WAIT", 0.5)
    for attempt in range(12):
        usual = min(0.5 * 2**attempt, 60)
        for asked_for in (None, "", "soon", "-5", "nan", "0"):
            assert 0.5 * usual <= client.waiting(attempt, asked_for) <= 1.5 * usual
    assert client.waiting(0, "20") == 20
    assert client.waiting(0, "9" * 400) == 3600


def test_a_server_that_keeps_failing_stops_the_run_with_a_sentence_and_keeps_the_rest(tmp_path):
    def fault(handler, body):
        if not body["prompt"].startswith("q3"):
            return False
        handler.say(503, b"busy")
        return True

    with serving(by_table(WHOLE), fault) as server:
        with pytest.raises(RunError, match=r"gave no answer in 3 tries.*at last: HTTP 503"):
            search(server, asked(5), search_alpha=0.2, retries=2, concurrency=1, cache=tmp_path / "c.jsonl")
        server.fault = None
        server.settle()
        run = search(server, asked(5), search_alpha=0.2, concurrency=1, cache=tmp_path / "c.jsonl")
        assert {prompt[:2] for prompt in server.prompts} == {"q3", "q4"}
    assert run.questions["status"].tolist() == ["certified"] * 5


@pytest.mark.parametrize("killed", [False, True])
def test_many_questions_end_in_a_sentence_where_a_server_refuses_or_dies(killed):
    def fault(handler, body):
        if killed and len(handler.server.log) < 30:
            return False
        return killed or handler.say(404, b"no such model") or True

    sentence = "gave no answer in 2 tries" if killed else "HTTP 404"
    with serving(by_table(WHOLE), fault) as server, pytest.raises(RunError, match=sentence):
        search(server, asked(60), search_alpha=0.2, retries=1, concurrency=4)


def endless(handler, data):
    """Bytes, for as long as they are taken."""
    try:
        while True:
            handler.wfile.write(data)
    except OSError:
        return True


def drip(handler, data):
    for n in range(len(data)):
        handler.wfile.write(data[n : n + 1])
        handler.wfile.flush()
        time.sleep(0.05)
    return True


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (lambda handler, body: drip(handler, b"HTTP/1.0 200 OK\r\nX: " + b"y" * 999), "within 0.4 seconds"),
        (lambda handler, body: handler.say(200, b"", length=999) or drip(handler, b" " * 999), "within 0.4 seconds"),
        (lambda handler, body: handler.say(200, b" " * 5000) or True, "a response of more than 4096 bytes"),
        (lambda handler, body: handler.say(200, b" " * 9, length=10**14) or drip(handler, b" " * 999), "within 0.4 s"),
        (lambda handler, body: handler.say(200, b"", length=10**14) or endless(handler, b" " * 999), "more than 4096"),
        (lambda handler, body: endless(handler, b"HTTP/1.0 200 OK\r\n" + b"X: y\r\n" * 999), "Receive buffer too long"),
        (
            lambda handler, body: handler.say(200, gzip.compress(b" " * 10**7), Content_Encoding="gzip"),
            "more than 4096",
        ),
        (lambda handler, body: handler.say(200, b"\xff") or True, "utf-8"),
        (lambda handler, body: handler.say(200, b"[" * 4000) or True, "recursion"),
    ],
    ids=["slow head", "slow body", "long", "slow and huge", "endless", "endless head", "zipped", "bytes", "deep"],
)
def test_a_response_without_end_in_time_or_size_or_that_is_no_json_is_given_up(fault, sentence, monkeypatch):
    monkeypatch.setattr(client, "MOST_BYTES", 4096)
    with serving(by_table(WHOLE), fault) as server:
        started = time.monotonic()
        with pytest.raises(RunError, match=f"gave no answer in 2 tries.*{sentence}"):
            search(server, retries=1, timeout=0.4 if "within" in sentence else 60)
        assert time.monotonic() - started < 30  # a slow one takes 50 seconds a try


def test_nobody_there_is_a_sentence():
    with serving(by_table(WHOLE)) as server:
        pass
    with pytest.raises(RunError, match=r"gave no answer in 2 tries.*at last: All connection attempts failed"):
        search(server, retries=1)


@pytest.mark.parametrize("status", [400, 401, 404, 307])
def test_a_refusal_stops_at_once_with_one_sentence_and_nothing_holds_the_key(status, monkeypatch, tmp_path):
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    said = json.dumps({"error": {"message": f"Incorrect key {KEY}: logprobs at most 5"}}).encode()
    elsewhere = serving(by_table(WHOLE))
    with elsewhere as other:
        where = {"Location": f"{other.url}/completions"}
        with serving(by_table(WHOLE), once(*[(status, said, where)] * 9)) as server:
            with pytest.raises(RunError) as caught:
                search(server, cache=tmp_path / "c.jsonl", api_key_env="MY_KEY", concurrency=1)
            assert len(server.headers) == 1
            assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
        assert not other.headers
    sentence = str(caught.value)
    assert f"HTTP {status}" in sentence
    assert "at most 5" in sentence
    assert ("MY_KEY" in sentence) == (status == 401)
    assert "\n" not in sentence
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert KEY.encode() not in (tmp_path / "c.jsonl").read_bytes()


SPELLED = {
    "plain": KEY,
    "URL": "".join(f"%{ord(c):02x}" for c in KEY),
    "URL twice": KEY.replace("-", "%252D"),
    "JSON": "".join(f"\\u{ord(c):04x}" for c in KEY),
    "page": KEY.replace("-", "&#45;"),
    "upper": KEY.upper(),
    "part": KEY[:14],
    "end": KEY[-9:],
    "long": "x" * (160 - len(KEY) // 2) + KEY + "y" * 300,
}


@pytest.mark.parametrize("spelled", SPELLED.values(), ids=SPELLED)
@pytest.mark.parametrize("place", ["status line", "reason", "refusal", "response", "id"])
def test_the_key_is_not_told_however_a_server_says_it(spelled, place, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def fault(handler, body):
        if place == "status line":
            handler.wfile.write(f"{spelled} 200 OK\r\n\r\n".encode())
        elif place == "reason":
            handler.wfile.write(f"HTTP/1.0 500 {spelled}\r\n\r\n".encode())
        elif place == "refusal":
            handler.say(403, json.dumps({"error": spelled}).encode())
        else:
            entry = {"token": spelled, "logprob": -1.0} if place == "id" else spelled
            handler.say(200, json.dumps({"choices": [{"logprobs": {"content": entry}}]}).encode())
        return True

    with serving(by_table(WHOLE), fault) as server, pytest.raises(RunError) as caught:
        search(server, retries=1)
    told = "".join(traceback.format_exception(caught.value))
    for n in range(len(KEY) - 8):
        assert KEY[n : n + 9] not in told
    assert spelled not in told
    assert len(str(caught.value)) <= 300
    assert caught.value.__context__ is None


def test_the_key_is_in_no_file_and_in_nothing_a_run_holds(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(by_table(WHOLE)) as server:
        run = search(server, asked(3), search_alpha=0.2, cache=tmp_path / "of" / "c.jsonl")
        assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
        server.headers.clear()
        search(server, asked(3), search_alpha=0.2, api_key_env=None)
        assert not any("Authorization" in headers for headers in server.headers)
    files = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(max(files, key=len).splitlines()) == 4
    for content in (*files, repr(run), repr(run.info), run.questions.to_json(), run.answers.to_json()):
        assert KEY not in content


@pytest.mark.parametrize("key", [f"{KEY}\nX-Header: 1", f"{KEY}é", f"{KEY}\x00"])
def test_a_key_that_no_header_can_hold_is_not_quoted(key, monkeypatch):
    # The system's own environment holds no zero bytes.
    monkeypatch.setattr(client.os, "environ", {"OPENAI_API_KEY": key})
    with serving(by_table(WHOLE)) as server, pytest.raises(RunError, match="holds no usable key") as caught:
        search(server)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert not server.headers


BAD_ADDRESSES = (
    "localhost:8000/v1 ftp://x/v1 http:// http://me:pw@x/v1 https://x/v1?key=1 http://x/v1#a http://x:port/v1"
)


@pytest.mark.parametrize("url", [*BAD_ADDRESSES.split(), "http://x y/", "http://x/v1\n"])
def test_an_address_that_is_none_or_holds_a_secret_is_refused(url):
    with pytest.raises(ValueError, match="base_url must") as caught:
        from_endpoint(url, asked(), model="toy")
    assert "pw" not in str(caught.value)


GOOD = listing([("a", 0.5), ("\n", 0.5)])["choices"][0]


@pytest.mark.parametrize(
    ("response", "sentence"),
    [
        ([KEY], r"\['\*\*\*'\] should be a valid dictionary"),
        ({}, "logprobs are missing"),
        ({"choices": []}, "logprobs are missing"),
        ({"choices": [{"text": "a"}]}, "logprobs are missing"),
        ({"choices": [{"text": "a", "logprobs": {"tokens": ["a"]}}]}, "logprobs are missing"),
        (
            {"choices": [{"text": "a", "logprobs": {"content": [{"token": "a", "top_logprobs": [{"token": 1}]}]}}]},
            r"token=1 should be a valid string",
        ),
        ({"choices": [GOOD | {"logprobs": {"top_logprobs": [{"a": "x"}]}}]}, "a='x' should be a valid number"),
        ({"choices": [GOOD | {"logprobs": {"top_logprobs": [{"\ud800": -1.0}]}}]}, "half a character"),
        (
            {"choices": [{"text": "a", "logprobs": {"content": [{"token": "a", "top_logprobs": [{"token": "a"}]}]}}]},
            "logprobs are missing of some",
        ),
        ({"choices": [{"text": "a", "logprobs": None}]}, "logprobs are missing"),
        ({"choices": [GOOD | {"logprobs": {"top_logprobs": [{"a": 5.0}]}}]}, "a=5.0 should be less than or equal to 1"),
        ({"choices": [GOOD | {"logprobs": {"top_logprobs": [{"a": 0.5}]}}]}, "not those of one distribution"),
        (
            {"choices": [GOOD | {"logprobs": {"top_logprobs": [{"a": 0.0, "b": -3.0}]}}]},
            "not those of one distribution",
        ),
        # Token texts that have lost their space, as some servers list them.
        ({"choices": [GOOD | {"text": " a"}]}, "cannot be put together; give tokenizer="),
    ],
)
def test_a_response_that_cannot_be_used_is_a_sentence(response, sentence, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(lambda body: response) as server, pytest.raises(RunError, match=sentence) as caught:
        search(server)
    assert "question 'q0'" in str(caught.value) or "None" in str(response)


def told(*ids, chosen=None):
    """A response with these token ids, as vLLM lists them, or as llama.cpp does, where an id may come twice."""
    entries = [{"id": n, "token": "x", "logprob": -3.0} for n in ids]
    return {"choices": [{"logprobs": {"content": [{"id": chosen or ids[0], "token": "x", "top_logprobs": entries}]}}]}


@pytest.mark.parametrize(
    ("response", "sentence"),
    [
        (
            told(5, 10**6),
            "the tokenizer's model has 3000 tokens, so that it is not the server's, which has a token id 1000000",
        ),
        (told(5, 3000), "which has a token id 3000"),
        (told(5, -1), "which has a token id -1"),
        (told(5, 7, 5), "token id 5 is listed twice"),
        (told(5, 7, chosen=9), "chooses token id 9 but does not list it"),
    ],
)
def test_ids_that_cannot_be_are_refused(response, sentence, bundled):
    with serving(lambda body: response) as server, pytest.raises(RunError, match=sentence):
        search(server, tokenizer=bundled.model.tokenizer)


def test_stop_tokens_are_those_of_the_search_in_this_process(tiny_folders, tmp_path):
    """An end of text that only generation_config knows; one of another model's, which ends nothing here."""
    folder = shutil.copytree(tiny_folders("llama"), tmp_path / "tiny")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    written = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps(written | {"eos_token_id": [2, 70]}))
    tokenizer.add_tokens(["<eos>"])
    tokenizer.save_pretrained(folder)
    model = models.load(folder, device="cpu")
    mine = Vocabulary(Asking("http://x/v1", "toy", tokenizer=AutoTokenizer.from_pretrained(folder)))
    size = len(model.endings.stop)
    for kind in ("stop", "closing"):
        theirs = getattr(model.endings, kind).nonzero().squeeze(1).tolist()
        assert [n for n, each in enumerate(mine.endings[:size]) if each == kind] == theirs
    assert mine.endings[70] == "stop"
    assert len(mine.endings) == size <= tokenizer.convert_tokens_to_ids("<eos>")
    tokenizer.name_or_path = str(tmp_path / "nowhere")
    with pytest.warns(UserWarning, match="nowhere' cannot be had; only the tokenizer's own end of text"):
        Vocabulary(Asking("http://x/v1", "toy", tokenizer=tokenizer))


def test_a_server_without_ids_or_with_more_stop_tokens_than_there_should_be_is_refused(bundled):
    with serving(lambda body: {"choices": [GOOD]}) as server, pytest.raises(RunError, match="returns no token ids"):
        search(server, tokenizer=bundled.model.tokenizer)
    with serving(by_table(WHOLE)) as server, pytest.raises(RunError, match="2 stop tokens are listed"):
        search(server, n_stop_tokens=1)


NUMBERS = {"nan": math.nan, "inf": math.inf}
OUT_OF_RANGE = "search_alpha=0 search_alpha=1.5 top=0 max_new_tokens=0 budget=0 budget=1.5 epsilon=-1 tolerance=nan"
OUT_OF_RANGE += (
    " concurrency=0 retries=-1 retries=true epsilon=false timeout=0 timeout=inf n_stop_tokens=-1 n_stop_tokens=0"
)


@pytest.mark.parametrize("setting", OUT_OF_RANGE.split())
def test_a_setting_out_of_its_range_is_refused(setting):
    name, value = setting.split("=")
    with pytest.raises(ValueError, match=f"(?i){name}={value} must"):
        from_endpoint("http://x/v1", asked(), model="toy", **{name: NUMBERS.get(value) or json.loads(value)})


@pytest.mark.parametrize(("name", "value"), [("model", "toy\ud800"), ("stop", ["\udfff"])])
def test_half_a_character_is_refused_before_a_cache_is_begun(name, value, tmp_path):
    with serving(by_table(WHOLE)) as server, pytest.raises(ValueError, match=f"{name}.*holds half a character"):
        from_endpoint(server.url, asked(), cache=tmp_path / "c.jsonl", **{"model": "toy", name: value})
    assert not list(tmp_path.iterdir())


def test_an_unknown_setting_is_refused():
    with pytest.raises(ValueError, match="alpha is no parameter"):
        from_endpoint("http://x/v1", asked(), model="toy", alpha=0.4)


# The cache ------------------------------------------------------------------------------------------------------------

# What is killed.
SCRIPT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background of a shell ignore it
import pandas as pd
from pro_lib import questions as question_sets
from pro_lib.endpoint import from_endpoint
names = [f"q{{i}}" for i in range(40)]
references = [[name] for name in names]
table = pd.DataFrame(dict(question_id=names, question=names, references=references, split="test"))
questions = question_sets.QuestionSet("toy", table, template="{{question}}>")
options = dict(search_alpha=0.2, epsilon=0.0, concurrency=3, cache={cache!r}, progress=False)
from_endpoint({url!r}, questions, model="toy", **options)
"""


def same_tables(one, other):
    assert_frame_equal(one.answers, other.answers)
    assert_frame_equal(one.questions, other.questions)


@pytest.mark.slow
def test_killed_again_and_again_no_question_is_lost_or_asked_twice(forks, tmp_path):
    cache, stopped = tmp_path / "cache.jsonl", threading.Event()

    def n_lines():
        return cache.read_bytes().count(b"\n") if cache.exists() else 0

    def slow(handler, body):
        time.sleep(0.03)
        while n_lines() >= wanted and not stopped.is_set():  # what is to be killed gets no further meanwhile
            time.sleep(0.005)
        return False

    with serving(by_table(WHOLE), slow) as server:
        script = SCRIPT.format(url=server.url, cache=str(cache))
        for wanted, way in ((3, signal.SIGKILL), (6, signal.SIGINT), (9, signal.SIGKILL)):
            pid = forks.start(["-c", script], tmp_path, cwd=tmp_path)
            deadline = time.monotonic() + 300
            stopped.clear()
            while n_lines() < wanted:
                assert time.monotonic() < deadline, (tmp_path / "err").read_text()
                time.sleep(0.005)
            os.kill(pid, way)
            assert forks.wait(pid) == -way
            stopped.set()
            finished = {
                json.loads(line)["question_id"]
                for line in cache.read_bytes().splitlines(True)[1:]
                if line[-1:] == b"\n"
            }
            assert len(finished) >= wanted - 1
            server.settle()
        server.fault = None
        run = search(server, asked(40), search_alpha=0.2, cache=cache)
        assert not {prompt.split(">")[0] for prompt in server.prompts} & finished
        server.log.clear()
        same_tables(search(server, asked(40), search_alpha=0.2, cache=cache), run)
        assert not server.log
        same_tables(search(server, asked(40), search_alpha=0.2), run)


def test_a_cache_cut_anywhere_goes_on_to_the_same_tables(tmp_path):
    cache = tmp_path / "c.jsonl"
    with serving(by_table(WHOLE)) as server:
        run = search(server, asked(4), search_alpha=0.2, cache=cache)
        whole = cache.read_bytes()
        header = whole.index(b"\n") + 1  # which is whole or absent
        for size in [0, *range(header, len(whole), 331), len(whole) - 1]:
            cache.write_bytes(whole[:size])
            same_tables(search(server, asked(4), search_alpha=0.2, cache=cache), run)
    # Afterwards it is the run of any layout, and nothing is asked.
    stored = endpoint.read(cache)
    assert stored.search_alpha == 0.2
    assert stored.select(question_ids=["q0", "q1", "q2", "q3"]).log_probs().tolist() == run.log_probs().tolist()
    assert set(CERTIFICATE_COLUMNS) <= set(stored.questions)
    same_tables(endpoint.read(cache, questions=asked(4).table), run)


def test_a_header_that_cannot_be_written_whole_leaves_no_cache(tmp_path):
    cache, (soft, hard) = tmp_path / "c.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(RunError, match="cannot be written: File too large"), opened(cache, {"model": "toy"}):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not cache.exists()
    with opened(cache, {"model": "toy"}) as known:
        assert known == {}


def test_a_cache_of_other_settings_or_prompts_is_refused(tmp_path):
    cache = tmp_path / "c.jsonl"
    with serving(by_table(WHOLE)) as server:
        search(server, asked(2), search_alpha=0.2, cache=cache)
        for option, said in (
            ({"search_alpha": 0.3}, "search_alpha=0.2"),
            ({"top": 5}, "top=20"),
            ({"stop": ["x"]}, "stop="),
        ):
            with pytest.raises(RunError, match=f"was made with {said}"):
                search(server, asked(2), cache=cache, **({"search_alpha": 0.2} | option))
        other = asked(2)
        other.table.loc[1, "question"] = "changed"
        with pytest.raises(RunError, match="holds question 'q1' with another prompt"):
            search(server, other, search_alpha=0.2, cache=cache)
        content = cache.read_text().splitlines(True)
        for line in ('{"question_id": 1}\n', "[]\n", "nonsense\n"):
            cache.write_text("".join([*content, line]))
            with pytest.raises(RunError, match="line 4"):
                search(server, asked(2), search_alpha=0.2, cache=cache)
        cache.write_text('{"question_id": "q0", "answers": []}\n')
        with pytest.raises(RunError, match="line 1: endpoint"):
            search(server, asked(2), search_alpha=0.2, cache=cache)


def test_two_processes_do_not_write_one_cache_and_a_bad_place_is_a_sentence(tmp_path):
    cache = tmp_path / "c.jsonl"
    with serving(by_table(WHOLE)) as server:
        with FileLock(f"{cache}.lock"), pytest.raises(RunError, match="is being written by another process"):
            search(server, cache=cache)
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "kept").write_text("precious")
        (tmp_path / "link.lock").symlink_to(tmp_path / "kept")
        for place in (
            tmp_path,
            tmp_path / "pipe",
            "/dev/full",
            tmp_path / "kept" / "c",
            tmp_path / "link",
        ):
            with pytest.raises(RunError, match=f"{place}.*(cannot be written|is missing or damaged)"):
                search(server, cache=place)
        assert (tmp_path / "kept").read_text() == "precious"
        assert not server.log


def in_order(run):
    tables = (run.answers.sort_values(["question_id", "rank"]), run.questions.sort_values("question_id"))
    return SimpleNamespace(
        **dict(zip(("answers", "questions"), (x.reset_index(drop=True) for x in tables), strict=True))
    )


def damaged(data, rng):
    """A file as disks, editors and people leave it: a few bytes, or lines, changed."""
    for _ in range(rng.randint(1, 3)):
        at, size = rng.randrange(len(data) + 1), rng.choice([1, 1, 1, 2, 40, 2000])
        lines = data.splitlines(True)
        kind = rng.randrange(8)
        if kind == 0:
            data = data[:at]
        elif kind == 1:
            data = data[:at] + data[at + size :]
        elif kind == 2:
            data = data[:at] + rng.randbytes(size) + data[at + size :]
        elif kind == 3:
            data = (
                data[:at]
                + rng.choice([b"0", b"9", b"-", b"e99", b"NaN", b"null", b"[" * 999, b"\n", b"\\ud800"])
                + data[at:]
            )
        elif kind == 4:
            digits = [n for n, byte in enumerate(data) if 48 <= byte < 58]
            at = rng.choice(digits or [0])
            data = data[:at] + b"%d" % rng.randrange(10) + data[at + 1 :]
        elif kind == 5:
            rng.shuffle(lines)
            data = b"".join(lines)
        elif kind == 6:
            data = b"".join(rng.choices(lines, k=len(lines))) if lines else data
        else:
            data = data.replace(
                rng.choice([b"true", b"q1", b"log_prob", b"seal"]), rng.choice([b"false", b"q2", b"", b"x"])
            )
    return data


def test_a_damaged_cache_is_a_sentence_or_what_was_written(tmp_path, size):
    cache, rng = tmp_path / "c.jsonl", random.Random(0)
    with serving(by_table(WHOLE)) as server:
        run = search(server, asked(4), search_alpha=0.2, cache=cache)
        whole = cache.read_bytes()
        for _ in range({"quick": 20, "all": 200, "trials": 1000}[size]):
            cache.write_bytes(data := damaged(whole, rng))
            for read in (endpoint.read, lambda path: search(server, asked(4), search_alpha=0.2, cache=path)):
                found = said = None
                try:
                    found = read(cache)
                except RunError as error:
                    said = str(error)
                if found is not None:
                    same_tables(in_order(found), in_order(run.select(question_ids=found.questions["question_id"])))
                else:
                    assert str(cache) in said
                    assert (len(said) <= 300, "\n" in said, cache.read_bytes() == data) == (True, False, True)


FOREIGN = ["shopping list", "eggs\nmilk", "{", '{"endpoint": {"model"', "\n\n", "[1]\n", "{a cache}remember the milk"]
FOREIGN += [
    '{"question_id": "q0", "question": "Who?"}',
    '{"question_id": "q0"}\n{"question_id": "q1"}',
    '{"endpoint": {}}',
]


@pytest.mark.parametrize("content", FOREIGN)
def test_what_is_not_its_own_keeps_every_byte(content, tmp_path):
    cache = tmp_path / "notes"
    with serving(by_table(WHOLE)) as server:
        search(server, search_alpha=0.2, cache=cache)
        content = content.replace("{a cache}", cache.read_text())
        cache.write_text(content)
        server.log.clear()
        with pytest.raises(RunError, match="notes"):
            search(server, search_alpha=0.2, cache=cache)
        assert not server.log
    assert cache.read_text() == content


def test_it_works_where_a_loop_of_events_runs_already_as_in_a_notebook():
    async def cell():
        return searched(WHOLE, search_alpha=0.2)

    assert asyncio.run(cell())[1]["status"] == "certified"


def test_questions_are_searched_at_once_and_come_back_in_their_order():
    barrier = threading.Barrier(4)

    def meet(handler, body):
        if body["prompt"].endswith(">") and len(handler.server.log) >= 2:  # the noise is measured
            barrier.wait(timeout=20)
            time.sleep(0.02 * (5 - int(body["prompt"][1])))
        return False

    with serving(by_table(WHOLE), meet) as server:
        run = search(server, asked(4), search_alpha=0.2, concurrency=4)
    assert run.questions["question_id"].tolist() == ["q0", "q1", "q2", "q3"]
    assert run.info.cost.model_calls == 8
    assert run.info.cost.prompt_tokens == 8 * 7
    assert run.info.parameters["search_alpha"] == 0.2
    assert run.info.provenance == {"base_url": server.url, "noise": vars(Noise(0.0))}


def test_tokens_of_one_text_in_a_path_are_told_apart_by_their_numbers():
    """'ab' and 'a' then 'b' read alike; both are answers."""
    table = {"": [("a", 0.5), ("ab", 0.5)], "a": [("b", 1.0)], "ab": [("\n", 1.0)]}
    answers, ledger = searched(table, search_alpha=0.2)
    assert answers["text"].tolist() == ["ab", "ab"]
    assert len({tuple(ids) for ids in answers["token_ids"]}) == 2
    assert all(number < -1 for number in itertools.chain(*answers["token_ids"]))
    assert ledger["found_mass"] == pytest.approx(1)


def test_world_is_what_the_brute_force_reads():
    world = World(seed=1, n_questions=1, vocabulary=5, n_stops=2, n_closing=1, length=2, peakedness=1.0)
    assert texts_of(world) == ["<0>", "<1>", "A\n", "a", "b"]
    values = asyncio.run(answering(world, 5)(None, "0>"))["choices"][0]["logprobs"]["top_logprobs"][0]
    assert sum(map(math.exp, values.values())) == pytest.approx(1, abs=1e-6)
