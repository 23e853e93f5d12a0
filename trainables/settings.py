"""Base class of everything a spec can set under `task`, `model` and `train`."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Frozen, strict, closed: an unknown field or a silent cast is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, validate_default=True
    )
