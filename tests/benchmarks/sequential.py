"""Savings of `confirm.stop: decided` on published effects: seeds run and verdicts reached.

Each row of a published table is one split of one task. It becomes a study in which one system is the
baseline and the others are arms. The simulation takes published means and standard deviations as the truth.
It draws independent normal values per seed and clips them to 0 to 100. A row has 2,000 studies of 8 seeds,
with a margin of 1 point. Three designs are compared: all seeds, early looks, and the best of 3 seeds, which
is naive practice.

Most published spreads are of 3 to 10 runs and thus uncertain themselves. The simulation leaves out systems
without a positive published spread, and numbers that a paper copied from another one.

Usage: python -m tests.benchmarks.sequential
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orchestrator.statistics import sequential
from tests.orchestrator.statistics.looks import intervals_within_margin, simulate_looks
from tests.orchestrator.statistics.studies import (
    LEVEL,
    STUDIES,
    Array,
    decided_verdicts,
    interval_rejections,
    paired_differences,
)

PUBLISHED = Path(__file__).parents[2] / "experiments" / "published"
TABLES = {
    "p001_table1_listops.csv": "GUT",
    "p000_table2_logical_inference.csv": "GUT",
    "p000_table3_flipflop.csv": "GUT",
    "p000_table4_lra.csv": "GUT",
    "p002_table4_cfq.csv": "UT with halting",
}
"""Baseline of each table."""
SEEDS, NAIVE_SEEDS = 8, 3
MARGIN = 1.0
"""Points of accuracy."""
COMPUTE_GOAL = 0.6


@dataclass(frozen=True)
class Row:
    """One split of one task."""

    table: str
    split: str
    means: Array
    """Means, and below standard deviations, of the baseline and the arms."""
    spreads: Array


def rows() -> Iterator[Row]:
    """Yield all rows with a baseline and at least one arm."""
    for table, baseline in TABLES.items():
        with (PUBLISHED / table).open(encoding="utf-8", newline="") as file:
            entries = [entry for entry in csv.DictReader(file) if float(entry["std"] or 0) > 0]
        for split in dict.fromkeys((entry["task"], entry["split"]) for entry in entries):
            task_entries = [
                entry
                for entry in entries
                if (entry["task"], entry["split"]) == split and not entry["variant"].startswith("prior")
            ]
            baselines = [entry for entry in task_entries if _is_baseline(entry, baseline)]
            if len(baselines) == 1 and len(task_entries) > 1:
                ordered = [*baselines, *(entry for entry in task_entries if entry is not baselines[0])]
                means, spreads = (
                    np.array([float(entry[key]) for entry in ordered]) for key in ("value", "std")
                )
                yield Row(table, split[1], means, spreads)


def _is_baseline(row: dict[str, str], baseline: str) -> bool:
    if baseline == "GUT":
        return (row["system"], row["variant"]) == ("GUT", "ours")
    return row["system"] == "UT" and row["variant"].startswith("with halting")


@dataclass(frozen=True)
class StudyResult:
    """Means over studies and arms of one row."""

    arms: int
    seeds_of_arms: float
    seeds: float
    """Seeds run, including those of the baseline."""
    decided: float
    """Share of decided verdicts with all seeds."""
    decided_with_looks: float
    same_verdict: float
    """Share of verdicts that are the same with looks as with all seeds."""
    wrong: float
    """Share of verdicts with the wrong direction, or that miss a difference larger than the margin."""
    wrong_with_looks: float
    wrong_naive: float
    overstated_naive: float
    """Share of arms within the margin of the baseline that naive practice calls better or worse."""


def study(row: Row) -> StudyResult:
    """Simulate the three designs on the same seeds."""
    rng = np.random.default_rng(list(row.split.encode()))
    shape = (STUDIES, SEEDS, len(row.means))
    values = np.clip(rng.normal(size=shape) * row.spreads + row.means, 0.0, 100.0)
    truth = row.means[1:] - row.means[0]
    differences = paired_differences(values)
    is_shown = decided_verdicts(differences)
    fixed = _verdict(
        differences.mean(1),
        is_shown,
        intervals_within_margin(differences, 0.0, LEVEL, MARGIN) & ~interval_rejections(differences),
    )
    is_shown_early, is_excluded, seeds_run = simulate_looks(values, margin=MARGIN)
    means = np.take_along_axis(np.cumsum(differences, 1), seeds_run[:, None, :] - 1, 1)[:, 0] / seeds_run
    with_looks = _verdict(means, is_shown_early, is_excluded)
    best = values[:, :NAIVE_SEEDS].max(1)
    naive = np.sign(best[:, 1:] - best[:, :1])
    is_small = np.abs(truth) <= MARGIN
    return StudyResult(
        arms=len(truth),
        seeds_of_arms=float(seeds_run.mean() / SEEDS),
        seeds=float((seeds_run.sum(1) + SEEDS).mean() / (SEEDS * (1 + len(truth)))),
        decided=float((fixed != UNDECIDED).mean()),
        decided_with_looks=float((with_looks != UNDECIDED).mean()),
        same_verdict=float((fixed == with_looks).mean()),
        wrong=_wrong_share(fixed, truth),
        wrong_with_looks=_wrong_share(with_looks, truth),
        wrong_naive=float((naive * np.sign(truth) < 0).mean()),
        overstated_naive=float((naive != 0)[:, is_small].mean()) if is_small.any() else float("nan"),
    )


UNDECIDED, SAME = 0.0, 2.0
"""Codes of verdicts, in addition to 1 for better and -1 for worse."""


def _verdict(means: Array, is_shown: Array, is_excluded: Array) -> Array:
    return np.where(is_shown, np.sign(means), np.where(is_excluded, SAME, UNDECIDED))


def _wrong_share(verdicts: Array, truth: Array) -> float:
    wrong_direction = (np.abs(verdicts) == 1) & (verdicts * np.sign(truth) <= 0)
    return float((wrong_direction | ((verdicts == SAME) & (np.abs(truth) >= MARGIN))).mean())


HEADERS = (
    *(
        "table",
        "split",
        "arms",
        "seeds of arms",
        "all seeds",
        "decided, 8 seeds",
        "with looks",
        "same verdict",
    ),
    *("wrong, 8 seeds", "with looks", "naive"),
)


def main() -> None:
    print("| " + " | ".join(HEADERS) + " |\n" + "|---" * len(HEADERS) + "|")
    results = [(row, study(row)) for row in rows()]
    for row, result in results:
        shares = (
            result.seeds_of_arms,
            result.seeds,
            result.decided,
            result.decided_with_looks,
            result.same_verdict,
        )
        errors = (result.wrong, result.wrong_with_looks, result.wrong_naive)
        numbers = [f"{share:.2f}" for share in shares] + [f"{share:.3f}" for share in errors]
        print(f"| {row.table.removesuffix('.csv')} | {row.split} | {result.arms} | {' | '.join(numbers)} |")
    weights = [result.arms for _, result in results]
    mean = lambda name: np.average([getattr(result, name) for _, result in results], weights=weights)  # noqa: E731
    fixed = sum(SEEDS * (1 + result.arms) for _, result in results)
    total = sum(result.seeds * SEEDS * (1 + result.arms) for _, result in results) / fixed
    effects = np.concatenate(
        [np.abs(row.means[1:] - row.means[0]) / _pooled_spreads(row) for row, _ in results]
    )
    print(f"\n{len(results)} rows, {sum(weights)} arms; effects in standard deviations of a run: ", end="")
    print(", ".join(f"{np.quantile(effects, share):.1f} ({share:.0%})" for share in (0.25, 0.5, 0.75, 0.9)))
    naive = NAIVE_SEEDS / SEEDS
    print(f"confirm compute: {total:.2f} of the fixed design's (goal {COMPUTE_GOAL}), naive {naive:.2f}")
    print(f"of the arms alone: {mean('seeds_of_arms'):.2f}; looks after {[*sequential.look_sizes(SEEDS)]}")
    print(f"verdicts reached: {mean('decided'):.3f} fixed, {mean('decided_with_looks'):.3f} with looks")
    print(f"the same verdict: {mean('same_verdict'):.3f}")
    print(f"wrong: {mean('wrong'):.4f} fixed, {mean('wrong_with_looks'):.4f} with looks, ", end="")
    print(f"{mean('wrong_naive'):.4f} naive, which names a direction in every case")


def _pooled_spreads(row: Row) -> Array:
    """Return the root mean square of the standard deviations of arm and baseline."""
    pooled: Array = np.sqrt((row.spreads[1:] ** 2 + row.spreads[0] ** 2) / 2)
    return pooled


if __name__ == "__main__":
    main()
