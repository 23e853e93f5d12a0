"""How long a plan will take on this machine: from steps that were timed, or from sweeps that ran on it."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from orchestrator.cli.commands.listing import folders
from orchestrator.cli.display.running import roughly
from orchestrator.cli.locations import runs_root
from orchestrator.errors import HaltsweepError
from orchestrator.files.json_values import to_json_values
from orchestrator.files.regular_files import read_ordinary
from orchestrator.identity import SweepFolder, digest
from orchestrator.plan.types import Arm, Plan
from orchestrator.provenance import machine
from orchestrator.trials import OutcomeKind, Record
from search_spaces.wording import amount

NOT_OF_SPEED = frozenset({"steps", "lr", "schedule", "warmup_steps", "weight_decay", "ponder_weight"})
"""Training settings that change how many steps there are, or what is learnt, and not what a step takes."""
NEWEST = 20
"""Sweeps of this kind of machine that are looked at: each one's ledger takes time to read."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What trials of an arm took in a sweep that ran on this kind of machine."""

    sweep: str
    trials: int
    seconds: Mapping[str, float]
    """Of a trial in its slot, mean by phase."""
    per_step: float | None
    """Seconds a step of those that trained to their end, measuring included."""


def hours_of(plan: Plan, runs: Path | None) -> str:
    """One sentence, with its ground; empty where there is none."""
    from orchestrator.execution.slots import slots, this_machine

    at_once = slots([this_machine(None)], plan.resources)
    if not at_once:
        return ""
    beside = f", {amount(at_once, 'trial')} at a time" if at_once > 1 else ", one trial after the other"
    if timed := _timed_s(plan):
        return (
            f"About {roughly(timed / at_once)} on this machine{beside}: by the steps as timed, if no trial "
            "stops early; validation and reading under other settings are not counted."
        )
    found = _found(plan, runs)
    counted = {arm.name: took for arm in plan.arms if (took := _arm_s(plan, arm, found.get(arm.name)))}
    if not counted:
        return ""
    ran = [found[name] for name in counted]
    sweeps = ", ".join(sorted({each.sweep for each in ran}))
    ground = f"as long as {amount(sum(each.trials for each in ran), 'trial')} of such arms took in {sweeps}"
    missing = [arm.name for arm in plan.arms if arm.name not in counted]
    rest = f" Not counted, because no sweep there has run it: {', '.join(missing)}." if missing else ""
    return (
        f"About {roughly(sum(counted.values()) / at_once)} on this machine{beside}: if trials take {ground}, "
        f"on this kind of machine.{rest}"
    )


def _timed_s(plan: Plan) -> float:
    """Seconds of all steps, if those of every arm were timed; 0 if not."""
    if not plan.prices or any(each.seconds_per_step is None for each in plan.prices):
        return 0.0
    total = 0.0
    for price in plan.prices:
        trains = sum(price.trials.get(phase, 0) for phase in ("search", "confirm", "cross"))
        total += (price.seconds_per_step or 0.0) * trains * (_steps(plan.arm(price.arm)) or 0)
    return total


def _arm_s(plan: Plan, arm: Arm, ran: Ran | None) -> float:
    """Seconds of all trials of an arm; 0 where nothing says."""
    if ran is None:
        return 0.0
    steps, total = _steps(arm), 0.0
    for phase, many in Counter(each.phase for each in plan.trials if each.arm == arm.name).items():
        if phase in ran.seconds:
            total += many * ran.seconds[phase]
        elif phase != "posthoc" and ran.per_step is not None and steps is not None:
            total += many * ran.per_step * steps
        elif phase != "posthoc" and steps is None:
            return 0.0
    return total


