"""Gated recurrent units: PyTorch's own, and the state after the last token."""

from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from trainables.settings import ModelSettings
from trainables.types import Encoded


class Config(ModelSettings):
    """Settings of the GRU."""

    layers: int = 1
    """Number of layers."""


class Encoder(nn.Module):
    """Reads every sequence from its first token to its last."""

    def __init__(self, config):
        super().__init__()
        self.layers = config.layers
        self.gru = nn.GRU(config.width, config.width, config.layers, batch_first=True)

    def forward(self, x, mask):
        """Encode right-padded `x`."""
        packed = pack_padded_sequence(x, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.gru(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])
        return Encoded.of_fixed_depth(states, last[-1], self.layers)
