"""What a search varies must be able to move what it goes by.

Early exit leaves every result as it is, and how answers are written decides nothing of what is measured
without writing any: searched for the sake of that, they make equal trials, and what is chosen of them is
chance.
"""

from collections.abc import Sequence

from orchestrator.plan.declared import Sweep, declared_effects
from orchestrator.plan.effects import (
    SOME,
    costs_differ,
    dropped_alike,
    quick_first,
    results_differ,
)
from orchestrator.plan.metrics import VALID, written
from orchestrator.plan.moved_weights import POINTS
from orchestrator.plan.probe import Probe
from orchestrator.plan.probed_model import EXAMPLES, LENGTH, made_batch, same_gradient
from orchestrator.plan.settings import System
from trainables.metrics import Metric, look_up
from trainables.training import evaluate, workload

WRITING = "writing"


def moves(
    probe: Probe,
    before: System,
    after: System,
    sweep: Sweep,
    *,
    objectives: Sequence[str],
    metrics: Sequence[Metric],
) -> bool:
    """Whether some objective can be another one with `after` than with `before`, which differ in something.

    Raises ValueError for what cannot be run.
    """
    shown = set(declared_effects(probe, before, after, sweep))
    if shown - {WRITING} or (WRITING in shown and not _written(before).isdisjoint(objectives)):
        return True
    if (before.model, before.shape) == (after.model, after.shape):
        return not shown  # what neither is declared nor of the model is not known here
    if any(_counts_work(name, metrics) for name in objectives):
        return True
    if probe.shapes(before) != probe.shapes(after):
        return True
    if any(_measure_otherwise(probe, *pair) for pair in quick_first(probe, before, after)):
        return True
    return not dropped_alike(probe, before, after)


def _written(system: System) -> set[str]:
    """All that is measured of written answers."""
    batch = made_batch(system.shape, min(LENGTH, system.shape.length_max))
    return {f"{VALID}/{name}" for name in written(system, batch)}


def _counts_work(name: str, metrics: Sequence[Metric]) -> bool:
    known = look_up(metrics, name)
    return known.moves_with == evaluate.SAVED or known in workload.metrics


def _measure_otherwise(probe: Probe, before: System, after: System) -> bool:
    """Whether losses, gradients or depths differ: they do not where only other layers are run for them."""
    return (
        costs_differ(probe, before, after, 0)
        # Few examples are read soon, and mostly have been read before.
        or results_differ(probe, before, after, 0, EXAMPLES)
        or any(_learn_otherwise(probe, before, after, point) for point in range(POINTS))
        or any(results_differ(probe, before, after, point, SOME) for point in range(POINTS))
    )


def _learn_otherwise(probe: Probe, before: System, after: System, point: int) -> bool:
    if costs_differ(probe, before, after, point):
        return True
    return not same_gradient(probe.gradient(before, point), probe.gradient(after, point))
