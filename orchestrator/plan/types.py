"""Dataclasses of a plan, which serialise to JSON; conductor and report read nothing else of a spec."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.spec.section import Objective, Resources
from orchestrator.trials import PlannedTrial
from search_spaces.dimensions import Fixed, Space, Value, equality_key
from trainables.metrics import Metric


@dataclass(frozen=True, slots=True)
class Change:
    """A field in which an arm differs from the baseline."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Arm:
    """A variant under comparison: all settings, changes from the baseline, and search space."""

    name: str
    why: str
    settings: Mapping[str, Any]
    """Full, validated settings with every default filled in: `task`, `model`, `train`."""
    changes: tuple[Change, ...]
    """Differences from the baseline; empty for the baseline."""
    space: Space
    dropped: tuple[str, ...]
    """Dimensions of the common space that this arm does not search."""
    digest: str
    """Content hash of settings and space; part of every trial id."""
    reference: str = ""
    """Name of the arm that this arm is compared with: the baseline of its grid cell.

    The reference of another cell's baseline is the first baseline of the same context.
    """
    first: tuple[Mapping[str, Value], ...] = ()
    """Assignments that its search tries before the sampler draws any."""
    without: tuple[str, ...] = ()
    """Components of the baseline that this arm removes, if the spec combines components."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """Values of the spec's contexts by field path.

    Arms of different contexts are never compared.
    """
    name_in_context: str = ""
    """Name of the arm without the values of its context; empty without contexts."""
    control: bool = False
    """Whether the arm equals its reference and is searched with separate draws and seeds."""

    @property
    def is_searched(self) -> bool:
        """Return whether the search has a dimension with more than one value."""
        return not all(isinstance(dimension.domain, Fixed) for dimension in self.space.dimensions)


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """Settings of the search, which are identical in every arm, including the baseline."""

    trials_per_arm: int
    """Number of search trials per arm in each repeat."""
    sampler: Mapping[str, Any]
    """`name` (tpe, random, ... or an Optuna sampler class name) and its keyword arguments."""
    stopper: Mapping[str, Any] | None
    """`name` (asha, median, ... or an Optuna pruner class name) and its keyword arguments."""
    objectives: tuple[Objective, ...]
    seed: int
    repeats: int = 1
    """Number of searches per arm, each with different draws and seeds."""


@dataclass(frozen=True, slots=True)
class ConfirmPlan:
    """Settings for retraining the winners on seeds that no search has used."""

    best: int
    """Number of best assignments of a search that are retrained."""
    seeds: tuple[int, ...]
    """Seeds by repeat of the search: first those of repeat 0, then of repeat 1, and so on, equally many
    each."""
    splits: tuple[str, ...]
    stop: Literal["decided"] | None = None
    """`decided`: run seeds in rounds until an arm's verdict is certain; None: run all seeds."""
    halting_examples: int = 0
    """Number of examples of the first split for which every trial stores halting data."""
    cross: bool = False
    """Whether to also train each arm with the winner of its reference, and the reference with the winner of
    the arm."""
    resample_data: bool = False
    """Whether every seed has newly drawn data, identical in all arms."""


@dataclass(frozen=True, slots=True)
class ArmLimits:
    """Limits that end the search of an arm before its last trial, equal for every arm.

    None means unlimited.
    """

    device_hours: float | None = None
    flops: float | None = None
    target: float | None = None
    """The search ends once its first objective reaches this value."""
    no_improvement: int | None = None
    """Number of consecutive trials without a better value."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a sweep on device hours and FLOPs, and limits of the search of each arm."""

    device_hours: float | None = None
    flops: float | None = None
    each_arm: ArmLimits | None = None

    @property
    def counts_flops(self) -> bool:
        """Return whether the sweep or any search has a limit on FLOPs."""
        return self.flops is not None or (self.each_arm is not None and self.each_arm.flops is not None)


