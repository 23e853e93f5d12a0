"""Collects everything that is wrong with a plan, so that it can be reported at once, each with its place."""

from orchestrator.errors import Fault, PlanError
from orchestrator.spec.document import dotted
from orchestrator.spec.load import SpecFile
from orchestrator.spec.types import Spec

Keys = tuple[str | int, ...]
"""A place in the spec, e.g. ("arms", "minus-gate", "set", "model.gate")."""


class Faults:
    """Faults of one spec, each kept once."""

    def __init__(self, source: Spec | SpecFile) -> None:
        self._source = source
        self._found: dict[Fault, None] = {}
        self._subjects: set[tuple[object, ...]] = set()

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, message: str, *keys: str | int, about: tuple[object, ...] = ()) -> None:
        """Note that what is at `keys` is wrong.

        What one line of the spec does wrong in many arms is kept for the first of them: pass that as `about`.
        """
        if about:
            if about in self._subjects:
                return
            self._subjects.add(about)
        if isinstance(self._source, SpecFile):
            fault = self._source.fault(message, *keys)
        else:
            fault = Fault(message, path=dotted(keys))
        self._found[fault] = None

    @property
    def added_fields(self) -> tuple[str, ...]:
        """Outermost fields of the baseline that only overrides and profiles have set, in order of name."""
        if not isinstance(self._source, SpecFile):
            return ()
        paths = [dotted(keys[1:]) for keys in self._source.document.added if keys[:1] == ("baseline",)]
        return tuple(
            sorted(path for path in paths if path and not any(path.startswith(f"{o}.") for o in paths))
        )

    def has(self, *about: object) -> bool:
        """Whether there is a fault about that."""
        return about in self._subjects

    def raise_if_any(self) -> None:
        """Raise `PlanError` with all faults, from the top of the file to its end."""
        if self._found:
            raise PlanError(sorted(self._found, key=lambda fault: (fault.line is None, fault.line or 0)))
