"""What a model costs before it runs: parameters, FLOPs, memory. Formulas live beside what they describe.

A model file may state its own costs in three functions: `depth_range(config, length)`, the least and greatest
number of layers a sequence of `length` tokens can make it run; `forward_flops(config, length, layers)`; and
`saved_bytes(config, rows, length)`, what its forward pass keeps for the backward pass when no unit halts
early. A model with a decoder adds `decoder_flops(config, length, memory_length, layers)` and
`decoder_saved_bytes(config, rows, length, memory_length)` for answers of `length` tokens, and where its
encoder returns more states than there are tokens `memory_length(config, length)`. One that keeps more than a
state a layer and position, where layers are run again in the backward pass, says how many in
`states_between(config)`. One whose layers are also bounded by how long a sequence is says so in
`most_layers(config, length)`; depths are given as shares of those in `depth_range`, or of
`bound_layers(config)` if the depth of an evaluation is bounded otherwise. What a file does not state is
counted (`trainables.counting`); at another number of layers than were run when counting, FLOPs are taken to
grow evenly with the layers.
"""

import math
from collections.abc import Callable
from typing import Any

from torch import nn

from trainables import catalog
from trainables.assembly import Part, build_model, head_module
from trainables.counting import Counted, counted
from trainables.data.synthetic import answer_length
from trainables.layers.block_costs import FLOAT_BYTES, linear_flops
from trainables.settings import ModelSettings, Settings
from trainables.types import TaskShape

GROUPS = (
    "embedding",
    "boundaries",
    "memory",
    "recall",
    "attention",
    "feedforward",
    "gate",
    "norm",
    "halt",
    "cell",
    "scorer",
    "start",
    "readout",
)
BACKWARD = 3
"""FLOPs of a training step over those of its forward pass: the backward pass costs twice the forward one."""
STATES_BETWEEN = 1.0
"""States a position that stay between layers which are run again, where a model's file does not state it."""
ADAM_COPIES = 4
"""Weights, gradients and the two moments of AdamW."""


def passes(*, recomputes: bool) -> int:
    """Forward passes that a training step costs; one more where layers are run again for the backward one."""
    return BACKWARD + recomputes


def parameters(model: nn.Module) -> int:
    """Trainable parameters, each counted once however often it is shared."""
    return sum(parameter.numel() for parameter in model.parameters())


def parameters_by_group(model: nn.Module) -> dict[str, int]:
    """Parameters of each kind of part that is there; sums to `parameters(model)`."""
    found = dict.fromkeys((*GROUPS, "other"), 0)
    for name, parameter in model.named_parameters():
        found[_group(name)] += parameter.numel()
    assert sum(found.values()) == parameters(model)
    return {group: count for group, count in found.items() if count}


def depth_range(config: Settings, length: int) -> tuple[int, int]:
    """Least and greatest number of layers run on a sequence of `length` tokens, an undone step included.

    A model that does not state it can run as many as it says when it runs, and where it halts as few as one.
    """
    stated: Callable[[Settings, int], tuple[int, int]] | None = _stated(config, "depth_range")
    if stated is not None:
        return stated(config, length)
    found = _counted(config, "Encoder", length)
    most = max(1, math.ceil(found.bound))
    return (1 if found.halts else most), most


def most_layers(config: Settings, length: int) -> int:
    """Most layers that a sequence of `length` tokens can run, its own length among what bounds them."""
    stated: Callable[[Settings, int], int] | None = _stated(config, "most_layers")
    return depth_range(config, length)[1] if stated is None else stated(config, length)


def bound_layers(config: Settings, length: int) -> int:
    """Layers that the bound of a depth stands for in an evaluation of `length` tokens."""
    stated: Callable[[Settings], int] | None = _stated(config, "bound_layers")
    return depth_range(config, length)[1] if stated is None else stated(config)


def flops(config: Settings, shape: TaskShape, length: int, layers: int) -> float:
    """Forward FLOPs of one input of `length` tokens when `layers` layers are run on all of it.

    A pair is taken to have two sentences of equal length; a task of positions to have predictions at all of
    them; an answer to be as long as `answer_length` has it, and to take as many layers as its input.
    """
    assert isinstance(config, ModelSettings)
    rows, tokens = _rows(shape, length)
    encoder = rows * _forward_flops(config, tokens, layers)
    if shape.head == "sequence":
        return encoder + _answer_flops(config, shape, length, layers)
    asked = length if shape.head == "positions" else 1
    features = head_module(shape).FEATURES * config.width
    readout = linear_flops(asked, features, config.width)
    return encoder + readout + linear_flops(asked, config.width, shape.num_logits)


def _answer_flops(config: ModelSettings, shape: TaskShape, length: int, layers: int) -> float:
    tokens = answer_length(shape, length)
    decoder = _decoder_flops(config, tokens, _memory_length(config, length), layers)
    inner = 0.0 if getattr(config, "tied_output", False) else linear_flops(tokens, config.width, config.width)
    return decoder + inner + linear_flops(tokens, config.width, shape.num_classes)


