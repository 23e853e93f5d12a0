"""What the conductor remembers: the state of every planned trial, and of every arm."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from orchestrator.conductor.messages import Progress, Stop
from orchestrator.conductor.winners import Candidate
from orchestrator.plan.planned_trials import INFEASIBLE_MAX, num_points, tries_each_once
from orchestrator.plan.types import Arm, SearchPlan
from orchestrator.scopes import CountedReports
from orchestrator.trials import Outcome, OutcomeKind, PlannedTrial, Trial
from search_spaces.dimensions import Assignment
from search_spaces.wording import amount
from trainables.protocol import Measurement


class TrialStatus(Enum):
    """Where a trial stands."""

    WAITING = auto()
    """Not asked for yet."""
    RUNNING = auto()
    AGAIN = auto()
    """Asked for before, not ended: handed out before anything new."""
    ENDED = auto()


@dataclass(slots=True)
class TrialState:
    """One planned trial."""

    planned: PlannedTrial
    place: int
    """Position among all trials of the arm: search, then confirm, then posthoc."""
    status: TrialStatus = TrialStatus.WAITING
    trial: Trial | None = None
    last: Measurement | None = None
    evaluated: bool = False
    """Whether the trial has reported any metric besides training metrics."""
    saved: Measurement | None = None
    """Value of `last` at the newest checkpoint."""
    values: tuple[float, ...] | None = None
    """Value of every objective by its scope, over the reports so far."""
    counted: CountedReports | None = None
    """Reports of a search trial; None before its first report."""
    saved_counted: CountedReports | None = None
    """Value of `counted` at the newest checkpoint."""
    standing: Stop | None = None
    """A stop that was decided and is not yet recorded as an outcome."""
    outcome: Outcome | None = None
    source_id: str | None = None
    """`posthoc`: the confirmed trial that is read again."""

    def end(self, outcome: Outcome) -> None:
        """Record the outcome, and drop what only a trial needs that goes on or is retried."""
        self.status, self.outcome = TrialStatus.ENDED, outcome
        self.counted = None
        if outcome.kind.failed:
            return
        self.trial = self.saved = self.saved_counted = None
        if self.last is not None and self.planned.phase == "search":
            self.last = Measurement(self.last.step, self.last.seconds, {})


@dataclass(slots=True)
class ArmState:
    """One arm."""

    arm: Arm
    trials: list[TrialState] = field(default_factory=list)
    ready: list[tuple[int, str]] = field(default_factory=list)
    """Heap of (place, trial id) that may be asked for."""
    searching: int = 0
    """Search trials that have not ended."""
    winners: list[Assignment] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    first: dict[str, str] = field(default_factory=dict)
    """Error by trial id, for the first trials that began and have ended; empty if a trial did not crash."""
    running: int = 0
    ended: Counter[OutcomeKind] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def has_too_many_infeasible(self) -> bool:
        """Whether the search has reached its limit of infeasible trials."""
        infeasible = self.ended[OutcomeKind.INFEASIBLE]
        asked = sum(1 for _ in self.phase("search")) - infeasible
        return infeasible >= INFEASIBLE_MAX * asked

    def why_not_replaced(self, search: SearchPlan, number: int) -> str:
        """Return why search trial `number` cannot replace an infeasible one; empty if it can."""
        if self.has_too_many_infeasible:
            ended = amount(self.ended[OutcomeKind.INFEASIBLE], "trial")
            return (
                f"{ended} called their settings infeasible, {INFEASIBLE_MAX} for each that was asked for; "
                "write a constraint or narrow the ranges"
            )
        if not self.arm.space.dimensions:
            return "it has no other settings to try in place of infeasible ones"
        if not tries_each_once(search.sampler):
            return ""
        points = num_points(self.arm)
        return "every combination was tried" if points is not None and number >= points else ""

    def push(self, state: TrialState) -> None:
        """Let `state` be asked for."""
        heapq.heappush(self.ready, (state.place, state.planned.trial_id))

    def withdraw(self, states: Iterable[TrialState]) -> None:
        """Remove `states` from the trials to start, until they are pushed again."""
        withdrawn = {state.planned.trial_id for state in states}
        self.ready = [entry for entry in self.ready if entry[1] not in withdrawn]
        heapq.heapify(self.ready)

    def phase(self, name: str) -> Iterator[TrialState]:
        """Cells of one phase, in order."""
        return (state for state in self.trials if state.planned.phase == name)

    def nothing_to_confirm(self, rank: int) -> str:
        """Why no assignment holds `rank`."""
        kinds = Counter(state.outcome.kind for state in self.phase("search") if state.outcome is not None)
        ended = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        return (
            "a confirm trial needs an assignment whose search trial finished, and the search of arm "
            f"{self.arm.name!r} found {len(self.winners)} where {rank + 1} are needed; its trials: {ended}"
        )

    def progress(self, goal: str | None) -> Progress:
        """Counts for people; `goal` is the first objective's."""
        firsts = [each.values[0] for each in self.candidates]
        best = (max(firsts) if goal == "max" else min(firsts)) if firsts else None
        return Progress(
            arm=self.arm.name,
            planned=len(self.trials) - self.ended[OutcomeKind.INFEASIBLE],
            running=self.running,
            finished=self.ended[OutcomeKind.FINISHED],
            pruned=self.ended[OutcomeKind.PRUNED],
            failed=sum(count for kind, count in self.ended.items() if kind.failed),
            best=best,
            seconds=self.seconds,
            skipped=self.ended[OutcomeKind.SKIPPED],
            infeasible=self.ended[OutcomeKind.INFEASIBLE],
        )
