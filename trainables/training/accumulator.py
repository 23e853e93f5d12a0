"""Sum step results between two measurements and check that every step is finite."""

import math
from dataclasses import fields

import torch
from jaxtyping import Float
from torch import Tensor

from trainables.metrics import Metric
from trainables.protocol import Diverged
from trainables.training.step import StepResult

PENDING_STEPS_ON_CUDA = 50
"""Number of step results per read on CUDA, because each read makes the host wait for the device."""
metrics = (
    Metric("grad_norm", low=0.0, split="train", shown=()),
    Metric(
        "skipped_steps",
        low=0.0,
        split="train",
        shown=(),
        given="counts steps that the loss scaling of fp16 skipped, which is not a property of the model",
    ),
)
_NAMES = tuple(field.name for field in fields(StepResult))


class Accumulator:
    """Sums step results in step order, with as few reads from the device as possible.

    With a scaled loss (`scaled`) a gradient that is not finite marks a step that the scaler skipped. Such
    steps are counted, excluded from the mean gradient norm, and not treated as divergence.
    """

    def __init__(self, *, device: torch.device, scaled: bool) -> None:
        self._pending_max = PENDING_STEPS_ON_CUDA if device.type == "cuda" else 1
        self._scaled = scaled
        self._pending: list[tuple[int, Float[Tensor, " 6"]]] = []
        self._sums = dict.fromkeys(_NAMES, 0.0)
        self._steps = 0
        self._skipped = 0

    def add(self, step: int, result: StepResult) -> None:
        """Add the result of step number `step`. Raises `Diverged`, on CUDA some steps late."""
        self._pending.append((step, result.row()))
        if len(self._pending) >= self._pending_max:
            self.flush()

    def flush(self) -> None:
        """Read all pending results. Raises `Diverged` for the first step whose results are not finite."""
        if not self._pending:
            return
        rows = torch.stack([row for _, row in self._pending]).tolist()
        for (step, _), row in zip(self._pending, rows, strict=True):
            self._count(step, dict(zip(_NAMES, row, strict=True)))
        self._pending.clear()

    def _count(self, step: int, values: dict[str, float]) -> None:
        is_skipped = self._scaled and not math.isfinite(values["gradient_norm"])
        if is_skipped:
            self._skipped += 1
            values["gradient_norm"] = 0.0
        if not all(map(math.isfinite, values.values())):
            # Steps count from 0 internally and from 1 in messages.
            raise Diverged(step + 1, values["loss"], values["gradient_norm"])
        for name, value in values.items():
            self._sums[name] += value
        self._steps += 1

    @property
    def tokens(self) -> float:
        """Return the number of real tokens trained on."""
        return self._sums["tokens"]

    def metrics(self) -> dict[str, float]:
        """Return the training metrics of all added steps, by name."""
        assert not self._pending, "flush before reading"
        assert self._steps, "at least one step must be added before metrics are read"
        scaled = {"train/skipped_steps": float(self._skipped)} if self._scaled else {}
        return {
            "train/loss": self._sums["loss"] / self._steps,
            "train/accuracy": self._sums["hits"] / self._sums["counts"],
            "train/ponder": self._sums["ponder"] / self._steps,
            "train/grad_norm": self._sums["gradient_norm"] / max(1, self._steps - self._skipped),
            **scaled,
        }
