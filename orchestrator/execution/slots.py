"""Count how many trials fit on a cluster or this machine, and check whether a trial can run there."""

import os
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor
from typing import Any, Literal

from orchestrator.errors import InputError
from orchestrator.plan.types import Arm, Plan
from orchestrator.spec.section import Resources
from search_spaces.dimensions import Choice, Fixed
from search_spaces.paths import lookup
from trainables.training.config import ON_CUDA

EPSILON = 1e-4
"""Smallest amount of a resource that Ray counts."""
Driver = Literal["ray", "inline"]
PRECISION_PATH = "train.precision"


def count_slots(nodes: Iterable[Mapping[str, float]], resources: Resources) -> int:
    """Return how many trials fit on `nodes` at once; a trial never spans nodes.

    Args:
        nodes: Amounts of `CPU` and `GPU` of each node.
        resources: Resources of a trial: a share of one GPU, or one or more complete GPUs.
    """
    num_slots = sum(_slots_on_node(node, resources) for node in nodes)
    return num_slots if resources.max_concurrent is None else min(num_slots, resources.max_concurrent)


def require_room(nodes: Sequence[Mapping[str, float]], resources: Resources) -> int:
    """Return how many trials fit on `nodes` at once. Raise `InputError` if no trial fits."""
    num_slots = count_slots(nodes, resources)
    if not num_slots:
        amounts = ((node.get("CPU", 0), node.get("GPU", 0)) for node in nodes)
        available = "; ".join(f"a node with CPU={cpus:g} GPU={gpus:g}" for cpus, gpus in amounts)
        raise InputError(
            f"a trial must fit on one node: it needs cpus={resources.cpus:g} and gpus={resources.gpus:g}, "
            f"but {available} is available; request less with --cpus and --gpus, or name a larger cluster "
            "(--address)"
        )
    return num_slots


def local_resources(num_cpus: int | None) -> dict[str, float]:
    """Return CPUs and GPUs of a private Ray: `num_cpus` or all CPUs, and the GPUs that PyTorch can use."""
    import torch

    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"CPU": float(num_cpus or cpus), "GPU": float(torch.cuda.device_count())}


def _slots_on_node(node: Mapping[str, float], resources: Resources) -> int:
    trial_limits = []
    if resources.cpus > 0:
        trial_limits.append(_count_shares(node.get("CPU", 0.0), resources.cpus))
    if resources.gpus >= 1:
        trial_limits.append(_count_shares(node.get("GPU", 0.0), resources.gpus))
    elif resources.gpus > 0:
        trial_limits.append(_count_shares(1.0, resources.gpus) * floor(node.get("GPU", 0.0) + EPSILON))
    assert trial_limits, "a trial must use a share of a CPU or a GPU"
    return min(trial_limits)


def _count_shares(total: float, part: float) -> int:
    return floor(total / part + EPSILON)


def require_local_resources(plan: Plan, driver: Driver, num_cpus: int | None) -> None:
    """Raise `InputError` if a trial of `plan` cannot run on this machine with at most `num_cpus` CPUs."""
    if driver == "ray":
        require_room([local_resources(num_cpus)], plan.resources)
    if plan.trainable is None:
        _require_precision(plan)


def missing_gpus(plan: Plan, driver: Driver) -> str:
    """Return a warning if `inline` has fewer GPUs than a trial requests; otherwise an empty string.

    Driver `inline` runs trials on the available devices.
    """
    requested_gpus = plan.resources.gpus
    if (
        driver != "inline"
        or not requested_gpus
        or ceil(requested_gpus) <= (num_gpus := local_resources(None)["GPU"])
    ):
        return ""
    return (
        f"a trial requests gpus={requested_gpus:g}, and PyTorch finds {num_gpus:g} on this machine: with "
        "--driver inline the trial runs on the available devices, and its device hours count the GPUs "
        "that it requests"
    )


def _require_precision(plan: Plan) -> None:
    if local_resources(None)["GPU"]:
        return
    for arm in plan.arms:
        if (precision := _precision_on_cuda(arm)) is not None:
            raise InputError(
                f"{PRECISION_PATH} {precision!r} must run on a CUDA device, and PyTorch finds none on this "
                f"machine; give {arm.name} another precision, or launch on a machine with one"
            )


def _precision_on_cuda(arm: Arm) -> str | None:
    """Return a precision of `arm` that needs a CUDA device; None if no precision does."""
    if PRECISION_PATH not in arm.space.paths:
        precisions: tuple[Any, ...] = (lookup(arm.settings, PRECISION_PATH),)
    else:
        match arm.space[PRECISION_PATH].domain:
            case Choice(values):
                precisions = values
            case Fixed(value):
                precisions = (value,)
            case _:
                precisions = ()
    return next((precision for precision in precisions if precision in ON_CUDA), None)
