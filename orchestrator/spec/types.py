"""Defines the parts of a spec as immutable pydantic models that reject unknown keys.

The types validate single values; `checks` validates relations between values.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
)

from orchestrator import identity
from orchestrator.spec.kinds import (
    ArmName,
    Component,
    Condition,
    Count,
    Dimensions,
    Distinct,
    Json,
    Level,
    Listed,
    Metric,
    Name,
    Named,
    NonEmpty,
    NonEmptyDistinct,
    Number,
    Path,
    Pattern,
    Point,
    Positive,
    Scalar,
    Seed,
    Seeds,
    Split,
    Spread,
    Text,
    Trainable,
    described_as,
    refusal,
)
from orchestrator.spec.section import Objective, Resources, Section, thread_count
from search_spaces.wording import shown

MOST_EXAMPLES = 16
"""Maximum number of examples that a confirm trial may store, at some kilobytes each."""


class Baseline(Section):
    """The system everything is compared with. What its fields may be is checked by the planner."""

    task: Named
    """What is learnt: `name` of a file in trainables/tasks, and its settings."""
    model: Named
    """What learns it: `name` of a file in trainables/models, and its settings."""
    train: Mapping[str, Json] = Field(default_factory=dict)
    """How it is trained: steps, batch_size, lr, ponder_weight, ..."""


class ArmSpec(Section):
    """The baseline with only these fields changed."""

    why: Text
    """What the arm shows, in a few words for people."""
    set: Annotated[Mapping[Path, Json], Field(min_length=1)]
    """Field path to value, e.g. `model.halt.unit: token`."""
    drop: Distinct[Path] = ()
    """Searched fields that this arm does not search: those it lacks or sets itself, those that change
    nothing in it, fields of model and task that are to stay; or all of them, for an arm that is not
    searched."""
    allow_no_effect: bool = False
    """Run the arm even if no difference to the baseline was found; the plan then says so."""


class ControlSpec(Section):
    """A control: the baseline under another name, which shows what differences luck alone makes.

    Its searches have draws and training seeds of their own; its confirm seeds are those of all arms.
    The report shows its difference to the baseline beside the verdicts. A control is never the winner.
    """

    control: Annotated[Literal[True], described_as("true")]
    """`true`. A control has no `set` and no `drop`."""
    why: Text = "the baseline again, searched apart: its difference is luck"
    """What the control is for, in a few words for people."""

    @property
    def set(self) -> Mapping[str, Json]:
        """Return the fields that the control changes: none."""
        return {}

    @property
    def drop(self) -> tuple[str, ...]:
        """Return the searched fields that the control does not search: none."""
        return ()


CHANGED_ARM, CONTROL_ARM = "[arm]", "[control]"
"""Keys that pydantic inserts for the kind of an arm, omitted in messages."""


def _kind_of_arm(value: Any) -> str:
    is_control = isinstance(value, ControlSpec) or (isinstance(value, Mapping) and "control" in value)
    return CONTROL_ARM if is_control else CHANGED_ARM


AnyArm = Annotated[
    Annotated[ArmSpec, Tag(CHANGED_ARM)] | Annotated[ControlSpec, Tag(CONTROL_ARM)],
    Discriminator(_kind_of_arm),
]


class Combine(Section):
    """Arms made of components: which of them are taken away together."""

    of: NonEmptyDistinct[Name]
    """Names of components."""
    way: Annotated[
        Literal["leave-one-out", "add-one-in", "pairs", "all"],
        described_as("leave-one-out, add-one-in, pairs or all"),
        Field(alias="as"),
    ]
    """`leave-one-out`: an arm without each. `add-one-in`: one without any, and one with each alone. `pairs`:
    one without each two. `all`: every combination, for main effects and interactions."""


class Search(Section):
    """How every arm, the baseline included, is searched: one study an arm."""

    spaces: Distinct[Text] = ()
    """Ready-made spaces: `halting` for published ranges, `halting.wide` for wide ones."""
    also: Dimensions = ()
    """Further ranges by field path; they override those of `spaces`. A range is `{float: [low, high]}` or
    `{int: [low, high]}`, with `log: true` or a step that is added (`step: 8`) or multiplied with (`step: x2`,
    which must lead to the high end); `{choice: [...]}` of any values, lists and mappings included; or
    `{fixed: value}`."""
    constraints: Distinct[Condition] = ()
    """Conditions on drawn values, in addition to those of `spaces`: formulas of fields such as `width % heads
    == 0` or `optimizer == 'sgd' or width * layers <= 4096`, with backticks around paths that are no plain
    names, and `module:function` for a function of the settings that returns True or False. Values that
    violate a constraint are drawn again and cost no trial. Nothing is asked of a field that an arm lacks."""
    first: Listed[Point] = ()
    """Points that each arm's search tries before its sampler is asked: value by field path, `{}` for the
    arm's own settings, or `{from: SWEEP}` for what another sweep's search found best, arm by arm. What a
    point does not name is as the arm has it; what an arm does not search is left out."""
    sampler: Component = Field(default_factory=lambda: {"name": "tpe"})
    """tpe, random, cmaes, grid (every combination), bruteforce, ..., an Optuna class or a dotted name of your
    own; with keyword arguments as a mapping."""
    stopper: Component | None = None
    """asha, median, ..., an Optuna pruner class, Ray Tune's ASHAScheduler, HyperBandScheduler or
    MedianStoppingRule, or a dotted name of your own: one for each arm; null lets trials run to their end."""
    trials_per_arm: Count
    """Trials of each search: of each arm, and with `repeats` of each of its repeats."""
    objectives: NonEmpty[Objective]
    """A second objective makes the search a Pareto search."""
    seed: Seed = 0
    """Root of every sampler's randomness."""
    repeats: Count = 1
    """How many times every arm is searched, each time with other draws and training seeds.

    Each repeat is confirmed on seeds of its own and counts as one observation in every test: intervals and
    p values then include the luck of a search. With 1 they hold for the settings that one search found.
    Repeats are paired: each has the same draws, training seeds and confirm seeds in all arms. Several short
    searches (`repeats: 8`) with `confirm.seeds: 1` cost about as much as one long search with 8 seeds.
    """


