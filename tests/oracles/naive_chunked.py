"""TLB and GUTLB for one sequence, without batches, early exit and code of the product.

Source: Alg. 2 and 4 of Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt,
as interpreted by the authors' runs.
"""

import math
from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import (
    Parameters,
    Vectors,
    block,
    cross_attention,
    feedforward,
    layer_norm,
    pool,
    sinusoid,
    with_boundaries,
)
from tests.oracles.naive_universal import NaiveOutput, run_depth


def run(p: Parameters, config: dict[str, Any], x: Tensor) -> NaiveOutput:
    """Run the model on `x`, the tokens of one sequence without padding, with the full settings `config`."""
    h = with_boundaries(p, x) if config["boundaries"] else list(x)
    memory = list(p["memory.slots.weight"])
    states, depths, ponders = [], [], []
    for chunk in split_chunks(h, config["chunk"], config["causal"]):
        if config["memory"]["slot_positions"]:
            memory = [slot + sinusoid(number, len(slot)) for number, slot in enumerate(memory)]
        if config["name"] == "gutlb":
            final, depth, ponder = run_depth(p, config, chunk, memory)
        else:
            final, depth, ponder = chunk, config["layers"], torch.zeros((), dtype=torch.float64)
            for layer in range(config["layers"]):
                final = block(p, f"blocks.{layer}", final, final, config["heads"], config["causal"], memory)
        for layer in range(config["memory"]["update_layers"]):
            memory = update(p, f"memory.updates.{layer}", memory, final, config["heads"])
        states += final
        depths.append(depth)
        ponders.append(ponder)
    pooled_state = read_out(p, config["readout"], memory, states)
    return NaiveOutput(
        states, pooled_state, sum(depths) / len(depths), sum(ponders[1:], ponders[0]) / len(ponders)
    )


def split_chunks(h: list[Tensor], chunk: dict[str, Any], causal: bool) -> list[list[Tensor]]:
    if chunk["by"] == "count":
        length = math.ceil(len(h) / chunk["count"])
    elif chunk["even"] or (chunk["even"] is None and not causal):
        length = math.ceil(len(h) / math.ceil(len(h) / chunk["size"]))
    else:
        length = chunk["size"]
    chunks: list[list[Tensor]] = []
    for t, token in enumerate(h):
        if t % length == 0:
            chunks.append([])
        chunks[-1].append(token)
    return chunks


def update(p: Parameters, at: str, memory: Vectors, final: Vectors, heads: int) -> list[Tensor]:
    gathered = cross_attention(p, f"{at}.recall", memory, final, heads)
    attended = [slot + update_ for slot, update_ in zip(memory, gathered, strict=True)]
    normed = [layer_norm(p, f"{at}.feedforward_norm", state) for state in attended]
    return [state + feedforward(p, f"{at}.feedforward", z) for state, z in zip(attended, normed, strict=True)]


def read_out(p: Parameters, readout: str, memory: Vectors, states: Vectors) -> Tensor:
    if readout not in ("slots", "last-slot"):
        return pool(states, readout)
    normed = [layer_norm(p, "memory.readout_norm", slot) for slot in memory]
    return normed[-1] if readout == "last-slot" else torch.stack(normed).mean(0)
