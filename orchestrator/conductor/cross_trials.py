"""Manage trials that run an arm with the chosen settings of another arm."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from orchestrator.conductor.state import ArmState, TrialState, TrialStatus
from orchestrator.plan.crossing import exchange_values, shared_fields
from orchestrator.trials import PlannedTrial
from search_spaces.dimensions import Assignment


class CrossTrials:
    """Trials of the phase `cross`; each depends on the searches of two arms of the same repeat."""

    def __init__(self, arms: Mapping[tuple[str, int], ArmState]) -> None:
        """Collect the trials.

        Args:
            arms: Every repeat of every arm, by name and repeat.
        """
        self._arms = arms
        self._trials_by_search: dict[tuple[str, int], list[TrialState]] = defaultdict(list)
        for arm_state in arms.values():
            for state in arm_state.trials_of_phase("cross"):
                for name in (state.planned.arm, state.planned.settings_of):
                    self._trials_by_search[name, state.planned.repeat].append(state)

    def trials_of(self, arm_state: ArmState) -> list[TrialState]:
        """Return the trials that depend on the search of `arm_state`."""
        return self._trials_by_search.get((arm_state.arm.name, arm_state.repeat), [])

    def assignment(self, planned_trial: PlannedTrial) -> Assignment:
        """Return the arm's chosen assignment, with the other arm's values in shared searched fields."""
        own_state, other_state = self._arm_states(planned_trial)
        shared_paths = shared_fields(own_state.arm, other_state.arm)
        return exchange_values(own_state.winners[0], other_state.winners[0], shared_paths)

    def decided_trials(self, arm_state: ArmState) -> Iterator[tuple[TrialState, str]]:
        """Yield the waiting trials of `arm_state` whose two searches have both ended.

        Yields:
            Pairs of a trial and the reason for which it cannot run; the reason is empty if it can.
        """
        for state in self.trials_of(arm_state):
            both_arms = self._arm_states(state.planned)
            if state.status is TrialStatus.WAITING and not any(arm.num_searching for arm in both_arms):
                reasons = (arm.reason_without_winner(0) for arm in both_arms if not arm.winners)
                yield state, next(reasons, "")

    def _arm_states(self, planned_trial: PlannedTrial) -> tuple[ArmState, ArmState]:
        names = planned_trial.arm, planned_trial.settings_of
        own_state, other_state = (self._arms[name, planned_trial.repeat] for name in names)
        return own_state, other_state
