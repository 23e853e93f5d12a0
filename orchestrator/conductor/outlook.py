"""What runs at this moment and what is still to come; how long that takes, where there is ground to say so.

Does no I/O and reads no clock: the same for a sweep that runs here and for one that is read from its ledger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind, Phase, PlannedTrial, Record
from search_spaces.wording import amount
from trainables.metrics import TRAIN, VALIDATION_SPLITS, split_and_quantity
from trainables.protocol import Measurement

LEAST_ENDED = 3
"""Trials that must have ended before what one takes is known from them."""
LEAST_SHARE = 0.1
"""Of its steps that a running trial must have done before its rate says how long it takes."""


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A trial that a worker has."""

    trial_id: str
    arm: str
    phase: Phase
    number: int
    seed: int
    steps: int | None
    """Optimiser steps that it takes, if nothing ends it early; None where that is not known."""
    step: int = 0
    """As last reported; 0 before its first report."""
    seconds: float = 0.0
    """Of work, until then."""
    metric: str = ""
    """What it is watched by: the first objective, else the first of validation or training; or empty."""
    value: float | None = None
    silent_s: float | None = field(default=None, compare=False)
    """Seconds since the trial's newest start or report."""
    repeat: int = 0

    @property
    def rate(self) -> float | None:
        """Steps a second, measuring and saving included."""
        return self.step / self.seconds if self.step and self.seconds > 0 else None

    @property
    def left_s(self) -> float | None:
        """Seconds of work to its last step, at its own rate; None before that is known well enough."""
        if self.steps is None or self.rate is None or self.step < LEAST_SHARE * self.steps:
            return None
        return max(0, self.steps - self.step) / self.rate


@dataclass(slots=True)
class PhaseWork:
    """The trials of one phase of an arm."""

    arm: str
    phase: Phase
    waiting: int = 0
    """Trials that neither run nor have ended."""
    ended: int = 0
    """Trials that ran and have ended, however."""
    seconds: float = 0.0
    """Of their work."""
    finished: int = 0
    finished_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outlook:
    """What runs, and what is still to come."""

    running: tuple[RunningTrial, ...] = ()
    phases: tuple[PhaseWork, ...] = ()
    """Of arms in the order of the plan."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """Work that is left, as far as anything says how much."""

    seconds: float
    """Of work: what takes a wall-clock second where one trial runs at a time."""
    longest_s: float
    """Of the running trial that ends last."""
    ended: int
    """Trials that have ended and say so."""
    rates: int
    """Running trials whose rates say so."""
    unknown: int
    """Trials to come of which nothing says what they take; they are not counted."""

    @property
    def ground(self) -> str:
        """What it is based on."""
        parts = [amount(self.ended, "ended trial")] if self.ended else []
        parts += [amount(self.rates, "running rate")] if self.rates else []
        without = f", without {amount(self.unknown, 'trial')} unlike any that has ended"
        return f"from {' and '.join(parts)}" + without * bool(self.unknown)


@dataclass(slots=True)
class Watch:
    """Adds up trials, in any order."""

    plan: Plan
    running: list[RunningTrial] = field(default_factory=list)
    phases: dict[tuple[str, str], PhaseWork] = field(default_factory=dict)

    def runs(
        self,
        planned: PlannedTrial | Record,
        settings: Mapping[str, Any],
        last: Measurement | None,
        silent_s: float | None = None,
    ) -> None:
        """A worker has it."""
        self._phase(planned)
        metric, value = _watched(self.plan, last)
        made = RunningTrial(
            planned.trial_id,
            planned.arm,
            planned.phase,
            planned.number,
            planned.seed,
            _steps(self.plan, planned.phase, settings),
            last.step if last else 0,
            last.seconds if last else 0.0,
            metric,
            value,
            silent_s,
            planned.repeat,
        )
        self.running.append(made)

    def waits(self, planned: PlannedTrial) -> None:
        """It has not begun, or was stopped and goes on later."""
        self._phase(planned).waiting += 1

    def ended(self, planned: PlannedTrial, outcome: OutcomeKind, last: Measurement | None) -> None:
        """It ended for good."""
        phase = self._phase(planned)
        if outcome is OutcomeKind.SKIPPED or last is None:
            return
        phase.ended += 1
        phase.seconds += last.seconds
        if outcome is OutcomeKind.FINISHED:
            phase.finished += 1
            phase.finished_s += last.seconds

    def outlook(self) -> Outlook:
        """All that was reported."""
        arms = {each.name: place for place, each in enumerate(self.plan.arms)}
        phases = get_args(Phase)
        running = sorted(
            self.running,
            key=lambda each: (phases.index(each.phase), each.repeat, arms[each.arm], each.number),
        )
        return Outlook(tuple(running), tuple(self.phases.values()))

    def _phase(self, planned: PlannedTrial | Record) -> PhaseWork:
        key = (planned.arm, planned.phase)
        if key not in self.phases:
            self.phases[key] = PhaseWork(planned.arm, planned.phase)
        return self.phases[key]


def remaining(outlook: Outlook) -> Remaining | None:
    """What is left; None where there is no ground to say so yet.

    A trial takes what trials of its arm and phase took that have ended; before there are any, what the
    nearest others took that trained to the end; before that, what the rates of running trials say.
    """
    known = sum(phase.ended for phase in outlook.phases)
    rates = [each for each in outlook.running if each.left_s is not None]
    if known < LEAST_ENDED and (not rates or len(rates) < len(outlook.running)):
        return None
    work = longest = 0.0
    unknown = 0
    for phase in outlook.phases:
        cost = _cost(phase, outlook.phases, rates)
        for each in outlook.running:
            if (each.arm, each.phase) == (phase.arm, phase.phase):
                own = each.left_s
                left = own if own is not None else max(0.0, (cost or 0.0) - each.seconds)
                work, longest = work + left, max(longest, left)
        if cost is None:
            unknown += phase.waiting
        else:
            work += cost * phase.waiting
    return Remaining(work, longest, known, len(rates), unknown)


def _cost(phase: PhaseWork, phases: Sequence[PhaseWork], rates: Sequence[RunningTrial]) -> float | None:
    """Seconds of work of one more trial of `phase`; None where nothing says."""
    if phase.ended:
        return phase.seconds / phase.ended
    trains = phase.phase != "posthoc"
    alike = [each for each in phases if (each.phase != "posthoc") == trains]
    for near in (
        [each for each in alike if each.arm == phase.arm],
        [each for each in alike if each.phase == phase.phase],
        alike,
    ):
        if many := sum(each.finished for each in near):
            return sum(each.finished_s for each in near) / many
    whole = [each.steps / each.rate for each in rates if trains and each.steps and each.rate]
    return sum(whole) / len(whole) if whole else None


def _steps(plan: Plan, phase: Phase, settings: Mapping[str, Any]) -> int | None:
    """Of own trainables nobody knows what a step is of."""
    if plan.trainable is not None or phase == "posthoc":
        return None
    steps = settings.get("train", {}).get("steps")
    return steps if isinstance(steps, int) else None


def _watched(plan: Plan, last: Measurement | None) -> tuple[str, float | None]:
    if last is None or not last.metrics:
        return "", None
    wanted = [each.metric for each in plan.search.objectives] if plan.search else []
    splits = (*VALIDATION_SPLITS, "", TRAIN)
    by_split = [(split_and_quantity(name)[0], name) for name in sorted(last.metrics)]
    near = [name for each in splits for split, name in by_split if split == each]
    metric = next((each for each in [*wanted, *near] if each in last.metrics), min(last.metrics))
    return metric, last.metrics[metric]
