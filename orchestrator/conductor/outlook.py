"""Summarise running trials and remaining work, and estimate the time that is left.

The module performs no I/O and reads no clock. It serves both a running sweep and a sweep that is read from
its ledger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind, Phase, PlannedTrial, Record
from search_spaces.wording import amount
from trainables.metrics import TRAIN, VALIDATION_SPLITS, split_and_quantity
from trainables.protocol import Measurement

MIN_ENDED_TRIALS = 3
"""Number of ended trials from which the duration of further trials is estimated."""
MIN_STEP_SHARE = 0.1
"""Share of its steps that a running trial must have completed before its rate is used for estimates."""


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A trial that a worker is running."""

    trial_id: str
    arm: str
    phase: Phase
    number: int
    seed: int
    steps: int | None
    """Optimiser steps of the trial unless it ends early; None if unknown."""
    step: int = 0
    """Last reported step; 0 before the first report."""
    seconds: float = 0.0
    """Work until the last reported step, in seconds."""
    metric: str = ""
    """Displayed metric: the first reported objective, else the first validation or training metric.

    Empty if the trial has reported no metric.
    """
    value: float | None = None
    silent_s: float | None = field(default=None, compare=False)
    """Seconds since the trial's newest start or report."""
    repeat: int = 0

    @property
    def rate(self) -> float | None:
        """Return the steps per second, including time for evaluation and checkpoints; None if unknown."""
        return self.step / self.seconds if self.step and self.seconds > 0 else None

    @property
    def left_s(self) -> float | None:
        """Return the estimated seconds of work until the trial's last step.

        None if the number of steps is unknown or too few steps are completed.
        """
        if self.steps is None or self.rate is None or self.step < MIN_STEP_SHARE * self.steps:
            return None
        return max(0, self.steps - self.step) / self.rate