@dataclass(frozen=True, slots=True)
class ArmCheck:
    """Result of the ablation check: size, FLOPs, loss and differences of a built arm from its reference."""

    arm: str
    parameters: int
    module_tree_added: tuple[str, ...]
    """Outermost modules that the baseline lacks, and weights whose shape differs, with their shapes."""
    module_tree_removed: tuple[str, ...]
    flops_min: float | None
    """Forward FLOPs of one sequence of the longest training length at the least halting depth. For a custom
    trainable, forward FLOPs of its example; None without an example."""
    flops_max: float | None
    loss: float | None
    """Loss of the seeded forward pass on two synthetic examples, of a model with the settings `run_with`;
    None for a custom trainable."""
    gradient_norm: float | None
    functional_change: bool
    """Whether losses, gradients or the layers that are run differ from the baseline, for some seeded
    weights."""
    evidence: tuple[str, ...] = ()
    """Aspects in which the arm differs from its reference: weights, FLOPs, training, task, measuring,
    writing, loss, gradient, costs (ponder or auxiliary, too small a part of the loss to be visible there),
    layers run, outputs of long inputs, operations that are counted, layers beyond those that are run,
    rounding. Weights, FLOPs and rounding alone are not sufficient evidence. Empty only for the baseline."""
    notes: tuple[str, ...] = ()
    """Warnings about the arm; the plan remains valid."""
    run_with: Mapping[str, Any] = field(default_factory=dict)
    """Smaller settings, by path, of the model that gave loss and gradient. Empty if the check ran the full
    model, as in plans of older versions."""


@dataclass(frozen=True, slots=True)
class ArmEstimate:
    """Computed cost estimate of an arm; durations require a calibration."""

    arm: str
    trials: Mapping[str, int]
    """Number of trials by phase."""
    train_flops_min: float | None = None
    train_flops_max: float | None = None
    """FLOPs of one training step at the greatest halting depth; `train_flops_min` is for the least depth. All
    estimates are None if unknown."""
    peak_memory_bytes: int | None = None
    checkpoint_bytes: int | None = None
    seconds_per_step: float | None = None


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """Primary outcomes and error level that decide the question of a sweep."""

    outcomes: tuple[str, ...]
    """Names of the primary outcomes, the main outcome first. If empty, the outcome is the first quantity that
    trials report on the first confirm split."""
    margin: float | None
    """Least difference in the main outcome that matters."""
    level: float
    """Family-wise error of all claims."""
    family: int
    """Number of comparisons in the family: arms with a reference, and pooled arms, times primary outcomes."""
    pooled: bool = False
    """Whether there are also verdicts over all contexts."""
    split: str = ""
    """Split of outcomes whose names do not begin with a split."""
    moderated: bool = False
    """Whether the variances of an outcome are averaged with their prior over all arms."""
    goal: Literal["max", "min"] | None = None
    """Whether large or small values of the main outcome are better, if the spec states it."""


@dataclass(frozen=True, slots=True)
class Power:
    """Smallest effect that the seeds of a plan can detect."""

    seeds: int
    """Independent observations per arm: seeds, or repeats of its search if there are several."""
    comparisons: int
    """Number of compared arms times primary outcomes, as in the report."""
    sentence: str
    smallest_effect: float | None = None
    """Difference that is detected 8 times in 10, in standard deviations of a run over seeds; None if no
    verdict is possible."""
    spread: float | None = None
    """Standard deviation over seeds in units of the first primary outcome; None if unknown."""
    spread_source: str = ""
    """Source of the spread."""


