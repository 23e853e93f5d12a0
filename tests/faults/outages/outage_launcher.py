"""A launching process whose database fails, whose disk fills up, or whose folder disappears.

The process ends as the command does: with its exit code and, after an error, one message.
"""

import argparse
import os
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

from orchestrator.cli.display.progress import View
from orchestrator.errors import HaltsweepError
from orchestrator.execution.live_view import Listeners
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Resources
from tests.faults.kills.chaos import KillableSweep, launch_or_resume
from tests.support.specs.plans import AT_EVERY_REPORT_S, make_arm, make_plan
from tests.support.stores.disks import fill
from tests.support.sweeps.workloads import HURRY

HERE = "here"
"""Value of the option STORAGE for the ledger in the sweep's folder."""


def make_sweep_plan(*, quick: bool = False) -> Plan:
    """Make a plan of long trials with short steps; `quick`: a few steps that take no time."""
    steps, sleep_s = (5, 0.0) if quick else (60, 0.03)
    arms = [make_arm(name, tally=True, steps=steps, sleep_s=sleep_s) for name in ("one", "two")]
    return make_plan(
        arms,
        trials_per_arm=2,
        sampler="random",
        seeds=(7,),
        posthoc=({"model.shift": 0.5},),
        resources=Resources(checkpoint_seconds=AT_EVERY_REPORT_S if quick else 0.2),
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("storage")
    parser.add_argument("--wait", type=float, default=180.0, help="seconds that a database is waited for")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fill-at", type=int, default=0, help="fill the disk of ROOT before this append")
    parser.add_argument("--hurry", action="store_true", help="steps of one process take no time")
    args = parser.parse_args()
    storage = None if args.storage == HERE else args.storage
    sweep = KillableSweep(args.root, make_sweep_plan(quick=args.quick), storage=storage)
    sweep.data.mkdir(parents=True, exist_ok=True)
    watch = Listeners(on_outage=View(sweep.plan).show_outage)
    if args.hurry:
        os.environ[HURRY] = "1"
    try:
        with (
            patch("orchestrator.execution.sweep.open_sweep.PATIENCE_S", args.wait),
            _fill_at_append(args.root, args.fill_at),
        ):
            launch_or_resume(sweep, watch=watch)
    except HaltsweepError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _fill_at_append(disk: Path, number: int) -> Any:
    append, count, lock = Ledger.append, 0, threading.Lock()

    def counted_append(ledger: Ledger, *arguments: Any) -> None:
        nonlocal count
        with lock:
            count += 1
            if count == number:
                fill(disk)
        append(ledger, *arguments)

    return patch.object(Ledger, "append", counted_append)


if __name__ == "__main__":
    sys.exit(main())
