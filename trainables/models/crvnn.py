"""Continuous Recursive Neural Network (CRvNN): a softly composed tree, at all positions in parallel.

Source: Ray Chowdhury and Caragea, Modeling Hierarchical Structures with Continuous Recursive Neural Networks,
as run in their On the Design Space Between Transformers and Recursive Neural Nets, s. 4 and 7.

Published systems as settings (settings that are not listed have their defaults: the second source's runs):

    CRvNN                              {}
    CRvNN as first published           transition_features: 64, shared_norm: true, initial: glorot,
                                       halt: {threshold: 0.01, penalty: true}
      its dropouts on ListOps          dropout: 0.3, cell_dropout: 0.1, readout_dropout: 0.2
      its dropouts on logical inference  readout_dropout: 0.3
    with the retriever of Eq. 13       retriever: product
    - modulation                       modulated: false
    - transition features              transition_features: null
    - halt penalty                     halt: {penalty: false}
    - GELU                             activation: relu
    LSTM cell                          cell: lstm, tanh_gelu: true
    left to right                      structure: left-to-right, tanh_gelu: true
    balanced                           structure: balanced
    no halt                            halt: null

A row halts when at most one of its tokens exists with a probability above the threshold, and runs at most as
many steps as it has tokens. The released code lets a row run one more if its batch contains a longer row, and
builds balanced trees by the padded length. The halt penalty is -log of the last token's share of the total
existence. It is the auxiliary cost of rows that reached their maximum number of steps;
`train.auxiliary_weight` is its weight, 0.01 as published. The representation is the state of the last token.

All ablations except the last are from the first source, and modify the system as it was first published. Its
GELU is exact, with two exceptions that use the tanh approximation: in the scores with the LSTM cell, and in
the cell for left to right.

Three dropouts are published: of inputs (embeddings, `dropout`), hidden (inside the cell, `cell_dropout`) and
of outputs (`readout_dropout`). In the LSTM cell the hidden dropout is applied to the logits of the gates.
Difference from the second source: the readout is that of all built-in models, which has a ReLU instead of a
GELU.
"""

from math import ceil, log2
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import relu

from trainables.layers.block_costs import FLOAT_BYTES, linear_flops
from trainables.layers.boundaries import NUM_BOUNDARIES, Boundaries
from trainables.layers.linear import Constant
from trainables.layers.packing import Packing, pack
from trainables.recurrence.active_units import EarlyExit, exit_mode
from trainables.recurrence.cells import Activation, GatedRecursiveCell, Initial, LstmCell, RecursiveCell, gelu
from trainables.recurrence.composition import (
    EPSILON,
    Composition,
    CompositionResult,
    Scorer,
    compose_balanced,
    compose_left_to_right,
)
from trainables.recurrence.neighbours import Retriever
from trainables.settings import ModelSettings, Reach, Settings, Small
from trainables.types import Encoded


class CompositionHaltSettings(Settings):
    """Halting rule of composition."""

    threshold: Annotated[float, Small(0.3, 0.1)] = Field(default=0.1, gt=0, lt=1)
    """A row halts when at most one token exists with a probability above this value."""
    penalty: bool = False
    """Add an auxiliary cost for sequences that do not halt before their maximum number of steps."""


