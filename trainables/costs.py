"""Estimate the cost of a model before it runs: parameters, FLOPs and memory.

A model file may state its costs in three functions. `depth_range(config, length)` returns the least and the
greatest number of layers that the model runs on a sequence of `length` tokens. `forward_flops(config, length,
layers)` returns FLOPs of a forward pass. `activation_bytes(config, rows, length)` returns the bytes that a
forward pass stores for the backward pass if no unit halts early.

Further functions are optional:

- `decoder_flops(config, length, memory_length, layers)` and `decoder_activation_bytes(config, rows, length,
  memory_length)`: costs of a decoder for answers of `length` tokens.
- `memory_length(config, length)`: number of encoder states, if it differs from the number of tokens.
- `states_between(config)`: states stored per layer and position when layers are recomputed in the backward
  pass, if more than one.
- `most_layers(config, length)`: greatest number of layers, if the sequence length also limits it.
- `bound_layers(config)`: number of layers of an evaluation without halting, if it differs from the greatest
  number in `depth_range`. Shares of executed layers refer to it.

Costs without a function are counted (`trainables.counting`). For a number of layers that differs from the
counted run, FLOPs are assumed to be proportional to the layers.
"""

import math
from collections.abc import Callable
from typing import Any

from torch import nn

from trainables import catalog
from trainables.assembly import Part, build_model, head_module
from trainables.counting import MeasuredCost, measure_cost
from trainables.data.synthetic import answer_length
from trainables.layers.block_costs import FLOAT_BYTES, linear_flops
from trainables.settings import ModelSettings, Settings
from trainables.types import TaskShape

STEP_TO_FORWARD_FLOPS = 3
"""FLOPs of a training step relative to its forward pass: the backward pass costs twice the forward pass."""
STATES_BETWEEN = 1.0
"""States per position that are stored between recomputed layers, unless the model's file states the number.
"""
ADAM_COPIES = 4
"""Copies of the parameters in AdamW: weights, gradients and two moments."""


def passes(*, recomputes: bool) -> int:
    """Return the number of forward passes that cost as much as one training step."""
    return STEP_TO_FORWARD_FLOPS + recomputes


def parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters, where each shared parameter counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def depth_range(config: Settings, length: int) -> tuple[int, int]:
    """Return the least and greatest number of layers run on a sequence of `length` tokens.

    A last layer whose result is discarded counts too. For a model without a stated range the greatest number
    is measured in a run. The least number is then 1 if the model halts.
    """
    cost_function: Callable[[Settings, int], tuple[int, int]] | None = _find_cost_function(
        config, "depth_range"
    )
    if cost_function is not None:
        return cost_function(config, length)
    counts = _measured_cost(config, "Encoder", length)
    most_steps = max(1, math.ceil(counts.bound))
    return (1 if counts.halts else most_steps), most_steps


def most_layers(config: Settings, length: int) -> int:
    """Return the greatest number of layers for a sequence of `length` tokens, limited also by its length."""
    cost_function: Callable[[Settings, int], int] | None = _find_cost_function(config, "most_layers")
    return depth_range(config, length)[1] if cost_function is None else cost_function(config, length)


def bound_layers(config: Settings, length: int) -> int:
    """Return the number of layers that corresponds to the depth bound in an evaluation of `length` tokens."""
    cost_function: Callable[[Settings], int] | None = _find_cost_function(config, "bound_layers")
    return depth_range(config, length)[1] if cost_function is None else cost_function(config)


def flops(config: Settings, shape: TaskShape, length: int, layers: int) -> float:
    """Return the forward FLOPs of one input of `length` tokens when `layers` layers run on all tokens.

    A pair is assumed to have two sentences of equal length, and a task of positions to have predictions at
    all positions. An answer is assumed to have the length `answer_length` and to take as many layers as its
    input.
    """
    assert isinstance(config, ModelSettings)
    rows, tokens = _rows(shape, length)
    encoder = rows * _forward_flops(config, tokens, layers)
    if shape.head == "sequence":
        return encoder + _answer_flops(config, shape, length, layers)
    num_predictions = length if shape.head == "positions" else 1
    features = head_module(shape).FEATURES * config.width
    readout = linear_flops(num_predictions, features, config.width)
    return encoder + readout + linear_flops(num_predictions, config.width, shape.num_logits)


def _answer_flops(config: ModelSettings, shape: TaskShape, length: int, layers: int) -> float:
    tokens = answer_length(shape, length)
    decoder = _decoder_flops(config, tokens, _memory_length(config, length), layers)
    inner_flops = (
        0.0 if getattr(config, "tied_output", False) else linear_flops(tokens, config.width, config.width)
    )
    return decoder + inner_flops + linear_flops(tokens, config.width, shape.num_classes)


def _memory_length(config: Settings, length: int) -> int:
    cost_function: Callable[[Settings, int], int] | None = _find_cost_function(config, "memory_length")
    if cost_function is not None:
        return cost_function(config, length)
    if (
        _find_cost_function(config, "forward_flops") is not None
    ):  # a model that states FLOPs would state this too
        return length
    return round(_measured_cost(config, "Encoder", length).positions)


