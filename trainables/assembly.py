"""Build a model from its settings, with initial weights drawn from named streams.

Every parameter has a separate stream, keyed by its qualified name. Modules of PyTorch or of users have one
stream per module. Two arms built with the same seed therefore start with equal weights in all modules that
they share, independent of their other modules.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from types import ModuleType
from typing import Any, Final, Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import nn
from torch.nn.parameter import is_lazy

from trainables import catalog
from trainables.custom.extensions import describe_error, error_location
from trainables.layers.global_generator import (
    GlobalStream,
    draws_from_global_generator,
    global_stream,
    redraw_parameters,
    uses_global_generator,
)
from trainables.layers.linear import Initialised
from trainables.seeds import derive
from trainables.settings import Settings
from trainables.streams import torch_stream
from trainables.types import TaskShape

Part = Literal["Encoder", "Decoder"]
BATCH_NORMS: Final = (nn.modules.batchnorm._BatchNorm,)
"""Modules in which the output for a sample depends on the other samples of its batch, and in which every
forward pass updates running averages.
"""
META_TENSOR_ERRORS: Final = ("meta tensor", "meta device", "on meta")
"""Parts of PyTorch's error messages on reading values of a tensor on the device `meta`."""


class _NamedModel(BaseModel):
    """Schema of the field `name`, which selects the model that the other fields belong to."""

    model_config = ConfigDict(strict=True, title="model")

    name: str


def model_config(raw: Mapping[str, Any]) -> Settings:
    """Return the validated settings of the model `raw["name"]` with defaults filled in.

    Raises:
        pydantic.ValidationError: A field is invalid or missing.
        extensions.BadName: The name is not a usable model.
    """
    name = _NamedModel.model_validate(dict(raw)).name
    return catalog.config_class("models", name).model_validate(dict(raw))


def build_model(
    model_settings: Settings | Mapping[str, Any],
    shape: TaskShape,
    seed: int,
    device: torch.device | str = "cpu",
    meta_model: nn.Module | None = None,
) -> nn.Module:
    """Return the model of `model_settings` with the head for `shape`, in training mode, on `device`.

    No global generator is used. On the device `meta` no memory is allocated and no weights are drawn. Weights
    are drawn on the CPU, so they are the same on every device.

    Args:
        model_settings: Validated settings, or the mapping `model` of a spec.
        shape: Shape of the task.
        seed: Root of the streams of the initial weights.
        device: Device of the model.
        meta_model: The same model on `meta`. Its modules are reused where possible; do not use it afterwards.

    Raises:
        ValueError: The model cannot do the task, or `model_config` raises it.
    """
    config = model_settings if isinstance(model_settings, Settings) else model_config(model_settings)
    if (reason := misfit(config, shape)) is not None:
        raise ValueError(f"model {reason}")
    is_plain = meta_model is None or uses_global_generator(meta_model)
    if meta_model is not None and not is_plain:
        model = _allocate(meta_model)
    else:
        model = _construct(config, partial(_build_with_head, config, shape), device)
    if is_plain and uses_global_generator(model):
        model.global_stream = GlobalStream(model)
    if torch.device(device).type == "meta":
        return model
    initialise(model, seed)
    # Skip `to` on the CPU, since it takes as long as drawing the weights.
    return model if torch.device(device).type == "cpu" else model.to(device)


def build_part(config: Settings, part: Part, device: torch.device | str) -> nn.Module:
    """Return only the encoder or decoder, in training mode; weights are drawn unless `device` is `meta`.

    Raises:
        ValueError: The part cannot be built.
    """
    model = _construct(config, partial(getattr(_file(config), part), config), device)
    if torch.device(device).type != "meta":
        initialise(model, seed=0)
    return model


def find_unseeded_tensors(config: Settings, shape: TaskShape) -> tuple[str, ...]:
    """Return the names of parameters and buffers whose values differ between two builds with the same seed.

    Their constructors draw these values, so arms with equal seeds would start with different ones.

    Raises:
        ValueError: A parameter is not drawn by any method.
    """
    if not uses_global_generator(build_model(config, shape, seed=0, device="meta")):
        return ()
    construct = partial(_build_with_head, config, shape)
    with _fill_new_memory_with_nan():
        first_model, second_model = (
            _construct(config, construct, "cpu", constructor_seed) for constructor_seed in (1, 2)
        )
    for model in (first_model, second_model):
        initialise(model, seed=0)
    tensors = [
        chain(model.named_parameters(), model.named_buffers()) for model in (first_model, second_model)
    ]
    return tuple(
        name
        for (name, first_tensor), (_, second_tensor) in zip(*tensors, strict=True)
        if not _are_equal(first_tensor.detach(), second_tensor.detach())
    )


