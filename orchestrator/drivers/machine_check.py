"""Whether that with which a sweep is to run can run a trial at all: asked before anything is written."""

from typing import Literal

from orchestrator.drivers.slots import require_room, this_machine
from orchestrator.errors import InputError
from orchestrator.plan.types import Arm, Plan
from search_spaces.dimensions import Choice, Fixed
from search_spaces.paths import lookup

Driver = Literal["ray", "inline"]
PRECISION = "train.precision"
HALF = "fp16"


def require_means(plan: Plan, driver: Driver, num_cpus: int | None) -> None:
    """Raises InputError if this machine, with `num_cpus`, lacks what a trial of `plan` asks for."""
    if driver == "ray":
        require_room([this_machine(num_cpus)], plan.resources)
    if plan.trainable is None:
        _require_half_precision(plan)


def _require_half_precision(plan: Plan) -> None:
    if not this_machine(None)["GPU"] and (arm := next(filter(_wants_half, plan.arms), None)):
        raise InputError(
            f"{PRECISION} {HALF!r} must run on a CUDA device, and PyTorch finds none on this machine; "
            f"give {arm.name} another precision, or launch where there is one"
        )


def _wants_half(arm: Arm) -> bool:
    if PRECISION not in arm.space.paths:
        return bool(lookup(arm.settings, PRECISION) == HALF)
    match arm.space[PRECISION].domain:
        case Choice(values):
            return HALF in values
        case Fixed(value):
            return value == HALF
        case _:
            return False
