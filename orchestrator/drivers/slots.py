"""How many trials fit on a cluster at once: arithmetic on what its nodes have."""

from collections.abc import Iterable, Mapping
from math import floor

from orchestrator.plan.types import Resources

EPSILON = 1e-4
"""Ray counts resources in ten-thousandths."""


def slots(nodes: Iterable[Mapping[str, float]], wanted: Resources) -> int:
    """Trials that fit on `nodes` (`CPU` and `GPU` of each) at once; a trial never spans nodes.

    A trial takes a share of one GPU, or whole ones.
    """
    return sum(_on_node(node, wanted) for node in nodes)


def _on_node(node: Mapping[str, float], wanted: Resources) -> int:
    room = []
    if wanted.cpus > 0:
        room.append(_times(node.get("CPU", 0.0), wanted.cpus))
    if wanted.gpus >= 1:
        room.append(_times(node.get("GPU", 0.0), wanted.gpus))
    elif wanted.gpus > 0:
        room.append(_times(1.0, wanted.gpus) * floor(node.get("GPU", 0.0) + EPSILON))
    assert room, "a trial must take some of a CPU or a GPU"
    return min(room)


def _times(total: float, part: float) -> int:
    return floor(total / part + EPSILON)
