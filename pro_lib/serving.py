"""An answerer over HTTP: `POST /` with `{"question": "..."}`, `GET /` for the promise; knows no model and no score."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from pydantic_core import from_json

from pro_lib.answering import Answerer
from pro_lib.checks import Name, checked, extra, one_line

with extra("serve", "serving"):
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route


@checked
class _Question:
    question: Name


def application(answerer: Answerer, *, length: int = 4000, waiting: int = 8, seconds: float = 120.0) -> Starlette:
    """Return the application, which puts one question at a time to the model; an error is `{"error": sentence}`.

    A body has at most `length` bytes; at most `waiting` questions are asked or wait, each at most `seconds`.
    """
    turn = asyncio.Lock()
    tasks: set[asyncio.Task] = set()

    async def asked(question: str) -> JSONResponse:
        async with turn:
            return JSONResponse(asdict(await run_in_threadpool(answerer, question)))

    async def ask(request: Request) -> JSONResponse:
        if int(request.headers.get("Content-Length") or length + 1) > length:
            return _refused(413, f"a question takes at most {length} bytes, and says how many")
        if len(tasks) >= waiting:
            return _refused(503, f"{waiting} questions wait already")
        try:
            task = asyncio.ensure_future(asked(_Question(**from_json(await request.body())).question))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            return await asyncio.wait_for(asyncio.shield(task), seconds)
        except TimeoutError:
            return _refused(504, f"no answer within {seconds:g} seconds")
        except (ValueError, TypeError, MemoryError) as error:
            return _refused(422, error if isinstance(error, ValueError) else 'send {"question": "..."}')

    async def promise(_: Request) -> JSONResponse:
        return JSONResponse({"promise": answerer.promise.sentence()})

    return Starlette(routes=[Route("/", ask, methods=["POST"]), Route("/", promise)])


def _refused(status: int, message: object) -> JSONResponse:
    return JSONResponse({"error": one_line(message)}, status)