class Confirm(Section):
    """How winners are retrained on seeds no search has seen."""

    best: Count = 1
    """How many of each search's best assignments are retrained."""
    seeds: Seeds
    """The same seeds in every arm, so that effects are paired: a list, or how many. With `search.repeats`
    every repeat has so many seeds; those of repeats after the first are derived from the listed ones."""
    stop: Annotated[Literal["decided"] | None, described_as("decided or null")] = None
    """`decided`: seeds run in rounds, and an arm whose verdict is certain at a look between them needs no
    more. What others are compared with runs all. With `search.repeats` repeats run in rounds, with their
    searches."""
    splits: Distinct[Split] = ()
    """Test splits read after the last step; nothing else ever reads them."""
    resample_data: bool = False
    """Whether every seed trains and is measured on data drawn anew: `task.data_seed` follows from the seed
    and is the same in all arms. Intervals then cover the draw of the data. For generated tasks only (`digits`
    divides its images anew); searches keep the data of the spec."""
    halting_examples: Annotated[
        int, Field(ge=0, le=MOST_EXAMPLES), described_as("an integer from 0 to 16")
    ] = 0
    """Of how many examples of the first of these splits the report shows layer by layer which tokens had
    halted: the same ones in every arm that halts on the same data."""
    cross: Annotated[bool, described_as("true or false")] = False
    """`true`: every arm also runs at what the search of its baseline chose, and the baseline at what the
    search of the arm chose, on the confirm seeds (with `search.repeats` at the choices of each repeat).

    The report answers whether the change helps at the settings of the baseline, and at those of the arm, in
    a table of its own. Verdicts stay as they are. Only fields that both arms search are exchanged; an arm
    keeps its own choice of all others. Costs as many runs as confirming all arms twice more, the baseline
    aside.
    """


