"""Define the content of a report: numbers, each with its n and the records it was computed from."""

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
from orchestrator.report.results.seed_results import NOT_MEASURED_FAILURE
from orchestrator.report.results.statistics import Estimate, WinShare
from orchestrator.spec.metric_splits import MetricSplits
from orchestrator.statistics.decision_chance import DecisionChance
from orchestrator.statistics.moderated import Prior
from trainables.metrics import Metric, look_up

Coverage = Literal["one search", "repeated searches", "given settings"]


@dataclass(frozen=True, slots=True)
class ArmResult:
    """Result of one arm in one metric, over its confirmed seeds."""

    arm: str
    metric: str
    """Name of the metric, `<split>/<quantity>`."""
    estimate: Estimate
    failed: int
    """Number of seeds, or repeats, with a failed trial; they have no value."""
    record_ids: tuple[str, ...]
    published: float | None = None
    """Published mean of the same arm, setting and metric."""
    published_source: str = ""
    setting: str = ""
    """Settings changed after training, e.g. `model.halt.threshold=0.5`; empty as trained."""
    published_std: float | None = field(default=None, kw_only=True)
    """Published standard deviation over the paper's runs."""
    published_median: float | None = field(default=None, kw_only=True)
    published_median_std: float | None = field(default=None, kw_only=True)
    """Published standard deviation that accompanies the published median."""
    median: float | None = field(default=None, kw_only=True)
    """Measured median over seeds, if a median was published."""
    by_seed: tuple[tuple[int, float], ...] = field(default=(), kw_only=True)
    """Seed and value; the mean over params if several of an arm are confirmed."""
    by_unit: tuple[tuple[int, float], ...] = field(default=(), kw_only=True)
    """The independent observations of `estimate`: seed and value, or repeat and mean over its seeds."""
    failures: tuple[tuple[int, str], ...] = field(default=(), kw_only=True)
    """Seed and kind of failure."""


@dataclass(frozen=True, slots=True)
class PriorWork:
    """A published value without a measured result, or of a system that is not an arm."""

    system: str
    metric: str
    """Name of the metric, `<split>/<quantity>`."""
    value: float
    std: float | None
    statistic: str
    """Mean or median."""
    source: str
    cell: Mapping[str, object] = field(default_factory=dict)
    """Values of contexts and grid by field path."""


@dataclass(frozen=True, slots=True)
class PublishedSize:
    """Published size of a system, which may or may not be an arm."""

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
    """The baseline, or with a grid the baseline of the arm's cell."""
    metric: str
    estimate: Estimate
    """Difference with an interval.

    In a primary outcome the intervals of the family hold simultaneously; else it is the 95% interval of this
    difference alone.
    """
    pairs: tuple[tuple[str, str], ...]
    """Record ids of the arm and of the reference; several per seed if several params are confirmed."""
    primary: bool = False
    """Whether claims may rest on the effect; all others are exploratory."""
    p: float | None = None
    """p of a primary outcome, corrected for the family.

    It is at most the level if and only if the interval excludes 0.
    """
    p_sign_flips: float | None = None
    """Exact two-sided sign-flip test of this arm in a primary outcome, uncorrected."""
    spread_raised: bool = False
    """Whether the interval is wider than from these differences alone: see `statistics.paired`."""
    wins: WinShare | None = None
    """Share of pairs in which the arm is better."""


