"""Parts of a spec that a plan stores unchanged, and the base class of all parts.

They are separate from `types` because the pydantic models there take long to import.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from orchestrator.spec.kinds import Gpus, Metric, Natural, Positive, Scope, Split, described_as


class Section(BaseModel):
    """Base of every part of a spec."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        defer_build=True,
        validate_default=True,
    )


_OBJECTIVE_DEFAULTS: Final = (("split", None), ("scope", "last"))


class Objective(Section):
    """Metric that a search maximises or minimises."""

    metric: Metric
    """Name of a metric as trials report it, e.g. valid/accuracy, val/mAP@50 or eval_loss."""
    goal: Annotated[Literal["max", "min"], described_as("max or min")]
    """`max` or `min`."""
    split: Split | None = None
    """Data that the metric is measured on: never a split of confirm.splits. Default: the part of the name
    before its first slash if that is valid, val, validation, eval, dev or train, else validation data."""
    scope: Scope = "last"
    """Which reports of a trial count: `last` for its last report, `best` for its best by `goal`, and
    `mean-of-last-3` for the mean of its last three, or fewer if it has fewer. Early stopping compares this
    value over the reports so far. `best` needs a single objective; the best of many reports is an optimistic
    value."""

    @property
    def mean_of(self) -> int:
        """Return how many of the last reports are averaged; 1 if the scope is not a mean."""
        return int(self.scope.rpartition("-")[2]) if self.scope.startswith("mean-of-last-") else 1

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        # Fields with default values are omitted, so that older plans and specs keep their digests.
        return {key: value for key, value in fields.items() if (key, value) not in _OBJECTIVE_DEFAULTS}


class Resources(Section):
    """Resources and limits of one trial."""

    cpus: Positive = 1.0
    """CPU cores, and threads of PyTorch; several trials share one core if it is a part like 0.5."""
    gpus: Gpus = 0.0
    """GPUs of a trial; several trials share one GPU if the number is a fraction like 0.25. Two or more GPUs
    each process a part of every batch (`train.ranks`), and all must be in one machine."""
    minutes: Positive | None = None
    """Maximum minutes of work. A trial that works longer, or is silent for longer, times out."""
    silent_minutes: Positive | None = None
    """Maximum minutes without a report, after which the trial times out. null: no limit; after 10 minutes
    `haltsweep status` and the screen show the time since the last report."""
    checkpoint_seconds: Positive = 30.0
    """Minimum number of seconds between two checkpoints."""
    working_folder: Annotated[Literal["private", "shared"], described_as("private or shared")] = "private"
    """`private`: each trial has its own working folder, with the files of the launch folder; files that it
    writes by relative paths stay in that folder. `shared`: all trials work in the launch folder."""
    retries: Natural = 3
    """Maximum number of consecutive restarts, without progress, of a trial that ended its own process. A
    trial that is killed from outside (SIGKILL, SIGTERM, a lost machine) is started again as long as any trial
    of the sweep makes progress; without progress the sweep stops after 10 kills of a trial."""

    max_concurrent: Annotated[int, Field(ge=1), described_as("an integer >= 1")] | None = None
    """Maximum number of trials that run at once."""

    @model_serializer(mode="wrap")
    def _without_unset(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = serialize(self)
        return {key: value for key, value in content.items() if (key, value) not in _OMIT_DEFAULT.items()}


_OMIT_DEFAULT: Final = {"working_folder": "private", "silent_minutes": None, "max_concurrent": None}
"""Default values of newer fields, which are omitted so that older specs and plans stay identical."""
THREADS_MAX = 1024
"""Maximum number of CPU threads of PyTorch."""


def thread_count(cpus: float) -> int:
    """Return the number of CPU threads of a trial with `cpus` cores, which may be a fraction."""
    return min(max(1, int(cpus)), THREADS_MAX)
