"""What a spec asks for, as written: frozen and closed, an unknown key is an error.

Types say what can be decided of one value alone; `checks` says what holds between values.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from orchestrator import identity
from orchestrator.spec.kinds import (
    Component,
    Count,
    Dimensions,
    Distinct,
    Json,
    Listed,
    Name,
    Named,
    Number,
    Path,
    Point,
    Positive,
    Scalar,
    Seed,
    Some,
    SomeDistinct,
    Split,
    Text,
    Trainable,
)
from orchestrator.spec.section import Objective, Resources, Section, threads_of


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
    """Searched fields that this arm does not search: those it lacks or sets itself."""


class Search(Section):
    """How every arm, the baseline included, is searched: one study an arm."""

    spaces: Distinct[Text] = ()
    """Ready-made spaces: `halting` for published ranges, `halting.wide` for wide ones."""
    also: Dimensions = ()
    """Further ranges by field path; they override those of `spaces`."""
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
    """Trials of each arm's study."""
    objectives: Some[Objective]
    """A second objective makes the search a Pareto search."""
    seed: Seed = 0
    """Root of every sampler's randomness."""


class Confirm(Section):
    """How winners are retrained on seeds no search has seen."""

    best: Count = 1
    """How many of each arm's best assignments are retrained."""
    seeds: SomeDistinct[Seed]
    """The same seeds in every arm, so that effects are paired."""
    splits: Distinct[Split] = ()
    """Test splits read after the last step; nothing else ever reads them."""


class Budget(Section):
    """What the whole sweep may use."""

    wall_clock_hours: Positive | None = None
    """Hours of running, downtime not counted."""


class Published(Section):
    """One row of a published table, shown beside ours."""

    arm: Name
    """The arm it is compared with, or `baseline`."""
    metric: Text
    """The quantity as we report it, e.g. accuracy."""
    values: Annotated[Mapping[Split, Number], Field(min_length=1)]
    """Published value by split."""
    source: Text
    """Paper and table."""


class Spec(Section):
    """One question, and all that is run to answer it."""

    name: Name
    """The sweep: its folder, its MLflow experiment."""
    question: Text
    """What the sweep answers, in one sentence."""
    trainable: Trainable | None = None
    """What runs a trial, as package.module:name; without it the models and tasks of the box."""
    baseline: Baseline
    arms: Mapping[Name, ArmSpec] = Field(default_factory=dict)
    """The ablations, by name."""
    grid: Mapping[Path, SomeDistinct[Json]] = Field(default_factory=dict)
    """Field path to values; every combination is crossed with every arm."""
    search: Search | None = None
    confirm: Confirm | None = None
    posthoc: Mapping[Path, SomeDistinct[Scalar]] = Field(default_factory=dict)
    """Field path to values under which confirmed checkpoints are read again, without training."""
    resources: Resources = Field(default_factory=Resources)
    budget: Budget | None = None
    published: Listed[Published] = ()
    profiles: Mapping[Name, Mapping[Text, Json]] = Field(default_factory=dict)
    """Named sets of overrides: `small: {baseline.train.steps: 100}`. A loaded spec carries none any more."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The baseline's settings as written, and one thread of PyTorch for every CPU core of a trial."""
        train: Mapping[str, Json] = self.baseline.train
        if (threads := threads_of(self.resources.cpus)) > 1:
            train = {**train, "threads": threads}
        return {"task": self.baseline.task, "model": self.baseline.model, "train": train}

    @property
    def published_rows(self) -> tuple[dict[str, Any], ...]:
        """Published values one by one: arm, split, metric, value, source."""
        return tuple(
            {"arm": row.arm, "split": split, "metric": row.metric, "value": value, "source": row.source}
            for row in self.published
            for split, value in row.values.items()
        )

    @property
    def digest(self) -> str:
        """Content hash: equal for specs that ask for the same."""
        return identity.digest(self.content())

    def content(self) -> dict[str, Any]:
        """All that is asked for, as JSON values; what is absent is left out."""
        dumped: dict[str, Any] = self.model_dump(mode="json")
        if isinstance(dumped.get("search"), dict):
            dumped["search"] = {
                key: value
                for key, value in dumped["search"].items()
                if key not in _LATER or value not in ({}, [], None)
            }
        return {key: value for key, value in dumped.items() if value not in ({}, [], None)}


_LATER = frozenset({"first"})
"""Fields of a search that came later: left out where they say nothing, so that specs keep their digests."""


class OwnSpec(Spec):
    """A spec that names its own trainable: what its settings may be is for that trainable to say."""

    trainable: Trainable
    """What runs a trial: a class or function, as package.module:name."""
    baseline: Mapping[str, Json]  # type: ignore[assignment]
    """The settings that everything is compared with."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The baseline's settings as written."""
        return self.baseline


def names_trainable(data: Any) -> bool:
    """Whether the spec written as `data` names its own trainable."""
    return isinstance(data, Mapping) and data.get("trainable") is not None


def spec_class(data: Any) -> type[Spec]:
    """The kind of spec that is written as `data`."""
    return OwnSpec if names_trainable(data) else Spec
