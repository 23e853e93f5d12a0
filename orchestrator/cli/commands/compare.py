"""Implement `haltsweep compare`, which displays sweeps side by side with their differences."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.display.console import emit_json, out, say
from orchestrator.cli.locations import runs_root
from orchestrator.cli.options import Json, Runs
from orchestrator.errors import InputError

if TYPE_CHECKING:
    from orchestrator.report.comparisons.comparison import Comparison, SweepData
    from orchestrator.report.results.types import Grid

UNKNOWN = "not known: neither reads any that haltsweep stores"


def compare(
    names: Annotated[
        list[str], typer.Argument(help="Sweeps, by name or folder; all against the first.", metavar="NAME...")
    ],
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Compare sweeps: arms that are the same by content, and what differs in spec, code, data and machine."""
    from orchestrator.report.comparisons.comparison import NOTE, compare_sweeps

    if len(names) < 2:
        raise InputError(f"at least two sweeps must be named, got {len(names)}; name another one")
    sides = [_side(name, runs_root(runs), names) for name in names]
    found = [compare_sweeps(sides[0], each) for each in sides[1:]]
    if as_json:
        emit_json([_json(each) for each in found])
        return
    for each in found:
        _show(each)
    differences = (arm.difference for each in found for arm in each.arms)
    if any(each is not None and each.low is not None for each in differences):
        say(NOTE)


def _side(name: str, runs: Path, names: list[str]) -> "SweepData":
    from orchestrator.cli.reading import opened
    from orchestrator.execution.datasets import data_digests
    from orchestrator.execution.sweep.launch_folder import read_setup
    from orchestrator.files.file_digests import find_edition, read_edition
    from orchestrator.report.comparisons.comparison import SweepData
    from orchestrator.report.results.summary import summarise
    from orchestrator.spec.load import load_spec

    with opened(name, runs) as sweep:
        records = sweep.records()
        read_edition(sweep.folder.spec, "restore it from a backup")
        spec = load_spec(find_edition(sweep.folder.spec)).content()
        label = name if len({Path(each).name for each in names}) < len(names) else sweep.plan.name
        return SweepData(
            label,
            sweep.plan,
            summarise(sweep.plan, records),
            records,
            spec,
            data_digests(sweep.plan, read_setup(sweep.folder)),
        )


def _json(found: "Comparison") -> dict[str, Any]:
    spec = [{"path": each.path, "difference": str(each)} for each in found.spec]
    return {**asdict(found), "spec": spec}


def _show(found: "Comparison") -> None:
    from orchestrator.report.writers.tables import as_rich

    for line in found.notices:
        say(line)
    if found.arms:
        out().print(as_rich(_grid(found)))
    else:
        say(f"no arm of {found.first} was confirmed with the same content in {found.second}")
    for line in (*_tests(found), *_unmatched(found), *found.unmeasured, *found.assignments):
        say(line)
    for title, lines in (
        ("spec", [str(each) for each in found.spec]),
        ("code and machine", [f"{what}: {before} -> {after}" for what, before, after in found.code]),
        ("data", [f"{what}: {before} -> {after}" for what, before, after in found.data]),
    ):
        none = "no difference" if title != "data" or found.data_known else UNKNOWN
        say(f"{title}: {'' if lines else none}".rstrip())
        for line in lines:
            say(f"  {line}")


def _tests(found: "Comparison") -> Iterator[str]:
    """Yield why outcomes have no difference, and for which splits the examples were not compared."""
    for each in found.arms:
        if each.different_tests:
            yield f"no difference in {each.metric}: {each.different_tests}"
    if found.unchecked_tests:
        named = ", ".join(filter(None, found.unchecked_tests)) or "the test data"
        yield f"not known whether both sweeps had the same examples: {named}"


def _unmatched(found: "Comparison") -> Iterator[str]:
    """Yield lines on arms without an arm of equal content in the other sweep, including equal names."""
    if both := [arm for arm in found.alone[0] if arm in found.alone[1]]:
        yield f"of one name and different content: {', '.join(both)}"
    for name, arms in zip((found.first, found.second), found.alone, strict=True):
        if only := [arm for arm in arms if arm not in both]:
            yield f"only in {name}: {', '.join(only)}"


def _grid(found: "Comparison") -> "Grid":
    from orchestrator.report.results.number_formats import format_interval
    from orchestrator.report.results.types import Grid

    rows = tuple(
        (
            each.arms[0] if each.arms[0] == each.arms[1] else f"{each.arms[0]} = {each.arms[1]}",
            each.metric,
            format_interval(each.first),
            format_interval(each.second),
            "different test sets" if each.difference is None else format_interval(each.difference, "+"),
            each.how,
            each.same,
        )
        for each in found.arms
    )
    headers = ("arm", "metric", found.first, found.second, "difference", "how", "the same")
    return Grid(f"{found.second} against {found.first}: means with 95% intervals over seeds", headers, rows)
