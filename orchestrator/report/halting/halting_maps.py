"""Read halting maps of confirm trials: which words of single examples had halted at which layer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind, Record, by_arm
from trainables.protocol import Measurement

MAX_MAPS = 32
"""Maximum number of maps on a page, over all arms; more would make it slow to open."""
WORDS, LAYERS = 64, 32
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
    def each(self) -> int:
        """Return the maximum number of maps drawn per arm."""
        return max(1, MAX_MAPS // max(1, len(self.arms)))


def halting_maps(
    plan: Plan, records: Sequence[Record], measurements_by_trial: Mapping[str, Sequence[Measurement]]
) -> HaltingMaps:
    """Return the halting maps of all arms.

    Args:
        plan: Plan of the sweep.
        records: Records of confirm trials.
        measurements_by_trial: Measurements of these trials by trial id.
    """
    is_requested = plan.confirm is not None and plan.confirm.halting_examples > 0
    done = [
        record
        for record in records
        if record.outcome is OutcomeKind.FINISHED and record.trial_id in measurements_by_trial
    ]
    of_arms = by_arm(done)
    maps_by_arm = {
        arm.name: next(_maps_of_seeds(arm.name, of_arms[arm.name], measurements_by_trial), None)
        for arm in plan.arms
    }
    finished_arms = {record.arm for record in done}
    return HaltingMaps(
        arms=tuple(arm_maps for arm_maps in maps_by_arm.values() if arm_maps is not None),
        still=tuple(
            arm
            for arm, arm_maps in maps_by_arm.items()
            if is_requested and arm_maps is None and arm in finished_arms
        ),
    )


def _maps_of_seeds(
    arm: str, records: Sequence[Record], measurements_by_trial: Mapping[str, Sequence[Measurement]]
) -> Iterator[ArmMaps]:
    """Yield the maps of an arm, seed by seed."""
    for record in sorted(records, key=lambda record: record.seed):
        last = measurements_by_trial[record.trial_id][-1:]
        maps = (
            example
            for measurement in last
            for example in measurement.examples
            if example.get("kind", "map") == "map"
        )
        examples = tuple(map(_parse_example, maps))
        if examples:
            yield ArmMaps(arm, record.seed, record.trial_id, examples)


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
    words = tuple(map(str, data["words"][:WORDS]))
    running = tuple(tuple(map(int, layers[:LAYERS])) for layers in data["running"][: len(words)])
    return MappedPart(words[: len(running)], int(data["length"]), running)
