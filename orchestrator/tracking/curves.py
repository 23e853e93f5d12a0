"""Compute the learning curves of an arm: metrics of its confirm trials, averaged over seeds."""

import math
from dataclasses import dataclass, field

from orchestrator.tracking.mlflow.points import Point, metric_key
from trainables.protocol import Measurement


@dataclass(slots=True)
class ArmCurves:
    """Sums of the measurements of finished confirm trials.

    A curve is logged when all seeds of the sweep have ended, under a name with their number. Seeds added
    later create another curve.
    """

    _open: dict[str, dict[int, Measurement]] = field(default_factory=dict)
    """Measurements by running trial and step."""
    _sums: dict[str, dict[int, tuple[int, float]]] = field(default_factory=dict)
    """Number of trials and sum of their values, by metric and step."""
    _finished: int = 0
    _published: int = 0

    def add(self, trial_id: str, measurement: Measurement) -> None:
        """Add a measurement; if a worker was lost, a trial may measure a step again."""
        self._open.setdefault(trial_id, {})[measurement.step] = measurement

    def end(self, trial_id: str, *, finished: bool) -> None:
        """End a trial; only a finished trial counts."""
        measurements = self._open.pop(trial_id, {})
        if not finished or not measurements:
            return
        self._finished += 1
        for step, measurement in measurements.items():
            for name, value in measurement.metrics.items():
                if math.isfinite(value):
                    count, total = self._sums.setdefault(name, {}).get(step, (0, 0.0))
                    self._sums[name][step] = (count + 1, total + value)

    def points(self, at_ms: int) -> list[Point]:
        """Return the means over all finished trials; empty if they were returned before.

        A mean is computed only for a step with a value of every trial. A curve needs two different means.
        """
        num_trials = self._finished
        if num_trials <= self._published:
            return []
        self._published = num_trials
        section = f"curve-{num_trials}-seed{'s' * (num_trials > 1)}"
        curve = []
        for name, sums in self._sums.items():
            means = {step: total / count for step, (count, total) in sums.items() if count == num_trials}
            if len(set(means.values())) > 1:
                key = metric_key(f"{section}/{name}")
                curve += [Point(key, value, at_ms, step) for step, value in means.items()]
        return sorted(curve, key=lambda point: (point.step, point.key))
