"""Run a sweep in a process that a test kills.

Run as `python -m tests.support.sweeps.inline_sweep FOLDER [CHANGES]`. With CHANGES the process kills itself
by SIGKILL after so many recorded changes.
"""

import os
import signal
import sys
from pathlib import Path

from orchestrator.execution.inline import run_inline
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.workloads import PATH


def plan() -> Plan:
    """Return a plan with every phase and two arms; one of them kills its process twice."""
    arms = [make_arm("steady", tally=True), make_arm("deadly", tally=True, fault="kill", fault_at=3, kills=1)]
    sampler = {"name": "tpe", "n_startup_trials": 1}
    return make_plan(arms, trials_per_arm=2, sampler=sampler, seeds=(7,), posthoc=({"model.shift": 0.5},))


def main(root: Path, kill_after: int | None) -> None:
    """Run one session of `plan`."""
    folder, changes = SweepFolder(root), 0
    root.mkdir(parents=True, exist_ok=True)

    def count_change() -> None:
        nonlocal changes
        changes += 1
        if changes == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    with Ledger.open(folder.ledger_url, "synthetic", create=True) as ledger:
        lease = ledger.claim(Holder.current())
        recorder = Recorder(plan(), ledger, lease, folder)
        run_inline(
            recorder,
            PATH,
            data_dir=root / "data",
            checkpoint_seconds=0.0,
            on_change=count_change,
        )
        recorder.close()
        ledger.release(lease)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
