"""The xPos Transformer for one sequence, from Eq. 1-4 of Ray Chowdhury and Caragea, Investigating Recurrent
Transformers with Dynamic Halt. No shared code.
"""

from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import Parameters, between_boundaries, block, pooled
from tests.oracles.naive_universal import Naive


def run(p: Parameters, config: dict[str, Any], x: Tensor) -> Naive:
    """`x`: the n tokens of one sequence, without padding; `config`: full settings of the model."""
    h = list(x) if config["causal"] else between_boundaries(p, x)
    for layer in range(config["layers"]):
        h = block(p, f"blocks.{layer}", h, h, config["heads"], config["causal"])
    zero = torch.zeros((), dtype=torch.float64)
    return Naive(h, pooled(h, config["pooling"]), config["layers"], zero)
