"""One class at each labelled position; the other positions are neither read nor trained.

Sources: the reads of flip-flop language modelling as in Ray Chowdhury and Caragea, Investigating Recurrent
Transformers with Dynamic Halt, App. A; the answers of Fan et al., Looped Transformers for Length
Generalization, sec. 4.

Departure: the loss of a sample is the mean over its positions, so that samples weigh the same; the published
runs average over all positions of a batch.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trainables.heads._parts import WHOLE, Asked, TokenModel, uncertainty
from trainables.layers.packing import take
from trainables.metrics import Metric
from trainables.settings import ModelSettings
from trainables.types import Batch, Guide, Output, TaskShape, sum_dtype

FEATURES = 1
"""Widths of the encoder that the readout reads."""
metrics = (
    Metric(
        "accuracy_last",
        "max",
        low=0.0,
        high=1.0,
        meaning="share of right answers at the last position",
        shown=("table",),
        floor_from="floor",
        floor_name="most common label",
    ),
    WHOLE,
    Metric(
        "uncertainty",
        unit="nats",
        low=0.0,
        meaning="loss if the answers given were the right ones: low is confident",
        shown=("posthoc",),
    ),
)


class PositionsModel(TokenModel):
    """A classifier of positions around any encoder."""

    def __init__(self, encoder: nn.Module, config: ModelSettings, shape: TaskShape) -> None:
        super().__init__(encoder, config, shape, FEATURES)

    def forward(self, batch: Batch) -> Output:
        """Loss, hits and number of asked positions of each sample; two stricter hits among the shares."""
        asked = Asked.by(batch.labels)
        guide = {"guide": self._guide(batch.steps, asked)} if getattr(self.encoder, "guided", False) else {}
        encoded = self.encoder(self.embed(batch.tokens), batch.mask, **guide)
        logits = self._logits(encoded.states, asked)
        output, hits = asked.output(logits, batch.labels, encoded)
        shares = {
            "accuracy_last": _last(hits, asked.mask),
            **output.shares,
            "uncertainty": asked.mean(uncertainty(logits.detach())),
        }
        return replace(output, shares=shares)

    def _guide(self, steps: Int[Tensor, " N"] | None, asked: Asked) -> Guide:
        """What an encoder may use. It gets no labels, so answers cannot leak into it."""

        def mean_uncertainty(states: Float[Tensor, "N P D"]) -> Float[Tensor, " N"]:
            return asked.mean(uncertainty(self._logits(states, asked)))

        return Guide(steps, mean_uncertainty)

    def _logits(self, states: Float[Tensor, "N P D"], asked: Asked) -> Float[Tensor, "K C"]:
        """Logits at the asked positions."""
        # An encoder that adds START and END puts one on each side.
        columns = asked.mask.shape[1]
        before = (states.shape[1] - columns) // 2
        tokens = states[:, before : before + columns].flatten(0, 1)
        logits: Tensor = self.readout(take(tokens, asked.places))
        return logits.to(sum_dtype(logits.dtype))


def _last(hits: Float[Tensor, "N S"], asked: Bool[Tensor, "N S"]) -> Float[Tensor, " N"]:
    """Hits at the last asked position of each sample."""
    columns = torch.arange(1, asked.shape[1] + 1, device=asked.device)
    return hits.gather(1, (asked * columns).argmax(1, keepdim=True)).squeeze(1)
