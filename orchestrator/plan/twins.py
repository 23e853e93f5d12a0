"""No two arms of a plan may behave alike under two names, whatever their settings say."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isclose

from orchestrator.identity import canonical
from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.effects import ROUNDING, Sweep, declared, differ
from orchestrator.plan.faults import Faults
from orchestrator.plan.probe import Probe
from orchestrator.plan.settings import divided, widths


def check_twins(arms: Sequence[BuiltInArm], probe: Probe, sweep: Sweep, faults: Faults) -> None:
    """Note every arm that does what one before it does.

    Those whose settings of task and training act alike, and whose first losses agree, are looked at closely.
    """
    groups: dict[str, list[_Begun]] = {}
    for arm in arms:
        acted = {key: value for key, value in declared(arm.system, sweep).items() if key != "steps"}
        with suppress(ValueError):  # told by the proof
            groups.setdefault(canonical(acted), []).append(_begun(arm, probe))
    for group in groups.values():
        for place, one in enumerate(group):
            for other in group[:place]:
                own = one.arm.reference == other.arm.name or one.arm.request.is_baseline
                same = other.arm.system.settings == one.arm.system.settings
                if own or same or not _begin_alike(one, other, probe):
                    continue
                if not differ(probe, other.arm.system, one.arm.system, sweep):
                    faults.add(
                        f"behaves as {other.arm.name} does, though its settings differ: drop one of them",
                        "arms",
                        one.arm.request.label,
                        about=("twin", one.arm.request.label),
                    )
                    break


@dataclass(frozen=True, slots=True)
class _Begun:
    """An arm and its first losses, in models as wide as it takes to compare them."""

    arm: BuiltInArm
    widths: dict[str, int | None]
    narrow_widths: dict[str, int | None]
    narrow_loss: float
    divided_loss: dict[int, float | None] = field(default_factory=dict)
    """By the number that all widths are divided by; None where that cannot be trained."""


def _begun(arm: BuiltInArm, probe: Probe) -> _Begun:
    narrow = probe.narrow(arm.system)
    return _Begun(arm, widths(arm.system), widths(narrow), probe.forward(narrow).loss)


def _begin_alike(one: _Begun, other: _Begun, probe: Probe) -> bool:
    """Whether the first losses agree of models that are equal if the arms are, see `Probe.narrow_pair`."""
    if one.widths == other.widths and one.narrow_widths == other.narrow_widths:
        return isclose(one.narrow_loss, other.narrow_loss, rel_tol=ROUNDING)
    factor = probe.factor(one.widths, other.widths)
    losses = [_divided_loss(each, factor, probe) for each in (one, other)]
    if None in losses:
        losses = [_divided_loss(each, 1, probe) for each in (one, other)]
    first, second = losses
    assert first is not None, "a model as it is was run"
    assert second is not None, "a model as it is was run"
    return isclose(first, second, rel_tol=ROUNDING)


def _divided_loss(begun: _Begun, factor: int, probe: Probe) -> float | None:
    """None where the model cannot be divided by `factor`."""
    if factor not in begun.divided_loss:
        system = divided(begun.arm.system, factor)
        can = factor == 1 or system is not begun.arm.system
        begun.divided_loss[factor] = probe.forward(system).loss if can else None
    return begun.divided_loss[factor]
