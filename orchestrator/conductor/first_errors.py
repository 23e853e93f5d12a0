"""Errors of the first trials of every arm: a sweep stops where all of them crash alike."""

from collections.abc import Mapping

from orchestrator.plan.types import Plan
from orchestrator.trials import Outcome, OutcomeKind, PlannedTrial, error_line

FIRST_TRIALS = 3
"""Trials of an arm that stop the sweep where all of them crash with the same error."""


class FirstErrors:
    """Collects how the first trials of every arm that began have ended."""

    def __init__(self, plan: Plan) -> None:
        self._by_arm: dict[str, dict[str, str]] = {arm.name: {} for arm in plan.arms}
        """By arm, error by trial id; empty if a trial did not crash."""
        self._trains: dict[str, int] = dict.fromkeys(self._by_arm, 0)
        """By arm, number of planned trials that train."""
        for planned in plan.trials:
            self._trains[planned.arm] += planned.phase != "posthoc"

    def ended(self, planned: PlannedTrial, outcome: Outcome) -> None:
        """Record how a trial ended for good."""
        first, trial_id = self._by_arm[planned.arm], planned.trial_id
        if len(first) < FIRST_TRIALS:
            crashed = outcome.kind is OutcomeKind.CRASHED
            # What tells trials apart, such as their folders, must not tell errors apart.
            first[trial_id] = error_line(outcome.reason.replace(trial_id, "")) if crashed else ""

    def to_json(self) -> dict[str, dict[str, str]]:
        """Return the errors as JSON values."""
        return self._by_arm

    def load(self, values: Mapping[str, Mapping[str, str]]) -> None:
        """Set the errors to what `to_json` returned."""
        self._by_arm = {name: dict(errors) for name, errors in values.items()}

    def forget(self, planned: PlannedTrial) -> None:
        """Leave out a trial that is retried."""
        self._by_arm[planned.arm].pop(planned.trial_id, None)

    def repeated(self) -> str:
        """Return that the first trials of an arm crashed alike; empty if those of none did."""
        for name, known in self._by_arm.items():
            errors = set(known.values())
            if len(errors) != 1 or not (error := errors.pop()):
                continue
            wanted = min(FIRST_TRIALS, self._trains[name])
            if len(known) >= wanted:
                first = "the only trial" if wanted == 1 else f"the first {wanted} trials"
                return f"{first} of arm {name} crashed with the same error: {error}"
        return ""
