"""Exact search over a server finds the sets of the local search, and does not certify lies."""

import math
import re
import socket
import sys
import threading
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest
import torch
from conftest import ROOT
from fake_server import NAME, connected, listed_models, props, searched, serving
from test_threshold import MASSES, likely_answers

from pro_lib import generate, load_questions, read_run
from pro_lib.common.files import RunError
from pro_lib.generation import server, server_client

KEY = "sk-very-secret-0123456789"


@pytest.fixture(scope="module")
def some(size):
    """Questions, more of them where there is time."""
    return load_questions(
        "world-facts", split="validation", limit={"quick": 8, "all": 25}.get(size, 100)
    )


@pytest.fixture(scope="module")
def truth(facts_2m, some):
    """The search in process."""
    return searched(facts_2m, some)


def false_certificates(run, truth):
    """Return certified questions whose answers at or above α differ from those of the local search.

    Answers within 0.001 nats of α are ignored.
    """
    least = np.log(run.info.parameters["search_alpha"]) + 1e-3
    found, expected = (likely_answers(one, least) for one in (run, truth))
    certified = run.questions.loc[run.questions["status"] == "certified", "question_id"]
    return [name for name in certified if found.get(name) != expected.get(name)]


@pytest.mark.parametrize("ids", [True, False])
def test_over_a_server_sets_masses_and_bounds_are_those_of_the_search_in_process(
    facts_2m, some, truth, ids, tmp_path
):
    with serving(facts_2m, ids=ids) as url:
        run = searched(connected(url, facts_2m, top=300, epsilon=1e-4), some, out=tmp_path)
    assert run.questions["status"].tolist() == truth.questions["status"].tolist()
    assert false_certificates(run, truth) == []
    np.testing.assert_allclose(run.log_probs(), truth.log_probs(), atol=1e-4)
    np.testing.assert_allclose(run.questions[MASSES].sum(axis=1), 1, atol=1e-3)
    np.testing.assert_allclose(
        run.questions["found_mass"], truth.questions["found_mass"], atol=1e-3
    )
    assert (run.questions["tree_bound"] <= truth.questions["tree_bound"] + 1e-3).all()
    assert (run.questions["upper_bound"] >= truth.questions["tree_bound"] - 1e-3).all()
    assert (run.questions["alpha_floor"] <= run.questions["tree_bound"] + 1e-3).all()


@pytest.mark.parametrize("most", [1, 20])
def test_short_lists_decide_fewer_questions_and_none_falsely(facts_2m, some, truth, most):
    with serving(facts_2m, most=most) as url:
        run = searched(connected(url, facts_2m, top=most), some)
        assert false_certificates(run, truth) == []
        undecided = run.questions["status"] == "undecided"
        assert most > 1 or undecided.sum() >= len(some) - 2
        assert (
            run.questions.loc[undecided, "why"]
            .str.contains("does not list|lies within|is still open")
            .all()
        )


def test_longer_lists_are_asked_for_only_where_one_leaves_something_open(facts_2m):
    lengths = []
    few = load_questions("world-facts", split="validation", limit=3)

    def recorded(reply, n, prompt):
        lengths.append(len(tops(reply)))
        return reply

    with serving(facts_2m, recorded) as url:
        searched(connected(url, facts_2m, top=3, repeats=1), few, alpha=0.02)
    assert {3, 48} <= set(lengths)
    assert lengths.count(3) > lengths.count(48) > 0


def tops(reply):
    return reply["choices"][0]["logprobs"]["top_logprobs"][0]


def swapped(share):
    """Now and then the reply to another request, after those of two probes."""
    before = {}

    def lie(reply, n, prompt):
        if n < 8:
            return reply
        other = before.get(len(prompt), reply)
        before[len(prompt)] = reply
        return other if np.random.default_rng(n).random() < share else reply

    return lie


def changed(*values):
    """A list whose first values are others, from the fortieth request on."""

    def lie(reply, n, prompt):
        listed = tops(reply) if n >= 40 else {}
        listed.update(zip(listed, values, strict=False))
        return reply

    return lie


def told(status, content):
    return lambda reply, n, prompt: (status, content) if n >= 40 else reply


def cut(reply, n, prompt):
    """The prompt without its beginning, as a server with a short context may have it."""
    return reply | {"usage": {"prompt_tokens": min(len(prompt), 200)}}


