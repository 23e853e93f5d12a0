"""Decides what runs next, what stops early and what is confirmed. Does no I/O and reads no clock.

Everything it decides follows from the plan and the order of calls, so replaying the ledger leaves it where it
was. Arms progress together: the next trial comes from the arm that is least far, in the order of the plan.
An arm is confirmed when all of its search trials have ended, and re-read when its confirmed trial has.
"""

import heapq

from orchestrator.conductor.assigning import NothingAdmitted, apply
from orchestrator.conductor.lanes import Cell, Lane, State
from orchestrator.conductor.messages import Continue, Progress, Stop, Verdict
from orchestrator.conductor.winners import Candidate, best_first
from orchestrator.errors import StoreError
from orchestrator.ledger.codec import trial_from_json
from orchestrator.ledger.events import Event, EventKind
from orchestrator.plan.types import Plan
from orchestrator.trials import Outcome, OutcomeKind, Trial
from search_spaces.dimensions import Assignment
from trainables.protocol import Measurement


class Conductor:
    """The sweep as a state machine: `ask` it for trials, let it `hear`, `tell` it how trials ended."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._cells: dict[str, Cell] = {}
        self._lanes = {arm.name: Lane(arm) for arm in plan.arms}
        self._rereads: dict[str, list[Cell]] = {}
        self._again: dict[str, None] = {}
        self._doomed: dict[str, tuple[Trial, Outcome]] = {}
        self._left = len(plan.trials)
        self._refused = ""
        for planned in plan.trials:
            lane = self._lanes[planned.arm]
            cell = Cell(planned, len(lane.cells))
            lane.cells.append(cell)
            self._cells[planned.trial_id] = cell
        if plan.search is not None:
            from orchestrator.conductor.samplers import ArmSearch

            self._searches = {arm.name: ArmSearch(arm, plan.search) for arm in plan.arms}
        for lane in self._lanes.values():
            self._link(lane)

    @property
    def finished(self) -> bool:
        """Whether every planned trial has ended."""
        return not self._left

    def ask(self) -> Trial | None:
        """The next trial to run, or None while there is nothing to hand out."""
        if self._refused:
            return None
        while self._again:
            trial_id = next(iter(self._again))
            del self._again[trial_id]
            return self._run(self._cells[trial_id])
        while (cell := self._next()) is not None:
            try:
                cell.trial = self._trial(cell, self._assignment(cell))
            except NothingAdmitted as error:
                self._doom(cell, str(error))
            else:
                return self._run(cell)
        return None

    def hear(self, trial_id: str, measurement: Measurement) -> Verdict:
        """Take a measurement; steps of a trial must increase. A stop, once decided, stands."""
        cell = self._open(trial_id)
        lane = self._lanes[cell.planned.arm]
        lane.seconds += measurement.seconds - (cell.last.seconds if cell.last else 0.0)
        assert cell.last is None or measurement.step > cell.last.step, "steps of a trial must increase"
        cell.last = measurement
        if cell.standing is None:
            pruned = self._pruned(cell, measurement)
            cell.standing = self._overtime(measurement) or pruned
        return cell.standing or Continue()

    def settle(self, trial_id: str, outcome: Outcome) -> Outcome:
        """The outcome to record for what a driver reports: a search trial without a value has crashed."""
        cell = self._open(trial_id)
        if outcome.kind is not OutcomeKind.FINISHED or cell.planned.phase != "search" or cell.values:
            return outcome
        assert self._plan.search is not None
        wanted = ", ".join(each.metric for each in self._plan.search.objectives)
        given = ", ".join(sorted(cell.last.metrics)) if cell.last else "no measurement"
        reason = f"a search trial must report its objectives {wanted}, got {given}; check search.objectives"
        return Outcome(OutcomeKind.CRASHED, reason)

    def tell(self, trial_id: str, outcome: Outcome) -> None:
        """How a trial ended. A stopped one is handed out again, before anything new."""
        cell = self._open(trial_id)
        if cell.state is State.RUNNING:
            self._lanes[cell.planned.arm].running -= 1
        cell.state = State.AGAIN
        if outcome.kind.final:
            self._again.pop(trial_id, None)
            if cell.planned.phase == "search":
                self._teach(cell, outcome.kind)
            self._end(cell, outcome)
        else:
            self._again[trial_id] = None

    def running(self, trial_id: str) -> bool:
        """Whether a trial was handed out and has neither ended nor stopped since."""
        return self._cells[trial_id].state is State.RUNNING

    def standing(self, trial_id: str) -> Stop | None:
        """The stop that was decided for a trial under way."""
        return self._open(trial_id).standing

    def undone(self) -> list[tuple[str, Stop]]:
        """Stops decided for trials that are not running: they need not run again to end."""
        found = ((trial_id, self._cells[trial_id].standing) for trial_id in self._again)
        return [(trial_id, stop) for trial_id, stop in found if stop is not None]

    def take_doomed(self) -> list[tuple[Trial, Outcome]]:
        """Trials that ended without running, told once: e.g. nothing was found that could be confirmed."""
        doomed = list(self._doomed.values())
        self._doomed.clear()
        return doomed

    def refuse_new(self, reason: str) -> None:
        """Hand out nothing any more."""
        self._refused = self._refused or reason

    def progress(self) -> tuple[Progress, ...]:
        """How far every arm is, in the order of the plan."""
        goal = self._plan.search.objectives[0].goal if self._plan.search else None
        return tuple(lane.progress(goal) for lane in self._lanes.values())

    def replay(self, event: Event) -> None:
        """Take up what the ledger says has happened. Trials that have not ended will be handed out again.

        Raises StoreError for a trial that is not of this plan.
        """
        if event.kind not in {EventKind.ASKED, EventKind.MEASURED, EventKind.ENDED}:
            return
        assert event.trial_id is not None, "events of trials must name them"
        cell = self._cells.get(event.trial_id)
        if cell is None:
            raise StoreError(
                f"the ledger must hold trials of the plan only, got {event.trial_id}; plan and ledger are of "
                "different sweeps: restore the spec it was launched with"
            )
        if cell.state is State.ENDED:  # doomed here as it was then
            if event.kind is EventKind.ENDED:
                self._doomed.pop(event.trial_id, None)
        elif event.kind is EventKind.ASKED:
            self._replay_asked(cell, trial_from_json(event.payload))
        elif event.kind is EventKind.MEASURED:
            self.hear(event.trial_id, Measurement(**event.payload))
        else:
            self.tell(event.trial_id, Outcome(OutcomeKind(event.payload["kind"]), event.payload["reason"]))

    def _replay_asked(self, cell: Cell, trial: Trial) -> None:
        if trial.planned.phase == "search":
            self._searches[trial.planned.arm].asked(trial.planned.number, trial.assignment)
        cell.trial = trial
        cell.state = State.AGAIN
        self._again[trial.trial_id] = None

    def _link(self, lane: Lane) -> None:
        """Find what depends on what, and let the first trials be asked for."""
        confirms = {(each.planned.rank, each.planned.seed): each for each in lane.phase("confirm")}
        for cell in lane.phase("posthoc"):
            source = confirms[cell.planned.rank, cell.planned.seed].planned.trial_id
            cell.source_id = source
            self._rereads.setdefault(source, []).append(cell)
        for cell in lane.phase("search"):
            lane.searching += 1
            lane.push(cell)
        if not lane.searching:
            lane.winners = [{}] * (self._plan.confirm.best if self._plan.confirm else 0)
            self._confirm(lane)

    def _next(self) -> Cell | None:
        """Takes the first trial of the arm that is least far."""
        ready: list[tuple[int, int, Lane]] = []
        for order, lane in enumerate(self._lanes.values()):
            while lane.ready and self._cells[lane.ready[0][1]].state is not State.WAITING:
                heapq.heappop(lane.ready)  # asked for in an earlier session
            if lane.ready:
                ready.append((lane.ready[0][0], order, lane))
        if not ready:
            return None
        *_, lane = min(ready, key=lambda each: each[:2])
        return self._cells[heapq.heappop(lane.ready)[1]]

    def _run(self, cell: Cell) -> Trial:
        assert cell.trial is not None, "only a trial that was asked for can run"
        cell.state = State.RUNNING
        self._lanes[cell.planned.arm].running += 1
        return cell.trial

    def _assignment(self, cell: Cell) -> Assignment:
        planned = cell.planned
        if planned.phase == "search":
            return self._searches[planned.arm].ask(planned.number)
        assert planned.rank is not None, "a trial after the search must name its rank"
        return self._lanes[planned.arm].winners[planned.rank]

    def _trial(self, cell: Cell, assignment: Assignment) -> Trial:
        settings = apply(
            apply(self._lanes[cell.planned.arm].arm.settings, assignment), cell.planned.overrides
        )
        confirm = self._plan.confirm
        splits = confirm.splits if confirm is not None and cell.planned.phase != "search" else ()
        return Trial(cell.planned, assignment, settings, splits, cell.source_id)

    def _open(self, trial_id: str) -> Cell:
        cell = self._cells[trial_id]
        assert cell.state in {State.RUNNING, State.AGAIN}, f"{trial_id} must be under way, is {cell.state}"
        return cell

    def _overtime(self, measurement: Measurement) -> Stop | None:
        minutes = self._plan.resources.minutes
        if minutes is None or measurement.seconds <= minutes * 60:
            return None
        used = f"{measurement.seconds / 60:.1f} of {minutes:g} minutes were used at step {measurement.step}"
        return Stop(OutcomeKind.TIMED_OUT, used)

    def _pruned(self, cell: Cell, measurement: Measurement) -> Stop | None:
        plan, planned = self._plan.search, cell.planned
        if plan is None or planned.phase != "search":
            return None
        metrics = measurement.metrics
        if not all(each.metric in metrics for each in plan.objectives):
            return None
        cell.values = tuple(metrics[each.metric] for each in plan.objectives)
        if not self._searches[planned.arm].hear(planned.number, measurement.step, cell.values):
            return None
        assert plan.stopper is not None, "only an early stopper prunes"
        value = f"{plan.objectives[0].metric}={cell.values[0]:.6g} at step {measurement.step}"
        return Stop(OutcomeKind.PRUNED, f"{plan.stopper['name']} keeps better trials of the arm, got {value}")

    def _end(self, cell: Cell, outcome: Outcome) -> None:
        planned, lane = cell.planned, self._lanes[cell.planned.arm]
        cell.state, cell.outcome = State.ENDED, outcome
        self._left -= 1
        lane.ended[outcome.kind] += 1
        if planned.phase == "search":
            lane.searching -= 1
            if not lane.searching and self._plan.search is not None:
                lane.winners = best_first(lane.candidates, self._plan.search.objectives)
                self._confirm(lane)
        for reread in self._rereads.get(planned.trial_id, ()):
            if outcome.kind is OutcomeKind.FINISHED:
                lane.push(reread)
            else:
                reason = f"its confirmed trial {planned.trial_id} must have finished, but {outcome.kind}"
                self._doom(reread, f"{reason}: {outcome.reason}")

    def _teach(self, cell: Cell, kind: OutcomeKind) -> None:
        """Tell the sampler of the arm, and keep what may be confirmed."""
        search, number = self._searches[cell.planned.arm], cell.planned.number
        match kind:
            case OutcomeKind.FINISHED:
                assert cell.values is not None, "settle must come first"
                assert cell.trial is not None, "only a trial that was asked for can finish"
                search.finished(number)
                candidate = Candidate(number, cell.trial.assignment, cell.values)
                self._lanes[cell.planned.arm].candidates.append(candidate)
            case OutcomeKind.PRUNED:
                search.pruned(number)
            case OutcomeKind.DIVERGED:
                search.diverged(number)
            case _:
                search.failed(number)

    def _confirm(self, lane: Lane) -> None:
        """Let the best assignments be retrained; a rank that no assignment holds is doomed."""
        for cell in lane.phase("confirm"):
            rank = cell.planned.rank
            assert rank is not None, "a confirm trial must name its rank"
            if rank < len(lane.winners):
                lane.push(cell)
            else:
                self._doom(cell, lane.nothing_to_confirm(rank))

    def _doom(self, cell: Cell, reason: str) -> None:
        """End a trial that cannot run; it is recorded like any other."""
        cell.trial = self._trial(cell, {})
        outcome = Outcome(OutcomeKind.CRASHED, reason)
        self._doomed[cell.planned.trial_id] = (cell.trial, outcome)
        self._end(cell, outcome)
