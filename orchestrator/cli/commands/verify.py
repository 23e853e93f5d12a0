"""Implement `haltsweep verify`, which checks whether files and stores of a sweep were changed."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.commands import bundle
from orchestrator.cli.display.console import emit_json, print_line
from orchestrator.cli.locations import command, data_root, find_sweep, runs_root
from orchestrator.cli.options import Data, Json, Runs, SweepName
from orchestrator.cli.planning import read_and_plan
from orchestrator.errors import HaltsweepError, InputError, StoreError
from orchestrator.files.findings import BAD, Finding
from orchestrator.identity import SweepFolder
from search_spaces.wording import amount
from trainables.custom.source_files import is_existing_file

Repair = Annotated[
    bool,
    typer.Option(
        "--repair",
        help="First rebuild a damaged plan.json from spec.yaml, and delete the snapshot in the ledger, "
        "which the next session rebuilds.",
    ),
]


Rerun = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Import the code of a bundle, train K of its confirm trials again, and compare the results.",
        metavar="K",
    ),
]


def verify(
    name: SweepName,
    runs: Runs = None,
    repair: Repair = False,
    rerun: Rerun = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Check a sweep or a bundle for damaged, missing or outdated files.

    Of a sweep, the command checks files, ledger, checkpoints, data, Parquet files and MLflow. Of a bundle, it
    checks files and ledger, and creates the report again. It runs code of a bundle only with --rerun.

    The exit code is 1 if a part is damaged, and 2 if no part is damaged but one could not be checked.
    """
    is_bundle = is_existing_file(name)
    _refuse_options(name, is_bundle=is_bundle, repair=repair, rerun=rerun is not None)
    folder = SweepFolder(Path(name)) if is_bundle else find_sweep(name, runs_root(runs))
    if repair:
        _repair_plan(folder)
        _delete_snapshot(folder)
    all_findings: list[Finding] = []
    parts = bundle.check_bundle(Path(name), rerun or 0, data_root(data)) if is_bundle else check_sweep(folder)
    for finding in parts:
        all_findings.append(finding)
        if not as_json:
            print_line(_format_finding(finding))
    bad_findings = [finding for finding in all_findings if finding.verdict in BAD]
    if as_json:
        findings = [asdict(finding) for finding in all_findings]
        emit_json({"sweep": folder.name, "sound": not bad_findings, "findings": findings})
    else:
        print_line(f"{folder.name}: {_fault_summary(bad_findings)}")
    if bad_findings:
        raise typer.Exit(1 if any(finding.verdict != "unknown" for finding in bad_findings) else 2)


def _refuse_options(name: str, *, is_bundle: bool, repair: bool, rerun: bool) -> None:
    """Raise `InputError` for an option that does not apply to a bundle or to a sweep."""
    if is_bundle and repair:
        raise InputError(f"--repair works only on sweeps, but {name} is a file; omit --repair")
    if rerun and not is_bundle:
        raise InputError(
            f"--rerun works only on bundles, but {name} is not a file; `haltsweep bundle` writes one"
        )


def check_sweep(folder: SweepFolder) -> Iterator[Finding]:
    """Yield findings on all parts of a sweep, in the order of the checks."""
    from orchestrator.cli import sweep_checks
    from orchestrator.cli.display.wait_display import WaitDisplay
    from orchestrator.execution.sweep.launch_folder import Setup, read_setup
    from orchestrator.plan.serialise import read_plan

    yield from sweep_checks.check_files(folder)
    yield from sweep_checks.check_report(folder)
    plan = setup = None
    with suppress(StoreError):  # reported by the check of the files
        setup = read_setup(folder)
        plan = read_plan(folder)
    with WaitDisplay("Ctrl-C ends the check", "checking") as wait_display:
        try:
            with sweep_checks.open_ledger(folder, setup or Setup(folder.root), folder.name) as ledger:
                findings = list(sweep_checks.check_ledger(ledger))
                if plan is not None and not _is_damaged(findings):
                    findings += sweep_checks.check_trials(ledger, folder)
                yield from findings
                if plan is None or setup is None or _is_damaged(findings):
                    detail = "not compared, since the plan or the ledger is not readable"
                    for part in ("checkpoints", "data", "parquet", "mlflow"):
                        yield Finding(part, "unknown", detail, "correct the faults above, and check again")
                else:
                    yield from sweep_checks.check_copies(folder, plan, setup, ledger, wait_display.update)
        except HaltsweepError as error:
            yield Finding("ledger", "damaged", str(error))


def _is_damaged(findings: Sequence[Finding]) -> bool:
    return any(finding.verdict == "damaged" for finding in findings)


def _fault_summary(bad: Sequence[Finding]) -> str:
    """Return a summary of the faults. Parts that could not be checked do not count as damaged."""
    num_damaged = sum(finding.verdict == "damaged" for finding in bad)
    num_unknown = len(bad) - num_damaged
    parts = [
        amount(num_damaged, "fault") if num_damaged else "",
        f"{amount(num_unknown, 'part')} could not be checked" if num_unknown else "",
    ]
    return ", ".join(filter(None, parts)) or "sound"


def _format_finding(finding: Finding) -> str:
    line = f"{finding.what:<11} {finding.verdict:<7} {finding.detail}"
    return line if finding.verdict == "sound" or not finding.remedy else f"{line}; {finding.remedy}"


def _delete_snapshot(folder: SweepFolder) -> None:
    from orchestrator.execution.sweep.launch_folder import read_setup
    from orchestrator.ledger.store import Ledger

    with suppress(StoreError), Ledger.open(read_setup(folder).ledger_url(folder), folder.name) as ledger:
        ledger.delete_snapshot()  # the check reports why a ledger cannot be opened


def _repair_plan(folder: SweepFolder) -> None:
    """Recreate a damaged plan.json from the spec; restore an extended plan from its stored edition.

    Raises:
        StoreError: The recreated plan differs from the launched plan.
    """
    from orchestrator.execution.sweep.extend_folder import finish_extension
    from orchestrator.execution.sweep.launch_folder import read_setup
    from orchestrator.files.file_digests import damaged_files, digest_of, read_manifest, read_verified
    from orchestrator.plan.serialise import to_json
    from trainables.atomic import write_atomically
    from trainables.custom.extensions import add_to_path

    finish_extension(folder)
    if not damaged_files(folder.root).get(folder.plan.name):
        return
    read_verified(folder.spec, "restore it from a backup")
    if (code := read_setup(folder).code) is not None:
        add_to_path(Path(code))
    _, plan = read_and_plan(folder.spec)
    text = to_json(plan)
    if digest_of(text.encode()) != (read_manifest(folder.root) or {}).get(folder.plan.name):
        raise StoreError(
            f"{folder.plan} cannot be rebuilt: this version creates another plan from "
            f"{folder.spec.name}; restore plan.json from a backup"
        )
    write_atomically(folder.plan, text)
    print_line(f"{folder.plan} was rebuilt; `{command('verify', folder)}` follows")
