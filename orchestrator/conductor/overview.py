"""Hold the data that `status` displays: sums over ended trials, and records of all other trials.

The module performs no I/O. Ledger snapshots contain the sums, so `status` need not read the events of ended
trials.
"""

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.conductor.messages import Progress
from orchestrator.conductor.outlook import PhaseWork, RemainingWork, RemainingWorkBuilder
from orchestrator.files.json_values import from_json_values
from orchestrator.ledger.ledger_snapshot import LedgerSnapshot, decompressed_lines
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Objective
from orchestrator.trials import (
    Outcome,
    OutcomeKind,
    Phase,
    PlannedTrial,
    Record,
    by_arm,
    numbered,
    standing_of,
)
from trainables.protocol import Measurement

MAX_FAILURES = 10
"""Maximum number of failed trials that are stored individually."""


@dataclass(slots=True)
class PhaseTotals:
    """Sums over the ended trials of one phase of an arm."""

    outcomes: dict[OutcomeKind, int] = field(default_factory=dict)
    reported: int = 0
    """Number of trials with a report."""
    seconds: float = 0.0
    """Work of these trials, in seconds."""
    finished: int = 0
    """Number of finished trials with a report."""
    finished_s: float = 0.0
    best: float | None = None
    """Best value of the first objective among the finished trials; only for the phase `search`."""

    @property
    def num_ended(self) -> int:
        """Return the number of ended trials of the plan.

        Infeasible trials are not counted because each is replaced by another trial.
        """
        return sum(self.outcomes.values()) - self.outcomes.get(OutcomeKind.INFEASIBLE, 0)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed trial."""

    trial_id: str
    place: str
    """Arm, phase and number of the trial, as displayed."""
    standing: str
    reason: str
    """First line of the reason."""


@dataclass(slots=True)
class EndedTrialTotals:
    """Sums over trials that have ended for good."""

    arms: dict[str, dict[str, PhaseTotals]] = field(default_factory=dict)
    """Sums by arm and phase."""
    failures: list[Failure] = field(default_factory=list)
    """The first failed trials, at most `MAX_FAILURES`."""
    traced: str = ""
    """Id of the first failed trial whose reason contains a traceback; empty if none does."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Number of skipped trials by reason."""
    infeasible: dict[str, int] = field(default_factory=dict)
    """Number of infeasible trials by reason."""
    open_trials: dict[str, int] = field(default_factory=dict)
    """Ledger positions of the first events of open trials, by trial id; only in a snapshot."""

    @classmethod
    def from_snapshot(cls, snapshot: LedgerSnapshot) -> "EndedTrialTotals | None":
        """Return the sums that a snapshot begins with; None if they cannot be read."""
        try:
            return from_json_values(cls, json.loads(next(decompressed_lines(snapshot.content))))
        except (zlib.error, ValueError, TypeError, StopIteration):  # written by another version, or damaged
            return None

    def add(
        self,
        trial: PlannedTrial | Record,
        outcome: Outcome,
        last: Measurement | None,
        *,
        values: Sequence[float],
        attempts: int,
        objectives: Sequence[Objective],
    ) -> None:
        """Add a trial that was not added before.

        Args:
            trial: The trial.
            outcome: Final outcome of the trial.
            last: Last report of the trial.
            values: Objective values of the trial for its search; empty if there are none.
            attempts: Number of times the trial was started.
            objectives: Objectives of the search.
        """
        kind, sums = outcome.kind, self.arms.setdefault(trial.arm, {}).setdefault(trial.phase, PhaseTotals())
        sums.outcomes[kind] = sums.outcomes.get(kind, 0) + 1
        if last is not None:
            sums.reported += 1
            sums.seconds += last.seconds
        if kind is OutcomeKind.FINISHED and last is not None:
            sums.finished += 1
            sums.finished_s += last.seconds
        if kind is OutcomeKind.FINISHED and trial.phase == "search" and values:
            better = max if objectives[0].goal == "max" else min
            sums.best = values[0] if sums.best is None else better(sums.best, values[0])
        if kind is OutcomeKind.SKIPPED:
            self.skipped[outcome.reason] = self.skipped.get(outcome.reason, 0) + 1
        if kind is OutcomeKind.INFEASIBLE:
            self.infeasible[outcome.reason] = self.infeasible.get(outcome.reason, 0) + 1
        if kind.is_failure:
            self._add_failure(trial, outcome, attempts)

    def _add_failure(self, trial: PlannedTrial | Record, outcome: Outcome, attempts: int) -> None:
        line, has_more, _ = outcome.reason.partition("\n")
        if has_more and not self.traced:
            self.traced = trial.trial_id
        if len(self.failures) < MAX_FAILURES:
            place = f"{trial.arm} {trial.phase} {numbered(trial.repeat, trial.number)}"
            self.failures.append(Failure(trial.trial_id, place, standing_of(outcome.kind, attempts), line))


