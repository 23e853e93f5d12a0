"""Looped Transformer: a causal block without positions, repeated as often as the problem requires.

Source: Fan et al., Looped Transformers for Length Generalization, s. 4 and App. F. From embeddings e,

    z_1 = M(e)        z_t = M(z_{t-1} + e), or M(z_{t-1}) without input injection

where M is `layers` pre-norm decoder layers. In training the task supplies T(n) with each sample, and only
z_{T(n)} is used; finished samples are removed from the batch. The setting `stop` determines the number of
loops in a test.

Published systems as settings of model and task (settings that are not listed have their defaults, for
parity):

    FOP-Loop-Adaptive             heads: 64
      -Batch, -Instance           and in tests stop: batch, stop: instance
    FOP-Loop-Adaptive-WO          injection: false
    FOP-Loop-Fixed                loops: 20
    FOP                           recurrence: unshared, loops: 20, injection: false, final_norm: end
    FOP-Pause                     FOP with task.pause_tokens: 20
    NTP, NTP-Pause                FOP, FOP-Pause with task.form: next_token
    NTP-Loop                      loops: 20 with task.form: next_token

The paper leaves these points open:

* M ends in a layer norm, as a GPT-2 does, so that the state added to e is normed (`final_norm: end` has the
  norm once, before the readout).
* The feed-forward is four times as wide as a state.
* There is no dropout, since no sample is repeated.
* The first loop gets e alone. Looped baselines also add e to each loop, stacks do not.
* T_max is `max_loops`.

Departures: attention has no biases and weights start Xavier-uniform, as in all built-in models; the GELU is
exact; the readout has a hidden layer. Eq. 2 uses all test inputs of a length for its B. `stop: batch` uses
those of a length in one batch, so its choice depends on the division of a split into batches. Set
`train.eval_batch_size` to all of them for the published rule.

One loop, that is `layers` layers, counts as one layer of depth.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Final, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from trainables.layers.block import Block, BlockSettings
from trainables.layers.block_costs import FLOAT_BYTES, block_activation_bytes, block_flops
from trainables.layers.boundaries import NoBoundaries
from trainables.layers.linear import LayerNorm
from trainables.layers.packing import Packing
from trainables.layers.tokens import Tokens
from trainables.recurrence.active_units import (
    PER_TOKEN,
    PER_UNIT,
    ActiveUnits,
    EarlyExit,
    HaltedResults,
    exit_mode,
    full_batch_indices,
)
from trainables.recurrence.result import RecurrenceResult
from trainables.settings import (
    DEPTH,
    SHARED_LAYERS_MAX,
    UNSHARED_LAYERS_MAX,
    SharedDepth,
    Small,
    UnsharedDepth,
)
from trainables.types import Encoded, Guide, TaskShape

FEEDFORWARD_RATIO = 4
NO_STEPS = "loops: task requires a task with step counts of its samples, got none; set loops to a number"

GRAPHED: Final = True
"""Whether training steps can be captured as CUDA graphs (`training.graphed`)."""


class Config(BlockSettings):
    """Settings of the looped Transformer and of the baselines it is compared with."""

    rotates: ClassVar[bool] = False
    name: Literal["looped"] = "looped"
    """The model's name."""
    width: int = Field(default=256, ge=1)
    """Size of a token's state."""
    layers: UnsharedDepth = 1
    """Number of layers of the repeated block (block depth)."""
    loops: Annotated[Literal["task"] | SharedDepth, DEPTH, Small(4)] = "task"
    """Number of repetitions of the block: T(n) as the task supplies it for each sample, or a fixed number."""
    recurrence: Literal["shared", "unshared"] = "shared"
    """One shared block, or a block with separate weights for each of a fixed number of loops."""
    injection: bool = True
    """Add the embeddings to the input of each loop after the first."""
    final_norm: Literal["loop", "end"] = "loop"
    """A layer norm at the end of each loop, or only after the last one."""
    stop: Literal["oracle", "batch", "instance"] | Annotated[int, Field(ge=1, le=SHARED_LAYERS_MAX)] = (
        "oracle"
    )
    """Stopping rule in evaluation. oracle: as many loops as in training. batch, instance: the loop of
    `max_loops` with the most confident answers, on average over the inputs of equal length in a batch, or for
    each input. A number: this number of loops. If weights are not shared, loops are at most as many as in
    training."""
    max_loops: SharedDepth = 64
    """Largest T(n), and number of loops among which confidence selects; if weights are not shared, at most as
    many as in training."""
    early_exit: EarlyExit = "auto"
    """Way in which T(n) saves computation, with equal results: finished samples are removed from the batch
    (compact), the loop ends when all are finished (batch), or `max_loops` are run (none). auto: compact on a
    CPU, batch on CUDA. No effect on a fixed number of loops."""
    feedforward_width: int | None = Field(default=None, ge=1)
    """Inner size of the feed-forward; four times the width if not given."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of elements dropped after embedding, attention and inside feed-forwards."""
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of attention weights dropped."""

    @model_validator(mode="after")
    def _blocks_can_be_counted(self) -> "Config":
        if self.recurrence == "unshared" and self.loops == "task":
            raise ValueError(
                "recurrence: unshared needs a fixed number of loops, got loops='task';"
                " set loops to a number or recurrence: shared"
            )
        if (
            self.recurrence == "unshared"
            and self.loops != "task"
            and self.loops * self.layers > UNSHARED_LAYERS_MAX
        ):
            raise ValueError(
                f"recurrence: unshared must make at most {UNSHARED_LAYERS_MAX:,} layers, got "
                f"loops={self.loops} and layers={self.layers}; use fewer"
            )
        return self

    @property
    def causal(self) -> bool:
        """True: no token attends to a later one."""
        return True

    @property
    def size_of_feedforward(self) -> int:
        """`feedforward_width`, or its default."""
        return FEEDFORWARD_RATIO * self.width if self.feedforward_width is None else self.feedforward_width

    @property
    def num_candidate_loops(self) -> int:
        """Number of loops among which the most confident one is selected."""
        return self.loops if self.recurrence == "unshared" and self.loops != "task" else self.max_loops

    @property
    def num_test_loops(self) -> int | None:
        """Number of loops of every evaluation if `stop` is a number; else None."""
        if isinstance(self.stop, str):
            return None
        return min(self.stop, self.num_candidate_loops) if self.recurrence == "unshared" else self.stop


class Body(nn.Module):
    """One loop, M in the equations: decoder layers, and a norm after them if the loop includes it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = LayerNorm(config.width) if config.final_norm == "loop" else None

    def forward(self, x: Float[Tensor, "M D"], tokens: Tokens) -> Float[Tensor, "M D"]:
        """Return the states after one loop."""
        for layer in self.layers:
            assert isinstance(layer, Block)
            x = layer(x, tokens)
        return x if self.norm is None else self.norm(x)


