"""Time and FLOPs under a bound on layers, compared with the published times, as ratios.

`python -m tests.experiments.runtime` prints the table of experiments/README.md.
"""

import csv

from orchestrator.report.results.number_formats import format_interval
from orchestrator.report.results.statistics import estimate
from tests.experiments.claims import FINDINGS, report
from tests.experiments.tables import TABLES

NAMED = {"baseline": "GUT", "upperbound": "GUT Upperbound", "no-halt-upperbound": "GUT No Halt Upperbound"}
"""Arms of the spec and their names in the published table."""
ARMS = ("baseline", "compact", "upperbound", "no-halt-upperbound")
BOUNDS = (10, 20, 30, 40)
UNIT = ("no-halt-upperbound", 10)
"""Arm and bound to which ratios refer: its work does not depend on halting."""
SECONDS, FLOPS = "train/seconds_per_epoch", "near-iid/flops"
HEADERS = ("arm", "bound", "time, published", "time, here", "FLOPs of an input, here")


def published() -> dict[tuple[str, int], float]:
    """Return the seconds of an epoch by arm and bound: Ray Chowdhury and Caragea, Table 5."""
    with (TABLES / "p000_table5_runtime.csv").open(encoding="utf-8", newline="") as file:
        seconds = {(row["system"], row["variant"]): float(row["value"]) for row in csv.DictReader(file)}
    return {
        (arm, bound): seconds[system, f"upperbound layers={bound}"]
        for arm, system in NAMED.items()
        for bound in BOUNDS
    }


def ratio(metric: str, arm: str, bound: int) -> str:
    """Return the mean over seeds of the ratios of each seed, with its interval."""
    values = {
        cell.arm: dict(cell.by_seed)
        for cell in report(FINDINGS / "gut-runtime").cells
        if cell.metric == metric
    }
    arm_values, unit_values = (
        values[f"{name}[model.max_layers={layer_bound}]"] for name, layer_bound in ((arm, bound), UNIT)
    )
    return format_interval(estimate([arm_values[seed] / unit_values[seed] for seed in sorted(arm_values)]))


def table() -> str:
    """Return the Markdown table."""
    published_seconds = published()
    rows = [
        (
            f"`{arm}`",
            str(bound),
            f"{published_seconds[arm, bound] / published_seconds[UNIT]:.2f}"
            if (arm, bound) in published_seconds
            else "",
            ratio(SECONDS, arm, bound),
            ratio(FLOPS, arm, bound),
        )
        for arm in ARMS
        for bound in BOUNDS
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (HEADERS, ("---",) * len(HEADERS), *rows))


if __name__ == "__main__":
    print(table())