@dataclass(frozen=True, slots=True)
class ArmVerdict:
    """The verdict on an arm in a primary outcome."""

    arm: str
    reference: str
    metric: str
    kind: str | None
    """`better`, `worse`, `higher`, `lower`, `no difference` or `undecided`; None before any result."""
    text: str
    difference: Estimate | None
    p: float | None
    level: float
    """Level of the interval, with which p is compared."""
    seeds: str
    """Seeds with a value, e.g. `5 of 8 seeds finished`; repeats if searches are repeated."""
    line: str = ""
    """The full verdict in one line."""
    looked: bool = False
    """Whether the verdict was decided before the last seed."""
    context: str = ""
    """Name of the arm's context; empty without contexts, and for verdicts over all contexts."""
    pooled: tuple[str, ...] = ()
    """Arms of a verdict over all contexts, one per context; else empty."""
    covers: Coverage = "given settings"
    """What interval and p hold for.

    One of: the settings that one search of each arm found, repeated searches, or settings that no search
    chose.
    """
    outlooks: tuple[DecisionChance, ...] = ()
    """Chances that more seeds, or repeats, decide an undecided verdict without failures."""
    withheld: Literal["", "different-test-sets", "fixed-by-construction"] = ""
    """Why the comparison is not tested, independent of its values; empty if it is tested."""
    missing: int = 0
    """Number of seeds, or repeats, without a value; the verdict holds for all their possible values.

    The interval covers the intervals of all these values, and p is the largest.
    """
    wins: WinShare | None = None
    """Share of the paired seeds, or repeats, in which the arm is better; None without values."""
    prior: Prior | None = None
    """Prior that the variance of the differences was averaged with; None if it is not averaged."""
    waiting: int = 0
    """Number of seeds, or repeats, that have not run yet."""
    exploratory: bool = False
    """Whether a decided verdict rests on seeds, repeats or arms added after results had been observed."""

    @property
    def qualified_kind(self) -> str:
        """Return the kind, marked if it is exploratory; empty before any result."""
        return f"{self.kind}, exploratory" if self.exploratory else self.kind or ""

    @property
    def is_decided(self) -> bool:
        """Return whether the verdict makes a statement, including `no difference`."""
        return self.kind not in {None, "undecided"}


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
    """Fields that only the arm at the other's settings searches; it keeps its own choice."""
    kind: str | None
    """As in `ArmVerdict`."""
    text: str
    difference: Estimate | None
    """The arm minus the reference."""
    p: float | None
    """Corrected for all differences at given settings, which form a separate family."""
    family: int
    """Number of comparisons in that family."""
    level: float
    seeds: str
    wins: WinShare | None = None
    line: str = ""
    """The full verdict in one line."""


@dataclass(frozen=True, slots=True)
class ControlRate:
    """Rate at which controls differ from their references, which happens only by chance."""

    decided: int
    """Number of comparisons whose interval excludes 0."""
    compared: int
    """Number of comparisons with an interval."""
    low: float
    high: float
    """Ends of the 95% interval of the rate by Clopper and Pearson, as if controls were independent."""
    level: float
    """The rate expected by chance if the intervals are correct."""


@dataclass(frozen=True, slots=True)
class ReportContext:
    """One context of the spec, inside which arms are compared."""

    name: str
    """Name, e.g. `dataset=easy`."""
    values: Mapping[str, object]
    """Values by field path."""
    arms: tuple[str, ...]
    """Names of the arms, the baseline first."""
    floors: Mapping[str, float]
    """Floors of the context by metric, see `Report.floors`."""


UNRUN_OUTCOMES: Final = ("open", "skipped")
"""Outcomes of trials that have not ended, and of trials that never started."""


@dataclass(frozen=True, slots=True)
class ArmTally:
    """Outcomes and cost of an arm's trials."""

    arm: str
    outcomes: Mapping[str, Mapping[str, int]]
    """Number of trials by phase and outcome; a trial that has not ended counts as `open`."""
    seconds: float
    """Seconds of work over all trials of the arm."""
    assignment: Mapping[str, object]
    """Best params of the search, empty without one."""
    seeds: tuple[int, int] = (0, 0)
    """Number of confirm seeds that finished, and that failed or lack a primary outcome."""
    units: tuple[int, int] = (0, 0)
    """As `seeds`, in independent observations: seeds, or repeats, which need all of their seeds."""
    chosen: tuple[tuple[int, Mapping[str, object]], ...] = ()
    """Repeat and params that its search chose, if searches are repeated; `assignment` is then empty."""
    failures: tuple[tuple[int, str], ...] = ()
    """Seeds that failed or lack a primary outcome, with the kind of failure."""


@dataclass(frozen=True, slots=True)
class SearchBest:
    """The best trial of an arm's search, for sweeps that confirm nothing; chosen by the displayed values."""

    arm: str
    values: Mapping[str, float]
    """Value of every objective by its scope, on the split that the search used."""
    assignment: Mapping[str, object]
    record_id: str
    finished: int
    """Number of search trials that it was chosen from."""
    reports: int = 1
    """Number of reports of the trial whose best value is displayed; 1 unless the scope is `best`."""


