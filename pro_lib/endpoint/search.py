"""Exact threshold search asked of a text-completions server, a request per prefix."""

import hashlib
import http.client
import json
import math
import os
import random
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from pro_lib.imports.records import Tables, _is, _json_lines, _list, _listed, _piece
from pro_lib.runs import _ROUNDING
from pro_lib.storage import ANSWER_SCHEMA, LEDGER_SCHEMA, RunError, fcntl, to_pandas

# The exact threshold search, asked of a server: docs/endpoint.md has the formulas.

# How widespread tokenizers spell the end of text.
END_OF_TEXT = (
    "<|endoftext|>",
    "</s>",
    "<eos>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|im_end|>",
    "<end_of_turn>",
    "<|end|>",
)
# Seconds before the first new try, doubled for each further one up to the second number, and at most what is obeyed.
_FIRST_WAIT, _LONGEST_WAIT, _LONGEST_OBEYED = 0.5, 60.0, 3600.0
# Of one distribution no more can add up; rounding is far smaller.
_MASS_ROUNDING = 1e-3
_ANSWER_COLUMNS = pa.schema(
    [*ANSWER_SCHEMA, pa.field("end_log_prob_lower", pa.float64()), pa.field("token_texts", pa.list_(pa.string()))]
)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """The key is for one host: whatever is elsewhere is not asked."""


