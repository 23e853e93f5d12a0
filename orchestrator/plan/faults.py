"""Collect all faults of a spec with their places, so that they can be reported together."""

from orchestrator.errors import Fault, FaultCode, PlanError
from orchestrator.spec.document import dotted
from orchestrator.spec.load import SpecFile
from orchestrator.spec.types import Spec

Keys = tuple[str | int, ...]
"""Keys of a place in the spec, e.g. ("arms", "minus-gate", "set", "model.gate")."""


class Faults:
    """Distinct faults of one spec."""

    def __init__(self, source: Spec | SpecFile) -> None:
        self._source = source
        self._found: dict[Fault, None] = {}
        self._subjects: set[tuple[object, ...]] = set()

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(
        self,
        message: str,
        *keys: str | int,
        about: tuple[object, ...] = (),
        code: FaultCode = FaultCode.INVALID_VALUE,
    ) -> None:
        """Add a fault.

        Args:
            message: Description of the problem.
            keys: Place in the spec.
            about: Subject of the fault; only the first fault with the same subject is kept. Use it for one
                line of the spec that causes the same fault in many arms.
            code: Kind of the problem.
        """
        if about:
            if about in self._subjects:
                return
            self._subjects.add(about)
        if isinstance(self._source, SpecFile):
            fault = self._source.fault(message, *keys, code=code)
        else:
            fault = Fault(message, path=dotted(keys), code=code)
        self._found[fault] = None

    @property
    def added_fields(self) -> tuple[str, ...]:
        """Return the outermost baseline fields that only overrides and profiles set, sorted by name."""
        if not isinstance(self._source, SpecFile):
            return ()
        paths = [dotted(keys[1:]) for keys in self._source.document.added if keys[:1] == ("baseline",)]
        return tuple(
            sorted(path for path in paths if path and not any(path.startswith(f"{o}.") for o in paths))
        )

    def has(self, *about: object) -> bool:
        """Return whether there is a fault with the subject `about`."""
        return about in self._subjects

    def raise_if_any(self) -> None:
        """Raise `PlanError` with all faults, sorted by line."""
        if self._found:
            raise PlanError(sorted(self._found, key=lambda fault: (fault.line is None, fault.line or 0)))
