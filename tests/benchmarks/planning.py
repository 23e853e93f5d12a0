"""What a dry run costs: seconds and memory of the whole process `haltsweep plan`, by number of trials.

Five arms at paper scale (width 512, two examples forward and backward for each proof). With five trials, what
is left is Python, PyTorch and the proofs. Where processor seconds are far below seconds, others were at work.

Usage: python tests/benchmarks/planning.py
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "experiments" / "gut-ablation-listops.yaml"
ARMS = 5
TARGETS = {5: "", 10_000: "4 s", 100_000: "20 s, 1.5 GiB"}


def measured(command: list[str]) -> str:
    """Wall seconds, processor seconds and peak GiB of a process, as cells of a table."""
    begin = time.perf_counter()
    with subprocess.Popen(command, cwd=tempfile.gettempdir(), stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    seconds, busy = time.perf_counter() - begin, usage.ru_utime + usage.ru_stime
    return f"{seconds:.2f} | {busy:.2f} | {usage.ru_maxrss / 2**20:.2f}"


def plan(trials: int, *options: str) -> str:
    """A dry run of about `trials` trials."""
    overrides = [f"search.trials_per_arm={max(1, trials // ARMS)}", "baseline.model.width=512"]
    command = Path(sys.executable).with_name("haltsweep")
    return measured([str(command), "plan", str(SPEC), *overrides, *options])


def main() -> None:
    """Print the table."""
    print("| what | seconds | processor s | peak GiB | target |\n|---|---|---|---|---|")
    print(f"| import torch alone | {measured([sys.executable, '-c', 'import torch'])} | |", flush=True)
    for trials, target in TARGETS.items():
        for options in ((), ("--json",)):
            name = " ".join(["plan", *options])
            print(f"| {name}, {trials:,} trials | {plan(trials, *options)} | {target} |", flush=True)


if __name__ == "__main__":
    main()