@dataclass(frozen=True)
class Endpoint:
    """A text-completions server and how patiently it is asked. The API key is read when it is sent, and kept nowhere.

    Raises:
        RunError: `base_url` is no http(s) address, or holds a user, a password or parameters, which would be stored;
            the server refuses, or does not answer properly after `retries` further tries.
    """

    base_url: str
    model: str
    top: int = 20
    retries: int = 6
    timeout: float = 60.0
    api_key_env: str | None = "OPENAI_API_KEY"
    stopped: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or not self.base_url.isprintable():
            raise RunError("base_url must be an address such as http://localhost:8000/v1")
        if parts.username is not None or parts.query or parts.fragment or " " in self.base_url:
            raise RunError("base_url must hold no user, password or parameters; a key comes through api_key_env")

    def complete(self, prompt: str | list[int]) -> dict:
        """The response to a request for one token and the most probable ones in its place."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": self.top}
        if not isinstance(prompt, str):
            body["return_tokens_as_token_ids"] = True
        url, key = f"{self.base_url.rstrip('/')}/completions", self._key()
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        if key:
            request.add_unredirected_header("Authorization", f"Bearer {key}")
        for attempt in range(self.retries + 1):
            asked_for = None
            try:
                with urllib.request.build_opener(_NoRedirect).open(request, timeout=self.timeout) as response:
                    return json.loads(response.read())
            except urllib.error.HTTPError as error:
                with error:
                    reason, asked_for = f"HTTP {error.code}", error.headers.get("Retry-After")
                    if error.code != 429 and error.code < 500:
                        raise RunError(f"{url} refuses the request: {self._refusal(error, key)}") from None
            except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
                reason = type(error).__name__ if isinstance(error, ValueError) else str(error) or type(error).__name__
            if attempt < self.retries and self.stopped.wait(_wait(attempt, asked_for)):
                break
        raise RunError(
            f"{url} gave no answer in {self.retries + 1} tries, at last: {reason}; "
            "questions in the cache are kept, and the same command goes on from there"
        )

    def _key(self) -> str:
        key = os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""
        if not (key.isascii() and key.isprintable()):  # http.client would quote the header in its complaint
            raise RunError(f"the environment variable {self.api_key_env} holds no usable key")
        return key

    def _refusal(self, error: urllib.error.HTTPError, key: str) -> str:
        """What the server says, in a line, and never the key."""
        try:
            said = " ".join(error.read(2000).decode("utf-8", "replace").split())[:500]
        except (OSError, http.client.HTTPException):
            said = ""
        hint = f" (the key is taken from the environment variable {self.api_key_env})" if error.code == 401 else ""
        said = f"HTTP {error.code} {error.reason} {said}".strip()
        return (said.replace(key, "***") if key else said) + hint


def _wait(attempt: int, asked_for: str | None) -> float:
    """Seconds until the next try: twice as long each time, up to a half more or less by chance; or as asked."""
    seconds = min(_FIRST_WAIT * 2**attempt, _LONGEST_WAIT) * random.uniform(0.5, 1.5)
    try:
        numeric = asked_for is None or asked_for.strip().replace(".", "", 1).isdecimal()
        obeyed = float(asked_for or 0) if numeric else parsedate_to_datetime(asked_for).timestamp() - time.time()
    except ValueError:
        obeyed = 0.0
    return max(seconds, min(obeyed, _LONGEST_OBEYED))


class Token(NamedTuple):
    """A next token that the server listed. `id` is negative where only texts are known: it tells answers apart."""

    text: str
    id: int
    log_prob: float


class Vocabulary:
    """How tokens are sent, read and sorted: by their texts, or by their ids where there is a tokenizer.

    `n_stop` is how many tokens end an answer, None if that is not known.
    """

    def __init__(self, stop: Iterable[str], n_stop: int | None, tokenizer: Any):
        self.stop, self.n_stop, self.tokenizer, self.lock = frozenset(stop), n_stop, tokenizer, threading.Lock()
        if tokenizer is not None:
            self.n_stop = sum(self.kind(self._token(token, 0.0)) == "stop" for token in range(len(tokenizer)))

    def kind(self, token: Token) -> str:
        """`stop`, `closing` (text, then a newline), `open`, `broken` (no text that could be sent) or `unknown`."""
        before, newline, _ = token.text.partition("\n")
        if token.text in self.stop or (self.tokenizer is not None and token.id == self.tokenizer.eos_token_id):
            return "stop"
        if newline:
            return "closing" if before.strip() else "stop"
        if self.tokenizer is None and not token.text:
            return "unknown"  # some servers show the end of text so
        part = "\ufffd" in token.text or token.text.startswith("bytes:\\x")
        return "broken" if self.tokenizer is None and part else "open"

    def prompt(self, question: str, tokens: Sequence[Token]) -> str | list[int]:
        """What is sent for a prompt and the tokens after it."""
        if self.tokenizer is None:
            return question + "".join(token.text for token in tokens)
        with self.lock:  # a fast tokenizer that two threads use at once may refuse
            ids = self.tokenizer(question)["input_ids"]
        ids = ids[:-1] if len(ids) > 1 and ids[-1] == self.tokenizer.eos_token_id else ids
        return [*ids, *(token.id for token in tokens)]

    def text(self, tokens: Sequence[Token]) -> str:
        """The answer's text: up to its first newline, without special tokens or surrounding white space."""
        if self.tokenizer is None:
            text = "".join(token.text for token in tokens)
        else:
            ids = [token.id for token in tokens]
            text = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text.lstrip().partition("\n")[0].strip()

    def read(self, response: object, where: str, numbers: dict[str, int]) -> list[Token]:
        """The tokens that a response lists for the place after the prompt, the most probable first."""
        choices = _listed(_is(dict, response, where).get("choices"), f"{where}: choices")
        choice = _is(dict, choices[0] if choices else None, f"{where}: choice 0")
        chosen, entries = _entries(choice, where)
        values = _list([value for _, _, value in entries], (int, float), f"{where}: logprobs")
        if max(values, default=0.0) > _ROUNDING or sum(map(math.exp, values)) > 1 + _MASS_ROUNDING:
            raise RunError(f"{where}: the log-probabilities are not those of one distribution")
        if self.tokenizer is not None:
            ids = [_token_id(number, piece, where) for number, piece, _ in entries]
            tokens = [self._token(*pair) for pair in zip(ids, values, strict=True)]
        else:
            _check_texts(choice, chosen, [piece for _, piece, _ in entries], where)
            # Tokens of one text are one event: whatever is sent afterwards is the same.
            merged: dict[str, float] = {}
            for (_, piece, _), value in zip(entries, values, strict=True):
                merged[piece] = float(np.logaddexp(merged.get(piece, -math.inf), value))
            tokens = [Token(text, -2 - numbers.setdefault(text, len(numbers)), v) for text, v in merged.items()]
        return sorted((token._replace(log_prob=min(token.log_prob, 0.0)) for token in tokens), key=lambda t: -t[2])

    def _token(self, number: int, value: float) -> Token:
        return Token(self.tokenizer.decode([number], clean_up_tokenization_spaces=False), number, float(value))