def _are_equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors have equal values; NaN counts as equal to NaN."""
    return torch.equal(first, second) or (
        first.shape == second.shape and bool(((first == second) | (first.isnan() & second.isnan())).all())
    )


@contextmanager
def _fill_new_memory_with_nan() -> Iterator[None]:
    """Make PyTorch fill newly allocated memory with NaN inside the block."""
    memory: Any = torch.utils.deterministic  # the module has no type annotations
    previous_mode, previous_fill = torch.get_deterministic_debug_mode(), memory.fill_uninitialized_memory
    memory.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(previous_mode)
        memory.fill_uninitialized_memory = previous_fill


def _build_with_head(config: Settings, shape: TaskShape) -> nn.Module:
    module = _file(config)
    parts = [module.Encoder(config)]
    if shape.head == "sequence":
        parts.append(module.Decoder(config))
    model_class = getattr(head_module(shape), f"{shape.head.capitalize()}Model")
    model: nn.Module = model_class(*parts, config, shape)
    return model


def _construct(
    config: Settings,
    construct: Callable[[], nn.Module],
    device: torch.device | str,
    constructor_seed: int = 0,
) -> nn.Module:
    """Return the module that `construct` builds; its parameters are not initialised yet.

    Plain modules are built on the CPU, because their constructors may set values that no later method sets.
    Their constructors draw from the stream of `constructor_seed`.
    """
    meta_model, construct = torch.device(device).type == "meta", partial(_build_trainable, construct)
    try:
        with torch.device("meta"):
            model = construct()
    except (RuntimeError, OverflowError) as error:
        if not any(word in str(error).lower() for word in META_TENSOR_ERRORS):
            with convert_model_errors(config, "be built"):
                if "overflow" not in str(error).lower():
                    raise
            # The size in bytes exceeds 64 bits.
            raise ValueError(f"a model must fit into memory, got a larger one: {error}") from error
        with convert_model_errors(config, "be built"), global_stream(constructor_seed):
            model = construct()
        return model.to("meta") if meta_model else model
    except Exception:
        with convert_model_errors(config, "be built"):
            raise
    if meta_model:
        return model
    if uses_global_generator(model):
        with convert_model_errors(config, "be built"), global_stream(constructor_seed):
            return construct()
    return _allocate(model)


def _build_trainable(construct: Callable[[], nn.Module]) -> nn.Module:
    """Return the module that `construct` builds, after checking that it can be trained.

    Raises:
        ValueError: Weights have no size, or their dtype is not supported by optimisers.
    """
    model = construct()
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if is_lazy(tensor):
            raise ValueError(
                f"a model must define the sizes of its weights in its constructor, got {name} of a lazy "
                "module; pass the size of its input (x has config.width features)"
            )
    for name, tensor in model.named_parameters():
        if not tensor.is_floating_point():
            raise ValueError(
                f"parameters must be floating-point numbers, got {name} of {tensor.dtype}; store complex "
                "parameters as real ones (torch.view_as_complex), and untrained tensors as buffers"
            )
    return model


def _allocate(meta_model: nn.Module) -> nn.Module:
    """Return `meta_model`, a model on `meta`, with uninitialised CPU memory for each of its tensors."""
    # Module.to_empty calls empty_like on meta tensors, which takes PyTorch a second of imports.
    meta_model._apply(lambda meta: torch.empty(meta.shape, dtype=meta.dtype))  # type: ignore[no-untyped-call]
    return meta_model


@contextmanager
def convert_model_errors(config: Settings, subject: str) -> Iterator[None]:
    """Convert errors of the block to a ValueError with file and line, if the model is not built-in."""
    try:
        yield
    except Exception as error:
        name = vars(config)["name"]
        if not catalog.is_custom("models", name) or (
            isinstance(error, ValueError) and not error_location(error)
        ):
            raise
        raise ValueError(
            f"the model {name!r} must {subject}, got {describe_error(error)}; correct it"
        ) from error


def misfit(config: Settings, shape: TaskShape) -> str | None:
    """Return why a model with these settings cannot do the task, as `must ..., got ...`; None if it can.

    A model states further requirements in the function `misfit(config, shape)` in its file.
    """
    model_misfit: Callable[[Settings, TaskShape], str | None] = getattr(
        _file(config), "misfit", lambda *_: None
    )
    return _decoder_misfit(config, shape) or _causality_misfit(config, shape) or model_misfit(config, shape)


def _decoder_misfit(config: Settings, shape: TaskShape) -> str | None:
    name = vars(config)["name"]
    if shape.head != "sequence":
        if not getattr(config, "tied_output", False):
            return None
        return (
            f"must have a task with generated answers for tied_output, got {name} with tied_output=True for "
            f"the head {shape.head!r}; drop model.tied_output"
        )
    if hasattr(catalog.load("models", name), "Decoder"):
        return None
    decoder_models = [name for name, module in catalog.usable("models") if hasattr(module, "Decoder")]
    return (
        f"must have a decoder for a task whose answers are written token by token, got {name} that has "
        f"none; models that have one: {', '.join(decoder_models) or 'none'}"
    )


def _causality_misfit(config: Settings, shape: TaskShape) -> str | None:
    if not shape.causal or getattr(config, "causal", False):
        return None
    causal_models = [name for name, _ in catalog.usable("models") if _can_be_causal(name)]
    name = vars(config)["name"]
    capable_models = f"models that can be: {', '.join(causal_models) or 'none'}"
    remedy = "set model.causal to true" if _can_be_causal(name) else capable_models
    return f"must be causal for a task with causal targets, got {name} that is not; {remedy}"


def _can_be_causal(model: str) -> bool:
    """Return whether the model has a field `causal`, or is always causal and has a property of that name."""
    config = catalog.config_class("models", model)
    return "causal" in config.model_fields or hasattr(config, "causal")


def batch_cost(config: Settings) -> str | None:
    """Return the name of the training cost that is computed from the whole batch; None if there is none.

    In a batch that is run in parts this cost is computed for each part. A model declares it in the function
    `batch_cost(config)` in its file.
    """
    find_cost: Callable[[Settings], str | None] = getattr(_file(config), "batch_cost", lambda _: None)
    return find_cost(config)


def reads_steps(config: Settings) -> bool:
    """Return whether the encoder reads how many steps each sample takes; by default only guided encoders do.

    A model declares it in the function `reads_steps(config)` in its file.
    """
    file = _file(config)
    is_guided = bool(getattr(file.Encoder, "guided", False))
    find_reads_steps: Callable[[Settings], bool] = getattr(file, "reads_steps", lambda _: is_guided)
    return find_reads_steps(config)


def batch_statistics(model: nn.Module) -> str | None:
    """Return why a batch cannot be run through `model` in parts, as `must ..., got ...`; None if it can."""
    norm = batch_norm(model)
    return norm and (
        f"accumulate must be 1 for a model with batch normalisation, got {norm}: drop "
        "train.accumulate, or normalise each sample separately"
    )


def batch_norm(model: nn.Module) -> str | None:
    """Return class and name of the first batch norm in `model`; None if there is none."""
    norms = (
        f"{type(module).__name__} at {name}"
        for name, module in model.named_modules()
        if isinstance(module, BATCH_NORMS)
    )
    return next(norms, None)


def ungraphed(config: Settings, shape: TaskShape) -> str | None:
    """Return why training steps cannot be captured as graphs, as `must ..., got ...`; None if they can.

    A model whose forward passes use only `layers.constant_shapes` declares `GRAPHED = True` in its file. For
    settings with other forward passes, the function `ungraphed(config)` in the file returns the reason.
    """
    file, name = _file(config), vars(config)["name"]
    if shape.head != "classify":
        return (
            "must be false unless the task is classification of sequences, got the head "
            f"{shape.head!r}; drop train.graph"
        )
    find_reason: Callable[[Settings], str | None] = getattr(file, "ungraphed", lambda _: None)
    reason = find_reason(config)
    if getattr(file, "GRAPHED", False) and reason is None and not reads_steps(config):
        return None
    graphed_models = [name for name, module in catalog.usable("models") if getattr(module, "GRAPHED", False)]
    reason = reason or "control flow in its forward pass depends on the contents of the batch"
    return (
        f"must be false for a model whose steps cannot be captured, got {name}: {reason}; "
        f"drop train.graph, or take one that can: {', '.join(graphed_models)}"
    )


def kernel_misfit(config: Settings, precision: str) -> str | None:
    """Return why attention cannot run in `precision`, as `must ..., got ...`; None if it can."""
    if getattr(config, "attention", None) != "flash" or precision in ("bf16", "fp16"):
        return None
    return (
        f"must not be flash with train.precision {precision}, got 'flash': its kernels require 16 bits; "
        "set train.precision: bf16, or model.attention: auto"
    )


def _file(config: Settings) -> ModuleType:
    return catalog.load("models", vars(config)["name"])


def head_module(shape: TaskShape) -> ModuleType:
    """Return the module of the task's head; it defines `FEATURES` and a class such as `ClassifyModel`."""
    return importlib.import_module(f"trainables.heads.{shape.head}")


