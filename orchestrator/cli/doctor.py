"""`haltsweep doctor`: what this machine offers and what would stop a sweep, each with what to do about it."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Annotated, Literal

import typer

from orchestrator.cli.console import emit_json, say
from orchestrator.cli.places import data_root, runs_root, tracking_uri
from orchestrator.errors import HaltsweepError

PACKAGES = ("haltsweep", "torch", "ray", "optuna", "mlflow", "pyarrow", "sqlalchemy", "pydantic")
LOW_DISK_BYTES = 2 * 2**30
ANSWER_S = 5.0

Verdict = Literal["ok", "note", "fault"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at."""

    what: str
    verdict: Verdict
    found: str
    advice: str = ""


def doctor(
    runs: Annotated[Path | None, typer.Option(help="Folder of the sweeps.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the datasets.")] = None,
    tracking: Annotated[str | None, typer.Option(help="MLflow tracking URI.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="Ledger URL, when it is not in the sweep's folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON for scripts.")] = False,
) -> None:
    """Check versions, devices, kernels, stores and disk; exit code 1 when something would stop a sweep."""
    runs = runs_root(runs)
    findings = [*_versions(), *_devices(), _flash(), *_disks(runs, data_root(data))]
    findings += _stores(tracking_uri(tracking, runs), storage)
    if as_json:
        emit_json([asdict(finding) for finding in findings])
    else:
        _print(findings)
    if any(finding.verdict == "fault" for finding in findings):
        raise typer.Exit(1)


def _print(findings: list[Finding]) -> None:
    marks = {"ok": "ok   ", "note": "note ", "fault": "FAULT"}
    for finding in findings:
        advice = f" ({finding.advice})" if finding.advice else ""
        say(f"{marks[finding.verdict]} {finding.what:<14} {finding.found}{advice}")


def _versions() -> Iterator[Finding]:
    for package in PACKAGES:
        try:
            yield Finding(package, "ok", metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Finding(package, "fault", "not installed", f"pip install {package}")


def _devices() -> Iterator[Finding]:
    import os

    import torch

    yield Finding("cpu", "ok", f"{os.cpu_count()} cores")
    if not torch.cuda.is_available():
        yield Finding(
            "cuda", "note", "no CUDA device", "sweeps run on the CPU; a CUDA torch is used when installed"
        )
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        yield Finding(f"cuda:{index}", "ok", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB")


def _flash() -> Finding:
    for module, name in (("flash_attn", "flash-attn"), ("flash_attn.cute", "flash-attn-4")):
        if util.find_spec(module.partition(".")[0]) and _importable(module):
            return Finding("attention", "ok", f"{name} and PyTorch SDPA")
    return Finding(
        "attention", "note", "PyTorch SDPA", "pip install 'haltsweep[flash]' for flash-attn on CUDA"
    )


def _importable(module: str) -> bool:
    try:
        return util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _disks(runs: Path, data: Path) -> Iterator[Finding]:
    for what, folder in (("runs", runs), ("data", data)):
        existing = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
        free = shutil.disk_usage(existing).free
        verdict: Verdict = "ok" if free >= LOW_DISK_BYTES else "fault"
        advice = "" if verdict == "ok" else f"free some space or choose another folder with --{what}"
        yield Finding(what, verdict, f"{folder}: {free / 2**30:.1f} GiB free", advice)


def _stores(tracking: str, storage: str | None) -> list[Finding]:
    findings = [_reach("tracking", tracking, _reach_tracking)]
    if storage is not None:
        findings.append(_reach("storage", storage, _reach_ledger))
    return findings


def _reach(what: str, url: str, reach: Callable[[str], None]) -> Finding:
    try:
        reach(url)
    except (HaltsweepError, OSError) as error:
        return Finding(what, "fault", url, str(error))
    return Finding(what, "ok", url)


def _reach_tracking(uri: str) -> None:
    """Raises InputError for a file store, OSError for a server that does not answer."""
    from urllib.request import urlopen

    from orchestrator.tracking.mlflow_runs import check_uri

    check_uri(uri)
    if uri.startswith(("http://", "https://")):
        urlopen(f"{uri.rstrip('/')}/health", timeout=ANSWER_S).close()  # noqa: S310 - the scheme is checked


def _reach_ledger(url: str) -> None:
    from sqlalchemy import text

    from orchestrator.ledger.engine import connect, transaction

    engine = connect(url)
    try:
        with transaction(engine, write=False) as connection:
            connection.execute(text("SELECT 1"))
    finally:
        engine.dispose()
