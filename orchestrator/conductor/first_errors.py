"""Detect arms whose first trials of a phase all crash with the same error, so that the sweep can stop."""

import re
from collections import Counter
from collections.abc import Mapping

from orchestrator.plan.types import Plan
from orchestrator.trials import Outcome, OutcomeKind, PlannedTrial, error_line

_NUMBER_IN_ERROR = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
"""Pattern of numbers in errors; errors that differ only in numbers, such as seeds, count as equal."""
MAX_FIRST_TRIALS = 3
"""Number of first trials of an arm in a phase that stop the sweep if all crash with the same error."""


class FirstErrors:
    """Errors of the first trials that ended, by arm and phase."""

    def __init__(self, plan: Plan) -> None:
        self._errors: dict[str, dict[str, str]] = {}
        """Errors by arm and phase, and by trial id; empty text for a trial that did not crash."""
        self._num_trained_trials = Counter(
            _arm_phase_key(trial) for trial in plan.trials if trial.phase != "posthoc"
        )
        """Number of planned trials that train, by arm and phase."""

    def record_end(self, planned_trial: PlannedTrial, outcome: Outcome) -> None:
        """Record how a trial ended for good."""
        errors_by_trial, trial_id = (
            self._errors.setdefault(_arm_phase_key(planned_trial), {}),
            planned_trial.trial_id,
        )
        if len(errors_by_trial) < MAX_FIRST_TRIALS:
            has_crashed = outcome.kind is OutcomeKind.CRASHED
            # Remove the trial id, for example in folder names, so that equal errors of two trials compare
            # equal.
            errors_by_trial[trial_id] = (
                error_line(outcome.reason.replace(trial_id, "")) if has_crashed else ""
            )

    def to_json(self) -> dict[str, dict[str, str]]:
        """Return the errors as JSON values."""
        return self._errors

    def load(self, values: Mapping[str, Mapping[str, str]]) -> None:
        """Restore the errors from the values that `to_json` returned."""
        self._errors = {key: dict(errors) for key, errors in values.items()}

    def forget(self, planned_trial: PlannedTrial) -> None:
        """Remove a trial that is retried."""
        self._errors.get(_arm_phase_key(planned_trial), {}).pop(planned_trial.trial_id, None)

    def repeated_error(self) -> str:
        """Return a message if all first trials of an arm in a phase crashed with one error; else empty.

        If a phase has a single trial, its error does not stop the sweep while the arm has other phases.
        """
        for key, message_by_trial in self._errors.items():
            arm, phase = key.rsplit(" ", 1)
            error = next(iter(message_by_trial.values()), "")
            if (
                not error
                or len({_NUMBER_IN_ERROR.sub("#", message) for message in message_by_trial.values()}) > 1
            ):
                continue
            num_trials = min(MAX_FIRST_TRIALS, self._num_trained_trials[key])
            is_single = num_trials == 1 and self._num_trained(arm) > 1
            if len(message_by_trial) >= num_trials and not is_single:
                trials = f"{phase} trial" if num_trials == 1 else f"{num_trials} {phase} trials"
                subject = f"the {'only' if num_trials == 1 else 'first'} {trials}"
                return f"{subject} of arm {arm} crashed with the same error: {error}"
        return ""

    def _num_trained(self, arm: str) -> int:
        return sum(count for key, count in self._num_trained_trials.items() if key.rsplit(" ", 1)[0] == arm)


def _arm_phase_key(planned_trial: PlannedTrial) -> str:
    return f"{planned_trial.arm} {planned_trial.phase}"
