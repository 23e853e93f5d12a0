"""The decoders of the Transformer and of the universal family for one answer, without batches and early exit.

A decoder is the causal form of its model with cross-attention to the encoded input in every layer. The code
shares nothing with the product.
"""

from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import Parameters, Vectors, block, layer_norm
from tests.oracles.naive_universal import NaiveOutput, run_depth


def run(p: Parameters, config: dict[str, Any], y: Tensor, memory: Tensor) -> NaiveOutput:
    """Run the decoder on the written tokens `y` and the encoded input `memory`, both without padding."""
    states: Vectors = list(y)
    depth, ponder = float(config.get("layers", 0)), torch.zeros((), dtype=torch.float64)
    if config["name"] == "universal":
        states, depth, ponder = run_depth(p, config | {"causal": True}, list(y), list(memory))
    else:
        for layer in range(config["layers"]):
            states = block(
                p, f"blocks.{layer}", states, states, config["heads"], causal=True, memory=list(memory)
            )
    normalised = [layer_norm(p, "final_norm", state) for state in states]
    return NaiveOutput(normalised, normalised[-1], depth, ponder)
