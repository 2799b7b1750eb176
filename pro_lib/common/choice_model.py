"""What a model must offer to choose between a few texts: a protocol for `p_true` and `judge`."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class ChoiceModel(Protocol):
    """A model, or a client of one, that says how probable each of a few continuations is.

    Attributes:
        name: the name of the model in tables and files.
        fingerprint: a digest of the model's files, or the address of its server. Two models with
            the same name and fingerprint are taken for the same model.
        prompts_at_once: optional; how many prompts are sent before their values are stored, 32 if
            it is missing. A client of a server has few, so that an error loses none of its replies.
    """

    @property
    def name(self) -> str:
        """The name of the model in tables and files."""

    @property
    def fingerprint(self) -> str:
        """The digest of the model's files, or the address of its server."""

    def choice_log_probs(
        self, prompts: Sequence[str], choices: Sequence[str]
    ) -> NDArray[np.float64]:
        """Return log P(choice | prompt) in nats, (n, C) for n prompts and C choices.

        A value that is not known is NaN, such as one that a server does not return.
        """
