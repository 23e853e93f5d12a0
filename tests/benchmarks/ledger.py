"""What the ledger and its projections cost, as one JSON line a figure.

    python -m tests.benchmarks.ledger [--trials 10000] [--steps 5] [--projected 500] [--dir DIR]

Targets: one event under 5 ms with the given number of trials in the ledger, reopening it (all events read and
folded to records) under 2 s, an MLflow run (created, logged, ended) about 20 ms.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from orchestrator.identity import SweepFolder
from orchestrator.ledger import events as log
from orchestrator.ledger.fold import records
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import to_json
from orchestrator.plan.types import Plan
from orchestrator.tracking.mlflow.mlflow_runs import default_uri
from orchestrator.tracking.mlflow.mlflow_writer import MlflowWriter
from orchestrator.tracking.parquet import ParquetFiles, read_records
from orchestrator.tracking.sync import artifact_root
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.histories import history, trial_of
from trainables.protocol import Measurement

METRICS = ("train/loss", "valid/accuracy", "valid/depth", "valid/loss", "valid/ponder", "valid/saved")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--projected", type=int, default=500)
    parser.add_argument("--dir", type=Path, default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        whole = SweepFolder(Path(folder) / "whole" / "synthetic")
        plan = realistic_plan(args.trials)
        measure_log(whole, plan, args.steps)
        measure_reopening(whole, plan)
        measure_parquet(whole, plan)
        some = SweepFolder(Path(folder) / "some" / "synthetic")
        measure_mlflow(some, realistic_plan(args.projected), args.steps)


def realistic_plan(trials: int) -> Plan:
    """Five arms with as many settings as a real one has."""
    fields = {f"field_{number}": number for number in range(30)}
    return make_plan(
        [make_arm(f"arm-{each}", shade=each, **fields) for each in range(5)],
        trials_per_arm=trials // 5,
        seeds=(),
    )


def realistic_history(plan: Plan, steps: int) -> Iterator[log.Event]:
    for event in history(plan, seed=1, steps=steps):
        if event.kind is log.EventKind.MEASURED and event.trial_id is not None:
            step = event.payload["step"]
            values = Measurement(step, step / 7, dict.fromkeys(METRICS, 1 / (step + 3)))
            yield log.measured(event.at, event.trial_id, values)
        else:
            yield event


def launch(folder: SweepFolder, plan: Plan) -> Ledger:
    folder.root.mkdir(parents=True)
    folder.plan.write_text(to_json(plan), encoding="utf-8")
    return Ledger.open(folder.ledger_url, folder.name, create=True)


def measure_log(folder: SweepFolder, plan: Plan, steps: int) -> None:
    """Every event in a transaction of its own, timed while the ledger grows and once it is full."""
    with launch(folder, plan) as ledger:
        lease = ledger.claim(Holder.current())
        events = list(realistic_history(plan, steps))
        took = []
        for event in events:
            began = time.perf_counter()
            ledger.append([event], lease)
            took.append(time.perf_counter() - began)
        extra = replace(trial_of(plan, 0), planned=replace(plan.trials[0], trial_id="extra"))
        ledger.append([log.asked(1.0, extra)], lease)
        full = []
        for step in range(500):
            began = time.perf_counter()
            ledger.append(
                [log.measured(1.0, "extra", Measurement(step, 1.0, dict.fromkeys(METRICS, 0.5)))], lease
            )
            full.append(time.perf_counter() - began)
        ledger.release(lease)
    show(
        "one event",
        trials=len(plan.trials),
        events=len(events),
        mean_ms=1000 * statistics.fmean(took),
        p99_ms=1000 * statistics.quantiles(took, n=100)[98],
        mean_when_full_ms=1000 * statistics.fmean(full),
        file_mb=folder.ledger.stat().st_size / 1e6,
    )


def measure_reopening(folder: SweepFolder, plan: Plan) -> None:
    began = time.perf_counter()
    with Ledger.open(folder.ledger_url, folder.name) as ledger:
        found = records(ledger.events(), plan)
    show("reopening", records=len(found), seconds=time.perf_counter() - began)


def measure_parquet(folder: SweepFolder, plan: Plan) -> None:
    with Ledger.open(folder.ledger_url, folder.name) as ledger:
        files = ParquetFiles(folder, plan, ledger)
        began = time.perf_counter()
        count = files.update()
        made = time.perf_counter() - began
        began = time.perf_counter()
        again = files.update()
        idle = time.perf_counter() - began
    began = time.perf_counter()
    read = len(read_records(folder))
    show(
        "parquet",
        files=count,
        seconds=made,
        again=again,
        idle_s=idle,
        read=read,
        read_s=time.perf_counter() - began,
    )


def measure_mlflow(folder: SweepFolder, plan: Plan, steps: int) -> None:
    with launch(folder, plan) as ledger:
        lease = ledger.claim(Holder.current())
        ledger.append(list(realistic_history(plan, steps)), lease)
        ledger.release(lease)
        uri = default_uri(folder.root)
        began = time.perf_counter()
        mirror = MlflowWriter(uri, plan, ledger, artifact_root(folder))
        connected = time.perf_counter() - began
        began = time.perf_counter()
        counts = mirror.update()
        wrote = time.perf_counter() - began
        began = time.perf_counter()
        mirror = MlflowWriter(uri, plan, ledger, artifact_root(folder))
        again = mirror.update().total
        compared = time.perf_counter() - began
    show(
        "mlflow",
        runs=counts.runs,
        points=counts.points,
        connect_s=connected,
        ms_per_run=1000 * wrote / counts.runs,
        again=again,
        compare_s=compared,
    )


def show(what: str, **figures: float) -> None:
    print(
        json.dumps({"what": what, **{name: round(value, 3) for name, value in figures.items()}}), flush=True
    )


if __name__ == "__main__":
    main()
