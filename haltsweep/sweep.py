"""Plan, run and report a sweep from a script or a notebook."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from haltsweep.code import module_path
from orchestrator import read
from orchestrator.cli.display.lease_messages import report_fenced
from orchestrator.cli.earlier_sweeps import read_best_params, read_spread
from orchestrator.cli.locations import data_root, launch_tracking_uri, runs_root
from orchestrator.errors import FaultyInput, InputError
from orchestrator.identity import SweepFolder
from orchestrator.spec import scalars
from orchestrator.spec.document import read_file
from trainables.custom.extensions import add_to_path, is_importing

if TYPE_CHECKING:
    import pyarrow as pa

    from orchestrator.execution.sweep.open_sweep import SweepResult
    from orchestrator.plan.types import Plan
    from orchestrator.report.figures.panels import Image
    from orchestrator.report.results.types import Report
    from orchestrator.spec.load import SpecFile
    from orchestrator.tracking.summary import ArmSummary

Train = Callable[[Mapping[str, Any], Any], object]


@dataclass(frozen=True, slots=True)
class SweepReport:
    """Results of a sweep so far."""

    trials: "pa.Table"
    """One row per trial, see `orchestrator.read.trials`; `trials.to_pandas()` returns a data frame."""
    measurements: "pa.Table"
    """One row per trial, step and metric."""
    summary: "Report"
    """Results of every arm, differences from the baseline, and verdicts."""

    def figures(self) -> "dict[str, Image]":
        """Return the figures of the report by name; a notebook displays them as images."""
        from orchestrator.report.figures.panels import images

        return images(self.summary)


class Sweep:
    """A sweep: a spec together with its training code, which planning imports into this process."""

    def __init__(
        self,
        spec: Mapping[str, Any] | Path | str,
        trainable: Train | type | str | None = None,
        *,
        runs: Path | str | None = None,
    ) -> None:
        """Store the arguments; nothing is read, written or run yet.

        Args:
            spec: A spec as a mapping, or the path of its YAML file.
            trainable: The training function or class, its `module:name`, or the path of a script; by default
                `trainable` of the spec. If a script defines the function, every trial imports the script, so
                the script must call `run` below `if __name__ == "__main__":`. A function of a notebook is
                written to the folder `haltsweep_code` in the current directory.
            runs: Folder of all sweeps; by default $HALTSWEEP_RUNS, else `./runs`.
        """
        self._spec = dict(spec) if isinstance(spec, Mapping) else Path(spec)
        self._trainable = trainable
        self._runs = runs_root(None if runs is None else Path(runs))

    def plan(self) -> "Plan":
        """Return arms, trials and estimates.

        Raises:
            InputError: The spec or the training code is invalid; the message lists every error.
        """
        return self._read_plan()[1]

    def run(
        self,
        driver: Literal["ray", "inline"] = "ray",
        *,
        data: Path | str | None = None,
        tracking: str | None = None,
        address: str | None = None,
        changed_code: bool = False,
        take_over: bool = False,
    ) -> "SweepResult":
        """Run the sweep until it ends; if it was launched before with the same spec, resume it.

        Args:
            driver: `ray` runs trials in parallel, `inline` one after the other.
            data: Folder of all datasets; by default $HALTSWEEP_DATA, else `./data`.
            tracking: MLflow tracking URI, or `none` to disable MLflow; as `haltsweep launch --tracking`.
            address: `HOST:PORT` of a running Ray cluster; by default Ray is started on this machine.
            changed_code: Whether to resume even if training code or data changed after trials had run.
            take_over: Whether to take the sweep over from another session that has ended or hangs.

        Returns:
            The number of trials by outcome, and the exit code of `haltsweep launch`.

        Raises:
            InputError: The spec or the training code is invalid.
            StoreError: The folder or the ledger of the sweep cannot be written.
        """
        from orchestrator.execution.live_view import Listeners
        from orchestrator.execution.signals import interrupts
        from orchestrator.execution.sweep.launch import resume_sweep, run_sweep
        from orchestrator.execution.sweep.launch_folder import DEFAULT_WORKLOAD, Setup, refuse_existing
        from orchestrator.execution.sweep.launch_undo import clear_unstarted
        from orchestrator.plan.serialise import read_plan
        from orchestrator.spec.load import to_yaml

        source, plan = self._read_plan()
        folder = SweepFolder(self._runs / plan.name)
        watch = Listeners(on_end=partial(_write_report, folder))
        on_fenced = report_fenced if take_over else None
        clear_unstarted(folder, on_fenced)
        with interrupts():
            if folder.plan.is_file() and read_plan(folder).spec_digest == plan.spec_digest:
                resume = partial(resume_sweep, folder, driver=driver, address=address, watch=watch)
                return resume(changed_code=changed_code, on_fenced=on_fenced)
            refuse_existing(plan, folder)
            setup = Setup(
                data_root(None if data is None else Path(data)),
                workload=plan.trainable or DEFAULT_WORKLOAD,
                code=os.getcwd(),  # noqa: PTH109 - a text
                tracking_uri=launch_tracking_uri(tracking, self._runs),
                driver=driver,
            )
            return run_sweep(
                plan, folder, setup, to_yaml(source.spec), driver=driver, address=address, watch=watch
            )

    def report(self) -> SweepReport:
        """Return the results so far; the sweep may be running.

        Raises:
            InputError: The sweep was not launched yet.
        """
        name = str(SweepFolder(self._runs / self._name).root)
        return SweepReport(read.trials(name), read.measurements(name), read.report(name))

    @property
    def _name(self) -> str:
        """Name of the sweep, from the spec. Raises InputError if the spec has no name."""
        spec_content = read_file(self._spec).data if isinstance(self._spec, Path) else self._spec
        if not isinstance(spec_content, Mapping) or not isinstance(spec_content.get("name"), str):
            raise InputError("a spec must have a name, got none; write name: my-sweep")
        return str(spec_content["name"])

    def _read_plan(self) -> "tuple[SpecFile, Plan]":
        from orchestrator.plan.planner import plan_file

        if is_importing():
            raise InputError(
                "a script must not start a sweep when it is imported, since every trial imports it; put the "
                'code that starts the sweep below `if __name__ == "__main__":`'
            )
        add_to_path(Path.cwd())
        spec, trainable = self._spec, self._trainable
        if trainable is None and isinstance(spec, dict) and callable(spec.get("trainable")):
            trainable = spec["trainable"]
        overrides = [] if trainable is None else [f"trainable={module_path(trainable, self._name)}"]
        plan = partial(
            plan_file,
            overrides=overrides,
            best_params_of=partial(read_best_params, self._runs),
            spread_of=partial(read_spread, self._runs),
        )
        if isinstance(spec, Path):
            return plan(spec)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "spec.yaml"
            file.write_text(scalars.dump(_plain(spec)), encoding="utf-8")
            try:
                return plan(file)
            except FaultyInput as error:
                faults = [replace(fault, file="spec", line=None) for fault in error.faults]
                raise type(error)(faults) from None


def _plain(spec: Mapping[str, Any]) -> Any:
    """Return `spec` with tuples, paths and NumPy values converted to lists, strings and numbers."""

    def to_plain_value(value: Any) -> Any:
        if callable(getattr(value, "tolist", None)):
            return value.tolist()
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if callable(value):  # only `trainable` is callable, and an override replaces it
            return f"{value.__module__}:{value.__qualname__}"
        raise InputError(
            f"a spec must consist of mappings, lists, strings and numbers, got {type(value).__name__}"
        )

    return json.loads(json.dumps(spec, default=to_plain_value))


def _write_report(folder: SweepFolder) -> "ArmSummary":
    """Write the report to the folder of the sweep; return its summary for MLflow."""
    from orchestrator.cli.commands.track import summarise_arms, write_report
    from orchestrator.cli.stored_sweep import open_stored_sweep

    with open_stored_sweep(str(folder.root), folder.root.parent) as sweep:
        return summarise_arms(write_report(sweep))
