"""Every published number in a spec equals its table, row and column, and belongs to the compared model."""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from orchestrator.plan.arms import ArmRequest, resolve_built_in_arms
from orchestrator.plan.faults import Faults
from orchestrator.spec.load import load_spec, profile_names, read_spec
from orchestrator.spec.types import Published
from search_spaces.paths import lookup, with_value
from tests.experiments.tables import EXPERIMENTS, SYSTEMS, entries, find_quoted_entries, problems

SPECS = sorted(EXPERIMENTS.glob("*.yaml"))
LOOPED = {
    "looped-parity": "Parity",
    "looped-addition": "Addition",
    "looped-copy": "Copy",
    "looped-multiplication": "Multiplication",
    "looped-binary-sum": "Binary Sum",
    "looped-unique-set": "Unique Set",
}
UNLISTED = {
    "p001_table1_listops.csv": "all but UT -Halt is in paper 000 with the same values",
    "p001_table2_logical_inference.csv": "all but UT -Halt is in paper 000 with more digits",
    "p001_table3_flipflop.csv": "all in paper 000",
    "p001_table4_lra.csv": "all in paper 000, retrieval over three runs instead of one",
    "p002_table3_expert_words.csv": "words, no scores",
    "p003_table1_design.csv": "no scores",
    "p003_table2_hyperparameters.csv": "settings, no scores",
}
"""Files with numbers that no spec quotes, and the reason."""
UNLISTED_UNITS = {"valid_loss"}
"""Quantities that haltsweep does not measure; the comments of the specs say so."""
SIZES = {"params_millions": "parameters", "MACs_millions": "macs"}
"""By unit of published sizes: the key of a row that quotes them."""


@cache
def published_rows(path: Path) -> tuple[Published, ...]:
    return load_spec(path).published


def rows() -> list[tuple[str, Published]]:
    return [(path.stem, row) for path in SPECS for row in published_rows(path)]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_value_equals_its_table_row_and_column(path: Path) -> None:
    for place, row in enumerate(published_rows(path)):
        assert list(problems(row, LOOPED.get(path.stem))) == [], f"published[{place}]"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_value_belongs_to_the_compared_model(path: Path) -> None:
    source = read_spec(path)
    arms = {
        (each.request.label, _cell(each.request)): each
        for each in resolve_built_in_arms(source.spec, Faults(source))
    }
    for row in source.spec.published:
        if row.arm is None or row.reference is None:
            continue
        settings: Any = arms[row.arm, tuple(row.cell.items())].system.settings
        for path_, value in row.posthoc.items():
            settings = with_value(settings, path_, value)
        expected = SYSTEMS[row.reference.system, row.reference.variant or ""]
        actual = {field: lookup(settings["model"], field) for field in expected}
        assert actual == dict(expected), f"{row.arm} is no {row.reference.system} {row.reference.variant}"


def _cell(request: ArmRequest) -> tuple[tuple[str, Any], ...]:
    return tuple(request.cell.items())


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_small_profiles_have_no_published_values(path: Path) -> None:
    for name in profile_names(path):
        assert load_spec(path, profile=name).published == ()


def test_every_number_is_quoted_or_has_a_reason() -> None:
    quoted_entries = Counter(
        each
        for name, row in rows()
        for split in row.values
        for each in find_quoted_entries(row, split)
        if LOOPED.get(name) in (None, each.task)
    )
    unquoted = [
        entry
        for entry in entries()
        if entry not in quoted_entries
        and entry.file not in UNLISTED
        and entry.unit not in {*UNLISTED_UNITS, *SIZES}
        if (entry.system, entry.variant) != ("SUT base", "full")  # which is SUT base of Table 1
    ]
    assert unquoted == []
    partly_quoted = {each.file for each in quoted_entries}.intersection(UNLISTED)
    assert partly_quoted == {"p001_table1_listops.csv", "p001_table2_logical_inference.csv"}


def test_published_sizes_equal_those_of_the_models() -> None:
    published_sizes = {
        (entry.paper, entry.table, entry.system, entry.variant, SIZES[entry.unit]): float(entry.value) * 1e6
        for entry in entries()
        if entry.unit in SIZES and (entry.system, entry.variant) != ("SUT base", "full")
    }
    quoted_sizes = {
        (
            row.reference.paper,
            row.reference.table,
            row.reference.system,
            row.reference.variant or "",
            key,
        ): size
        for _, row in rows()
        if row.reference is not None
        for key in SIZES.values()
        if (size := getattr(row, key)) is not None
    }
    assert quoted_sizes == published_sizes


GOOD = {
    "arm": "baseline",
    "metric": "accuracy",
    "source": "a",
    "values": {"lra": {"value": 0.098, "std": 0.011}, "near-iid": {"value": 0.832, "std": 0.011}},
    "reference": {"paper": "000", "table": "Table 1", "system": "GUT", "variant": "ours"},
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        (
            {"values": {"lra": {"value": 0.832, "std": 0.011}}},  # this is the number of another column
            ["lra: must be 0.098, got 0.832"],
        ),
        ({"values": {"lra": 0.098}}, ["lra: std must be 0.011, got None"]),
        (
            {"statistic": "median", "values": {"lra": {"value": 0.098, "std": 0.011}}},
            ["lra: must be a mean, got a median"],
        ),
    ],
)
def test_number_of_another_row_column_or_statistic_is_found(
    change: dict[str, Any], expected: list[str]
) -> None:
    assert list(problems(Published.model_validate(GOOD | change))) == expected
