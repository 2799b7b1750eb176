"""Asking a text-completions server for the most probable next tokens; knows HTTP and the key, no search."""

import asyncio
import html
import json
import os
import random
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from urllib.parse import unquote

import httpx

from pro_lib.endpoint.asking import Asking
from pro_lib.storage import RunError

# Seconds before the first new try, doubled for each further one up to the second number, and at most what is obeyed.
FIRST_WAIT, LONGEST_WAIT, LONGEST_OBEYED = 0.5, 60.0, 3600.0
MOST_BYTES = 2**24
# So many letters of a key in a row are a part of it.
_PIECE = 8


class Client:
    """A server, asked with patience. The API key comes from the environment and goes to this server only."""

    def __init__(self, asking: Asking):
        self.asking, self.url = asking, f"{asking.base_url.rstrip('/')}/completions"
        self._key = os.environ.get(asking.api_key_env or "", "").strip()
        if not (self._key.isascii() and self._key.isprintable()):  # what is no header would be quoted in a complaint
            raise RunError(f"the environment variable {asking.api_key_env} holds no usable key")
        # Compressed, a few bytes could become any number of them.
        headers = {"Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        # No proxy or password of the environment is used, and no redirect followed.
        limits = httpx.Limits(max_connections=asking.concurrency)
        self.http = httpx.AsyncClient(headers=headers, trust_env=False, timeout=None, limits=limits)
        self._turn, self._sent = asyncio.Condition(), {False: 0, True: 0}

    async def complete(self, prompt: str | list[int], named: Sequence[int] = ()) -> object:
        """The JSON that answers a request for one token and the most probable ones in its place.

        Those `named` by their ids stand for the most probable ones; None if the server refuses that. Raises `RunError`
        if it refuses anything else, or gives no whole answer in all tries.
        """
        asking = self.asking
        body = {"model": asking.model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": asking.top}
        if not isinstance(prompt, str):
            body["return_tokens_as_token_ids"] = True
        if named:
            body["logprob_token_ids"] = list(named)
        for attempt in range(asking.retries + 1):
            asked_for = None
            try:
                async with self._apart(bool(named)):
                    response, content = await self._post(body)
                if response.is_success:
                    return json.loads(content)
                asked_for = response.headers.get("Retry-After")
                reason = f"HTTP {response.status_code} {response.reason_phrase}"
            except TimeoutError:
                reason = f"no whole answer within {asking.timeout:g} seconds"
            except (httpx.HTTPError, ValueError, RecursionError) as error:
                reason = str(error) or type(error).__name__
            else:
                if response.status_code != 429 and response.status_code < 500:
                    if named:
                        return None
                    hint = f" (the key is taken from {asking.api_key_env})" if response.status_code == 401 else ""
                    said = self._masked(f"{reason} {content.decode('utf-8', 'replace')}")
                    raise RunError(f"{self.url} refuses the request{hint}: {said}")
            if attempt < asking.retries:
                await asyncio.sleep(waiting(attempt, asked_for))
        raise RunError(
            f"{self.url} gave no answer in {asking.retries + 1} tries; questions in the cache are kept, "
            f"and the same command goes on from there; at last: {self._masked(reason)}"
        )

    def told(self, error: Exception) -> Exception:
        """A complaint without the key, which it may quote from what the server says, in part or spelled otherwise."""
        if not isinstance(error, RunError):
            return error
        said, key = self._masked(str(error)), _letters(self._key)
        pieces = {key[n : n + _PIECE] for n in range(max(1, len(key) - _PIECE + 1))} if len(key) > 3 else ()
        if any(piece in _letters(said) for piece in pieces):
            said = f"{self.url} refuses or fails; what it says holds the key, or part of it, and is not shown"
        return RunError(said)

    def _masked(self, said: str) -> str:
        return said.replace(self._key, "***") if self._key else said

    @asynccontextmanager
    async def _apart(self, naming: bool) -> AsyncIterator[None]:
        """Send requests that name tokens beside none that do not: vLLM may cut the lists of those (its PR 51789)."""
        async with self._turn:
            await self._turn.wait_for(lambda: not self._sent[not naming])
            self._sent[naming] += 1
        try:
            yield
        finally:
            async with self._turn:
                self._sent[naming] -= 1
                self._turn.notify_all()

    async def _post(self, body: dict) -> tuple[httpx.Response, bytes]:
        content = bytearray()
        async with asyncio.timeout(self.asking.timeout), self.http.stream("POST", self.url, json=body) as response:
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise ValueError(f"a response of more than {MOST_BYTES} bytes")
        return response, bytes(content)


def waiting(attempt: int, asked_for: str | None) -> float:
    """Seconds until the next try: twice as long each time, up to a half more or less by chance; or as asked."""
    seconds = min(FIRST_WAIT * 2**attempt, LONGEST_WAIT) * random.uniform(0.5, 1.5)
    try:
        numeric = asked_for is None or asked_for.strip().replace(".", "", 1).isdecimal()
        obeyed = float(asked_for or 0) if numeric else parsedate_to_datetime(asked_for).timestamp() - time.time()
    except ValueError:
        obeyed = 0.0
    return max(seconds, min(obeyed, LONGEST_OBEYED))


def _letters(said: str) -> str:
    """Letters and digits of a text, of whatever JSON, a URL or a page makes of it."""
    plain = re.sub(r"\\u00(..)|\\x(..)", r"%\1\2", said)
    return re.sub("[^a-z0-9]", "", unquote(html.unescape(unquote(plain))).lower())
