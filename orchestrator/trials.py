"""Define trials, outcomes and records, which planner, conductor, execution, ledger and report exchange."""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import nan
from typing import Any, Literal, TypeVar

from search_spaces.dimensions import Value
from search_spaces.wording import amount
from trainables.protocol import Measurement

Phase = Literal["search", "confirm", "cross", "posthoc"]
"""Phase of a trial; `cross` is as `confirm`, but with params chosen by the search of another arm."""
MAX_NUMBER = 1e70
"""Greatest usable absolute value of a metric: sums of fourth powers of differences must stay finite."""
READ_FROM_OTHERS = "read_from_other_trials"
"""Text attribute of a trial that has read files of another trial: the names of the files."""
_NO_OVERRIDES: Mapping[str, Value] = {}
_PLACE = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)


def is_usable(value: float) -> bool:
    """Return whether statistics can use a metric: it is not NaN, infinite or close to overflow."""
    return abs(value) <= MAX_NUMBER


def error_line(reason: str) -> str:
    """Return the first line of the reason of a crash, with the innermost location of its traceback."""
    places = _PLACE.findall(reason)
    place_text = " ({}:{})".format(*places[-1]) if places else ""
    return reason.partition("\n")[0] + place_text


class DeathCause(StrEnum):
    """Cause of the death of a trial's process before the end of the trial."""

    TRIAL = "trial"
    """The training code: a fault such as SIGSEGV, or an exception in the process that runs it."""
    MEMORY = "memory"
    """The operating system killed the process because memory had run out."""
    OUTSIDE = "outside"
    """An external signal such as SIGKILL or SIGTERM, or the loss of the machine."""


class OutcomeKind(StrEnum):
    """All kinds of ending of a trial; drivers report no others."""

    FINISHED = "finished"
    PRUNED = "pruned"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    STOPPED = "stopped"
    SKIPPED = "skipped"
    INFEASIBLE = "infeasible"
    """Search trials only. Each such trial is replaced by another one that is not in the plan."""

    @property
    def sentence(self) -> str:
        """Return an explanation for users."""
        return _SENTENCES[self]

    @property
    def is_final(self) -> bool:
        """Return whether `resume` skips the trial; only a stopped trial continues, from its checkpoint."""
        return self is not OutcomeKind.STOPPED

    @property
    def is_failure(self) -> bool:
        """Return whether the trial counts as a failure in the statistics and in the exit code."""
        return self in _FAILURES