def _found(plan: Plan, runs: Path | None) -> dict[str, Ran]:
    """By arm: the first of `_sweeps` that ran the same arm, else one in which a step takes as long."""
    exact: dict[str, Ran] = {}
    alike: dict[str, Ran] = {}
    for folder, earlier in islice(_sweeps(plan, runs), NEWEST):
        if len(exact) == len(plan.arms):
            break  # older ones would only be passed over
        same = {each.digest: each.name for each in earlier.arms}
        speeds = {_speed(each): each.name for each in earlier.arms}
        wanted = {arm.name: same.get(arm.digest) or speeds.get(_speed(arm)) for arm in plan.arms}
        if not any(wanted.values()):
            continue
        records = _records(folder)
        for arm in plan.arms:
            theirs = [each for each in records if each.arm == wanted[arm.name]]
            stopped = _stopper(plan) == _stopper(earlier)
            if (ran := _ran(earlier, theirs, by_trial=arm.digest in same, stopped=stopped)) is not None:
                (exact if arm.digest in same else alike).setdefault(arm.name, ran)
    return alike | exact


def _sweeps(plan: Plan, runs: Path | None) -> Iterator[tuple[SweepFolder, Plan]]:
    """The sweep of the plan's own name, then the newest first: those that ran on this kind of machine, with
    as much of it for a trial."""
    from orchestrator.plan.serialise import read_plan

    here, share = machine(), (plan.resources.cpus, plan.resources.gpus)
    known = folders(runs_root(runs))
    for folder in sorted(known, key=lambda each: (each.name != plan.name, -_launched_at(each))):
        try:
            there = json.loads(read_ordinary(folder.provenance))
            if {name: there.get(name) for name in here} != here:
                continue
            earlier = read_plan(folder)
        except (HaltsweepError, OSError, ValueError, AttributeError):
            continue  # of a sweep that cannot be read nothing is known
        if earlier.trainable == plan.trainable and (earlier.resources.cpus, earlier.resources.gpus) == share:
            yield folder, earlier


def _launched_at(folder: SweepFolder) -> float:
    try:
        return folder.provenance.stat().st_mtime
    except OSError:
        return 0.0


def _records(folder: SweepFolder) -> list[Record]:
    from orchestrator.cli.reading import opened

    try:
        with opened(str(folder.root), folder.root.parent) as sweep:
            return sweep.newest_records()
    except HaltsweepError:
        return []


def _stopper(plan: Plan) -> Mapping[str, Any] | None:
    return plan.search.stopper if plan.search is not None else None


def _ran(plan: Plan, records: Sequence[Record], *, by_trial: bool, stopped: bool) -> Ran | None:
    """What the trials of an arm took, begun once and ended for good; None where none did.

    `stopped`: those that ended early count too, for as many will.
    """
    ended = [
        each
        for each in records
        if each.attempts == 1 and each.last and each.outcome and each.outcome.final and each.started_at
    ]
    whole = [each for each in ended if each.outcome is OutcomeKind.FINISHED and each.phase != "posthoc"]
    if not whole:
        return None
    seconds: dict[str, list[float]] = {}
    for each in (ended if stopped else whole) if by_trial else ():
        seconds.setdefault(each.phase, []).append((each.ended_at or 0.0) - (each.started_at or 0.0))
    steps = sum(each.last.step for each in whole if each.last)
    worked = sum((each.ended_at or 0.0) - (each.started_at or 0.0) for each in whole)
    per_step = worked / steps if steps and plan.trainable is None else None
    means = {phase: sum(values) / len(values) for phase, values in seconds.items()}
    return Ran(plan.name, len(ended), means, per_step)


def _steps(arm: Arm) -> int | None:
    train: Mapping[str, Any] = arm.settings.get("train", {})
    steps = train.get("steps") if isinstance(train, Mapping) else None
    return steps if isinstance(steps, int) else None


def _speed(arm: Arm) -> str:
    """The same for arms of which a step takes as long."""
    train = arm.settings.get("train", {})
    kept = {name: value for name, value in train.items() if name not in NOT_OF_SPEED}
    return digest({**arm.settings, "train": kept}, to_json_values(arm.space))
