"""What a search over a server is told, declared once; knows ranges and what decides a run, no HTTP and no search."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator

from pro_lib.base.checks import Name, NotNegative, Positive, PositiveInt, PositiveShare, Text, WholeNumber, checked

# How widespread tokenizers spell the end of text.
END_OF_TEXT = ("<|endoftext|>", "</s>", "<eos>", "<|end_of_text|>", "<|eot_id|>", "<|im_end|>", "<end_of_turn>")
END_OF_TEXT += ("<|end|>",)


def _address(url: str) -> str:
    # What is wrong is not quoted: it may hold a password.
    if not re.fullmatch(r"https?://(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?(/[\w./~%+-]*)?", url, re.ASCII):
        raise ValueError(
            "base_url must be an address such as http://localhost:8000/v1, without user, password or parameters; "
            "a key comes through api_key_env"
        )
    return url


@checked
class Asking:
    """How a server is asked; what decides the answers is in `parameters`, which has neither its address nor a key."""

    base_url: Annotated[str, AfterValidator(_address)]
    """As in `http://localhost:8000/v1`."""
    model: Name
    """The server's name for the model."""
    search_alpha: PositiveShare = 0.05
    """α of the search; at 1/top or above nothing that continues an answer can be missed."""
    top: PositiveInt = 20
    """How many log-probabilities are asked for at every place."""
    stop: tuple[Text, ...] | None = None
    """Texts that end an answer beside a newline; by default `END_OF_TEXT`, and with `tokenizer` none: the model's own
    ends of text always end an answer there."""
    n_stop_tokens: PositiveInt | None = None
    """How many tokens of the vocabulary end an answer, if known: those not listed are then bounded one by one."""
    tokenizer: Any = None
    """The model's own (as transformers has it): prompts are sent as token ids, and ids read back."""
    max_new_tokens: PositiveInt = 32
    """T, the length at which an answer is cut, its ending included."""
    budget: PositiveInt | None = None
    """Prefixes of a question that may be expanded, a request each, names and repeats apart; None for no limit."""
    epsilon: NotNegative = 0.005
    """By how many nats each log-probability may be off at least, whatever repeats show; errors add along an answer."""
    tolerance: NotNegative = 1e-3
    """By how much stop tokens not listed may add to an answer's probability; above it the question is undecided."""
    concurrency: PositiveInt = 8
    """Questions searched at once."""
    retries: WholeNumber = 6
    """Further tries after 429, 5xx, time-outs, lost connections and damaged responses, more and more apart."""
    timeout: Positive = 60.0
    """Seconds after which a request is given up, whether the server is silent or still sending."""
    api_key_env: str | None = "OPENAI_API_KEY"
    """The environment variable that holds the API key; None if none is to be sent."""

    def parameters(self) -> dict[str, Any]:
        """What decides the answers, beside the prompts."""
        names = ("model", "top", "n_stop_tokens", "search_alpha", "max_new_tokens", "budget", "epsilon", "tolerance")
        kept = {name: getattr(self, name) for name in names}
        return kept | {"stop": sorted(self.stops), "token_ids": self.tokenizer is not None}

    @property
    def stops(self) -> frozenset[str]:
        """The texts that end an answer."""
        unsaid = END_OF_TEXT if self.tokenizer is None else ()
        return frozenset(unsaid if self.stop is None else self.stop)
