"""What a report holds: numbers, each with its n and the records it was computed from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

from orchestrator.plan.types import AnswerPlan
from orchestrator.report.caveats.caveat_types import (
    FailedReadings,
    IntervalScope,
    ReportWarning,
    RetriedTrial,
)
from orchestrator.report.comparisons.equal_cost import EqualCost, SettingEffect
from orchestrator.report.comparisons.factorial import FactorialEffect
from orchestrator.report.results.arm_changes import ArmChanges
from orchestrator.report.results.readings import NOT_MEASURED
from orchestrator.report.results.statistics import Estimate, WinShare
from orchestrator.spec.metric_splits import MetricSplits
from orchestrator.statistics.decision_chance import DecisionChance
from orchestrator.statistics.moderated import Prior
from trainables.metrics import Metric, look_up

Coverage = Literal["one search", "repeated searches", "given settings"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm's result in one metric, over its confirmed seeds."""

    arm: str
    metric: str
    """`<split>/<quantity>`."""
    estimate: Estimate
    failed: int
    """Seeds, or repeats, with a trial that failed; they have no value."""
    record_ids: tuple[str, ...]
    published: float | None = None
    """Published mean of the very same reading."""
    published_source: str = ""
    setting: str = ""
    """What was changed after training, e.g. `model.halt.threshold=0.5`; empty as trained."""
    published_std: float | None = field(default=None, kw_only=True)
    """Published standard deviation over the paper's runs."""
    published_median: float | None = field(default=None, kw_only=True)
    published_median_std: float | None = field(default=None, kw_only=True)
    """Published standard deviation beside the published median."""
    median: float | None = field(default=None, kw_only=True)
    """Our median over seeds, where a median was published."""
    by_seed: tuple[tuple[int, float], ...] = field(default=(), kw_only=True)
    """Seed and value; the mean over assignments where several of an arm are confirmed."""
    by_unit: tuple[tuple[int, float], ...] = field(default=(), kw_only=True)
    """The independent observations of `estimate`: seed and value, or repeat and mean over its seeds."""
    failures: tuple[tuple[int, str], ...] = field(default=(), kw_only=True)
    """Seed and how it failed."""


@dataclass(frozen=True, slots=True)
class PriorWork:
    """A published value that stands beside no reading of ours."""

    system: str
    metric: str
    """`<split>/<quantity>`."""
    value: float
    std: float | None
    statistic: str
    """mean or median."""
    source: str
    cell: Mapping[str, object] = field(default_factory=dict)
    """Values of contexts and grid by field path."""


@dataclass(frozen=True, slots=True)
class PublishedSize:
    """Size of a published system, be it an arm or none, where its table prints one."""

    system: str
    parameters: float | None
    macs: float | None
    """Multiply-adds of a forward pass, as the publication counts them."""
    source: str


@dataclass(frozen=True, slots=True)
class Effect:
    """An arm minus its reference, paired by seed."""

    arm: str
    reference: str
    """The baseline, or with a grid the baseline of the arm's own cell."""
    metric: str
    estimate: Estimate
    """In a primary outcome with the interval that holds together with all others of the family, else with the
    95% interval of this difference alone."""
    pairs: tuple[tuple[str, str], ...]
    """Record ids: the arm's and the reference's. Where several assignments are confirmed, several a seed."""
    primary: bool = False
    """Whether a claim rests on it; all else is exploratory."""
    p: float | None = None
    """Of a primary outcome: corrected for the family, at most the level exactly when the interval leaves out
    0."""
    p_sign_flips: float | None = None
    """Of a primary outcome: the exact two-sided test by flips of signs, of this arm alone."""
    spread_raised: bool = False
    """Whether the interval is wider than these differences alone make it: see `statistics.paired`."""
    wins: WinShare | None = None
    """In how many pairs the arm is better."""


