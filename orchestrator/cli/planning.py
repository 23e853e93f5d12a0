"""Read and plan a spec for commands, and display progress if planning takes long."""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from orchestrator.cli.display.console import err
from orchestrator.cli.display.wait_display import WaitDisplay
from orchestrator.cli.earlier_sweeps import read_best_params, read_spread

if TYPE_CHECKING:
    from orchestrator.execution.sweep.launch_folder import Setup
    from orchestrator.plan.ablation_check.probe import Probe
    from orchestrator.plan.types import Plan
    from orchestrator.spec.load import SpecFile

T = TypeVar("T")

DISPLAY_DELAY_S = 10.0
"""Seconds before progress is displayed, since small plans are faster even on a busy machine."""


@contextmanager
def planning_display() -> Iterator[Callable[[str], None]]:
    """Display progress while planning; yield a function that shows the current step.

    Planning imports custom code, which may never return. Its output goes to standard error, since standard
    output contains only the answer of a command.
    """
    from orchestrator.isolation.forked import report_step

    hint = "Ctrl-C ends planning; nothing is written"
    with redirect_stdout(sys.stderr), WaitDisplay(hint, "planning", first_s=DISPLAY_DELAY_S) as wait_display:

        def show_step(step: str) -> None:
            wait_display.update(step)
            report_step(step)

        yield show_step


def omitted_results(source: "SpecFile") -> str:
    """Return a sentence on published results that overrides or a profile exclude; empty if none."""
    num_rows = source.document.left_out
    if not num_rows:
        return ""
    subject = "1 published row is" if num_rows == 1 else f"{num_rows} published rows are"
    return (
        f"{subject} left out: overrides or the profile change the arm's training, or remove the published "
        "re-evaluation."
    )


def read_and_plan(
    path: Path,
    overrides: Sequence[str] = (),
    profile: str | None = None,
    *,
    calibrate: bool = False,
    probe: "Callable[[], Probe] | None" = None,
    runs: Path | None = None,
    parsed: "SpecFile | None" = None,
) -> "tuple[SpecFile, Plan]":
    """Read and plan a spec as `plan_file` does, in a child process if the spec names custom code.

    Faults of the file itself are reported without importing PyTorch.

    Args:
        path: The spec file.
        overrides: Overrides of the spec.
        profile: Profile of the spec to apply.
        calibrate: Whether to time training steps of every arm.
        probe: Creates a probe when it is needed.
        runs: Folder of earlier sweeps whose best params are tried first.
        parsed: The spec, if it has been read already with these overrides and this profile.

    Raises:
        SpecError: The spec is invalid; the message lists all faults.
        PlanError: The plan is invalid; the message lists all faults.
    """
    # Imported here, since commands that read no spec must start quickly.
    from orchestrator.plan.plan_input import read_plannable_spec

    source = parsed if parsed is not None else read_plannable_spec(path, overrides, profile)
    from orchestrator.plan.planner import plan_file

    def plan() -> "tuple[SpecFile, Plan]":
        with planning_display() as show_step:
            return plan_file(
                path,
                overrides,
                profile,
                calibrate=calibrate,
                on_progress=show_step,
                probe=probe() if probe is not None else None,
                best_params_of=partial(read_best_params, runs),
                spread_of=partial(read_spread, runs),
                parsed=source,
            )

    return isolate_custom_code(source, plan)


def isolate_custom_code(source: "SpecFile", function: Callable[[], T]) -> T:
    """Return the result of `function`, which runs in a child process if `source` names custom code.

    Raises:
        PlanError: Custom code ended the child process.
    """
    from orchestrator.errors import FaultCode, PlanError
    from orchestrator.isolation.forked import CustomCodeCrashed, run_forked

    if not (places := _custom_code_places(source)):
        return function()
    # Children and a later launch in this process share these imports.
    importlib.import_module("orchestrator.plan.planner")
    if source.spec.search is not None:
        importlib.import_module("orchestrator.search.sampler_check")
    try:
        return run_forked(function)
    except CustomCodeCrashed as crash:
        named_places = [keys for module, keys in places.items() if f"importing {module};" in str(crash)]
        keys = [*named_places, *places.values()][0]
        raise PlanError([source.fault(str(crash), *keys, code=FaultCode.CUSTOM_CODE)]) from None
    finally:
        err().show_cursor()  # the display of a child that crashed has hidden it


def check_trainable(setup: "Setup") -> None:
    """Import the custom trainable of a launched sweep in a child process.

    Raises:
        InputError: The trainable cannot be imported.
    """
    from orchestrator.execution.sweep.launch_folder import DEFAULT_WORKLOAD
    from orchestrator.execution.trial.worker import load_workload
    from orchestrator.isolation.forked import run_forked
    from trainables.custom.extensions import add_to_path

    def load() -> None:
        with planning_display() as show_step:
            show_step(f"importing {setup.workload}")
            load_workload(setup.workload)

    if setup.code is not None:
        add_to_path(Path(setup.code))
    if setup.workload != DEFAULT_WORKLOAD:
        run_forked(load)


def _custom_code_places(source: "SpecFile") -> dict[str, tuple[str, ...]]:
    """Return the keys of the spec that name custom code, by module or a text for all models and tasks."""
    from orchestrator.spec.sizes import names_custom_model_or_task
    from trainables.custom.extensions import is_module_name

    spec = source.spec
    places: dict[str, tuple[str, ...]] = {}
    if spec.trainable is not None:
        places[spec.trainable] = ("trainable",)
    if names_custom_model_or_task(source.document.data):
        places["models and tasks"] = ("baseline",)
    search = spec.search
    for key, component in (("sampler", search.sampler), ("stopper", search.stopper or {})) if search else ():
        if is_module_name(name := component.get("name")):
            places[str(name).rpartition(".")[0]] = ("search", key)
    return places