def relisted(reply, listed):
    reply["choices"][0]["logprobs"]["top_logprobs"] = [listed]
    return reply


def renamed(first, **fields):
    """A list of other tokens, from an id on."""

    def lie(reply, n, prompt):
        reply["choices"][0].update(fields)
        ids = (f"token_id:{first + 3 * place}" for place in range(10**6))
        return relisted(reply, dict(zip(ids, tops(reply).values(), strict=False)))

    return lie


# What a list has in place of its second token and its value.
HIDING = {
    "omitted": lambda token, value: [],
    "at -inf": lambda token, value: [(token, -math.inf)],
    "at the lowest float": lambda token, value: [(token, -3.4e38)],
    "an id that is no token": lambda token, value: [("token_id:99999999", value)],
    "a negative id": lambda token, value: [("token_id:-1", value)],
}


def hidden(change):
    """A list with something else in place of its second token, which is likely."""

    def lie(reply, n, prompt):
        pairs = [*tops(reply).items()]
        if n >= 4 and len(pairs) > 1:
            pairs[1:2] = change(*pairs[1])
        return relisted(reply, dict(pairs))

    return lie


# As llama.cpp names the probabilities after sampling
AFTER = [{"top_probs": [{"id": 7, "prob": 1.0}], "prob": 1.0, "id": 7}]
LIES = {kind: hidden(change) for kind, change in HIDING.items()}
LIES |= {
    "swapped": swapped(0.2),
    "not a number": changed(math.nan),
    "above 0": changed(0.7),
    "too much": changed(*[-0.5] * 5),
    "null": changed(None),
    "text": lambda reply, n, prompt: tops(reply).update({"Paris": -0.1}) or reply,
    "empty": lambda reply, n, prompt: tops(reply).clear() or reply,
    "other tokens": renamed(7),
    "tokens that the tokenizer does not have": renamed(10**6, text=""),
    "after sampling": lambda reply, n, prompt: {"choices": [{"logprobs": {"content": AFTER}}]},
    "cut prompt": cut,
    "half": told(200, b'{"half'),
    "no JSON": told(200, b"<html>"),
    "401": told(401, f"bad key {KEY}".encode()),
    "500": told(500, f"Authorization: Bearer {KEY}".encode()),
    "death": told(200, b"dead"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_server_that_lies_gets_no_false_certificate_and_no_error_the_key(
    facts_2m, some, truth, name, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    # Which reply another gets depends on their order.
    options = {"top": 300, "concurrency": 1 if name == "swapped" else 4}
    with serving(facts_2m, LIES[name]) as url:
        if name == "swapped":  # what only another list of the place can show
            run = searched(connected(url, facts_2m, **options), some)
            assert false_certificates(run, truth) == []
            assert (run.questions["status"] == "undecided").any()
        else:
            with pytest.raises(RunError, match=re.escape(url)) as caught:
                searched(connected(url, facts_2m, **options), some)
            assert KEY not in str(caught.value)
            assert "\n" not in str(caught.value)


WRONG = {
    "base_url": [
        "localhost:8000",
        "http://me:secret@localhost/v1",
        "ftp://localhost",
        "http://localhost/v1?key=secret",
        "http://localhost:0/v1",
        "http://localhost:65536/v1",
        "",
        "\n",
    ],
    "model": ["", "\n"],
    "tokenizer": ["", "\n"],
    "api_key_env": ["", "\n"],
    "top": [0],
    "epsilon": [-1.0],
    "timeout": [0.0],
    "longest_wait": [-1.0],
    "wrong": [1],
}


@pytest.mark.parametrize("name", WRONG)
def test_options_that_are_wrong_are_refused_by_name(name):
    usual = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "tokenizer": "facts-2m"}
    for value in WRONG[name]:
        with pytest.raises(ValueError, match=f"^{name}") as caught:
            server.connect_server(**usual | {name: value})
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-gehe\u00edm-123", "sk-geheim\nX-Other: 1", " sk-geheim"])
def test_a_key_that_no_header_can_hold_is_refused_by_the_name_of_its_variable(
    facts_2m, key, monkeypatch
):
    monkeypatch.setenv("MY_KEY", key)
    with pytest.raises(
        ValueError, match=r"^environment variable MY_KEY \(api_key_env\) contains white space"
    ) as caught:
        connected("http://127.0.0.1:9/v1", facts_2m, api_key_env="MY_KEY")
    assert "gehe" not in str(caught.value)


def test_other_strategies_and_texts_to_stop_at_are_refused(facts_2m, some):
    with serving(facts_2m) as url:
        served = connected(url, facts_2m)
        for strategy in ("greedy", "multinomial", "diverse_beam"):
            with pytest.raises(ValueError, match="use strategy='threshold'"):
                generate(served, some, strategy=strategy)
        with pytest.raises(ValueError, match="stop_ids"):
            generate(served, some, strategy="threshold", stop=["."])


@pytest.mark.parametrize("ending", [b"\r\n\r\n", b"", b"\r\nTransfer-Encoding: chunked\r\n\r\n"])
def test_a_server_that_stops_within_its_reply_is_given_up(facts_2m, ending, monkeypatch):
    monkeypatch.setattr(server_client, "_TRIES", 1)

    def drip(listener):
        connection, _ = listener.accept()
        with connection, suppress(OSError):  # who asked has gone
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Kind: json" + ending)
            ended.wait(5)

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,), daemon=True)
        thread.start()
        with pytest.raises(RunError, match=r"no complete answer in .*Timeout"):
            connected(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", facts_2m, timeout=0.1)
        ended.set()
        thread.join()


def program(url, word):
    """Return the program of docs/how_to/use_a_server.md that contains a word, for fewer questions
    and a URL.
    """
    page = (ROOT / "docs" / "how_to" / "use_a_server.md").read_text()
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


@pytest.mark.parametrize(("temperature", "least", "most"), [(1.0, 0, 1e-5), (0.8, 0.1, 9)])
def test_a_temperature_of_the_servers_own_is_seen_where_it_scores_prompts(
    facts_2m, temperature, least, most, capsys
):
    with serving(facts_2m, sampler=lambda values, body: scaled(values, temperature)) as url:
        exec(program(url, "echo"), {})
    assert least <= float(capsys.readouterr().out.removesuffix(" nats\n")) <= most


QUESTIONS = ["What is the capital of France?", "Who wrote Hamlet?"]


def stored(url, model, folder, **options):
    """The run of two questions, in the folder if it is there."""
    return searched(connected(url, model, **options), QUESTIONS, alpha=0.2, out=folder)


def asked_questions(requests):
    """Prompts of completions that were asked, but for those of the probe."""
    completions = [body for body in requests if isinstance(body, dict)]
    return {tuple(body["prompt"]) for body in completions if "cache_prompt" not in body}


def off_by(nats, seed=0):
    """Log-probabilities that are all off, by as much as a quantization may change them."""

    def sampler(values, body):
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], len(values))
        return (values + nats * torch.from_numpy(signs)).log_softmax(-1)

    return {"sampler": sampler}


