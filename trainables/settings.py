"""Base class of everything a spec can set under `task`, `model` and `train`."""

from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
DEPTH: Final = "bounds the number of layers that are run"
"""Marks the fields by which `shallower` makes a model cheap to try."""

LATER: Final = "left out of a plan as long as it has its default"
"""Marks fields that are younger than plans that are kept: without them, what is kept has the content, and the
ids, that it would have today."""


class Small:
    """Marks a field with its value in small versions of a model, as contract tests build them.

    Further values are arms of their own; of a field without a mark, all that it can be where that is a switch
    or a choice among words. A field that is declared again in a class below keeps the mark of the one above.
    """

    def __init__(self, value: Any, *others: Any) -> None:
        self.value = value
        self.others = others


MOST: Final = 10**9
"""No whole number of the settings but a seed may be larger, as nothing that is counted is; nor may any other
number of a task or model of the box."""
MOST_UNSHARED: Final = 1_000
"""Most layers with weights of their own; as many take a second to build."""
MOST_SHARED: Final = 10_000
"""Most times that the same weights are run."""
UnsharedDepth = Annotated[int, Field(ge=1, le=MOST_UNSHARED), DEPTH, Small(2)]
"""Number of layers that have weights of their own."""
SharedDepth = Annotated[int, Field(ge=1, le=MOST_SHARED), DEPTH, Small(6)]
"""Number of times that the same weights are run."""
DEPTHS: Final = frozenset(
    {"layers", "loops", "max_layers", "max_loops", "memory.update_layers", "test_layers"}
)
"""Fields that are marked as `DEPTH` in the models of the box: one that none of them can have is refused
without their code."""


class Settings(BaseModel):
    """Frozen, strict, closed: an unknown field or a silent cast is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, validate_default=True
    )


class Reach:
    """Marks a field with how far tokens are told apart: weights for what lies beyond an input it never reads.

    `most` says of the longest input in tokens which value is the largest that does more than any below.
    """

    def __init__(self, most: Callable[[int], int]) -> None:
        self.most = most


def within(config: Settings, longest: int) -> Settings:
    """`config` with no reach beyond inputs of `longest` tokens; itself if none is."""
    changed: dict[str, Any] = {}
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Settings) and (inner := within(value, longest)) is not value:
            changed[name] = inner
        for mark in field.metadata:
            if isinstance(mark, Reach) and isinstance(value, int) and value > (most := mark.most(longest)):
                changed[name] = most
    return config.model_copy(update=changed) if changed else config


def shallower(config: Settings, most: int) -> Settings:
    """`config` with every number of layers or loops at most `most`; itself if none is larger."""
    deep = {
        name: most
        for name, field in type(config).model_fields.items()
        if DEPTH in field.metadata and isinstance(value := getattr(config, name), int) and value > most
    }
    return config.model_copy(update=deep) if deep else config


class ModelSettings(Settings):
    """What every model has, whatever it is made of: all that heads and costs read."""

    width: Annotated[int, Small(16)] = Field(default=512, ge=1)
    """Size of a token's state."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of elements dropped after embedding, attention and inside feed-forwards."""
    readout_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of elements dropped of what the readout reads, and again inside it."""


class AnswerSettings(ModelSettings):
    """What a model has that can write answers token by token."""

    tied_output: bool = False
    """Answer tokens share input and output embeddings, as in translation, in place of a readout of their own:
    logits are products of the decoder's states with the embeddings. Only for tasks of written
    answers."""


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
        """`head_width`, or its default."""
        return self.width // self.heads if self.head_width is None else self.head_width

    @property
    def size_of_feedforward(self) -> int:
        """`feedforward_width`, or its default."""
        return 2 * self.width if self.feedforward_width is None else self.feedforward_width


class CausalSettings(ModelSettings):
    """What a model has that also has a causal form."""

    causal: bool = False
    """No token sees a later one, in attention, means or halting: for predicting what comes next. There are no
    START and END then. A decoder always is."""