@dataclass(slots=True)
class PhaseWork:
    """Numbers and work of the trials of one phase of an arm."""

    arm: str
    phase: Phase
    num_waiting: int = 0
    """Number of trials that neither run nor have ended."""
    ended: int = 0
    """Number of trials that ran and have ended, with any outcome."""
    seconds: float = 0.0
    """Work of the ended trials, in seconds."""
    finished: int = 0
    finished_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """Running trials and the work of every phase."""

    running: tuple[RunningTrial, ...] = ()
    phases: tuple[PhaseWork, ...] = ()
    """Work by arm and phase, arms in the order of the plan."""


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Estimate of the remaining work."""

    seconds: float
    """Remaining work in seconds; equals wall-clock time if one trial runs at a time."""
    longest_s: float
    """Remaining seconds of the running trial that ends last."""
    num_ended: int
    """Number of ended trials that the estimate is based on."""
    num_rates: int
    """Number of running trials whose rates the estimate is based on."""
    num_unknown: int
    """Number of future trials without an estimate; their work is not included."""

    @property
    def basis(self) -> str:
        """Return the basis of the estimate as text."""
        parts = [amount(self.num_ended, "ended trial")] if self.num_ended else []
        parts += [amount(self.num_rates, "running rate")] if self.num_rates else []
        exclusion = f", not counting {amount(self.num_unknown, 'trial')} of unknown duration"
        return f"from {' and '.join(parts)}" + exclusion * bool(self.num_unknown)


@dataclass(slots=True)
class RemainingWorkBuilder:
    """Builder of a `RemainingWork` from trials in any order."""

    plan: Plan
    running: list[RunningTrial] = field(default_factory=list)
    phases: dict[tuple[str, str], PhaseWork] = field(default_factory=dict)

    def add_running(
        self,
        planned: PlannedTrial | Record,
        settings: Mapping[str, Any],
        last: Measurement | None,
        silent_s: float | None = None,
    ) -> None:
        """Add a trial that a worker is running.

        Args:
            planned: The trial.
            settings: All settings of the trial.
            last: Last report of the trial; None before the first.
            silent_s: Seconds since the trial's newest start or report; None if unknown.
        """
        self._phase(planned)
        metric, value = _displayed_metric(self.plan, last)
        trial = RunningTrial(
            planned.trial_id,
            planned.arm,
            planned.phase,
            planned.number,
            planned.seed,
            _training_steps(self.plan, planned.phase, settings),
            last.step if last else 0,
            last.seconds if last else 0.0,
            metric,
            value,
            silent_s,
            planned.repeat,
        )
        self.running.append(trial)

    def add_waiting(self, planned_trial: PlannedTrial) -> None:
        """Add a trial that has not started, or that was stopped and will be resumed."""
        self._phase(planned_trial).num_waiting += 1

    def add_ended(self, planned_trial: PlannedTrial, outcome: OutcomeKind, last: Measurement | None) -> None:
        """Add a trial that ended for good."""
        phase = self._phase(planned_trial)
        if outcome is OutcomeKind.SKIPPED or last is None:
            return
        phase.ended += 1
        phase.seconds += last.seconds
        if outcome is OutcomeKind.FINISHED:
            phase.finished += 1
            phase.finished_s += last.seconds

    def build(self) -> RemainingWork:
        """Return the outlook of all added trials."""
        arms = {arm.name: place for place, arm in enumerate(self.plan.arms)}
        phases = get_args(Phase)

        def order(trial: RunningTrial) -> tuple[int, ...]:
            return phases.index(trial.phase), trial.repeat, arms[trial.arm], trial.number

        return RemainingWork(tuple(sorted(self.running, key=order)), tuple(self.phases.values()))

    def _phase(self, planned: PlannedTrial | Record) -> PhaseWork:
        key = (planned.arm, planned.phase)
        if key not in self.phases:
            self.phases[key] = PhaseWork(planned.arm, planned.phase)
        return self.phases[key]


def estimate_remaining(outlook: RemainingWork) -> TimeEstimate | None:
    """Return the estimate of the remaining work; None if there is not enough data yet.

    The duration of a trial is estimated from the first of these sources that exists:

    - ended trials of the same arm and phase,
    - finished trials of the same arm, else of the same phase, else any; trials that train and posthoc trials
      are kept separate,
    - rates of running trials.
    """
    num_known = sum(phase.ended for phase in outlook.phases)
    rates = [trial for trial in outlook.running if trial.left_s is not None]
    if num_known < MIN_ENDED_TRIALS and (not rates or len(rates) < len(outlook.running)):
        return None
    work = longest = 0.0
    num_unknown = 0
    for phase in outlook.phases:
        cost = _trial_seconds_estimate(phase, outlook.phases, rates)
        for trial in outlook.running:
            if (trial.arm, trial.phase) == (phase.arm, phase.phase):
                left_s = trial.left_s
                if left_s is None:
                    left_s = max(0.0, (cost or 0.0) - trial.seconds)
                work, longest = work + left_s, max(longest, left_s)
        if cost is None:
            num_unknown += phase.num_waiting
        else:
            work += cost * phase.num_waiting
    return TimeEstimate(work, longest, num_known, len(rates), num_unknown)


def _trial_seconds_estimate(
    phase: PhaseWork, phases: Sequence[PhaseWork], rates: Sequence[RunningTrial]
) -> float | None:
    """Return the estimated seconds of work of one more trial of `phase`; None without data."""
    if phase.ended:
        return phase.seconds / phase.ended
    is_training = phase.phase != "posthoc"
    similar_phases = [phase_work for phase_work in phases if (phase_work.phase != "posthoc") == is_training]
    for similar_work in (
        [phase_work for phase_work in similar_phases if phase_work.arm == phase.arm],
        [phase_work for phase_work in similar_phases if phase_work.phase == phase.phase],
        similar_phases,
    ):
        if num_finished := sum(phase_work.finished for phase_work in similar_work):
            return sum(phase_work.finished_s for phase_work in similar_work) / num_finished
    trial_seconds = [
        trial.steps / trial.rate for trial in rates if is_training and trial.steps and trial.rate
    ]
    return sum(trial_seconds) / len(trial_seconds) if trial_seconds else None


def _training_steps(plan: Plan, phase: Phase, settings: Mapping[str, Any]) -> int | None:
    """Return the optimiser steps of a trial; None for posthoc trials and custom trainables.

    The unit of a step of a custom trainable is unknown.
    """
    if plan.trainable is not None or phase == "posthoc":
        return None
    steps = settings.get("train", {}).get("steps")
    return steps if isinstance(steps, int) else None


def _displayed_metric(plan: Plan, last: Measurement | None) -> tuple[str, float | None]:
    if last is None or not last.metrics:
        return "", None
    objective_names = [objective.metric for objective in plan.objectives]
    splits = (*VALIDATION_SPLITS, "", TRAIN)
    by_split = [(split_and_quantity(name)[0], name) for name in sorted(last.metrics)]
    same_split_names = [name for wanted_split in splits for split, name in by_split if split == wanted_split]
    names = [name for name in (*objective_names, *same_split_names) if name in last.metrics]
    metric = names[0] if names else min(last.metrics)
    return metric, last.metrics[metric]
