"""Learning curves of an arm: what its confirm trials measured, averaged over seeds."""

import math
from dataclasses import dataclass, field

from orchestrator.tracking.mlflow.points import Point, metric_key
from trainables.protocol import Measurement


@dataclass(slots=True)
class ArmCurves:
    """Adds up the measurements of confirm trials that finished.

    A curve is logged once all seeds that the sweep had then have ended, under a name that counts them: when
    seeds are added later, another curve is logged and the first stays what it was.
    """

    _open: dict[str, dict[int, Measurement]] = field(default_factory=dict)
    """By trial that has not ended, and step."""
    _sums: dict[str, dict[int, tuple[int, float]]] = field(default_factory=dict)
    """By metric and step: of how many trials, and their sum."""
    _finished: int = 0
    _published: int = 0

    def hear(self, trial_id: str, measurement: Measurement) -> None:
        """A trial measured something; what it measures again after a lost worker counts once."""
        self._open.setdefault(trial_id, {})[measurement.step] = measurement

    def end(self, trial_id: str, *, finished: bool) -> None:
        """A trial has ended for good; only one that finished has a curve."""
        heard = self._open.pop(trial_id, {})
        if not finished or not heard:
            return
        self._finished += 1
        for step, measurement in heard.items():
            for name, value in measurement.metrics.items():
                if math.isfinite(value):
                    count, total = self._sums.setdefault(name, {}).get(step, (0, 0.0))
                    self._sums[name][step] = (count + 1, total + value)

    def points(self, at_ms: int) -> list[Point]:
        """Means over all finished trials at the steps at which each measured, where there are two at least
        and they are not all the same; nothing if they were returned before."""
        if self._finished <= self._published:
            return []
        self._published = self._finished
        section = f"curve-{self._finished}-seed{'s' * (self._finished > 1)}"
        found = []
        for name, by_step in sorted(self._sums.items()):
            means = {
                step: total / count for step, (count, total) in by_step.items() if count == self._finished
            }
            if len(means) > 1 and len(set(means.values())) > 1:  # what stays the same is no curve
                key = metric_key(f"{section}/{name}")
                found += [Point(key, value, at_ms, step) for step, value in sorted(means.items())]
        return sorted(found, key=lambda point: (point.step, point.key))
