"""Read counts of confirm trials over many examples: depth by length and by operators, use of experts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from orchestrator.plan.types import Plan
from orchestrator.report.results.seed_results import MeasurementsByTrial
from orchestrator.report.results.statistics import estimate
from orchestrator.trials import OutcomeKind, Record

MAX_BINS, MAX_CLASSES, MAX_EXPERTS, MAX_LAYERS, MAX_WORDS = 64, 32, 256, 64, 5
"""Limits on what is read of a record: bins, classes, experts, layers, and words per expert."""


@dataclass(frozen=True, slots=True)
class DepthBin:
    """Examples of one split with a similar number of tokens or operators; depths are means over seeds."""

    fewest: int
    most: int
    examples: int
    seeds: int
    mean: float
    low: float | None
    high: float | None
    """Ends of the 95% t interval of `mean` over seeds, or repeats of the search; see `estimate`."""
    tenth: float
    """10th percentile of the depth over examples."""
    ninetieth: float


@dataclass(frozen=True, slots=True)
class BinnedDepth:
    """Depth of one arm in one split, by bin."""

    arm: str
    split: str
    bins: tuple[DepthBin, ...]

    @property
    def varies(self) -> bool:
        """Return whether the depth varies, which means that something halts."""
        depths = {depth for row in self.bins for depth in (row.mean, row.tenth, row.ninetieth)}
        return len(depths) > 1


Shares = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class ExpertUse:
    """Routing of words in one mixture of experts, from the first finished seed of an arm.

    Experts have no common order across seeds, so there is no mean over seeds.
    """

    arm: str
    seed: int
    record_id: str
    mixture: str
    examples: int
    classes: tuple[str, ...]
    uses: tuple[tuple[int, ...], ...]
    """Number of choices by class, then expert, over all layers."""
    layers: tuple[tuple[int, tuple[int, ...]], ...]
    """Number of each layer, from 1, and choices of each expert in this layer over all classes."""
    words: tuple[tuple[tuple[str, int], ...], ...]
    """Words that chose each expert most often, with their counts over all layers."""

    @property
    def shares(self) -> Shares:
        """Return the share of each expert in the choices of each class."""
        return _row_shares(self.uses)

    @property
    def layer_shares(self) -> Shares:
        """Return the share of each expert in the choices in each layer."""
        return _row_shares([uses for _, uses in self.layers])


def _row_shares(expert_uses: Sequence[Sequence[int]]) -> Shares:
    return tuple(tuple(count / max(1, sum(row)) for count in row) for row in expert_uses)


BOUND_INDEX = 8
"""Index of the mean depth bound of the examples in a stored bin."""
CountsByArm = Mapping[str, Sequence[tuple[Record, Mapping[str, Any]]]]
"""Records with a stored count, by arm; seeds ascending."""


def binned_depths(
    kind: Literal["lengths", "operators"],
    plan: Plan,
    records: Sequence[Record],
    measured: MeasurementsByTrial,
) -> Iterator[BinnedDepth]:
    """Yield binned depths, arm by arm and split by split.

    Args:
        kind: The quantity that defines the bins.
        plan: Plan of the sweep.
        records: Records of confirm trials.
        measured: Measurements of these trials.
    """
    counts_by_arm, units = _counts_of_kind(kind, records, measured), plan.units
    for arm in plan.arms:
        by_split: dict[str, dict[int, list[tuple[int, Sequence[Any]]]]] = {}
        for record, example in counts_by_arm.get(arm.name, ()):
            rows = by_split.setdefault(str(example.get("split", "")), {})
            for row in example["bins"][:MAX_BINS]:
                rows.setdefault(int(row[0]), []).append((units.get(record.seed, record.seed), row))
        for split, rows in by_split.items():
            if bins := tuple(_merge_bins(place, rows[place]) for place in sorted(rows)):
                yield BinnedDepth(arm.name, split, bins)


def _merge_bins(fewest: int, seeds: Sequence[tuple[int, Sequence[Any]]]) -> DepthBin:
    """Return one bin over seeds; each item contains the unit of a seed, and its row for the same examples."""
    rows = [row for _, row in seeds]
    mean, tenth, ninetieth = ([float(row[column]) for row in rows] for column in (3, 4, 5))
    bound = max(float(row[BOUND_INDEX]) if len(row) > BOUND_INDEX else math.inf for row in rows)
    by_unit: dict[int, list[float]] = {}
    for (unit, _), value in zip(seeds, mean, strict=True):
        by_unit.setdefault(unit, []).append(value)
    bin_estimate = estimate([*map(fmean, by_unit.values())], span=(0.0, bound))
    return DepthBin(
        fewest=fewest,
        most=max(int(row[1]) for row in rows),
        examples=int(rows[0][2]),
        seeds=bin_estimate.n,
        mean=bin_estimate.mean,
        low=bin_estimate.low,
        high=bin_estimate.high,
        tenth=fmean(tenth),
        ninetieth=fmean(ninetieth),
    )


def expert_uses(plan: Plan, records: Sequence[Record], measured: MeasurementsByTrial) -> Iterator[ExpertUse]:
    """Yield the use of experts of every arm that has experts, mixture by mixture."""
    counts_by_arm = _counts_of_kind("experts", records, measured)
    for arm in plan.arms:
        for record, example in counts_by_arm.get(arm.name, ())[:1]:
            for mixture in example["mixtures"]:
                yield ExpertUse(
                    arm=arm.name,
                    seed=record.seed,
                    record_id=record.trial_id,
                    mixture=str(mixture["name"]),
                    examples=int(example["examples"]),
                    classes=tuple(map(str, mixture["classes"][:MAX_CLASSES])),
                    uses=tuple(tuple(map(int, row[:MAX_EXPERTS])) for row in mixture["uses"][:MAX_CLASSES]),
                    layers=tuple(
                        (int(layer), tuple(map(int, row[:MAX_EXPERTS])))
                        for layer, row in mixture.get("layers", ())[:MAX_LAYERS]
                    ),
                    words=tuple(
                        tuple((str(word), int(times)) for word, times in row[:MAX_WORDS])
                        for row in mixture.get("words", ())[:MAX_EXPERTS]
                    ),
                )


def _counts_of_kind(kind: str, records: Sequence[Record], measured: MeasurementsByTrial) -> CountsByArm:
    counts_by_arm: dict[str, list[tuple[Record, Mapping[str, Any]]]] = {}
    finished_records = [record for record in records if record.outcome is OutcomeKind.FINISHED]
    for record in sorted(finished_records, key=lambda record: record.seed):
        for last in measured.get(record.trial_id, ())[-1:]:
            counts = [(record, example) for example in last.examples if example.get("kind") == kind]
            counts_by_arm.setdefault(record.arm, []).extend(counts)
    return counts_by_arm