@dataclass(frozen=True, slots=True)
class Overview:
    """State of a sweep at one moment."""

    plan: Plan
    """Plan of the sweep; its list of trials is not used."""
    planned: Mapping[tuple[str, Phase], int]
    """Number of planned trials by arm and phase, in the order of the plan."""
    ended: EndedTrialTotals
    others: Sequence[Record]
    """Records of trials that have started and have no final outcome."""

    @classmethod
    def from_records(
        cls,
        plan: Plan,
        num_planned: Mapping[tuple[str, Phase], int],
        records: Iterable[Record],
        ended_trial_totals: EndedTrialTotals | None = None,
    ) -> "Overview":
        """Return the overview of `records`; ended trials are added to the sums in `ended_trial_totals`."""
        ended_trial_totals, other_records = ended_trial_totals or EndedTrialTotals(), []
        objective_names = [objective.metric for objective in plan.objectives]
        for record in records:
            if record.outcome is None or not record.outcome.is_final:
                other_records.append(record)
                continue
            ended_trial_totals.add(
                record,
                Outcome(record.outcome, record.reason),
                record.last,
                values=record.judged_by(objective_names) if objective_names else (),
                attempts=record.attempts,
                objectives=plan.objectives,
            )
        return cls(plan, num_planned, ended_trial_totals, other_records)

    def progress(self, *, is_locked: bool) -> tuple[Progress, ...]:
        """Return the progress of every arm.

        Args:
            is_locked: Whether a process runs the sweep. Without such a process no trial counts as running,
                because open trials of a killed process wait for a resume.
        """
        num_planned, others = Counter[str](), by_arm(self.others)
        for (arm, _), count in self.planned.items():
            num_planned[arm] += count
        return tuple(
            self._arm_progress(arm.name, num_planned[arm.name], others[arm.name], is_locked=is_locked)
            for arm in self.plan.arms
        )

    def _arm_progress(
        self, arm: str, num_planned: int, other_records: Sequence[Record], *, is_locked: bool
    ) -> Progress:
        phases, outcomes = self.ended.arms.get(arm, {}), Counter[OutcomeKind]()
        for phase in phases.values():
            outcomes.update(phase.outcomes)
        return Progress(
            arm=arm,
            planned=num_planned,
            running=sum(record.outcome is None for record in other_records) if is_locked else 0,
            finished=outcomes[OutcomeKind.FINISHED],
            pruned=outcomes[OutcomeKind.PRUNED],
            failed=sum(count for kind, count in outcomes.items() if kind.is_failure),
            best=phases["search"].best if "search" in phases else None,
            seconds=sum(phase.seconds for phase in phases.values())
            + sum(record.last.seconds for record in other_records if record.last),
            skipped=outcomes[OutcomeKind.SKIPPED],
            infeasible=outcomes[OutcomeKind.INFEASIBLE],
        )

    def outlook(self, *, is_locked: bool, now: float) -> RemainingWork:
        """Return the running trials and the remaining work at Unix time `now`.

        Args:
            is_locked: Whether a process runs the sweep; otherwise no trial counts as running.
            now: Unix time in seconds.
        """
        builder = RemainingWorkBuilder(self.plan)
        for (arm, phase), count in self.planned.items():
            totals = self.ended.arms.get(arm, {}).get(phase, PhaseTotals())
            num_waiting = count - totals.num_ended
            builder.phases[arm, phase] = PhaseWork(
                arm, phase, num_waiting, totals.reported, totals.seconds, totals.finished, totals.finished_s
            )
        for record in self.others if is_locked else ():
            if record.outcome is None and (record.arm, record.phase) in builder.phases:
                builder.phases[record.arm, record.phase].num_waiting -= 1
                silent_s = (
                    None if record.last_activity_at is None else max(0.0, now - record.last_activity_at)
                )
                builder.add_running(record, record.settings, record.last, silent_s)
        return builder.build()