class Config(ModelSettings):
    """Settings of the continuous recursive network."""

    name: Literal["crvnn"] = "crvnn"
    """The model's name."""
    width: int = Field(default=128, ge=1)
    """Size of a token's state."""
    structure: Literal["latent", "left-to-right", "balanced"] = "latent"
    """The tree is latent and learned, or fixed; all fields from `retriever` on apply only to the latent
    tree."""
    cell: Literal["grc", "lstm"] = "grc"
    """Cell that composes two states: the gated recursive cell, or a tree LSTM."""
    cell_width: Annotated[int | None, Small(None, 7)] = Field(default=None, ge=1)
    """Inner size of the gated recursive cell; four times the width if not given."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of elements of embeddings dropped: the input dropout."""
    cell_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of elements dropped inside the cell: the hidden dropout."""
    readout_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of elements dropped from the input of the readout, and again inside it: the output dropout."""
    activation: Activation = "gelu"
    """Activation of the gated recursive cell."""
    tanh_gelu: bool = False
    """Approximate every GELU by a tanh (within 0.0005), as the first source does with its LSTM cell and its
    left-to-right structure."""
    initial: Initial = "uniform"
    """Initial weights and biases: uniform in +-1/sqrt(inputs), or Glorot-uniform with biases nearly zero, as
    in the first source."""
    shared_norm: bool = False
    """The gated recursive cell uses one norm for leaves and parents."""
    retriever: Retriever = "additive"
    """Form of soft neighbours: additive as in the published runs, or the product that the paper prints."""
    window: Annotated[int, Reach(lambda longest: 2 * longest - 1), Small(5, 7)] = Field(default=5, ge=1)
    """Number of soft neighbours that a decision reads, the position itself included; odd."""
    modulated: bool = True
    """Composition at a position competes with composition at both neighbours."""
    transition_features: Annotated[int | None, Small(None, 5)] = Field(default=None, ge=1)
    """Size of the features that encode how much was composed into a position in the last step; null removes
    them."""
    halt: CompositionHaltSettings | None = CompositionHaltSettings()
    """Halting rule of composition; null runs as many steps as there are tokens."""
    early_exit: EarlyExit = "auto"
    """Way in which halting saves computation, with equal results: halted sequences are removed from the batch
    (compact), the loop ends when all have halted (batch), or all steps are run (none). auto: compact on a
    CPU, batch on CUDA. No effect if nothing halts."""

    @model_validator(mode="after")
    def _parts_exist(self) -> "Config":
        if self.window % 2 == 0:
            raise ValueError(f"window must be odd, to extend equally to both sides, got window={self.window}")
        if self.cell == "lstm" and (self.cell_width, self.activation, self.shared_norm) != (
            None,
            "gelu",
            False,
        ):
            raise ValueError(
                "cell_width, activation and shared_norm belong to cell: grc, got cell='lstm' with"
                f" cell_width={self.cell_width}, activation={self.activation!r} and"
                f" shared_norm={self.shared_norm}; drop them"
            )
        return self

    @property
    def size_of_cell(self) -> int:
        """`cell_width`, or its default."""
        return 4 * self.width if self.cell_width is None else self.cell_width


class Encoder(nn.Module):
    """Encoder that composes each sequence into the state of its last token."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.cell = _cell(config)
        is_latent = config.structure == "latent"
        self.boundaries = Boundaries(config.width) if is_latent else None
        self.scorer = _scorer(config) if is_latent else None
        is_left_to_right = config.structure == "left-to-right"
        self.start = Constant(self.cell.state_width, value=0.0) if is_left_to_right else None

    def forward(self, x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"]) -> Encoded:
        """Encode right-padded `x`, (batch, length, width); `mask` is True at tokens."""
        if self.boundaries is None or self.scorer is None:
            return self._compose_fixed_tree(x, mask)
        states, packing = self.boundaries(x, mask)
        halt = self.config.halt
        composition = Composition(
            self.cell,
            self.scorer,
            self.config.retriever,
            self.config.window,
            self.config.modulated,
            None if halt is None else halt.threshold,
            exit_mode(self.config.early_exit, x.device.type),
        )
        result = composition.run(self.cell.begin(states), packing)
        hidden_states = self.cell.hidden(result.states)
        depth, computed, bound = (
            count.to(x.dtype) for count in (result.num_kept, result.run, packing.counts - NUM_BOUNDARIES)
        )
        return Encoded(
            states=self.boundaries.padded(hidden_states, packing, x),
            pooled=hidden_states.index_select(0, packing.starts[1:] - NUM_BOUNDARIES),
            depth=depth,
            ponder=torch.zeros_like(depth),
            computed=computed,
            bound=bound,
            auxiliary=_penalty(result, packing) if halt is not None and halt.penalty else None,
        )

    def _compose_fixed_tree(self, x: Tensor, mask: Tensor) -> Encoded:
        vectors, packing = pack(x, mask)
        leaf_states = self.cell.begin(vectors)
        if self.start is None:
            states = compose_balanced(self.cell, leaf_states, packing)
        else:
            states = compose_left_to_right(self.cell, self.start(), leaf_states, packing)
        hidden_states = self.cell.hidden(states)
        levels = [_levels(self.config, length) for length in packing.counts.tolist()]
        depth = torch.tensor(levels, dtype=x.dtype, device=x.device)
        num_missing = x.shape[1] - packing.width
        return Encoded(
            states=nn.functional.pad(packing.pad(hidden_states), (0, 0, 0, num_missing)),
            pooled=hidden_states.index_select(0, packing.starts[1:] - 1),
            depth=depth,
            ponder=torch.zeros_like(depth),
            computed=depth,
            bound=depth,
        )


def _cell(config: Config) -> RecursiveCell:
    if config.cell == "lstm":
        return LstmCell(config.width, config.cell_dropout, initial=config.initial)
    return GatedRecursiveCell(
        config.width,
        config.size_of_cell,
        config.cell_dropout,
        activation=gelu(tanh=config.tanh_gelu) if config.activation == "gelu" else relu,
        shared_norm=config.shared_norm,
        initial=config.initial,
    )


def _scorer(config: Config) -> Scorer:
    return Scorer(
        config.width,
        config.window,
        config.transition_features,
        initial=config.initial,
        tanh_gelu=config.tanh_gelu,
    )


def _penalty(result: CompositionResult, packing: Packing) -> Float[Tensor, " B"]:
    """Return the halt penalty of rows that ran all their steps: -log of the last token's share; else 0."""
    exist = packing.pad(result.exist)
    tokens = packing.counts - NUM_BOUNDARIES
    last_existence = exist.gather(1, tokens[:, None]).squeeze(1)
    total = exist.sum(1) - NUM_BOUNDARIES + EPSILON * tokens
    return torch.where(result.unfinished, -(last_existence / total + EPSILON).log(), 0.0)