@dataclass(frozen=True, kw_only=True)
class LoopingRows(ActiveUnits):
    """Rows that have not run all their loops: M packed tokens in B rows."""

    tokens: Tokens
    states: Float[Tensor, "M D"] = field(metadata=PER_TOKEN)
    """z: states after the last loop."""
    inputs: Float[Tensor, "M D"] = field(metadata=PER_TOKEN)
    """e: embedded inputs."""
    steps: Int[Tensor, " B"] = field(metadata=PER_UNIT)
    """Number of loops of each row."""

    @classmethod
    def begin(cls, inputs: Float[Tensor, "M D"], packing: Packing, steps: Int[Tensor, " B"]) -> "LoopingRows":
        """Return the full batch before the first loop."""
        source, rows = full_batch_indices(packing)
        return cls(
            tokens=Tokens.unrotated(packing, causal=True),
            per_token=False,
            batch_token=source,
            batch_unit=rows,
            states=inputs,
            inputs=inputs,
            steps=steps,
        )


@dataclass(frozen=True)
class LoopResult:
    """Result of looping a batch of N rows with M packed tokens."""

    states: Float[Tensor, "M D"]
    depth: Int[Tensor, " N"]
    """Number of kept loops."""
    computed: int | Int[Tensor, " N"]
    """Number of computed loops."""
    bound: int