def named(name):
    """A server whose model has this name."""
    return {"name": name, "pages": {"/v1/models": listed_models(id=name, root=name)}}


def vllm(**fields):
    """A server that describes its model as vLLM does."""
    return {"pages": {"/v1/models": listed_models(**fields)}}


def llama_cpp(**fields):
    """A server that describes its model as llama.cpp does."""
    return {"pages": {"/props": props(**fields)}}


NUMBER, OTHER_NUMBER, WORD = ({"host": host} for host in ("127.0.0.1", "127.0.0.2", "localhost"))
# Two servers, and the first difference in the parameters of their runs; none if the folders differ.
PAIRS = {
    "name": (named("served/facts"), named("other/facts"), ""),
    "host, two numbers": (NUMBER, OTHER_NUMBER, "host='127.0.0.1', now server.host='127.0.0.2';"),
    "host, a number and a name": (NUMBER, WORD, "host='127.0.0.1', now server.host='localhost';"),
    "quantization": ({}, off_by(0.02), "probe, whose"),
    "quantization, to two sides": (off_by(0.02, seed=1), off_by(0.02, seed=2), "probe, whose"),
    "template, a space": (
        llama_cpp(),
        llama_cpp(chat_template="{{ messages }} "),
        "description.chat_template=",
    ),
    "context, llama.cpp": (llama_cpp(n_ctx=1024), llama_cpp(n_ctx=2048), "description.n_ctx=1024"),
    "context, not told": (vllm(), vllm(max_model_len=None), "description.max_model_len=2048, now"),
    "root": (vllm(), vllm(root="served/facts-awq"), "description.root="),
    "size": (vllm(meta={"size": 1}), vllm(meta={"size": 2}), "description.meta.size=1, now"),
}