def _forward_flops(config: Settings, length: int, layers: int) -> float:
    cost_function: Callable[[Settings, int, int], float] | None = _find_cost_function(config, "forward_flops")
    if cost_function is not None:
        return cost_function(config, length, layers)
    return _scale_to_layers(_measured_cost(config, "Encoder", length), layers)


def _decoder_flops(config: Settings, length: int, memory_length: int, layers: int) -> float:
    cost_function: Callable[[Settings, int, int, int], float] | None = _find_cost_function(
        config, "decoder_flops"
    )
    if cost_function is not None:
        return cost_function(config, length, memory_length, layers)
    return _scale_to_layers(_measured_cost(config, "Decoder", length, memory_length), layers)


def _scale_to_layers(counts: MeasuredCost, layers: int) -> float:
    return counts.flops * layers / counts.computed if counts.computed else counts.flops


def _activation_bytes(config: Settings, rows: int, length: int) -> float:
    cost_function: Callable[[Settings, int, int], float] | None = _find_cost_function(
        config, "activation_bytes"
    )
    return (
        rows * _measured_cost(config, "Encoder", length).activation_bytes
        if cost_function is None
        else cost_function(config, rows, length)
    )


def _decoder_activation_bytes(config: Settings, rows: int, length: int, memory_length: int) -> float:
    cost_function: Callable[[Settings, int, int, int], float] | None = _find_cost_function(
        config, "decoder_activation_bytes"
    )
    if cost_function is not None:
        return cost_function(config, rows, length, memory_length)
    return rows * _measured_cost(config, "Decoder", length, memory_length).activation_bytes


def _find_cost_function(config: Settings, function_name: str) -> Any:
    """Return the function `function_name` of the model's file; None if the file does not define it."""
    return getattr(catalog.load("models", vars(config)["name"]), function_name, None)


def _measured_cost(config: Settings, part: Part, length: int, memory_length: int = 0) -> MeasuredCost:
    assert isinstance(config, ModelSettings)
    return measure_cost(config, part, length, memory_length)


def peak_memory_bytes(
    config: Settings,
    shape: TaskShape,
    batch_size: int,
    length: int,
    weights: int | None = None,
    *,
    recomputes: bool = False,
) -> int:
    """Return the estimated peak memory, in bytes, of one AdamW training step in 32 bits.

    The estimate is the sum of four copies of the parameters (weights, gradients, two moments), the tensors
    stored for the backward pass at the greatest number of layers, and the embedded batch with its dropout and
    START and END (3 widths per token). Early exit, shorter sequences and 16-bit autocast need less memory.

    Args:
        config: Settings of the model.
        shape: Shape of the task.
        batch_size: Sequences in the batch.
        length: Tokens per sequence.
        weights: Number of parameters if already known; else the model is built on the device `meta`.
        recomputes: Whether layers are recomputed in the backward pass. Then only the states between layers
            and the tensors of one layer at a time are stored.
    """
    assert isinstance(config, ModelSettings)
    if weights is None:
        weights = parameters(build_model(config, shape, seed=0, device="meta"))
    copies = ADAM_COPIES * FLOAT_BYTES * weights
    embedding_bytes = 3 * FLOAT_BYTES * batch_size * length * config.width
    rows, tokens = _rows(shape, length)
    activation_bytes = _activation_bytes(config, rows * batch_size, tokens)
    if recomputes:
        activation_bytes = _recomputed_bytes(config, activation_bytes, rows * batch_size, tokens)
    if shape.head == "sequence":
        activation_bytes += _answer_bytes(config, shape, batch_size, length, recomputes=recomputes)
    return round(copies + embedding_bytes + activation_bytes)


def _recomputed_bytes(config: ModelSettings, activation_bytes: float, rows: int, length: int) -> float:
    """Return the bytes that are stored if layers are recomputed: one layer, and the states between layers."""
    layers = depth_range(config, length)[1]
    cost_function: Callable[[Settings], float] | None = _find_cost_function(config, "states_between")
    states = STATES_BETWEEN if cost_function is None else cost_function(config)
    return activation_bytes / layers + layers * states * FLOAT_BYTES * rows * length * config.width


def _answer_bytes(
    config: ModelSettings, shape: TaskShape, batch_size: int, length: int, *, recomputes: bool
) -> float:
    """Return the bytes stored by decoder and readout: logits, log-probabilities, three widths per token."""
    tokens = answer_length(shape, length)
    memory = _memory_length(config, length)
    decoder = _decoder_activation_bytes(config, batch_size, tokens, memory)
    if recomputes:
        decoder = _recomputed_bytes(config, decoder, batch_size, tokens)
    readout = (6 * config.width + 2 * shape.num_classes) * tokens * batch_size
    return decoder + FLOAT_BYTES * readout


def _rows(shape: TaskShape, length: int) -> tuple[int, int]:
    """Return how many sequences the encoder reads for one input of `length` tokens, and their length."""
    return (2, (length - 1) // 2) if shape.head == "pair" else (1, length)
