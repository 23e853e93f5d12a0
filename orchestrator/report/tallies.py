"""What confirm trials counted on many examples: depth by number of operators, experts by class of word."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind, Record
from trainables.protocol import Measurement

CLASSES, EXPERTS = 32, 256
"""At most that are read of a record from elsewhere."""


@dataclass(frozen=True, slots=True)
class OperatorBin:
    """Examples with so many operators, as means over seeds."""

    fewest: int
    most: int
    examples: int
    mean: float
    low: float
    """A tenth of the examples are below."""
    high: float


@dataclass(frozen=True, slots=True)
class OperatorDepth:
    """Depth of one arm by the number of operators of an example."""

    arm: str
    seeds: int
    bins: tuple[OperatorBin, ...]

    @property
    def moves(self) -> bool:
        """Whether anything halts."""
        return len({depth for each in self.bins for depth in (each.mean, each.low, each.high)}) > 1


@dataclass(frozen=True, slots=True)
class ExpertUse:
    """How one mixture of one trial routed its words, the first seed of an arm that finished.

    Experts have no order that seeds share: there is no mean over seeds.
    """

    arm: str
    seed: int
    record_id: str
    mixture: str
    examples: int
    classes: tuple[str, ...]
    uses: tuple[tuple[int, ...], ...]
    """By class, then expert: how often it was chosen."""

    @property
    def shares(self) -> tuple[tuple[float, ...], ...]:
        """Of the choices of each class, which part each expert got."""
        return tuple(tuple(each / max(1, sum(row)) for each in row) for row in self.uses)


Kept = Mapping[str, Sequence[tuple[Record, Mapping[str, Any]]]]
"""By arm, seeds ascending."""


def operator_depths(
    plan: Plan, records: Sequence[Record], measured: Mapping[str, Sequence[Measurement]]
) -> Iterator[OperatorDepth]:
    """`records`: of confirm trials; `measured`: what they measured, by trial id."""
    kept = _of_kind("operators", records, measured)
    for arm in plan.arms:
        found = [_bins(each) for _, each in kept.get(arm.name, ())]
        places = sorted({place for each in found for place in each})
        bins = tuple(_mean([each[place] for each in found if place in each]) for place in places)
        if bins:
            yield OperatorDepth(arm.name, len(found), bins)


def _bins(kept: Mapping[str, Any]) -> dict[int, OperatorBin]:
    made = (
        OperatorBin(int(low), int(high), int(examples), float(mean), float(p10), float(p90))
        for low, high, examples, mean, p10, p90, *_ in kept["bins"]
    )
    return {each.fewest: each for each in made}


def _mean(bins: Sequence[OperatorBin]) -> OperatorBin:
    mean, low, high = (fmean(getattr(each, name) for each in bins) for name in ("mean", "low", "high"))
    first = bins[0]
    return OperatorBin(first.fewest, max(each.most for each in bins), first.examples, mean, low, high)


def expert_uses(
    plan: Plan, records: Sequence[Record], measured: Mapping[str, Sequence[Measurement]]
) -> Iterator[ExpertUse]:
    """Of every arm that has experts, mixture by mixture."""
    kept = _of_kind("experts", records, measured)
    for arm in plan.arms:
        for record, each in kept.get(arm.name, ())[:1]:
            for mixture in each["mixtures"]:
                yield ExpertUse(
                    arm=arm.name,
                    seed=record.seed,
                    record_id=record.trial_id,
                    mixture=str(mixture["name"]),
                    examples=int(each["examples"]),
                    classes=tuple(map(str, mixture["classes"][:CLASSES])),
                    uses=tuple(tuple(map(int, row[:EXPERTS])) for row in mixture["uses"][:CLASSES]),
                )


def _of_kind(kind: str, records: Sequence[Record], measured: Mapping[str, Sequence[Measurement]]) -> Kept:
    found: dict[str, list[tuple[Record, Mapping[str, Any]]]] = {}
    done = [each for each in records if each.outcome is OutcomeKind.FINISHED]
    for record in sorted(done, key=lambda each: each.seed):
        for last in measured.get(record.trial_id, ())[-1:]:
            own = [(record, each) for each in last.examples if each.get("kind") == kind]
            found.setdefault(record.arm, []).extend(own)
    return found