@dataclass(frozen=True, slots=True)
class ArmVerdict:
    """What may be said of an arm in a primary outcome."""

    arm: str
    reference: str
    metric: str
    kind: str
    """better, worse, higher, lower, no difference or undecided."""
    text: str
    difference: Estimate | None
    p: float | None
    level: float
    """Of the interval, and what p is compared with."""
    seeds: str
    """`5 of 8 seeds finished`, or of repeats where the searches are repeated."""
    line: str = ""
    """All of it in one line."""
    looked: bool = False
    """Whether it was certain before the last seed."""
    context: str = ""
    """Name of the arm's context; empty without contexts, and for verdicts over all contexts."""
    pooled: tuple[str, ...] = ()
    """Arms of a verdict over all contexts, one per context; else empty."""
    covers: Coverage = "given settings"
    """What the interval and p hold for: the settings that one search of each arm found, the search itself
    where it is repeated, or settings that no search chose."""
    outlooks: tuple[DecisionChance, ...] = ()
    """What more seeds, or repeats, would show of an undecided verdict that no failure withholds."""
    withheld: Literal["", "different-test-sets", "fixed-by-construction"] = ""
    """Why the comparison is not tested, whatever its values are; empty where it is tested."""
    missing: int = 0
    """Seeds, or repeats, without a value, for every value of which the verdict holds. The interval covers
    the intervals of all these values, and p is the largest."""
    wins: WinShare | None = None
    """In how many of the paired seeds, or repeats, with a value the arm is better; None without any."""
    prior: Prior | None = None
    """What the variance of the differences was averaged with; None where it is their own."""


@dataclass(frozen=True, slots=True)
class CrossVerdict:
    """Comparison of an arm and its reference at the same settings."""

    arm: str
    reference: str
    metric: str
    settings_of: str
    """Arm whose search chose the settings: the reference, or the arm itself."""
    exchanged: tuple[str, ...]
    """Fields that both arms search, whose values are the same in both."""
    kept: tuple[str, ...]
    """Further fields that the search of the arm at foreign settings varies; it keeps its own choice."""
    kind: str
    text: str
    difference: Estimate | None
    """The arm minus the reference."""
    p: float | None
    """Corrected for all differences at given settings, a family of their own."""
    family: int
    """Comparisons in that family."""
    level: float
    seeds: str
    wins: WinShare | None = None
    line: str = ""
    """All of it in one line."""


@dataclass(frozen=True, slots=True)
class ControlRate:
    """How often controls differ from their references, which luck alone can make."""

    decided: int
    """Comparisons whose interval leaves out 0."""
    compared: int
    """Comparisons with an interval."""
    low: float
    high: float
    """Ends of the 95% interval of the rate by Clopper and Pearson, as if controls were independent."""
    level: float
    """The rate that luck makes where the intervals are right."""


@dataclass(frozen=True, slots=True)
class ReportContext:
    """One context of the spec, inside which arms are compared."""

    name: str
    """E.g. `dataset=easy`."""
    values: Mapping[str, object]
    """Values by field path."""
    arms: tuple[str, ...]
    """Names of the arms, the baseline first."""
    floors: Mapping[str, float]
    """Floors of the context by metric, see `Report.floors`."""


UNRUN: Final = ("open", "skipped")
"""Outcomes of trials that have not ended, and that a budget spared."""


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
    seeds: tuple[int, int] = (0, 0)
    """Confirm seeds that finished, and that failed or lack a primary outcome."""
    units: tuple[int, int] = (0, 0)
    """The same of independent observations: of seeds, or of repeats, which need all of their seeds."""
    chosen: tuple[tuple[int, Mapping[str, object]], ...] = ()
    """Repeat and what its search chose, where the searches are repeated; `assignment` is then empty."""
    failures: tuple[tuple[int, str], ...] = ()
    """The latter, and how they failed."""


