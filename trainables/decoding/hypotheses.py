"""Log-probabilities of the next token of answers, from a cache if the decoder has one, else recomputed.

`Hypotheses` hold N inputs with `width` adjacent hypotheses each, all of the same length: R = N * `width`
rows.
"""

from typing import Any, Protocol, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trainables.heads.sequence import SequenceModel
from trainables.types import sum_dtype


class Hypotheses(Protocol):
    """Hypotheses that grow by one token per call."""

    def next(self, tokens: Int[Tensor, " R"]) -> Float[Tensor, "R C"]:
        """Append one token to each row and return the log-probabilities of the token after it."""

    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Replace the hypothesis of row i by that of row `rows[i]`, which must belong to the same input."""

    def keep(self, inputs: Int[Tensor, " K"]) -> None:
        """Keep the hypotheses of `inputs`, in this order, and drop those of all other inputs."""


class CachedHypotheses:
    """Hypotheses of a decoder with a cache.

    The decoder has `begin(memory, memory_mask, width, length_max)` and `extend(y, decoding)`.
    """

    def __init__(
        self,
        model: SequenceModel,
        memory: Float[Tensor, "N P D"],
        memory_mask: Bool[Tensor, "N P"],
        width: int,
        length_max: int,
    ) -> None:
        self._model = model
        self._decoder = cast(Any, model.decoder)
        self._decoding = self._decoder.begin(memory, memory_mask, width, length_max)

    def next(self, tokens: Int[Tensor, " R"]) -> Float[Tensor, "R C"]:
        """Run the decoder on one new token per row and return log-probabilities of the token after it."""
        states, self._decoding = self._decoder.extend(
            self._model.answer(tokens[:, None])[:, 0], self._decoding
        )
        return _log_probabilities(self._model, states)

    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Reorder the rows of the cache by copying."""
        self._decoding = self._decoding.reorder(rows)

    def keep(self, inputs: Int[Tensor, " K"]) -> None:
        """Keep only the cache of the inputs at `inputs`; free the cache of all others."""
        self._decoding = self._decoding.keep(inputs)


class RecomputedHypotheses:
    """Hypotheses of a decoder without a cache: it runs on the full hypothesis for each token."""

    def __init__(
        self,
        model: SequenceModel,
        memory: Float[Tensor, "N P D"],
        memory_mask: Bool[Tensor, "N P"],
        width: int,
    ) -> None:
        self._model = model
        self._memory = memory.repeat_interleave(width, 0)
        self._memory_mask = memory_mask.repeat_interleave(width, 0)
        self._width = width
        self._prefixes = torch.empty((self._memory.shape[0], 0), dtype=torch.int64, device=memory.device)

    def next(self, tokens: Int[Tensor, " R"]) -> Float[Tensor, "R C"]:
        """Append one token to each row, run the decoder and return log-probabilities of the next token."""
        self._prefixes = torch.cat((self._prefixes, tokens[:, None]), 1)
        token_mask = torch.ones_like(self._prefixes, dtype=torch.bool)
        y = self._model.answer(self._prefixes)
        encoded = self._model.decoder(y, token_mask, self._memory, self._memory_mask)
        return _log_probabilities(self._model, encoded.pooled)

    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Reorder the tokens of the hypotheses; the encoded inputs keep their order."""
        self._prefixes = self._prefixes.index_select(0, rows)

    def keep(self, inputs: Int[Tensor, " K"]) -> None:
        """Keep only the encoded inputs at `inputs`, and the tokens of their hypotheses."""
        columns = torch.arange(self._width, device=inputs.device)
        rows = (inputs[:, None] * self._width + columns).flatten()
        self._prefixes, self._memory, self._memory_mask = (
            tensor.index_select(0, rows) for tensor in (self._prefixes, self._memory, self._memory_mask)
        )


def hypotheses_of(
    model: SequenceModel,
    memory: Float[Tensor, "N P D"],
    memory_mask: Bool[Tensor, "N P"],
    width: int,
    length_max: int,
) -> Hypotheses:
    """Build the fastest kind of hypotheses that the decoder of `model` supports."""
    if hasattr(model.decoder, "extend"):
        return CachedHypotheses(model, memory, memory_mask, width, length_max)
    return RecomputedHypotheses(model, memory, memory_mask, width)


def _log_probabilities(model: SequenceModel, states: Float[Tensor, "R D"]) -> Float[Tensor, "R C"]:
    logits = model.logits(states)
    return logits.to(sum_dtype(logits.dtype)).log_softmax(-1)
