"""Implement `haltsweep bundle`, which packs a sweep into one archive with a reproducible report."""

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.display.console import print_line
from orchestrator.cli.locations import runs_root
from orchestrator.cli.options import Runs, Storage, SweepName
from orchestrator.errors import InputError, StoreError
from search_spaces.wording import amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from orchestrator.cli.stored_sweep import StoredSweep
    from orchestrator.files.findings import Finding
    from orchestrator.ledger.events import Event
    from orchestrator.plan.types import Plan
    from orchestrator.trials import Record

BUNDLE_SUFFIX = ".bundle.zip"


def bundle(
    name: SweepName,
    to: Annotated[
        Path | None,
        typer.Option(help=f"Path of the archive. Default: ./NAME{BUNDLE_SUFFIX}.", metavar="FILE"),
    ] = None,
    runs: Runs = None,
    storage: Storage = None,
) -> None:
    """Pack a sweep into one archive: spec, plan, ledger, report, provenance and digests, but no weights."""
    from orchestrator.bundle import archive
    from orchestrator.cli.stored_sweep import open_stored_sweep

    with open_stored_sweep(name, runs_root(runs), storage) as sweep:
        target = to or Path(f"{sweep.plan.name}{BUNDLE_SUFFIX}")
        if target.exists():
            raise InputError(f"--to: {target} exists, and no file is overwritten. Give another --to.")
        if sweep.ledger.is_held():
            raise InputError(
                f"{sweep.plan.name} is running and cannot be bundled. Wait for its end, or stop it with "
                "`haltsweep stop`."
            )
        with TemporaryDirectory(prefix="haltsweep-bundle-") as temporary_folder:
            files = _bundle_files(sweep, Path(temporary_folder))
            archive.write_archive(target, files)
    print_line(f"{target}: {amount(len(files), 'file')}, {target.stat().st_size:,} bytes")
    print_line(f"`haltsweep verify {target}` checks that the report follows from the ledger")


def _bundle_files(sweep: "StoredSweep", target_folder: Path) -> "dict[str, bytes | Path]":
    """Return the contents of the bundle by name; large files are written to `target_folder`."""
    from importlib import metadata

    from orchestrator.bundle import contents
    from orchestrator.execution.datasets import data_digests
    from orchestrator.execution.sweep.extend_folder import editions
    from orchestrator.execution.sweep.launch_folder import read_setup
    from orchestrator.files.file_digests import read_edition

    folder = sweep.folder
    if refusal := contents.report_size_problem(sweep.plan):
        raise InputError(refusal)
    files: dict[str, bytes | Path] = {
        file.name: read_edition(file, "restore it from a backup")
        for file in (folder.spec, folder.plan, folder.provenance)
    }
    for edition in editions(folder):
        files |= {f"extensions/{edition.name}/{file.name}": file.read_bytes() for file in edition.iterdir()}
    files[contents.LEDGER_FILE] = target_folder / contents.LEDGER_FILE
    with (target_folder / contents.LEDGER_FILE).open("wb") as stream:
        stream.writelines(contents.ledger_lines(sweep.ledger.uid, sweep.ledger.rows()))
    files[contents.ENVIRONMENT_FILE] = contents.environment_text()
    digests = data_digests(sweep.plan, read_setup(folder))
    files["data.json"] = (json.dumps(digests, indent=2, sort_keys=True) + "\n").encode()
    report, _ = write_report_files(sweep.plan, sweep.ledger.events(), target_folder)
    files |= report
    versions = {"haltsweep": metadata.version("haltsweep"), "code": contents.code_digest()}
    files[contents.LIST_FILE] = contents.make_listing(sweep.plan.name, files, versions)
    return files


def write_report_files(
    plan: "Plan", events: "Iterable[Event]", target_folder: Path
) -> "tuple[dict[str, Path], Sequence[Record]]":
    """Write the report to `target_folder`; return its files by their name in the bundle, and the records.

    Args:
        plan: The plan of the sweep.
        events: All events of the ledger.
        target_folder: Existing folder for the report.
    """
    from orchestrator.bundle.contents import REPORT_FOLDER
    from orchestrator.cli.stored_sweep import fold_measured
    from orchestrator.conductor.budget import budget_end
    from orchestrator.report.results.details import details
    from orchestrator.report.results.summary import summarise
    from orchestrator.report.writers.write import write_report_folder

    last_event: Event | None = None

    def remember_last() -> "Iterator[Event]":
        nonlocal last_event
        for event in events:
            last_event = event
            yield event

    records, measured_records = fold_measured(remember_last(), plan)
    report = summarise(plan, records, budget_end(last_event, plan))
    folder = target_folder / REPORT_FOLDER
    write_report_folder(report, folder, details(plan, report, records, measured_records))
    return {f"{REPORT_FOLDER}/{file.name}": file for file in folder.iterdir()}, records