class Answer(Section):
    """What decides the question: one primary outcome, and what difference matters."""

    metric: Metric | None = None
    """Name of a metric as confirm trials report it, e.g. near-iid/accuracy; null for the headline quantity of
    the task on the first split of confirm.splits."""
    split: Split | None = None
    """Data on which `metric` and the metrics of `also` are measured, e.g. test for test_accuracy.

    A metric needs no `split` if its name begins with a split of confirm.splits, or a word such as valid, and
    a slash.
    """
    margin: Positive | None = None
    """The least difference in `metric` that matters, in its own units; without it no arm can be found to make
    no difference."""
    also: Distinct[Metric] = ()
    """Further primary outcomes; every one of them makes all intervals wider."""
    level: Level = 0.05
    """How often any claim of the report may be wrong, over all arms and primary outcomes together."""
    pool: Annotated[Literal["contexts"] | None, described_as("contexts or null")] = None
    """`contexts`: adds a verdict for every arm, on its mean difference over all contexts.

    The difference of each seed is averaged over the contexts, so that seeds are the sample. The contexts are
    fixed, so the verdict does not extend to other contexts. It counts among the comparisons that `level`
    holds for.
    """
    variance: Annotated[Literal["moderated"] | None, described_as("moderated or null")] = None
    """`moderated`: the variance of every comparison is averaged with a prior that all arms of the outcome
    estimate (moderated t, as in limma).

    From 5 seeds, or repeats, and 3 comparisons on; with fewer it changes nothing. An arm that varies far more
    than the others keeps its own variance. Finds more: with 5 seeds and 4 arms 0.47 of effects of 2 standard
    deviations in place of 0.30. Where the spreads of arms differ by a factor of 5, up to 0.09 of studies
    without an effect report one at level 0.05; leave it out if that is to be expected.
    """
    spread: Spread | None = None
    """Standard deviation of `metric` over seeds, as known from elsewhere, or {from: SWEEP} for that of
    another sweep's baseline: what the seeds can show is then said in units of `metric` before anything
    runs."""


class ArmBudget(Section):
    """What one search of an arm may use, the same for every arm, the baseline included, and every repeat.

    Used up, no further trial of that search begins; those that run go on to their end.
    """

    device_hours: Positive | None = None
    """Hours of work of its trials times their GPUs, or times their CPU cores where they have no GPU."""
    flops: Positive | None = None
    """FLOPs of training, counted as `haltsweep plan` counts them: full lengths, nothing halts early."""
    target: Number | None = None
    """Value of the objective that is good enough: reached by a trial that finished, the search is over."""
    no_improvement: Count | None = None
    """So many trials in a row that ended without a better value end the search."""


class Budget(Section):
    """What the whole sweep may use, and what the search of each arm may use."""

    wall_clock_hours: Positive | None = None
    """Hours of running, downtime not counted."""
    device_hours: Positive | None = None
    """Hours of work of all trials times their GPUs, or times their CPU cores where they have no GPU."""
    flops: Positive | None = None
    """FLOPs of training, counted as `haltsweep plan` counts them: full lengths, nothing halts early."""
    each_arm: ArmBudget | None = None
    """For each search of each arm alone, equal between arms and repeats."""


class Reference(Section):
    """The row of a published table that values are taken from."""

    paper: Text
    """Number of the paper, as in experiments/published/README.md."""
    table: Text
    """As the paper calls it, e.g. Table 1."""
    system: Text
    """As the table calls it, e.g. GUT."""
    variant: Text | None = None
    """What the table says of the system, e.g. -Gate."""
    column: Text | None = None
    """The table's column, where a split of ours does not tell it."""


class PublishedValue(Section):
    """One value of a published table."""

    value: Number
    std: Annotated[float, Field(ge=0, allow_inf_nan=False), described_as("a number >= 0")] | None = None
    """Published standard deviation over the paper's runs."""

    @model_serializer(mode="wrap")
    def _as_written(self, serialize: SerializerFunctionWrapHandler) -> Any:
        return self.value if self.std is None else serialize(self)


