"""How deep arms think, split by split: mean over seeds, and the spread over the examples of a split."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.plan.types import Plan
from orchestrator.report.results.readings import Readings

SPREAD = ("_p10", "_p90")
"""What quantities of examples end with: a tenth of them lies below, a tenth above."""


@dataclass(frozen=True, slots=True)
class DepthCurve:
    """One arm over the splits that confirm trials read, in their order."""

    arm: str
    quantity: str
    splits: tuple[str, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    """A tenth of a split's examples are below, as a mean over seeds; `mean` where that was not measured."""
    high: tuple[float, ...]
    seeds: int

    @property
    def moves(self) -> bool:
        """Whether it is not the same everywhere: whether anything halts."""
        return len({*self.mean, *self.low, *self.high}) > 1


def depth_curves(plan: Plan, readings: Readings, splits: Sequence[str]) -> Iterator[DepthCurve]:
    """Of every quantity that counts what a model runs on an example, where arms halt by themselves."""
    counted = [each.name for each in readings.declared if each.is_cost and each.moves_with and each.shown]
    for quantity in counted:
        for arm in plan.arms:
            measured = [split for split in splits if readings.by_seed(arm.name, f"{split}/{quantity}")]
            if not measured:
                continue
            mean, low, high = (
                tuple(_mean(readings, arm.name, split, quantity, part) for split in measured)
                for part in ("", *SPREAD)
            )
            seeds = {seed for _, seed in readings.by_seed(arm.name, f"{measured[0]}/{quantity}")}
            yield DepthCurve(arm.name, quantity, tuple(measured), mean, low, high, len(seeds))


def _mean(readings: Readings, arm: str, split: str, quantity: str, part: str) -> float:
    values = readings.by_seed(arm, f"{split}/{quantity}{part}") or readings.by_seed(
        arm, f"{split}/{quantity}"
    )
    return fmean(value for value, _ in values.values())
