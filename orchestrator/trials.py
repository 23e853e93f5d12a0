"""What flows between planner, conductor, execution, ledger and report: trials, outcomes, records."""

import re
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
"""`cross`: as `confirm`, but with what the search of another arm chose."""
NUMBER_MOST = 1e70
"""Reports sum fourth powers of differences, which must stay finite."""
_PLACE = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)


def is_usable(value: float) -> bool:
    """Return whether statistics can use a metric: it is neither NaN nor infinite, nor next to infinite."""
    return abs(value) <= NUMBER_MOST


def error_line(reason: str) -> str:
    """Return the first line of the reason of a crash, with the innermost place of its traceback."""
    places = _PLACE.findall(reason)
    where = " ({}:{})".format(*places[-1]) if places else ""
    return reason.partition("\n")[0] + where


class DeathCause(StrEnum):
    """Why the process of a trial ended before the trial did."""

    TRIAL = "trial"
    """The training code: a fault such as SIGSEGV, or an exception in the process that runs it."""
    MEMORY = "memory"
    """The system killed it because memory had run out."""
    OUTSIDE = "outside"
    """A signal such as SIGKILL or SIGTERM from outside, or the loss of the machine."""


class OutcomeKind(StrEnum):
    """How a trial can end. A closed list: drivers may report nothing else."""

    FINISHED = "finished"
    PRUNED = "pruned"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    STOPPED = "stopped"
    SKIPPED = "skipped"
    INFEASIBLE = "infeasible"
    """Of search trials alone. Every such trial has another one in its place, which the plan does not name."""

    @property
    def sentence(self) -> str:
        """For people."""
        return _SENTENCES[self]

    @property
    def final(self) -> bool:
        """Whether `resume` leaves the trial alone. Only a stopped trial goes on from its checkpoint."""
        return self is not OutcomeKind.STOPPED

    @property
    def failed(self) -> bool:
        """Whether the trial counts as a failure in the statistics and in the exit code."""
        return self in _FAILURES


