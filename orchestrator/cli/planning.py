"""Reads and plans a spec for the commands, and says how far that is when it takes its time."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.earlier import found_by, spread_of
from orchestrator.cli.waiting import Waiting

if TYPE_CHECKING:
    from orchestrator.plan.probe import Probe
    from orchestrator.plan.types import Plan
    from orchestrator.spec.load import SpecFile

FIRST_S = 10.0
"""A plan of a few arms is made sooner, on a busy machine too."""


def planned(
    path: Path,
    overrides: Sequence[str] = (),
    profile: str | None = None,
    *,
    calibrate: bool = False,
    probe: "Probe | None" = None,
    runs: Path | None = None,
) -> "tuple[SpecFile, Plan]":
    """As `plan_file`; sweeps whose best points are tried first are looked for in `runs`.

    Raises `SpecError` or `PlanError` with all faults at once.
    """
    from orchestrator.plan.planner import plan_file

    with Waiting("Ctrl-C ends it, nothing is written", "planning", first_s=FIRST_S) as waiting:
        return plan_file(
            path,
            overrides,
            profile,
            calibrate=calibrate,
            on_progress=waiting.update,
            probe=probe,
            found=partial(found_by, runs),
            spread_of=partial(spread_of, runs),
        )
