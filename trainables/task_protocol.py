"""What a file in `trainables/tasks` must offer. Its file name is the task's name; nothing is registered."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

from trainables.settings import Settings
from trainables.types import TaskShape

Role = Literal["train", "valid", "test"]


@dataclass(frozen=True, slots=True)
class SplitInfo:
    """What is known of a split without any data."""

    name: str
    role: Role
    """`train` is trained on, `valid` steers the search, `test` is read after the last step only."""
    length_min: int
    length_max: int
    """Shortest and longest input, in tokens, that the split may hold (both inclusive)."""
    examples: int | None
    """Number of examples, None where a filter leaves it open or they never end."""
    holds: str = ""
    """Of role `valid`: the test split whose examples it has, where a task is published so; else empty."""
    streamed: bool = False
    """Drawn for every batch by the task's `stream(config, batch_size, seed, step) -> Batch` and never
    stored; only for role `train`. `build` refuses it."""


class TaskModule(Protocol):
    """A task is a module. All its functions are pure: settings in, the same values out on every machine."""

    VERSION: int
    """Raised by one whenever the same settings would give other data; part of the cache's address."""
    Config: type[Settings]
    """Settings of the task, with a field `name` that is a `Literal` of the file name."""

    def shape(self, config: Any) -> TaskShape:
        """What a model must know to be built, without making any data."""

    def splits(self, config: Any) -> tuple[SplitInfo, ...]:
        """Every split: one of role `train`, one of role `valid`, any number of role `test`."""

    def build(self, config: Any, split: str) -> pa.Table:
        """The examples of one split in columns `tokens` (list<uint8|uint16|uint32>) and `label` (int16).

        For the head `positions` there is no `label` but `targets` (list<int8|int16>), as many as tokens,
        `NOT_ASKED` where nothing is predicted. For the head `sequence` there is `answer` (list<uint8|uint16|
        uint32>) instead, of any length and without its end token. A column `steps` (int32) may give how many
        steps an algorithm for the task takes. A pair is one row with a separator between its sentences.

        Deterministic from `config` alone, independent of which other splits were built; no example is in two
        splits. What is returned must be as `shape` and `splits` announce it, else no trial starts.
        Randomness comes from `trainables.streams`, through raw generator output, since NumPy promises only
        that to be the same in every version. What takes seconds tells how far it is
        (`trainables.data.progress`).
        """

    # A task may name in `TRAINING_ONLY` (frozenset[str]) the settings that change nothing but what is trained
    # on: these alone can be searched, for a search must measure all of its trials on the same examples.
    # Arms, too, are compared on the same examples: an arm with another value of any other field that changes
    # valid or a test split is refused. `trainables.acting.InForm` marks fields that change only how examples
    # are written, `InSplits` names the splits that a field changes.

    # Draw valid and tests first and leave their examples out of training, so that tests do not depend on the
    # number of training examples.

    # A task whose settings can be left out and then follow from others, or do nothing beside others, has
    # `settled(config) -> Config`: settings that make the same data, with what was left out written out and
    # what does nothing as by default. Arms are compared by them: a default written out is no change.

    # A task may name in `HEADLINE` the quantity that it is judged by, e.g. accuracy_last, where that is not
    # the accuracy of all answers, or for written answers their exact match.

    # A task of written answers may have `score(config, hypotheses, references) -> Mapping[str, float]`, of
    # sequences of answer tokens without their ends: what its field measures, e.g. BLEU. Names and number of
    # its values never change, and all are finite. `metrics` beside it says what is known of them, as a
    # mapping or a tuple of `trainables.metrics.Metric`: range, whether large or small is better, what they
    # mean.

    # A task whose words are of different kinds may have `token_classes(config) -> tuple[str, ...]`, the kind
    # of every token id: digit, operator, bracket, ... Reports count operators and experts by it.

    def decode(self, tokens: Sequence[int]) -> str:
        """One input as text.

        A task that reads its words from files is given its settings too: `decode(tokens, config)`.
        """
