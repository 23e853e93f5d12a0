"""One class for each pair of sentences, both encoded by the same weights.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, App. A, and their
published runs. The readout uses u, v, u * v and |u - v| of the two pooled vectors u and v. The cost of a pair
is the mean over its sentences.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trainables.heads._parts import TokenModel, predict
from trainables.settings import ModelSettings
from trainables.types import Batch, Encoded, Output, TaskShape, sum_dtype

FEATURES = 4
"""Size of the readout's input, in encoder widths."""


class PairModel(TokenModel):
    """Classifier of pairs with any encoder. One separator token is between the sentences of an input."""

    def __init__(self, encoder: nn.Module, config: ModelSettings, shape: TaskShape) -> None:
        assert shape.separator_id is not None, "a task of pairs must have a separator_id"
        super().__init__(encoder, config, shape, FEATURES)
        self.separator_id = shape.separator_id

    def forward(self, batch: Batch) -> Output:
        """Return loss and hits of each pair."""
        tokens, mask = self.encoder_inputs(batch)
        encoded = self.encoder(self.embed(tokens), mask)
        logits = self.readout(compare(encoded.pooled))
        predicted = predict(logits.to(sum_dtype(logits.dtype)), batch.labels)
        hits = (predicted.most_probable == batch.labels).to(predicted.loss.dtype)
        return Output(predicted.loss, hits, hits.new_ones(hits.shape), _per_pair(encoded), predicted.uniform)

    def encoder_inputs(self, batch: Batch) -> tuple[Int[Tensor, "M S"], Bool[Tensor, "M S"]]:
        """Return all first sentences, then all second ones, and their mask."""
        return sentences(batch.tokens, batch.mask, self.separator_id)


def sentences(
    tokens: Int[Tensor, "N S"], mask: Bool[Tensor, "N S"], separator_id: int
) -> tuple[Int[Tensor, "M S"], Bool[Tensor, "M S"]]:
    """Return all first sentences, then all second ones (M = 2 N), and their mask.

    Padding on the right holds arbitrary tokens.
    """
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    middle = (tokens == separator_id).to(torch.int8).argmax(1)[:, None]
    source = columns + middle + 1
    second = tokens.gather(1, source.clamp(max=tokens.shape[1] - 1))
    return torch.cat((tokens, second)), torch.cat((columns < middle, source < mask.sum(1)[:, None]))


def compare(pooled: Float[Tensor, "M D"]) -> Float[Tensor, "N F"]:
    """Return the features of pairs; first and second sentences are the halves of `pooled`."""
    u, v = pooled.chunk(2)
    return torch.cat((u, v, u * v, (u - v).abs()), dim=-1)


def _per_pair(encoded: Encoded) -> Encoded:
    """Return the encodings of pairs: concatenated states of both sentences, and means of all other fields."""

    def mean(x: Tensor) -> Tensor:
        first, second = x.chunk(2)
        return (first + second) / 2

    return Encoded(
        states=torch.cat(encoded.states.chunk(2), dim=1),
        pooled=mean(encoded.pooled),
        depth=mean(encoded.depth),
        ponder=mean(encoded.ponder),
        computed=mean(encoded.computed),
        bound=mean(encoded.bound),
        auxiliary=None if encoded.auxiliary is None else mean(encoded.auxiliary),
    )
