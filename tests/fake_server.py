"""Run a server of log-probabilities on this machine that can lie, fail and describe itself."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch

from pro_lib import generate
from pro_lib.generation import server, server_client

LISTINGS = {}
NAME = "served/facts"
server_client._BACKOFF = lambda state: 0.0  # no waiting between tries


def listed_models(**fields):
    """Return the page /v1/models of vLLM, with another time and permission after each start."""
    permission = [{"id": f"modelperm-{time.time_ns()}", "object": "model_permission"}]
    entry = {
        "id": NAME,
        "object": "model",
        "created": time.time_ns(),
        "owned_by": "vllm",
        "root": NAME,
    }
    entry |= {"parent": None, "max_model_len": 2048, "permission": permission}
    return {"object": "list", "data": [entry | fields]}


def props(n_ctx=1024, **fields):
    """Return the page /props of llama.cpp, which contains the state of a request."""
    settings = {"id": time.time_ns(), "n_ctx": n_ctx, "is_processing": True, "params": {"seed": 7}}
    description = {
        "model_path": "/models/facts.gguf",
        "chat_template": "{{ messages }}",
        "build_info": "b11549",
    }
    description |= {"bos_token": "<s>", "eos_token": "</s>", "total_slots": 1}
    return {"default_generation_settings": settings, **description, **fields}


@contextmanager
def answering(post, get=None, host="127.0.0.1"):
    """Yield the address of a server.

    `post(path, headers, body)` and `get(path)` return a JSON object, or an HTTP status and the
    object or bytes, with headers as an optional third item. The bytes `dead` end the connection.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            """Say nothing."""

        def do_GET(self):
            self.answer(get(self.path))

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(post(self.path, dict(self.headers), body))

        def answer(self, reply):
            status, content, *more = reply if isinstance(reply, tuple) else (200, reply)
            if content == b"dead":
                self.close_connection = True
                return
            if not isinstance(content, bytes):
                content = json.dumps(content).encode()
            headers = {"Date": self.date_time_string()} | (more[0] if more else {})
            headers["Content-Length"] = len(content) + 100 * (content == b'{"half')
            headers["Connection"] = "close"
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    address = "127.0.0.1" if host == "localhost" else host
    http = ThreadingHTTPServer((address, 0), Handler)
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://{host}:{http.server_port}/v1"
    finally:
        http.shutdown()
        http.server_close()


@contextmanager
def serving(  # noqa: PLR0913  # each option is one behaviour of a server
    model,
    lie=None,
    *,
    most=10**6,
    ids=True,
    sampler=None,
    pages=None,
    requests=None,
    host="127.0.0.1",
):
    """Yield the address of a server of this model.

    Args:
        model: the model that is served.
        lie: `lie(reply, n, prompt)` returns another reply to request n of a completion (from 0
            on), as `answering` describes it.
        most: the most log-probabilities that are listed.
        ids: whether lists are those of vLLM, else of llama.cpp.
        sampler: `sampler(log_probs, body)` returns the listed values for log-probabilities in
            descending order; tokens with NaN are left out.
        pages: answers, or functions of the path, by path; by default /v1/models is that of vLLM.
            Other pages have the status 404.
        requests: a list to which the body of each completion and the path of each page are added.
        host: the name of this machine in the address.
    """
    n_requests = iter(range(10**9))
    pages = {"/v1/models": listed_models()} if pages is None else pages
    requests = [] if requests is None else requests

    lock = threading.Lock()

    def get(path):
        requests.append(path)
        page = pages.get(path, (404, b"<html>not found</html>"))
        return page(path) if callable(page) else page

    def post(path, headers, body):
        requests.append(body)
        with lock:
            reply = listing(model, body, most, ids, sampler)
            return lie(reply, next(n_requests), body["prompt"]) if lie else reply

    with answering(post, get, host) as url:
        yield url


@torch.inference_mode()
def listing(model, body, most, ids, sampler):
    """Return the reply of vLLM, or of llama.cpp if `ids` is false.

    The network evaluates each prompt once.
    """
    prompt = body["prompt"]
    key = (model.network, *prompt)
    if key not in LISTINGS:
        log_probs = model.network(torch.tensor([prompt])).logits[0].double().log_softmax(-1)
        prompt_tokens = torch.tensor(prompt[1:])[:, None]
        prompt_log_probs = log_probs[:-1].gather(1, prompt_tokens).flatten().tolist()
        values, tokens = log_probs[-1].sort(descending=True)
        LISTINGS[key] = (values, tokens, [None, *prompt_log_probs, -0.5])
    values, tokens, echoed = LISTINGS[key]
    if sampler:
        values = sampler(values, body)
        is_listed = ~values.isnan()
        tokens = tokens[is_listed]
        values = values[is_listed]
    n = min(body["logprobs"], most)
    pairs = [*zip(tokens[:n].tolist(), values[:n].tolist(), strict=True)]
    # At a temperature above 0 the generated token is one that the list puts far down, or last.
    is_sampled = body["temperature"] > 0
    generated = int(tokens[min(9, len(tokens) - 1)]) if is_sampled else pairs[0][0]
    listed = {
        "content": [{"top_logprobs": [{"id": token, "logprob": value} for token, value in pairs]}]
    }
    if ids:
        listed = {
            "top_logprobs": [{f"token_id:{token}": value for token, value in pairs}],
            "token_logprobs": echoed,
        }
    text = model.tokenizer.decode([generated], skip_special_tokens=True)
    return {
        "choices": [{"text": text, "logprobs": listed}],
        "usage": {"prompt_tokens": len(prompt)},
    }


def connected(url, model, *, name=NAME, **options):
    """Return the model of a server."""
    return server.connect_server(url, model=name, tokenizer=model.tokenizer, **options)


def searched(model, questions, alpha=0.05, **options):
    """Return the run of an exact search."""
    return generate(model, questions, strategy="threshold", search_alpha=alpha, **options)


@contextmanager
def replying(*replies):
    """Yield the address of a server that sends these replies in turn, and the requests it got."""
    requests = []

    def post(*request):
        requests.append(request)
        return replies[min(len(requests), len(replies)) - 1]

    with answering(post) as url:
        yield url, requests