def _published_value(value: Any) -> Any:
    if isinstance(value, Mapping | PublishedValue):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise refusal(f"must be a number, got {shown(value)}")
    return {"value": float(value)}


ValueOrMore = Annotated[
    PublishedValue,
    BeforeValidator(_published_value, json_schema_input_type=float | PublishedValue),
]
"""Published value: a number, or a mapping of `value` and `std`."""


_ALWAYS = ("metric", "values", "source")


class Published(Section):
    """One row of a published table, shown next to the measured result of the same evaluation.

    The row is left out if overrides or a profile change the training of its arm.
    """

    arm: ArmName | None = None
    """The arm it is compared with, or `baseline`. Without it the row stands alone in the table of its
    quantity: a system that no arm is, named by `reference`."""
    cell: Mapping[Path, Scalar] = Field(default_factory=dict)
    """One value for every field of `contexts` and of `grid`."""
    posthoc: Mapping[Path, Scalar] = Field(default_factory=dict)
    """The reading under `posthoc` that it belongs to; empty: as trained."""
    metric: Text
    """The quantity as we report it, e.g. accuracy."""
    statistic: Annotated[Literal["mean", "median"], described_as("mean or median")] = "mean"
    """What was published of several runs; a median stands beside our median."""
    values: Annotated[Mapping[Split, ValueOrMore], Field(min_length=1)]
    """Published value by split: a number, or `{value: 0.93, std: 0.01}`."""
    source: Text
    """Paper and table, for people."""
    parameters: Positive | None = None
    """Parameters of the system as published."""
    macs: Positive | None = None
    """Multiply-adds of a forward pass as published; publications differ in what they count."""
    reference: Reference | None = None
    """Paper, table and row, for comparison with the table itself."""

    @model_serializer(mode="wrap")
    def _as_written(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = serialize(self)
        return {
            key: value for key, value in content.items() if key in _ALWAYS or value not in (None, {}, "mean")
        }

    @property
    def name(self) -> str:
        """Return the arm of the row, or the published system if no arm corresponds to it."""
        if self.arm is not None or self.reference is None:
            return self.arm or ""
        return " ".join(filter(None, (self.reference.system, self.reference.variant)))


class Spec(Section):
    """One question, and all that is run to answer it."""

    name: Name
    """The sweep: its folder, its MLflow experiment."""
    question: Text
    """What the sweep answers, in one sentence."""
    trainable: Trainable | None = None
    """Training code of the trials, as package.module:name or as the path of a script; by default the built-in
    models and tasks."""
    baseline: Baseline
    arms: Mapping[ArmName, AnyArm] = Field(default_factory=dict)
    """The ablations, by name; `{control: true}` makes one a control."""
    components: Mapping[Name, ArmSpec] = Field(default_factory=dict)
    """Parts of the baseline by name, each with what takes it away: what `combine` makes arms of."""
    combine: Combine | None = None
    """Makes arms of components, with names and reasons; they stand beside those that are written."""
    grid: Mapping[Path, NonEmptyDistinct[Json]] = Field(default_factory=dict)
    """Field path to values; every combination is crossed with every arm."""
    contexts: Mapping[Path, NonEmptyDistinct[Json]] = Field(default_factory=dict)
    """Field path to values, e.g.

    `dataset: [easy, hard]`. Every arm, the baseline included, runs in every combination of these values, and
    is compared only with the baseline of the same combination. Different contexts are never compared with
    each other; `answer.pool` adds a verdict over all of them.
    """
    search: Search | None = None
    confirm: Confirm | None = None
    answer: Answer | None = None
    posthoc: Mapping[Path, NonEmptyDistinct[Scalar]] = Field(default_factory=dict)
    """Field path to values with which confirmed checkpoints are evaluated again, without training."""
    resources: Resources = Field(default_factory=Resources)
    keep: Distinct[Pattern] = ()
    """Patterns such as `plots/*.png` of files in a trial's working folder or in `trial.folder`: they are
    copied to `kept/<trial id>` of the sweep when the trial ends, and stored as artifacts of its MLflow
    run."""
    on_error: Annotated[Literal["stop", "continue"], described_as("stop or continue")] = "stop"
    """`stop`: where the first three trials of an arm (all, where it has fewer) crash with the same error, the
    sweep stops with it, running trials are saved, and `haltsweep resume NAME --retry failed` goes on once the
    code is corrected. `continue`: the other trials run all the same."""
    budget: Budget | None = None
    published: Listed[Published] = ()
    profiles: Mapping[Name, Mapping[Text, Json]] = Field(default_factory=dict)
    """Named sets of overrides: `small: {baseline.train.steps: 100}`. A loaded spec carries none any more."""

    @property
    def axes(self) -> Mapping[str, tuple[Json, ...]]:
        """Return the values of fields that are crossed with every arm, contexts before the grid."""
        return {**self.contexts, **self.grid}

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the baseline's settings, with threads and ranks of a trial from `resources`.

        Each CPU core is one thread of PyTorch, and each GPU is one rank.
        """
        train: Mapping[str, Json] = self.baseline.train
        if (gpus := int(self.resources.gpus)) > 1:
            train = {**train, "ranks": gpus}
        if (threads := thread_count(self.resources.cpus)) > 1:
            train = {**train, "threads": threads}
        return {"task": self.baseline.task, "model": self.baseline.model, "train": train}

    @property
    def published_rows(self) -> tuple[dict[str, Any], ...]:
        """Return the published values one by one.

        Each has arm, split, metric, value and source, and its other attributes where they are set.
        """
        return tuple(
            {
                "arm": row.name,
                "split": split,
                "metric": row.metric,
                "value": value.value,
                "source": row.source,
            }
            | _said_of(row, value)
            for row in self.published
            for split, value in row.values.items()
        )

    @property
    def digest(self) -> str:
        """Return the digest of the content; equal for specs with equal content."""
        return identity.digest(self.content())

    def content(self) -> dict[str, Any]:
        """Return the content of the spec as JSON values, without absent fields."""
        dumped: dict[str, Any] = self.model_dump(mode="json", by_alias=True)
        sections = [dumped, dumped.get("search"), dumped.get("confirm"), dumped.get("answer")]
        for section in (*filter(None, sections), *dumped["arms"].values()):
            for field, default in _LATER.items():
                if field in section and section[field] in default:
                    del section[field]
        return {key: value for key, value in dumped.items() if value not in ({}, [], None)}


_LATER: Mapping[str, Sequence[Any]] = {
    **dict.fromkeys(("first", "constraints"), ([], {}, None)),
    "repeats": (1,),
    **dict.fromkeys(("halting_examples", "cross", "resample_data", "allow_no_effect"), (0, False)),
    **dict.fromkeys(("pool", "split", "variance"), (None,)),
    "on_error": ("stop",),
}
"""Values of newer fields that are omitted, so that specs without these fields keep their digests."""


def _said_of(row: Published, published_value: PublishedValue) -> dict[str, Any]:
    """Return the optional attributes of a published value that are set."""
    content = {
        "alone": row.arm is None,
        "cell": dict(row.cell),
        "posthoc": dict(row.posthoc),
        "statistic": row.statistic if row.statistic != "mean" else None,
        "std": published_value.std,
        "parameters": row.parameters,
        "macs": row.macs,
    }
    return {key: value for key, value in content.items() if value or (key == "std" and value is not None)}


class CustomSpec(Spec):
    """A spec that names its own trainable: what its settings may be is for that trainable to say."""

    trainable: Trainable
    """Return the trainable: a class or function as package.module:name, or the path of a script."""
    baseline: Mapping[str, Json]  # type: ignore[assignment]
    """The settings that everything is compared with."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the baseline's settings as written."""
        return self.baseline


def names_trainable(data: Any) -> bool:
    """Return whether the spec written as `data` names a custom trainable."""
    return isinstance(data, Mapping) and data.get("trainable") is not None


def spec_class(data: Any) -> type[Spec]:
    """Return the class of the spec written as `data`."""
    return CustomSpec if names_trainable(data) else Spec
