"""Estimate the duration of a plan on this machine, from timed steps or from earlier sweeps."""

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
from orchestrator.files.regular_files import read_regular
from orchestrator.identity import SweepFolder, digest
from orchestrator.plan.types import Arm, Plan
from orchestrator.provenance import machine
from orchestrator.trials import OutcomeKind, Record
from search_spaces.wording import amount

NOT_OF_SPEED = frozenset({"steps", "lr", "schedule", "warmup_steps", "weight_decay", "ponder_weight"})
"""Training settings that change the number of steps or the result, but not the time per step."""
NEWEST = 20
"""Maximum number of earlier sweeps that are read, since reading a ledger takes time."""


@dataclass(frozen=True, slots=True)
class Ran:
    """Durations of trials of an arm in an earlier sweep on the same kind of machine."""

    sweep: str
    trials: int
    seconds: Mapping[str, float]
    """Mean seconds of a trial in its slot, by phase."""
    per_step: float | None
    """Seconds per step of trials that trained to their end, including evaluation."""


def hours_of(plan: Plan, runs: Path | None) -> str:
    """Return a sentence with the estimated duration and its basis; empty without an estimate."""
    from orchestrator.execution.slots import count_slots, local_resources

    at_once = count_slots([local_resources(None)], plan.resources)
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
    """Return the seconds of all steps; 0 unless the steps of every arm were timed."""
    if not plan.prices or any(each.seconds_per_step is None for each in plan.prices):
        return 0.0
    total = 0.0
    for price in plan.prices:
        trains = sum(price.trials.get(phase, 0) for phase in ("search", "confirm", "cross"))
        total += (price.seconds_per_step or 0.0) * trains * (_steps(plan.arm(price.arm)) or 0)
    return total


def _arm_s(plan: Plan, arm: Arm, ran: Ran | None) -> float:
    """Return the estimated seconds of all trials of an arm; 0 without an estimate."""
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
    """Return earlier durations by arm, from a sweep with the same arm or one with equal time per step."""
    exact: dict[str, Ran] = {}
    alike: dict[str, Ran] = {}
    for folder, earlier in islice(_sweeps(plan, runs), NEWEST):
        if len(exact) == len(plan.arms):
            break  # older sweeps would be ignored
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
    """Yield sweeps on the same kind of machine with equal resources per trial.

    The sweep with the plan's own name comes first, then the newest.
    """
    from orchestrator.plan.serialise import read_plan

    here, share = machine(), (plan.resources.cpus, plan.resources.gpus)
    known = folders(runs_root(runs))
    for folder in sorted(known, key=lambda each: (each.name != plan.name, -_launched_at(each))):
        try:
            there = json.loads(read_regular(folder.provenance))
            if {name: there.get(name) for name in here} != here:
                continue
            earlier = read_plan(folder)
        except (HaltsweepError, OSError, ValueError, AttributeError):
            continue  # skip a sweep that is not readable
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
    """Return durations from trials of an arm that ended in their first attempt; None without any.

    Args:
        plan: Plan of the earlier sweep.
        records: Trials of the arm.
        by_trial: Whether to compute the mean seconds per trial.
        stopped: Whether to include trials that ended early, since both sweeps have the same early stopper.
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
    """Return a digest that is equal for arms with the same time per step."""
    train = arm.settings.get("train", {})
    kept = {name: value for name, value in train.items() if name not in NOT_OF_SPEED}
    return digest({**arm.settings, "train": kept}, to_json_values(arm.space))
