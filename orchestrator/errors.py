"""Every error a user can meet, as one tree.

HaltsweepError
├── InputError            exit code 2: what was asked cannot be done; nothing was written
│   ├── SpecError         one or many faults of a spec file, all reported at once
│   │   └── OversizedSpec sizes that nothing could have, reported before all else is looked at
│   ├── PlanError         faults that only the planner can see (models, spaces, arms)
│   └── SearchError       a sampler or stopper failed while the sweep ran; what was measured is kept
├── StoreError            exit code 1: the ledger, the tracking store or the disk failed
│   └── NotAllowed        it is another user's, who has not let this one read it
├── ExecutorError         exit code 1: what is to run the trials could not be started
├── Withdrawn            exit code 130: interrupted before its first trial; the launch left nothing
└── LeaseLost             exit code 1: somebody else took over the sweep; what we held back is not written
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from orchestrator.files.redact import redact
from search_spaces.wording import amount, printable


class HaltsweepError(Exception):
    """Root of the tree; `exit_code` is what the command returns.

    Passwords in the URLs of a message are masked here: it may quote what was typed, or another library.
    """

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(redact(message))


class InputError(HaltsweepError):
    """The input must change before this can work."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a file: what must hold, what was given, what to do."""

    message: str
    path: str = ""
    """Dotted path inside the file, e.g. `arms.minus-gate.set`."""
    file: str = ""
    line: int | None = None
    oversized: bool = False
    """Whether it is a size that nothing could have, whatever else the file says."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line is not None else self.file
        return printable(": ".join(part for part in (place, self.path, self.message) if part))


class FaultyInput(InputError):
    """An input error made of faults, rendered one a line."""

    closing: ClassVar[tuple[str, ...]] = ()
    """Lines that follow the faults."""
    most_lines: ClassVar[int] = 200
    """Faults of which there is a line each; of more it is said how many more there are."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        assert faults, "a faulty input must have at least one fault"
        more = len(faults) - self.most_lines
        lines = [
            *map(str, faults[: self.most_lines]),
            *([f"... and {amount(more, 'fault')} more"] * (more > 0)),
        ]
        super().__init__("\n".join([*lines, *self.closing]))
        self.faults = tuple(faults)


class SpecError(FaultyInput):
    """The spec file itself is wrong."""


class OversizedSpec(SpecError):
    """Sizes that nothing could have. They are reported at once, with what else is wrong with the file itself;
    what only the planner finds takes the seconds in which PyTorch is loaded."""

    closing = ("mend these first: no arm was built yet, so that further faults may be found then",)


class PlanError(FaultyInput):
    """The spec is well-formed but asks for something that cannot be, or cannot be believed."""


class SearchError(InputError):
    """A sampler or stopper failed while the sweep ran; what was measured is kept."""


class ExecutorError(HaltsweepError):
    """Nothing runs the trials; what was measured is kept, and a later try continues from there."""


class StoreError(HaltsweepError):
    """A store could not be read or written."""


class NotAllowed(StoreError):
    """It is another user's, and not to be read by this one: nothing is wrong with it."""


class Withdrawn(HaltsweepError):
    """A launch was interrupted before its first trial, and taken back."""

    exit_code = 130


class LeaseLost(HaltsweepError):
    """The fencing token is no longer the newest: another process holds the sweep."""
