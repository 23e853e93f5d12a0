"""Store tensors as safetensors and all else as JSON, so that reading never runs code."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged, or belongs to other settings."""


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and persistent buffers by name (shared tensors by one), detached but not copied."""
    unique: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        unique.setdefault(id(tensor), name)
    return {name: state[name].detach() for name in unique.values()}


@torch.no_grad()
def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], origin: Path) -> None:
    """Copy `tensors` into `model`. Raises CheckpointError, copying nothing, if names or shapes differ."""
    model_weights = weights(model)
    missing, unexpected = (
        sorted(model_weights.keys() - tensors.keys()),
        sorted(tensors.keys() - model_weights.keys()),
    )
    if missing or unexpected:
        raise CheckpointError(
            f"{origin} must hold exactly the weights of the model, got {missing=} and {unexpected=}: "
            "restore it with the model settings it was saved with"
        )
    for name, tensor in model_weights.items():
        if tensor.shape != tensors[name].shape:
            stored_shape, model_shape = tuple(tensors[name].shape), tuple(tensor.shape)
            raise CheckpointError(
                f"{origin} must fit the model, got {stored_shape=} and {model_shape=} for weight {name!r}: "
                "restore it with the model settings it was saved with"
            )
    for name, tensor in model_weights.items():
        tensor.copy_(tensors[name])


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Store tensors from any device under their names."""
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Return the tensors that `write_tensors` wrote, on the CPU.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} must be a readable safetensors file, got {error}") from error


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Store JSON values; `read_json` restores numbers bit for bit."""
    file.write_text(json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")


def read_json(file: Path) -> dict[str, Any]:
    """Return the values that `write_json` wrote.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} must be a readable JSON file, got {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{file} must hold a JSON object, got {type(value).__name__}")
    return value
