"""A launching process with Ray, to be killed: `python -m tests.faults.kills.ray_launcher ROOT [ADDRESS]`.

With a third argument, the process starts a Ray cluster instead, writes its address to that file and waits."""

import os
import sys
import time
from pathlib import Path

from orchestrator.errors import HaltsweepError
from orchestrator.execution.live_view import Listeners
from orchestrator.execution.ray import supervisor
from orchestrator.execution.ray.environment import RAY_VARIABLES, ray_environment
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Resources
from tests.faults.kills.chaos import KillableSweep, launch_or_resume
from tests.support.specs.plans import AT_EVERY_REPORT_S, make_arm, make_plan

STEPS = 20
RESTARTS = 1
"""Number of restarts of Ray that the launcher allows, fewer than the product."""
HEAD_TIMEOUT_S = "3"
"""A short timeout: without its head, Ray's driver would use a whole processor for long."""


def make_sweep_plan() -> Plan:
    """Make a plan with steps of 30 ms and a checkpoint after every report. Trials pause while a file `hold`
    is in the data folder."""
    arms = [make_arm(name, tally=True, hold=True, steps=STEPS, sleep_s=0.03) for name in ("one", "two")]
    return make_plan(
        arms,
        trials_per_arm=4,
        sampler="random",
        seeds=(7, 8),
        posthoc=({"model.shift": 0.5},),
        resources=Resources(checkpoint_seconds=AT_EVERY_REPORT_S),
    )


def killable_sweep(root: Path) -> KillableSweep:
    """Return the sweep below `root`."""
    return KillableSweep(root, make_sweep_plan())


def run_cluster(file: Path) -> None:
    """Start a Ray cluster that ends with this process."""
    os.environ.update(ray_environment(private=False))
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    file.write_text(ray.get_runtime_context().gcs_address)
    time.sleep(600)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        run_cluster(Path(sys.argv[3]))
    address = sys.argv[2] if len(sys.argv) > 2 else None
    root = Path(sys.argv[1])
    (root / "data").mkdir(parents=True, exist_ok=True)
    supervisor.MAX_RESTARTS = RESTARTS
    RAY_VARIABLES["RAY_gcs_rpc_server_reconnect_timeout_s"] = HEAD_TIMEOUT_S
    try:
        launch_or_resume(
            killable_sweep(root),
            "ray",
            address=address,
            num_cpus=None if address else 2,
            watch=Listeners(on_warning=lambda text: print("warned:", text, flush=True)),
        )
    except HaltsweepError as error:
        print("error:", error, flush=True)
        sys.exit(error.exit_code)