def _entries(choice: dict, where: str) -> tuple[str, list[tuple[object, str, Any]]]:
    """The token chosen, and the (id, text, log-probability) listed; both layouts of `logprobs` are known."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict) or not {"content", "top_logprobs"} & logprobs.keys():
        raise RunError(f"{where}: logprobs are missing; the server must return those of the most probable tokens")
    if "content" in logprobs:
        steps = _listed(logprobs["content"] or [], f"{where}: logprobs.content")
        step = _is(dict, steps[0], f"{where}: token 0") if steps else {}
        listed = [_is(dict, entry, where) for entry in _listed(step.get("top_logprobs") or [], where)]
        return _text(step, where), [(e.get("id"), _text(e, where), e.get("logprob")) for e in listed]
    steps = _listed(logprobs["top_logprobs"] or [], f"{where}: top_logprobs")
    listed = _is(dict, steps[0], f"{where}: top_logprobs") if steps and steps[0] is not None else {}
    chosen = _listed(logprobs.get("tokens") or [""], f"{where}: tokens")[0]
    return _text({"token": chosen}, where), [(None, *item) for item in listed.items()]


def _text(entry: dict, where: str) -> str:
    token = _is(str, entry.get("token", ""), f"{where}: the text of a token")
    return _piece(token, entry.get("bytes") or None).decode("utf-8", "replace")


def _token_id(number: object, text: str, where: str) -> int:
    spelled = text.removeprefix("token_id:")
    number = int(spelled) if spelled != text and spelled.isdecimal() and len(spelled) < 10 else number
    if type(number) is not int or not 0 <= number < 2**31:
        raise RunError(f"{where}: the server returns no token ids; leave tokenizer out, so that texts are sent")
    return number


def _check_texts(choice: dict, chosen: str, texts: list[str], where: str) -> None:
    """Refuse texts of tokens that lost something, often a space: put together they would be another prompt."""
    written = choice.get("text")
    for other in (written, chosen):
        if isinstance(other, str) and other and "\ufffd" not in other and texts and other not in texts:
            raise RunError(
                f"{where}: the server writes {other!r} but lists {texts[0]!r}: the texts of its tokens "
                "cannot be put together; give tokenizer=, so that token ids are sent"
            )


@dataclass(frozen=True)
class _Next:
    """What is known of the events after a prefix: probabilities, and the tokens listed that do not stop.

    `ending` belongs to the stop tokens listed, `hidden_ending` at most to those that are not, `rest` to all tokens
    not listed, none of which has more than `largest`.
    """

    ending: float
    hidden_ending: float
    rest: float
    largest: float
    tokens: tuple[Token, ...]
    best: Token | None

    @classmethod
    def of(cls, listed: list[Token], vocabulary: Vocabulary, top: int, where: str) -> "_Next":
        probs, kinds = [math.exp(token.log_prob) for token in listed], [vocabulary.kind(token) for token in listed]
        of_kind = {kind: [p for p, k in zip(probs, kinds, strict=True) if k == kind] for kind in ("stop", "unknown")}
        rest = max(0.0, 1.0 - sum(probs) + sum(of_kind["unknown"]))
        # Fewer than asked for: two tokens may have been written as one, and one of them may be likely.
        largest = min(rest, max([probs[top - 1] if len(listed) >= top else rest, *of_kind["unknown"]]))
        n_stop, n_listed = vocabulary.n_stop, len(of_kind["stop"])
        if n_stop is not None and n_listed > n_stop:
            raise RunError(f"{where}: {n_listed} stop tokens are listed, but n_stop_tokens={n_stop}")
        hidden = rest if n_stop is None else min(rest, (n_stop - n_listed) * largest)
        others = tuple(t for t, kind in zip(listed, kinds, strict=True) if kind not in of_kind)
        return cls(sum(of_kind["stop"]), hidden, rest, largest, others, listed[0] if listed else None)

    def least(self, log_prob: float = 0.0, log_alpha: float = -math.inf) -> float:
        """The least that the ending and what is not listed add to `Σ -x log max(x, α)`, the prefix having `log_prob`.

        How much of the rest is the ending is not known; the sum is concave in it, so the least is at one end.
        """
        log_largest = log_prob + math.log(self.largest) if self.largest > 0 else 0.0
        return min(
            _weighed(log_prob + _log(self.ending + hidden), log_alpha)
            - math.exp(log_prob) * (self.rest - hidden) * max(log_largest, log_alpha)
            for hidden in (0.0, self.hidden_ending)
        )


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _weighed(log_prob: float, log_alpha: float = -math.inf) -> float:
    return -math.exp(log_prob) * max(log_prob, log_alpha) if log_prob > -math.inf else 0.0


class _Prefix(NamedTuple):
    tokens: tuple[Token, ...]
    log_prob: float
    parent: int
    greedy: bool


@dataclass(frozen=True)
class Asking:
    """What decides the answers of a search, beside server, model and prompts; `endpoint.from_endpoint` says more."""

    search_alpha: float = 0.05
    max_new_tokens: int = 32
    budget: int | None = None
    epsilon: float = 0.0
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        in_range = {
            "search_alpha": 0 < self.search_alpha <= 1,
            "max_new_tokens": type(self.max_new_tokens) is int and self.max_new_tokens > 0,
            "budget": self.budget is None or (type(self.budget) is int and self.budget > 0),
            "epsilon": 0 <= self.epsilon < math.inf,
            "tolerance": 0 <= self.tolerance < math.inf,
        }
        for name in (name for name, right in in_range.items() if not right):
            raise ValueError(f"{name}={getattr(self, name)!r} is out of its range")


class _EndpointSearch:
    """The search of one question, a request per prefix: the greedy path first, then the most probable prefix."""

    def __init__(self, ask: Callable[[Sequence[Token]], _Next], vocabulary: Vocabulary, asking: Asking):
        self.ask, self.vocabulary, self.asking = ask, vocabulary, asking
        self.log_alpha = math.log(asking.search_alpha)
        self.limit = self.log_alpha - asking.epsilon
        self.nodes: list[_Prefix] = []
        self.entropies: list[float] = []
        self.frontier = [_Prefix((), 0.0, -1, True)]
        self.answers: list[dict] = []
        self.mass = dict.fromkeys(("found", "small_endings", "pruned", "length_cut", "budget_cut"), 0.0)
        self.floor = self.width = 0.0
        self.why: set[str] = set()

    def run(self) -> tuple[list[dict], dict]:
        """The answers, and the ledger (columns as in `storage.LEDGER_SCHEMA`)."""
        while self.frontier and len(self.nodes) < (self.asking.budget or math.inf):
            first = max(self.frontier, key=lambda prefix: (prefix.greedy, prefix.log_prob))
            self.frontier.remove(first)
            self._expand(first)
        for prefix in self.frontier:
            self._leave(prefix, "budget_cut", "pruned", "budget")
        if self.width > self.asking.tolerance:
            self.why.add("width")
        self.answers.sort(key=lambda row: (not row["finished"], -row["log_prob"] - row["end_log_prob"]))
        return self.answers, self._ledger()

    def _expand(self, prefix: _Prefix) -> None:
        step, place = self.ask(prefix.tokens), len(self.nodes)
        self.nodes.append(prefix)
        self.entropies.append(sum(_weighed(token.log_prob) for token in step.tokens) + step.least())
        self.floor += step.least(prefix.log_prob, self.log_alpha)
        last = len(prefix.tokens) + 1 == self.asking.max_new_tokens
        rest = math.exp(prefix.log_prob) * (step.rest - self._end(prefix, step))
        unseen = step.largest > 0 and prefix.log_prob + math.log(step.largest) >= self.limit
        self.mass["length_cut" if last else "budget_cut" if unseen else "pruned"] += rest
        if unseen:
            self.why.add("unseen")
        for token in step.tokens:
            greedy = prefix.greedy and token is step.best
            child = _Prefix((*prefix.tokens, token), prefix.log_prob + token.log_prob, place, greedy)
            kind = self.vocabulary.kind(token)
            if kind == "closing":
                self._close(child)
            elif last:
                self._leave(child, "length_cut", "length_cut", "length")
            elif kind == "broken":
                self._leave(child, "budget_cut", "pruned", "broken")
            elif child.log_prob >= self.limit or greedy:
                self.frontier.append(child)
            else:
                self._leave(child, "budget_cut", "pruned", "")

    def _end(self, prefix: _Prefix, step: _Next) -> float:
        """The event that the answer ends here; how much of what is not listed is counted to it.

        A found answer gets all that may be its own: PRO falls as its probabilities rise, and stays a lower bound.
        """
        mass = math.exp(prefix.log_prob)
        lower, upper = (prefix.log_prob + _log(step.ending + hidden) for hidden in (0.0, step.hidden_ending))
        found = lower >= self.log_alpha
        ends = prefix.greedy and step.best is not None and self.vocabulary.kind(step.best) == "stop"
        if upper >= self.limit and lower < self.log_alpha + self.asking.epsilon:
            self.why.add("near" if lower >= self.limit else "ending")
        if found or ends:
            self.width = max(self.width, mass * step.hidden_ending)
        hidden = step.hidden_ending if found else 0.0
        if found or ends or (upper >= self.limit and step.ending > 0):
            self._keep(prefix, min(0.0, _log(step.ending + hidden)), _log(step.ending))
        self.mass["found" if found else "small_endings"] += mass * (step.ending + hidden)
        return hidden

    def _close(self, child: _Prefix) -> None:
        found = child.log_prob >= self.log_alpha
        if self.asking.epsilon and abs(child.log_prob - self.log_alpha) <= self.asking.epsilon:
            self.why.add("near")
        if child.log_prob >= self.limit or child.greedy:
            self._keep(child, 0.0, 0.0)
        self.mass["found" if found else "small_endings"] += math.exp(child.log_prob)
        self.floor += _weighed(child.log_prob, self.log_alpha)

    def _leave(self, child: _Prefix, above: str, below: str, why: str) -> None:
        """A prefix that is not expanded: its mass, and why the question is undecided if it reaches α."""
        is_open = child.log_prob >= self.limit
        self.mass[above if is_open else below] += math.exp(child.log_prob)
        self.floor += _weighed(child.log_prob, self.log_alpha)
        if is_open:
            self.why.add(why)
        if child.greedy or (is_open and why == "length"):
            self._keep(child, 0.0, 0.0, finished=False)

    def _keep(self, prefix: _Prefix, end: float, lower: float, *, finished: bool = True) -> None:
        self.answers.append(
            {
                "text": self.vocabulary.text(prefix.tokens),
                "token_ids": [token.id for token in prefix.tokens],
                "token_log_probs": [token.log_prob for token in prefix.tokens],
                "log_prob": prefix.log_prob,
                "end_log_prob": end,
                "finished": finished,
                "end_log_prob_lower": lower,
                "token_texts": [token.text for token in prefix.tokens],
            }
        )

    def _status(self) -> tuple[str, str]:
        asking = self.asking
        sentences = {
            "length": f"a prefix at or above α is still open at {asking.max_new_tokens} tokens",
            "budget": f"the budget of {asking.budget} requests was spent with a prefix at or above α unexpanded",
            "unseen": "tokens that the server did not list may reach α",
            "broken": "a token at or above α is no text of its own and cannot be sent",
            "ending": "an answer reaches α or not, depending on stop tokens that the server did not list",
            "width": f"stop tokens that the server did not list may add {self.width:.2g} to an answer's probability",
            "near": f"an answer lies within {asking.epsilon:.3g} nats of α",
        }
        if self.why:
            return "undecided", "; ".join(text for name, text in sentences.items() if name in self.why)
        return ("certified", "") if self.mass["found"] > 0 else ("fallback", "no answer reaches α")

    def _ledger(self) -> dict:
        status, why = self._status()
        depths = [len(prefix.tokens) for prefix in self.nodes]
        off = [row["end_log_prob"] - row["end_log_prob_lower"] for row in self.answers]
        bound = sum(math.exp(v.log_prob) * entropy for v, entropy in zip(self.nodes, self.entropies, strict=True))
        return {
            "status": status,
            "why": why,
            "search_alpha": self.asking.search_alpha,
            "epsilon": self.asking.epsilon + max(off, default=0.0),
            **{f"{name}_mass": mass for name, mass in self.mass.items()},
            "expanded_prefixes": len(depths),
            "depth": max(depths),
            "live_width": max(map(depths.count, depths)),
            "token_forwards": len(depths) - 1,
            "alpha_floor": self.floor,
            "tree_bound": bound,
            "upper_bound": None,
            "tree_parents": [v.parent for v in self.nodes],
            "tree_tokens": [v.tokens[-1].id if v.tokens else -1 for v in self.nodes],
            "tree_log_probs": [v.log_prob for v in self.nodes],
            "tree_entropies": self.entropies,
            "tree_greedy": [v.greedy for v in self.nodes],
        }


def ask_endpoint(
    endpoint: Endpoint,
    vocabulary: Vocabulary,
    asking: Asking,
    questions: pd.DataFrame,
    prompts: Sequence[str],
    *,
    cache: Path | None,
    concurrency: int,
    done: Callable[[], object],
) -> list[dict]:
    """Search the questions, several at once; a record per question, in their order, as the cache keeps them.

    Raises:
        RunError: the server failed (the other questions under way are given up), or the cache is another run's, is
            damaged, cannot be written, or is being written by another process.
    """
    rows = list(zip(questions.to_dict("records"), prompts, strict=True))
    with _cache(cache, parameters(endpoint, vocabulary, asking)) as (known, add):
        for row, prompt in rows:
            held = known.get(row["question_id"])
            if held is not None and held["prompt"] != _digest(prompt):
                raise RunError(f"cache {cache} holds question {row['question_id']!r} with another prompt")
        with ThreadPoolExecutor(concurrency) as pool:
            missing = [pair for pair in rows if pair[0]["question_id"] not in known]
            jobs = [pool.submit(_asked, endpoint, vocabulary, asking, *pair) for pair in missing]
            failure = None
            try:
                for job in as_completed(jobs):
                    if job.cancelled():
                        continue
                    if job.exception() is None:
                        add(job.result())
                        done()
                    elif failure is None:
                        failure = job.exception()
                        endpoint.stopped.set()
                        pool.shutdown(wait=False, cancel_futures=True)
            except BaseException:
                endpoint.stopped.set()
                pool.shutdown(cancel_futures=True)
                raise
        if failure is not None:
            raise failure
    return [known[row["question_id"]] for row, _ in rows]


def parameters(endpoint: Endpoint, vocabulary: Vocabulary, asking: Asking) -> dict[str, Any]:
    """What decides the answers, beside the prompts; the server's address is not among it, and no key ever is."""
    how = {"n_stop_tokens": vocabulary.n_stop, "token_ids": vocabulary.tokenizer is not None}
    return {"model": endpoint.model, "top": endpoint.top, "stop": sorted(vocabulary.stop), **how, **asdict(asking)}


