"""Decide which reports of a trial count for its search."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import nan
from statistics import fmean
from typing import Any

from orchestrator.spec.section import Objective
from orchestrator.trials import is_usable
from trainables.protocol import Measurement


class CountedReports:
    """Values of one trial that count for its search, by the scope of each objective.

    A report that lacks an objective does not count.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self._objectives = objectives
        self._last_values = {entry.metric: deque[float](maxlen=entry.mean_of) for entry in objectives}
        self.measurement: Measurement | None = None
        """The report that counts, with the counted values of the objectives."""
        self.reports = 0
        """Number of reports with all objectives."""

    def copy(self) -> "CountedReports":
        """Return an independent copy, to which reports may be added."""
        reports = CountedReports(self._objectives)
        reports._last_values = {name: values.copy() for name, values in self._last_values.items()}
        reports.measurement, reports.reports = self.measurement, self.reports
        return reports

    def to_json(self) -> list[Any]:
        """Return the state as JSON values."""
        counts = self.measurement
        counted_values = counts and [counts.step, counts.seconds, dict(counts.metrics)]
        return [[list(values) for values in self._last_values.values()], counted_values, self.reports]

    @classmethod
    def from_json(cls, objectives: Sequence[Objective], values: Sequence[Any]) -> "CountedReports":
        """Return the reports from the values that `to_json` returned."""
        reports = cls(objectives)
        last_values, counted_values, reports.reports = values
        for kept_values, numbers in zip(reports._last_values.values(), last_values, strict=True):
            kept_values.extend(numbers)
        reports.measurement = counted_values and Measurement(*counted_values)
        return reports

    def add(self, report: Measurement) -> bool:
        """Add a report of the trial; return whether it has a usable value of every objective."""
        values = [report.metrics.get(objective.metric, nan) for objective in self._objectives]
        if not values or not all(map(is_usable, values)):
            return False
        self.reports += 1
        means = {}
        for metric, last_values in self._last_values.items():
            last_values.append(report.metrics[metric])
            means[metric] = last_values[0] if len(last_values) == 1 else fmean(last_values)
        if self.measurement is None or not self._is_worse(report):
            self.measurement = replace(report, metrics={**report.metrics, **means})
        return True

    @property
    def objective_values(self) -> tuple[float, ...]:
        """Return the counted value of every objective; empty before the first report that counts."""
        if self.measurement is None:
            return ()
        return tuple(self.measurement.metrics[objective.metric] for objective in self._objectives)

    def _is_worse(self, report: Measurement) -> bool:
        """Return whether only the best report counts and an earlier report is at least as good."""
        first = self._objectives[0]
        if first.scope != "best":
            return False
        value, best = report.metrics[first.metric], self.objective_values[0]
        return value <= best if first.goal == "max" else value >= best


def counted_name(objective: Objective) -> str:
    """Return the name of an objective with its scope, for tables: `valid/accuracy (best)`."""
    return objective.metric if objective.scope == "last" else f"{objective.metric} ({objective.scope})"
