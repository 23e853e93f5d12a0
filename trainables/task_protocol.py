"""Define the interface of task modules, whose file names in `trainables/tasks` are the task names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

from trainables.settings import Settings
from trainables.types import TaskShape

Role = Literal["train", "valid", "test"]


@dataclass(frozen=True, slots=True)
class SplitInfo:
    """Facts about a split that are available without any data."""

    name: str
    role: Role
    """`train` is for training, `valid` steers the search, `test` is evaluated after the last step only."""
    length_min: int
    length_max: int
    """Shortest and longest input, in tokens, that the split may hold (both inclusive)."""
    examples: int | None
    """Number of examples; None if a filter determines it or the split is unlimited."""
    holds: str = ""
    """Role `valid` only: name of the test split that contains the same examples, where a task is published
    so; else empty.
    """
    streamed: bool = False
    """Whether every batch is drawn by the task's `stream(config, batch_size, seed, step) -> Batch` and never
    stored. Only for role `train`.
    """


def train_valid_test(
    length_min: int,
    length_max: int,
    examples: tuple[int | None, int | None, int | None] = (None, None, None),
) -> tuple[SplitInfo, ...]:
    """Return the splits train, valid and test with equal bounds on the tokens of an input.

    Args:
        length_min: Fewest tokens of an input.
        length_max: Most tokens of an input.
        examples: Numbers of examples of the three splits; None if not known in advance.
    """
    roles: tuple[Role, ...] = ("train", "valid", "test")
    return tuple(
        SplitInfo(role, role, length_min, length_max, size)
        for role, size in zip(roles, examples, strict=True)
    )


class TaskModule(Protocol):
    """Interface of a task. All functions are pure: equal settings give equal values on every machine."""

    VERSION: int
    """Version of the task's data, part of the cache key. Increase it by one when the same settings give other
    data.
    """
    Config: type[Settings]
    """Settings of the task, with a field `name` that is a `Literal` of the file name."""

    def shape(self, config: Any) -> TaskShape:
        """Return the properties that are needed to build a model, without generating any data."""

    def splits(self, config: Any) -> tuple[SplitInfo, ...]:
        """Return all splits: one of role `train`, one of role `valid`, any number of role `test`."""

    def build(self, config: Any, split: str) -> pa.Table:
        """Return the examples of one split as a table with columns `tokens` and `label`.

        The types are list<uint8|uint16|uint32> for `tokens` and int16 for `label`. For the head `positions`
        the column `label` is replaced by `targets` (list<int8|int16>) with one value per token, `NOT_ASKED`
        where nothing is predicted. For the head `sequence` it is replaced by `answer`
        (list<uint8|uint16|uint32>), of any length and without its end token. An optional column `steps`
        (int32) is the number of steps that an algorithm for the task takes. A pair is one row with a
        separator between its sentences.

        The table depends on `config` alone, not on which other splits were built. No example is in two
        splits. The table must agree with `shape` and `splits`, else no trial starts. Randomness comes from
        `trainables.streams`, through raw generator output, because only raw output is the same in every NumPy
        version. A build that takes seconds reports its progress (`trainables.data.progress`).
        """

    # A task may list in `TRAINING_ONLY` (frozenset[str]) the settings that affect only the training data.
    # Only these can be searched, because a search must evaluate all trials on the same examples. Arms are
    # also compared on the same examples: an arm that changes any other field is refused if the field affects
    # the valid or a test split. `trainables.field_effects.AffectsForm` marks fields that change only how
    # examples are written. `AffectsSplits` lists the splits that a field changes.

    # Draw the valid and test splits first and exclude their examples from training, so that tests do not
    # depend on the number of training examples.

    # A task may have settings that follow from others if omitted, or that have no effect in combination with
    # others. It then has `settled(config) -> Config`, which returns settings that produce the same data:
    # omitted values are filled in, and values without effect are reset to their defaults. Arms are compared
    # by these settings, so that writing out a default is not a change.

    # A task may name its main quantity in `HEADLINE`, e.g. accuracy_last. The default is the accuracy of all
    # answers, or the exact match of decoded answers.

    # A task with decoded answers may have `score(config, hypotheses, references) -> Mapping[str, float]`,
    # where hypotheses and references are sequences of answer tokens without end tokens. It returns the usual
    # measures of the field, e.g. BLEU. Names and number of its values never change, and all values are
    # finite. The task declares their range, direction and meaning in `metrics`, a mapping or a tuple of
    # `trainables.metrics.Metric`.

    # A task with several classes of words may have `token_classes(config) -> tuple[str, ...]`, which returns
    # the class of every token id: digit, operator, bracket, ... Reports count operators and uses of experts
    # by class.

    def decode(self, tokens: Sequence[int]) -> str:
        """Return one input as text.

        A task that reads its words from files also receives its settings: `decode(tokens, config)`.
        """
