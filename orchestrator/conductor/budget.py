"""Track how much of its limits a sweep and each arm have used, and decide when a search is over.

All results follow from measurements and outcomes of trials, in the order of events, and not from a clock.
So a replayed ledger gives the same decisions. Work that a process lost and a later one repeated counts once.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from orchestrator.ledger.events import BUDGET_REASON, ERROR_REASON, Event, EventKind
from orchestrator.plan.types import Limits, Plan
from orchestrator.spec.scopes import counted_name
from orchestrator.trials import PlannedTrial
from search_spaces.wording import amount
from trainables.metrics import TRAIN_FLOPS
from trainables.protocol import Measurement

HOUR_S = 3600.0


@dataclass(slots=True)
class ResourceUse:
    """Device seconds and training FLOPs used by a sweep, or by the search of one arm."""

    device_s: float = 0.0
    flops: float = 0.0

    def reached_limit(self, device_hours: float | None, flops: float | None) -> str:
        """Return the reached limit as text; empty if no limit is reached."""
        if device_hours is not None and self.device_s >= device_hours * HOUR_S:
            return f"{device_hours:g} device hours"
        if flops is not None and self.flops >= flops:
            return f"{flops:g} FLOPs of training"
        return ""


@dataclass(slots=True)
class SearchProgress:
    """Best value in the search of one arm, and the number of trials since that value."""

    best: float | None = None
    """Best value of the first objective among finished trials; larger is better."""
    num_without_improvement: int = 0
    """Number of trials that have ended since the best value was found."""

    def record_end(self, value: float | None) -> None:
        """Record that a search trial ended for good, with `value` if it finished."""
        if value is not None and (self.best is None or value > self.best):
            self.best, self.num_without_improvement = value, 0
        else:
            self.num_without_improvement += 1


class Spending:
    """Resources used by the trials of a sweep, compared with its limits."""

    def __init__(self, plan: Plan) -> None:
        self._limits = plan.limits or Limits()
        self._devices = plan.resources.gpus or plan.resources.cpus
        objective = plan.search.objectives[0] if plan.search is not None else None
        self._metric = counted_name(objective) if objective is not None else ""
        self._sign = -1.0 if objective is not None and objective.goal == "min" else 1.0
        self._sweep = ResourceUse()
        self._searches: dict[tuple[str, int], ResourceUse] = defaultdict(ResourceUse)
        self._progress: dict[tuple[str, int], SearchProgress] = defaultdict(SearchProgress)

    @property
    def wants_flops(self) -> bool:
        """Return whether a trial that trains must report its FLOPs."""
        return self._limits.counts_flops

    @property
    def limits_searches(self) -> bool:
        """Return whether the search of an arm may end before its last trial."""
        return self._limits.each_arm is not None

    def record_measurement(
        self, planned_trial: PlannedTrial, previous_report: Measurement | None, current_report: Measurement
    ) -> None:
        """Add the resources that a trial used between two successive reports."""
        seconds = current_report.seconds - (previous_report.seconds if previous_report else 0.0)
        flops = _reported_flops(current_report) - (
            _reported_flops(previous_report) if previous_report else 0.0
        )
        resource_uses = [
            self._sweep,
            *([self._searches[_search_key(planned_trial)]] if planned_trial.phase == "search" else []),
        ]
        for use in resource_uses:
            use.device_s += max(0.0, seconds) * self._devices
            use.flops += max(0.0, flops)

    def to_json(self) -> list[Any]:
        """Return the used resources as JSON values."""
        search_uses = [[*search, astuple(use)] for search, use in self._searches.items()]
        progress = [[*search, astuple(search_progress)] for search, search_progress in self._progress.items()]
        return [astuple(self._sweep), sorted(search_uses), sorted(progress)]

    def load(self, values: Sequence[Any]) -> None:
        """Restore the used resources from the values that `to_json` returned."""
        sweep, search_uses, progress = values
        self._sweep = ResourceUse(*sweep)
        self._searches.update({(arm, repeat): ResourceUse(*use) for arm, repeat, use in search_uses})
        self._progress.update({(arm, repeat): SearchProgress(*state) for arm, repeat, state in progress})

    def search_ended(self, planned_trial: PlannedTrial, value: float | None) -> None:
        """Record that a search trial ended for good, with `value` of the first objective if it finished."""
        self._progress[_search_key(planned_trial)].record_end(None if value is None else self._sign * value)

    def exhausted_limit(self) -> str:
        """Return why the sweep may start no more trials; empty while trials may start."""
        reached = self._sweep.reached_limit(self._limits.device_hours, self._limits.flops)
        return f"the budget of {reached} is used up" if reached else ""

    def search_end_reason(self, planned_trial: PlannedTrial, candidates: int, count: int) -> str:
        """Return why the search of `planned_trial` may start no further trial; empty while trials may start.

        A target or a lack of improvement ends a search only once it has enough assignments to confirm.

        Args:
            planned_trial: A trial of the search.
            candidates: Number of distinct assignments that can be confirmed.
            count: Number of assignments to confirm.
        """
        limits, progress = self._limits.each_arm, self._progress[_search_key(planned_trial)]
        if limits is None:
            return ""
        if reached := self._searches[_search_key(planned_trial)].reached_limit(
            limits.device_hours, limits.flops
        ):
            return f"{reached} are used up"
        if candidates < count or progress.best is None:
            return ""
        best = self._sign * progress.best
        if limits.target is not None and progress.best >= self._sign * limits.target:
            return f"{self._metric}={best:.6g} has reached the target of {limits.target:g}"
        if limits.no_improvement is not None and progress.num_without_improvement >= limits.no_improvement:
            trial_count = amount(progress.num_without_improvement, "trial")
            return f"{trial_count} in a row ended without a better {self._metric} than {best:.6g}"
        return ""


class WallClock:
    """Wall-clock time of all sessions of a sweep, computed from the ledger's events in order."""

    def __init__(self) -> None:
        self._earlier_s = 0.0
        self._opened_at: float | None = None
        self._last_at = 0.0

    def apply(self, event: Event) -> None:
        """Apply an event; a session lasts from its `opened` event to its last event.

        A killed process writes no `closed` event.
        """
        if event.kind is EventKind.OPENED:
            self._earlier_s = self.seconds(self._last_at)
            self._opened_at = event.at
        self._last_at = event.at

    def to_json(self) -> list[float | None]:
        """Return the state as JSON values."""
        return [self._earlier_s, self._opened_at, self._last_at]

    def load(self, values: Sequence[Any]) -> None:
        """Restore the state from the values that `to_json` returned."""
        self._earlier_s, self._opened_at, self._last_at = values

    def seconds(self, now: float) -> float:
        """Return the seconds of all sessions; the newest session is counted until Unix time `now`."""
        return self._earlier_s + (max(now - self._opened_at, 0.0) if self._opened_at is not None else 0.0)

    def used_up(self, hours: float | None, now: float) -> str:
        """Return a message if the budget of `hours` is used up; empty if it is not, or if `hours` is None."""
        if hours is None or self.seconds(now) < hours * HOUR_S:
            return ""
        return f"the budget of {hours:g} hours of wall clock is used up"


