"""Savings of `confirm.stop: decided` on published effects: seeds run and verdicts reached.

Each row of a published table, that is one split of one task, is a study: one system is the baseline, the
others are its arms. Published means and standard deviations are taken for the truth, and seeds are drawn
normal from them, independent, cut off at 0 and 100. 2,000 studies a row; 8 seeds; a margin of 1 point.
Compared are the fixed design, the same with looks, and naive practice: 3 seeds, the best of each is compared.

Published spreads are mostly of 3 to 10 runs and thus uncertain themselves; systems whose spread was published
as 0, or not at all, are left out, and so are numbers that a paper copied from another one.

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
"""By table: its baseline."""
SEEDS, NAIVE = 8, 3
MARGIN = 1.0
"""Points of accuracy."""
GOAL = 0.6


@dataclass(frozen=True)
class Row:
    """One split of one task."""

    table: str
    split: str
    means: Array
    """Means or standard deviations of the baseline and the arms."""
    spreads: Array


def rows() -> Iterator[Row]:
    """Yield all rows with a baseline and at least one arm."""
    for table, baseline in TABLES.items():
        with (PUBLISHED / table).open(encoding="utf-8", newline="") as file:
            known = [each for each in csv.DictReader(file) if float(each["std"] or 0) > 0]
        for split in dict.fromkeys((each["task"], each["split"]) for each in known):
            found = [
                each
                for each in known
                if (each["task"], each["split"]) == split and not each["variant"].startswith("prior")
            ]
            first = [each for each in found if _is_baseline(each, baseline)]
            if len(first) == 1 and len(found) > 1:
                ordered = [*first, *(each for each in found if each is not first[0])]
                means, spreads = (
                    np.array([float(each[key]) for each in ordered]) for key in ("value", "std")
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
    reached: float
    """Share of decided verdicts with all seeds."""
    reached_with_looks: float
    same: float
    """Share of verdicts that are the same with looks as with all seeds."""
    wrong: float
    """Share of verdicts with the wrong direction, or that miss a difference larger than the margin."""
    wrong_with_looks: float
    wrong_naive: float
    overstated_naive: float
    """Share of arms within the margin of the baseline that naive practice calls better or worse."""


def study(row: Row) -> StudyResult:
    """Simulate all three designs on the same seeds."""
    rng = np.random.default_rng(list(row.split.encode()))
    shape = (STUDIES, SEEDS, len(row.means))
    values = np.clip(rng.normal(size=shape) * row.spreads + row.means, 0.0, 100.0)
    truth = row.means[1:] - row.means[0]
    found = paired_differences(values)
    shown = decided_verdicts(found)
    fixed = _verdict(
        found.mean(1), shown, intervals_within_margin(found, 0.0, LEVEL, MARGIN) & ~interval_rejections(found)
    )
    early, excluded, used = simulate_looks(values, margin=MARGIN)
    last = np.take_along_axis(np.cumsum(found, 1), used[:, None, :] - 1, 1)[:, 0] / used
    with_looks = _verdict(last, early, excluded)
    best = values[:, :NAIVE].max(1)
    naive = np.sign(best[:, 1:] - best[:, :1])
    small = np.abs(truth) <= MARGIN
    return StudyResult(
        arms=len(truth),
        seeds_of_arms=float(used.mean() / SEEDS),
        seeds=float((used.sum(1) + SEEDS).mean() / (SEEDS * (1 + len(truth)))),
        reached=float((fixed != UNDECIDED).mean()),
        reached_with_looks=float((with_looks != UNDECIDED).mean()),
        same=float((fixed == with_looks).mean()),
        wrong=_wrong(fixed, truth),
        wrong_with_looks=_wrong(with_looks, truth),
        wrong_naive=float((naive * np.sign(truth) < 0).mean()),
        overstated_naive=float((naive != 0)[:, small].mean()) if small.any() else float("nan"),
    )


UNDECIDED, SAME = 0.0, 2.0
"""Codes of verdicts, in addition to 1 for better and -1 for worse."""


def _verdict(means: Array, shown: Array, same: Array) -> Array:
    return np.where(shown, np.sign(means), np.where(same, SAME, UNDECIDED))


def _wrong(said: Array, truth: Array) -> float:
    direction = (np.abs(said) == 1) & (said * np.sign(truth) <= 0)
    return float((direction | ((said == SAME) & (np.abs(truth) >= MARGIN))).mean())


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
    found = [(row, study(row)) for row in rows()]
    for row, each in found:
        shares = (each.seeds_of_arms, each.seeds, each.reached, each.reached_with_looks, each.same)
        errors = (each.wrong, each.wrong_with_looks, each.wrong_naive)
        numbers = [f"{share:.2f}" for share in shares] + [f"{share:.3f}" for share in errors]
        print(f"| {row.table.removesuffix('.csv')} | {row.split} | {each.arms} | {' | '.join(numbers)} |")
    weights = [each.arms for _, each in found]
    mean = lambda name: np.average([getattr(each, name) for _, each in found], weights=weights)  # noqa: E731
    fixed = sum(SEEDS * (1 + each.arms) for _, each in found)
    total = sum(each.seeds * SEEDS * (1 + each.arms) for _, each in found) / fixed
    effects = np.concatenate([np.abs(row.means[1:] - row.means[0]) / _pooled(row) for row, _ in found])
    print(f"\n{len(found)} rows, {sum(weights)} arms; effects in standard deviations of a run: ", end="")
    print(", ".join(f"{np.quantile(effects, share):.1f} ({share:.0%})" for share in (0.25, 0.5, 0.75, 0.9)))
    print(f"confirm compute: {total:.2f} of the fixed design's (goal {GOAL}), naive {NAIVE / SEEDS:.2f}")
    print(f"of the arms alone: {mean('seeds_of_arms'):.2f}; looks after {[*sequential.look_sizes(SEEDS)]}")
    print(f"verdicts reached: {mean('reached'):.3f} fixed, {mean('reached_with_looks'):.3f} with looks")
    print(f"the same verdict: {mean('same'):.3f}")
    print(f"wrong: {mean('wrong'):.4f} fixed, {mean('wrong_with_looks'):.4f} with looks, ", end="")
    print(f"{mean('wrong_naive'):.4f} naive, which names a direction in every case")


def _pooled(row: Row) -> Array:
    """Return the root mean square of the standard deviations of arm and baseline."""
    pooled: Array = np.sqrt((row.spreads[1:] ** 2 + row.spreads[0] ** 2) / 2)
    return pooled


if __name__ == "__main__":
    main()
