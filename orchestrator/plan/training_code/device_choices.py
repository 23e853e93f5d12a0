"""Describe how trials run on their device, for settings that depend on the device."""

from collections.abc import Iterator
from typing import Final, get_args

import torch

from orchestrator.plan.training_code.settings import ParsedSettings, parse_settings
from orchestrator.plan.types import Plan
from trainables.layers.attention.attend import chosen_kernel
from trainables.layers.block import BlockSettings
from trainables.models._sut import SparseSettings
from trainables.recurrence.active_units import EarlyExit, exit_mode
from trainables.settings import Settings

HALF_PRECISION_TYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


def device_lines(plan: Plan) -> list[str]:
    """Return one sentence for each choice that depends on the device, with the arms that it applies to.

    The device is CUDA if trials request GPUs, else a CPU. For searched fields the arm's own values count.
    """
    if plan.trainable is not None:
        return []
    device = "cuda" if plan.resources.gpus else "cpu"
    arms_by_line: dict[str, list[str]] = {}
    for arm in plan.arms:
        system = parse_settings(arm.settings)
        for line in _device_choices(system, device) if isinstance(system, ParsedSettings) else ():
            arms_by_line.setdefault(line, []).append(arm.name)
    device_text = "On CUDA" if device == "cuda" else "On a CPU"
    suffixes = {
        line: f" ({', '.join(names)})" for line, names in arms_by_line.items() if len(names) < len(plan.arms)
    }
    return [f"{device_text}, {line}{suffixes.get(line, '')}." for line in arms_by_line]


def _device_choices(system: ParsedSettings, device: str) -> Iterator[str]:
    config = system.model
    graph = system.train.graph is True and device == "cuda"
    if (setting := _exit_setting(config)) is not None:
        mode = "none, in training steps that are captured" if graph else exit_mode(setting, device)
        yield f"early_exit: auto is {mode}"
    dtype = HALF_PRECISION_TYPES.get(system.train.precision, torch.float32)
    if isinstance(config, BlockSettings):
        backend, width, has_bias = config.attention, config.size_of_head, False
    elif isinstance(config, SparseSettings):
        backend, width, has_bias = config.kernel, config.attention.head_width, True
    else:
        return
    has_dropout = config.attention_dropout > 0
    name, reason = chosen_kernel(backend, device, dtype, width, has_dropout=has_dropout, has_bias=has_bias)
    yield f"attention uses {name}{f' ({reason})' if reason else ''}"


def _exit_setting(config: Settings) -> EarlyExit | None:
    """Return the early exit setting if it is `auto` and the model can halt; None otherwise."""
    field = type(config).model_fields.get("early_exit")
    if field is None or get_args(field.annotation) != get_args(EarlyExit):
        return None
    if vars(config)["early_exit"] != "auto":
        return None
    halts = getattr(config, "halt", True) is not None and getattr(config, "loops", "task") == "task"
    setting: EarlyExit = getattr(config, "early_exit_setting", "auto")
    return setting if halts else None