def _digest(prompt: str) -> str:
    return hashlib.sha256(prompt.encode()).hexdigest()


def _asked(endpoint: Endpoint, vocabulary: Vocabulary, asking: Asking, row: dict, prompt: str) -> dict:
    started, n_prompt_tokens, numbers = time.perf_counter(), [], {}
    where = f"{endpoint.base_url}, question {row['question_id']!r}"

    def ask(tokens: Sequence[Token]) -> _Next:
        if endpoint.stopped.is_set():
            raise RunError(f"{where}: given up, since another question failed")
        response = endpoint.complete(vocabulary.prompt(prompt, tokens))
        listed = vocabulary.read(response, where, numbers)
        used = response.get("usage")
        counted = used.get("prompt_tokens") if isinstance(used, dict) else None
        n_prompt_tokens.append(counted if type(counted) is int and 0 <= counted < 2**31 else 0)
        return _Next.of(listed, vocabulary, endpoint.top, where)

    answers, ledger = _EndpointSearch(ask, vocabulary, asking).run()
    return {
        **{name: row.get(name) for name in ("question_id", "question", "references", "split")},
        "prompt": _digest(prompt),
        "answers": answers,
        "ledger": {**ledger, "prompt_tokens": n_prompt_tokens[0]},
        "all_prompt_tokens": sum(n_prompt_tokens),
        "seconds": time.perf_counter() - started,
    }