@dataclass(frozen=True, slots=True)
class SearchBest:
    """The best trial of an arm's search where nothing is confirmed: chosen by the very values it shows."""

    arm: str
    values: Mapping[str, float]
    """Value of every objective by its scope, on the split that the search used."""
    assignment: Mapping[str, object]
    record_id: str
    finished: int
    """Search trials that it was chosen from."""
    reports: int = 1
    """Reports of the trial whose best value is shown; 1 unless the scope is `best`."""


@dataclass(frozen=True)
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
    """Values without any learning, by metric; with contexts see `ReportContext.floors`."""
    arms: tuple[str, ...]
    """The baseline first."""
    quantities: tuple[Metric, ...] = field(default=(), kw_only=True)
    """What is known of every quantity in `metrics`, in their order."""
    headlines: tuple[str, ...] = field(default=(), kw_only=True)
    """Quantities that the first table is about."""
    power: str
    prior_work: tuple[PriorWork, ...] = field(default=(), kw_only=True)
    """What was published of systems that no arm is."""
    published_sizes: tuple[PublishedSize, ...] = field(default=(), kw_only=True)
    """Parameters and multiply-adds that published tables print, one item a system."""
    unmet_published: tuple[PriorWork, ...] = field(default=(), kw_only=True)
    """What stands nowhere in the tables, because nothing was measured there or every seed failed."""
    answer: AnswerPlan | None = field(default=None, kw_only=True)
    """What decides the question; None where nothing is confirmed."""
    verdicts: tuple[ArmVerdict, ...] = field(default=(), kw_only=True)
    points: tuple[Cell, ...] = field(default=(), kw_only=True)
    """Of a search with several objectives that confirms several points of a front: every point for itself,
    named in `setting`. Cells and effects are then of the first point of each arm."""
    assignments: int = field(default=1, kw_only=True)
    """Most that are confirmed of each arm."""
    confirm_seeds: tuple[int, ...] = field(default=(), kw_only=True)
    left: int = 0
    """Trials of the plan that have not ended."""
    spent: str = ""
    """What of the budget is used up, so that they never begin; empty where they may."""
    searched: tuple[SearchBest, ...] = ()
    """Where nothing is confirmed: one an arm whose search has finished trials."""
    equal_costs: tuple[EqualCost, ...] = ()
    """Arms in primary outcomes at the cost of what they are compared with; exploratory."""
    setting_effects: tuple[SettingEffect, ...] = ()
    """Primary outcomes under other settings minus as trained; exploratory."""
    changes: tuple[ArmChanges, ...] = ()
    """What every arm changes and what its search chose; empty where none does."""
    factorial: tuple[FactorialEffect, ...] = ()
    """Main effects and interactions of components whose every combination is an arm; exploratory."""
    skipped: tuple[str, ...] = ()
    """Why trials never began that need not have, one sentence a reason."""
    failed_readings: tuple[FailedReadings, ...] = ()
    """What `posthoc` lacks because every seed failed."""
    unread: tuple[str, ...] = ()
    """Test splits that were to be measured, and of which no confirm trial that finished measured anything."""

    splits: MetricSplits = field(default_factory=MetricSplits)
    """Finds split and quantity of a metric."""
    objectives: tuple[str, ...] = ()
    """Objectives of the search, each with its scope unless the scope is the last report."""
    scopes: Mapping[str, str] = field(default_factory=dict)
    """Scope of each objective in words; objectives whose last report counts are left out."""
    search_reports: int = 0
    """Maximum number of reports with all objectives in one search trial."""
    unranked: Mapping[str, int] = field(default_factory=dict)
    """Arms whose search told none of its finished trials apart, with how many finished."""
    selected_on: tuple[str, ...] = ()
    """Test splits by whose examples something was chosen."""
    read_in_search: tuple[str, ...] = ()
    """Test splits that trials of the search measured too."""
    code_versions: str = ""
    """That trials ran different code, in one sentence; empty where they did not."""
    data_versions: str = ""
    """That trials read different data under one name, in one sentence; empty where they did not."""
    retried: tuple[RetriedTrial, ...] = ()
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Texts that trials reported, by id and name."""
    not_finite: Mapping[str, int] = field(default_factory=dict)
    """Number of finished confirm and posthoc trials whose last value is NaN or infinite, by metric."""
    extensions: tuple[str, ...] = ()
    """What was added after the launch, and what that does to claims, one sentence each."""
    contexts: tuple[ReportContext, ...] = ()
    """Contexts of the spec; empty if there are none."""
    pooled: tuple[ArmVerdict, ...] = ()
    """Verdicts over all contexts, if the spec asks for them; `arm` is the name without a context."""
    unit: Literal["seed", "repeat"] = "seed"
    """The independent observation of all intervals and p values."""
    repeats: int = 1
    """How many times every arm was searched."""
    unit_seeds: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Every observation with its seeds."""
    controls: tuple[ArmVerdict, ...] = ()
    """What is found of controls, each comparison for itself; no correction counts them."""
    crossed: tuple[CrossVerdict, ...] = ()
    """What is found of arms at the settings of each other, where the spec asks for it."""
    control_rate: ControlRate | None = None
    """None without a control that has an interval."""
    warnings: tuple[ReportWarning, ...] = ()
    interval_scope: IntervalScope | None = None
    """None without a comparison."""

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Primary outcomes."""
        return self.answer.outcomes if self.answer else ()

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """Of all arms as trained, in all metrics."""
        return tuple(cell.estimate for cell in self.cells)

    @property
    def differences(self) -> tuple[Estimate, ...]:
        """Those that verdicts are about."""
        found = (each.difference for each in (*self.verdicts, *self.pooled))
        return tuple(each for each in found if each is not None)

    def finished(self, arm: str) -> str:
        """`8`, or where seeds failed `5 of 8 finished`, where some lack a primary outcome `5 of 8 measured`;
        from the confirm trials that have ended."""
        tally = self._tallies.get(arm)
        if tally is None or not tally.units[1]:
            return str(tally.units[0] if tally else 0)
        return f"{tally.units[0]} of {sum(tally.units)} {ended_word(tally.failures)}"

    def verdict(self, arm: str) -> ArmVerdict | None:
        """The arm's verdict in the first primary outcome, or what is found of a control."""
        first, known = self.outcomes[:1], (*self.verdicts, *self.controls)
        return next((each for each in known if each.arm == arm and each.metric in first), None)

    def floor(self, arm: str, metric: str) -> float | None:
        """Return the floors of the arm's context."""
        own = next((each.floors for each in self.contexts if arm in each.arms), self.floors)
        return own.get(metric)

    def margin(self, metric: str) -> float | None:
        """The least difference in `metric` that matters; None where the spec names none."""
        return self.answer.margin if self.answer is not None and metric in self.outcomes[:1] else None

    def quantity(self, metric: str) -> Metric:
        """What is known of a metric."""
        return look_up(self.quantities, metric)

    def cell(self, arm: str, metric: str) -> Cell | None:
        """The arm's result in `metric`, if it has any."""
        return self._cells.get((arm, metric))

    def effect(self, arm: str, metric: str) -> Effect | None:
        """The arm's difference to its reference in `metric`, if there are pairs."""
        return self._effects.get((arm, metric))

    @cached_property
    def _cells(self) -> dict[tuple[str, str], Cell]:
        return {(each.arm, each.metric): each for each in reversed(self.cells)}

    @cached_property
    def _effects(self) -> dict[tuple[str, str], Effect]:
        return {(each.arm, each.metric): each for each in reversed(self.effects)}

    @cached_property
    def _tallies(self) -> dict[str, ArmTally]:
        return {each.arm: each for each in reversed(self.tallies)}


def ended_word(failures: Sequence[tuple[int, str]]) -> str:
    """What is said of the other seeds: `finished`, or `measured` where some finished without a value."""
    return "measured" if any(how == NOT_MEASURED for _, how in failures) else "finished"


Rows = tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]
"""Title, headers and rows of a table."""
