"""Cost of a report of many trials: processor time and memory of `haltsweep report`, including the ledger.

    python -m tests.benchmarks.report_page [--trials 10000] [--arms 5]

Targets: under 20 s and 1 GB for 10,000 trials, and a page under 5 MB. The yardstick is a single read of the
ledger into records, also in a new process.
"""

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from orchestrator.cli.commands.track import write_report
from orchestrator.cli.stored_sweep import open_stored_sweep
from orchestrator.ledger import events as log
from orchestrator.ledger.events import Event
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.trials import Outcome, OutcomeKind, Trial
from search_spaces.dimensions import Choice, Dimension, Float, Int, Space
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.histories import DEAD
from tests.support.sweeps.launched import launched
from trainables.protocol import Measurement

SEEDS = (101, 102, 103, 104, 105)
REPORTS = 5
SPACE = Space(
    (
        Dimension("model.x", Float(0.001, 1.0, log=True)),
        Dimension("model.n", Int(1, 12)),
        Dimension("model.c", Choice(("a", "b", "c"))),
    )
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--arms", type=int, default=5)
    parser.add_argument("--runs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", choices=("read", "report"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        _measure(options.runs, options.part)
        return
    with tempfile.TemporaryDirectory() as place:
        runs = _create_finished_sweep(Path(place), options.trials, options.arms)
        print("| part | processor seconds | seconds | peak MB | page MB |\n|---|---|---|---|---|", flush=True)
        for part in ("read", "report"):
            command = [
                sys.executable,
                "-m",
                "tests.benchmarks.report_page",
                "--runs",
                str(runs),
                "--part",
                part,
            ]
            subprocess.run(command, check=True)


def _measure(runs: Path, part: str) -> None:
    began = time.perf_counter()
    with open_stored_sweep("synthetic", runs) as sweep:
        if part == "read":
            sweep.records()
        else:
            write_report(sweep)
        page = sweep.folder.report / "report.html"
    size = page.stat().st_size / 1e6 if page.exists() else 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    took = time.perf_counter() - began
    print(f"| {part} | {time.process_time():.1f} | {took:.1f} | {peak:.0f} | {size:.2f} |")


def _create_finished_sweep(root: Path, trials: int, arms: int) -> Path:
    """Create a finished sweep of about so many trials, and return its folder."""
    named = [make_arm(f"arm-{place}", SPACE) for place in range(arms)]
    plan = make_plan(named, trials_per_arm=trials // arms - len(SEEDS), seeds=SEEDS)
    folder = launched(root, plan)
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        lease = ledger.claim(DEAD)
        ledger.append(list(_events(plan)), lease)
        ledger.release(lease)
    return folder.root.parent


def _events(plan: Plan) -> Iterator[Event]:
    stream, now = random.Random(0), 1_700_000_000.0
    yield log.opened(now, DEAD, plan.spec_digest, {"commit": "c0ffee"})
    for planned in plan.trials:
        now += 1
        assignment = {
            "model.x": 10 ** stream.uniform(-3, 0),
            "model.n": stream.randint(1, 12),
            "model.c": stream.choice("abc"),
        }
        yield log.trial_assigned(now, Trial(planned, assignment, plan.arm(planned.arm).settings))
        yield log.started(now, planned.trial_id, 1)
        for step in range(1, REPORTS + 1):
            value = assignment["model.x"] * step / REPORTS + stream.gauss(0, 0.01)
            metrics = {"valid/score": value, "test/score": value, "train/loss": 1 / step}
            yield log.measured(now, planned.trial_id, Measurement(step, step / 10, metrics))
        yield log.ended(now + 0.9, planned.trial_id, Outcome(OutcomeKind.FINISHED, "done"))
    yield log.closed(now + 1, "done")


if __name__ == "__main__":
    main()
