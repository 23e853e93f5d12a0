"""Determine which fields of the settings can affect a trial, by declarations next to the fields.

A field without a declaration is assumed to have an effect always. `Affects("writing", normal_form)` on a
field of training declares what the field affects. `normal_form(config, trial)` returns a normal form of its
value: the beam size of a trial without decoding is 1. Two values with equal normal form have the same effect.
`AffectsSplits("length-*")` on a field of a task declares which splits it changes. The field has no effect if
none of them is evaluated.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any, Literal

from trainables.settings import Settings

Stage = Literal["running", "loss", "steps", "rates", "selecting", "measuring", "sampling", "writing"]
"""Stage that a field affects:

- `running`: hardware and division into pieces, never a result.
- `loss`: the loss of a step.
- `steps`: the learned weights.
- `rates`: the learned weights, through the learning rate and beta1 of every step.
- `selecting`: the choice of weights for tests.
- `measuring`: reported measurements.
- `sampling`: the number of decoded answers in validation, which does not affect the choice of weights.
- `writing`: answers decoded token by token.
"""


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """Facts of a trial, other than training settings, that decide whether a setting can have an effect."""

    head: str
    confirmed: bool = True
    """Whether trials are confirmed; weights are selected only then."""
    stopped: bool = False
    """Whether an early stopper uses the measurements."""
    valid_examples: int | None = None
    """Number of validation examples; None if not known in advance."""
    length: int | None = None
    """Number of tokens of every training input; None unless all inputs have the same length and have either
    one label or one label per token.
    """
    length_min: int = 1
    """Least number of tokens of a training input."""
    train_tokens: int | None = None
    """Tokens of all training samples if each is padded to the greatest length; None if not known in advance.
    """
    answer_length_max: int | None = None
    batch_cost: bool = False
    """Whether the model has an auxiliary cost that is computed over a batch as a unit."""


NormalForm = Callable[[Any, TrialFacts], Any]


@dataclass(frozen=True, slots=True)
class Affects:
    """Marks a field of training with the stage that it affects."""

    stage: Stage
    normal_form: NormalForm | None = None
    """Function that returns the normal form of the value, given settings whose other fields are in normal
    form.
    """


class AffectsSteps:
    """Marks a field of a task that changes only `Batch.steps`, the step counts of its samples."""


class AffectsForm:
    """Marks a field of a task that changes how examples are written, but not which examples a split has.

    Arms that differ only in such fields are evaluated on the same examples.
    """


def presentation_fields(task: Settings) -> frozenset[str]:
    """Return the fields that change only how examples are written or their step counts."""
    return frozenset(
        name
        for name, field in type(task).model_fields.items()
        if any(isinstance(mark, AffectsForm | AffectsSteps) for mark in field.metadata)
    )


class AffectsSplits:
    """Marks a field of a task that changes only the splits whose names match one of these patterns.

    A field without patterns changes no data; its effect is visible in the task's shape. For a field that
    lists splits, `each` returns the name of the split that belongs to a value of the list.
    """

    def __init__(self, *patterns: str, each: Callable[[Any], str] | None = None) -> None:
        self.patterns = patterns
        self.each = each

    def read(self, value: Any, splits: Iterable[str]) -> Any:
        """Return `value`; if it is a list of splits, only the items that belong to one of `splits`."""
        if self.each is None or not isinstance(value, list | tuple):
            return value
        wanted_splits = set(splits)
        return [item for item in value if self.each(item) in wanted_splits]

    def affects_any(self, splits: Iterable[str]) -> bool:
        """Return whether the marked field changes one of `splits`."""
        return any(fnmatchcase(split, pattern) for split in splits for pattern in self.patterns)


def normal_forms(config: Settings, trial: TrialFacts) -> dict[str, dict[str, Any]]:
    """Return the normal form of every field, grouped by the stage that it affects."""
    marks = {
        name: next((mark for mark in field.metadata if isinstance(mark, Affects)), Affects("steps"))
        for name, field in type(config).model_fields.items()
    }
    field_values = {name: getattr(config, name) for name in marks}
    for _ in marks:  # the normal form of one field may depend on that of another
        normalised = dict(field_values)
        for name, mark in marks.items():
            if mark.normal_form is not None:
                normalised[name] = mark.normal_form(SimpleNamespace(**normalised), trial)
        if normalised == field_values:
            break
        field_values = normalised
    by_stage: dict[str, dict[str, Any]] = {}
    for name, mark in marks.items():
        by_stage.setdefault(mark.stage, {})[name] = field_values[name]
    return by_stage


def running(config: type[Settings]) -> frozenset[str]:
    """Return the fields of `config` that affect only how a trial runs, not its results."""
    fields = config.model_fields.items()
    return frozenset(name for name, field in fields if Affects("running") in field.metadata)


def find_split_mark(config: type[Settings], field: str) -> AffectsSplits | None:
    """Return the splits that the `field` of `config` changes; None if it has no declaration."""
    metadata = config.model_fields[field].metadata
    return next((mark for mark in metadata if isinstance(mark, AffectsSplits)), None)


def effective_task_values(
    config: Settings, evaluated_splits: Iterable[str], *, counts_steps: bool = True
) -> Mapping[str, Any]:
    """Return the values of all task fields that change one of `evaluated_splits`.

    Lists of splits are reduced to these splits. `counts_steps` states whether the step counts of
    samples are used.
    """
    splits, dumped = tuple(evaluated_splits), config.model_dump(mode="json")
    task_values: dict[str, Any] = {}
    for name, field in type(config).model_fields.items():
        mark = find_split_mark(type(config), name)
        if any(isinstance(mark, AffectsSteps) for mark in field.metadata) and not counts_steps:
            continue
        if mark is None or mark.affects_any(splits):
            task_values[name] = dumped[name] if mark is None else mark.read(dumped[name], splits)
    return task_values


def effective_limit(limit: int | None, num_items: int | None) -> int | None:
    """Return `limit` if it is less than `num_items`; None if the limit excludes no item."""
    return None if limit is not None and num_items is not None and limit >= num_items else limit
