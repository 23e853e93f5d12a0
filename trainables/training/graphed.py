"""Capture forward and backward passes of training steps as CUDA graphs, one for each shape of padded batches.

A GPU runs a small model faster than its host launches the kernels one by one. Therefore the kernels of a
forward and a backward pass are captured once for each number of tokens (`Filler`). They are replayed with
other tokens, labels and dropout masks. Clipping and the optimiser are not captured. `layers.constant_shapes`
defines the requirements on a captured pass. Results equal those of other passes up to rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from trainables.layers.attention.attend import seeded_generator
from trainables.layers.batch_parts import BatchPart, declare_part
from trainables.layers.constant_shapes import ConstantShapes
from trainables.layers.dropout import set_dropout_context
from trainables.seeds import derive
from trainables.training.step import Learner, split_batch, weighted_objective
from trainables.types import Batch, Output

TOKEN_STEP = 128
"""Divisor of the numbers of tokens in filled batches; large batches use a multiple of it."""
SHAPES_MAX = 32
"""Greatest number of different token counts of the filled batches in one training."""


@dataclass(frozen=True)
class Filler:
    """Rule for padding batches with filler rows that do not affect the loss.

    All filled batches with equal numbers of rows have the same width and the same number of filler rows.
    Their number of tokens is a multiple of `token_step`.
    """

    width: int
    """Number of columns in a filled batch."""
    rows: int
    """Number of filler rows in a batch."""
    token_step: int
    pad_id: int

    @classmethod
    def of(cls, rows: int, length_max: int, pad_id: int) -> "Filler":
        """Build the filler for batches of at most `rows` rows, each of at most `length_max` tokens."""
        width = max(2, length_max)
        step = TOKEN_STEP * ceil(rows * width / (TOKEN_STEP * SHAPES_MAX))
        return cls(width, ceil((step - 1) / (width - 1)), step, pad_id)

    def filled(self, batch: Batch) -> Batch:
        """Return `batch` followed by filler rows with at least one token each.

        Raises:
            ValueError: A row of the batch is longer than `width`.
        """
        if batch.tokens.shape[1] > self.width:
            raise ValueError(
                f"rows must have at most the {self.width} tokens that the task states as its longest"
                f" training input, got {batch.tokens.shape[1]}; correct length_max of the task, or drop"
                " train.graph"
            )
        num_filler_tokens = self.rows + -(int(batch.mask.sum()) + self.rows) % self.token_step
        lengths = num_filler_tokens // self.rows + (torch.arange(self.rows) < num_filler_tokens % self.rows)
        mask = torch.arange(self.width) < lengths[:, None]
        filler = torch.where(mask, batch.tokens[0, 0], self.pad_id)
        return Batch(
            torch.cat((self._pad_columns(batch.tokens, self.pad_id), filler)),
            torch.cat((self._pad_columns(batch.mask, value=False), mask)),
            torch.cat((batch.labels, batch.labels[:1].expand(self.rows, *batch.labels.shape[1:]))),
        )

    def _pad_columns(self, x: Tensor, value: int | bool) -> Tensor:
        return F.pad(x, (0, self.width - x.shape[1]), value=value)


WARM_UPS = 3
"""Number of passes before a capture. Libraries initialise themselves in these passes, and the order of
dropout masks is fixed from the second pass.
"""


class Engine(Protocol):
    """Interface for capturing and replaying passes on a device."""

    def warm_up(self, run: Callable[[], Tensor]) -> None:
        """Run a pass with the stream and the settings of a capture, as PyTorch requires before one."""

    def capture(
        self, run: Callable[[], Tensor], state_tensors: Callable[[], list[Tensor]]
    ) -> tuple[Tensor, Callable[[], None]]:
        """Capture a pass and return its result tensor and a function that replays it into the same tensor.

        `state_tensors` returns the tensors that the pass may read but does not create.
        """


class CudaEngine:
    """Captures passes as CUDA graphs that share one memory pool."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def warm_up(self, run: Callable[[], Tensor]) -> None:
        """Run a pass on the stream that captures use."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            run()
        torch.cuda.current_stream().wait_stream(self._stream)

    def capture(
        self,
        run: Callable[[], Tensor],
        state_tensors: Callable[[], list[Tensor]],  # noqa: ARG002 CUDA refuses by itself
    ) -> tuple[Tensor, Callable[[], None]]:
        """Capture a pass as a CUDA graph."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            result = run()
        return result, graph.replay


@dataclass(frozen=True)
class CapturedPass:
    """A forward and backward pass on one part of filled batches, and the memory that it reads."""

    batch: Batch
    shapes: ConstantShapes
    keys: Int[Tensor, "K 2"]
    sums: Float[Tensor, " 4"]
    """Return value of `step.compute_gradients` for the part, overwritten by each replay."""
    replay: Callable[[], None]

    def read(self, batch: Batch, keys: Int[np.ndarray, "K 2"]) -> None:
        """Copy another batch and other dropout keys into the memory that the next replay reads."""
        graph_inputs = self.batch.tokens, self.batch.mask, self.batch.labels, self.keys
        inputs = batch.tokens, batch.mask, batch.labels, torch.from_numpy(keys)
        for graph_tensor, tensor in zip(graph_inputs, inputs, strict=True):
            graph_tensor.copy_(tensor.pin_memory() if graph_tensor.is_cuda else tensor, non_blocking=True)


