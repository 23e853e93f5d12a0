"""Base class of everything a spec can set under `task`, `model` and `train`."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
DEPTH: Final = "bounds the number of layers that are run"
"""Marks the fields by which `shallower` makes a model cheap to try."""
MOST_UNSHARED: Final = 1_000
"""Most layers with weights of their own; as many take a second to build."""
UnsharedDepth = Annotated[int, Field(ge=1, le=MOST_UNSHARED), DEPTH]
"""Number of layers that have weights of their own."""
SharedDepth = Annotated[int, Field(ge=1, le=10_000), DEPTH]
"""Number of times that the same weights are run."""


class Settings(BaseModel):
    """Frozen, strict, closed: an unknown field or a silent cast is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, validate_default=True
    )


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

    width: int = Field(default=512, ge=1)
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

    heads: int = Field(default=8, ge=1)
    """Attention heads."""
    head_width: int | None = Field(default=None, ge=1)
    """Size of one head; `width / heads` if not given. heads * head_width need not equal width."""
    feedforward_width: int | None = Field(default=None, ge=1)
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
