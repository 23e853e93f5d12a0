"""Builds a model from its settings, with initial weights drawn from named streams.

Every parameter has a stream of its own, keyed by its qualified name. Two arms built with the same seed
therefore start with equal weights wherever they share a module, whatever else one of them has.
"""

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import nn

from trainables import catalog
from trainables.layers.linear import Initialised
from trainables.settings import Settings
from trainables.streams import torch_stream
from trainables.types import TaskShape


class _NamedModel(BaseModel):
    """The one field that says which model the others belong to."""

    model_config = ConfigDict(strict=True, title="model")

    name: str


def model_config(raw: Mapping[str, Any]) -> Settings:
    """Validated settings of the model `raw["name"]`, defaults filled in.

    Raises pydantic.ValidationError for a bad or missing field, `extensions.BadName` for a bad name.
    """
    name = _NamedModel.model_validate(dict(raw)).name
    return catalog.config_class("models", name).model_validate(dict(raw))


def build_model(
    model_settings: Settings | Mapping[str, Any],
    shape: TaskShape,
    seed: int,
    device: torch.device | str = "cpu",
) -> nn.Module:
    """The model of `model_settings` under the head of `shape`, in training mode, on `device`.

    Touches no global generator. On the device `meta` nothing is allocated or drawn. Weights are drawn on the
    CPU, so they are the same on every device. Raises what `model_config` raises, and ValueError for a model
    that cannot do the task.
    """
    config = model_settings if isinstance(model_settings, Settings) else model_config(model_settings)
    if (why := misfit(config, shape)) is not None:
        raise ValueError(f"model {why}")
    module = _file(config)
    head = head_module(shape)
    try:
        with torch.device("meta"):
            parts = [module.Encoder(config)]
            if shape.head == "sequence":
                parts.append(module.Decoder(config))
            model: nn.Module = head.Model(*parts, config, shape)
    except (RuntimeError, OverflowError) as error:  # of PyTorch, for more bytes than 64 bits count
        raise ValueError(f"a model must fit into memory, got one that fits nowhere: {error}") from error
    if torch.device(device).type == "meta":
        return model
    # What `to_empty` does, but it asks a meta tensor for its like, which takes PyTorch a second of imports.
    model._apply(lambda meta: torch.empty(meta.shape, dtype=meta.dtype))  # type: ignore[no-untyped-call]
    initialise(model, seed)
    return model.to(device)


def misfit(config: Settings, shape: TaskShape) -> str | None:
    """Why a model with these settings cannot do the task, as `must ..., got ...`; None where it can.

    What a model needs beyond the rest, it says itself: in `misfit(config, shape)` in its own file.
    """
    own: Callable[[Settings, TaskShape], str | None] = getattr(_file(config), "misfit", lambda *_: None)
    return _cannot_write(config, shape) or _sees_answers(config, shape) or own(config, shape)


def _cannot_write(config: Settings, shape: TaskShape) -> str | None:
    given = vars(config)["name"]
    if shape.head != "sequence":
        if not getattr(config, "tied_output", False):
            return None
        return (
            f"must do a task of written answers to have tied_output, got {given} with tied_output=True for "
            f"the head {shape.head!r}; drop model.tied_output"
        )
    if hasattr(catalog.load("models", given), "Decoder"):
        return None
    able = [name for name, module in catalog.usable("models") if hasattr(module, "Decoder")]
    return (
        f"must have a decoder for a task whose answers are written token by token, got {given} that has "
        f"none; models that have one: {', '.join(able) or 'none'}"
    )


def _sees_answers(config: Settings, shape: TaskShape) -> str | None:
    if not shape.causal or getattr(config, "causal", False):
        return None
    able = [name for name, _ in catalog.usable("models") if _can_be_causal(name)]
    given = vars(config)["name"]
    others = f"models that can be: {', '.join(able) or 'none'}"
    remedy = "set model.causal to true" if _can_be_causal(given) else others
    return f"must be causal for a task whose answers stand in later tokens, got {given} that is not; {remedy}"


def _can_be_causal(model: str) -> bool:
    """By a field, or always: then its settings have a property of that name."""
    config = catalog.config_class("models", model)
    return "causal" in config.model_fields or hasattr(config, "causal")


def _file(config: Settings) -> ModuleType:
    return catalog.load("models", vars(config)["name"])


def head_module(shape: TaskShape) -> ModuleType:
    """The file in `trainables/heads` that predicts what the task asks for."""
    return importlib.import_module(f"trainables.heads.{shape.head}")


def initialise(model: nn.Module, seed: int) -> None:
    """Draw every parameter of `model` from the streams of `seed`."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    for name, module in model.named_modules():
        if isinstance(module, Initialised):
            module.initialise(lambda own, name=name: torch_stream(seed, "init", f"{name}.{own}"))  # type: ignore[misc]
    missed = [name for name, parameter in model.named_parameters() if parameter.isnan().any()]
    assert not missed, f"every parameter must belong to an Initialised module, got {missed}"
