"""Detects arms whose first trials all crash with the same error, so that the sweep can stop."""

from collections.abc import Mapping

from orchestrator.plan.types import Plan
from orchestrator.trials import Outcome, OutcomeKind, PlannedTrial, error_line

FIRST_TRIALS = 3
"""Number of first trials of an arm that stop the sweep if all of them crash with the same error."""


class FirstErrors:
    """Errors of the first trials that ended, by arm."""

    def __init__(self, plan: Plan) -> None:
        self._by_arm: dict[str, dict[str, str]] = {arm.name: {} for arm in plan.arms}
        """Errors by arm and trial id; empty text for a trial that did not crash."""
        self._trains: dict[str, int] = dict.fromkeys(self._by_arm, 0)
        """Number of planned trials that train, by arm."""
        for planned in plan.trials:
            self._trains[planned.arm] += planned.phase != "posthoc"

    def ended(self, planned_trial: PlannedTrial, outcome: Outcome) -> None:
        """Record how a trial ended for good."""
        first, trial_id = self._by_arm[planned_trial.arm], planned_trial.trial_id
        if len(first) < FIRST_TRIALS:
            crashed = outcome.kind is OutcomeKind.CRASHED
            # Remove the trial id, for example in folder names, so that equal errors of two trials compare
            # equal.
            first[trial_id] = error_line(outcome.reason.replace(trial_id, "")) if crashed else ""

    def to_json(self) -> dict[str, dict[str, str]]:
        """Return the errors as JSON values."""
        return self._by_arm

    def load(self, values: Mapping[str, Mapping[str, str]]) -> None:
        """Restore the errors from the values that `to_json` returned."""
        self._by_arm = {name: dict(errors) for name, errors in values.items()}

    def forget(self, planned_trial: PlannedTrial) -> None:
        """Remove a trial that is retried."""
        self._by_arm[planned_trial.arm].pop(planned_trial.trial_id, None)

    def repeated(self) -> str:
        """Return a message if all first trials of an arm crashed with the same error; else empty."""
        for name, message_by_trial in self._by_arm.items():
            errors = set(message_by_trial.values())
            if len(errors) != 1 or not (error := errors.pop()):
                continue
            num_trials = min(FIRST_TRIALS, self._trains[name])
            if len(message_by_trial) >= num_trials:
                first = "the only trial" if num_trials == 1 else f"the first {num_trials} trials"
                return f"{first} of arm {name} crashed with the same error: {error}"
        return ""
