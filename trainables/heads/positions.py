"""One class at each position that asks for one; the other positions are neither read nor trained.

Sources: the reads of flip-flop language modelling as in Ray Chowdhury and Caragea, Investigating Recurrent
Transformers with Dynamic Halt, App. A; the answers of Fan et al., Looped Transformers for Length
Generalization, sec. 4.

Departure: the loss of a sample is the mean over its positions, so that samples weigh the same; the published
runs average over all positions of a batch.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from trainables.heads._parts import TokenModel, judge
from trainables.layers.packing import put, take
from trainables.layers.precision import sum_dtype
from trainables.settings import ModelSettings
from trainables.types import NOT_ASKED, Batch, Output, TaskShape

FEATURES = 1
"""Widths of the encoder that the readout reads."""


class Model(TokenModel):
    """A classifier of positions around any encoder."""

    def __init__(self, encoder: nn.Module, config: ModelSettings, shape: TaskShape) -> None:
        super().__init__(encoder, config, shape, FEATURES)

    def forward(self, batch: Batch) -> Output:
        """Loss, hits and number of asked positions of each sample; two stricter hits among the shares."""
        asked = batch.labels != NOT_ASKED
        encoded = self.encoder(self.embed(batch.tokens), batch.mask)
        # An encoder that adds START and END puts one on each side.
        before = (encoded.states.shape[1] - batch.tokens.shape[1]) // 2
        states = encoded.states[:, before : before + batch.tokens.shape[1]]
        chosen = asked.flatten().nonzero().squeeze(1)
        labels = batch.labels.flatten().index_select(0, chosen)
        logits = self.readout(take(states.flatten(0, 1), chosen))
        judged = judge(logits.to(sum_dtype(logits.dtype)), labels)
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


def _last(hits: Float[Tensor, "N S"], asked: Bool[Tensor, "N S"]) -> Float[Tensor, " N"]:
    """Hits at the last asked position of each sample."""
    columns = torch.arange(1, asked.shape[1] + 1, device=asked.device)
    return hits.gather(1, (asked * columns).argmax(1, keepdim=True)).squeeze(1)
