"""TLB and GUTLB for one sequence, from Alg. 2 and 4 of Ray Chowdhury and Caragea, Investigating Recurrent
Transformers with Dynamic Halt, as their runs read them. No batch, no early exit, no shared code.
"""

import math
from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import (
    Parameters,
    Vectors,
    between_boundaries,
    block,
    feedforward,
    layer_norm,
    pooled,
    recall,
)
from tests.oracles.naive_universal import Naive, think


def run(p: Parameters, config: dict[str, Any], x: Tensor) -> Naive:
    """`x`: the n tokens of one sequence, without padding; `config`: full settings of the model."""
    h = between_boundaries(p, x) if config["boundaries"] else list(x)
    memory = list(p["memory.slots.weight"])
    states, depths, ponders = [], [], []
    for chunk in cut(h, config["chunk"], config["causal"]):
        if config["memory"]["slot_positions"]:
            memory = [slot + sinusoid(number, slot) for number, slot in enumerate(memory)]
        if config["name"] == "gutlb":
            final, depth, ponder = think(p, config, chunk, memory)
        else:
            final, depth, ponder = chunk, config["layers"], torch.zeros((), dtype=torch.float64)
            for layer in range(config["layers"]):
                final = block(p, f"blocks.{layer}", final, final, config["heads"], config["causal"], memory)
        for layer in range(config["memory"]["update_layers"]):
            memory = update(p, f"memory.updates.{layer}", memory, final, config["heads"])
        states += final
        depths.append(depth)
        ponders.append(ponder)
    represented = read(p, config["readout"], memory, states)
    return Naive(states, represented, sum(depths) / len(depths), sum(ponders[1:], ponders[0]) / len(ponders))


def cut(h: list[Tensor], chunk: dict[str, Any], causal: bool) -> list[list[Tensor]]:
    if chunk["by"] == "count":
        length = math.ceil(len(h) / chunk["count"])
    elif chunk["even"] or (chunk["even"] is None and not causal):
        length = math.ceil(len(h) / math.ceil(len(h) / chunk["size"]))
    else:
        length = chunk["size"]
    chunks: list[list[Tensor]] = []
    for t, each in enumerate(h):
        if t % length == 0:
            chunks.append([])
        chunks[-1].append(each)
    return chunks


def sinusoid(place: int, slot: Tensor) -> Tensor:
    size = slot.shape[0]
    angles = [place / 10000 ** (2 * (i // 2) / size) for i in range(size)]
    return torch.tensor(
        [math.cos(angle) if i % 2 else math.sin(angle) for i, angle in enumerate(angles)], dtype=torch.float64
    )


def update(p: Parameters, at: str, memory: Vectors, final: Vectors, heads: int) -> list[Tensor]:
    taken_in = recall(p, f"{at}.recall", memory, final, heads)
    attended = [slot + new for slot, new in zip(memory, taken_in, strict=True)]
    normed = [layer_norm(p, f"{at}.feedforward_norm", each) for each in attended]
    return [each + feedforward(p, f"{at}.feedforward", z) for each, z in zip(attended, normed, strict=True)]


def read(p: Parameters, how: str, memory: Vectors, states: Vectors) -> Tensor:
    if how not in ("slots", "last-slot"):
        return pooled(states, how)
    normed = [layer_norm(p, "memory.readout_norm", slot) for slot in memory]
    return normed[-1] if how == "last-slot" else torch.stack(normed).mean(0)
