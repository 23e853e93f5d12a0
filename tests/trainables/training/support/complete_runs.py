"""Run a training to its end, and select the metrics that are equal in every run."""

from trainables.protocol import Measurement
from trainables.training import NONDETERMINISTIC_METRICS, Training


def run(training: Training) -> list[Measurement]:
    measurements = []
    while not training.finished:
        measurements.append(training.advance())
    return measurements


def repeatable_metrics(measurement: Measurement) -> dict[str, float]:
    return {
        name: value for name, value in measurement.metrics.items() if name not in NONDETERMINISTIC_METRICS
    }
