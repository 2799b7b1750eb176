"""The protocol of a model that chooses between a few texts, for `p_true` and `judge`."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class ChoiceModel(Protocol):
    """A model, or a client of a server, that returns the probabilities of given continuations.

    Attributes:
        name: the name of the model in tables and files.
        fingerprint: a digest of the model's files, or a description of its server.
        reply_settings: optional. Further values that decide the replies, as JSON can store them,
            such as the precision of the weights or the address of the server. Two models with the
            same name, fingerprint and settings are taken for the same model.
        prompts_at_once: optional, 32 if it is missing. The number of prompts that are sent before
            their values are stored. It is small for a server, so that an error loses few replies.
        listed_log_probs: optional. A method with the arguments of `choice_log_probs`. It also
            returns which values the model has listed, (n, C). Any other value is the largest one
            that is possible.
        is_only_server: optional. Whether stored replies that have no settings are the model's,
            because its host has no other server.
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

        A value that is not known is NaN, such as one that a server does not return.
        """