_SENTENCES = {
    OutcomeKind.FINISHED: "The trial ran to its last step.",
    OutcomeKind.PRUNED: "The early stopper of its arm ended the trial.",
    OutcomeKind.DIVERGED: "The loss stopped being a finite number.",
    OutcomeKind.OUT_OF_MEMORY: "The trial needed more memory than its device had.",
    OutcomeKind.TIMED_OUT: "The trial used up its time limit.",
    OutcomeKind.CRASHED: "The trial raised an error, or its worker died more often than is retried.",
    OutcomeKind.STOPPED: "The sweep was interrupted; `resume` continues the trial from its checkpoint.",
    OutcomeKind.INFEASIBLE: "The training code rejected the params as infeasible; the search drew others.",
    OutcomeKind.SKIPPED: "The trial was skipped because its result was no longer needed.",
}
_FAILURES = frozenset(
    {OutcomeKind.DIVERGED, OutcomeKind.OUT_OF_MEMORY, OutcomeKind.TIMED_OUT, OutcomeKind.CRASHED}
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The ending of a trial and its reason, which must not be empty."""

    kind: OutcomeKind
    reason: str

    def __post_init__(self) -> None:
        if not self.reason:
            raise ValueError(f"an outcome must carry a reason, got kind={self.kind!s} and none")


def numbered(repeat: int, number: int) -> str:
    """Return the displayed number of a trial, e.g. `3`, or `1.3` in repeat 1."""
    return f"{repeat}.{number}" if repeat else str(number)


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """A trial of the plan, fixed before the sweep starts; params chosen by a search are still open."""

    trial_id: str
    arm: str
    phase: Phase
    number: int
    """Position in its arm, phase and repeat, from 0; in `search` the trial number of the sampler."""
    seed: int
    rank: int | None = None
    """`confirm` and `posthoc`: rank of the params among the best of the arm, from 0 (the best)."""
    overrides: Mapping[str, Value] = field(default_factory=dict)
    """`posthoc`: settings under which the confirmed checkpoint is evaluated again."""
    late_splits: tuple[str, ...] = ()
    """`posthoc`: test splits to evaluate, empty for those of the plan.

    Not empty if all of these splits were added after the confirmed trial, or the re-evaluation under the same
    overrides, had been planned.
    """
    repeat: int = 0
    """Index of the repeat of the arm's search that the trial belongs to, from 0."""
    settings_of: str = ""
    """`cross`: name of the arm whose search chose the values of the fields that both arms search."""

    def __post_init__(self) -> None:
        # A plan may have 100,000 trials, which share equal values to save memory.
        object.__setattr__(self, "arm", sys.intern(self.arm))
        object.__setattr__(self, "overrides", self.overrides or _NO_OVERRIDES)

    @property
    def place(self) -> str:
        """Return `ARM/PHASE/NUMBER`, or `ARM/PHASE/REPEAT.NUMBER` after the first repeat."""
        return f"{self.arm}/{self.phase}/{numbered(self.repeat, self.number)}"


@dataclass(frozen=True, slots=True)
class Trial:
    """A planned trial with its params and settings, ready to run."""

    planned: PlannedTrial
    assignment: Mapping[str, Value]
    """Values of the fields that the arm searches."""
    settings: Mapping[str, Any]
    """Settings of the arm with params and overrides applied: `task`, `model`, `train`."""
    splits: tuple[str, ...] = ()
    """Test splits that are evaluated at the end of the trial."""
    source_id: str | None = None
    """`posthoc`: id of the confirmed trial whose checkpoint is evaluated."""
    halting_examples: int = 0
    """`confirm`: number of examples of the first split to evaluate one by one at the end."""

    @property
    def trial_id(self) -> str:
        """Return the id of the planned trial."""
        return self.planned.trial_id


@dataclass(frozen=True, slots=True)
class Record:
    """The recorded results and ending of a trial, failed trials included."""

    trial_id: str
    sweep: str
    arm: str
    phase: Phase
    number: int
    seed: int
    rank: int | None
    assignment: Mapping[str, Value]
    overrides: Mapping[str, Value]
    settings: Mapping[str, Any]
    outcome: OutcomeKind | None
    """None while the trial has not ended."""
    reason: str
    last: Measurement | None
    best: Measurement | None
    """The measurement that is best by the first objective."""
    started_at: float | None
    """Unix time in seconds of the first lease."""
    ended_at: float | None
    attempts: int
    """Number of starts of the trial, the first included."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    judged: Measurement | None = field(default=None, compare=False)
    """`search`: the report that counts for the search, with each objective's value by its scope.

    None if no report has all objectives. If only the newest report was read from the ledger, it is that
    report.
    """
    reports: int = field(default=0, compare=False)
    """`search`: number of reports with all objectives among those read from the ledger."""
    attributes: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Reported texts by name; the newest text of each name."""
    retried_at: tuple[float, ...] = field(default=(), compare=False)
    """Unix times in seconds at which the failed trial was scheduled to run again."""
    last_activity_at: float | None = field(default=None, compare=False)
    """Unix time in seconds of the newest start or report."""
    repeat: int = 0
    """Index of the repeat of the arm's search that the trial belongs to."""

    @property
    def place(self) -> str:
        """Return `ARM/PHASE/NUMBER`, or `ARM/PHASE/REPEAT.NUMBER` after the first repeat."""
        return f"{self.arm}/{self.phase}/{numbered(self.repeat, self.number)}"

    def judged_by(self, objectives: Sequence[str]) -> tuple[float, ...]:
        """Return the objective values that count for the search; empty if no report has all of them."""
        for measurement in (self.judged, self.last):
            if measurement is not None and all(
                is_usable(measurement.metrics.get(name, nan)) for name in objectives
            ):
                return tuple(measurement.metrics[name] for name in objectives)
        return ()

    @property
    def standing(self) -> str:
        """Return the displayed outcome; "never began" if the trial failed without a start."""
        return "open" if self.outcome is None else standing_of(self.outcome, self.attempts)


def standing_of(kind: OutcomeKind, attempts: int) -> str:
    """Return the outcome to display for a trial that was started `attempts` times."""
    return "never began" if kind.is_failure and attempts == 0 else kind.value


OfArm = TypeVar("OfArm", PlannedTrial, Record)


def by_arm(trials: Iterable[OfArm]) -> Mapping[str, Sequence[OfArm]]:
    """Return records or planned trials by arm; an arm that has none gets an empty list."""
    values_by_arm: dict[str, list[OfArm]] = defaultdict(list)
    for item in trials:
        values_by_arm[item.arm].append(item)
    return values_by_arm


def with_usable_metrics(records: Iterable[Record]) -> list[Record]:
    """Return `records` without metrics in their last reports that statistics cannot use."""
    pairs = ((record, record.last and with_usable(record.last)) for record in records)
    return [record if last is record.last else replace(record, last=last) for record, last in pairs]


def with_usable(measurement: Measurement) -> Measurement:
    """Return `measurement` without metrics that statistics cannot use."""
    usable = {name: value for name, value in measurement.metrics.items() if is_usable(value)}
    return measurement if len(usable) == len(measurement.metrics) else replace(measurement, metrics=usable)


def num_ended(records: Iterable[Record]) -> int:
    """Return how many trials have ended for good, without infeasible ones, which are replaced."""
    kinds = (record.outcome for record in records if record.outcome is not None and record.outcome.is_final)
    return sum(kind is not OutcomeKind.INFEASIBLE for kind in kinds)


def skipped(records: Iterable[Record]) -> tuple[str, ...]:
    """Return one sentence per reason for skipping trials, with the number of trials skipped for it."""
    counts = Counter(record.reason for record in records if record.outcome is OutcomeKind.SKIPPED)
    return tuple(f"{reason} ({amount(count, 'trial')} skipped)" for reason, count in counts.items())
