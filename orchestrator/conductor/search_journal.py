"""Stores the calls to one repeat of one arm's search, and passes them to Optuna when it must answer.

Reopening a sweep repeats all calls, and most arms need no answer any more. A stored number takes 8 bytes.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.conductor.arm_search import ArmSearch
from orchestrator.conductor.messages import NothingAdmitted
from orchestrator.plan.types import Arm, SearchPlan
from orchestrator.trials import OutcomeKind
from search_spaces.dimensions import Assignment

_OPERATIONS = (
    "record_assignment",
    "report",
    "finished",
    "pruned",
    "infeasible",
    "diverged",
    "failed",
    "retried",
)
_PLACES = 8
"""Factor that encodes a call as one number: trial number * _PLACES + operation."""
_ASKED, _HEAR, _FAILED, _RETRIED = map(
    _OPERATIONS.index, ("record_assignment", "report", "failed", "retried")
)


class SearchJournal:
    """Recorder of calls to `ArmSearch` that returns the same answers."""

    def __init__(self, arm: Arm, plan: SearchPlan, repeat: int = 0) -> None:
        self._search = ArmSearch(arm, plan, repeat)
        self._objectives = len(plan.objectives)
        self._can_stop = plan.stopper is not None and self._objectives == 1
        self._calls = array("d")
        """Operation and trial number of each call; `report` adds the step and the objective values."""
        self._assignments: dict[int, Assignment] = {}
        self._passed_on = 0
        """Position in `_calls` up to which calls were passed to the search."""

    def ask(self, number: int) -> Assignment:
        """Return an assignment for trial `number`.

        Raises:
            NothingAdmitted: If no draw satisfies the constraints of the space.
            SearchError: If the sampler, the stopper or a constraint raises an error.
        """
        self._catch_up()
        try:
            assignment = self._search.ask(number)
        except NothingAdmitted:
            self._add(_ASKED, number, {})
            self._add(_FAILED, number)
            raise
        else:
            self._add(_ASKED, number, assignment)
        finally:
            self._passed_on = len(self._calls)
        return assignment

    def record_assignment(self, number: int, assignment: Assignment) -> None:
        """Record that trial `number` has run with `assignment`."""
        self._add(_ASKED, number, assignment)

    def retried(self, number: int, assignment: Assignment) -> None:
        """Record that the failed trial `number` runs again."""
        self._add(_RETRIED, number, assignment)

    def report(self, number: int, step: int, values: Sequence[float]) -> bool:
        """Record the objective values so far; return whether the early stopper ends the trial."""
        if self._can_stop:
            self._catch_up()
        self._calls.extend((number * _PLACES + _HEAR, step, *values))
        if not self._can_stop:
            return False
        self._passed_on = len(self._calls)
        return self._search.report(number, step, values)

    def record_end(self, number: int, kind: OutcomeKind) -> None:
        """Record how the trial ended; a failure gives no information about its assignment."""
        self._add(_OPERATIONS.index(kind.value) if kind.value in _OPERATIONS else _FAILED, number)

    def assignment(self, number: int) -> Assignment:
        """Return the assignment that trial `number` received."""
        return self._assignments[number]

    def to_json(self) -> dict[str, Any]:
        """Return all calls as JSON values."""
        return {"calls": self._calls.tolist(), "assignments": list(self._assignments.items())}

    def load(self, values: Mapping[str, Any]) -> None:
        """Restore the calls that `to_json` returned; no call may have been passed to the search before."""
        assert not self._passed_on, "a search that has begun cannot be replaced"
        self._calls = array("d", values["calls"])
        self._assignments = {int(number): assignment for number, assignment in values["assignments"]}

    def _add(self, operation: int, number: int, assignment: Assignment | None = None) -> None:
        self._calls.append(number * _PLACES + operation)
        if assignment is not None:
            self._assignments[number] = assignment

    def _catch_up(self) -> None:
        for name, *arguments in self._pending_calls():
            getattr(self._search, name)(*arguments)
        self._passed_on = len(self._calls)

    def _pending_calls(self) -> Iterator[tuple[Any, ...]]:
        calls, at = self._calls, self._passed_on
        while at < len(calls):
            number, operation = divmod(int(calls[at]), _PLACES)
            at += 1
            if operation in {_ASKED, _RETRIED}:
                yield _OPERATIONS[operation], number, self._assignments[number]
            elif operation == _HEAR:
                end = at + 1 + self._objectives
                yield "report", number, int(calls[at]), tuple(calls[at + 1 : end])
                at = end
            else:
                yield _OPERATIONS[operation], number
