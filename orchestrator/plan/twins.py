"""No two arms of a plan may behave alike under two names, whatever their settings say."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial

from orchestrator.identity import canonical
from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.declared import Sweep, declared
from orchestrator.plan.effects import differ, effects_where_searched
from orchestrator.plan.faults import Faults
from orchestrator.plan.probe import Probe
from orchestrator.plan.probed_model import close
from orchestrator.plan.settings import widths
from search_spaces.dimensions import key_of
from trainables import catalog
from trainables.task_catalog import task_name
from trainables.types import TaskShape


def check_twins(arms: Sequence[BuiltInArm], probe: Probe, sweep: Sweep, faults: Faults) -> None:
    """Note every arm that does what one before it does.

    Those whose settings of task and training act alike, and whose first losses agree, are looked at closely.
    """
    begun: list[_BegunArm] = []
    for arm in (each for each in arms if not each.request.control):
        acted = cache(partial(_acted, arm, sweep))
        if catalog.is_outside("tasks", task_name(arm.system.task)):
            acted()  # draws what is trained on, which code from outside may fail to give
        with suppress(ValueError):  # reported by the proof
            probe.forward(probe.narrow(arm.system))
            begun.append(_BegunArm(arm, widths(arm.system), acted))
    for place, one in enumerate(begun):
        for other in begun[:place]:
            own = one.arm.reference == other.arm.name  # reported by the proof
            same = other.arm.system.settings == one.arm.system.settings
            # Arms of different contexts are never compared.
            apart = key_of(other.arm.request.context) != key_of(one.arm.request.context)
            if not own and not same and not apart and _behave_alike(one, other, probe, sweep):
                faults.add(
                    f"behaves as {other.arm.name} does, though its settings differ: drop one of them",
                    *(("grid",) if one.arm.request.is_baseline else ("arms", one.arm.request.label)),
                    about=("twin", one.arm.request.label),
                )
                break


def _acted(arm: BuiltInArm, sweep: Sweep) -> str:
    """Settings of task and training as far as they act. Raises ValueError."""
    return canonical({key: value for key, value in declared(arm.system, sweep).items() if key != "steps"})


@dataclass(frozen=True, slots=True)
class _BegunArm:
    """An arm and its first losses."""

    arm: BuiltInArm
    widths: dict[str, int | None]
    acted: Callable[[], str]
    """How its settings of task and training act: asked for only where losses agree, for it takes longer."""
    losses: dict[int, float | None] = field(default_factory=dict)
    """By the number that all widths are divided by; None where that cannot be trained."""


def _behave_alike(one: _BegunArm, other: _BegunArm, probe: Probe, sweep: Sweep) -> bool:
    """Whether nothing tells them apart; False where what would cannot be run here, for want of memory."""
    try:
        # With equal widths first losses are known already; with others models would have to be run for them.
        if one.widths == other.widths and not _begin_alike(one, other, probe):
            return False
        # Part of how both act that is known without drawing data.
        if _shape(one) != _shape(other):
            return False
        if one.acted() != other.acted() or not _begin_alike(one, other, probe):
            return False
        if differ(probe, other.arm.system, one.arm.system, sweep):
            return False
        left_out = {*one.arm.request.drop, *other.arm.request.drop}
        return not effects_where_searched(probe, other.arm.system, one.arm.system, sweep, left_out)
    except ValueError:
        return False


def _shape(begun: _BegunArm) -> TaskShape:
    """What a model must know of the task, as far as it acts, see `declared`."""
    return replace(begun.arm.system.shape, steps_max=None)


def _begin_alike(one: _BegunArm, other: _BegunArm, probe: Probe) -> bool:
    """Whether the first losses agree of models that are equal if the arms are, see `Probe.narrow_pair`."""
    factor = probe.factor(one.widths, other.widths)
    first, second = (_loss(each, factor, probe) for each in (one, other))
    if first is None or second is None:
        first, second = (_loss(each, 1, probe) for each in (one, other))
    return first is not None and second is not None and close(first, second)


def _loss(begun: _BegunArm, factor: int, probe: Probe) -> float | None:
    if factor not in begun.losses:
        system = probe.divided(begun.arm.system, factor)
        can = factor == 1 or system is not begun.arm.system
        begun.losses[factor] = probe.inference(system).loss if can else None
    return begun.losses[factor]
