"""Store the calls to one repeat of one arm's search, and replay them in Optuna when a result is needed.

Reopening a sweep repeats all calls, but most searches are over and need no Optuna study. A number takes 8
bytes.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.conductor.arm_search import ArmSearch
from orchestrator.conductor.messages import NoAdmissibleDraw
from orchestrator.plan.types import Arm, SearchPlan
from orchestrator.trials import OutcomeKind
from search_spaces.dimensions import Assignment

_OPERATIONS = (
    "record_params",
    "report",
    "record_finished",
    "record_pruned",
    "record_infeasible",
    "record_diverged",
    "record_failed",
    "record_retried",
)
_CALL_FACTOR = 8
"""Factor that encodes a call as one number: trial number * _CALL_FACTOR + operation."""
_RECORD_PARAMS, _REPORT, _FAIL, _RETRY = map(
    _OPERATIONS.index, ("record_params", "report", "record_failed", "record_retried")
)


class SearchJournal:
    """Recorder of calls to `ArmSearch` that returns the same results."""

    def __init__(self, arm: Arm, plan: SearchPlan, repeat: int = 0) -> None:
        self._search = ArmSearch(arm, plan, repeat)
        self._objectives = len(plan.objectives)
        self._can_stop = plan.stopper is not None and self._objectives == 1
        self._calls = array("d")
        """Operation and trial number of each call; `report` adds the step and the objective values."""
        self._assignments: dict[int, Assignment] = {}
        self._num_replayed = 0
        """Position in `_calls` up to which calls were passed to the search."""

    def ask(self, number: int) -> Assignment:
        """Return an assignment for trial `number`.

        Raises:
            NoAdmissibleDraw: If no draw satisfies the constraints of the space.
            SearchError: If the sampler, the stopper or a constraint raises an error.
        """
        self._replay_calls()
        try:
            assignment = self._search.ask(number)
        except NoAdmissibleDraw:
            self._record(_RECORD_PARAMS, number, {})
            self._record(_FAIL, number)
            raise
        else:
            self._record(_RECORD_PARAMS, number, assignment)
        finally:
            self._num_replayed = len(self._calls)
        return assignment

    def record_params(self, number: int, assignment: Assignment) -> None:
        """Record that trial `number` has run with `assignment`."""
        self._record(_RECORD_PARAMS, number, assignment)

    def record_retried(self, number: int, assignment: Assignment) -> None:
        """Record that the failed trial `number` runs again."""
        self._record(_RETRY, number, assignment)

    def report(self, number: int, step: int, values: Sequence[float]) -> bool:
        """Record the objective values so far; return whether the early stopper ends the trial."""
        if self._can_stop:
            self._replay_calls()
        self._calls.extend((number * _CALL_FACTOR + _REPORT, step, *values))
        if not self._can_stop:
            return False
        self._num_replayed = len(self._calls)
        return self._search.report(number, step, values)

    def record_end(self, number: int, kind: OutcomeKind) -> None:
        """Record how the trial ended; a failure gives no information about its assignment."""
        name = f"record_{kind.value}"
        self._record(_OPERATIONS.index(name) if name in _OPERATIONS else _FAIL, number)

    def assignment(self, number: int) -> Assignment:
        """Return the assignment that trial `number` received."""
        return self._assignments[number]

    def to_json(self) -> dict[str, Any]:
        """Return all calls as JSON values."""
        return {"calls": self._calls.tolist(), "assignments": list(self._assignments.items())}

    def load(self, values: Mapping[str, Any]) -> None:
        """Restore the calls that `to_json` returned; no call may have been passed to the search before."""
        assert not self._num_replayed, "a search that has begun cannot be replaced"
        self._calls = array("d", values["calls"])
        self._assignments = {int(number): assignment for number, assignment in values["assignments"]}

    def _record(self, operation: int, number: int, assignment: Assignment | None = None) -> None:
        self._calls.append(number * _CALL_FACTOR + operation)
        if assignment is not None:
            self._assignments[number] = assignment

    def _replay_calls(self) -> None:
        for name, *arguments in self._pending_calls():
            getattr(self._search, name)(*arguments)
        self._num_replayed = len(self._calls)

    def _pending_calls(self) -> Iterator[tuple[Any, ...]]:
        calls, position = self._calls, self._num_replayed
        while position < len(calls):
            number, operation = divmod(int(calls[position]), _CALL_FACTOR)
            position += 1
            if operation in {_RECORD_PARAMS, _RETRY}:
                yield _OPERATIONS[operation], number, self._assignments[number]
            elif operation == _REPORT:
                end = position + 1 + self._objectives
                yield "report", number, int(calls[position]), tuple(calls[position + 1 : end])
                position = end
            else:
                yield _OPERATIONS[operation], number
