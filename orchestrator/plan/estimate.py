"""Compute cost estimates of arms; durations are measured by timing a few steps."""

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import median
from time import perf_counter

import torch

from orchestrator.errors import InputError
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.ablation_check.structure import Structure
from orchestrator.plan.ablation_check.weights import SEED
from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.limits import rows_at_once, rows_per_step
from orchestrator.plan.training_code.settings import ParsedSettings
from orchestrator.plan.types import ArmEstimate
from orchestrator.trials import PlannedTrial
from trainables.assembly import build_model
from trainables.costs import passes, peak_memory_bytes
from trainables.data.synthetic import synthetic_batch
from trainables.threads import cpu_threads
from trainables.training.step import Learner, run_step

BYTES_PER_NUMBER = 4
"""Bytes per stored number."""
ADAM_MOMENTS = 2
SMALL_BATCH, LARGE_BATCH = 2, 8
"""Batch sizes, or sizes of batch parts, timed on a CPU if a full batch takes too long; time is extrapolated
linearly."""
MAX_STEP_SECONDS = 1.0
"""Seconds below which a step is timed at its real size."""
TIMED_STEPS = 3


def estimate_arm(
    arm: BuiltInArm, probe: Probe, trials: Mapping[str, int] | None, *, calibrate: bool
) -> ArmEstimate:
    """Return the cost estimate of an arm.

    Args:
        arm: The arm.
        probe: Cache of built models.
        trials: Number of trials by phase.
        calibrate: Whether to time a few steps.

    Raises:
        InputError: A step cannot be timed on this machine.
    """
    structure, system = probe.structure(arm.system), arm.system
    step = passes(recomputes=system.train.checkpoint_activations) * rows_per_step(system)
    return ArmEstimate(
        arm=arm.name,
        trials=dict(sorted((trials or {}).items())),
        train_flops_min=step * structure.flops_min,
        train_flops_max=step * structure.flops_max,
        peak_memory_bytes=_peak_memory_bytes(system, structure),
        checkpoint_bytes=_checkpoint_bytes(system, structure),
        # Ranks run in parallel, but the timed step processes the rows of all ranks.
        seconds_per_step=_seconds_per_step(system) / system.train.ranks if calibrate else None,
    )


def count_trials_by_arm(trials: Iterable[PlannedTrial]) -> dict[str, Counter[str]]:
    """Return the number of trials by arm and phase."""
    counts: dict[str, Counter[str]] = {}
    for trial in trials:
        counts.setdefault(trial.arm, Counter())[trial.phase] += 1
    return counts


def _peak_memory_bytes(system: ParsedSettings, structure: Structure) -> int:
    rows, length = rows_at_once(system), system.shape.length_max
    recomputes = system.train.checkpoint_activations
    return peak_memory_bytes(
        system.model, system.shape, rows, length, structure.parameters, recomputes=recomputes
    )


def _checkpoint_bytes(system: ParsedSettings, structure: Structure) -> int:
    """Return the bytes of a checkpoint: weights, optimizer moments, and best, slow and average weights."""
    train = system.train
    copies = 1 + ADAM_MOMENTS + (train.optimizer == "ranger") + (train.ema is not None)
    copies += train.average_best * (train.select == "best")
    return copies * BYTES_PER_NUMBER * structure.parameters


def _seconds_per_step(system: ParsedSettings) -> float:
    """Return seconds per training step on full-length inputs, on the device that trials would use."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batch_size, parts = rows_per_step(system), system.train.parts
    small_batch, large_batch = SMALL_BATCH * parts, LARGE_BATCH * parts
    try:
        with cpu_threads(system.train.threads):
            learner = Learner(build_model(system.model, system.shape, SEED, device), system.train, seed=SEED)
            if device.type == "cuda" or batch_size <= large_batch:
                return _measure_step_seconds(learner, system, batch_size)
            small_s, large_s = (
                _measure_step_seconds(learner, system, size) for size in (small_batch, large_batch)
            )
            per_example_s = max(0.0, large_s - small_s) / (large_batch - small_batch)
            seconds = large_s + per_example_s * (batch_size - large_batch)
            return (
                _measure_step_seconds(learner, system, batch_size) if seconds < MAX_STEP_SECONDS else seconds
            )
    except ValueError as error:
        raise InputError(f"a step cannot be timed here: {error}") from error


def _measure_step_seconds(learner: Learner, system: ParsedSettings, examples: int) -> float:
    """Return the median seconds of a step on `examples` examples, without the first step."""
    batch = synthetic_batch(system.shape, examples, system.shape.length_max, SEED).to(learner.device)
    seconds = []
    for step in range(1 + TIMED_STEPS):
        begin = perf_counter()
        float(run_step(learner, batch, step).loss)
        seconds.append(perf_counter() - begin)
    return median(seconds[1:])
