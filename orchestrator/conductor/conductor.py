"""Decide which trials run next, which stop early and which assignments are confirmed.

The conductor performs no I/O and reads no clock. Its decisions follow from the plan and the order of calls,
so replaying the ledger restores its state. The next trial is of the earliest repeat that has a ready trial.
Within a repeat, the arm with the least progress comes first, and ties follow the order of the plan. An arm is
confirmed when all trials of its search have ended. Posthoc trials run after confirmation.
"""

import heapq
from collections.abc import Container, Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING

from orchestrator.conductor.budget import Spending
from orchestrator.conductor.cross_trials import CrossTrials
from orchestrator.conductor.first_errors import FirstErrors
from orchestrator.conductor.messages import Continue, NoAdmissibleDraw, Progress, Stop, TrialDecision
from orchestrator.conductor.outlook import RemainingWork
from orchestrator.conductor.report_validator import ReportValidator
from orchestrator.conductor.rounds import Rounds, metrics_for_look
from orchestrator.conductor.state import ArmState, TrialState, TrialStatus, outlook, progress, trial_of
from orchestrator.conductor.winners import Candidate, rank_candidates
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
        self._trial_states: dict[str, TrialState] = {}
        cells = product(range(plan.repeats), plan.arms)
        self._arms = {(arm.name, repeat): ArmState(arm, repeat) for repeat, arm in cells}
        self._first_errors = FirstErrors(plan)
        self._posthoc: dict[str, list[TrialState]] = {}
        self._resumable: dict[str, None] = {}
        self._unrunnable: dict[str, tuple[Trial, Outcome]] = {}
        self._num_open = len(plan.trials)
        self._num_best = plan.confirm.best if plan.confirm is not None else 0
        self._refusal = ""
        self._spending = Spending(plan)
        self._rounds = Rounds(plan)
        self._confirmed_metrics: dict[tuple[str, int], Mapping[str, float] | None] = {}
        self._report_validator = ReportValidator(plan)
        for planned in plan.trials:
            arm_state = self._arm_state(planned)
            state = TrialState(planned, len(arm_state.trials))
            arm_state.trials.append(state)
            self._trial_states[planned.trial_id] = state
        if plan.search is not None:
            from orchestrator.conductor.search_journal import SearchJournal

            arms = self._arms.items()
            self._searches = {key: SearchJournal(state.arm, plan.search, state.repeat) for key, state in arms}
        self._cross_trials = CrossTrials(self._arms)
        for arm_state in self._arms.values():
            self._link_posthoc_trials(arm_state)

    @property
    def is_finished(self) -> bool:
        """Return whether every planned trial has ended."""
        return not self._num_open

    def next_trial(self, blocked_ids: Container[str] = ()) -> Trial | None:
        """Return the next trial to run that is not in `blocked_ids`; None if no trial can run now."""
        if self._refusal:
            return None
        for trial_id in self._resumable:
            if trial_id not in blocked_ids:
                del self._resumable[trial_id]
                return self._start(self._trial_states[trial_id])
        while (state := self._pop_ready()) is not None:
            try:
                state.trial = self._build_trial(state, self._assignment(state))
            except NoAdmissibleDraw as error:
                self._end_without_running(state, str(error))
            else:
                return self._start(state)
        return None

    def report(self, trial_id: str, measurement: Measurement) -> TrialDecision:
        """Process a measurement and return whether the trial continues.

        Steps of a trial must increase. A stop, once decided, is returned for all later measurements.
        """
        state = self._require_open(trial_id)
        arm_state = self._arm_state(state.planned)
        arm_state.seconds += measurement.seconds - (state.last.seconds if state.last else 0.0)
        assert state.last is None or measurement.step > state.last.step, "steps of a trial must increase"
        self._spending.record_measurement(state.planned, state.last, measurement)
        state.last = measurement
        if state.pending_stop is None:
            state.pending_stop = self._report_validator.stop_for_fault(state, measurement)
        if state.pending_stop is None:
            prune_stop = self._prune_stop(state, measurement)
            state.pending_stop = self._report_validator.stop_for_overtime(measurement) or prune_stop
        if state.planned.phase == "search":
            self._skip_rest_of_search(arm_state)
        return state.pending_stop or Continue()

    def validate_outcome(self, trial_id: str, outcome: Outcome) -> Outcome:
        """Return the outcome to record for an outcome that a driver reports.

        A search trial without objective values, or a trial with an invalid report, counts as crashed.
        """
        wants_flops = self._spending.wants_flops
        return self._report_validator.validate_outcome(
            self._require_open(trial_id), outcome, wants_flops=wants_flops
        )

    def record_end(self, trial_id: str, outcome: Outcome) -> None:
        """Record how a trial ended; `next_trial` returns a stopped trial before any new one."""
        state = self._require_open(trial_id)
        if state.status is TrialStatus.RUNNING:
            self._arm_state(state.planned).running -= 1
        state.status = TrialStatus.RESUMABLE
        if outcome.kind.is_final:
            self._resumable.pop(trial_id, None)
            if state.planned.phase == "search":
                self._report_to_search(state, outcome.kind)
            self._first_errors.record_end(state.planned, outcome)
            self._end_trial_state(state, outcome)
        else:
            self._resumable[trial_id] = None

    def record_checkpoint(self, trial_id: str) -> None:
        """Record that a checkpoint was written at the trial's last measurement."""
        state = self._trial_states[trial_id]
        state.last_at_checkpoint = state.last
        state.counted_at_checkpoint = state.counted_reports and state.counted_reports.copy()

    def retry(self, trial_id: str, step: int) -> list[str]:
        """Reopen a failed trial so that it runs again.

        Trials that ended without a start because of the failure become open again: posthoc trials of a
        confirm trial, confirm trials without an assignment to confirm, and seeds that a look had skipped.

        Args:
            trial_id: Id of a failed trial. If it is a search trial, no confirm trial of its arm may have
                begun.
            step: Step of the checkpoint to resume from; -1 to start from scratch.

        Returns:
            Ids of the other trials that are open again.
        """
        state = self._trial_states[trial_id]
        planned, arm_state = state.planned, self._arm_state(state.planned)
        assert state.trial is not None, "only a started trial can be retried"
        self._reopen(state)
        state.status, self._resumable[trial_id] = TrialStatus.RESUMABLE, None
        state.last = state.last_at_checkpoint if step >= 0 else None
        state.last_at_checkpoint = state.last
        state.counted_reports = (
            state.counted_at_checkpoint.copy() if step >= 0 and state.counted_at_checkpoint else None
        )
        state.counted_at_checkpoint = state.counted_reports and state.counted_reports.copy()
        self._first_errors.forget(planned)
        other_states: list[TrialState] = []
        if planned.phase == "search":
            self._search_journal(planned).record_retried(planned.number, state.trial.assignment)
            other_states = self._reopen_search(arm_state)
        elif planned.phase == "confirm":
            self._confirmed_metrics.pop((planned.arm, planned.seed), None)
            other_states = self._reopen_skipped_seeds()
        for trial_state in [state, *other_states]:
            other_states += _ended_states(self._posthoc.get(trial_state.planned.trial_id, ()))
        for trial_state in other_states:
            self._reopen(trial_state)
        for other_arm in self._arms.values():
            self._release(other_arm)
        return [trial_state.planned.trial_id for trial_state in other_states]

    def _reopen_search(self, arm_state: ArmState) -> list[TrialState]:
        """Let the search of an arm continue; return the ended trials that depend on its result."""
        arm_state.num_searching += 1
        dependent = [*arm_state.trials_of_phase("confirm"), *self._cross_trials.trials_of(arm_state)]
        for state in dependent:
            self._arm_state(state.planned).withdraw(state)
            state.is_released = False
        return _ended_states(dependent)

    def _reopen_skipped_seeds(self) -> list[TrialState]:
        """Recompute the completed rounds; return skipped trials that may now be needed."""
        self._rounds = Rounds.from_confirmations(self._plan, self._confirmed_metrics)
        skipped_states = [
            state
            for (name, _), arm_state in self._arms.items()
            if name not in self._rounds.decided
            if any(state.is_skipped for state in arm_state.trials_of_phase("confirm"))
            for state in arm_state.trials
            if state.is_skipped and state.planned.phase != "posthoc"
        ]
        for state in skipped_states:
            self._arm_state(state.planned).num_searching += state.planned.phase == "search"
            state.is_released = False
        return skipped_states

    def _reopen(self, state: TrialState) -> None:
        """Reset an ended trial to its state before `next_trial` returned it."""
        assert state.outcome is not None, "only a trial that has ended is reopened"
        self._num_open += 1
        self._unrunnable.pop(state.planned.trial_id, None)  # trial added after its search had failed
        self._arm_state(state.planned).ended[state.outcome.kind] -= 1
        state.status, state.outcome = TrialStatus.WAITING, None
        state.objective_values = state.pending_stop = None
        state.has_evaluated = False

    def is_running(self, trial_id: str) -> bool:
        """Return whether a trial was returned by `next_trial` and has neither ended nor stopped since."""
        return self._trial_states[trial_id].status is TrialStatus.RUNNING

    def pending_stop(self, trial_id: str) -> Stop | None:
        """Return the stop that was decided for an open trial; None if there is none."""
        return self._require_open(trial_id).pending_stop

    def stopped_while_waiting(self) -> list[tuple[str, Stop]]:
        """Return stops decided for trials that are not running; such trials end without running again."""
        standings = ((trial_id, self._trial_states[trial_id].pending_stop) for trial_id in self._resumable)
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
        return self._spending.exhausted_limit()

    def repeated_error(self) -> str:
        """Return the error with which all first trials of an arm crashed; empty if the sweep may continue."""
        return "" if self._plan.continue_on_error else self._first_errors.repeated_error()

    def refuse_new(self, reason: str) -> None:
        """Make `next_trial` return no further trial, for `reason`."""
        self._refusal = self._refusal or reason

    def progress(self) -> tuple[Progress, ...]:
        """Return the progress of every arm, in the order of the plan."""
        goal = self._plan.objectives[0].goal if self._plan.objectives else None
        return tuple(progress(self._arm_states(arm.name), goal) for arm in self._plan.arms)

    def outlook(self) -> RemainingWork:
        """Return the running trials and the remaining work."""
        return outlook(self._plan, self._trial_states.values())

    def replay(self, event: Event) -> None:
        """Apply an event of the ledger; trials that have not ended will be returned by `next_trial` again.

        Raises:
            StoreError: If the event is of a trial that is not in the plan.
        """
        if event.kind not in _REPLAYED_EVENTS:
            return
        assert event.trial_id is not None, "events of trials must name them"
        state = self._trial_states.get(event.trial_id)
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
        elif event.kind is EventKind.PARAMS_ASSIGNED:
            self._replay_assignment(state, trial_from_json(event.payload))
        elif event.kind is EventKind.MEASURED:
            self.report(event.trial_id, Measurement(**event.payload))
        elif event.kind is EventKind.CHECKPOINTED:
            self.record_checkpoint(event.trial_id)
        else:
            kind, reason = OutcomeKind(event.payload["kind"]), event.payload["reason"]
            self.record_end(event.trial_id, Outcome(kind, reason))

    def _replay_assignment(self, state: TrialState, trial: Trial) -> None:
        if trial.planned.phase == "search":
            self._search_journal(trial.planned).record_params(trial.planned.number, trial.assignment)
        state.trial = trial
        state.status = TrialStatus.RESUMABLE
        self._resumable[trial.trial_id] = None

    def _link_posthoc_trials(self, arm_state: ArmState) -> None:
        """Link posthoc trials to their confirm trials, and release the first trials of the arm."""
        confirms = [state.planned for state in arm_state.trials_of_phase("confirm")]
        sources = {(planned.rank, planned.seed): planned.trial_id for planned in confirms}
        for state in arm_state.trials_of_phase("posthoc"):
            state.source_id = source = sources[state.planned.rank, state.planned.seed]
            self._posthoc.setdefault(source, []).append(state)
        arm_state.num_searching = sum(1 for _ in arm_state.trials_of_phase("search"))
        if arm_state.num_searching:
            self._release(arm_state)
        else:
            arm_state.winners = [{}] * self._num_best
            self._release_confirm_trials(arm_state)

    def _pop_ready(self) -> TrialState | None:
        """Return the next ready trial: earliest repeat first, then the arm with the least progress."""
        ready: list[tuple[int, int, int, ArmState]] = []
        for order, arm_state in enumerate(self._arms.values()):
            while (
                arm_state.ready
                and self._trial_states[arm_state.ready[0][1]].status is not TrialStatus.WAITING
            ):
                heapq.heappop(arm_state.ready)  # started in an earlier session
            if arm_state.ready:
                ready.append((arm_state.repeat, arm_state.ready[0][0], order, arm_state))
        if not ready:
            return None
        *_, arm_state = min(ready, key=lambda entry: entry[:3])
        return self._trial_states[heapq.heappop(arm_state.ready)[1]]

    def _arm_state(self, planned_trial: PlannedTrial) -> ArmState:
        return self._arms[planned_trial.arm, planned_trial.repeat]

    def _arm_states(self, arm: str) -> list[ArmState]:
        return [self._arms[arm, repeat] for repeat in range(self._plan.repeats)]

    def _search_journal(self, planned_trial: PlannedTrial) -> "SearchJournal":
        return self._searches[planned_trial.arm, planned_trial.repeat]

    def _start(self, state: TrialState) -> Trial:
        assert state.trial is not None, "a trial must have settings to run"
        state.status = TrialStatus.RUNNING
        self._arm_state(state.planned).running += 1
        return state.trial

    def _assignment(self, state: TrialState) -> Assignment:
        planned = state.planned
        if planned.phase == "search":
            return self._search_journal(planned).ask(planned.number)
        if planned.phase == "cross":
            return self._cross_trials.assignment(planned)
        assert planned.rank is not None, "a trial after the search must name its rank"
        return self._arm_state(planned).winners[planned.rank]

    def _build_trial(self, state: TrialState, assignment: Assignment) -> Trial:
        return trial_of(self._plan, self._arm_state(state.planned).arm, state, assignment)

    def _require_open(self, trial_id: str) -> TrialState:
        state = self._trial_states[trial_id]
        is_open = state.status in {TrialStatus.RUNNING, TrialStatus.RESUMABLE}
        assert is_open, f"{trial_id} must be open, is {state.status}"
        return state

    def _prune_stop(self, state: TrialState, measurement: Measurement) -> Stop | None:
        plan, planned = self._plan.search, state.planned
        if plan is None or planned.phase != "search":
            return None
        if state.counted_reports is None:
            state.counted_reports = CountedReports(plan.objectives)
        if not state.counted_reports.add(measurement):
            return None
        state.objective_values = state.counted_reports.objective_values
        if not self._search_journal(planned).report(planned.number, measurement.step, state.objective_values):
            return None
        assert plan.stopper is not None, "only an early stopper prunes"
        value = f"{counted_name(plan.objectives[0])}={state.objective_values[0]:.6g}"
        reason = f"stopped the trial at step {measurement.step}, got {value}"
        return Stop(OutcomeKind.PRUNED, f"{plan.stopper['name']} {reason}")

    def _end_trial_state(self, state: TrialState, outcome: Outcome) -> None:
        planned, arm_state = state.planned, self._arm_state(state.planned)
        state.end(outcome)
        self._num_open -= 1
        arm_state.ended[outcome.kind] += 1
        if planned.phase == "search":
            self._end_search_trial(state, outcome.kind)
        counts_for_looks = planned.phase == "confirm" and outcome.kind is not OutcomeKind.SKIPPED
        if counts_for_looks:
            metrics = state.last.metrics if state.last is not None else None
            self._confirmed_metrics[planned.arm, planned.seed] = metrics_for_look(outcome.kind, metrics)
        for posthoc in self._posthoc.get(planned.trial_id, ()):
            if outcome.kind is OutcomeKind.FINISHED:
                arm_state.push(posthoc)
            elif outcome.kind is OutcomeKind.SKIPPED:
                self._end_without_running(posthoc, outcome.reason, OutcomeKind.SKIPPED)
            else:
                reason = f"the confirm trial {planned.trial_id} must have finished, but {outcome.kind}"
                self._end_without_running(posthoc, f"{reason}: {outcome.reason}")
        if counts_for_looks:
            self._evaluate_rounds()

    def _end_search_trial(self, state: TrialState, kind: OutcomeKind) -> None:
        """Replace an infeasible trial, and end the search if it is complete or over."""
        arm_state, is_skipped = self._arm_state(state.planned), kind is OutcomeKind.SKIPPED
        arm_state.num_searching -= 1
        if kind is OutcomeKind.INFEASIBLE:
            self._replace_infeasible(state)
        elif not is_skipped:
            values = state.objective_values if kind is OutcomeKind.FINISHED else None
            self._spending.search_ended(state.planned, values[0] if values else None)
        if not arm_state.num_searching:
            self._finish_search(arm_state)
        elif not is_skipped:
            self._skip_rest_of_search(arm_state)

    def _replace_infeasible(self, infeasible: TrialState) -> None:
        """Add a search trial in place of an infeasible one, unless the search has to end."""
        assert self._plan.search is not None, "only a search replaces trials"
        arm_state = self._arm_state(infeasible.planned)
        number = sum(1 for _ in arm_state.trials_of_phase("search"))
        planned = search_trial(arm_state.arm, self._plan.search, arm_state.repeat, number)
        state = TrialState(planned, infeasible.position)
        arm_state.trials.append(state)
        self._trial_states[planned.trial_id] = state
        self._num_open += 1
        arm_state.num_searching += 1
        reason = arm_state.reason_not_replaced(self._plan.search, number)
        if not reason:
            arm_state.push(state)
            return
        skip_reason = f"the search of {arm_state.arm.name} ended: {reason}"
        for trial_state in (
            arm_state.waiting_trials("search") if arm_state.has_too_many_infeasible else [state]
        ):
            self._end_without_running(trial_state, skip_reason, OutcomeKind.SKIPPED)

    def _evaluate_rounds(self) -> None:
        """Evaluate completed rounds: skip trials of decided arms and release the next seeds of others."""
        while (early_verdicts := self._rounds.advance(self._confirmed_metrics)) is not None:
            for name, decision in early_verdicts.items():
                # Confirm trials are skipped first. Ending the last search trial would otherwise start the
                # confirmation.
                for phase, repeat in product(("confirm", "search"), self._arm_states(name)):
                    for state in repeat.trials_of_phase(phase):
                        if state.status is TrialStatus.WAITING:
                            self._end_without_running(
                                state, self._rounds.stop_reason(decision), OutcomeKind.SKIPPED
                            )
            for arm_state in self._arms.values():
                self._release(arm_state)

    def _finish_search(self, arm_state: ArmState) -> None:
        assert self._plan.search is not None
        ranked_candidates = rank_candidates(arm_state.candidates, self._plan.search.objectives)
        arm_state.winners = [candidate.assignment for candidate in ranked_candidates[: self._num_best]]
        self._release_confirm_trials(arm_state)
        for state, reason_not_run in self._cross_trials.decided_trials(arm_state):
            if reason_not_run:
                self._end_without_running(state, reason_not_run)
            else:
                self._arm_state(state.planned).push(state)

    def _skip_rest_of_search(self, arm_state: ArmState) -> None:
        """Skip the search trials of the arm that have not started, if the search of the arm is over."""
        if not self._spending.limits_searches or not (waiting_states := arm_state.waiting_trials("search")):
            return
        distinct_assignments = {canonical(dict(candidate.assignment)) for candidate in arm_state.candidates}
        reason = self._spending.search_end_reason(
            waiting_states[0].planned, len(distinct_assignments), self._num_best or 1
        )
        planned = amount(sum(1 for _ in arm_state.trials_of_phase("search")), "trial")
        for state in waiting_states if reason else ():
            message = f"the search of {arm_state.arm.name} ended before its {planned} had begun: {reason}"
            self._end_without_running(state, message, OutcomeKind.SKIPPED)

    def _report_to_search(self, state: TrialState, kind: OutcomeKind) -> None:
        """Report the outcome to the search of the arm; a finished trial also becomes a candidate."""
        number = state.planned.number
        self._search_journal(state.planned).record_end(number, kind)
        if kind is OutcomeKind.FINISHED:
            assert state.objective_values is not None, "`validate_outcome` must run first"
            assert state.trial is not None, "a finished trial has settings"
            candidate = Candidate(number, state.trial.assignment, state.objective_values)
            self._arm_state(state.planned).candidates.append(candidate)

    def _release_confirm_trials(self, arm_state: ArmState) -> None:
        """Release the confirm trials of the best assignments; end trials whose rank has no assignment."""
        for state in arm_state.trials_of_phase("confirm"):
            rank = state.planned.rank
            assert rank is not None, "a confirm trial must name its rank"
            if rank >= len(arm_state.winners) and state.status is TrialStatus.WAITING:
                self._end_without_running(state, arm_state.reason_without_winner(rank))
        self._release(arm_state)

    def _release(self, arm_state: ArmState) -> None:
        """Release trials that need not wait for a look: search trials, or confirm trials after the search."""
        for state in arm_state.trials_of_phase("search" if arm_state.num_searching else "confirm"):
            is_waiting = state.status is TrialStatus.WAITING and not state.is_released
            if is_waiting and self._rounds.may_run(state.planned):
                state.is_released = True
                arm_state.push(state)

    def _end_without_running(
        self, state: TrialState, reason: str, kind: OutcomeKind = OutcomeKind.CRASHED
    ) -> None:
        """End a trial that cannot run or is not needed, and record the end as for any other trial."""
        state.trial = self._build_trial(state, {})
        outcome = Outcome(kind, reason)
        self._unrunnable[state.planned.trial_id] = (state.trial, outcome)
        self._end_trial_state(state, outcome)


def _ended_states(states: Iterable[TrialState]) -> list[TrialState]:
    return [state for state in states if state.status is TrialStatus.ENDED]


_REPLAYED_EVENTS = frozenset(
    {
        EventKind.PARAMS_ASSIGNED,
        EventKind.MEASURED,
        EventKind.CHECKPOINTED,
        EventKind.ENDED,
        EventKind.RETRIED,
    }
)
