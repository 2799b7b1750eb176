"""Exact search over a server: the sets of the search in process, and no certificate from a server that lies."""

import json
import math
import re
import socket
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import stamina
import torch
from test_threshold import MASSES

import pro_lib
from pro_lib import questions as question_sets
from pro_lib import server
from pro_lib.files import RunError
from pro_lib.generate import generate

LISTINGS = {}
KEY = "sk-very-secret-0123456789"
stamina.set_testing(True, attempts=3)  # no waiting between tries


@contextmanager
def serving(model, lie=None, *, most=10**6, ids=True):
    """The address of a server of this model that lists at most so many tokens.

    `lie(reply, n, prompt)` says something else, or with which status and bytes the server answers.
    """
    n_requests = iter(range(10**9))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            """Say nothing."""

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                reply = listing(model, body["prompt"], min(body["logprobs"], most), ids)
                reply = lie(reply, next(n_requests), body["prompt"]) if lie else reply
            status, content = reply if isinstance(reply, tuple) else (200, json.dumps(reply).encode())
            if content == b"dead":
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(content) + 100 * (content == b'{"half')))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

    lock, http = threading.Lock(), ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/v1"
    finally:
        http.shutdown()
        http.server_close()


@torch.inference_mode()
def listing(model, prompt, n, ids):
    """The reply of vLLM, or of llama.cpp where `ids` is false; the network is asked once for each prompt."""
    if (key := tuple(prompt)) not in LISTINGS:
        log_probs = model.network(torch.tensor([prompt])).logits[0].double().log_softmax(-1)
        own = log_probs[:-1].gather(1, torch.tensor(prompt[1:])[:, None]).flatten().tolist()
        LISTINGS[key] = (*log_probs[-1].sort(descending=True), [None, *own, -0.5])
    values, tokens, echoed = LISTINGS[key]
    pairs = [*zip(tokens[:n].tolist(), values[:n].tolist(), strict=True)]
    listed = {"content": [{"top_logprobs": [{"id": token, "logprob": value} for token, value in pairs]}]}
    if ids:
        listed = {"top_logprobs": [{f"token_id:{token}": value for token, value in pairs}], "token_logprobs": echoed}
    text = model.tokenizer.decode([pairs[0][0]], skip_special_tokens=True)
    return {"choices": [{"text": text, "logprobs": listed}], "usage": {"prompt_tokens": len(prompt)}}


def connected(url, model, **options):
    return server.connect(url, model="served/facts", tokenizer=model.tokenizer, **options)


@pytest.fixture(scope="module")
def some(size):
    """Questions, more of them where there is time."""
    return question_sets.load("world-facts", split="validation", limit={"quick": 8, "all": 25}.get(size, 100))


def searched(model, questions, alpha=0.05, **options):
    return generate(model, questions, strategy="threshold", search_alpha=alpha, progress=False, **options)


@pytest.fixture(scope="module")
def truth(facts_2m, some):
    """The search in process."""
    return searched(facts_2m, some)


def false_certificates(run, truth, slack=1e-3):
    """Certified questions whose answers at or above α are not those in process, but for answers as near as rounding."""
    sets = []
    for ranked in (run.ranked(), truth.ranked()):
        above = ranked[ranked["value"] >= np.log(run.info.parameters["search_alpha"]) + slack]
        sets.append(above.groupby("question_id")["token_ids"].agg(lambda ids: {tuple(one) for one in ids}).to_dict())
    certified = run.questions.loc[run.questions["status"] == "certified", "question_id"]
    return [name for name in certified if sets[0].get(name, set()) != sets[1].get(name, set())]


@pytest.mark.parametrize("ids", [True, False])
def test_over_a_server_sets_masses_and_bounds_are_those_of_the_search_in_process(facts_2m, some, truth, ids, tmp_path):
    with serving(facts_2m, ids=ids) as url:
        run = searched(connected(url, facts_2m, top=300, epsilon=1e-4), some, out=tmp_path)
    again = searched(connected("http://127.0.0.1:9/v1", facts_2m, epsilon=1e-4), some, out=tmp_path)  # nobody is there
    assert again.questions["status"].tolist() == run.questions["status"].tolist()
    assert run.questions["status"].tolist() == truth.questions["status"].tolist()
    assert false_certificates(run, truth) == []
    np.testing.assert_allclose(run.log_probs(), truth.log_probs(), atol=1e-4)
    np.testing.assert_allclose(run.questions[MASSES].sum(axis=1), 1, atol=1e-3)
    np.testing.assert_allclose(run.questions["found_mass"], truth.questions["found_mass"], atol=1e-3)
    assert (run.questions["tree_bound"] <= truth.questions["tree_bound"] + 1e-3).all()
    assert (run.questions["upper_bound"] >= truth.questions["tree_bound"] - 1e-3).all()
    assert (run.questions["alpha_floor"] <= run.questions["tree_bound"] + 1e-3).all()


