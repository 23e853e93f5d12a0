"""Implement `haltsweep doctor`, which checks this machine and states remedies for faults."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import typer

from orchestrator.cli.display.console import emit_json, print_line
from orchestrator.cli.locations import data_root, nearest_existing, runs_root, tracking_uri
from orchestrator.cli.options import Data, Json, Runs, Storage, Tracking
from orchestrator.errors import HaltsweepError
from orchestrator.files.redact import redact, redact_url

PACKAGES = ("haltsweep", "torch", "ray", "optuna", "mlflow", "pyarrow", "sqlalchemy", "pydantic")
LOW_DISK_BYTES = 2 * 2**30
TIMEOUT_S = 5.0
DEFAULT_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
"""Default ports of database servers."""

Severity = Literal["ok", "note", "fault"]


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """Result of one check of the machine."""

    what: str
    verdict: Severity
    found: str
    advice: str = ""


def doctor(
    runs: Runs = None,
    data: Data = None,
    storage: Storage = None,
    tracking: Tracking = None,
    as_json: Json = False,
) -> None:
    """Check versions, devices, kernels, stores and disk; exit code 1 if a problem would stop a sweep."""
    runs = runs_root(runs)
    findings = [
        *_check_versions(),
        *_check_devices(),
        _check_attention(),
        *_check_disks(runs, data_root(data)),
    ]
    findings += _check_stores(tracking_uri(tracking, runs), storage)
    if as_json:
        emit_json([asdict(finding) for finding in findings])
    else:
        _print(findings)
    if any(finding.verdict == "fault" for finding in findings):
        raise typer.Exit(1)


def _print(findings: list[MachineCheck]) -> None:
    marks = {"ok": "ok   ", "note": "note ", "fault": "FAULT"}
    for finding in findings:
        advice = f" ({finding.advice})" if finding.advice else ""
        print_line(f"{marks[finding.verdict]} {finding.what:<14} {finding.found}{advice}")


def _check_versions() -> Iterator[MachineCheck]:
    from importlib import metadata

    for package in PACKAGES:
        try:
            yield MachineCheck(package, "ok", metadata.version(package))
        except metadata.PackageNotFoundError:
            yield MachineCheck(package, "fault", "not installed", f"pip install {package}")


def _check_devices() -> Iterator[MachineCheck]:
    import torch

    yield MachineCheck("cpu", "ok", f"{os.cpu_count()} cores")
    if not torch.cuda.is_available():
        advice = "sweeps run on the CPU; install a CUDA build of torch to use a GPU"
        yield MachineCheck("cuda", "note", "no CUDA device", advice)
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        found = f"{device.name}, {device.total_memory / 2**30:.0f} GiB"
        yield MachineCheck(f"cuda:{index}", "ok", found)


def _check_attention() -> MachineCheck:
    import torch

    from trainables.layers.attention.flash import flash_kernels

    if not torch.cuda.is_available():
        return MachineCheck("attention", "ok", "math and PyTorch SDPA, on a CPU")
    capability = torch.cuda.get_device_capability()[0]
    names = [kernel.name for kernel in flash_kernels() if kernel.capability <= capability]
    if not names:
        advice = "no FlashAttention kernel runs on this GPU; pip install 'haltsweep[flash]' for flash-attn"
        return MachineCheck("attention", "note", "PyTorch SDPA", advice)
    kernels = f"{names[0]} in 16 bits, else PyTorch SDPA"
    more_kernels = f"; also installed: {', '.join(names[1:])}" if names[1:] else ""
    return MachineCheck("attention", "ok", kernels + more_kernels)


def _check_disks(runs: Path, data: Path) -> Iterator[MachineCheck]:
    for option, folder in (("runs", runs), ("data", data)):
        place = nearest_existing(folder)
        free_bytes, advice = shutil.disk_usage(place).free, f"choose another --{option}"
        free_space = f"{folder}: {free_bytes / 2**30:.1f} GiB free"
        if not os.access(place, os.W_OK | os.X_OK):
            yield MachineCheck(option, "fault", f"{folder}: {place} cannot be written", advice)
        elif free_bytes < LOW_DISK_BYTES:
            yield MachineCheck(option, "fault", free_space, f"free some space or {advice}")
        else:
            yield MachineCheck(option, "ok", free_space)


def _check_stores(tracking: str, storage: str | None) -> Iterator[MachineCheck]:
    from orchestrator.ledger.sql.engine import require_reachable

    yield _check_connection("tracking", tracking, _ping_tracking)
    if storage is not None:
        yield _check_connection("storage", storage, require_reachable)


def _check_connection(option: str, url: str, reach: Callable[[str], None]) -> MachineCheck:
    try:
        reach(url)
    except (HaltsweepError, OSError, ValueError) as error:
        return MachineCheck(option, "fault", redact_url(url), " ".join(redact(error).split()))
    return MachineCheck(option, "ok", redact_url(url))


def _ping_tracking(uri: str) -> None:
    """Raise `InputError` for a file store, and `OSError` or `ValueError` for an unreachable server."""
    from urllib.request import urlopen

    from orchestrator.tracking.mlflow.mlflow_runs import check_uri

    check_uri(uri)
    parts = urlsplit(uri)
    if parts.scheme in {"http", "https"}:
        place = parts.netloc.rpartition("@")[2] + parts.path.rstrip("/")  # urllib supports no passwords
        urlopen(f"{parts.scheme}://{place}/health", timeout=TIMEOUT_S).close()  # noqa: S310 - scheme is checked  # nosec B310
    elif parts.hostname and (port := parts.port or DEFAULT_PORTS.get(parts.scheme.partition("+")[0])):
        socket.create_connection((parts.hostname, port), TIMEOUT_S).close()
