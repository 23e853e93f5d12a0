"""Transformer with xPos: `layers` blocks with weights of their own, bidirectional or causal.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Eq. 1-4 and App. A.
Pre-norm blocks without a final norm, as in the published runs; reads the mean over START, tokens and END.
The causal form, as in the published flip-flop runs, has neither START nor END.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from trainables.layers.block import Block, CausalSettings
from trainables.layers.boundaries import NUM_BOUNDARIES, Pooling, boundaries, check_pooling, pool
from trainables.layers.tokens import KeysValues, Tokens
from trainables.layers.work import block_flops, block_saved_bytes
from trainables.types import Encoded


class Config(CausalSettings):
    """Settings of the Transformer."""

    name: Literal["transformer"] = "transformer"
    """The model's name."""
    layers: int = Field(default=4, ge=1)
    """Number of blocks."""
    pooling: Pooling = "mean"
    """What represents a sequence: the state at END or START, or the mean over all. Without START and END, in
    the causal form, the last token's state or the mean."""

    @model_validator(mode="after")
    def _pooling_sees_all(self) -> "Config":
        check_pooling("pooling", self.pooling, causal=self.causal)
        return self


class Encoder(nn.Module):
    """Runs every block once."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.boundaries = boundaries(config.width, present=not config.causal)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))

    def forward(self, x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"]) -> Encoded:
        """Encode right-padded `x`."""
        states, packing = self.boundaries(x, mask)
        tokens = Tokens.of(packing, self.config.size_of_head, states.dtype, causal=self.config.causal)
        for block in self.blocks:
            assert isinstance(block, Block)
            seen = KeysValues(*block.keys_values(states, tokens.key_rotation), packing)
            states = block(states, tokens, seen)
        depth = states.new_full((packing.num_rows,), self.config.layers)
        return Encoded(
            states=self.boundaries.padded(states, packing, x),
            pooled=pool(states, packing, self.config.pooling),
            depth=depth,
            ponder=torch.zeros_like(depth),
            computed=depth,
            bound=depth,
        )


def depth_range(config: Config, length: int) -> tuple[int, int]:  # noqa: ARG001 the same for all lengths
    """Least and greatest number of layers run on a sequence."""
    return config.layers, config.layers


def forward_flops(config: Config, length: int, layers: int) -> float:
    """Encoder FLOPs of one sequence of `length` tokens on which `layers` layers are run."""
    return layers * block_flops(config, None, _positions(config, length))


def saved_bytes(config: Config, rows: int, length: int) -> float:
    """What a forward pass on `rows` sequences of `length` tokens keeps for the backward pass."""
    return config.layers * block_saved_bytes(config, None, rows, _positions(config, length))


def _positions(config: Config, length: int) -> int:
    return length if config.causal else length + NUM_BOUNDARIES
