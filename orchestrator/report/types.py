"""What a report holds: numbers, each with its n and the records it was computed from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.report.statistics import Estimate
from trainables.metrics import Metric, look_up


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm's result in one metric, over its confirmed seeds."""

    arm: str
    metric: str
    """`<split>/<quantity>`."""
    estimate: Estimate
    failed: int
    """Confirm trials that failed; in a quantity that has a floor they count at it."""
    record_ids: tuple[str, ...]
    published: float | None = None
    """Published mean of the very same reading."""
    published_source: str = ""
    setting: str = ""
    """What was changed after training, e.g. `model.halt.threshold=0.5`; empty as trained."""
    published_std: float | None = field(default=None, kw_only=True)
    """Published standard deviation over the paper's runs."""
    published_median: float | None = field(default=None, kw_only=True)
    median: float | None = field(default=None, kw_only=True)
    """Our median over seeds, where a median was published."""


@dataclass(frozen=True, slots=True)
class PriorWork:
    """A published value of a system that no arm is."""

    system: str
    metric: str
    """`<split>/<quantity>`."""
    value: float
    std: float | None
    statistic: str
    """mean or median."""
    source: str


@dataclass(frozen=True, slots=True)
class Effect:
    """An arm minus its reference, paired by seed."""

    arm: str
    reference: str
    """The baseline, or with a grid the baseline of the arm's own cell."""
    metric: str
    estimate: Estimate
    p: float
    """Two-sided sign-flip test."""
    p_holm: float
    """Corrected over the arms compared in this metric."""
    pairs: tuple[tuple[str, str], ...]
    """Record ids: the arm's and the reference's. Where several assignments are confirmed, several a seed."""


@dataclass(frozen=True, slots=True)
class ArmTally:
    """How an arm's trials ended and what they cost."""

    arm: str
    outcomes: Mapping[str, Mapping[str, int]]
    """Phase to outcome to count; a trial that has not ended counts as `open`."""
    seconds: float
    """Seconds of work over all its trials."""
    assignment: Mapping[str, object]
    """Best assignment of the search, empty without one."""


@dataclass(frozen=True, slots=True)
class SearchBest:
    """The best trial of an arm's search where nothing is confirmed: chosen by the very values it shows."""

    arm: str
    values: Mapping[str, float]
    """By objective, as last reported, on the split that steered the search."""
    assignment: Mapping[str, object]
    record_id: str
    finished: int
    """Search trials that it was chosen from."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that the tables and figures show; a pure function of plan and records."""

    sweep: str
    question: str
    metrics: tuple[str, ...]
    cells: tuple[Cell, ...]
    """As trained."""
    posthoc: tuple[Cell, ...]
    """The confirmed checkpoints, read again under other settings."""
    effects: tuple[Effect, ...]
    tallies: tuple[ArmTally, ...]
    floors: Mapping[str, float]
    """By metric: what needs no learning, as measured or declared."""
    arms: tuple[str, ...]
    """The baseline first."""
    quantities: tuple[Metric, ...] = field(default=(), kw_only=True)
    """What is known of every quantity in `metrics`, in their order."""
    headlines: tuple[str, ...] = field(default=(), kw_only=True)
    """Quantities that the first table is about."""
    power: str
    prior_work: tuple[PriorWork, ...] = field(default=(), kw_only=True)
    """What was published of systems that no arm is."""
    left: int = 0
    """Trials of the plan that have not ended."""
    searched: tuple[SearchBest, ...] = ()
    """Where nothing is confirmed: one an arm whose search has finished trials."""
    skipped: tuple[str, ...] = ()
    """Why trials never began that need not have, one sentence a reason."""
    unread: tuple[str, ...] = ()
    """Test splits that were to be measured, and of which no confirm trial that finished measured anything."""

    def quantity(self, metric: str) -> Metric:
        """What is known of a metric."""
        return look_up(self.quantities, metric)

    def cell(self, arm: str, metric: str) -> Cell | None:
        """The arm's result in `metric`, if it has any."""
        return next((cell for cell in self.cells if (cell.arm, cell.metric) == (arm, metric)), None)

    def effect(self, arm: str, metric: str) -> Effect | None:
        """The arm's difference to its reference in `metric`, if there are pairs."""
        return next((effect for effect in self.effects if (effect.arm, effect.metric) == (arm, metric)), None)
