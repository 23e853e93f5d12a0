"""Learning rate and beta1 of a step, as pure functions of the step: nothing to save, nothing to restore.

Four schedules from the released code of Ray Chowdhury and Caragea, Investigating Recurrent Transformers
with Dynamic Halt, and a constant one. Steps count from 0.
"""

import math

from trainables.training.config import TrainConfig

START_DIVISOR = 25.0
"""A one-cycle schedule starts at peak / START_DIVISOR (PyTorch's OneCycleLR)."""
FINAL_DIVISOR = 1e4
"""A one-cycle schedule ends at start / FINAL_DIVISOR."""
BETA1_HIGH, BETA1_LOW = 0.95, 0.85
"""Ends of the cycle of beta1, high where the learning rate is low."""


def learning_rate(config: TrainConfig, step: int) -> float:
    """Learning rate of the optimiser step number `step`, 0 <= step < config.steps."""
    warmup, base = config.warmup_steps, config.lr
    if config.schedule == "linear":
        start = base / START_DIVISOR
        return _cycle(config, step, start, base, start / FINAL_DIVISOR)
    rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
    if config.schedule == "rsqrt":
        return base * rise / math.sqrt(max(step + 1, warmup))
    if config.schedule == "cosine":
        # A warm-up as long as the training leaves no step to fall in.
        turn = warmup + config.hold_steps
        fallen = max(0, step - turn) / max(1, config.steps - turn)
        return base * rise * 0.5 * (1 + math.cos(math.pi * fallen))
    return base * rise


def beta1(config: TrainConfig, step: int) -> float:
    """AdamW's first beta at step number `step`."""
    if config.onecycle_beta1:
        return _cycle(config, step, BETA1_HIGH, BETA1_LOW, BETA1_HIGH)
    return config.betas[0]


def _cycle(config: TrainConfig, step: int, first: float, middle: float, last: float) -> float:
    """Straight from `first` to `middle` at the warm-up's end, and straight on to `last` at the last step."""
    turn, end = config.warmup_steps - 1, config.steps - 1
    if step < turn:
        return first + (middle - first) * step / turn
    if turn in (step, end):
        return middle
    return middle + (last - middle) * (step - turn) / (end - turn)