def budget_end(last: Event | None, plan: Plan) -> str:
    """Return the reason if the budget ended the sweep whose newest event is `last`; else empty.

    The result is also empty if `haltsweep extend` has extended the sweep since.
    """
    if last is None or last.kind is not EventKind.CLOSED or last.payload.get("reason") != BUDGET_REASON:
        return ""
    extensions = last.payload.get("extensions")
    if extensions is None:  # ledgers of older versions do not record the number of extensions
        extensions = sum(extension.at <= last.at for extension in plan.extended)
    if len(plan.extended) > extensions:
        return ""
    # Older ledgers record that the budget ended the sweep, but not which limit.
    return str(last.payload.get("why", "the budget is used up"))


def error_end(last: Event | None) -> str:
    """Return the error that stopped the sweep whose newest event is `last`; empty if none did."""
    if last is None or last.kind is not EventKind.CLOSED or last.payload.get("reason") != ERROR_REASON:
        return ""
    return str(last.payload["why"])


def _search_key(planned_trial: PlannedTrial) -> tuple[str, int]:
    """Return the arm and the repeat of the search to which a trial belongs."""
    return planned_trial.arm, planned_trial.repeat


def _reported_flops(measurement: Measurement) -> float:
    return measurement.metrics.get(TRAIN_FLOPS, 0.0)
