"""Ask a model a question with the choices (A) and (B), and keep its replies in a file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from tqdm.auto import tqdm

from pro_lib.common.files import parse, sha256
from pro_lib.common.line_file import append_lines, read_lines
from pro_lib.common.validation import Format

YES_AND_NO = (" (A)", " (B)")  # their letters, after the end of a prompt
_AT_ONCE = 32  # prompts whose replies are stored together


class ChoiceModel(Protocol):
    """A model, or a client of a server, that returns the probabilities of given continuations.

    Attributes:
        name: the name of the model in tables and files.
        fingerprint: a digest of the model's files, or a description of its server.
        reply_settings: optional. Further values that decide the replies, as JSON can store them,
            such as the precision of the weights or the address of the server. Two models with the
            same name, fingerprint and settings are taken for the same model.
        prompts_at_once: optional, 32 if it is missing. The number of prompts that are sent before
            their replies are stored. It is small for a server, so that an error loses few replies.
    """

    @property
    def name(self) -> str:
        """The name of the model in tables and files."""

    @property
    def fingerprint(self) -> str:
        """The digest of the model's files, or a description of its server."""

    def choice_log_probs(
        self, prompts: Sequence[str], choices: Sequence[str]
    ) -> NDArray[np.float64]:
        """Return log P(choice | prompt) in nats, (n, C) for n prompts and C choices.

        A value that is not known is NaN, such as one that a server does not list.
        """


class _Reply(Format):
    """A line of the file of replies. An unknown log-probability is null."""

    model: str
    fingerprint: str
    settings: dict[str, Any] = Field(default_factory=dict)
    prompt_sha256: str
    log_probs: Annotated[list[float | None], Field(min_length=2, max_length=2)]


def yes_no_log_probs(
    model: ChoiceModel,
    prompts: Sequence[str],
    *,
    cache: str | Path | None = None,
    progress: bool = False,
    confirm: Callable[[list[str]], None] | None = None,
) -> NDArray[np.float64]:
    """Return the log-probabilities (n, 2) of yes and no in nats, from the file or from the model.

    Equal prompts are sent to the model once. Replies are stored after every batch, so an
    interrupted call continues where it stopped. A reply without any value is not stored. If only
    one value is known, and it is more than one half, the other choice gets the rest.

    Args:
        model: the model.
        prompts: n prompts that end before the choice.
        cache: an append-only file, which is created if it does not exist. None stores nothing.
        progress: show a progress bar.
        confirm: called with the prompts that will be sent; an error that it raises sends none.

    Raises:
        RunError: the file cannot be read or written, or a line is not a stored reply.
    """
    identity: dict[str, Any] = {}
    replies: dict[str, list[float | None]] = {}
    if cache is not None:
        settings = getattr(model, "reply_settings", {})
        identity = {"model": model.name, "fingerprint": model.fingerprint, "settings": settings}
        replies = _stored_replies(identity, cache)
    keys = [sha256("\n".join([*YES_AND_NO, prompt]).encode()) for prompt in prompts]
    missing = {key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in replies}
    if confirm is not None:
        confirm(list(missing.values()))
    at_once = getattr(model, "prompts_at_once", _AT_ONCE)
    with tqdm(total=len(missing), disable=not progress, unit="prompt") as bar:
        for start in range(0, len(missing), at_once):
            batch = list(missing)[start : start + at_once]
            log_probs = model.choice_log_probs([missing[key] for key in batch], YES_AND_NO)
            lines = []
            for key, row in zip(batch, np.asarray(log_probs, dtype=np.float64), strict=True):
                replies[key] = [None if np.isnan(value) else float(value) for value in row]
                if replies[key] != [None, None]:
                    lines.append(identity | {"prompt_sha256": key, "log_probs": replies[key]})
            if cache is not None:
                append_lines(cache, lines)
            bar.update(len(batch))
    rows = np.array([replies[key] for key in keys], dtype=np.float64)
    return _with_rest(rows.reshape(-1, 2))


def _with_rest(log_probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give a value that is not known the rest, if the other value is more than one half."""
    others = log_probs[:, ::-1]
    is_filled = np.isnan(log_probs) & (others > np.log(0.5))
    rest = np.log1p(-np.exp(others, where=is_filled, out=np.full_like(others, 0.5)))
    return np.where(is_filled, rest, log_probs)


def _stored_replies(identity: dict[str, Any], cache: str | Path) -> dict[str, list[float | None]]:
    """Return the replies of a model in a file, by the digest of the prompt and the choices."""
    replies = {}
    for number, line in enumerate(read_lines(cache), 1):
        reply = parse(_Reply, line, f"{cache}, line {number}")
        if identity.items() <= dict(reply).items():
            replies[reply.prompt_sha256] = reply.log_probs
    return replies
