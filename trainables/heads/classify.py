"""One class for each sequence, read from its pooled representation."""

from torch import nn

from trainables.heads._parts import TokenModel, judge
from trainables.layers.precision import sum_dtype
from trainables.settings import ModelSettings
from trainables.types import Batch, Output, TaskShape

FEATURES = 1
"""Widths of the encoder that the readout reads."""


class Model(TokenModel):
    """A classifier of token sequences around any encoder."""

    def __init__(self, encoder: nn.Module, config: ModelSettings, shape: TaskShape) -> None:
        super().__init__(encoder, config, shape, FEATURES)

    def forward(self, batch: Batch) -> Output:
        """Loss and hits of each sample."""
        encoded = self.encoder(self.embed(batch.tokens), batch.mask)
        logits = self.readout(encoded.pooled)
        judged = judge(logits.to(sum_dtype(logits.dtype)), batch.labels)
        hits = (judged.guess == batch.labels).to(judged.loss.dtype)
        return Output(judged.loss, hits, hits.new_ones(hits.shape), encoded, judged.uniform)
