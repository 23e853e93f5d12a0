"""In what two systems differ once they are built and run.

A change that leaves every output as it is still counts if it changes the work: early exit, for one, is an arm
because FLOPs or the layers run differ. What agrees in weights, FLOPs and, to the last bit, in losses,
gradients and layers run on all the weights that were tried is the same system under another name.
"""

from collections.abc import Mapping
from math import isclose
from typing import Protocol

from orchestrator.plan.changes import differences
from orchestrator.plan.probe import POINTS, BackwardPass, Probe
from orchestrator.plan.settings import System

MEASURING_ONLY = frozenset({"eval_batch_size", "eval_tokens", "threads"})
"""Fields of the training settings that change how a trial is measured and run, never what it learns."""
WRITING_ONLY = frozenset({"beam_size", "length_penalty", "decode_length_max", "decode_examples"})
"""Fields that are read where answers are written token by token."""
ROUNDING = 1e-4
"""Relative difference up to which losses and gradients may be the same sums in another order."""


class Built(Protocol):
    """A model, seen from outside."""

    @property
    def modules(self) -> Mapping[str, str]:
        """Class name by qualified module name."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """By qualified parameter name."""


FUNCTIONAL = frozenset({"loss", "gradient", "layers run"})


def effects(probe: Probe, before: System, after: System) -> tuple[str, ...]:
    """Everything in which `after` differs from `before`, by a word each; empty if the change has no effect.

    Settings of task and training that no single step shows (data, steps, learning rate, ...) count as they
    are declared; those the loss reads must change loss or gradient. Raises ValueError for what cannot be run.
    """
    found = [
        *_structural(probe, before, after),
        *_declared(probe, before, after),
        *_seen(probe, before, after, 0),
    ]
    for point in range(1, POINTS):
        if found:
            break
        found = _seen(probe, before, after, point)
    return tuple(found)


def differ(probe: Probe, before: System, after: System) -> bool:
    """Whether `effects` would find anything; cheaper, for it stops at the first difference."""
    if _structural(probe, before, after) or _declared(probe, before, after):
        return True
    for point in range(POINTS):
        if probe.forward(before, point) != probe.forward(after, point):
            return True
    return any(bool(_seen(probe, before, after, point)) for point in range(POINTS))


def _structural(probe: Probe, before: System, after: System) -> list[str]:
    old, new = probe.structure(before), probe.structure(after)
    return [
        *(["weights"] if old.shapes != new.shapes else []),
        *(["FLOPs"] if (old.flops_min, old.flops_max) != (new.flops_min, new.flops_max) else []),
    ]


def _declared(probe: Probe, before: System, after: System) -> list[str]:
    """`task` and `training` if settings differ there that one step need not show."""
    old, new = before.settings["train"], after.settings["train"]
    changed = {change.path.split(".")[0] for change in differences(old, new)} - MEASURING_ONLY
    changed -= WRITING_ONLY if after.shape.head != "sequence" else frozenset()
    return [
        *(["task"] if before.settings["task"] != after.settings["task"] else []),
        *(["training"] if changed and changed - probe.forward(after).objective_reads else []),
    ]


def _seen(probe: Probe, before: System, after: System, point: int) -> list[str]:
    old, new = probe.forward(before, point), probe.forward(after, point)
    gradient, other = probe.gradient(before, point), probe.gradient(after, point)
    loss, turned = _close(old.loss, new.loss), _same_gradient(gradient, other)
    same = old.loss == new.loss and gradient == other
    return [
        *(["loss"] if not loss else []),
        *(["gradient"] if not turned else []),
        *(["layers run"] if old.layers != new.layers else []),
        *(["rounding"] if loss and turned and not same else []),
    ]


def _close(before: float, after: float) -> bool:
    return isclose(before, after, rel_tol=ROUNDING)


def _same_gradient(before: BackwardPass, after: BackwardPass) -> bool:
    """Whether two gradients differ by no more than the order of sums explains."""
    if [name for name, *_ in before.parts] != [name for name, *_ in after.parts]:
        return False
    limit = ROUNDING * max(before.norm, after.norm)
    pairs = zip(before.parts, after.parts, strict=True)
    return all(
        abs(old - new) <= limit
        for (_, *one), (_, *other) in pairs
        for old, new in zip(one, other, strict=True)
    )


def tree_difference(before: Built, after: Built) -> tuple[str, ...]:
    """Outermost modules that only `after` has, then weights both have but of another shape."""
    only = [name for name in after.modules if name not in before.modules]
    outermost = [name for name in only if not any(name.startswith(f"{other}.") for other in only)]
    kinds = [name for name in after.modules if before.modules.get(name, "") not in {"", after.modules[name]}]
    shapes = [
        f"{name} {_shape(shape)}"
        for name, shape in after.shapes.items()
        if before.shapes.get(name, shape) != shape
    ]
    return (*(f"{name}: {after.modules[name]}" for name in [*outermost, *kinds]), *shapes)


def reshaped_share(before: Mapping[str, tuple[int, ...]], after: Mapping[str, tuple[int, ...]]) -> float:
    """Share of the weights, given by their shapes, that both have and that have another shape."""
    shared = before.keys() & after.keys()
    return sum(before[name] != after[name] for name in shared) / max(1, len(shared))


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