class Encoder(nn.Module):
    """Encoder that repeats the block on each row."""

    guided = True
    """Whether heads may pass a `Guide`: predicted positions and the number of steps of each sample."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        count = 1 if config.recurrence == "shared" or config.loops == "task" else config.loops
        self.bodies = nn.ModuleList(Body(config) for _ in range(count))
        self.boundaries = NoBoundaries()
        self.final_norm = LayerNorm(config.width) if config.final_norm == "end" else None

    def forward(
        self, x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"], guide: Guide | None = None
    ) -> Encoded:
        """Encode right-padded `x`.

        Args:
            x: Embedded tokens, (batch, length, width).
            mask: True at tokens, (batch, length).
            guide: Steps of each sample, and uncertainty of its predictions.

        Raises:
            ValueError: If `guide` lacks values that the loops or the stopping rule need.
        """
        inputs, packing = self.boundaries(x, mask)
        num_test_loops = None if self.training else self.config.num_test_loops
        if num_test_loops is not None:
            test_result = self._run_all(inputs, packing, num_test_loops)
        elif self.training or self.config.stop == "oracle":
            test_result = self._run_counted(inputs, packing, guide)
        else:
            test_result = self._most_confident(inputs, packing, x, guide)
        depth = test_result.depth.to(inputs.dtype)
        zeros = torch.zeros_like(depth)
        result = RecurrenceResult(
            test_result.states, depth, ponder=zeros, computed=zeros + test_result.computed
        )
        return result.encoded(self.boundaries, packing, x, pooling="end", bound=test_result.bound)

    def _run_counted(self, inputs: Float[Tensor, "M D"], packing: Packing, guide: Guide | None) -> LoopResult:
        """Run each row for its number of loops, fixed or supplied by the task."""
        steps, stop_steps, bound = self._row_loops(packing, guide)
        mode = exit_mode(self.config.early_exit, inputs.device.type)
        is_compact = mode == "compact" or len(stop_steps) == 1
        active_rows, num_done, halted = (
            LoopingRows.begin(inputs, packing, steps),
            0,
            HaltedResults[LoopingRows](),
        )
        for end in stop_steps:
            active_rows, num_done = self._advance(active_rows, num_done, end), end
            if not is_compact:
                halted.add(active_rows.select(active_rows.select_indices(active_rows.steps == end)))
            elif end != stop_steps[-1]:
                active_rows = halted.split_halted(active_rows, active_rows.steps > end)
        if is_compact:
            halted.add(active_rows)
        if mode == "none":
            self._advance(active_rows, num_done, bound)
        (states,) = halted.per_token(lambda rows: rows.states)
        run = {"batch": num_done, "none": bound}.get(mode, steps)
        return LoopResult(self._normed(states), steps, run, bound)

    def _run_all(self, inputs: Float[Tensor, "M D"], packing: Packing, loops: int) -> LoopResult:
        """Run every row for the same number of loops."""
        depth = torch.full_like(packing.counts, loops)
        active_rows = self._advance(LoopingRows.begin(inputs, packing, depth), 0, loops)
        return LoopResult(self._normed(active_rows.states), depth, loops, loops)

    def _row_loops(self, packing: Packing, guide: Guide | None) -> tuple[Int[Tensor, " N"], list[int], int]:
        """Return how many loops each row runs, these numbers sorted without repetitions, and their bound."""
        fixed, max_loops = self.config.loops, self.config.max_loops
        if fixed != "task":
            return torch.full_like(packing.counts, fixed), [fixed], fixed
        if guide is None or guide.steps is None:
            raise ValueError(NO_STEPS)
        stop_steps = sorted(set(guide.steps.tolist()))
        if stop_steps[0] < 1 or stop_steps[-1] > max_loops:
            raise ValueError(
                f"steps of a sample must be from 1 to max_loops, got {stop_steps[0]} to {stop_steps[-1]} and "
                f"max_loops={max_loops}; raise model.max_loops"
            )
        return guide.steps, stop_steps, max_loops

    def _advance(self, active_rows: LoopingRows, num_done: int, until: int) -> LoopingRows:
        """Run loops number `num_done` + 1 to `until`."""
        states = active_rows.states
        for number in range(num_done, until):
            body = self.bodies[number if len(self.bodies) > 1 else 0]
            is_injected = self.config.injection and number > 0
            states = body(states + active_rows.inputs if is_injected else states, active_rows.tokens)
        return replace(active_rows, states=states)

    def _most_confident(
        self, inputs: Float[Tensor, "M D"], packing: Packing, x: Float[Tensor, "N S D"], guide: Guide | None
    ) -> LoopResult:
        """Return each row after the loop that Eq. 2 selects; among equally confident loops, the first."""
        if guide is None:
            raise ValueError(
                f"stop: {self.config.stop} needs a head that predicts at given positions, got none; set "
                "stop to oracle"
            )
        zero = torch.zeros_like(packing.counts)
        active_rows = LoopingRows.begin(inputs, packing, zero)
        best_states, depth = inputs, zero
        least_uncertainty = torch.full(zero.shape, torch.inf, device=x.device)
        for number in range(1, self.config.num_candidate_loops + 1):
            active_rows = self._advance(active_rows, number - 1, number)
            states = self._normed(active_rows.states)
            uncertainty = guide.uncertainty(self.boundaries.padded(states, packing, x))
            if self.config.stop == "batch":
                uncertainty = mean_over_equals(uncertainty, packing.counts)
            # If the first value is NaN, the first loop is selected, so that a divergence is not hidden.
            is_better = (uncertainty < least_uncertainty) | (depth == 0)
            least_uncertainty, depth = (
                torch.where(is_better, uncertainty, least_uncertainty),
                torch.where(is_better, number, depth),
            )
            best_states = torch.where(packing.repeat_per_token(is_better)[:, None], states, best_states)
        bound = self.config.num_candidate_loops
        return LoopResult(best_states, depth, bound, bound)

    def _normed(self, states: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
        return states if self.final_norm is None else self.final_norm(states)


def mean_over_equals(values: Float[Tensor, " N"], keys: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return each value replaced by the mean over the values with an equal key."""
    group = torch.unique(keys, return_inverse=True)[1]
    sums, sizes = (
        torch.zeros_like(values).index_add(0, group, term) for term in (values, torch.ones_like(values))
    )
    return (sums / sizes).index_select(0, group)