def run_over(model, folder, requests, *, name=NAME, epsilon=0.001, **options):
    """The run that a server makes, or has made, of two questions."""
    with serving(model, requests=requests, **options) as url:
        return stored(url, model, folder, name=name, epsilon=epsilon)


@pytest.mark.parametrize("pair", PAIRS)
def test_two_servers_never_share_a_run(facts_2m, pair, tmp_path):
    first, second, difference = PAIRS[pair]
    run_over(facts_2m, tmp_path, [], **first)
    requests = []
    if difference:
        with pytest.raises(RunError) as caught:
            run_over(facts_2m, tmp_path, requests, **second)
        assert f" has other parameters than requested: server.{difference}" in str(caught.value)
        assert asked_questions(requests) == set()
    else:
        run = run_over(facts_2m, tmp_path, requests, **second)
        assert len(asked_questions(requests)) >= len(QUESTIONS)  # nothing was taken from a folder
        assert run.info.parameters["server"]["model"] == second["name"]


@pytest.mark.parametrize("kind", [vllm, llama_cpp])
def test_a_server_that_was_started_again_on_another_port_is_asked_no_question_again(
    facts_2m, kind, tmp_path
):
    with serving(facts_2m, **kind()) as before:
        first = stored(before, facts_2m, tmp_path)
        requests = []
        with serving(
            facts_2m, requests=requests, **kind()
        ) as after:  # both at once, so on two ports
            second = stored(after, facts_2m, tmp_path)
    assert before != after
    assert asked_questions(requests) == set()
    completions = [body for body in requests if isinstance(body, dict)]
    # The probe requests: one when it is connected, one before the folder is read
    assert len(completions) == 2 * 4
    assert second.questions.equals(first.questions)
    assert second.info == first.info


@pytest.mark.parametrize(("epsilon", "within"), [(0.001, 0.01), (0.05, 0.05)])
def test_a_probe_may_differ_by_a_hundredth_of_a_nat_or_by_a_larger_epsilon(
    facts_2m, epsilon, within
):
    with serving(facts_2m) as url:
        identity = connected(url, facts_2m, epsilon=epsilon).parameters()["server"]
    assert identity["probe"]["within"] == within


MISSING = {
    "404": (404, b"<html>"),
    "500": (500, b"error"),
    "redirect": (307, b"", {"Location": "/login"}),
    "no JSON": (200, b"<html>"),
    "deep": (200, b"[" * 10**5),
    "null": None,
    "texts": {"data": ["a", "b"]},
    "numbers": {"data": 5},
    "two others": {"data": [{"id": "a"}, {"id": "b"}]},
}


@pytest.mark.parametrize("page", MISSING)
def test_a_server_that_does_not_describe_itself_is_known_by_its_name_and_probe(facts_2m, page):
    with serving(facts_2m, pages={"/v1/models": MISSING[page], "/props": MISSING[page]}) as url:
        identity = connected(url, facts_2m).parameters()["server"]
    assert identity["description"] == {}
    assert [len(told) for told in identity["probe"]["log_probs"]] == [20, 20, 20]


ODD = {
    "not a number": (200, b'{"data": [{"id": "served/facts", "meta": {"size": NaN}}]}'),
    "infinite": (200, b'{"data": [{"id": "served/facts", "meta": {"size": -Infinity}}]}'),
    "long": listed_models(root="x" * 10**6),
    "control characters": listed_models(root="\x1b[31m\n"),
    "the key": listed_models(root=f"Bearer {KEY}"),
}


