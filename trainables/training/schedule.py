"""Compute learning rate and beta1 of a step, as pure functions of the step without any state.

Four schedules are from the released code of Ray Chowdhury and Caragea, Investigating Recurrent Transformers
with Dynamic Halt; the fifth is constant. Steps count from 0.
"""

import math

from trainables.training.config import TrainConfig

START_DIVISOR = 25.0
"""A one-cycle schedule starts at peak / START_DIVISOR (PyTorch's OneCycleLR)."""
FINAL_DIVISOR = 1e4
"""A one-cycle schedule ends at start / FINAL_DIVISOR."""
BETA1_HIGH, BETA1_LOW = 0.95, 0.85
"""Extremes of the cycle of beta1, which is high when the learning rate is low."""


def learning_rate(config: TrainConfig, step: int) -> float:
    """Return the learning rate of optimiser step number `step`, 0 <= step < config.steps."""
    warmup, base = config.warmup_steps, config.lr
    if config.schedule == "linear":
        start = base / START_DIVISOR
        return _interpolate_cycle(config, step, start, base, start / FINAL_DIVISOR)
    rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
    if config.schedule == "rsqrt":
        return base * rise / math.sqrt(max(step + 1, warmup))
    if config.schedule == "cosine":
        # A warm-up as long as the training leaves no steps for the decrease.
        peak_end = warmup + config.hold_steps
        decay_share = max(0, step - peak_end) / max(1, config.steps - peak_end)
        return base * rise * 0.5 * (1 + math.cos(math.pi * decay_share))
    return base * rise


def beta1(config: TrainConfig, step: int) -> float:
    """Return AdamW's first beta at step number `step`."""
    if config.onecycle_beta1:
        return _interpolate_cycle(config, step, BETA1_HIGH, BETA1_LOW, BETA1_HIGH)
    return config.betas[0]


def _interpolate_cycle(config: TrainConfig, step: int, first: float, middle: float, last: float) -> float:
    """Interpolate linearly from `first` to `middle` at the end of the warm-up, then to `last`."""
    peak_end, end = config.warmup_steps - 1, config.steps - 1
    if step < peak_end:
        return first + (middle - first) * step / peak_end
    if peak_end in (step, end):
        return middle
    return middle + (last - middle) * (step - peak_end) / (end - peak_end)
