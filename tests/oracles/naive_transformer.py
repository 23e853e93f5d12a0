"""The xPos Transformer for one sequence, from Eq. 1-4 of Ray Chowdhury and Caragea.

The paper is Investigating Recurrent Transformers with Dynamic Halt. The code shares nothing with the product.
"""

from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import Parameters, block, pool, with_boundaries
from tests.oracles.naive_universal import NaiveOutput


def run(p: Parameters, config: dict[str, Any], x: Tensor) -> NaiveOutput:
    """Run the model on `x`, the tokens of one sequence without padding, with the full settings `config`."""
    h = list(x) if config["causal"] else with_boundaries(p, x)
    for layer in range(config["layers"]):
        h = block(p, f"blocks.{layer}", h, h, config["heads"], config["causal"])
    zero = torch.zeros((), dtype=torch.float64)
    return NaiveOutput(h, pool(h, config["pooling"]), config["layers"], zero)
