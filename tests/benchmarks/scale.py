"""Trials, reports and decisions per second of one launcher, and whether they slow down.

    python -m tests.benchmarks.scale [--virtual-trials 100000] [--sampler random] [--ray-trials 5000]

* virtual: the real conductor, recorder and SQLite ledger (full sync), with trials that take no time and have
  five reports each. `--in-flight` sets how many run at once; every report is one transaction. A decision is
  an `ask`: the conductor chooses a trial, and the ledger stores its assignment and start. Then new processes
  open the sweep as a resume does, from its snapshot and from its events alone. They measure seconds,
  processor time and memory, as medians of 3.
* ray: a `launch` through Ray Tune on this machine, with trivial trials of five reports, then with a few of
  1,000 reports. Meanwhile another process runs `haltsweep status` repeatedly. Afterwards the benchmark opens
  the sweep as a resume does.

Goals are 500 events a second and decisions that do not slow down. With 100,000 ended trials of 100 arms, a
resume should stay under 10 s and 300 MB (286 MiB), `status` under 1 s and `report` under 10 s. Measured on
2026-11-29 on 2 cores shared with other processes, in processor seconds:

* Resume (`--reopen`, median of 3): 4.0 s and 282 MiB, so both goals are reached. Modules take 72 MiB. The
  plan, the attempts and the states of all trials take 210 MiB in two conductors: one decides, the other
  replays written events for snapshots. Without the snapshot (`--from-events`, once): 26 s and 276 MiB.
* `status` (median of 3): 1.25 s and 147 MiB before a report exists, 1.36 s and 223 MiB afterwards. Imports
  take 0.7 s of this time, and the rest goes into parsing the plan of 12 MB and the report's JSON.
* `report` (median of 3): 29 s and 1,000 MiB. A profile shows a third of the time in verifying and parsing
  events, a quarter in `report.json`, and a sixth in the search figures of the arms.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.conductor.messages import Reply
from orchestrator.execution.sweep.launch import run_sweep
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.execution.trial.trial_jobs import Attempt
from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import read_plan, to_json
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Resources
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.driving import DONE, measurement
from tests.support.sweeps.workloads import PATH

REPORTS = 5
LONG_REPORTS = 1000
EVENTS_A_TRIAL = REPORTS + 3
"""Events of a trial without reports: asked, started and ended."""
WINDOW = 1000
STATUS_EVERY_S = 5.0
REPEATS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--virtual-trials", type=int, default=100_000)
    parser.add_argument("--arms", type=int, default=100)
    parser.add_argument("--in-flight", type=int, default=1000)
    parser.add_argument("--sampler", default="random")
    parser.add_argument("--ray-trials", type=int, default=5000)
    parser.add_argument("--long-trials", type=int, default=200)
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--reopen", type=Path, help="open this folder of a sweep, and nothing else")
    parser.add_argument("--from-events", action="store_true", help="without its snapshot")
    args = parser.parse_args()
    if args.reopen:
        print_reopening_cost(SweepFolder(args.reopen), from_events=args.from_events)
        return
    with tempfile.TemporaryDirectory(dir=args.dir, prefix="scale-") as folder:
        if args.virtual_trials:
            run_virtual_trials(Path(folder), args)
        if args.ray_trials:
            run_with_ray(Path(folder), "short", args.ray_trials, REPORTS)
        if args.long_trials:
            run_with_ray(Path(folder), "long", args.long_trials, LONG_REPORTS)


def search_plan(name: str, trials: int, arms: int, sampler: str, reports: int) -> Plan:
    """Return a plan that consists of a search."""
    arm_list = [make_arm(f"arm-{number}", steps=reports) for number in range(arms)]
    resources = Resources(cpus=1, checkpoint_seconds=30.0)
    plan = make_plan(arm_list, trials_per_arm=trials // arms, sampler=sampler, seeds=(), resources=resources)
    return replace(plan, name=name)


def run_virtual_trials(root: Path, args: argparse.Namespace) -> None:
    """Run every trial of the plan, a fixed number at a time, round robin."""
    plan = search_plan("virtual", args.virtual_trials, args.arms, args.sampler, REPORTS)
    folder = SweepFolder(root / "virtual")
    folder.root.mkdir()
    folder.plan.write_text(to_json(plan), encoding="utf-8")
    with Ledger.open(folder.ledger_url, plan.name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        recorder = Recorder(plan, ledger, lease, folder, snapshots=ledger)
        started_at = time.perf_counter()
        decisions, reports = run_trials(recorder, args.in_flight)
        duration = time.perf_counter() - started_at
        assert recorder.is_finished, "every trial must have ended"
        recorder.close()
        ledger.release(lease)
    print_figures(
        "virtual",
        trials=len(plan.trials),
        in_flight=args.in_flight,
        sampler=args.sampler,
        seconds=duration,
        events_per_s=EVENTS_A_TRIAL * len(plan.trials) / duration,
        decision_ms_first=1000 * statistics.median(decisions[:WINDOW]),
        decision_ms_last=1000 * statistics.median(decisions[-WINDOW:]),
        report_ms_first=1000 * statistics.median(reports[:WINDOW]),
        report_ms_last=1000 * statistics.median(reports[-WINDOW:]),
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        ledger_mb=folder.ledger.stat().st_size / 1e6,
    )
    for option in ("--from-events", ""):
        command = [sys.executable, "-m", "tests.benchmarks.scale", "--reopen", str(folder.root), option]
        outputs = [subprocess.check_output([*filter(None, command)], text=True) for _ in range(REPEATS)]
        timings = [json.loads(output) for output in outputs]
        medians = {name: statistics.median(timing[name] for timing in timings) for name in timings[0]}
        print_figures("reopened from events" if option else "reopened from a snapshot", **medians)


def run_trials(recorder: Recorder, in_flight: int) -> tuple[list[float], list[float]]:
    """Return the seconds of every decision and of every report."""
    decisions: list[float] = []
    reports: list[float] = []
    running: deque[tuple[Attempt, int]] = deque()
    has_trials = True
    while has_trials or running:
        while has_trials and len(running) < in_flight:
            started_at = time.perf_counter()
            attempt = recorder.next_attempt()
            decisions.append(time.perf_counter() - started_at)
            has_trials = attempt is not None
            if attempt is not None:
                running.append((attempt, 1))
        if not running:
            break
        attempt, step = running.popleft()
        reply = Reply(measurement(attempt.trial, step), ended=DONE if step == REPORTS else None)
        started_at = time.perf_counter()
        recorder.record(attempt.trial_id, attempt.token, reply)
        reports.append(time.perf_counter() - started_at)
        if step < REPORTS:
            running.append((attempt, step + 1))
    return decisions[:-1], reports


def time_reopening(plan: Plan, folder: SweepFolder, *, from_events: bool = False) -> float:
    """Open the sweep as a resume does before its first trial; return the seconds that this took."""
    started_at = time.perf_counter()
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        lease = ledger.claim(Holder.current())
        Recorder(plan, ledger, lease, folder, snapshots=None if from_events else ledger)
        duration = time.perf_counter() - started_at
        ledger.release(lease)
    return duration


def print_reopening_cost(folder: SweepFolder, *, from_events: bool) -> None:
    """Print seconds, processor time and memory of this process as JSON."""
    plan, cpu_started_at = read_plan(folder), time.process_time()
    duration = time_reopening(plan, folder, from_events=from_events)
    cpu_s = time.process_time() - cpu_started_at
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": duration, "cpu_s": cpu_s, "peak_mib": peak_mib}))


def run_with_ray(root: Path, name: str, trials: int, reports: int) -> None:
    """Run a launch through Ray, with all storage except MLflow."""
    plan = search_plan(name, trials, 5, "random", reports)
    folder = SweepFolder(root / name)
    with StatusWatch(folder) as status_watch:
        started_at = time.perf_counter()
        finish = run_sweep(plan, folder, Setup(root / "data", PATH), f"name: {name}\n")
        duration = time.perf_counter() - started_at
    assert not finish.left, "every trial must have ended"
    print_figures(
        "ray",
        trials=len(plan.trials),
        reports=reports,
        command_s=duration,
        trials_per_s=len(plan.trials) / duration,
        reports_per_s=len(plan.trials) * reports / duration,
        reopen_s=time_reopening(plan, folder),
        status_s_median=statistics.median(status_watch.seconds) if status_watch.seconds else None,
        status_s_most=max(status_watch.seconds, default=None),
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


class StatusWatch:
    """Runs `haltsweep status` repeatedly during the block."""

    def __init__(self, folder: SweepFolder) -> None:
        self.seconds: list[float] = []
        """Seconds of each call."""
        self._folder = folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "StatusWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        command = [sys.executable, "-m", "orchestrator.cli.main", "status", self._folder.name]
        command += ["--runs", str(self._folder.root.parent)]
        while not self._ended.wait(STATUS_EVERY_S):
            started_at = time.perf_counter()
            process = subprocess.run(command, capture_output=True, text=True, check=False)
            if process.returncode == 0:  # the command fails before the sweep exists
                self.seconds.append(time.perf_counter() - started_at)


def print_figures(title: str, **figures: Any) -> None:
    """Print one line of JSON."""
    rounded_figures = {
        name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()
    }
    print(json.dumps({"what": title, **rounded_figures, "load": round(os.getloadavg()[0], 1)}), flush=True)


if __name__ == "__main__":
    main()
