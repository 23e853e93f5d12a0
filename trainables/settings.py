"""Define the base classes of all settings under `task`, `model` and `train` in a spec."""

from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
DEPTH: Final = "bounds the number of layers that are run"
"""Mark of the fields that `limit_depth` limits to make a model cheap to run."""

OMIT_DEFAULT: Final = "left out of a plan as long as it has its default"
"""Mark of fields that were added after stored plans were written. A field with its default value is omitted
from a plan, so that stored plans retain their content and their ids.
"""


class Small:
    """Marks a field with its value in the small versions of a model that contract tests build.

    The contract tests each of `other_values` as a separate arm. For an unmarked switch or choice among words
    these are all possible values. A field that a subclass declares again inherits the mark of its base class.
    """

    def __init__(self, value: Any, *other_values: Any) -> None:
        self.value = value
        self.other_values = other_values


MAX_INTEGER: Final = 10**9
"""Upper bound of integers in settings except seeds, and of all other numbers in settings of built-in tasks
and models.
"""
UNSHARED_LAYERS_MAX: Final = 1_000
"""Greatest number of layers with separate weights; building that many takes a second."""
SHARED_LAYERS_MAX: Final = 10_000
"""Greatest number of times that the same weights are applied."""
UnsharedDepth = Annotated[int, Field(ge=1, le=UNSHARED_LAYERS_MAX), DEPTH, Small(2)]
"""Number of layers with separate weights."""
SharedDepth = Annotated[int, Field(ge=1, le=SHARED_LAYERS_MAX), DEPTH, Small(6)]
"""Number of times that the same weights are applied."""
DEPTHS: Final = frozenset(
    {"layers", "loops", "max_layers", "max_loops", "memory.update_layers", "test_layers"}
)
"""Names of the fields marked as `DEPTH` in the built-in models. A name that no built-in model has is refused
without importing their code.
"""


class Settings(BaseModel):
    """Base class of frozen, strict settings. An unknown field or an implicit type conversion is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, validate_default=True
    )


class Reach:
    """Marks a field that limits the range over which positions are distinguished.

    A range beyond the input has no effect, because the weights for it are never used. `limit_of` receives the
    number of tokens of the longest input and returns the largest value that still has an effect.
    """

    def __init__(self, limit_of: Callable[[int], int]) -> None:
        self.limit_of = limit_of


def limit_to_length(config: Settings, longest: int) -> Settings:
    """Return `config` with every marked range limited to inputs of `longest` tokens."""
    changed: dict[str, Any] = {}
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Settings) and (inner := limit_to_length(value, longest)) is not value:
            changed[name] = inner
        for mark in field.metadata:
            if (
                isinstance(mark, Reach)
                and isinstance(value, int)
                and value > (limit := mark.limit_of(longest))
            ):
                changed[name] = limit
    return config.model_copy(update=changed) if changed else config


def limit_depth(config: Settings, limit: int) -> Settings:
    """Return `config` with every number of layers or loops at most `limit`; itself if none is larger."""
    deep_fields = {
        name: limit
        for name, field in type(config).model_fields.items()
        if DEPTH in field.metadata and isinstance(value := getattr(config, name), int) and value > limit
    }
    return config.model_copy(update=deep_fields) if deep_fields else config


class ModelSettings(Settings):
    """Settings of every model, including all that heads and cost estimates read."""

    width: Annotated[int, Small(16)] = Field(default=512, ge=1)
    """Size of a token's state."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of elements dropped after embedding, attention and inside feed-forwards."""
    readout_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of elements dropped from the input of the readout, and again inside it."""


class AnswerSettings(ModelSettings):
    """Settings of models that can generate answers token by token."""

    tied_output: bool = False
    """Logits of answer tokens are products of the decoder's states with the input embeddings, as in
    translation, instead of the results of a readout. Only for tasks with decoded answers."""


class HeadSettings(ModelSettings):
    """Sizes of a layer of dense attention and feed-forward; the defaults are those published for ListOps."""

    heads: Annotated[int, Small(2)] = Field(default=8, ge=1)
    """Attention heads."""
    head_width: Annotated[int | None, Small(None, 4)] = Field(default=None, ge=1)
    """Size of one head; `width / heads` if not given. heads * head_width need not equal width."""
    feedforward_width: Annotated[int | None, Small(10)] = Field(default=None, ge=1)
    """Inner size of the feed-forward; twice the width if not given."""

    @model_validator(mode="after")
    def _heads_fit(self) -> "HeadSettings":
        if self.head_width is None and self.width % self.heads:
            raise ValueError(
                f"width must be a multiple of heads when head_width is not given,"
                f" got width={self.width} and heads={self.heads}; set head_width or change heads"
            )
        return self

    @property
    def size_of_head(self) -> int:
        """Return `head_width`, or its default."""
        return self.width // self.heads if self.head_width is None else self.head_width

    @property
    def size_of_feedforward(self) -> int:
        """Return `feedforward_width`, or its default."""
        return 2 * self.width if self.feedforward_width is None else self.feedforward_width


class CausalSettings(ModelSettings):
    """Settings of models that also have a causal form."""

    causal: bool = False
    """No token depends on a later one, in attention, means or halting, as prediction of the next token needs.
    A causal encoder adds no START and END. Decoders are always causal."""