@pytest.mark.parametrize("most", [1, 5, 20, 100])
def test_short_lists_decide_fewer_questions_and_none_falsely(facts_2m, some, truth, most):
    with serving(facts_2m, most=most) as url:
        run = searched(connected(url, facts_2m, top=most), some)
        assert false_certificates(run, truth) == []
        undecided = run.questions["status"] == "undecided"
        assert most > 1 or undecided.sum() >= len(some) - 2
        assert run.questions.loc[undecided, "why"].str.contains("does not list|lies within|is still open").all()


def test_longer_lists_are_asked_for_only_where_one_leaves_something_open(facts_2m):
    lengths, few = [], question_sets.load("world-facts", split="validation", limit=3)
    with serving(facts_2m, lambda reply, n, prompt: lengths.append(len(tops(reply))) or reply) as url:
        searched(connected(url, facts_2m, top=3, repeats=1), few, alpha=0.02)
    assert {3, 48} <= set(lengths)
    assert lengths.count(3) > lengths.count(48) > 0


def tops(reply):
    return reply["choices"][0]["logprobs"]["top_logprobs"][0]


def swapped(share):
    """Now and then the reply to another request."""
    before = {}

    def lie(reply, n, prompt):
        other, before[len(prompt)] = before.get(len(prompt), reply), reply
        return other if np.random.default_rng(n).random() < share else reply

    return lie


def changed(*values):
    """A list whose first values are others, from the fortieth request on."""

    def lie(reply, n, prompt):
        listed = tops(reply) if n >= 40 else {}
        listed.update(zip(listed, values, strict=False))
        return reply

    return lie


def noisy(nats):
    """A list whose values are off, its probabilities adding up to what they did."""

    def lie(reply, n, prompt):
        before = np.array([*tops(reply).values()])
        drawn = before + nats * np.random.default_rng(n).normal(size=len(before))
        drawn += np.logaddexp.reduce(before) - np.logaddexp.reduce(drawn)
        reply["choices"][0]["text"] = ""
        return relisted(reply, dict(zip(tops(reply), drawn.tolist(), strict=True)))

    return lie


def told(status, content):
    return lambda reply, n, prompt: (status, content) if n >= 40 else reply


def cut(reply, n, prompt):
    """The prompt without its beginning, as a server with a short context may have it."""
    return reply | {"usage": {"prompt_tokens": min(len(prompt), 200)}}


def relisted(reply, listed):
    reply["choices"][0]["logprobs"]["top_logprobs"] = [listed]
    return reply


def other_words(reply, n, prompt):
    return relisted(reply, {f"token_id:{7 + 3 * place}": value for place, value in enumerate(tops(reply).values())})


def foreign_words(reply, n, prompt):
    """Tokens that the tokenizer has not, and no text."""
    reply["choices"][0]["text"] = ""
    return relisted(reply, {f"token_id:{10**6 + place}": value for place, value in enumerate(tops(reply).values())})


def warmer(reply, n, prompt):
    """A server that divides its logits by 0.8, its list still one of probabilities."""
    values = {token: value / 0.8 for token, value in tops(reply).items()}
    total = np.logaddexp.reduce(list(values.values()))
    return relisted(reply, {token: value - total for token, value in values.items()})


