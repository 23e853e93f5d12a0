"""One class for each sequence, predicted from its pooled representation."""

from torch import nn

from trainables.heads._parts import TokenModel, predict
from trainables.settings import ModelSettings
from trainables.types import Batch, Output, TaskShape, sum_dtype

FEATURES = 1
"""Size of the readout's input, in encoder widths."""


class ClassifyModel(TokenModel):
    """Classifier of token sequences with any encoder."""

    def __init__(self, encoder: nn.Module, config: ModelSettings, shape: TaskShape) -> None:
        super().__init__(encoder, config, shape, FEATURES)

    def forward(self, batch: Batch) -> Output:
        """Return loss and hits of each sample."""
        encoded = self.encoder(self.embed(batch.tokens), batch.mask)
        logits = self.readout(encoded.pooled)
        predicted = predict(logits.to(sum_dtype(logits.dtype)), batch.labels)
        hits = (predicted.most_probable == batch.labels).to(predicted.loss.dtype)
        return Output(predicted.loss, hits, hits.new_ones(hits.shape), encoded, predicted.uniform)
