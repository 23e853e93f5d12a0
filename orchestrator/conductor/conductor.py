"""Decides which trials run next, which stop early and which assignments are confirmed.

The conductor performs no I/O and reads no clock. Its decisions follow from the plan and the order of calls,
so replaying the ledger restores its state. The next trial is taken from the earliest repeat with a trial to
run. Within a repeat, the arm with the least progress comes first, and ties follow the order of the plan. An
arm is confirmed when all trials of its search have ended. Posthoc trials run after confirmation.
"""

import heapq
from collections.abc import Container, Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING

from orchestrator.conductor.budget import Spending
from orchestrator.conductor.crossings import Crossings
from orchestrator.conductor.first_errors import FirstErrors
from orchestrator.conductor.messages import Continue, NothingAdmitted, Progress, Stop, TrialDecision
from orchestrator.conductor.outlook import Outlook
from orchestrator.conductor.report_judge import ReportJudge
from orchestrator.conductor.rounds import Rounds, metrics_for_look
from orchestrator.conductor.state import ArmState, TrialState, TrialStatus, outlook, progress, trial_of
from orchestrator.conductor.winners import Candidate, best_first
from orchestrator.errors import StoreError
from orchestrator.identity import canonical
from orchestrator.ledger.events import Event, EventKind, trial_from_json
from orchestrator.plan.planned_trials import search_trial
from orchestrator.plan.types import Plan
from orchestrator.spec.scopes import CountedReports, counted_name
from orchestrator.trials import Outcome, OutcomeKind, PlannedTrial, Trial
from search_spaces.dimensions import Assignment
from search_spaces.wording import amount
from trainables.protocol import Measurement

if TYPE_CHECKING:
    from orchestrator.conductor.search_journal import SearchJournal  # imports Optuna


