"""All errors that haltsweep raises for a user, as one class hierarchy.

HaltsweepError
├── InputError            exit code 2: the request cannot be carried out; nothing was written
│   ├── SpecError         one or more faults of a spec file, all reported at once
│   │   └── OversizedSpec impossible sizes, reported before any other check
│   ├── PlanError         faults that only the planner can detect (models, spaces, arms)
│   └── SearchError       a sampler or stopper failed while the sweep ran; all results are retained
├── StoreError            exit code 1: the ledger, the tracking store or the disk failed
│   └── NotAllowed        the store belongs to another user, and this user has no permission to read it
├── ExecutorError         exit code 1: the executor of the trials could not be started
├── Withdrawn             exit code 130: interrupted before the first trial; the launch was undone
└── LeaseLost             exit code 1: another process took over the sweep; buffered results are discarded
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from orchestrator.files.redact import redact
from search_spaces.wording import amount, printable


class HaltsweepError(Exception):
    """Base class of all errors of haltsweep; `exit_code` is the exit code of the command.

    Passwords in URLs are masked in the message, since it may quote user input or the message of another
    library.
    """

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(redact(message))


class InputError(HaltsweepError):
    """An error that only a change of the user's input can fix."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a file: the requirement, the actual value and the remedy."""

    message: str
    path: str = ""
    """Dotted path inside the file, e.g. `arms.minus-gate.set`."""
    file: str = ""
    line: int | None = None
    oversized: bool = False
    """Whether the fault is an impossible size, independent of the other content of the file."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line is not None else self.file
        return printable(": ".join(part for part in (place, self.path, self.message) if part))


class FaultyInput(InputError):
    """An input error that consists of faults; the message has one line per fault."""

    closing: ClassVar[tuple[str, ...]] = ()
    """Lines printed after the faults."""
    most_lines: ClassVar[int] = 200
    """Maximum number of faults printed; a last line counts the others."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        assert faults, "a faulty input must have at least one fault"
        num_omitted = len(faults) - self.most_lines
        lines = [
            *map(str, faults[: self.most_lines]),
            *([f"... and {amount(num_omitted, 'fault')} more"] * (num_omitted > 0)),
        ]
        super().__init__("\n".join([*lines, *self.closing]))
        self.faults = tuple(faults)


class SpecError(FaultyInput):
    """One or more faults of the spec file."""


class OversizedSpec(SpecError):
    """Impossible sizes in a spec.

    They are reported at once, together with other faults of the file. The planner is not run, because
    importing PyTorch takes seconds.
    """

    closing = ("mend these first: no arm was built yet, so that further faults may be found then",)


class PlanError(FaultyInput):
    """A well-formed spec whose sweep is impossible or would give misleading results."""


class SearchError(InputError):
    """A sampler or stopper failed while the sweep ran; all results so far are retained."""


class ExecutorError(HaltsweepError):
    """No executor can run the trials; results are retained, and a later attempt continues from them."""


class StoreError(HaltsweepError):
    """A store could not be read or written."""


class NotAllowed(StoreError):
    """The store belongs to another user and this user may not read it; the store itself is intact."""


class Withdrawn(HaltsweepError):
    """A launch was interrupted before its first trial and undone."""

    exit_code = 130


class LeaseLost(HaltsweepError):
    """The fencing token is no longer the newest: another process holds the sweep."""
