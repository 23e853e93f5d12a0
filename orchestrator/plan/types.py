"""What a plan is made of: plain values that serialise to JSON. Conductor and report read nothing else."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.spec.section import Objective, Resources
from orchestrator.trials import PlannedTrial
from search_spaces.dimensions import Fixed, Space, Value, key_of
from trainables.metrics import Metric


@dataclass(frozen=True, slots=True)
class Change:
    """One field in which an arm differs from the baseline."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Arm:
    """One system under study: full settings, what differs from the baseline, what its search may vary."""

    name: str
    why: str
    settings: Mapping[str, Any]
    """Full, validated settings with every default filled in: `task`, `model`, `train`."""
    changes: tuple[Change, ...]
    """Empty for the baseline."""
    space: Space
    dropped: tuple[str, ...]
    """Dimensions of the common space this arm does not have."""
    digest: str
    """Content hash of settings and space; part of every trial id."""
    reference: str = ""
    """Name of the arm it is compared with: the baseline of its grid cell.

    The reference of another cell's baseline is the first baseline of the same context.
    """
    first: tuple[Mapping[str, Value], ...] = ()
    """Assignments that its search tries before its sampler is asked."""
    without: tuple[str, ...] = ()
    """Components of the baseline that it takes away, where the spec combines them."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """Values of the spec's contexts by field path.

    Arms of different contexts are never compared.
    """
    name_in_context: str = ""
    """Name of the arm without the values of its context; empty without contexts."""
    control: bool = False
    """Whether it is its reference under another name, searched with draws and seeds of its own."""

    @property
    def is_searched(self) -> bool:
        """Whether its search has anything to choose from."""
        return not all(isinstance(each.domain, Fixed) for each in self.space.dimensions)


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How every arm, the baseline included, is searched."""

    trials_per_arm: int
    """Of each repeat."""
    sampler: Mapping[str, Any]
    """`name` (tpe, random, ... or an Optuna sampler class name) and its keyword arguments."""
    stopper: Mapping[str, Any] | None
    """`name` (asha, median, ... or an Optuna pruner class name) and its keyword arguments."""
    objectives: tuple[Objective, ...]
    seed: int
    repeats: int = 1
    """How many times every arm is searched, each time with other draws and seeds."""


@dataclass(frozen=True, slots=True)
class ConfirmPlan:
    """How winners are retrained on seeds no search has seen."""

    best: int
    """How many of a search's best assignments are retrained."""
    seeds: tuple[int, ...]
    """Those of the first repeat of the searches, then those of the next one, and so on, equally many each."""
    splits: tuple[str, ...]
    stop: Literal["decided"] | None = None
    """`decided`: in rounds, until an arm's verdict is certain."""
    halting_examples: int = 0
    """Examples of the first split of which every trial keeps what halting does on them."""
    cross: bool = False
    """Whether each arm is also trained at what the search of its reference chose, and the reference at what
    the search of the arm chose."""
    resample_data: bool = False
    """Whether every seed has data drawn anew, the same in all arms."""


@dataclass(frozen=True, slots=True)
class ArmLimits:
    """What ends the search of an arm before its last trial, the same for every arm; None: nothing of it."""

    device_hours: float | None = None
    flops: float | None = None
    target: float | None = None
    """Value of the first objective."""
    no_improvement: int | None = None
    """Trials in a row that ended without a better value."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the whole sweep may use beside wall clock, and what the search of each arm may use."""

    device_hours: float | None = None
    flops: float | None = None
    each_arm: ArmLimits | None = None

    @property
    def counts_flops(self) -> bool:
        """Whether FLOPs limit anything."""
        return self.flops is not None or (self.each_arm is not None and self.each_arm.flops is not None)


@dataclass(frozen=True, slots=True)
class ArmProof:
    """What building an arm showed, next to the baseline."""

    arm: str
    parameters: int
    module_tree_added: tuple[str, ...]
    """Outermost modules that the baseline lacks, and weights of another shape, with their shapes."""
    module_tree_removed: tuple[str, ...]
    flops_min: float | None
    """Forward FLOPs of one sequence of the longest training length at the least halting depth; of an own
    trainable those of its example, None without one."""
    flops_max: float | None
    loss: float | None
    """Loss of the seeded forward pass on two synthetic examples, of a model with `run_with`; None for an own
    trainable."""
    gradient_norm: float | None
    functional_change: bool
    """Whether losses, gradients or the layers run differ from the baseline, on some seeded weights."""
    evidence: tuple[str, ...] = ()
    """In what the arm differs from the arm it is compared with: weights, FLOPs, training, task, measuring,
    writing, loss, gradient, costs (ponder or auxiliary, too small a part of the loss to show there), layers
    run, outputs of long inputs, operations that are counted, layers beyond those that are run, rounding.
    Weights, FLOPs and rounding prove nothing alone. Empty for the baseline alone."""
    notes: tuple[str, ...] = ()
    """What to look at twice before paying for the arm; nothing is refused for it."""
    run_with: Mapping[str, Any] = field(default_factory=dict)
    """Settings by path in which the model that was run for loss and gradient is smaller than the arm's. Empty
    where the whole was run, as in plans from before models were run narrow."""


@dataclass(frozen=True, slots=True)
class ArmPrice:
    """What an arm will cost, by arithmetic; times only after a calibration."""

    arm: str
    trials: Mapping[str, int]
    """Trials by phase."""
    train_flops_min: float | None = None
    train_flops_max: float | None = None
    """FLOPs of one training step at least and greatest halting depth; None, as all others, where unknown."""
    peak_memory_bytes: int | None = None
    checkpoint_bytes: int | None = None
    seconds_per_step: float | None = None


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """What decides the question."""

    outcomes: tuple[str, ...]
    """Names of the primary outcomes, the main one first. Empty where only the
    trials can tell what they measure: then it is the first quantity on the first confirm split."""
    margin: float | None
    """The least difference in the first of them that matters."""
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


