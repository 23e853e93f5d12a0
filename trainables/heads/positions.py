"""One class at each position that asks for one; the other positions are neither read nor trained.

Sources: the reads of flip-flop language modelling as in Ray Chowdhury and Caragea, Investigating Recurrent
Transformers with Dynamic Halt, App. A; the answers of Fan et al., Looped Transformers for Length
Generalization, sec. 4.

Departure: the loss of a sample is the mean over its positions, so that samples weigh the same; the published
runs average over all positions of a batch.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trainables.heads._parts import TokenModel, judge, uncertainty
from trainables.layers.packing import put, take
from trainables.layers.precision import sum_dtype
from trainables.settings import ModelSettings
from trainables.types import NOT_ASKED, Batch, Guide, Output, TaskShape

FEATURES = 1
"""Widths of the encoder that the readout reads."""


class Model(TokenModel):
    """A classifier of positions around any encoder."""

    def __init__(self, encoder: nn.Module, config: ModelSettings, shape: TaskShape) -> None:
        super().__init__(encoder, config, shape, FEATURES)

    def forward(self, batch: Batch) -> Output:
        """Loss, hits and number of asked positions of each sample; two stricter hits among the shares."""
        asked = batch.labels != NOT_ASKED
        chosen = asked.flatten().nonzero().squeeze(1)
        told = {"guide": self._guide(batch.steps, asked)} if getattr(self.encoder, "guided", False) else {}
        encoded = self.encoder(self.embed(batch.tokens), batch.mask, **told)
        labels = batch.labels.flatten().index_select(0, chosen)
        judged = judge(self._logits(encoded.states, asked.shape[1], chosen), labels)
        losses, uniform, hits = (
            put(values, chosen, asked.numel()).view(asked.shape)
            for values in (judged.loss, judged.uniform, (judged.guess == labels).to(judged.loss.dtype))
        )
        counts = asked.sum(1).to(losses.dtype)
        return Output(
            loss=losses.sum(1) / counts,
            hits=hits.sum(1),
            counts=counts,
            encoded=encoded,
            uniform=uniform.sum(1) / counts,
            shares={"accuracy_last": _last(hits, asked), "accuracy_whole": (hits.sum(1) == counts).to(hits)},
        )

    def _guide(self, steps: Int[Tensor, " N"] | None, asked: Bool[Tensor, "N S"]) -> Guide:
        """What an encoder may know. That no label comes in here keeps answers out of it."""
        chosen = asked.flatten().nonzero().squeeze(1)

        def mean_uncertainty(states: Float[Tensor, "N P D"]) -> Float[Tensor, " N"]:
            found = uncertainty(self._logits(states, asked.shape[1], chosen))
            return put(found, chosen, asked.numel()).view(asked.shape).sum(1) / asked.sum(1)

        return Guide(steps, mean_uncertainty)

    def _logits(
        self, states: Float[Tensor, "N P D"], columns: int, chosen: Int[Tensor, " K"]
    ) -> Float[Tensor, "K C"]:
        """Of the `chosen` places among those of all rows of `columns` tokens."""
        # An encoder that adds START and END puts one on each side.
        before = (states.shape[1] - columns) // 2
        tokens = states[:, before : before + columns].flatten(0, 1)
        logits: Tensor = self.readout(take(tokens, chosen))
        return logits.to(sum_dtype(logits.dtype))


def _last(hits: Float[Tensor, "N S"], asked: Bool[Tensor, "N S"]) -> Float[Tensor, " N"]:
    """Hits at the last asked position of each sample."""
    columns = torch.arange(1, asked.shape[1] + 1, device=asked.device)
    return hits.gather(1, (asked * columns).argmax(1, keepdim=True)).squeeze(1)
