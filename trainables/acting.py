"""Where a field of the settings makes a difference: declared beside the field, read by whoever compares arms.

A field without a declaration is taken to act always. `Acts("writing", like)` on a field of training says in
what it shows, and `like(config, trial)` which value would do the same in this trial: that of a beam in a
trial that writes nothing is 1. Values that do the same are one value. `InSplits("length-*")` on a field of a
task says which splits are drawn by it: where none of them is read the field does nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any, Literal

from trainables.settings import Settings

Where = Literal["running", "loss", "steps", "rates", "selecting", "measuring", "sampling", "writing"]
"""`running`: on what hardware and in which pieces, never in a result. `loss`: in the loss of a step. `steps`:
in what is learned. `rates`: there too, by the learning rate and beta1 of every step. `selecting`: in which
weights tests read. `measuring`: in what is reported of them. `sampling`: in of how many written answers
validations report, by which no weights are selected. `writing`: in answers decoded token by token."""


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """What decides, beside the settings of training, whether one of them can make a difference."""

    head: str
    confirmed: bool = True
    """Whether trials are confirmed: only then weights are selected."""
    stopped: bool = False
    """Whether an early stopper goes by what is measured."""
    valid_examples: int | None = None
    """None where it is not known beforehand."""
    length: int | None = None
    """Tokens of every training input, where all have as many and each is answered by one label or by one at
    each of its tokens."""
    length_min: int = 1
    """Tokens of the shortest training input that there may be."""
    train_tokens: int | None = None
    """Tokens of all training samples where each is padded to the longest there may be; None where it is not
    known beforehand."""
    answer_length_max: int | None = None
    batch_cost: bool = False
    """Whether the model has an auxiliary cost that is taken over a batch as a whole."""


Like = Callable[[Any, TrialFacts], Any]


@dataclass(frozen=True, slots=True)
class Acts:
    """Marks a field of training with where it shows."""

    where: Where
    like: Like | None = None
    """The value that does the same, of settings whose other fields are such values already."""


class InSteps:
    """Marks a field of a task that changes only how many steps its samples say they take (`Batch.steps`)."""


class InForm:
    """Marks a field of a task that changes how examples are written, and not which examples a split has.

    Arms that differ in such a field are measured on the same examples.
    """


def fields_of_form(task: Settings) -> frozenset[str]:
    """Return the fields that change how examples are written or how many steps they take, and no example."""
    return frozenset(
        name
        for name, field in type(task).model_fields.items()
        if any(isinstance(mark, InForm | InSteps) for mark in field.metadata)
    )


class InSplits:
    """Marks a field of a task that changes only the splits whose names match one of these patterns.

    Without a pattern it changes no data: what it does, the task's shape shows. A field that lists splits has
    `each`, which gives the name of the split that a value of the list makes.
    """

    def __init__(self, *patterns: str, each: Callable[[Any], str] | None = None) -> None:
        self.patterns = patterns
        self.each = each

    def read(self, value: Any, splits: Iterable[str]) -> Any:
        """Of a list, what makes one of `splits`; else the value itself."""
        if self.each is None or not isinstance(value, list | tuple):
            return value
        wanted = set(splits)
        return [one for one in value if self.each(one) in wanted]

    def among(self, splits: Iterable[str]) -> bool:
        """Whether it changes one of `splits`."""
        return any(fnmatchcase(split, pattern) for split in splits for pattern in self.patterns)


def acting(config: Settings, trial: TrialFacts) -> dict[str, dict[str, Any]]:
    """Every field that can make a difference, as the value that does the same, by where it shows."""
    marks = {
        name: next((mark for mark in field.metadata if isinstance(mark, Acts)), Acts("steps"))
        for name, field in type(config).model_fields.items()
    }
    values = {name: getattr(config, name) for name in marks}
    for _ in marks:  # one field's value may free another's
        now = dict(values)
        for name, mark in marks.items():
            if mark.like is not None:
                now[name] = mark.like(SimpleNamespace(**now), trial)
        if now == values:
            break
        values = now
    found: dict[str, dict[str, Any]] = {}
    for name, mark in marks.items():
        found.setdefault(mark.where, {})[name] = values[name]
    return found


def running(config: type[Settings]) -> frozenset[str]:
    """The fields of `config` that no result depends on."""
    fields = config.model_fields.items()
    return frozenset(name for name, field in fields if Acts("running") in field.metadata)


def in_splits(config: type[Settings], field: str) -> InSplits | None:
    """The splits that the `field` of `config` changes; None where it does not say."""
    metadata = config.model_fields[field].metadata
    return next((mark for mark in metadata if isinstance(mark, InSplits)), None)


def task_acting(config: Settings, read: Iterable[str], *, counts_steps: bool = True) -> Mapping[str, Any]:
    """The fields of a task that change one of the splits `read`, of lists of splits those of them.

    `counts_steps` says whether anything reads how many steps samples take.
    """
    wanted, dumped = tuple(read), config.model_dump(mode="json")
    found: dict[str, Any] = {}
    for name, field in type(config).model_fields.items():
        mark = in_splits(type(config), name)
        if any(isinstance(each, InSteps) for each in field.metadata) and not counts_steps:
            continue
        if mark is None or mark.among(wanted):
            found[name] = dumped[name] if mark is None else mark.read(dumped[name], wanted)
    return found


def fewer(limit: int | None, there_are: int | None) -> int | None:
    """A limit that leaves something out; None for one that does not."""
    return None if limit is not None and there_are is not None and limit >= there_are else limit
