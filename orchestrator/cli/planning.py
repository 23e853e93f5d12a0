"""Read and plan a spec for commands, and display progress if planning takes long."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.display.wait_display import WaitDisplay
from orchestrator.cli.earlier_sweeps import read_best_params, read_spread

if TYPE_CHECKING:
    from orchestrator.plan.ablation_check.probe import Probe
    from orchestrator.plan.types import Plan
    from orchestrator.spec.load import SpecFile

DISPLAY_DELAY_S = 10.0
"""Seconds before progress is displayed, since small plans are faster even on a busy machine."""


@contextmanager
def planning_display() -> Iterator[WaitDisplay]:
    """Display progress while planning, which imports custom code that may never return.

    Output of that code goes to standard error, since standard output contains only the answer of a command.
    """
    hint = "Ctrl-C ends planning; nothing is written"
    with redirect_stdout(sys.stderr), WaitDisplay(hint, "planning", first_s=DISPLAY_DELAY_S) as wait_display:
        yield wait_display


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
) -> "tuple[SpecFile, Plan]":
    """Read and plan a spec as `plan_file` does.

    Faults of the file itself are reported without importing PyTorch.

    Args:
        path: The spec file.
        overrides: Overrides of the spec.
        profile: Profile of the spec to apply.
        calibrate: Whether to time training steps of every arm.
        probe: Creates a probe when it is needed.
        runs: Folder of earlier sweeps whose best params are tried first.

    Raises:
        SpecError: The spec is invalid; the message lists all faults.
        PlanError: The plan is invalid; the message lists all faults.
    """
    # Imported here, since commands that read no spec must start quickly.
    from orchestrator.plan.plan_input import read_plannable_spec

    source = read_plannable_spec(path, overrides, profile)
    from orchestrator.plan.planner import plan_file

    with planning_display() as wait_display:
        return plan_file(
            path,
            overrides,
            profile,
            calibrate=calibrate,
            on_progress=wait_display.update,
            probe=probe() if probe is not None else None,
            best_params_of=partial(read_best_params, runs),
            spread_of=partial(read_spread, runs),
            parsed=source,
        )
