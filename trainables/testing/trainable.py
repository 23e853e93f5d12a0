"""Test training code: it must be repeatable, resume bit for bit, and report the metrics it declares."""

import copy
import math
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainables.custom import outside
from trainables.custom.generator_state import seed_generators
from trainables.custom.outside import Trainable
from trainables.metrics import Metric, split_and_quantity
from trainables.protocol import Job, Measurement, Workload
from trainables.testing.child_process import run_in_child
from trainables.testing.contract import REPORTS_MAX, Contract, check, contract_class, run_uninterrupted

Raw = dict[str, Any]


class TrainableContract(Contract):
    """Tests of a function `train(settings, trial)` or of a class with the Workload protocol.

    A subclass sets `trainable`, and `settings` of a trial that ends within seconds with at least two reports.
    It may set `arms`, `splits`, `seed` and `machine`.
    """

    trainable: ClassVar[str] = ""
    """Path `module:name`, as in a spec."""
    settings: ClassVar[Mapping[str, Any]] = {}
    """All settings of a short trial, as in the baseline of a spec."""
    arms: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Further trials by name, as changes to `settings`."""
    splits: ClassVar[tuple[str, ...]] = ("test",)
    """Test splits that confirmed trials measure; empty if the code has none."""
    seed: ClassVar[int] = 1
    """Seed of all trials."""
    machine: ClassVar[frozenset[str]] = frozenset()
    """Metrics that measure the machine, such as a speed; only these may differ between equal trials."""

    def every_trial(self) -> dict[str, Raw]:
        """Return the settings of each trial by name."""
        if not self.trainable:
            raise ValueError("a contract must name its trainable, got none; set `trainable` in the class")
        self.load_trainable()
        return {"baseline": dict(self.settings)} | {
            name: dict(self.settings) | dict(changed) for name, changed in self.arms.items()
        }

    def load_trainable(self) -> Trainable:
        """Return the trainable at `trainable`. Raises ValueError if it cannot be used."""
        return outside.load(self.trainable)

    def job(self, raw: Mapping[str, Any], tmp_path: Path, *, is_confirmation: bool = True) -> Job:
        """Return a confirm trial, which evaluates the test splits, or a search trial."""
        data = tmp_path / "data"
        settings = copy.deepcopy(dict(self._validated(raw)))
        if is_confirmation:
            return Job(settings, self.seed, "confirm", self.splits, data)
        return Job(settings, self.seed, data_dir=data)

    def test_settings_are_accepted_and_survive_a_round_trip(self, trial: Raw) -> None:
        """Check settings with the declared `config`, if any, after a round trip through JSON."""
        if (config := self.load_trainable().config) is None:
            return
        parsed = config.model_validate(trial)
        strange = list(outside.dropped_fields(trial, parsed.model_dump(mode="json"), ""))
        check(not strange, f"config must know all settings, got none for {', '.join(sorted(strange))}")
        parsed_again = config.model_validate(parsed.model_dump(mode="json"))
        check(
            parsed_again == parsed,
            f"settings written as JSON must be read as they were: {parsed!r}, {parsed_again!r}",
        )

    def test_reports_are_in_order_and_finite(self, trial: Raw, tmp_path: Path) -> None:
        """Check that steps and seconds grow, and that metrics are finite numbers."""
        job = self.job(trial, tmp_path)
        settings_before = copy.deepcopy(job.settings)
        measurements, workload = self._run(job)
        check(measurements, "a trial must report at least once, got no report")
        steps, seconds = (
            [measurement.step for measurement in measurements],
            [measurement.seconds for measurement in measurements],
        )
        is_growing = all(step < next_step for step, next_step in pairwise(steps))
        check(is_growing, f"steps must grow from report to report, got {steps}")
        check(seconds == sorted(seconds) and seconds[0] >= 0, f"seconds must never shrink, got {seconds}")
        for name, value in (
            (name, value) for measurement in measurements for name, value in measurement.metrics.items()
        ):
            is_finite = isinstance(value, int | float | np.number) and math.isfinite(value)
            check(is_finite, f"{name} must be a finite number, got {value!r}")
        check(workload == settings_before, f"settings must not be changed, got {workload}")

    def test_metrics_are_as_declared(self, trial: Raw, tmp_path: Path) -> None:
        """Check that each declared metric is measured and remains in its range."""
        measurements, _ = self._run(self.job(trial, tmp_path))
        for metric in self.load_trainable().metrics:
            values = _values(metric, measurements)
            check(values, f"{metric.name} is declared and must be reported, got no value of it")
            low, high = metric.span
            values_out_of_range = [value for value in values if not low <= value <= high]
            message = f"{metric.name} is declared to be from {low} to {high}, got {values_out_of_range}"
            check(not values_out_of_range, message)

    def test_only_confirmations_measure_test_splits(self, trial: Raw, tmp_path: Path) -> None:
        """Check that only the last report of confirm trials contains test metrics."""
        for is_confirmation in (True, False):
            measurements, _ = self._run(self.job(trial, tmp_path, is_confirmation=is_confirmation))
            for split in self.splits:
                steps_with_tests = [
                    measurement.step
                    for measurement in measurements
                    for name in measurement.metrics
                    if name.startswith(f"{split}/")
                ]
                expected = is_confirmation or not steps_with_tests
                check(
                    expected, f"{split} must not be measured while searching, was at steps {steps_with_tests}"
                )
                is_as_expected = not is_confirmation or measurements[-1].step in steps_with_tests
                check(is_as_expected, f"{split} must be measured at the last report of a confirmed trial")

    def test_the_same_seed_gives_the_same_numbers(self, trial: Raw, tmp_path: Path) -> None:
        """Check repeatability. Global generators of Python, NumPy and PyTorch are seeded.

        The code has to seed any other generator.
        """
        first_run, second_run = (self._run(self.job(trial, tmp_path))[0] for _ in range(2))
        self._compare(second_run, first_run, "with the same seed")

    def test_trial_stopped_at_every_report_ends_like_an_uninterrupted_one(
        self, trial: Raw, tmp_path: Path
    ) -> None:
        """Check measurements of a trial that is saved, closed and restored into a new one each time."""
        job, checkpoint_folder = self.job(trial, tmp_path), tmp_path / "saved"
        checkpoint_folder.mkdir()
        expected, _ = self._run(job)
        measurements: list[Measurement] = []
        is_finished = False
        while not is_finished:
            measurement, is_finished = run_in_child(
                partial(self._next_report, job, checkpoint_folder, len(measurements))
            )
            measurements += [] if measurement is None else [measurement]
            check(
                len(measurements) <= REPORTS_MAX,
                f"a resumed trial must end, got {REPORTS_MAX:,} reports and no end",
            )
        self._compare(measurements, expected, "stopped and resumed at every report")

    def _run(self, job: Job) -> tuple[list[Measurement], Mapping[str, Any]]:
        """Run a trial in its own process; return its measurements, and the settings afterwards."""

        def run() -> tuple[list[Measurement], Mapping[str, Any]]:
            measurements, workload = run_uninterrupted(self._start_workload, job)
            workload.close()
            return measurements, job.settings

        return run_in_child(run)

    def _next_report(
        self, job: Job, checkpoint_path: Path, num_reported: int
    ) -> tuple[Measurement | None, bool]:
        """Resume from the last checkpoint, if any; return the next report and whether it is the last."""
        workload = self._start_workload(job)
        if num_reported:
            workload.restore(checkpoint_path / str(num_reported))
        measurement = workload.advance()
        if measurement is not None:
            checkpoint = checkpoint_path / str(num_reported + 1)
            checkpoint.mkdir()
            workload.save(checkpoint)
        is_finished = bool(workload.finished)
        workload.close()
        return measurement, is_finished

    def _start_workload(self, job: Job) -> Workload:
        seed_generators(job.seed)
        return self.load_trainable().workload(job)

    def _compare(self, measurements: list[Measurement], expected: list[Measurement], subject: str) -> None:
        steps = [
            [measurement.step for measurement in trial_measurements]
            for trial_measurements in (measurements, expected)
        ]
        check(steps[0] == steps[1], f"{subject} it must report at steps {steps[1]}, got {steps[0]}")
        for actual_measurement, expected_measurement in zip(measurements, expected, strict=True):
            names = (actual_measurement.metrics.keys() | expected_measurement.metrics.keys()) - self.machine
            for name in sorted(names):
                actual_value, expected_value = (
                    actual_measurement.metrics.get(name),
                    expected_measurement.metrics.get(name),
                )
                check(
                    actual_value == expected_value,
                    f"{subject} {name} of step {actual_measurement.step} must be {expected_value!r}, got "
                    f"{actual_value!r}",
                )

    def _validated(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        config = self.load_trainable().config
        return raw if config is None else config.model_validate(dict(raw)).model_dump(mode="json")


def trainable_contract(
    path: str, settings: Mapping[str, Any] | None = None, **attributes: Any
) -> type[TrainableContract]:
    """Return a class of tests for the training code at `module:name`, on trials with these settings.

    Args:
        path: Path `module:name` of the training code.
        settings: All settings of a short trial.
        **attributes: Further attributes of `TrainableContract`.

    Raises:
        ImportError: pytest is not installed.
    """
    return contract_class(TrainableContract, trainable=path, settings=settings or {}, **attributes)


def _values(metric: Metric, measurements: list[Measurement]) -> list[float]:
    """Return all measured values of a metric, on every split."""
    rows = ((name, value) for measurement in measurements for name, value in measurement.metrics.items())
    return [value for name, value in rows if metric.name in (name, split_and_quantity(name)[1])]
