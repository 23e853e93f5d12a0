"""Posthoc evaluation of own trainables: a confirmed checkpoint measured under other settings."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from trainables.function import FILES, REPORTED
from trainables.protocol import Job, Measurement

Evaluate = Callable[[Mapping[str, Any], Path], Mapping[str, float]]


class Evaluation:
    """Calls `evaluate(settings, folder)` once; `folder` holds what the confirmed trial had saved."""

    def __init__(self, evaluate: Evaluate, job: Job) -> None:
        if job.source is None:
            raise ValueError("a posthoc job must name the checkpoint it reads, got source=None")
        self.finished = False
        """Whether it has been measured."""
        self._evaluate, self._settings, self._source = evaluate, job.settings, job.source

    def advance(self) -> Measurement:
        """The one measurement, at the step at which the training ended."""
        began = perf_counter()
        reported = self._source / REPORTED
        of_function = reported.is_file()
        step = json.loads(reported.read_text(encoding="utf-8"))["step"] if of_function else 0
        metrics = self._evaluate(self._settings, self._source / FILES if of_function else self._source)
        self.finished = True
        return Measurement(step, perf_counter() - began, metrics)

    def save(self, folder: Path) -> None:
        """Nothing was made that is worth keeping."""

    def restore(self, folder: Path) -> None:
        """There is nothing to go on from: it is measured anew."""

    def close(self) -> None:
        """Nothing is held."""
