"""What a plan costs, by arithmetic; seconds only where a few real steps were timed."""

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
from orchestrator.plan.training_code.settings import System
from orchestrator.plan.types import ArmPrice
from orchestrator.trials import PlannedTrial
from trainables.assembly import build_model
from trainables.costs import passes, peak_memory_bytes
from trainables.data.synthetic import synthetic_batch
from trainables.threads import cpu_threads
from trainables.training.step import Learner, one_step

BYTES = 4
"""Of a saved number."""
ADAM_MOMENTS = 2
FEW, MORE = 2, 8
"""Sizes of a batch, or of its parts, timed on a CPU where a whole batch takes too long; time is taken to grow
evenly from there."""
AFFORDABLE_S = 1.0
"""A step expected to take less is timed as it is."""
TIMED_STEPS = 3


def price(
    arm: BuiltInArm,
    probe: Probe,
    trials: Mapping[str, int] | None,
    *,
    calibrate: bool,
) -> ArmPrice:
    """Return the estimate of `arm` for these numbers of trials by phase.

    Raises InputError if a step cannot be timed here.
    """
    structure, system = probe.structure(arm.system), arm.system
    step = passes(recomputes=system.train.checkpoint_activations) * rows_per_step(system)
    return ArmPrice(
        arm=arm.name,
        trials=dict(sorted((trials or {}).items())),
        train_flops_min=step * structure.flops_min,
        train_flops_max=step * structure.flops_max,
        peak_memory_bytes=_peak_memory(system, structure),
        checkpoint_bytes=_checkpoint(system, structure),
        # Ranks work side by side, and are timed one after the other.
        seconds_per_step=_seconds_per_step(system) / system.train.ranks if calibrate else None,
    )


def by_arm(trials: Iterable[PlannedTrial]) -> dict[str, Counter[str]]:
    """Number of trials by arm and phase."""
    counts: dict[str, Counter[str]] = {}
    for trial in trials:
        counts.setdefault(trial.arm, Counter())[trial.phase] += 1
    return counts


def _peak_memory(system: System, structure: Structure) -> int:
    rows, length = rows_at_once(system), system.shape.length_max
    again = system.train.checkpoint_activations
    return peak_memory_bytes(system.model, system.shape, rows, length, structure.parameters, recomputes=again)


def _checkpoint(system: System, structure: Structure) -> int:
    """Weights, the optimiser's moments, and what is kept of best weights so far, slow and average ones."""
    train = system.train
    kept = (
        train.average_best * (train.select == "best")
        + (train.optimizer == "ranger")
        + (train.ema is not None)
    )
    copies = 1 + ADAM_MOMENTS + kept
    return copies * BYTES * structure.parameters


def _seconds_per_step(system: System) -> float:
    """Seconds of a training step on full-length inputs, on the device that trials would use."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batch_size, parts = rows_per_step(system), system.train.parts
    fewer, larger = FEW * parts, MORE * parts
    try:
        with cpu_threads(system.train.threads):
            learner = Learner(build_model(system.model, system.shape, SEED, device), system.train, seed=SEED)
            if device.type == "cuda" or batch_size <= larger:
                return _timed(learner, system, batch_size)
            few, more = _timed(learner, system, fewer), _timed(learner, system, larger)
            seconds = more + max(0.0, more - few) / (larger - fewer) * (batch_size - larger)
            return _timed(learner, system, batch_size) if seconds < AFFORDABLE_S else seconds
    except ValueError as error:
        raise InputError(f"a step cannot be timed here: {error}") from error


def _timed(learner: Learner, system: System, examples: int) -> float:
    """Median seconds of a step on `examples` examples, the first step not counted."""
    batch = synthetic_batch(system.shape, examples, system.shape.length_max, SEED).to(learner.device)
    seconds = []
    for step in range(1 + TIMED_STEPS):
        begin = perf_counter()
        float(one_step(learner, batch, step).loss)
        seconds.append(perf_counter() - begin)
    return median(seconds[1:])
