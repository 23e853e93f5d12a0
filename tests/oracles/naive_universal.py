"""The universal family for one sequence, from Alg. 1 and Alg. 3 of Ray Chowdhury and Caragea, Investigating
Recurrent Transformers with Dynamic Halt, as their runs read it. No batch, no early exit, no shared code.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import Parameters, Vectors, between_boundaries, block, gelu, pooled


@dataclass
class Naive:
    """What one sequence comes to."""

    states: list[Tensor]
    pooled: Tensor
    depth: float
    ponder: Tensor


@dataclass
class Unit:
    """The history of what halts as one."""

    hats: list[Tensor] = field(default_factory=list)
    """Conditional halting probabilities of the kept steps."""
    halted: bool = False

    def weights(self) -> list[Tensor]:
        """a_j = hat_j * prod_{i<j} (1 - hat_i)."""
        return [hat * _product([1 - earlier for earlier in self.hats[:j]]) for j, hat in enumerate(self.hats)]

    def reaches(self, threshold: float, *more: Tensor) -> bool:
        """Whether sum_j a_j, over the kept steps and `more`, is at least `threshold`."""
        return sum(float(w.detach()) for w in Unit([*self.hats, *more]).weights()) >= threshold

    def mix(self, history: Vectors) -> Tensor:
        """s = sum_j a_j h_j + (1 - sum_j a_j) h_K, over the kept states h_0 .. h_K."""
        weights = self.weights()
        kept = sum((w * h for w, h in zip(weights, history, strict=False)), torch.zeros_like(history[0]))
        return kept + (1 - sum(weights)) * history[len(weights)]

    def cost(self) -> Tensor:
        weights = self.weights()
        steps = len(weights)
        spent = sum((w * (j + 1) for j, w in enumerate(weights)), torch.zeros((), dtype=torch.float64))
        return spent + (1 - sum(weights)) * steps


def run(p: Parameters, config: dict[str, Any], x: Tensor) -> Naive:
    """`x`: the n tokens of one sequence, without padding; `config`: full settings of the model."""
    h = list(x) if config["causal"] else between_boundaries(p, x)
    states, depth, ponder = think(p, config, h)
    return Naive(states, pooled(states, config["pooling"]), depth, ponder)


Ended = tuple[list[Tensor], float, Tensor]
"""Final states, layers kept, ponder cost."""


def think(p: Parameters, config: dict[str, Any], h: list[Tensor], memory: Vectors | None = None) -> Ended:
    """Depth recurrence on the states `h`, which may look at `memory` beside each other."""
    if config["halt"] is None:
        for _ in range(config["max_layers"]):
            h = block(p, "block", h, h, config["heads"], config["causal"], memory)
        return h, config["max_layers"], torch.zeros((), dtype=torch.float64)
    if config["halt"]["unit"] == "token" or config["causal"]:
        return _by_token(p, config, h, memory)
    return _by_sequence(p, config, h, memory)


def _by_sequence(p: Parameters, config: dict[str, Any], h: list[Tensor], memory: Vectors | None) -> Ended:
    halt = config["halt"]
    unit, history = Unit(), [h]
    for step in range(1, min(config["max_layers"], len(h) + 1) + 1):
        if halt["rule"] == "prefix" and unit.reaches(halt["threshold"]):
            break
        source = _mixed_rows(unit, history) if config["kv"] == "mixture" else history[-1]
        new = block(p, "block", history[-1], source, config["heads"], memory=memory)
        mean_before, mean_new = (torch.stack(list(each)).mean(0) for each in (history[-1], new))
        hat = _halt(p, halt, step, mean_before, mean_new)
        if halt["rule"] == "undo" and unit.reaches(halt["threshold"], hat):
            break
        unit.hats.append(hat)
        history.append(new)
    return _mixed_rows(unit, history), len(unit.hats), unit.cost()


def _by_token(p: Parameters, config: dict[str, Any], h: list[Tensor], memory: Vectors | None) -> Ended:
    """Tokens that halt each on its own; causal sequences halt by means over the tokens so far."""
    halt, causal = config["halt"], config["causal"]
    features = _means_so_far if causal and halt["unit"] == "sequence" else list
    units = [Unit() for _ in h]
    history = [[each] for each in h]
    for step in range(1, (config["max_layers"] if causal else min(config["max_layers"], len(h) + 1)) + 1):
        current = [each[-1] for each in history]
        mixed = [unit.mix(each) for unit, each in zip(units, history, strict=True)]
        source = current if config["kv"] == "states" else mixed
        proposal = block(p, "block", current, source, config["heads"], causal, memory)
        for unit in units:
            unit.halted |= halt["rule"] == "prefix" and unit.reaches(halt["threshold"])
        still = [old if unit.halted else new for unit, old, new in zip(units, current, proposal, strict=True)]
        seen = features(proposal if halt["halted_proposals"] else still)
        looks = zip(units, history, proposal, features(current), seen, strict=True)
        for unit, each, new, look_before, look_new in looks:
            if unit.halted:
                continue
            hat = _halt(p, halt, step, look_before, look_new)
            if halt["rule"] == "undo" and unit.reaches(halt["threshold"], hat):
                unit.halted = True
                continue
            unit.hats.append(hat)
            each.append(new)
    states = [unit.mix(each) for unit, each in zip(units, history, strict=True)]
    depth = sum(len(unit.hats) for unit in units) / len(units)
    ponder = sum((unit.cost() for unit in units), torch.zeros((), dtype=torch.float64)) / len(units)
    return states, depth, ponder


def _means_so_far(states: Vectors) -> list[Tensor]:
    return [torch.stack(list(states[: t + 1])).mean(0) for t in range(len(states))]


def _halt(p: Parameters, halt: dict[str, Any], step: int, before: Tensor, new: Tensor) -> Tensor:
    """The probability of halting on the state before `step`, given it has not been halted on earlier."""
    if step - 1 < halt["origin"]:
        return torch.zeros((), dtype=torch.float64)
    features = torch.cat([before, new]) if halt["transition"] else before
    inner = gelu(p["halt.inner.weight"] @ features + p["halt.inner.bias"])
    return torch.sigmoid(p["halt.outer.weight"] @ inner + p["halt.outer.bias"])[0]


def _mixed_rows(unit: Unit, history: list[list[Tensor]]) -> list[Tensor]:
    return [unit.mix([states[t] for states in history]) for t in range(len(history[0]))]


def _product(factors: list[Tensor]) -> Tensor | float:
    result: Tensor | float = 1.0
    for factor in factors:
        result = result * factor
    return result