def _memory_length(config: Settings, length: int) -> int:
    stated: Callable[[Settings, int], int] | None = _stated(config, "memory_length")
    if stated is not None:
        return stated(config, length)
    if _stated(config, "forward_flops") is not None:  # it would state this too
        return length
    return round(_counted(config, "Encoder", length).positions)


def _forward_flops(config: Settings, length: int, layers: int) -> float:
    stated: Callable[[Settings, int, int], float] | None = _stated(config, "forward_flops")
    if stated is not None:
        return stated(config, length, layers)
    return _at_layers(_counted(config, "Encoder", length), layers)


def _decoder_flops(config: Settings, length: int, memory_length: int, layers: int) -> float:
    stated: Callable[[Settings, int, int, int], float] | None = _stated(config, "decoder_flops")
    if stated is not None:
        return stated(config, length, memory_length, layers)
    return _at_layers(_counted(config, "Decoder", length, memory_length), layers)


def _at_layers(found: Counted, layers: int) -> float:
    return found.flops * layers / found.computed if found.computed else found.flops


def _saved_bytes(config: Settings, rows: int, length: int) -> float:
    stated: Callable[[Settings, int, int], float] | None = _stated(config, "saved_bytes")
    return (
        rows * _counted(config, "Encoder", length).saved_bytes
        if stated is None
        else stated(config, rows, length)
    )


def _decoder_saved_bytes(config: Settings, rows: int, length: int, memory_length: int) -> float:
    stated: Callable[[Settings, int, int, int], float] | None = _stated(config, "decoder_saved_bytes")
    if stated is not None:
        return stated(config, rows, length, memory_length)
    return rows * _counted(config, "Decoder", length, memory_length).saved_bytes


def _stated(config: Settings, what: str) -> Any:
    """The function by which the model's file states it; None if it does not."""
    return getattr(catalog.load("models", vars(config)["name"]), what, None)


def _counted(config: Settings, part: Part, length: int, memory_length: int = 0) -> Counted:
    assert isinstance(config, ModelSettings)
    return counted(config, part, length, memory_length)


def peak_memory_bytes(
    config: Settings,
    shape: TaskShape,
    batch_size: int,
    length: int,
    weights: int | None = None,
    *,
    recomputes: bool = False,
) -> int:
    """Estimated peak of one AdamW training step in 32 bits, on `batch_size` sequences of `length` tokens.

    Four copies of the parameters (weights, gradients, two moments), what the greatest number of layers keeps
    for the backward pass, and the embedded batch with its dropout and START and END (3 widths a token). Early
    exit, shorter sequences and 16-bit autocast make it less. `recomputes`: layers are run again, so that of
    one at a time all is kept, and the states between them. `weights` is the number of parameters, where it
    is known already; else the model is built on the device `meta`.
    """
    assert isinstance(config, ModelSettings)
    if weights is None:
        weights = parameters(build_model(config, shape, seed=0, device="meta"))
    copies = ADAM_COPIES * FLOAT_BYTES * weights
    embedded = 3 * FLOAT_BYTES * batch_size * length * config.width
    rows, tokens = _rows(shape, length)
    saved = _saved_bytes(config, rows * batch_size, tokens)
    if recomputes:
        saved = _between(config, saved, rows * batch_size, tokens)
    if shape.head == "sequence":
        saved += _answer_bytes(config, shape, batch_size, length, recomputes=recomputes)
    return round(copies + embedded + saved)


def _between(config: ModelSettings, saved: float, rows: int, length: int) -> float:
    """Of `saved` bytes of all layers those of one, and the states between all of them."""
    layers = depth_range(config, length)[1]
    stated: Callable[[Settings], float] | None = _stated(config, "states_between")
    states = STATES_BETWEEN if stated is None else stated(config)
    return saved / layers + layers * states * FLOAT_BYTES * rows * length * config.width


def _answer_bytes(
    config: ModelSettings, shape: TaskShape, batch_size: int, length: int, *, recomputes: bool
) -> float:
    """What decoder and readout keep: logits and their logarithms beside three widths a token."""
    tokens = answer_length(shape, length)
    memory = _memory_length(config, length)
    decoder = _decoder_saved_bytes(config, batch_size, tokens, memory)
    if recomputes:
        decoder = _between(config, decoder, batch_size, tokens)
    readout = (6 * config.width + 2 * shape.num_classes) * tokens * batch_size
    return decoder + FLOAT_BYTES * readout


def _rows(shape: TaskShape, length: int) -> tuple[int, int]:
    """How many sequences an input of `length` tokens is to the encoder, and their length."""
    return (2, (length - 1) // 2) if shape.head == "pair" else (1, length)


def _group(name: str) -> str:
    parts = name.split(".")
    if any(part.endswith("norm") for part in parts):
        return "norm"
    return next((part for part in parts if part in GROUPS), "other")