def check_bundle(path: Path, rerun: int, data_dir: Path) -> "Iterator[Finding]":
    """Yield findings on whether a bundle is unchanged and its report follows from its ledger.

    Nothing in the bundle is executed unless `rerun` is positive. Files are written only to a temporary
    folder.

    Args:
        path: The bundle.
        rerun: Number of confirm trials to rerun; 0 for none.
        data_dir: Folder for datasets of rerun trials.

    Raises:
        InputError: The file is not a bundle.
    """
    from orchestrator.bundle import archive, contents
    from orchestrator.files.findings import Finding

    with TemporaryDirectory(prefix="haltsweep-bundle-") as temporary_folder:
        folder = Path(temporary_folder)
        names = archive.unpack_archive(path, folder)
        try:
            listing = contents.read_listing(folder)
            changed_files = dict(contents.find_differing_files(folder, names, listing["files"]))
            for name, fault in changed_files.items():
                yield Finding("files", "damaged", f"{name}: {fault}", "ask for the bundle again")
            if changed_files:
                return
            yield Finding("files", "sound", f"{amount(len(names), 'file')} unchanged")
            plan, events = contents.read_plan(folder), Counter[str]()
            sessions: list[Mapping[str, Any]] = []
            new_folder = folder / "made-again"  # a name that no bundle can contain
            counted_events = _count_events(contents.read_events(folder), events, sessions)
            new_files, trial_records = write_report_files(plan, counted_events, new_folder)
            message = f"{amount(events.total(), 'event')}, each chained to the previous one"
            yield Finding("ledger", "sound", message)
        except Exception as error:  # plan and events may have any content with correct digests
            message = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
            yield Finding(
                "bundle", "damaged", f"no report can be created from it: {message}", "ask for it again"
            )
            return
        yield from _check_agreement(folder, plan, sessions, listing["files"])
        yield from _compare_reports(folder, new_files, listing)
        if rerun:
            from orchestrator.execution.sweep.rerun import rerun_trials as run_again

            yield from run_again(plan, trial_records, rerun, data_dir)


def _count_events(
    events: "Iterable[Event]", counts: Counter[str], sessions: "list[Mapping[str, Any]]"
) -> "Iterator[Event]":
    """Yield the events; count their kinds in `counts` and append opening payloads to `sessions`."""
    from orchestrator.ledger.events import EventKind

    for event in events:
        counts[event.kind] += 1
        if event.kind is EventKind.OPENED:
            sessions.append(event.payload)
        yield event


def _check_agreement(
    folder: Path, plan: "Plan", sessions: "Sequence[Mapping[str, Any]]", digests: "Mapping[str, Any]"
) -> "Iterator[Finding]":
    """Yield findings on whether spec, plan and data agree with the ledger."""
    from orchestrator.bundle.contents import find_data_fault, find_disagreements
    from orchestrator.files.findings import Finding

    faults = [*find_disagreements(plan, sessions, digests)]
    for fault in faults:
        yield Finding("plan", "damaged", fault, "trust the ledger, and ask for the bundle again")
    if not faults:
        yield Finding("plan", "sound", "agrees with the ledger")
    if fault := find_data_fault(folder):
        yield Finding("data", "damaged", fault, "ask for the bundle again")


def _compare_reports(
    folder: Path, new_report: "Mapping[str, Path]", listing: "Mapping[str, Any]"
) -> "Iterator[Finding]":
    """Compare the report in the bundle with a newly created report, and yield a finding."""
    from orchestrator.bundle import contents
    from orchestrator.files.file_digests import file_digest
    from orchestrator.files.findings import Finding

    stored_files = {
        f"{contents.REPORT_FOLDER}/{file.name}": file for file in (folder / contents.REPORT_FOLDER).glob("*")
    }
    stored_digests = {name: file_digest(file) for name, file in stored_files.items()}
    new_digests = {name: file_digest(file) for name, file in new_report.items()}
    changed_names = [
        name
        for name in sorted(stored_digests | new_digests)
        if stored_digests.get(name) != new_digests.get(name)
    ]
    # The manifest depends on the other files.
    different_files = [name for name in changed_names if not name.endswith("/manifest.json")]
    if not different_files:
        message = f"{amount(len(new_report), 'file')} recreated from the ledger, byte for byte"
        yield Finding("report", "sound", message)
        return
    other_versions = _differing_versions(folder / contents.ENVIRONMENT_FILE)
    if listing.get("code") != contents.code_digest():
        other_versions.insert(0, f"haltsweep {listing.get('haltsweep')} with its code of that time")
    message = f"files recreated from the ledger differ: {', '.join(different_files)}"
    if other_versions:
        remedy = f"verify with the versions that created the bundle: {', '.join(other_versions)}"
        yield Finding("report", "unknown", message, remedy)
    else:
        yield Finding("report", "damaged", message, "the report contradicts the ledger; trust the ledger")


def _differing_versions(environment: Path) -> list[str]:
    """Return the libraries that affect reports and whose versions differ from those in `environment`."""
    from importlib import metadata

    lines = environment.read_text("utf-8", errors="replace").splitlines()
    versions = {name.casefold(): version for name, _, version in (line.partition("==") for line in lines)}
    report_libraries = ("jinja2", "matplotlib", "numpy", "optuna", "scipy", "scikit-learn")
    bundle_versions = {name: versions[name] for name in report_libraries if name in versions}
    return [
        f"{name} {version}" for name, version in bundle_versions.items() if version != metadata.version(name)
    ]