@dataclass(frozen=True, slots=True)
class Power:
    """What the chosen seeds can and cannot show."""

    seeds: int
    """Independent observations of an arm: seeds, or repeats of its search where there are several."""
    comparisons: int
    """Arms that are compared, times primary outcomes: as many as the report compares."""
    sentence: str
    smallest_effect: float | None = None
    """The difference that is found 8 times in 10, in standard deviations of a run over seeds; None where no
    verdict is possible."""
    spread: float | None = None
    """Standard deviation over seeds in units of the first primary outcome, where it is known."""
    spread_source: str = ""
    """Where it is known from."""


@dataclass(frozen=True, slots=True)
class Extension:
    """What was added to a sweep after it had been launched, and how much had been seen by then."""

    at: float
    """Unix time in seconds."""
    by: str
    """The command, as typed, passwords masked."""
    spec_digest: str
    """Of the spec before."""
    changes: tuple[str, ...]
    """`confirm.seeds: [1, 2] -> [1, 2, 3]`, one a field."""
    arms: tuple[str, ...]
    """Arms before."""
    seeds: tuple[int, ...]
    """Confirm seeds before, those of all repeats."""
    seen: Mapping[str, int]
    """By arm, how many confirm seeds had ended; arms of which none had are left out."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that will run. The same spec gives the same plan, byte for byte."""

    name: str
    question: str
    spec_digest: str
    arms: tuple[Arm, ...]
    """The baseline first, then in the order of the spec."""
    search: SearchPlan | None
    confirm: ConfirmPlan | None
    posthoc: tuple[Mapping[str, Value], ...]
    """Overrides, one a posthoc evaluation."""
    resources: Resources
    wall_clock_hours: float | None
    trials: tuple[PlannedTrial, ...]
    proofs: tuple[ArmProof, ...] = ()
    prices: tuple[ArmPrice, ...] = ()
    power: Power | None = None
    published: tuple[Mapping[str, Any], ...] = field(default=())
    """Rows of published tables the report shows beside ours."""
    trainable: str | None = None
    """`module:name` of the spec's own trainable; None for the built-in one."""
    answer: AnswerPlan | None = None
    """None for plans from before there was one, and without confirm."""
    metrics: tuple[Metric, ...] = ()
    """What is declared of the quantities that trials report, so that a report needs none of their code. Plans
    of the built-in trainable that were made before it declared any have none."""
    factors: tuple[str, ...] = ()
    """Components of which every combination is an arm, for estimates of main effects and interactions."""
    limits: Limits | None = None
    """None where nothing but wall clock limits the sweep."""
    extended: tuple[Extension, ...] = ()
    """What was added after the launch, the first extension first."""
    keep: tuple[str, ...] = ()
    """Patterns of a trial's files to keep."""
    selected_on: tuple[str, ...] = ()
    """Test splits that are read and whose examples valid has, in some arm."""
    continue_on_error: bool = False
    """Whether the sweep continues if the first trials of an arm all crash with the same error."""

    def arm(self, name: str) -> Arm:
        """The arm called `name`. Raises KeyError."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)

    @property
    def contexts(self) -> tuple[tuple[Arm, ...], ...]:
        """Return the arms by context, in the order of the plan; without contexts one group of all arms."""
        groups: dict[Hashable, list[Arm]] = {}
        for arm in self.arms:
            groups.setdefault(key_of(arm.context), []).append(arm)
        return tuple(map(tuple, groups.values()))

    @property
    def pools(self) -> dict[str, tuple[Arm, ...]]:
        """Return arms with a reference, one per context, by their name without the context."""
        found: dict[str, list[Arm]] = {}
        for arm in self.arms:
            if arm.reference and arm.name_in_context:
                found.setdefault(arm.name_in_context, []).append(arm)
        return {name: tuple(arms) for name, arms in found.items()}

    @property
    def baseline(self) -> Arm:
        """The first arm."""
        return self.arms[0]

    @property
    def repeats(self) -> int:
        """Return how many times every arm is searched; 1 without a search."""
        return self.search.repeats if self.search is not None else 1

    @property
    def units(self) -> Mapping[int, int]:
        """Return by confirm seed the independent observation that it belongs to.

        With several repeats that is the index of its repeat; else every seed stands for itself.
        """
        seeds = self.confirm.seeds if self.confirm is not None else ()
        return self.repeat_of or {seed: seed for seed in seeds}

    @property
    def repeat_of(self) -> Mapping[int, int]:
        """Return the repeat by confirm seed; empty if every arm is searched once."""
        seeds = self.confirm.seeds if self.confirm is not None and self.repeats > 1 else ()
        return {seed: place * self.repeats // len(seeds) for place, seed in enumerate(seeds)}

    @property
    def unit_seeds(self) -> Mapping[int, tuple[int, ...]]:
        """Return the seeds of every independent observation."""
        found: dict[int, tuple[int, ...]] = {}
        for seed, unit in self.units.items():
            found[unit] = (*found.get(unit, ()), seed)
        return found

    @property
    def unit(self) -> Literal["seed", "repeat"]:
        """Return the word for an independent observation."""
        return "seed" if self.repeats == 1 else "repeat"

    @property
    def num_units(self) -> int:
        """Return the number of independent observations of each arm."""
        return len({*self.units.values()})
