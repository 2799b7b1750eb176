"""Ask a model a question with the choices (A) and (B), and keep its replies in a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from pro_lib.common.files import sha256
from pro_lib.common.line_file import append_lines, read_lines
from pro_lib.common.validation import SentenceError

CHOICES = (" (A)", " (B)")  # yes and no, after the end of a prompt
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


def yes_no_log_probs(
    model: ChoiceModel,
    prompts: Sequence[str],
    *,
    cache: str | Path | None = None,
    progress: bool = False,
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

    Raises:
        SentenceError: a line of the file is not a stored reply.
        RunError: the file cannot be read or written.
    """
    replies = {} if cache is None else _stored_replies(model, cache)
    missing = [prompt for prompt in dict.fromkeys(prompts) if _key(prompt) not in replies]
    at_once = getattr(model, "prompts_at_once", _AT_ONCE)
    with tqdm(total=len(missing), disable=not progress, unit="prompt") as bar:
        for start in range(0, len(missing), at_once):
            batch = missing[start : start + at_once]
            log_probs = np.asarray(model.choice_log_probs(batch, CHOICES), dtype=np.float64)
            new = {_key(prompt): row.tolist() for prompt, row in zip(batch, log_probs, strict=True)}
            replies |= new
            if cache is not None:
                append_lines(cache, _lines(model, new))
            bar.update(len(batch))
    return _with_rest(np.array([replies[_key(prompt)] for prompt in prompts]).reshape(-1, 2))


def missing_prompts(model: ChoiceModel, prompts: Sequence[str], cache: str | Path) -> list[str]:
    """Return the different prompts that the model would be asked, because they are not stored."""
    replies = _stored_replies(model, cache)
    return [prompt for prompt in dict.fromkeys(prompts) if _key(prompt) not in replies]


def _with_rest(log_probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give a value that is not known the rest, if the other value is more than one half."""
    others = log_probs[:, ::-1]
    is_filled = np.isnan(log_probs) & (others > np.log(0.5))
    rest = np.log1p(-np.exp(others, where=is_filled, out=np.full_like(others, 0.5)))
    return np.where(is_filled, rest, log_probs)


def _key(prompt: str) -> str:
    """Return the digest of a prompt and of the choices."""
    return sha256("\n".join([*CHOICES, prompt]).encode())


def _identity(model: ChoiceModel) -> dict[str, Any]:
    """Return the fields of a line that say which model has replied."""
    settings = getattr(model, "reply_settings", {})
    return {"model": model.name, "fingerprint": model.fingerprint, "settings": settings}


def _lines(model: ChoiceModel, replies: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Return the lines of the file for replies, in which an unknown value is null."""
    lines = []
    for key, row in replies.items():
        log_probs = [None if np.isnan(value) else value for value in row]
        if log_probs != [None, None]:
            lines.append(_identity(model) | {"prompt_sha256": key, "log_probs": log_probs})
    return lines


def _stored_replies(model: ChoiceModel, cache: str | Path) -> dict[str, list[float]]:
    """Return the replies of a model in a file, by the digest of the prompt."""
    identity = _identity(model)
    replies = {}
    for number, line in enumerate(read_lines(cache), 1):
        try:
            yes, no = np.array(line["log_probs"], dtype=np.float64).tolist()
            is_own = identity.items() <= {"settings": {}, **line}.items()
            key = str(line["prompt_sha256"])
        except (KeyError, TypeError, ValueError) as error:
            raise SentenceError(
                f"{cache}, line {number} is not a stored verdict; use another file as cache"
            ) from error
        if is_own:
            replies[key] = [yes, no]
    return replies
