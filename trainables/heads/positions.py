"""One class at each labelled position; the other positions are neither predicted nor trained.

Sources: the reads of flip-flop language modelling as in Ray Chowdhury and Caragea, Investigating Recurrent
Transformers with Dynamic Halt, App. A; the answers of Fan et al., Looped Transformers for Length
Generalization, sec. 4.

Difference from the published runs: the loss of a sample is the mean over its positions, so that samples have
equal weight. The published runs average over all positions of a batch.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trainables.heads._parts import ACCURACY_WHOLE, TargetPositions, TokenModel, uncertainty
from trainables.layers.packing import take
from trainables.metrics import Metric
from trainables.settings import ModelSettings
from trainables.types import Batch, Guide, Output, TaskShape, sum_dtype

FEATURES = 1
"""Size of the readout's input, in encoder widths."""
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
    ACCURACY_WHOLE,
    Metric(
        "uncertainty",
        unit="nats",
        low=0.0,
        meaning="cross-entropy against the model's own answers; low means confident",
        shown=("posthoc",),
    ),
)


class PositionsModel(TokenModel):
    """Classifier of positions with any encoder."""

    def __init__(self, encoder: nn.Module, config: ModelSettings, shape: TaskShape) -> None:
        super().__init__(encoder, config, shape, FEATURES)

    def forward(self, batch: Batch) -> Output:
        """Return loss, hits and number of predictions of each sample, and additional metrics in `shares`."""
        targets = TargetPositions.of_labels(batch.labels)
        guide = {"guide": self._guide(batch.steps, targets)} if getattr(self.encoder, "guided", False) else {}
        encoded = self.encoder(self.embed(batch.tokens), batch.mask, **guide)
        logits = self._logits(encoded.states, targets)
        output, hits = targets.output(logits, batch.labels, encoded)
        shares = {
            "accuracy_last": _last_hits(hits, targets.mask),
            **output.shares,
            "uncertainty": targets.mean(uncertainty(logits.detach())),
        }
        return replace(output, shares=shares)

    def _guide(self, steps: Int[Tensor, " N"] | None, targets: TargetPositions) -> Guide:
        """Return the values that an encoder may use; labels are excluded to prevent leaks."""

        def mean_uncertainty(states: Float[Tensor, "N P D"]) -> Float[Tensor, " N"]:
            return targets.mean(uncertainty(self._logits(states, targets)))

        return Guide(steps, mean_uncertainty)

    def _logits(self, states: Float[Tensor, "N P D"], predicted: TargetPositions) -> Float[Tensor, "K C"]:
        """Return the logits at the predicted positions."""
        # An encoder that adds START and END adds one position on each side.
        columns = predicted.mask.shape[1]
        num_start_positions = (states.shape[1] - columns) // 2
        tokens = states[:, num_start_positions : num_start_positions + columns].flatten(0, 1)
        logits: Tensor = self.readout(take(tokens, predicted.places))
        return logits.to(sum_dtype(logits.dtype))


def _last_hits(hits: Float[Tensor, "N S"], mask: Bool[Tensor, "N S"]) -> Float[Tensor, " N"]:
    """Return whether the last prediction of each sample is correct."""
    columns = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return hits.gather(1, (mask * columns).argmax(1, keepdim=True)).squeeze(1)