def _levels(config: Config, length: int) -> int:
    """Return the number of steps on a sequence of `length` tokens if nothing halts."""
    return ceil(log2(length)) if config.structure == "balanced" else length


def depth_range(config: Config, length: int) -> tuple[int, int]:
    """Return the minimum and maximum number of steps run on a sequence of `length` tokens."""
    num_layers_max = _levels(config, length)
    can_halt = config.structure == "latent" and config.halt is not None and config.early_exit != "none"
    return (1 if can_halt else num_layers_max), num_layers_max


def forward_flops(config: Config, length: int, layers: int) -> float:
    """Return the encoder FLOPs of one sequence of `length` tokens on which `layers` steps are run."""
    width, cell = config.width, _cell_flops(config)
    leaf = linear_flops(1, width, width if config.cell == "grc" else 2 * width)
    if config.structure == "balanced":
        return length * leaf + (length - 1) * cell
    if config.structure == "left-to-right":
        return length * leaf + layers * cell
    tokens, reach = length + NUM_BOUNDARIES, config.window // 2
    scorer_width = config.window * width + (config.transition_features or 0)
    neighbour_widths = (width if config.cell == "grc" else 2 * width) + (max(0, reach - 1) + reach) * width
    step = linear_flops(tokens, tokens, neighbour_widths) + tokens * cell
    return tokens * leaf + layers * (step + linear_flops(tokens, scorer_width + 1, width))


def _cell_flops(config: Config) -> float:
    """Return the FLOPs of one composition."""
    if config.cell == "lstm":
        return linear_flops(1, 2 * config.width, 5 * config.width)
    return linear_flops(1, 6 * config.width, config.size_of_cell)


def activation_bytes(config: Config, rows: int, length: int) -> float:
    """Return the activation bytes that a forward pass keeps for the backward pass if nothing halts early.

    A composition keeps both states, gates, the terms of their sum and the mix with the previous state (12
    widths, and two copies of the hidden layer; 17 widths in the LSTM, which has no hidden layer), and a byte
    for each element its dropout may drop. A decision keeps its window and intermediate results (4 widths
    more). A pair of positions keeps both neighbour matrices and their inputs (4 numbers; 10 for the product
    form).

    Args:
        config: Settings of the model.
        rows: Number of sequences.
        length: Number of tokens of each sequence.
    """
    width = config.width
    masks = 5 * width if config.cell == "lstm" else config.size_of_cell
    floats = 17 * width if config.cell == "lstm" else 12 * width + 2 * config.size_of_cell
    composition_bytes = FLOAT_BYTES * floats + (masks if config.cell_dropout else 0)
    if config.structure != "latent":
        return float(rows * length * (composition_bytes + 3 * FLOAT_BYTES * width))
    tokens = length + NUM_BOUNDARIES
    pairs = tokens * FLOAT_BYTES * (4.0 if config.retriever == "additive" else 10.0)
    return rows * length * tokens * (composition_bytes + FLOAT_BYTES * (config.window + 4) * width + pairs)
