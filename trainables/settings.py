"""Base class of everything a spec can set under `task`, `model` and `train`."""

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Frozen, strict, closed: an unknown field or a silent cast is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, validate_default=True
    )


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
    """Answer tokens are told apart by their embeddings, as in translation, and not by a readout of their own:
    their logits are products of the decoder's states with the embeddings. Only for tasks of written
    answers."""