def reads_steps(config: Config) -> bool:
    """Return whether the number of loops depends on the steps of samples, T(n)."""
    return config.loops == "task"


def misfit(config: Config, shape: TaskShape) -> str | None:
    """Return the reason why these settings do not fit a task, as `must ..., got ...`, or None."""
    if config.loops == "task" and shape.steps_max is None:
        return (
            "must have a fixed number of loops for a task that gives no steps of its samples, "
            "got loops='task'; set model.loops to a number"
        )
    if config.loops == "task" and shape.steps_max is not None and shape.steps_max > config.max_loops:
        return (
            f"must allow {shape.steps_max} loops, the maximum of the task's samples, "
            f"got max_loops={config.max_loops}; raise model.max_loops"
        )
    if config.stop in ("batch", "instance") and shape.head != "positions":
        return (
            f"must not be batch or instance for a task that predicts no positions, got stop={config.stop!r} "
            f"for the head {shape.head!r}; set model.stop to oracle"
        )
    return None


def depth_range(config: Config, length: int) -> tuple[int, int]:
    """Return the minimum and maximum number of loops run on a sequence in training and evaluation.

    If the task supplies T(n), it is assumed to be at most the number of input tokens, which holds for all
    problems of the paper. `early_exit: auto` is counted as compact.
    """
    trained_loops = 1, min(config.max_loops, length) if config.early_exit != "batch" else config.max_loops
    if config.loops != "task":
        trained_loops = config.loops, config.loops
    elif config.early_exit == "none":
        trained_loops = config.max_loops, config.max_loops
    if config.stop == "oracle":
        return trained_loops
    evaluated_loops = config.num_test_loops or config.num_candidate_loops
    return min(trained_loops[0], evaluated_loops), max(trained_loops[1], evaluated_loops)


def bound_layers(config: Config) -> int:
    """Return the number of loops of an evaluation in which nothing halts."""
    if config.stop != "oracle":
        return config.num_test_loops or config.num_candidate_loops
    return config.max_loops if config.loops == "task" else config.loops


def forward_flops(config: Config, length: int, layers: int) -> float:
    """Return the encoder FLOPs of one sequence of `length` tokens on which `layers` loops are run.

    The readouts that confidence requires are not counted.
    """
    return layers * config.layers * block_flops(config, None, length)


def activation_bytes(config: Config, rows: int, length: int) -> float:
    """Return the activation bytes that a training forward pass keeps for the backward pass.

    A loop keeps its layers, and its norm or its input sum. T(n) is assumed as in `depth_range`, the same for
    all rows.

    Args:
        config: Settings of the model.
        rows: Number of sequences.
        length: Number of tokens of each sequence.
    """
    if config.loops != "task":
        loops = config.loops
    else:
        loops = config.max_loops if config.early_exit == "none" else min(config.max_loops, length)
    bytes_between_loops = FLOAT_BYTES * config.width * (config.injection + (config.final_norm == "loop"))
    return loops * (
        config.layers * block_activation_bytes(config, None, rows, length)
        + rows * length * bytes_between_loops
    )