class GraphedPasses:
    """Forward and backward passes of a learner, captured when a batch of a new shape occurs."""

    def __init__(self, learner: Learner, filler: Filler, engine: Engine) -> None:
        self._learner = learner
        self._filler = filler
        self._engine = engine
        self._weights = [weight for weight in learner.model.parameters() if weight.requires_grad]
        self._gradients: dict[int, Tensor] = {}
        """Output tensors for gradients of captured passes, by index of the weight; unused weights
        have none.
        """
        self._passes: dict[tuple[int, BatchPart], CapturedPass] = {}

    @property
    def num_captured(self) -> int:
        """Return the number of captured passes."""
        return len(self._passes)

    def backward(self, batch: Batch, step: int) -> tuple[Tensor, ...]:
        """Store the same gradients and return the same sums as `compute_gradients`, for a host batch."""
        learner = self._learner
        parts = list(split_batch(batch, min(learner.config.parts, len(batch.labels))))
        filled_parts = [
            self._filler.filled(batch.rows(part.first_row, part.first_row + part.rows)) for part in parts
        ]
        # Passes before a capture also write gradients, so capture all parts before replaying the first.
        passes = [self._captured_pass(*part, step) for part in zip(filled_parts, parts, strict=True)]
        sums = []
        for number, (captured_pass, filled) in enumerate(zip(passes, filled_parts, strict=True)):
            captured_pass.read(filled, captured_pass.shapes.keys.values(learner.seed, step))
            key = derive(learner.seed, "dropout", step, number, "generator")
            with seeded_generator(key, learner.device):
                captured_pass.replay()
            sums.append(captured_pass.sums.clone())
        for number, gradient in self._gradients.items():
            self._weights[number].grad = gradient
        return torch.stack(sums).sum(0).unbind()

    def _captured_pass(self, filled: Batch, part: BatchPart, step: int) -> CapturedPass:
        key = int(filled.mask.sum()), part
        if key not in self._passes:
            with seeded_generator(0, self._learner.device):
                self._passes[key] = self._captured(filled, part, step)
        return self._passes[key]

    def _captured(self, filled: Batch, part: BatchPart, step: int) -> CapturedPass:
        learner, shapes = self._learner, ConstantShapes()
        batch = Batch(
            *(tensor.to(learner.device, copy=True) for tensor in (filled.tokens, filled.mask, filled.labels))
        )
        other_batch = change_lengths(filled).to(learner.device)
        for number in range(WARM_UPS):
            captured_batch = other_batch if number == 0 else batch
            self._engine.warm_up(lambda given=captured_batch: self._run_part(given, part, step, shapes, None))  # type: ignore[misc]
        keys = torch.from_numpy(shapes.keys.values(learner.seed, step)).to(learner.device)

        def known_tensors() -> list[Tensor]:
            state = [*learner.model.parameters(), *learner.model.buffers(), *self._gradients.values()]
            return [batch.tokens, batch.mask, batch.labels, keys, *state, *shapes.tensors]

        sums, replay = self._engine.capture(
            lambda: self._run_part(batch, part, step, shapes, keys), known_tensors
        )
        return CapturedPass(batch, shapes, keys, sums, replay)

    def _run_part(
        self, filled: Batch, part: BatchPart, step: int, shapes: ConstantShapes, keys: Tensor | None
    ) -> Float[Tensor, " 4"]:
        """Run a forward and a backward pass on a part of a batch; later parts add to the gradients."""
        learner, share = self._learner, part.rows / part.num_rows_in_batch
        set_dropout_context(learner.model, learner.seed, step)
        filled_part = replace(part, rows=part.rows + self._filler.rows)
        running = shapes.warming() if keys is None else shapes.capturing(keys)
        with declare_part(filled_part), running, learner.autocast(caches=False):
            total, sums = weighted_objective(_first_rows(learner.model(filled), part.rows), learner, share)
        # Run outside of the context, because CUDA runs backward passes in separate threads.
        gradients = torch.autograd.grad(total, self._weights, allow_unused=True)
        used_gradients = {number: value for number, value in enumerate(gradients) if value is not None}
        for number in used_gradients:
            if number not in self._gradients:
                self._gradients[number] = torch.zeros_like(self._weights[number])
        targets, gradients_of_part = (
            [self._gradients[number] for number in used_gradients],
            [*used_gradients.values()],
        )
        if part.first_row:
            torch._foreach_add_(targets, gradients_of_part)
        else:
            torch._foreach_copy_(targets, gradients_of_part)
        return torch.stack([value.double() for value in sums])


def change_lengths(batch: Batch) -> Batch:
    """Return a batch with the same shape and number of tokens but, if possible, other row lengths."""
    lengths, width = batch.mask.sum(1), batch.mask.shape[1]
    longest, shortest = int(lengths.argmax()), int(lengths.argmin())
    if longest == shortest:
        shortest = (longest + 1) % len(lengths)
    if lengths[longest] > 1 and lengths[shortest] < width:
        lengths[longest] -= 1
        lengths[shortest] += 1
    return replace(batch, mask=torch.arange(width) < lengths[:, None])


def _first_rows(output: Output, rows: int) -> Output:
    """Return the first `rows` rows of an output, in the fields that an objective reads."""
    encoded, uniform = output.encoded, output.uniform
    auxiliary = None if encoded.auxiliary is None else encoded.auxiliary[:rows]
    return replace(
        output,
        loss=output.loss[:rows],
        hits=output.hits[:rows],
        counts=output.counts[:rows],
        uniform=None if uniform is None else uniform[:rows],
        encoded=replace(encoded, ponder=encoded.ponder[:rows], auxiliary=auxiliary),
    )
