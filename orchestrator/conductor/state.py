"""State of every planned trial and of every repeat of every arm in the conductor."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from orchestrator.conductor.messages import Progress, Stop
from orchestrator.conductor.outlook import RemainingWork, RemainingWorkBuilder
from orchestrator.conductor.winners import Candidate
from orchestrator.plan.planned_trials import (
    MAX_INFEASIBLE_PER_TRIAL,
    is_exhaustive_sampler,
    num_points,
    with_data_seed,
)
from orchestrator.plan.types import Arm, Plan, SearchPlan
from orchestrator.spec.scopes import CountedReports
from orchestrator.trials import Outcome, OutcomeKind, PlannedTrial, Trial
from search_spaces.dimensions import Assignment
from search_spaces.paths import with_values
from search_spaces.wording import amount
from trainables.protocol import Measurement


class TrialStatus(Enum):
    """Status of a trial."""

    WAITING = auto()
    """The trial has not started."""
    RUNNING = auto()
    RESUMABLE = auto()
    """The trial has started, stopped and not ended; it resumes before new trials start."""
    ENDED = auto()


@dataclass(slots=True)
class TrialState:
    """State of one planned trial."""

    planned: PlannedTrial
    position: int
    """Position among all trials of the arm's repeat: search, then confirm, then posthoc."""
    status: TrialStatus = TrialStatus.WAITING
    is_released: bool = False
    """Whether a search or confirm trial is among the trials that may start."""
    trial: Trial | None = None
    last: Measurement | None = None
    has_evaluated: bool = False
    """Whether the trial has reported any metric other than training metrics."""
    last_at_checkpoint: Measurement | None = None
    """Value of `last` at the newest checkpoint."""
    objective_values: tuple[float, ...] | None = None
    """Value of every objective by its scope, over the reports so far."""
    counted_reports: CountedReports | None = None
    """Reports of a search trial; None before the first report."""
    counted_at_checkpoint: CountedReports | None = None
    """Value of `counted_reports` at the newest checkpoint."""
    pending_stop: Stop | None = None
    """A stop that was decided and is not yet recorded as an outcome."""
    outcome: Outcome | None = None
    source_id: str | None = None
    """Id of the confirm trial whose checkpoint a posthoc trial evaluates."""

    @property
    def is_skipped(self) -> bool:
        """Return whether the trial ended without starting because it was not needed."""
        return self.outcome is not None and self.outcome.kind is OutcomeKind.SKIPPED

    def initial(self) -> "TrialState":
        """Return the state of the same trial before its first event."""
        return TrialState(self.planned, self.position, is_released=self.is_released, source_id=self.source_id)

    def end(self, outcome: Outcome) -> None:
        """Record the outcome, and drop data that only open or retried trials need."""
        self.status, self.outcome = TrialStatus.ENDED, outcome
        self.counted_reports = None
        if outcome.kind.is_failure:
            return
        self.trial = self.last_at_checkpoint = self.counted_at_checkpoint = None
        if self.last is not None and self.planned.phase == "search":
            self.last = Measurement(self.last.step, self.last.seconds, {})


