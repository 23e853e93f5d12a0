"""The universal family for one sequence, without batches, early exit and code of the product.

Source: Alg. 1 and Alg. 3 of Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic
Halt, as interpreted by the authors' runs.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tests.oracles.naive_block import Parameters, Vectors, block, gelu, pool, with_boundaries


@dataclass
class NaiveOutput:
    """Output of the model for one sequence."""

    states: list[Tensor]
    pooled: Tensor
    depth: float
    ponder: Tensor


@dataclass
class Unit:
    """History of one halting unit, a token or a sequence."""

    hats: list[Tensor] = field(default_factory=list)
    """Conditional halting probabilities of the steps taken."""
    halted: bool = False

    def weights(self) -> list[Tensor]:
        """a_j = hat_j * prod_{i<j} (1 - hat_i)."""
        return [hat * _product([1 - earlier for earlier in self.hats[:j]]) for j, hat in enumerate(self.hats)]

    def reaches(self, threshold: float, *further_hats: Tensor) -> bool:
        """Return whether sum_j a_j, over the steps taken and `further_hats`, is at least `threshold`."""
        return sum(float(w.detach()) for w in Unit([*self.hats, *further_hats]).weights()) >= threshold

    def mix(self, history: Vectors) -> Tensor:
        """Return s = sum_j a_j h_j + (1 - sum_j a_j) h_K, over the states h_0 .. h_K."""
        weights = self.weights()
        halted_part = sum(
            (w * h for w, h in zip(weights, history, strict=False)), torch.zeros_like(history[0])
        )
        return halted_part + (1 - sum(weights)) * history[len(weights)]

    def cost(self) -> Tensor:
        weights = self.weights()
        steps = len(weights)
        spent = sum((w * (j + 1) for j, w in enumerate(weights)), torch.zeros((), dtype=torch.float64))
        return spent + (1 - sum(weights)) * steps


def run(p: Parameters, config: dict[str, Any], x: Tensor) -> NaiveOutput:
    """Run the model on `x`, the tokens of one sequence without padding, with the full settings `config`."""
    h = list(x) if config["causal"] else with_boundaries(p, x)
    states, depth, ponder = run_depth(p, config, h)
    return NaiveOutput(states, pool(states, config["pooling"]), depth, ponder)


Result = tuple[list[Tensor], float, Tensor]
"""Final states, number of layers, ponder cost."""


def run_depth(
    p: Parameters, config: dict[str, Any], h: list[Tensor], memory: Vectors | None = None
) -> Result:
    """Run the depth recurrence on the states `h`, with cross-attention to `memory` if given."""
    if config["halt"] is None:
        for _ in range(config["max_layers"]):
            h = block(p, "block", h, h, config["heads"], config["causal"], memory)
        return h, config["max_layers"], torch.zeros((), dtype=torch.float64)
    if config["halt"]["unit"] == "token" or config["causal"]:
        return _by_token(p, config, h, memory)
    return _by_sequence(p, config, h, memory)


def _by_sequence(p: Parameters, config: dict[str, Any], h: list[Tensor], memory: Vectors | None) -> Result:
    halt = config["halt"]
    unit, history = Unit(), [h]
    for step in range(1, min(config["max_layers"], len(h) + 1) + 1):
        if halt["rule"] == "prefix" and unit.reaches(halt["threshold"]):
            break
        source = _mixed_rows(unit, history) if config["kv"] == "mixture" else history[-1]
        new = block(p, "block", history[-1], source, config["heads"], memory=memory)
        mean_before, mean_new = (torch.stack(list(states_)).mean(0) for states_ in (history[-1], new))
        hat = _halt(p, halt, step, mean_before, mean_new)
        if halt["rule"] == "undo" and unit.reaches(halt["threshold"], hat):
            break
        unit.hats.append(hat)
        history.append(new)
    return _mixed_rows(unit, history), len(unit.hats), unit.cost()


def _by_token(p: Parameters, config: dict[str, Any], h: list[Tensor], memory: Vectors | None) -> Result:
    """Halt tokens independently; causal sequences halt by means over the tokens up to each one."""
    halt, causal = config["halt"], config["causal"]
    features = _cumulative_means if causal and halt["unit"] == "sequence" else list
    units = [Unit() for _ in h]
    history = [[token_states] for token_states in h]
    for step in range(1, (config["max_layers"] if causal else min(config["max_layers"], len(h) + 1)) + 1):
        current = [token_states[-1] for token_states in history]
        mixed = [unit.mix(token_states) for unit, token_states in zip(units, history, strict=True)]
        source = current if config["kv"] == "states" else mixed
        proposal = block(p, "block", current, source, config["heads"], causal, memory)
        for unit in units:
            unit.halted |= halt["rule"] == "prefix" and unit.reaches(halt["threshold"])
        new_states = [
            old if unit.halted else new for unit, old, new in zip(units, current, proposal, strict=True)
        ]
        new_features = features(proposal if halt["halted_proposals"] else new_states)
        gate_inputs = zip(units, history, proposal, features(current), new_features, strict=True)
        for unit, token_states, new, features_before, features_new in gate_inputs:
            if unit.halted:
                continue
            hat = _halt(p, halt, step, features_before, features_new)
            if halt["rule"] == "undo" and unit.reaches(halt["threshold"], hat):
                unit.halted = True
                continue
            unit.hats.append(hat)
            token_states.append(new)
    states = [unit.mix(token_states) for unit, token_states in zip(units, history, strict=True)]
    depth = sum(len(unit.hats) for unit in units) / len(units)
    ponder = sum((unit.cost() for unit in units), torch.zeros((), dtype=torch.float64)) / len(units)
    return states, depth, ponder


def _cumulative_means(states: Vectors) -> list[Tensor]:
    return [torch.stack(list(states[: t + 1])).mean(0) for t in range(len(states))]


def _halt(p: Parameters, halt: dict[str, Any], step: int, before: Tensor, new: Tensor) -> Tensor:
    """Return the probability of halting on the state before `step`, given no earlier halt."""
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
