"""Collect the provenance of results: code, versions, machine, command; without slow imports."""

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orchestrator.files.redact import escape_unstorable, redact_arguments, redact_code

PACKAGES = ("haltsweep", "torch", "ray", "optuna", "mlflow", "numpy", "sqlalchemy", "pyarrow")
GIT_TIMEOUT_S = 10.0
MAX_DIFF_CHARS = 20_000
"""Maximum number of characters of the stored diff; every session of a sweep stores one."""
PACKAGE_FOLDER = Path(__file__).resolve().parent.parent
"""Folder that contains the code of haltsweep."""
SOURCE_PATTERNS = tuple(
    f"{folder}/*.py" for folder in ("haltsweep", "orchestrator", "search_spaces", "trainables")
)
"""Git path patterns of the sources that are included in the diff."""
DIFF_ARGUMENTS = (
    *("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/"),
    "HEAD",
)
"""Arguments of `git diff` that make the output independent of the user's Git settings."""
PACKAGE_NAME = "haltsweep"
"""Name of haltsweep among the parts of the code."""
GPU_INFO_FOLDER = Path("/proc/driver/nvidia/gpus")
CPU_INFO = Path("/proc/cpuinfo")
NAME, VERSION = (
    re.compile(rf"^{header}:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE) for header in ("Name", "Version")
)


@dataclass(frozen=True, slots=True)
class Provenance:
    """All that is needed to repeat a run, or to explain a different result."""

    commit: str | None
    """Git commit of the working directory; None outside a checkout."""
    dirty: bool | None
    """Whether tracked files differ from the commit."""
    python: str
    versions: dict[str, str]
    """Versions of installed distributions by name; missing ones are left out."""
    platform: str
    cpu: str
    cpu_count: int
    """Number of logical cores that this process may use."""
    devices: tuple[str, ...]
    """Names of the GPUs, including those that PyTorch cannot use."""
    host: str
    directory: str
    command: tuple[str, ...]
    """Command line as typed, with passwords masked."""
    code_commit: str | None = None
    """Git commit of the code of haltsweep itself; None if it is installed without its history."""
    code_changes: str | None = None
    """Digest of the uncommitted changes to tracked files of haltsweep; empty if there are none."""
    code: str | None = None
    """Digest of all source files that trials run, built-in and custom; None if trials run none."""
    code_parts: Mapping[str, str] = field(default_factory=dict)
    """Digests of the parts of the code by name: `haltsweep`, and custom trainable, tasks and models."""
    code_diff: str = ""
    """Beginning of the diff between the tracked sources of haltsweep and the commit, with secrets masked."""
    packages: tuple[str, ...] = ()
    """All installed distributions as `name==version`, sorted by name."""

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, as stored in an `opened` event and in provenance.json."""
        lists = {name: [*getattr(self, name)] for name in ("devices", "command", "packages")}
        return asdict(self) | lists


def provenance(
    directory: Path | None = None,
    *,
    code: str | None = None,
    code_parts: Mapping[str, str] = MappingProxyType({}),
    modules: Iterable[str] = (),
) -> Provenance:
    """Return the provenance of this process.

    Args:
        directory: Folder of the code to describe; the working directory by default.
        code: Digest of all source files that trials run.
        code_parts: Digests of the parts of that code by name.
        modules: Modules of custom trainables, models and tasks; the versions of their distributions are
            included.
    """
    directory = (directory or Path.cwd()).resolve()
    commit, is_dirty = _git(directory)
    code_commit, code_changes, code_diff = _code(PACKAGE_FOLDER)
    return Provenance(
        commit=commit,
        dirty=is_dirty,
        python=platform.python_version(),
        versions=_versions() | _versions_of(modules),
        platform=platform.platform(),
        cpu=_cpu(),
        cpu_count=_cpu_count(),
        devices=_devices(),
        host=socket.gethostname(),
        directory=str(directory),
        command=redact_arguments(sys.argv),
        code_commit=code_commit,
        code_changes=code_changes,
        code=code,
        code_parts=dict(code_parts),
        code_diff=code_diff,
        packages=installed_distributions(),
    )


def installed_distributions() -> tuple[str, ...]:
    """Return the distributions installed for this interpreter, as `name==version`."""
    installed_packages = {
        f"{name}=={version}" for name, version in map(_identity, metadata.distributions()) if name
    }
    return tuple(sorted(installed_packages, key=str.casefold))


def _identity(distribution: metadata.Distribution) -> tuple[str | None, str | None]:
    """Return name and version of a distribution, read from the headers in front of its long README."""
    headers = (distribution.read_text("METADATA") or "").partition("\n\n")[0]
    # A mail parser would need more time for all distributions than the rest of a small launch.
    name, version = NAME.search(headers), VERSION.search(headers)
    if name is not None and version is not None:
        return name[1], version[1]
    return distribution.name, distribution.version  # for an egg or a single file


def machine() -> dict[str, Any]:
    """Return `cpu`, `cpu_count` and `devices`, which determine the speed of this machine."""
    return {"cpu": _cpu(), "cpu_count": _cpu_count(), "devices": list(_devices())}


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _code(folder: Path) -> tuple[str | None, str | None, str]:
    """Return the commit of the code in `folder`, the digest of its changes, and the beginning of its diff."""
    # If Git ignores the folder, e.g. a virtual environment in a checkout, the commit belongs to other code.
    if not _program_output("git", "-C", str(folder), "ls-files", "orchestrator"):
        return None, None, ""
    changes = _program_output("git", "-C", str(folder), *DIFF_ARGUMENTS)
    digest = blake2b(changes.encode(), digest_size=8).hexdigest() if changes else changes
    # Other files of the repository may contain private data and are never stored.
    sources = (
        _program_output("git", "-C", str(folder), *DIFF_ARGUMENTS, "--", *SOURCE_PATTERNS) if changes else ""
    )
    return _program_output("git", "-C", str(folder), "rev-parse", "HEAD"), digest, _shortened(sources or "")


def _shortened(changes: str) -> str:
    """Return the beginning of a diff, cut after a complete line so that secrets are recognised and masked."""
    first = changes[: MAX_DIFF_CHARS + 1]
    if len(changes) > MAX_DIFF_CHARS:
        first = first[: first.rfind("\n") + 1]
    num_omitted = len(changes) - len(first)
    return escape_unstorable(redact_code(first)) + (
        f"... {num_omitted:,} more characters" if num_omitted else ""
    )


def _git(directory: Path) -> tuple[str | None, bool | None]:
    commit = _program_output("git", "-C", str(directory), "rev-parse", "HEAD")
    if not commit:
        return None, None
    changes = _program_output("git", "-C", str(directory), "status", "--porcelain", "--untracked-files=no")
    return commit, None if changes is None else bool(changes)


def _versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _versions_of(modules: Iterable[str]) -> dict[str, str]:
    """Return versions by name of the distribution; modules that are not installed are left out."""
    packages = {module.partition(".")[0] for module in modules}
    if not packages:
        return {}
    distributions = metadata.packages_distributions()
    names = {name for package in packages for name in distributions.get(package, ())}
    return {name: metadata.version(name) for name in sorted(names)}


def _cpu() -> str:
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _devices() -> tuple[str, ...]:
    if GPU_INFO_FOLDER.is_dir():
        lines = [
            line
            for file in sorted(GPU_INFO_FOLDER.glob("*/information"))
            for line in file.read_text().splitlines()
        ]
        return tuple(line.partition(":")[2].strip() for line in lines if line.startswith("Model:"))
    return tuple(
        (_program_output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "").splitlines()
    )


def _program_output(program: str, *arguments: str) -> str | None:
    """Return the output of the program; None if it is missing, fails or does not end in time."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        completed_process = subprocess.run(  # noqa: S603 - fixed programs and arguments  # nosec B603
            [path, *arguments],
            capture_output=True,
            text=True,
            errors="replace",  # sources may have any encoding
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return completed_process.stdout.strip() if completed_process.returncode == 0 else None
