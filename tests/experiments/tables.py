"""Published tables, and differences between a table and a row of a spec that quotes it."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.spec.types import Published, PublishedValue

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
TABLES = EXPERIMENTS / "published"

PERCENT = Decimal(100)
METRICS: Mapping[str, tuple[set[str], Decimal, str]] = {
    "accuracy_percent": ({"accuracy", "exact_match"}, PERCENT, "mean"),
    "mean_accuracy_percent": ({"accuracy_last"}, PERCENT, "mean"),
    "median_accuracy_percent": ({"accuracy", "accuracy_last"}, PERCENT, "median"),
    "exact_match_accuracy_fraction": ({"accuracy_whole"}, Decimal(1), "mean"),
    "BLEU": ({"bleu"}, Decimal(1), "mean"),
    "seconds_per_epoch": ({"seconds_per_epoch"}, Decimal(1), "mean"),
}
"""By unit of a table: our quantity, the divisor of the value, and the statistic."""

LISTOPS = {
    "near-iid": "near-IID (len<=1000, args<=5)",
    "length-200-300": "len 200-300 args<=5",
    "length-500-600": "len 500-600 args<=5",
    "length-900-1000": "len 900-1000 args<=5",
    "arguments-10": "len 100-1000 args 10",
    "arguments-15": "len 100-1000 args 15",
    "lra": "LRA len 2000 args 10",
}
DEPTHS = {
    "deeper": "DG len<=100 args<=5 depth 8-10",
    "length-200-300": "len 200-300 args<=5 depth<=20",
    "length-500-600": "len 500-600 args<=5 depth<=20",
    "length-900-1000": "len 900-1000 args<=5 depth<=20",
    "arguments-10": "len 100-1000 args 10 depth<=10",
    "arguments-15": "len 100-1000 args 15 depth<=10",
    "lra": "LRA len 2000 args<=10 depth<=10",
}
OPERATORS = {f"operators-{number}": f"{number} ops" for number in range(7, 13)}
STRINGS = {
    f"length-{length}-ignore-{share}": f"len {length} p_i={share}"
    for length in (512, 1024)
    for share in ("0.1", "0.8", "0.98")
}
COLUMNS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("000", "Table 1"): LISTOPS,
    ("001", "Table 1"): LISTOPS,
    ("000", "Table 2"): OPERATORS,
    ("001", "Table 2"): OPERATORS,
    ("000", "Table 3 (mean block)"): STRINGS,
    ("000", "Table 3 (median block)"): STRINGS,
    ("000", "Table 5"): {"train": "train"},
    ("002", "Table 1"): {"test": "test"},
    ("002", "Table 2"): {"test": "test"},
    ("002", "Table 5"): OPERATORS,
    ("003", "Figure 5 caption"): {
        f"length-{length}": f"test length {length}" for length in (16, 24, 30, 35, 40)
    },
    ("004", "Table 2"): DEPTHS,
    ("004", "Table 3"): OPERATORS,
}
"""By paper and table: our split and its column. A row may name another `column`."""


@dataclass(frozen=True)
class Entry:
    """One number of a table."""

    file: str
    paper: str
    table: str
    system: str
    variant: str
    task: str
    column: str
    unit: str
    value: str
    std: str


@cache
def entries() -> tuple[Entry, ...]:
    """Return all numbers of all tables."""
    all_entries = []
    for path in sorted(TABLES.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                fields = [line[name] for name in ("paper", "table", "system", "variant", "task")]
                all_entries.append(
                    Entry(path.name, *fields, line["split"], line["metric"], line["value"], line["std"])
                )
    return tuple(all_entries)


def find_quoted_entries(row: Published, split: str) -> list[Entry]:
    """Return the numbers that `row` quotes for `split`, by paper, table, row and column."""
    reference = row.reference
    if reference is None:
        return []
    column = reference.column or COLUMNS.get((reference.paper, reference.table), {}).get(split)
    return [
        entry
        for entry in entries()
        if (entry.paper, entry.table, entry.system, entry.variant, entry.column)
        == (reference.paper, reference.table, reference.system, reference.variant or "", column)
        and row.metric in METRICS.get(entry.unit, ((), 1, ""))[0]
    ]


def problems(row: Published, problem_of: str | None = None) -> Iterator[str]:
    """Yield the faults of a row; `problem_of` selects a task of the table of looped models."""
    for split, quoted_value in row.values.items():
        matches = [entry for entry in find_quoted_entries(row, split) if problem_of in (None, entry.task)]
        if len(matches) != 1:
            yield f"{split}: {len(matches)} numbers of the tables are quoted, must be one"
        else:
            yield from (f"{split}: {problem}" for problem in _find_differences(row, quoted_value, matches[0]))


def _find_differences(row: Published, quoted_value: PublishedValue, entry: Entry) -> Iterator[str]:
    _, scale, statistic = METRICS[entry.unit]
    if Decimal(repr(quoted_value.value)) != Decimal(entry.value) / scale:
        yield f"must be {Decimal(entry.value) / scale}, got {quoted_value.value}"
    std = Decimal(entry.std) / scale if entry.std else None
    if (None if quoted_value.std is None else Decimal(repr(quoted_value.std))) != std:
        yield f"std must be {std}, got {quoted_value.std}"
    if row.statistic != statistic:
        yield f"must be a {statistic}, got a {row.statistic}"


SYSTEMS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("GUT", "ours"): {"name": "universal", "gate": True, "halt.unit": "sequence", "halt.transition": True},
    ("GUT", "-Gate"): {"name": "universal", "gate": False, "halt.unit": "sequence", "halt.transition": True},
    ("GUT", "-Global Halt"): {"name": "universal", "gate": True, "halt.unit": "token"},
    ("GUT", "-Transition"): {"name": "universal", "gate": True, "halt.transition": False},
    ("UT", "ours"): {"name": "universal", "gate": False, "halt.unit": "token", "halt.transition": False},
    ("UT", "-Halt"): {"name": "universal", "gate": False, "halt": None},
    ("Transformer", "ours"): {"name": "transformer"},
    ("TLB", "ours"): {"name": "tlb", "chunk.by": "size"},
    ("TLB", "Fixed Recurrence (k=5 chunks)"): {"name": "tlb", "chunk.by": "count", "chunk.count": 5},
    ("GUTLB", "ours"): {"name": "gutlb", "chunk.by": "size"},
    ("NDR", "24 test layers (20 train)"): {"name": "ndr", "layers": 20, "test_layers": 24},
    ("NDR", "48 test layers (20 train)"): {"name": "ndr", "layers": 20, "test_layers": 48},
    ("NDR", "15 test layers (15 train)"): {"name": "ndr", "layers": 15, "test_layers": 15},
    ("NDR", "30 test layers (15 train)"): {"name": "ndr", "layers": 15, "test_layers": 30},
    ("CRvNN", ""): {"name": "crvnn"},
    ("Transformer", "xPos + FlashAttention2"): {"name": "transformer", "layers": 4},
    ("SUT", ""): {"name": "sut", "max_layers": 12, "attention.experts": 12, "attention.active": 4},
    ("SUT base", ""): {"name": "sut", "attention.experts": 24, "attention.active": 4},
    ("SUT base", "-MIM loss"): {"name": "sut", "balance": "switch"},
    ("SUT base", "-MoMHA"): {"name": "sut", "attention.heads": 1},
    ("SUT base", "-ACT loss"): {"name": "sut", "attention.experts": 24},
    ("SUT base", "-halting"): {"name": "sut", "halt": None},
    ("SUT big", ""): {"name": "sut", "attention.experts": 48, "attention.active": 4},
    ("UT base + SB halting", ""): {"name": "sut", "attention.experts": 1, "feedforward.experts": 1},
    ("UT big + SB halting", ""): {"name": "sut", "attention.experts": 1, "feedforward.experts": 1},
    ("UT", "with halting (ours)"): {"name": "sut", "attention.experts": 1, "halt.threshold": 0.999},
    ("UT", "w/o halting (ours)"): {"name": "sut", "attention.experts": 1, "halt": None},
    ("Looped Transformer (FOP-Loop-Adaptive)", "stop by Eq. 2 with B=N_test"): {
        "name": "looped",
        "loops": "task",
        "injection": True,
        "stop": "batch",
    },
} | {
    (system, f"upperbound layers={bound}"): {"name": "universal", "gate": True, "max_layers": bound} | said
    for bound in (10, 20, 30, 40)
    for system, said in {
        "GUT": {"halt.unit": "sequence", "early_exit": "batch"},
        "GUT Upperbound": {"halt.unit": "sequence", "early_exit": "none"},
        "GUT No Halt Upperbound": {"halt": None},
    }.items()
}
"""Required settings of the arm that is compared with a published model."""
