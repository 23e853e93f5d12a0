"""Whether a change gives weights other names and does nothing else.

Initial weights and moved ones come from streams named after parameters, so a system whose modules have other
names seems to be another one. It is run with the weights of the one that it is compared with.
"""

from collections.abc import Mapping

from orchestrator.plan.moved_weights import POINTS
from orchestrator.plan.probe import Probe
from orchestrator.plan.probed_model import READ_LENGTH, close, same_gradient
from orchestrator.plan.settings import System


def only_renamed(probe: Probe, before: System, after: System) -> bool:
    """Whether `after`, with the weights of `before`, gives what `before` gives, at all weights tried.

    Raises ValueError for what cannot be run.
    """
    if before.train != after.train:
        return False
    names = _names(probe.shapes(before).parameters, probe.shapes(after).parameters)
    return names is not None and all(_alike(probe, before, after, names, point) for point in range(POINTS))


def other_names(probe: Probe, before: System, after: System) -> bool:
    """Whether both have the same weights but for some names, which is known before anything runs."""
    return _names(probe.shapes(before).parameters, probe.shapes(after).parameters) is not None


def _names(
    before: Mapping[str, tuple[int, ...]], after: Mapping[str, tuple[int, ...]]
) -> dict[str, str] | None:
    """Name in `before` by name in `after`, in order where they differ; None where shapes or no names do."""
    gone = [name for name in before if name not in after]
    new = [name for name in after if name not in before]
    names = {name: name for name in after if name in before} | dict(zip(new, gone, strict=False))
    if not new or len(new) != len(gone) or any(before[names[name]] != after[name] for name in after):
        return None
    return names


def _alike(probe: Probe, before: System, after: System, names: Mapping[str, str], point: int) -> bool:
    forward, gradient, measured = probe.borrowed(after, before, names, point)
    known, by = probe.forward(before, point), probe.gradient(before, point)
    if forward.layers != known.layers or not close(forward.loss, known.loss):
        return False
    if not all(map(close, forward.costs, known.costs)) or not same_gradient(by.in_order(), gradient):
        return False
    reading = probe.reading(before, point, READ_LENGTH)
    return len(reading) == len(measured) and all(map(close, reading, measured))