@dataclass(slots=True)
class ArmState:
    """State of one repeat of an arm: a search, and the trials that confirm its best assignments."""

    arm: Arm
    repeat: int = 0
    trials: list[TrialState] = field(default_factory=list)
    ready: list[tuple[int, str]] = field(default_factory=list)
    """Heap of pairs (place, trial id) of the trials that may start."""
    num_searching: int = 0
    """Number of search trials that have not ended."""
    winners: list[Assignment] = field(default_factory=list)
    """Best assignments of the ended search, at most as many as are confirmed."""
    candidates: list[Candidate] = field(default_factory=list)
    running: int = 0
    ended: Counter[OutcomeKind] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def has_too_many_infeasible(self) -> bool:
        """Return whether the number of infeasible trials has reached the limit of the search."""
        infeasible = self.ended[OutcomeKind.INFEASIBLE]
        num_drawn = sum(1 for _ in self.trials_of_phase("search")) - infeasible
        return infeasible >= MAX_INFEASIBLE_PER_TRIAL * num_drawn

    def reason_not_replaced(self, search: SearchPlan, number: int) -> str:
        """Return why search trial `number` cannot replace an infeasible one; empty if it can."""
        if self.has_too_many_infeasible:
            num_ended = amount(self.ended[OutcomeKind.INFEASIBLE], "trial")
            return (
                f"{num_ended} were infeasible, limit {MAX_INFEASIBLE_PER_TRIAL} per planned trial; add "
                "a constraint or narrow the ranges"
            )
        if not self.arm.space.dimensions:
            return "the arm has only one set of params, which is infeasible"
        if not is_exhaustive_sampler(search.sampler):
            return ""
        points = num_points(self.arm)
        return "every combination was tried" if points is not None and number >= points else ""

    def push(self, state: TrialState) -> None:
        """Add the trial of `state` to the queue of trials that may start."""
        heapq.heappush(self.ready, (state.position, state.planned.trial_id))

    def withdraw(self, state: TrialState) -> None:
        """Remove the trial of `state` from the trials that may start, until `push` adds it again."""
        self.ready = [entry for entry in self.ready if entry[1] != state.planned.trial_id]
        heapq.heapify(self.ready)

    def trials_of_phase(self, name: str) -> Iterator[TrialState]:
        """Return the trials of one phase, in order."""
        return (state for state in self.trials if state.planned.phase == name)

    def waiting_trials(self, phase: str) -> list[TrialState]:
        """Return the trials of one phase that have not started, in order."""
        return [state for state in self.trials_of_phase(phase) if state.status is TrialStatus.WAITING]

    def reason_without_winner(self, rank: int) -> str:
        """Return why the search found no assignment of this `rank` to confirm."""
        kinds = Counter(
            state.outcome.kind for state in self.trials_of_phase("search") if state.outcome is not None
        )
        kinds_text = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        return (
            f"confirmation needs {rank + 1} finished search trials with different params, but "
            f"{self.search_name} has {len(self.winners)}; outcomes of its trials: {kinds_text}"
        )

    @property
    def search_name(self) -> str:
        """Return the name of the search for messages."""
        repeat_text = f", repeat {self.repeat}," if self.repeat else ""
        return f"the search of arm {self.arm.name!r}{repeat_text}"


def trial_of(plan: Plan, arm: Arm, state: TrialState, assignment: Assignment) -> Trial:
    """Return the trial of `state` with the values of its searched fields."""
    planned = state.planned
    confirm = plan.confirm if planned.phase != "search" else None
    settings = with_values(arm.settings, assignment)
    if confirm is None:
        return Trial(planned, assignment, with_values(settings, planned.overrides), source_id=state.source_id)
    if confirm.resample_data:
        settings = with_data_seed(planned.seed, settings)
    settings = with_values(settings, planned.overrides)
    splits = planned.late_splits or confirm.splits
    num_examples = confirm.halting_examples if planned.phase == "confirm" else 0
    return Trial(planned, assignment, settings, splits, state.source_id, num_examples)


def progress(repeats: Sequence[ArmState], goal: str | None) -> Progress:
    """Return the displayed progress of one arm over all its repeats.

    Args:
        repeats: All repeats of the arm.
        goal: Goal of the first objective.
    """
    first_values = [candidate.objective_values[0] for state in repeats for candidate in state.candidates]
    best = (max(first_values) if goal == "max" else min(first_values)) if first_values else None
    ended_counts = sum((state.ended for state in repeats), Counter[OutcomeKind]())
    return Progress(
        arm=repeats[0].arm.name,
        planned=sum(len(state.trials) for state in repeats) - ended_counts[OutcomeKind.INFEASIBLE],
        running=sum(state.running for state in repeats),
        finished=ended_counts[OutcomeKind.FINISHED],
        pruned=ended_counts[OutcomeKind.PRUNED],
        failed=sum(count for kind, count in ended_counts.items() if kind.is_failure),
        best=best,
        seconds=sum(state.seconds for state in repeats),
        skipped=ended_counts[OutcomeKind.SKIPPED],
        infeasible=ended_counts[OutcomeKind.INFEASIBLE],
    )


def outlook(plan: Plan, states: Iterable[TrialState]) -> RemainingWork:
    """Return the running trials and the remaining work."""
    builder = RemainingWorkBuilder(plan)
    for state in states:
        if state.status is TrialStatus.ENDED and state.outcome is not None:
            builder.add_ended(state.planned, state.outcome.kind, state.last)
        elif state.status is TrialStatus.RUNNING and state.trial is not None:
            builder.add_running(state.planned, state.trial.settings, state.last)
        else:
            builder.add_waiting(state.planned)
    return builder.build()
