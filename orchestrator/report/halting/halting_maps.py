"""What confirm trials kept of single examples: which words had halted at which layer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind, Record, by_arm
from trainables.protocol import Measurement

DRAWN = 32
"""Maps on a page, over all arms: more would make it slow to open."""
WORDS, LAYERS = 64, 32
"""At most of one input: trials keep no more, and of a record from elsewhere no more is read."""


@dataclass(frozen=True, slots=True)
class MappedPart:
    """One input, or one sentence of a pair."""

    words: tuple[str, ...]
    length: int
    """Words before the input was cut."""
    running: tuple[tuple[int, ...], ...]
    """By word, then layer: what was still open in percent, -1 where the word had halted."""

    @property
    def depths(self) -> tuple[int, ...]:
        """Layers kept of each word."""
        return tuple(sum(each >= 0 for each in layers) for layers in self.running)


@dataclass(frozen=True, slots=True)
class MappedExample:
    """One example under one trial."""

    split: str
    number: int
    target: str | None
    answer: str | None
    hits: int
    counts: int
    """Right answers, and all that were asked for."""
    depth: float
    """Layers kept, the mean over words where they halt one by one."""
    meaning: str
    parts: tuple[MappedPart, ...]


@dataclass(frozen=True, slots=True)
class ArmMaps:
    """Of one arm the first seed that finished and kept any."""

    arm: str
    seed: int
    record_id: str
    examples: tuple[MappedExample, ...]


@dataclass(frozen=True, slots=True)
class HaltingMaps:
    """Of all arms."""

    arms: tuple[ArmMaps, ...]
    still: tuple[str, ...]
    """Arms that kept none though they were asked to: nothing halts in them."""

    @property
    def each(self) -> int:
        """Maps that are drawn of an arm."""
        return max(1, DRAWN // max(1, len(self.arms)))


def halting_maps(
    plan: Plan, records: Sequence[Record], measured: Mapping[str, Sequence[Measurement]]
) -> HaltingMaps:
    """`records`: of confirm trials; `measured`: what they measured, by trial id."""
    asked = plan.confirm is not None and plan.confirm.halting_examples > 0
    done = [each for each in records if each.outcome is OutcomeKind.FINISHED and each.trial_id in measured]
    of_arms = by_arm(done)
    found = {arm.name: next(_kept(arm.name, of_arms[arm.name], measured), None) for arm in plan.arms}
    ran = {each.arm for each in done}
    return HaltingMaps(
        arms=tuple(each for each in found.values() if each is not None),
        still=tuple(arm for arm, each in found.items() if asked and each is None and arm in ran),
    )


def _kept(
    arm: str, records: Sequence[Record], measured: Mapping[str, Sequence[Measurement]]
) -> Iterator[ArmMaps]:
    """Seed by seed."""
    for record in sorted(records, key=lambda each: each.seed):
        last = measured[record.trial_id][-1:]
        maps = (each for one in last for each in one.examples if each.get("kind", "map") == "map")
        examples = tuple(map(_example, maps))
        if examples:
            yield ArmMaps(arm, record.seed, record.trial_id, examples)


def _example(kept: Mapping[str, Any]) -> MappedExample:
    """Raises KeyError, TypeError or ValueError for what no trial of ours keeps."""
    return MappedExample(
        split=str(kept["split"]),
        number=int(kept["number"]),
        target=None if kept["target"] is None else str(kept["target"]),
        answer=None if kept["answer"] is None else str(kept["answer"]),
        hits=int(kept["hits"]),
        counts=int(kept["counts"]),
        depth=float(kept["depth"]),
        meaning=str(kept["meaning"]),
        parts=tuple(_part(each) for each in kept["parts"][:2]),
    )


def _part(kept: Mapping[str, Any]) -> MappedPart:
    words = tuple(map(str, kept["words"][:WORDS]))
    running = tuple(tuple(map(int, layers[:LAYERS])) for layers in kept["running"][: len(words)])
    return MappedPart(words[: len(running)], int(kept["length"]), running)