def initialise(model: nn.Module, seed: int) -> None:
    """Draw every parameter of `model` from the streams of `seed`.

    A plain module draws its parameters by its method `reset_parameters`, called after those of all its
    submodules, as in constructors. Without this method its parameters retain the values from its constructor.
    """
    modules = dict(model.named_modules())
    initialised_modules = {
        name: module for name, module in modules.items() if isinstance(module, Initialised)
    }
    with torch.no_grad():
        for module in initialised_modules.values():
            for parameter in module.parameters(recurse=False):
                parameter.fill_(torch.nan)
    for name, module in initialised_modules.items():
        module.initialise(
            lambda part, name=name: torch_stream(seed, "init", f"{name}.{part}")  # type: ignore[misc]
        )
    for name, module in reversed(modules.items()):
        if draws_from_global_generator(module):
            with global_stream(derive(seed, "init", name)):
                redraw_parameters(module)
    uninitialised_names = [
        name for name, parameter in model.named_parameters() if _has_nan(parameter.detach())
    ]
    if uninitialised_names:
        raise ValueError(
            f"every parameter must be initialized, got {', '.join(uninitialised_names)} with NaNs; "
            "initialize it in the method reset_parameters of its module"
        )


def _has_nan(values: torch.Tensor) -> bool:
    # A sum takes no memory and a quarter of the time. It is also NaN if infinities of both signs occur.
    total = values.sum()
    return bool(total.isnan().item()) and bool(values.isnan().any())
