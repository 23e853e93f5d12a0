"""A launching process with Ray, to be killed: `python -m tests.faults.kills.ray_launcher ROOT [ADDRESS]`.

It writes MLflow where there is a file ROOT/mlflow.db, which may be empty: MLflow loads as long as the sweep
takes. With a third argument it is the cluster instead: it writes its address there and waits.
"""

import os
import sys
import time
from pathlib import Path

from orchestrator.errors import HaltsweepError
from orchestrator.execution.live_view import Listeners
from orchestrator.execution.ray.environment import SETTINGS, ray_environment
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Resources
from tests.faults.kills.chaos import Place, go
from tests.support.specs.plans import AT_EVERY_REPORT_S, make_arm, make_plan

STEPS = 20
MLFLOW = "mlflow.db"
HEAD_GONE_S = "3"
"""Instead of the patience for busy networks: without its head, Ray's driver takes a whole processor."""


def sweep() -> Plan:
    """Long enough to be killed in the middle: a step takes 30 ms, a checkpoint follows every report.

    No step is taken while there is a file `hold` in the data folder.
    """
    arms = [make_arm(name, tally=True, hold=True, steps=STEPS, sleep_s=0.03) for name in ("one", "two")]
    return make_plan(
        arms,
        trials_per_arm=4,
        sampler="random",
        seeds=(7, 8),
        posthoc=({"model.shift": 0.5},),
        resources=Resources(checkpoint_seconds=AT_EVERY_REPORT_S),
    )


def place(root: Path) -> Place:
    """With MLflow beside it, where that is asked for."""
    mlflow = root / MLFLOW
    return Place(root, sweep(), f"sqlite:///{mlflow}" if mlflow.exists() else None)


def be_a_cluster(file: Path) -> None:
    """Ends with its process."""
    os.environ.update(ray_environment(private=False))
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    file.write_text(ray.get_runtime_context().gcs_address)
    time.sleep(600)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        be_a_cluster(Path(sys.argv[3]))
    address = sys.argv[2] if len(sys.argv) > 2 else None
    root = Path(sys.argv[1])
    (root / "data").mkdir(parents=True, exist_ok=True)
    SETTINGS["RAY_gcs_rpc_server_reconnect_timeout_s"] = HEAD_GONE_S
    try:
        go(
            place(root),
            "ray",
            address=address,
            num_cpus=None if address else 2,
            watch=Listeners(on_trouble=lambda text: print("warned:", text, flush=True)),
        )
    except HaltsweepError as error:
        print("error:", error, flush=True)
        sys.exit(error.exit_code)