class Conductor:
    """State machine of a sweep.

    Drivers call `next_trial` for trials, `report` for measurements and `record_end` for the ends of trials.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._states: dict[str, TrialState] = {}
        cells = product(range(plan.repeats), plan.arms)
        self._arms = {(arm.name, repeat): ArmState(arm, repeat) for repeat, arm in cells}
        self._first = FirstErrors(plan)
        self._posthoc: dict[str, list[TrialState]] = {}
        self._again: dict[str, None] = {}
        self._unrunnable: dict[str, tuple[Trial, Outcome]] = {}
        self._left = len(plan.trials)
        self._num_best = plan.confirm.best if plan.confirm is not None else 0
        self._refused = ""
        self._spending = Spending(plan)
        self._rounds = Rounds(plan)
        self._confirmed: dict[tuple[str, int], Mapping[str, float] | None] = {}
        self._judge = ReportJudge(plan)
        for planned in plan.trials:
            arm_state = self._repeat_of(planned)
            state = TrialState(planned, len(arm_state.trials))
            arm_state.trials.append(state)
            self._states[planned.trial_id] = state
        if plan.search is not None:
            from orchestrator.conductor.search_journal import SearchJournal

            arms = self._arms.items()
            self._searches = {key: SearchJournal(of.arm, plan.search, of.repeat) for key, of in arms}
        self._crossings = Crossings(self._arms)
        for arm_state in self._arms.values():
            self._link(arm_state)

    @property
    def finished(self) -> bool:
        """Return whether every planned trial has ended."""
        return not self._left

    def next_trial(self, blocked_ids: Container[str] = ()) -> Trial | None:
        """Return the next trial to run that is not in `blocked_ids`; None if no trial can run now."""
        if self._refused:
            return None
        for trial_id in self._again:
            if trial_id not in blocked_ids:
                del self._again[trial_id]
                return self._run(self._states[trial_id])
        while (state := self._next()) is not None:
            try:
                state.trial = self._build_trial(state, self._assignment(state))
            except NothingAdmitted as error:
                self._end_unrun(state, str(error))
            else:
                return self._run(state)
        return None

    def report(self, trial_id: str, measurement: Measurement) -> TrialDecision:
        """Process a measurement and return whether the trial continues.

        Steps of a trial must increase. A stop, once decided, is returned for all later measurements.
        """
        state = self._open(trial_id)
        arm_state = self._repeat_of(state.planned)
        arm_state.seconds += measurement.seconds - (state.last.seconds if state.last else 0.0)
        assert state.last is None or measurement.step > state.last.step, "steps of a trial must increase"
        self._spending.measured(state.planned, state.last, measurement)
        state.last = measurement
        if state.standing is None:
            state.standing = self._judge.fault(state, measurement)
        if state.standing is None:
            pruned = self._prune_stop(state, measurement)
            state.standing = self._judge.overtime(measurement) or pruned
        if state.planned.phase == "search":
            self._skip_if_over(arm_state)
        return state.standing or Continue()

    def judge_outcome(self, trial_id: str, outcome: Outcome) -> Outcome:
        """Return the outcome to record for an outcome that a driver reports.

        A search trial without objective values, or a trial with an invalid report, counts as crashed.
        """
        wants_flops = self._spending.wants_flops
        return self._judge.judge_outcome(self._open(trial_id), outcome, wants_flops=wants_flops)

    def record_end(self, trial_id: str, outcome: Outcome) -> None:
        """Record how a trial ended; `next_trial` returns a stopped trial before any new one."""
        state = self._open(trial_id)
        if state.status is TrialStatus.RUNNING:
            self._repeat_of(state.planned).running -= 1
        state.status = TrialStatus.AGAIN
        if outcome.kind.final:
            self._again.pop(trial_id, None)
            if state.planned.phase == "search":
                self._report_to_search(state, outcome.kind)
            self._first.ended(state.planned, outcome)
            self._end_trial_state(state, outcome)
        else:
            self._again[trial_id] = None

    def record_checkpoint(self, trial_id: str) -> None:
        """Record that a checkpoint was written at the trial's last measurement."""
        state = self._states[trial_id]
        state.saved = state.last
        state.saved_counted = state.counted and state.counted.copy()

    def retry(self, trial_id: str, step: int) -> list[str]:
        """Reopen a failed trial so that it runs again.

        Some trials ended without a start because of the failure. They become open again: posthoc trials of a
        confirm trial, confirm trials that had no assignment to confirm, and seeds that a look had made
        unnecessary.

        Args:
            trial_id: Id of a failed trial. If it is a search trial, no confirm trial of its arm may have
                begun.
            step: Step of the checkpoint to resume from; -1 to start from scratch.

        Returns:
            Ids of the other trials that are open again.
        """
        state = self._states[trial_id]
        planned, arm_state = state.planned, self._repeat_of(state.planned)
        assert state.trial is not None, "only a trial that began can be retried"
        self._reopen(state)
        state.status, self._again[trial_id] = TrialStatus.AGAIN, None
        state.last = state.saved if step >= 0 else None
        state.saved = state.last
        state.counted = state.saved_counted.copy() if step >= 0 and state.saved_counted else None
        state.saved_counted = state.counted and state.counted.copy()
        self._first.forget(planned)
        other_states: list[TrialState] = []
        if planned.phase == "search":
            self._search_of(planned).retried(planned.number, state.trial.assignment)
            other_states = self._reopen_search(arm_state)
        elif planned.phase == "confirm":
            self._confirmed.pop((planned.arm, planned.seed), None)
            other_states = self._skipped_too_early()
        for trial_state in [state, *other_states]:
            other_states += _ended(self._posthoc.get(trial_state.planned.trial_id, ()))
        for trial_state in other_states:
            self._reopen(trial_state)
        for each_arm in self._arms.values():
            self._release(each_arm)
        return [trial_state.planned.trial_id for trial_state in other_states]

    def _reopen_search(self, arm_state: ArmState) -> list[TrialState]:
        """Let the search of an arm continue; return the ended trials that depend on its result."""
        arm_state.searching += 1
        dependent = [*arm_state.phase("confirm"), *self._crossings.of(arm_state)]
        for state in dependent:
            self._repeat_of(state.planned).withdraw(state)
            state.is_released = False
        return _ended(dependent)

    def _skipped_too_early(self) -> list[TrialState]:
        """Recompute the completed rounds; return skipped trials that may now be needed."""
        self._rounds = Rounds.after(self._plan, self._confirmed)
        skipped_states = [
            state
            for (name, _), arm_state in self._arms.items()
            if name not in self._rounds.decided
            if any(state.is_skipped for state in arm_state.phase("confirm"))
            for state in arm_state.trials
            if state.is_skipped and state.planned.phase != "posthoc"
        ]
        for state in skipped_states:
            self._repeat_of(state.planned).searching += state.planned.phase == "search"
            state.is_released = False
        return skipped_states

    def _reopen(self, state: TrialState) -> None:
        """Reset an ended trial to its state before `next_trial` returned it."""
        assert state.outcome is not None, "only a trial that has ended is reopened"
        self._left += 1
        self._unrunnable.pop(state.planned.trial_id, None)  # trial added after its search had failed
        self._repeat_of(state.planned).ended[state.outcome.kind] -= 1
        state.status, state.outcome = TrialStatus.WAITING, None
        state.objective_values = state.standing = None
        state.evaluated = False

    def is_running(self, trial_id: str) -> bool:
        """Return whether a trial was returned by `next_trial` and has neither ended nor stopped since."""
        return self._states[trial_id].status is TrialStatus.RUNNING

    def pending_stop(self, trial_id: str) -> Stop | None:
        """Return the stop that was decided for an open trial; None if there is none."""
        return self._open(trial_id).standing

    def stopped_while_waiting(self) -> list[tuple[str, Stop]]:
        """Return stops decided for trials that are not running; such trials end without running again."""
        standings = ((trial_id, self._states[trial_id].standing) for trial_id in self._again)
        return [(trial_id, stop) for trial_id, stop in standings if stop is not None]

    def take_unrunnable(self) -> list[tuple[Trial, Outcome]]:
        """Return the trials that ended without running; no trial is returned by two calls.

        A trial cannot run if, for example, its search found no assignment to confirm.
        """
        unrunnable = list(self._unrunnable.values())
        self._unrunnable.clear()
        return unrunnable

    def used_up(self) -> str:
        """Return which budget, except wall clock, is used up and prevents new trials; empty if none is."""
        return self._spending.used_up()

    def repeated_error(self) -> str:
        """Return the error with which all first trials of an arm crashed; empty if the sweep may continue."""
        return "" if self._plan.continue_on_error else self._first.repeated()

    def refuse_new(self, reason: str) -> None:
        """Make `next_trial` return no further trial, for `reason`."""
        self._refused = self._refused or reason

    def progress(self) -> tuple[Progress, ...]:
        """Return the progress of every arm, in the order of the plan."""
        goal = self._plan.objectives[0].goal if self._plan.objectives else None
        return tuple(progress(self._repeats_of(arm.name), goal) for arm in self._plan.arms)

    def outlook(self) -> Outlook:
        """Return the running trials and the remaining work."""
        return outlook(self._plan, self._states.values())

    def replay(self, event: Event) -> None:
        """Apply an event of the ledger; trials that have not ended will be returned by `next_trial` again.

        Raises:
            StoreError: If the event is of a trial that is not in the plan.
        """
        if event.kind not in _REPLAYED:
            return
        assert event.trial_id is not None, "events of trials must name them"
        state = self._states.get(event.trial_id)
        if state is None:
            raise StoreError(
                f"the ledger must contain only trials of the plan, got {event.trial_id}; plan and ledger "
                "belong to different sweeps: restore the spec it was launched with"
            )
        if event.kind is EventKind.RETRIED:
            if "cause" not in event.payload:  # retries of dependent trials follow from this one
                self.retry(event.trial_id, event.payload["step"])
        elif state.status is TrialStatus.ENDED:  # ended here without running, as in the recorded session
            if event.kind is EventKind.ENDED:
                self._unrunnable.pop(event.trial_id, None)
        elif event.kind is EventKind.ASKED:
            self._replay_asked(state, trial_from_json(event.payload))
        elif event.kind is EventKind.MEASURED:
            self.report(event.trial_id, Measurement(**event.payload))
        elif event.kind is EventKind.CHECKPOINTED:
            self.record_checkpoint(event.trial_id)
        else:
            kind, reason = OutcomeKind(event.payload["kind"]), event.payload["reason"]
            self.record_end(event.trial_id, Outcome(kind, reason))

    def _replay_asked(self, state: TrialState, trial: Trial) -> None:
        if trial.planned.phase == "search":
            self._search_of(trial.planned).record_assignment(trial.planned.number, trial.assignment)
        state.trial = trial
        state.status = TrialStatus.AGAIN
        self._again[trial.trial_id] = None

    def _link(self, arm_state: ArmState) -> None:
        """Link posthoc trials to their confirm trials, and release the first trials of the arm."""
        confirms = [state.planned for state in arm_state.phase("confirm")]
        sources = {(planned.rank, planned.seed): planned.trial_id for planned in confirms}
        for state in arm_state.phase("posthoc"):
            state.source_id = source = sources[state.planned.rank, state.planned.seed]
            self._posthoc.setdefault(source, []).append(state)
        arm_state.searching = sum(1 for _ in arm_state.phase("search"))
        if arm_state.searching:
            self._release(arm_state)
        else:
            arm_state.winners = [{}] * self._num_best
            self._confirm(arm_state)

    def _next(self) -> TrialState | None:
        """Return the next ready trial: earliest repeat first, then the arm with the least progress."""
        ready: list[tuple[int, int, int, ArmState]] = []
        for order, arm_state in enumerate(self._arms.values()):
            while arm_state.ready and self._states[arm_state.ready[0][1]].status is not TrialStatus.WAITING:
                heapq.heappop(arm_state.ready)  # was asked for in an earlier session
            if arm_state.ready:
                ready.append((arm_state.repeat, arm_state.ready[0][0], order, arm_state))
        if not ready:
            return None
        *_, arm_state = min(ready, key=lambda entry: entry[:3])
        return self._states[heapq.heappop(arm_state.ready)[1]]

    def _repeat_of(self, planned_trial: PlannedTrial) -> ArmState:
        return self._arms[planned_trial.arm, planned_trial.repeat]

    def _repeats_of(self, arm: str) -> list[ArmState]:
        return [self._arms[arm, repeat] for repeat in range(self._plan.repeats)]

    def _search_of(self, planned_trial: PlannedTrial) -> "SearchJournal":
        return self._searches[planned_trial.arm, planned_trial.repeat]

    def _run(self, state: TrialState) -> Trial:
        assert state.trial is not None, "only a trial that was asked for can run"
        state.status = TrialStatus.RUNNING
        self._repeat_of(state.planned).running += 1
        return state.trial

    def _assignment(self, state: TrialState) -> Assignment:
        planned = state.planned
        if planned.phase == "search":
            return self._search_of(planned).ask(planned.number)
        if planned.phase == "cross":
            return self._crossings.assignment(planned)
        assert planned.rank is not None, "a trial after the search must name its rank"
        return self._repeat_of(planned).winners[planned.rank]

    def _build_trial(self, state: TrialState, assignment: Assignment) -> Trial:
        return trial_of(self._plan, self._repeat_of(state.planned).arm, state, assignment)

    def _open(self, trial_id: str) -> TrialState:
        state = self._states[trial_id]
        under_way = state.status in {TrialStatus.RUNNING, TrialStatus.AGAIN}
        assert under_way, f"{trial_id} must be under way, is {state.status}"
        return state

    def _prune_stop(self, state: TrialState, measurement: Measurement) -> Stop | None:
        plan, planned = self._plan.search, state.planned
        if plan is None or planned.phase != "search":
            return None
        if state.counted is None:
            state.counted = CountedReports(plan.objectives)
        if not state.counted.add(measurement):
            return None
        state.objective_values = state.counted.objective_values
        if not self._search_of(planned).report(planned.number, measurement.step, state.objective_values):
            return None
        assert plan.stopper is not None, "only an early stopper prunes"
        value = f"{counted_name(plan.objectives[0])}={state.objective_values[0]:.6g}"
        reason = f"keeps better trials of the arm, got {value} at step {measurement.step}"
        return Stop(OutcomeKind.PRUNED, f"{plan.stopper['name']} {reason}")

    def _end_trial_state(self, state: TrialState, outcome: Outcome) -> None:
        planned, arm_state = state.planned, self._repeat_of(state.planned)
        state.end(outcome)
        self._left -= 1
        arm_state.ended[outcome.kind] += 1
        if planned.phase == "search":
            self._end_search_trial(state, outcome.kind)
        counts_for_looks = planned.phase == "confirm" and outcome.kind is not OutcomeKind.SKIPPED
        if counts_for_looks:
            metrics = state.last.metrics if state.last is not None else None
            self._confirmed[planned.arm, planned.seed] = metrics_for_look(outcome.kind, metrics)
        for posthoc in self._posthoc.get(planned.trial_id, ()):
            if outcome.kind is OutcomeKind.FINISHED:
                arm_state.push(posthoc)
            elif outcome.kind is OutcomeKind.SKIPPED:
                self._end_unrun(posthoc, outcome.reason, OutcomeKind.SKIPPED)
            else:
                reason = f"the confirm trial {planned.trial_id} must have finished, but {outcome.kind}"
                self._end_unrun(posthoc, f"{reason}: {outcome.reason}")
        if counts_for_looks:
            self._evaluate_rounds()

    def _end_search_trial(self, state: TrialState, kind: OutcomeKind) -> None:
        """Replace an infeasible trial, and end the search if it is complete or over."""
        arm_state, is_skipped = self._repeat_of(state.planned), kind is OutcomeKind.SKIPPED
        arm_state.searching -= 1
        if kind is OutcomeKind.INFEASIBLE:
            self._replace(state)
        elif not is_skipped:
            values = state.objective_values if kind is OutcomeKind.FINISHED else None
            self._spending.search_ended(state.planned, values[0] if values else None)
        if not arm_state.searching:
            self._search_ended(arm_state)
        elif not is_skipped:
            self._skip_if_over(arm_state)

    def _replace(self, infeasible: TrialState) -> None:
        """Add a search trial in place of an infeasible one, unless the search has to end."""
        assert self._plan.search is not None, "only a search draws again"
        arm_state = self._repeat_of(infeasible.planned)
        number = sum(1 for _ in arm_state.phase("search"))
        planned = search_trial(arm_state.arm, self._plan.search, arm_state.repeat, number)
        state = TrialState(planned, infeasible.place)
        arm_state.trials.append(state)
        self._states[planned.trial_id] = state
        self._left += 1
        arm_state.searching += 1
        reason = arm_state.why_not_replaced(self._plan.search, number)
        if not reason:
            arm_state.push(state)
            return
        skip_reason = f"the search of {arm_state.arm.name} ended: {reason}"
        for trial_state in arm_state.waiting("search") if arm_state.has_too_many_infeasible else [state]:
            self._end_unrun(trial_state, skip_reason, OutcomeKind.SKIPPED)

    def _evaluate_rounds(self) -> None:
        """Evaluate completed rounds: skip trials of decided arms and release the next seeds of others."""
        while (decided := self._rounds.advance(self._confirmed)) is not None:
            for name, decision in decided.items():
                # Confirm trials are skipped first. Ending the last search trial would otherwise start the
                # confirmation.
                for phase, repeat in product(("confirm", "search"), self._repeats_of(name)):
                    for state in repeat.phase(phase):
                        if state.status is TrialStatus.WAITING:
                            self._end_unrun(state, self._rounds.reason(decision), OutcomeKind.SKIPPED)
            for arm_state in self._arms.values():
                self._release(arm_state)

    def _search_ended(self, arm_state: ArmState) -> None:
        assert self._plan.search is not None
        ranked_candidates = best_first(arm_state.candidates, self._plan.search.objectives)
        arm_state.winners = [candidate.assignment for candidate in ranked_candidates[: self._num_best]]
        self._confirm(arm_state)
        for state, why_not in self._crossings.decided(arm_state):
            if why_not:
                self._end_unrun(state, why_not)
            else:
                self._repeat_of(state.planned).push(state)

    def _skip_if_over(self, arm_state: ArmState) -> None:
        """Skip the search trials of the arm that have not started, if the search of the arm is over."""
        if not self._spending.limits_searches or not (waiting_states := arm_state.waiting("search")):
            return
        distinct = {canonical(dict(candidate.assignment)) for candidate in arm_state.candidates}
        reason = self._spending.search_over(waiting_states[0].planned, len(distinct), self._num_best or 1)
        planned = amount(sum(1 for _ in arm_state.phase("search")), "trial")
        for state in waiting_states if reason else ():
            message = f"the search of {arm_state.arm.name} ended before its {planned} had begun: {reason}"
            self._end_unrun(state, message, OutcomeKind.SKIPPED)

    def _report_to_search(self, state: TrialState, kind: OutcomeKind) -> None:
        """Report the outcome to the search of the arm; a finished trial also becomes a candidate."""
        number = state.planned.number
        self._search_of(state.planned).record_end(number, kind)
        if kind is OutcomeKind.FINISHED:
            assert state.objective_values is not None, "judge_outcome must come first"
            assert state.trial is not None, "only a trial that was asked for can finish"
            candidate = Candidate(number, state.trial.assignment, state.objective_values)
            self._repeat_of(state.planned).candidates.append(candidate)

    def _confirm(self, arm_state: ArmState) -> None:
        """Release the confirm trials of the best assignments; end trials whose rank has no assignment."""
        for state in arm_state.phase("confirm"):
            rank = state.planned.rank
            assert rank is not None, "a confirm trial must name its rank"
            if rank >= len(arm_state.winners) and state.status is TrialStatus.WAITING:
                self._end_unrun(state, arm_state.nothing_to_confirm(rank))
        self._release(arm_state)

    def _release(self, arm_state: ArmState) -> None:
        """Release trials that need not wait for a look: search trials, or confirm trials after the search."""
        for state in arm_state.phase("search" if arm_state.searching else "confirm"):
            is_waiting = state.status is TrialStatus.WAITING and not state.is_released
            if is_waiting and self._rounds.may_run(state.planned):
                state.is_released = True
                arm_state.push(state)

    def _end_unrun(self, state: TrialState, reason: str, kind: OutcomeKind = OutcomeKind.CRASHED) -> None:
        """End a trial that cannot run or is not needed, and record the end as for any other trial."""
        state.trial = self._build_trial(state, {})
        outcome = Outcome(kind, reason)
        self._unrunnable[state.planned.trial_id] = (state.trial, outcome)
        self._end_trial_state(state, outcome)


def _ended(states: Iterable[TrialState]) -> list[TrialState]:
    return [state for state in states if state.status is TrialStatus.ENDED]


_REPLAYED = frozenset(
    {EventKind.ASKED, EventKind.MEASURED, EventKind.CHECKPOINTED, EventKind.ENDED, EventKind.RETRIED}
)
