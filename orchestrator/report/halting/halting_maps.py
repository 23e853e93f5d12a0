"""Read halting maps of confirm trials: which words of single examples had halted at which layer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.plan.types import Plan
from orchestrator.report.results.seed_results import MeasurementsByTrial
from orchestrator.trials import OutcomeKind, Record, by_arm

MAX_MAPS = 32
"""Maximum number of maps on a page, over all arms; more would make it slow to open."""
MAX_WORDS, MAX_LAYERS = 64, 32
"""Maximum words and layers of one input: trials store no more, and further ones in a record are ignored."""


@dataclass(frozen=True, slots=True)
class MappedPart:
    """One input, or one sentence of a pair."""

    words: tuple[str, ...]
    length: int
    """Number of words before the input was cut."""
    running: tuple[tuple[int, ...], ...]
    """By word, then layer: percentage still open, -1 if the word had halted."""

    @property
    def depths(self) -> tuple[int, ...]:
        """Return the number of executed layers of each word."""
        return tuple(sum(layer >= 0 for layer in layers) for layers in self.running)


@dataclass(frozen=True, slots=True)
class MappedExample:
    """One example in one trial."""

    split: str
    number: int
    target: str | None
    answer: str | None
    hits: int
    counts: int
    """Number of right answers, and of all answers."""
    depth: float
    """Number of executed layers; the mean over words if words halt separately."""
    meaning: str
    parts: tuple[MappedPart, ...]


@dataclass(frozen=True, slots=True)
class ArmMaps:
    """Maps of one arm, from the first finished seed that stored any."""

    arm: str
    seed: int
    record_id: str
    examples: tuple[MappedExample, ...]


@dataclass(frozen=True, slots=True)
class HaltingMaps:
    """Halting maps of all arms."""

    arms: tuple[ArmMaps, ...]
    still: tuple[str, ...]
    """Arms without maps although maps were requested: nothing halts in them."""

    @property
    def max_per_arm(self) -> int:
        """Return the maximum number of maps drawn per arm."""
        return max(1, MAX_MAPS // max(1, len(self.arms)))


def halting_maps(plan: Plan, records: Sequence[Record], measured: MeasurementsByTrial) -> HaltingMaps:
    """Return the halting maps of all arms.

    Args:
        plan: Plan of the sweep.
        records: Records of confirm trials.
        measured: Measurements of these trials.
    """
    is_requested = plan.confirm is not None and plan.confirm.halting_examples > 0
    finished_records = by_arm(
        record for record in records if record.outcome is OutcomeKind.FINISHED and record.trial_id in measured
    )
    maps = {
        arm.name: next(_maps_of_seeds(arm.name, finished_records[arm.name], measured), None)
        for arm in plan.arms
    }
    return HaltingMaps(
        arms=tuple(arm_maps for arm_maps in maps.values() if arm_maps is not None),
        still=tuple(
            arm for arm, arm_maps in maps.items() if is_requested and not arm_maps and finished_records[arm]
        ),
    )


def _maps_of_seeds(arm: str, records: Sequence[Record], measured: MeasurementsByTrial) -> Iterator[ArmMaps]:
    """Yield the maps of an arm, seed by seed."""
    for record in sorted(records, key=lambda record: record.seed):
        examples = [example for last in measured[record.trial_id][-1:] for example in last.examples]
        if maps := tuple(_parse_example(entry) for entry in examples if entry.get("kind", "map") == "map"):
            yield ArmMaps(arm, record.seed, record.trial_id, maps)


def _parse_example(data: Mapping[str, Any]) -> MappedExample:
    """Return a stored example. Raise KeyError, TypeError or ValueError if its format is wrong."""
    return MappedExample(
        split=str(data["split"]),
        number=int(data["number"]),
        target=None if data["target"] is None else str(data["target"]),
        answer=None if data["answer"] is None else str(data["answer"]),
        hits=int(data["hits"]),
        counts=int(data["counts"]),
        depth=float(data["depth"]),
        meaning=str(data["meaning"]),
        parts=tuple(_parse_part(part) for part in data["parts"][:2]),
    )


def _parse_part(data: Mapping[str, Any]) -> MappedPart:
    words = tuple(map(str, data["words"][:MAX_WORDS]))
    running = tuple(tuple(map(int, layers[:MAX_LAYERS])) for layers in data["running"][: len(words)])
    return MappedPart(words[: len(running)], int(data["length"]), running)
