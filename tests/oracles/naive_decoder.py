"""The decoders of the Transformer and of the universal family for one answer: no batch, no early exit, no
shared code. A decoder is the causal form of its model in which every layer also looks at the encoded input.
"""

from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import Parameters, Vectors, block, layer_norm
from tests.oracles.naive_universal import Naive, think


def run(p: Parameters, config: dict[str, Any], y: Tensor, memory: Tensor) -> Naive:
    """`y`: the tokens read, `memory`: the encoded input, both without padding."""
    states: Vectors = list(y)
    depth, ponder = float(config.get("layers", 0)), torch.zeros((), dtype=torch.float64)
    if config["name"] == "universal":
        states, depth, ponder = think(p, config | {"causal": True}, list(y), list(memory))
    else:
        for layer in range(config["layers"]):
            states = block(
                p, f"blocks.{layer}", states, states, config["heads"], causal=True, memory=list(memory)
            )
    normed = [layer_norm(p, "final_norm", each) for each in states]
    return Naive(normed, normed[-1], depth, ponder)