@dataclass(frozen=True)
class Report:
    """Content of all tables and figures; a pure function of plan and records."""

    sweep: str
    question: str
    metrics: tuple[str, ...]
    cells: tuple[ArmResult, ...]
    """Results as trained."""
    posthoc: tuple[ArmResult, ...]
    """Results of the confirmed checkpoints, re-evaluated under other settings."""
    effects: tuple[Effect, ...]
    tallies: tuple[ArmTally, ...]
    floors: Mapping[str, float]
    """Values reached without learning, by metric; `ReportContext.floors` has those of each context."""
    arms: tuple[str, ...]
    """Names of the arms, the baseline first."""
    quantities: tuple[Metric, ...] = field(default=(), kw_only=True)
    """Declarations of the quantities in `metrics`, in the same order."""
    headlines: tuple[str, ...] = field(default=(), kw_only=True)
    """Quantities of the first table."""
    power: str
    prior_work: tuple[PriorWork, ...] = field(default=(), kw_only=True)
    """Published values of systems that are not arms."""
    published_sizes: tuple[PublishedSize, ...] = field(default=(), kw_only=True)
    """Parameters and multiply-adds in published tables, one item per system."""
    unmet_published: tuple[PriorWork, ...] = field(default=(), kw_only=True)
    """Published rows without a result in the tables: nothing was measured, or every seed failed."""
    answer: AnswerPlan | None = field(default=None, kw_only=True)
    """Primary outcomes and level; None if nothing is confirmed."""
    verdicts: tuple[ArmVerdict, ...] = field(default=(), kw_only=True)
    points: tuple[ArmResult, ...] = field(default=(), kw_only=True)
    """Results of every confirmed point of a front, named in `setting`.

    Only for a search with several objectives of which several points are confirmed. Cells and effects are
    then those of the first point of each arm.
    """
    assignments: int = field(default=1, kw_only=True)
    """Maximum number of confirmed params per arm."""
    confirm_seeds: tuple[int, ...] = field(default=(), kw_only=True)
    left: int = 0
    """Number of planned trials that have not ended."""
    spent: str = ""
    """The exhausted part of the budget, which prevents further trials; empty if they may start."""
    searched: tuple[SearchBest, ...] = ()
    """If nothing is confirmed: one item per arm whose search has finished trials."""
    equal_costs: tuple[EqualCost, ...] = ()
    """Arms in primary outcomes at the cost of their references; exploratory."""
    setting_effects: tuple[SettingEffect, ...] = ()
    """Primary outcomes under other settings minus as trained; exploratory."""
    changes: tuple[ArmChanges, ...] = ()
    """Changes and chosen params of each arm; empty if no arm has any."""
    factorial: tuple[FactorialEffect, ...] = ()
    """Main effects and interactions of components if every combination is an arm; exploratory."""
    skipped: tuple[str, ...] = ()
    """Reasons why trials were skipped as unnecessary, one sentence each."""
    failed_readings: tuple[FailedReadings, ...] = ()
    """Re-evaluations that `posthoc` lacks because every seed failed."""
    unread: tuple[str, ...] = ()
    """Planned test splits that no finished confirm trial measured."""

    splits: MetricSplits = field(default_factory=MetricSplits)
    """Mapping from a metric to its split and quantity."""
    objectives: tuple[str, ...] = ()
    """Objectives of the search, each with its scope unless the scope is the last report."""
    scopes: Mapping[str, str] = field(default_factory=dict)
    """Scope of each objective in words; objectives whose last report counts are left out."""
    search_reports: int = 0
    """Maximum number of reports with all objectives in one search trial."""
    unranked: Mapping[str, int] = field(default_factory=dict)
    """Number of finished search trials of each arm whose trials all had equal values."""
    selected_on: tuple[str, ...] = ()
    """Test splits whose examples were used for a choice."""
    read_in_search: tuple[str, ...] = ()
    """Test splits that trials of the search measured too."""
    code_versions: str = ""
    """Sentence stating that trials ran different code; empty if they did not."""
    data_versions: str = ""
    """Sentence stating that trials read different data under one name; empty if they did not."""
    retried: tuple[RetriedTrial, ...] = ()
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Texts that trials reported, by id and name."""
    not_finite: Mapping[str, int] = field(default_factory=dict)
    """Number of finished confirm and posthoc trials whose last value is NaN or infinite, by metric."""
    extensions: tuple[str, ...] = ()
    """Extensions after the launch and their consequences for claims, one sentence each."""
    contexts: tuple[ReportContext, ...] = ()
    """Contexts of the spec; empty if there are none."""
    pooled: tuple[ArmVerdict, ...] = ()
    """Verdicts over all contexts, if the spec asks for them; `arm` is the name without a context."""
    unit: Literal["seed", "repeat"] = "seed"
    """The independent observation of all intervals and p-values."""
    repeats: int = 1
    """Number of searches of each arm."""
    unit_seeds: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Each independent observation with its seeds."""
    controls: tuple[ArmVerdict, ...] = ()
    """Verdicts on controls, each tested separately without correction."""
    crossed: tuple[CrossVerdict, ...] = ()
    """Verdicts on arms at each other's settings, if the spec asks for them."""
    control_rate: ControlRate | None = None
    """None without a control that has an interval."""
    warnings: tuple[ReportWarning, ...] = ()
    interval_scope: IntervalScope | None = None
    """None without a comparison."""

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Return the primary outcomes."""
        return self.answer.outcomes if self.answer else ()

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """Return the estimates of all arms as trained, in all metrics."""
        return tuple(cell.estimate for cell in self.cells)

    @property
    def differences(self) -> tuple[Estimate, ...]:
        """Return the differences that verdicts are based on."""
        estimates = (verdict.difference for verdict in (*self.verdicts, *self.pooled))
        return tuple(estimate for estimate in estimates if estimate is not None)

    def finished_text(self, arm: str) -> str:
        """Return the number of ended confirm seeds as text.

        `8` if none failed; else e.g. `5 of 8 finished`, or `5 of 8 measured` if some lack a primary outcome.
        """
        tally = self._tallies.get(arm)
        if tally is None or not tally.units[1]:
            return str(tally.units[0] if tally else 0)
        return f"{tally.units[0]} of {sum(tally.units)} {completion_word(tally.failures)}"

    def verdict(self, arm: str, metric: str | None = None) -> ArmVerdict | None:
        """Return the verdict on an arm, or on a control, in an outcome; by default in the first one."""
        metrics = self.outcomes[:1] if metric is None else (metric,)
        verdicts_of_arm = (verdict for verdict in (*self.verdicts, *self.controls) if verdict.arm == arm)
        return next((verdict for verdict in verdicts_of_arm if verdict.metric in metrics), None)

    def floor(self, arm: str, metric: str) -> float | None:
        """Return the floor of a metric in the arm's context."""
        floors = next((context.floors for context in self.contexts if arm in context.arms), self.floors)
        return floors.get(metric)

    def margin(self, metric: str) -> float | None:
        """Return the smallest relevant difference in `metric`; None if the spec has none."""
        return self.answer.margin if self.answer is not None and metric in self.outcomes[:1] else None

    def quantity(self, metric: str) -> Metric:
        """Return the declaration of a metric."""
        return look_up(self.quantities, metric)

    def cell(self, arm: str, metric: str) -> ArmResult | None:
        """Return the arm's result in `metric`, if it has any."""
        return self._cells.get((arm, metric))

    def effect(self, arm: str, metric: str) -> Effect | None:
        """Return the arm's difference to its reference in `metric`, if there are pairs."""
        return self._effects.get((arm, metric))

    @cached_property
    def _cells(self) -> dict[tuple[str, str], ArmResult]:
        return {(cell.arm, cell.metric): cell for cell in reversed(self.cells)}

    @cached_property
    def _effects(self) -> dict[tuple[str, str], Effect]:
        return {(effect.arm, effect.metric): effect for effect in reversed(self.effects)}

    @cached_property
    def _tallies(self) -> dict[str, ArmTally]:
        return {tally.arm: tally for tally in reversed(self.tallies)}


def completion_word(failures: Sequence[tuple[int, str]]) -> str:
    """Return the word for seeds with a value: `measured` if some finished without one, else `finished`."""
    return "measured" if any(kind == NOT_MEASURED_FAILURE for _, kind in failures) else "finished"


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of formatted text with a title."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    stacked: bool = False
    """Whether the cells of a row are stacked on a phone, so that all of them are visible."""
    narrow: bool = False
    """Whether each cell is one number, which needs little space."""
