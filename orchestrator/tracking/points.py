"""Values of metrics as MLflow stores them: names that it takes, times that a resend does not change."""

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from orchestrator.identity import digest
from trainables.protocol import Measurement

PREFIX = "haltsweep."
"""Of our tags."""
MAX_NAME = 250
"""Characters of a name in MLflow."""


class Point(NamedTuple):
    """One value of a metric."""

    key: str
    value: float
    at_ms: int
    step: int


def points_of(measurement: Measurement, at_ms: int) -> list[Point]:
    """Finite values in the order of their names; the time is the event's, so that a resend is the same."""
    values = {**measurement.metrics, "time/seconds": measurement.seconds}
    return [
        Point(metric_key(name), float(value), at_ms, measurement.step)
        for name, value in sorted(values.items())
        if math.isfinite(value)
    ]


def metric_key(name: str) -> str:
    """A name that MLflow accepts: short, of letters and few signs, and no path that has a shorter form."""
    parts = re.sub(r"[^\w/.\- :]", "_", name).split("/")
    key = "/".join("_" if part in ("", ".", "..") else part for part in parts)
    if len(key) <= MAX_NAME:
        return key
    short = digest(name)
    return f"{key[: MAX_NAME - len(short) - 1]}_{short}"


def milliseconds(at: float) -> int:
    """Unix milliseconds, MLflow's unit."""
    return round(at * 1000)


def batches(points: Iterable[Point], most: int) -> list[list[Point]]:
    """Parts of at most `most` points. A step is split only if it alone is larger.

    A part is stored whole or not at all, and parts go out in order: so the newest step of a metric in the
    store says exactly what is there.
    """
    found: list[list[Point]] = [[]]
    step: list[Point] = []
    for point in [*points, None]:
        if step and (point is None or point.step != step[0].step):
            if found[-1] and len(found[-1]) + len(step) > most:
                found.append([])
            found[-1] += step
            step = []
        if point is not None:
            step.append(point)
    return [part[at : at + most] for part in found for at in range(0, len(part), most)]