@contextmanager
def _cache(path: Path | None, header: dict) -> Iterator[tuple[dict[str, dict], Callable[[dict], None]]]:
    """The records that a cache holds, by question, and a function that adds one to both, as a whole or not at all."""
    known: dict[str, dict] = {}
    if path is None:
        yield known, lambda record: known.update({record["question_id"]: record})
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+b") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.seek(0)
            n_whole = file.read().rfind(b"\n") + 1
            file.truncate(n_whole)  # a last line without its end was cut by a kill: that question is asked again

            def write(content: dict) -> None:
                file.write(json.dumps(content).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())

            def add(record: dict) -> None:
                write(record)
                known[record["question_id"]] = record

            if n_whole == 0:
                write({"endpoint": header})
            before, records = read_endpoint(path)
            for name in sorted({*before, *header}):
                if before.get(name) != header.get(name):
                    raise RunError(
                        f"cache {path} was made with {name}={before.get(name)!r}, now {name}={header.get(name)!r} is "
                        "asked for; choose another file (cache=), or move this one away"
                    )
            known.update((record["question_id"], record) for record in records)
            yield known, add
    except BlockingIOError:
        raise RunError(f"cache {path} is being written by another process; wait, or choose another file") from None
    except OSError as error:
        raise RunError(f"cache {path} cannot be written: {error.strerror}; what it holds is kept") from error