@pytest.mark.parametrize("page", ODD)
def test_odd_descriptions_are_stored_short_and_without_the_key(
    facts_2m, page, tmp_path, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(facts_2m, pages={"/v1/models": ODD[page]}) as url:
        stored(url, facts_2m, tmp_path)
        stored(url, facts_2m, tmp_path)
    [file] = tmp_path.rglob("run.json")
    assert len(file.read_text()) < 10_000
    assert KEY not in file.read_text()
    with serving(facts_2m) as url, pytest.raises(RunError, match="server\\.description") as caught:
        stored(url, facts_2m, tmp_path)
    assert str(caught.value).isprintable()


def test_a_description_that_comes_late_is_waited_for(facts_2m):
    late = iter([(503, b"Loading model"), (502, b"")])
    pages = {"/v1/models": lambda _: next(late, listed_models())}
    with serving(facts_2m, pages=pages) as url:
        identity = connected(url, facts_2m).parameters()["server"]
    assert identity["description"]["max_model_len"] == 2048
    assert list(late) == []


def test_names_are_safe_as_folders(facts_2m):
    names = [
        "meta-llama/Llama-2-7b",
        "smollm2",
        "..",
        ".",
        "/",
        "../../x",
        "a:b|c?",
        "org/facts:1",
        "org/facts-1",
        "x" * 500,
        f"{'x' * 120}/a/facts",
        f"{'x' * 120}/b/facts",
        "\u00e9" * 300,
        "\u00e8" * 300,
    ]
    folders = [server._folder_name(name) for name in names]
    assert folders[:2] == ["meta-llama--Llama-2-7b", "smollm2"]
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert re.fullmatch(r"[\w-][\w.-]{0,99}", folder, re.ASCII)


def cut_after(values, n_tokens, fill=math.nan):
    """Return normalised log-probabilities after a cut; the others are `fill`, not listed if NaN."""
    kept = values.clone()
    kept[n_tokens:] = -math.inf
    kept = kept.log_softmax(-1)
    kept[n_tokens:] = fill
    return kept


def scaled(values, temperature):
    """Log-probabilities at a temperature; at 0 the first token has the probability 1."""
    return (values / temperature).log_softmax(-1) if temperature else cut_after(values, 1)


def nucleus(values, top_p):
    """The likeliest tokens that have this probability together, normalised."""
    return cut_after(values, int((values.exp().cumsum(0) < top_p).sum()) + 1)


def least_share(values, min_p):
    """The tokens that are at least this share of the likeliest one, normalised."""
    return cut_after(values, int((values >= values[0] + math.log(min_p)).sum()))


PROCESSED = {
    "one token": lambda values, body: cut_after(values, 1),
    "one token, others at -inf": lambda values, body: cut_after(values, 1, -math.inf),
    "one token, others at the lowest float": lambda values, body: cut_after(values, 1, -3.4e38),
    "temperature 0 alone": lambda values, body: (
        values if body["temperature"] else cut_after(values, 1)
    ),
    "any temperature": lambda values, body: scaled(values, body["temperature"]),
    "temperature 0 as 0.001": lambda values, body: scaled(values, max(body["temperature"], 0.001)),
    "temperature 0 as 1": lambda values, body: scaled(values, body["temperature"] or 1.0),
    "top_p of the request": lambda values, body: nucleus(values, body.get("top_p", 1.0)),
    "top_k of 20": lambda values, body: cut_after(values, 20),
    "top_k of 40, others at -inf": lambda values, body: cut_after(values, 40, -math.inf),
    "top_p of 0.5": lambda values, body: nucleus(values, 0.5),
    "min_p of 0.05": lambda values, body: least_share(values, 0.05),
}


# A list of 20 does not show that the server's own setting has cut it after more than 20 tokens.
UNSEEN_IN_20 = ("top_k of 40, others at -inf",)
CASES = [
    (kind, top) for kind in PROCESSED for top in (20, 1000) if top > 20 or kind not in UNSEEN_IN_20
]


@pytest.mark.parametrize(("kind", "top"), CASES)
def test_a_server_that_lists_processed_probabilities_is_refused(facts_2m, kind, top):
    with (
        serving(facts_2m, sampler=PROCESSED[kind]) as url,
        pytest.raises(RunError, match="does not list the model's own probabilities: "),
    ):
        connected(url, facts_2m, top=top)


@pytest.mark.parametrize("most", [10**6, 20, 1])
@pytest.mark.parametrize("name", ["facts-2m", "tiny"])
def test_a_server_that_lists_the_models_own_probabilities_is_not(name, most, tiny_model, facts_2m):
    model = tiny_model("llama") if name == "tiny" else facts_2m
    for top in (1, 5, 20, 1000, 10**5):
        with serving(model, most=most) as url:
            assert connected(url, model, top=top).parameters()["server"]["model"] == NAME


@pytest.mark.parametrize("nats", [0.01, 0.5])
def test_noise_is_not_taken_for_a_temperature_and_leaves_all_undecided(facts_2m, some, truth, nats):
    rng = np.random.default_rng(0)

    def sampler(values, body):
        drawn = (values + nats * torch.from_numpy(rng.normal(size=len(values)))).log_softmax(-1)
        return drawn.sort(descending=True).values

    with serving(facts_2m, sampler=sampler) as url:
        for _ in range(3):
            served = connected(url, facts_2m, top=300)
        run = searched(served, some)
    assert false_certificates(run, truth) == []
    assert (run.questions["status"] == "undecided").all()
    # Not without end: each token of the greedy answer twice at most.
    assert run.info.cost.model_calls <= 2 * 32 * len(some)


@pytest.fixture
def waits(monkeypatch):
    """The seconds that are waited between tries, without waiting."""
    seconds = []

    monkeypatch.setattr(server_client.tenacity.nap.time, "sleep", seconds.append)
    return seconds


NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


def at_date(seconds, zone="GMT"):
    return format_datetime(NOW + timedelta(seconds=seconds), usegmt=True).replace("GMT", zone)


WAITS = {
    "seconds": (429, "8", 8.0),
    "no time": (429, "0", 0.0),
    "a part of a second": (429, "0.5", 0.5),
    "as long as may be": (429, "120", 120.0),
    "a date": (503, at_date(30), 30.0),
    "a date that is over": (503, at_date(-30), 0.0),
    "a date of another zone": (503, at_date(3630, "+0100"), 30.0),
    "a date without a zone": (503, at_date(30, ""), 30.0),
    "an error of the server": (500, "8", 0.25),
    "a word": (503, "soon", 0.25),
    "a negative number": (503, "-8", 0.25),
    "a long number": (503, "9" * 400, 0.25),
    "nothing": (429, "", 0.25),
    "more than the limit": (429, "121", None),
    "a date beyond the limit": (503, at_date(7200), None),
}


@pytest.mark.parametrize("kind", WAITS)
def test_a_server_is_asked_again_when_it_says_or_soon_or_not_at_all(
    facts_2m, waits, kind, monkeypatch, caplog
):
    monkeypatch.setattr(server_client, "_BACKOFF", lambda state: 0.25 * state.attempt_number)
    status, value, seconds = WAITS[kind]
    headers = {"Retry-After": value, "Date": at_date(0)}
    refusal = (status, KEY.encode(), headers)
    is_long = seconds is None
    ends = pytest.raises(RunError, match="longest_wait=120 s") if is_long else nullcontext()
    with serving(facts_2m, lambda reply, n, prompt: reply if n else refusal) as url, ends:
        connected(url, facts_2m)
    assert waits == ([] if is_long else [seconds])
    logged = [record for record in caplog.records if record.name == server_client.__name__]
    assert len(logged) == len(waits)
    assert KEY not in caplog.text


@pytest.mark.parametrize("part", ["weights", "description"])
@pytest.mark.parametrize("is_stored", [True, False])
def test_answers_of_a_server_that_changed_meanwhile_are_not_stored(
    facts_2m, tmp_path, part, is_stored, monkeypatch
):
    monkeypatch.setattr(sys.modules["pro_lib.generation.run_generation"], "QUESTIONS_PER_PART", 2)
    questions = load_questions("world-facts", split="validation", limit=5)
    prompts = [tuple(facts_2m.encode(prompt)) for prompt in questions.prompts()]
    pages = {"/v1/models": listed_models()}
    swaps = []

    def sampler(values, body):
        if tuple(body["prompt"]) == prompts[3]:  # the last question of the second part
            swaps.append(body)
            if part == "description":
                pages["/v1/models"] = listed_models(root="served/another")
        is_swapped = swaps and part == "weights"
        return off_by(0.1)["sampler"](values, body) if is_swapped else values

    out = tmp_path if is_stored else None
    with serving(facts_2m, sampler=sampler, pages=pages) as url:
        served = connected(url, facts_2m, top=300)
        with pytest.raises(RunError, match=r"changed while it answered: server\."):
            searched(served, questions, alpha=0.2, out=out)
    assert swaps
    if is_stored:
        [folder] = tmp_path.glob("*/*/*")
        assert not list(folder.glob("part-00001*"))
        with pytest.warns(UserWarning, match="of the 5 questions planned"):
            run = read_run(folder)
        assert run.questions["question"].tolist() == questions.table["question"].tolist()[:2]