_SENTENCES = {
    OutcomeKind.FINISHED: "The trial ran to its last step.",
    OutcomeKind.PRUNED: "The early stopper of its arm ended the trial.",
    OutcomeKind.DIVERGED: "The loss stopped being a finite number.",
    OutcomeKind.OUT_OF_MEMORY: "The trial needed more memory than its device had.",
    OutcomeKind.TIMED_OUT: "The trial used up its time limit.",
    OutcomeKind.CRASHED: "The trial raised an error, or its worker died more often than is retried.",
    OutcomeKind.STOPPED: "The sweep was interrupted; `resume` continues the trial from its checkpoint.",
    OutcomeKind.INFEASIBLE: "The trial said that its settings cannot be trained; another was drawn for it.",
    OutcomeKind.SKIPPED: "The trial never began: what it was for had been decided without it.",
}
_FAILURES = frozenset(
    {OutcomeKind.DIVERGED, OutcomeKind.OUT_OF_MEMORY, OutcomeKind.TIMED_OUT, OutcomeKind.CRASHED}
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a trial and why. An empty reason is an error: every ending is explained."""

    kind: OutcomeKind
    reason: str

    def __post_init__(self) -> None:
        if not self.reason:
            raise ValueError(f"an outcome must carry a reason, got kind={self.kind!s} and none")


def numbered(repeat: int, number: int) -> str:
    """Return the number of a trial for people, after that of its repeat unless it is of the first."""
    return f"{repeat}.{number}" if repeat else str(number)


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One cell of the plan: known before anything runs. What a search will choose is still open."""

    trial_id: str
    arm: str
    phase: Phase
    number: int
    """Position in its arm, phase and repeat, from 0; in `search` the sampler's trial number."""
    seed: int
    rank: int | None = None
    """`confirm` and `posthoc`: which of the arm's best assignments, from 0 (the best)."""
    overrides: Mapping[str, Value] = field(default_factory=dict)
    """`posthoc`: the settings under which the confirmed checkpoint is read again."""
    late_splits: tuple[str, ...] = ()
    """`posthoc`: the test splits that it reads, all of them added when its confirmed trial, or that under the
    same overrides, had been asked for; empty: those of the plan."""
    repeat: int = 0
    """Index of the repeat of the arm's search that the trial belongs to, from 0."""
    settings_of: str = ""
    """`cross`: name of the arm whose search chose the values of the fields that both arms search."""

    @property
    def place(self) -> str:
        """Return `ARM/PHASE/NUMBER`, or `ARM/PHASE/REPEAT.NUMBER` after the first repeat."""
        return f"{self.arm}/{self.phase}/{numbered(self.repeat, self.number)}"


@dataclass(frozen=True, slots=True)
class Trial:
    """A planned trial with its assignment: all that is needed to run it."""

    planned: PlannedTrial
    assignment: Mapping[str, Value]
    """Values of the arm's free dimensions."""
    settings: Mapping[str, Any]
    """The arm's settings with assignment and overrides applied: `task`, `model`, `train`."""
    splits: tuple[str, ...] = ()
    """Test splits the trial reads at its end."""
    source_id: str | None = None
    """`posthoc`: id of the confirmed trial whose checkpoint is read."""
    halting_examples: int = 0
    """`confirm`: examples of the first split that are looked at one by one at its end."""

    @property
    def trial_id(self) -> str:
        """Id of the planned trial."""
        return self.planned.trial_id


@dataclass(frozen=True, slots=True)
class Record:
    """What came of a trial. Failures are records too."""

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
    """How often the trial was started, the first time included."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    judged: Measurement | None = field(default=None, compare=False)
    """`search`: the report that counts, its objectives as their scopes count them. None where no report has
    all objectives; where only the newest report was read it is that one."""
    reports: int = field(default=0, compare=False)
    """`search`: number of reports with all objectives, of those that were read."""
    attributes: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Texts that the trial reported, the newest of each name."""
    retried: tuple[float, ...] = field(default=(), compare=False)
    """Unix times in seconds at which the trial, which had failed, was made to run again."""
    heard_at: float | None = field(default=None, compare=False)
    """Unix time in seconds of the newest start or report."""
    repeat: int = 0
    """Index of the repeat of the arm's search that the trial belongs to."""

    @property
    def place(self) -> str:
        """Return `ARM/PHASE/NUMBER`, or `ARM/PHASE/REPEAT.NUMBER` after the first repeat."""
        return f"{self.arm}/{self.phase}/{numbered(self.repeat, self.number)}"

    def judged_by(self, objectives: Sequence[str]) -> tuple[float, ...]:
        """Values of the objectives that count for the search; empty where no report has all of them."""
        for each in (self.judged, self.last):
            if each is not None and all(is_usable(each.metrics.get(name, nan)) for name in objectives):
                return tuple(each.metrics[name] for name in objectives)
        return ()

    @property
    def standing(self) -> str:
        """Its outcome for people, who would look for the error of a trial that "crashed" without a start."""
        return "open" if self.outcome is None else standing_of(self.outcome, self.attempts)


def standing_of(kind: OutcomeKind, attempts: int) -> str:
    """Return the outcome of a trial that was started `attempts` times, for people."""
    return "never began" if kind.failed and attempts == 0 else kind.value


OfArm = TypeVar("OfArm", PlannedTrial, Record)


def by_arm(trials: Iterable[OfArm]) -> Mapping[str, Sequence[OfArm]]:
    """Return records or planned trials by arm; an arm without any has an empty list."""
    found: dict[str, list[OfArm]] = defaultdict(list)
    for each in trials:
        found[each.arm].append(each)
    return found


def with_usable_metrics(records: Iterable[Record]) -> list[Record]:
    """Return `records` without the metrics, as last reported, that statistics cannot use."""
    found = ((each, each.last and with_usable(each.last)) for each in records)
    return [each if last is each.last else replace(each, last=last) for each, last in found]


def with_usable(measurement: Measurement) -> Measurement:
    """Return `measurement` without the metrics that statistics cannot use."""
    usable = {name: value for name, value in measurement.metrics.items() if is_usable(value)}
    return measurement if len(usable) == len(measurement.metrics) else replace(measurement, metrics=usable)


def num_ended(records: Iterable[Record]) -> int:
    """How many trials of the plan have ended for good: an infeasible one has another in its place."""
    ended = (each.outcome for each in records if each.outcome is not None and each.outcome.final)
    return sum(kind is not OutcomeKind.INFEASIBLE for kind in ended)


def skipped(records: Iterable[Record]) -> tuple[str, ...]:
    """Why trials never began: a sentence a reason, in the order they came up, with how many it spared."""
    found = Counter(each.reason for each in records if each.outcome is OutcomeKind.SKIPPED)
    return tuple(f"{reason} ({amount(count, 'trial')} skipped)" for reason, count in found.items())