def read_endpoint(path: Path) -> tuple[dict, list[dict]]:
    """What decided the answers of a search of a server, and its records so far, from its cache.

    Raises:
        RunError: what is wrong, with the file and the line.
    """
    lines = list(_json_lines(path))
    header = lines[0][1].get("endpoint") if lines else None
    for where, record in lines[1:]:
        for name, kind in (("question_id", str), ("prompt", str), ("answers", list), ("ledger", dict)):
            _is(kind, record.get(name), f"{where}: {name}")
    return _is(dict, header, f"{path}, line 1: endpoint"), [record for _, record in lines[1:]]


def endpoint_tables(records: Sequence[dict], asked: pd.DataFrame | None) -> Tables:
    """The answers, and the questions with their ledgers, of records as `ask_endpoint` returns them."""
    rows = [
        {**answer, "question_id": record["question_id"], "rank": rank}
        for record in records
        for rank, answer in enumerate(record["answers"])
    ]
    if asked is None:
        names = ("question_id", "question", "references", "split")
        asked = pd.DataFrame([{name: record.get(name) for name in names} for record in records], columns=names)
    ledgers = pa.Table.from_pylist([record["ledger"] for record in records], schema=LEDGER_SCHEMA)
    answers = to_pandas(pa.Table.from_pylist(rows, schema=_ANSWER_COLUMNS))
    return answers, asked.reset_index(drop=True).join(to_pandas(ledgers))
