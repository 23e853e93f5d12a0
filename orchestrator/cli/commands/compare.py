"""Implement `haltsweep compare`, which displays sweeps side by side with their differences."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.display.console import emit_json, out, print_line
from orchestrator.cli.locations import runs_root
from orchestrator.cli.options import Json, Runs
from orchestrator.errors import InputError

if TYPE_CHECKING:
    from orchestrator.report.comparisons.comparison import Comparison, SweepData
    from orchestrator.report.results.types import TextTable

UNKNOWN_DATA = "unknown: neither sweep reads data that haltsweep stores"


def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Names or folders of sweeps; each is compared with the first.", metavar="NAME..."
        ),
    ],
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Compare the results of arms that several sweeps share, and list other differences of the sweeps."""
    from orchestrator.report.comparisons.comparison import EXPLORATORY_NOTE, compare_sweeps

    if len(names) < 2:
        raise InputError(
            f"NAME...: at least two sweeps are needed, got {len(names)}. Name another one; "
            f"`haltsweep report {names[0]}` compares the arms of one sweep."
        )
    sweeps = [_read_sweep(name, runs_root(runs), names) for name in names]
    comparisons = [compare_sweeps(sweeps[0], sweep) for sweep in sweeps[1:]]
    if as_json:
        emit_json([_comparison_to_json(comparison) for comparison in comparisons])
        return
    for comparison in comparisons:
        _print_comparison(comparison)
    differences = (arm.difference for comparison in comparisons for arm in comparison.arms)
    if any(difference is not None and difference.low is not None for difference in differences):
        print_line(EXPLORATORY_NOTE)


def _read_sweep(name: str, runs: Path, names: list[str]) -> "SweepData":
    from orchestrator.cli.stored_sweep import open_stored_sweep
    from orchestrator.execution.datasets import data_digests
    from orchestrator.execution.sweep.launch_folder import read_setup
    from orchestrator.files.file_digests import find_edition, read_edition
    from orchestrator.report.comparisons.comparison import SweepData
    from orchestrator.report.results.summary import summarise
    from orchestrator.spec.load import load_spec

    with open_stored_sweep(name, runs) as sweep:
        records = sweep.records()
        read_edition(sweep.folder.spec, "restore it from a backup")
        spec = load_spec(find_edition(sweep.folder.spec)).content()
        label = name if len({Path(sweep_name).name for sweep_name in names}) < len(names) else sweep.plan.name
        digests = data_digests(sweep.plan, read_setup(sweep.folder))
        return SweepData(label, sweep.plan, summarise(sweep.plan, records), records, spec, digests)


def _comparison_to_json(comparison: "Comparison") -> dict[str, Any]:
    spec = [{"path": difference.path, "difference": str(difference)} for difference in comparison.spec]
    return {**asdict(comparison), "spec": spec}


def _print_comparison(comparison: "Comparison") -> None:
    from orchestrator.report.writers.tables import as_rich

    for line in comparison.notices:
        print_line(line)
    if comparison.arms:
        out().print(as_rich(_comparison_grid(comparison)))
    else:
        print_line(f"no arm of {comparison.first} was confirmed with the same content in {comparison.second}")
    remarks = (*_test_data_lines(comparison), *_unmatched_arm_lines(comparison))
    for line in (*remarks, *comparison.unmeasured, *comparison.assignments):
        print_line(line)
    for title, lines in (
        ("spec", [str(difference) for difference in comparison.spec]),
        ("code and machine", [f"{field}: {old} -> {new}" for field, old, new in comparison.code]),
        ("data", [f"{field}: {old} -> {new}" for field, old, new in comparison.data]),
    ):
        text_if_equal = "no difference" if title != "data" or comparison.data_known else UNKNOWN_DATA
        print_line(f"{title}: {'' if lines else text_if_equal}".rstrip())
        for line in lines:
            print_line(f"  {line}")


def _test_data_lines(comparison: "Comparison") -> Iterator[str]:
    """Yield reasons for missing differences of outcomes, and the splits whose examples were not compared."""
    for arm in comparison.arms:
        if arm.different_tests:
            yield f"no difference in {arm.metric}: {arm.different_tests}"
    if comparison.unchecked_tests:
        splits = ", ".join(filter(None, comparison.unchecked_tests)) or "the test data"
        yield f"it is unknown whether both sweeps had the same examples: {splits}"


def _unmatched_arm_lines(comparison: "Comparison") -> Iterator[str]:
    """Yield lines on arms whose content differs from all arms of the other sweep, even if names are equal."""
    if changed_arms := [arm for arm in comparison.alone[0] if arm in comparison.alone[1]]:
        yield f"same name but different content: {', '.join(changed_arms)}"
    for name, arms in zip((comparison.first, comparison.second), comparison.alone, strict=True):
        if unmatched_arms := [arm for arm in arms if arm not in changed_arms]:
            yield f"only in {name}: {', '.join(unmatched_arms)}"


def _comparison_grid(comparison: "Comparison") -> "TextTable":
    from orchestrator.report.results.number_formats import choose_text, format_interval
    from orchestrator.report.results.types import TextTable

    rows = tuple(
        (
            " = ".join(dict.fromkeys(arm.arms)),
            arm.metric,
            format_interval(arm.first),
            format_interval(arm.second),
            "different test sets" if arm.difference is None else format_interval(arm.difference, "+"),
            arm.how,
            arm.same,
        )
        for arm in comparison.arms
    )
    headers = ("arm", "metric", comparison.first, comparison.second, "difference", "how", "the same")
    estimates = (estimate for arm in comparison.arms for estimate in (arm.first, arm.second))
    intervals, single_seed_text = "means with 95% intervals over seeds", "one seed of each arm"
    values = choose_text(
        estimates, intervals=intervals, mean_text="means over seeds", single_seed=single_seed_text
    )
    return TextTable(f"{comparison.second} against {comparison.first}: {values}", headers, rows)
