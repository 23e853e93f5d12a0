"""Sums over the steps between two measurements, and the check that every step is finite."""

import math
from dataclasses import fields

import torch
from jaxtyping import Float
from torch import Tensor

from trainables.metrics import Metric
from trainables.protocol import Diverged
from trainables.training.step import StepResult

STEPS_UNSEEN_ON_CUDA = 50
"""Reading a result makes the host wait for the device: on CUDA, results are read in bundles of this size."""
metrics = (
    Metric("grad_norm", low=0.0, split="train", shown=()),
    Metric(
        "skipped_steps",
        low=0.0,
        split="train",
        shown=(),
        given="is what the scaling of half precision leaves out, and tells nothing of a model",
    ),
)
_NAMES = tuple(field.name for field in fields(StepResult))


class Accumulator:
    """Adds up step results in step order; reads them from the device as rarely as it may.

    With a scaled loss (`scaled`) a gradient that is not finite belongs to a step the scaler left out: it is
    counted, not averaged, and is no divergence.
    """

    def __init__(self, *, device: torch.device, scaled: bool) -> None:
        self._unseen_max = STEPS_UNSEEN_ON_CUDA if device.type == "cuda" else 1
        self._scaled = scaled
        self._unseen: list[tuple[int, Float[Tensor, " 6"]]] = []
        self._sums = dict.fromkeys(_NAMES, 0.0)
        self._steps = 0
        self._skipped = 0

    def add(self, step: int, result: StepResult) -> None:
        """Take the result of step number `step`. Raises `Diverged`, on CUDA up to a bundle late."""
        self._unseen.append((step, result.row()))
        if len(self._unseen) >= self._unseen_max:
            self.flush()

    def flush(self) -> None:
        """Read what is still on the device. Raises `Diverged` for the first step that was not finite."""
        if not self._unseen:
            return
        rows = torch.stack([row for _, row in self._unseen]).tolist()
        for (step, _), row in zip(self._unseen, rows, strict=True):
            self._count(step, dict(zip(_NAMES, row, strict=True)))
        self._unseen.clear()

    def _count(self, step: int, values: dict[str, float]) -> None:
        skipped = self._scaled and not math.isfinite(values["gradient_norm"])
        if skipped:
            self._skipped += 1
            values["gradient_norm"] = 0.0
        if not all(map(math.isfinite, values.values())):
            # Steps are counted from 0 inside, from 1 to the outside: "after step 1" is the first one's end.
            raise Diverged(step + 1, values["loss"], values["gradient_norm"])
        for name, value in values.items():
            self._sums[name] += value
        self._steps += 1

    @property
    def tokens(self) -> float:
        """Real tokens trained on."""
        return self._sums["tokens"]

    def metrics(self) -> dict[str, float]:
        """Means over all steps added."""
        assert not self._unseen, "flush before reading"
        assert self._steps, "at least one step must be added before metrics are read"
        scaled = {"train/skipped_steps": float(self._skipped)} if self._scaled else {}
        return {
            "train/loss": self._sums["loss"] / self._steps,
            "train/accuracy": self._sums["hits"] / self._sums["counts"],
            "train/ponder": self._sums["ponder"] / self._steps,
            "train/grad_norm": self._sums["gradient_norm"] / max(1, self._steps - self._skipped),
            **scaled,
        }