LIES = {
    "swapped": swapped(0.2),
    "noise of 0.1": noisy(0.1),
    "noise of 0.01": noisy(0.01),
    "not a number": changed(math.nan),
    "above 0": changed(0.7),
    "infinite": changed(math.inf),
    "too much": changed(*[-0.5] * 5),
    "null": changed(None),
    "text": lambda reply, n, prompt: tops(reply).update({"Paris": -0.1}) or reply,
    "empty": lambda reply, n, prompt: tops(reply).clear() or reply,
    "other tokens": other_words,
    "foreign tokens": foreign_words,
    "cut prompt": cut,
    "half": told(200, b'{"half'),
    "no JSON": told(200, b"<html>"),
    "a list": told(200, b"[1, 2]"),
    "404": told(404, f"no such model; {KEY}".encode()),
    "401": told(401, f"bad key {KEY}".encode()),
    "500": told(500, f"Authorization: Bearer {KEY}".encode()),
    "death": told(200, b"dead"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_server_that_lies_gets_no_false_certificate_and_no_error_the_key(facts_2m, some, truth, name, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(facts_2m, LIES[name]) as url:
        # Which reply another gets depends on their order.
        served = connected(url, facts_2m, top=300, concurrency=1 if name == "swapped" else 4)
        if name in ("swapped", "noise of 0.1", "noise of 0.01"):  # what only another list of the place can show
            run = searched(served, some)
            assert false_certificates(run, truth) == []
            undecided = run.questions["status"] == "undecided"
            assert undecided.all() if name.startswith("noise") else undecided.any()
            # Not without end: each token of the greedy answer twice at most.
            assert name == "swapped" or run.info.cost.model_calls <= 2 * 32 * len(some)
        else:
            with pytest.raises(RunError, match=re.escape(url)) as caught:
                searched(served, some)
            assert KEY not in str(caught.value)
            assert "\n" not in str(caught.value)


def test_an_unreachable_server_a_drip_and_what_is_refused_end_in_a_sentence(facts_2m, some, monkeypatch):
    with pytest.raises(RunError, match=r"http://127\.0\.0\.1:9/v1 refuses or fails: no whole answer"):
        searched(connected("http://127.0.0.1:9/v1", facts_2m), some)
    for url in ("localhost:8000", "http://me:secret@localhost/v1", "http://localhost/v1?key=secret", "ftp://localhost"):
        with pytest.raises(ValueError, match="base_url must be") as caught:
            connected(url, facts_2m)
        assert "secret" not in str(caught.value)
    with serving(facts_2m) as url:
        served = connected(url, facts_2m)
        for strategy in ("greedy", "multinomial", "diverse_beam"):
            with pytest.raises(ValueError, match="use 'threshold'"):
                generate(served, some, strategy=strategy, progress=False)
        with pytest.raises(ValueError, match="stop_ids"):
            generate(served, some, strategy="threshold", stop=["."], progress=False)
    for option, value in {"top": 0, "epsilon": -1.0, "timeout": 0.0, "wrong": 1}.items():
        with pytest.raises(ValueError, match=option):
            connected("http://localhost/v1", facts_2m, **{option: value})


@pytest.mark.parametrize("ending", [b"\r\n\r\n", b"", b"\r\nTransfer-Encoding: chunked\r\n\r\n"])
def test_a_server_that_answers_byte_by_byte_is_given_up(facts_2m, some, ending):
    def drip(listener):
        connection, _ = listener.accept()
        with connection, suppress(OSError):  # who asked has gone
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Kind: json" + ending)
            while drips and not ended.wait(0.05):
                connection.sendall(drips.pop())

    ended, drips = threading.Event(), [b"0"] * 400  # that it ends itself is another error
    with socket.create_server(("127.0.0.1", 0)) as listener, stamina.set_testing(True, attempts=1):
        thread = threading.Thread(target=drip, args=(listener,), daemon=True)
        thread.start()
        with pytest.raises(RunError, match=r"no whole answer in .*Timeout"):
            searched(connected(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", facts_2m, timeout=0.3), some)
        ended.set()
        thread.join()


def test_one_question_can_be_asked_over_a_server(facts_2m):
    with serving(facts_2m) as url:
        there, here = (
            pro_lib.ask(model, "What is the capital of France?", search_alpha=0.05)
            for model in (connected(url, facts_2m, top=300), facts_2m)
        )
    assert (there.text, there.status) == (here.text, here.status)
    assert there.uncertainty == pytest.approx(here.uncertainty, abs=1e-3)


def program(url, word):
    """Return the program of docs/doors.md with this word in it, of fewer questions, for a server at this address."""
    page = (Path(__file__).parents[1] / "docs" / "doors.md").read_text()
    [code] = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if word in code]
    for before, after in {"http://localhost:8000/v1": url, "smollm2-135m": "facts-2m"}.items():
        assert before in code
        code = code.replace(before, after)
    return code.replace("=100", "=2")


def test_the_program_of_the_docs_runs_over_a_server(facts_2m, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with serving(facts_2m) as url:
        exec(program(url, "value_counts"), {})
    assert "certified" in capsys.readouterr().out


@pytest.mark.parametrize(("lie", "least", "most"), [(None, 0, 1e-5), (warmer, 0.1, 9)])
def test_a_temperature_of_the_servers_own_is_seen_where_it_scores_prompts(facts_2m, lie, least, most, capsys):
    with serving(facts_2m, lie) as url:
        exec(program(url, "echo"), {})
    assert least <= float(capsys.readouterr().out.removesuffix(" nats\n")) <= most