@dataclass(frozen=True, slots=True)
class Extension:
    """A change to a sweep after its launch, and the number of results at that time."""

    at: float
    """Unix time in seconds."""
    by: str
    """The command as typed, with passwords masked."""
    spec_digest: str
    """Digest of the spec before the change."""
    changes: tuple[str, ...]
    """Changed fields, one text per field: `confirm.seeds: [1, 2] -> [1, 2, 3]`."""
    arms: tuple[str, ...]
    """Names of the arms before the change."""
    seeds: tuple[int, ...]
    """Confirm seeds of all repeats before the change."""
    seen: Mapping[str, int]
    """Number of ended confirm seeds by arm; arms without any are left out."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All arms, trials and estimates of a sweep. The same spec gives the same plan, byte for byte."""

    name: str
    question: str
    spec_digest: str
    arms: tuple[Arm, ...]
    """Arms in the order of the spec, after the baseline."""
    search: SearchPlan | None
    confirm: ConfirmPlan | None
    posthoc: tuple[Mapping[str, Value], ...]
    """Settings of each re-evaluation, as overrides by field path."""
    resources: Resources
    wall_clock_hours: float | None
    trials: tuple[PlannedTrial, ...]
    proofs: tuple[ArmCheck, ...] = ()
    prices: tuple[ArmEstimate, ...] = ()
    power: Power | None = None
    published: tuple[Mapping[str, Any], ...] = field(default=())
    """Rows of published tables that the report displays next to the results."""
    trainable: str | None = None
    """`module:name` of the custom trainable; None for the built-in one."""
    answer: AnswerPlan | None = None
    """None without confirm, and in plans of versions without this field."""
    metrics: tuple[Metric, ...] = ()
    """Declarations of the metrics that trials report, so that a report does not import the training code.
    Empty for plans of the built-in trainable from versions that declared none."""
    factors: tuple[str, ...] = ()
    """Components of which every combination is an arm, for estimates of main effects and interactions."""
    limits: Limits | None = None
    """None if the sweep has no limits other than wall clock."""
    extended: tuple[Extension, ...] = ()
    """Extensions after the launch, in chronological order."""
    keep: tuple[str, ...] = ()
    """Patterns of the files of a trial that are retained."""
    selected_on: tuple[str, ...] = ()
    """Test splits whose examples the valid split contains, in some arm."""
    continue_on_error: bool = False
    """Whether the sweep continues if the first trials of an arm all crash with the same error."""

    def arm(self, name: str) -> Arm:
        """Return the arm called `name`; raise KeyError if there is none."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)

    @property
    def contexts(self) -> tuple[tuple[Arm, ...], ...]:
        """Return the arms grouped by context, in the order of the plan.

        Without contexts, return one group of all arms.
        """
        groups: dict[Hashable, list[Arm]] = {}
        for arm in self.arms:
            groups.setdefault(equality_key(arm.context), []).append(arm)
        return tuple(map(tuple, groups.values()))

    @property
    def pools(self) -> dict[str, tuple[Arm, ...]]:
        """Return the arms with a reference, grouped by their name without the context."""
        arms_by_pool: dict[str, list[Arm]] = {}
        for arm in self.arms:
            if arm.reference and arm.name_in_context:
                arms_by_pool.setdefault(arm.name_in_context, []).append(arm)
        return {name: tuple(arms) for name, arms in arms_by_pool.items()}

    @property
    def baseline(self) -> Arm:
        """Return the first arm."""
        return self.arms[0]

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Return the objectives of the search; empty without a search."""
        return self.search.objectives if self.search is not None else ()

    @property
    def test_splits(self) -> tuple[str, ...]:
        """Return the splits that confirm trials evaluate; empty without confirmation."""
        return self.confirm.splits if self.confirm is not None else ()

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Return the primary outcomes; empty if the plan has no answer."""
        return self.answer.outcomes if self.answer is not None else ()

    @property
    def has_stopper(self) -> bool:
        """Return whether an early stopper ends trials of the search."""
        return self.search is not None and self.search.stopper is not None

    @property
    def repeats(self) -> int:
        """Return the number of searches per arm; 1 without a search."""
        return self.search.repeats if self.search is not None else 1

    @property
    def units(self) -> Mapping[int, int]:
        """Return the independent observation of every confirm seed.

        With several repeats, it is the index of the seed's repeat, otherwise the seed itself.
        """
        seeds = self.confirm.seeds if self.confirm is not None else ()
        return self.repeat_of or {seed: seed for seed in seeds}

    @property
    def repeat_of(self) -> Mapping[int, int]:
        """Return the repeat of every confirm seed; empty if every arm is searched once."""
        seeds = self.confirm.seeds if self.confirm is not None and self.repeats > 1 else ()
        return {seed: place * self.repeats // len(seeds) for place, seed in enumerate(seeds)}

    @property
    def unit_seeds(self) -> Mapping[int, tuple[int, ...]]:
        """Return the seeds of every independent observation."""
        seeds_by_unit: dict[int, tuple[int, ...]] = {}
        for seed, unit in self.units.items():
            seeds_by_unit[unit] = (*seeds_by_unit.get(unit, ()), seed)
        return seeds_by_unit

    @property
    def unit(self) -> Literal["seed", "repeat"]:
        """Return the word for an independent observation."""
        return "seed" if self.repeats == 1 else "repeat"

    @property
    def num_units(self) -> int:
        """Return the number of independent observations of each arm."""
        return len({*self.units.values()})
