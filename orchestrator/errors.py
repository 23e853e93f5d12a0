"""All errors that haltsweep raises for a user, as one class hierarchy.

HaltsweepError
├── InputError            exit code 2: the request cannot be carried out; nothing was written
│   ├── SpecError         one or more faults of a spec file, all reported at once
│   │   └── OversizedSpec impossible sizes, reported before any other check
│   ├── PlanError         faults that only the planner can detect (models, spaces, arms)
│   └── SearchError       a sampler or stopper failed while the sweep ran; all results are retained
├── StoreError            exit code 1: the ledger, the tracking store or the disk failed
│   └── StoreAccessDenied the store belongs to another user, and this user has no permission to read it
├── ExecutorError         exit code 1: the executor of the trials could not be started
├── LaunchUndone          exit code 130: interrupted before the first trial; the launch was undone
└── LeaseLost             exit code 1: another process took over the sweep; buffered results are discarded
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

from orchestrator.files.redact import redact
from search_spaces.wording import amount, escape_to_line


class HaltsweepError(Exception):
    """Base class of all errors of haltsweep.

    Passwords in URLs are masked in the message, since it may quote user input or the message of another
    library.
    """

    code: ClassVar[str] = "failed"
    """Stable name of the error; messages may change, codes do not."""
    exit_code = 1
    """Exit code of the command that raises the error."""

    def __init__(self, message: str = "") -> None:
        super().__init__(redact(message))


class InputError(HaltsweepError):
    """An error that only a change of the user's input can fix."""

    code = "invalid-input"
    exit_code = 2


class FaultCode(StrEnum):
    """Stable name of a kind of fault; messages may change, codes do not."""

    sentence: str

    def __new__(cls, value: str, sentence: str) -> "FaultCode":
        """Create a code whose `sentence` describes it."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        return member

    ARM_CANNOT_BE_TRAINED = (
        "arm-cannot-be-trained",
        "the arm cannot be built, or its first loss is infinite",
    )
    ARM_HAS_NO_EFFECT = "arm-has-no-effect", "the arm behaves like the arm that it is compared with"
    CONFLICTING_FIELDS = (
        "conflicting-fields",
        "fields contradict each other, or need another field",
    )
    CUSTOM_CODE = (
        "custom-code",
        "a module, function or class of the user cannot be used",
    )
    DIFFERENT_TEST_DATA = "different-test-data", "arms would be compared on different examples"
    DUPLICATE_KEY = "duplicate-key", "a key or value is given twice"
    INVALID_OVERRIDE = "invalid-override", "an override or profile cannot be applied"
    INVALID_VALUE = "invalid-value", "the value is of the wrong type, outside its range or unsuitable"
    INVALID_YAML = "invalid-yaml", "the file is not YAML, or uses YAML features that specs do not have"
    METRIC_DOES_NOT_VARY = "metric-does-not-vary", "the metric is the same for all trials, arms or seeds"
    MISSING_FIELD = "missing-field", "a required field is missing"
    NOTHING_TO_DRAW = (
        "nothing-to-draw",
        "the search space has too few params that can be trained",
    )
    OVERSIZED_VALUE = "oversized-value", "the value exceeds every possible size"
    PARAM_HAS_NO_EFFECT = "param-has-no-effect", "a searched field does not change the arm"
    RE_EVALUATION_HAS_NO_EFFECT = (
        "re-evaluation-has-no-effect",
        "a re-evaluation changes nothing",
    )
    SECRET = "secret", "the spec contains a password or token, and specs are stored and shown"
    UNKNOWN_FIELD = "unknown-field", "the field does not exist, or not in this arm"
    UNKNOWN_NAME = "unknown-name", "a name refers to nothing, e.g. of a metric, split, model or sweep"
    UNREADABLE_FILE = "unreadable-file", "the file does not exist or cannot be read"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a file: the requirement, the actual value and the remedy."""

    message: str
    path: str = ""
    """Dotted path inside the file, e.g. `arms.minus-gate.set`."""
    file: str = ""
    line: int | None = None
    code: FaultCode = FaultCode.INVALID_VALUE

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line is not None else self.file
        return escape_to_line(": ".join(part for part in (place, self.path, self.message) if part))


class FaultyInput(InputError):
    """An input error that consists of faults; the message has one line per fault."""

    closing: ClassVar[tuple[str, ...]] = ()
    """Lines printed after the faults."""
    max_lines: ClassVar[int] = 200
    """Maximum number of faults printed; a last line counts the others."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        assert faults, "a faulty input must have at least one fault"
        num_omitted = len(faults) - self.max_lines
        lines = [
            *map(str, faults[: self.max_lines]),
            *([f"... and {amount(num_omitted, 'fault')} more"] * (num_omitted > 0)),
        ]
        super().__init__("\n".join([*lines, *self.closing]))
        self.faults = tuple(faults)

    def __reduce__(self) -> tuple[type[Self], tuple[Sequence[Fault]]]:
        """Support pickling: create the error from its faults."""
        return type(self), (self.faults,)


class SpecError(FaultyInput):
    """One or more faults of the spec file."""

    code = "invalid-spec"


class OversizedSpec(SpecError):
    """Impossible sizes in a spec.

    They are reported at once, together with other faults of the file. The planner is not run, because
    importing PyTorch takes seconds.
    """

    code = "oversized-spec"

    closing = ("Correct these sizes first. Other faults of the arms show only when the arms are built.",)


class PlanError(FaultyInput):
    """A well-formed spec whose sweep is impossible or would give misleading results."""

    code = "invalid-plan"


class SearchError(InputError):
    """A sampler or stopper failed while the sweep ran; all results so far are retained."""

    code = "search-failed"


class ExecutorError(HaltsweepError):
    """No executor can run the trials; results are retained, and a later attempt continues from them."""

    code = "executor-failed"


class StoreError(HaltsweepError):
    """A store could not be read or written."""

    code = "store-failed"


class StoreAccessDenied(StoreError):
    """The store belongs to another user and this user may not read it; the store itself is intact."""

    code = "not-allowed"


class LaunchUndone(HaltsweepError):
    """A launch was interrupted before its first trial and undone."""

    code = "withdrawn"
    exit_code = 130


class LeaseLost(HaltsweepError):
    """The fencing token is no longer the newest: another process holds the sweep."""

    code = "lease-lost"
