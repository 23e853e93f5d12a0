"""Where a result comes from: code, versions, machine, command. Asks the system, imports nothing heavy."""

import inspect
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

from orchestrator.files.redact import redact, redact_arguments, storable

PACKAGES = ("haltsweep", "torch", "ray", "optuna", "mlflow", "numpy", "sqlalchemy", "pyarrow")
ANSWER_S = 10.0
DIFF_MOST = 20_000
"""Characters of changes that are kept: every session of a sweep holds them."""
CODE = Path(__file__).resolve().parent.parent
"""Where the code of haltsweep lies."""
SOURCES = tuple(f"{folder}/*.py" for folder in ("haltsweep", "orchestrator", "search_spaces", "trainables"))
"""Of the code, what is shown of its changes, as Git names files."""
DIFF = (
    *("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/"),
    "HEAD",
)
"""What Git is asked for changes, whatever its settings are."""
OURS = "haltsweep"
"""Our own part of the code, among those of others."""
NVIDIA = Path("/proc/driver/nvidia/gpus")
CPUS = Path("/proc/cpuinfo")
NAME, VERSION = (re.compile(rf"^{each}:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE) for each in ("Name", "Version"))
RECORD = "RECORD"
LISTS = (RECORD, "installed-files.txt", "SOURCES.txt")
"""In which a distribution may say what its files are."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """What one needs to know to run it again, or to explain why it came out differently."""

    commit: str | None
    """Git commit of the working directory; None outside a checkout."""
    dirty: bool | None
    """Whether tracked files differ from the commit."""
    python: str
    versions: dict[str, str]
    """Installed distributions by name; those that are missing are left out."""
    platform: str
    cpu: str
    cpu_count: int
    """Logical cores that this process may use."""
    devices: tuple[str, ...]
    """Names of the GPUs, whether or not torch can use them."""
    host: str
    directory: str
    command: tuple[str, ...]
    """As typed, passwords masked."""
    code_commit: str | None = None
    """Git commit of the code of haltsweep itself; None where it is installed without its history."""
    code_changes: str | None = None
    """Digest of what tracked files of that code differ in from its commit; empty where they do not."""
    code: str | None = None
    """Digest of all source files that trials run, ours and those from outside; None where none do."""
    code_parts: Mapping[str, str] = field(default_factory=dict)
    """Digests of its parts: `haltsweep`, the trainable, tasks and models from outside, each by its name."""
    code_diff: str = ""
    """In what tracked sources of haltsweep differ from that commit: the beginning, secrets masked."""
    packages: tuple[str, ...] = ()
    """Everything that is installed, as `name==version`, in the order of their names."""

    def to_json(self) -> dict[str, Any]:
        """JSON values only, as an `opened` event and provenance.json carry them."""
        listed = {name: [*getattr(self, name)] for name in ("devices", "command", "packages")}
        return asdict(self) | listed


def provenance(
    directory: Path | None = None,
    *,
    code: str | None = None,
    code_parts: Mapping[str, str] = MappingProxyType({}),
    modules: Iterable[str] = (),
) -> Provenance:
    """Of this process, with the code in `directory` (default: the working directory).

    `modules` are those of trainables, models and tasks from outside: the versions of the distributions that
    they are installed from are kept too.
    """
    directory = (directory or Path.cwd()).resolve()
    commit, dirty = _git(directory)
    code_commit, code_changes, code_diff = _code(CODE)
    return Provenance(
        commit=commit,
        dirty=dirty,
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
        packages=installed(),
    )


def installed() -> tuple[str, ...]:
    """What this interpreter finds installed, as pip writes it."""
    found = {f"{name}=={version}" for name, version in map(_identity, metadata.distributions()) if name}
    return tuple(sorted(found, key=str.casefold))


def _identity(distribution: metadata.Distribution) -> tuple[str | None, str | None]:
    """Name and version. The headers end with the first empty line; what follows is a whole README."""
    headers = (distribution.read_text("METADATA") or "").partition("\n\n")[0]
    # A parser of mail would take longer for all that is installed than the rest of a small launch.
    name, version = NAME.search(headers), VERSION.search(headers)
    if name is not None and version is not None:
        return name[1], version[1]
    return distribution.name, distribution.version  # of an egg, or a file


def machine() -> dict[str, Any]:
    """What decides how fast this machine is, as provenance.json has it: `cpu`, `cpu_count`, `devices`."""
    return {"cpu": _cpu(), "cpu_count": _cpu_count(), "devices": list(_devices())}


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _code(folder: Path) -> tuple[str | None, str | None, str]:
    """Commit of the code in `folder`, digest and beginning of its changes, wherever it was launched from."""
    # In a folder that Git ignores, as an environment within a checkout, the commit is that of something else.
    if not _answer("git", "-C", str(folder), "ls-files", "orchestrator"):
        return None, None, ""
    changes = _answer("git", "-C", str(folder), *DIFF)
    digest = blake2b(changes.encode(), digest_size=8).hexdigest() if changes else changes
    # What lies beside the code may hold anything, and stays where it is.
    sources = _answer("git", "-C", str(folder), *DIFF, "--", *SOURCES) if changes else ""
    return _answer("git", "-C", str(folder), "rev-parse", "HEAD"), digest, _shortened(sources or "")


def _shortened(changes: str) -> str:
    """Text that can be stored and shown to others: whole lines, for half a secret may not look like one."""
    first = changes[: DIFF_MOST + 1]
    if len(changes) > DIFF_MOST:
        first = first[: first.rfind("\n") + 1]
    left = len(changes) - len(first)
    return storable(redact(first)) + (f"... {left:,} more characters" if left else "")


def _git(directory: Path) -> tuple[str | None, bool | None]:
    commit = _answer("git", "-C", str(directory), "rev-parse", "HEAD")
    if not commit:
        return None, None
    changes = _answer("git", "-C", str(directory), "status", "--porcelain", "--untracked-files=no")
    return commit, None if changes is None else bool(changes)


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _versions_of(modules: Iterable[str]) -> dict[str, str]:
    """By name of the distribution; nothing for a module that is not installed."""
    packages = {module.partition(".")[0] for module in modules}
    if not packages:
        return {}
    names = {_identity(each)[0] for each in metadata.distributions() if _holds(each, packages)}
    return {name: metadata.version(name) for name in sorted(filter(None, names))}


def _holds(distribution: metadata.Distribution, packages: set[str]) -> bool:
    """Whether one of these top-level packages is of it, as `importlib.metadata.packages_distributions` tells.

    That looks for every file of every distribution on the disk: here only where a list names one of them.
    """
    declared = (distribution.read_text("top_level.txt") or "").split()
    if declared:
        return not packages.isdisjoint(declared)
    if not any(_may_name(distribution.read_text(name) or "", packages, name) for name in LISTS):
        return False
    files = distribution.files or ()
    tops = {file.parts[0] if len(file.parts) > 1 else inspect.getmodulename(file.name) for file in files}
    return not packages.isdisjoint(tops)


def _may_name(listed: str, packages: set[str], name: str) -> bool:
    """Whether a list of files could have one at the top of these packages.

    Of a long RECORD every line would be made a path, only because a folder far below is called `tests`.
    """
    if name != RECORD:  # whose paths may begin elsewhere
        return any(package in listed for package in packages)
    tops = "|".join(map(re.escape, packages))
    return re.search(rf'^[ "./]*(?:{tops})[/.]', listed, re.MULTILINE) is not None


def _cpu() -> str:
    lines = CPUS.read_text().splitlines() if CPUS.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _devices() -> tuple[str, ...]:
    if NVIDIA.is_dir():
        lines = [
            line for file in sorted(NVIDIA.glob("*/information")) for line in file.read_text().splitlines()
        ]
        return tuple(line.partition(":")[2].strip() for line in lines if line.startswith("Model:"))
    return tuple((_answer("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "").splitlines())


def _answer(program: str, *arguments: str) -> str | None:
    """What the program prints; None if it is missing, fails or does not answer."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - fixed programs and arguments  # nosec B603
            [path, *arguments],
            capture_output=True,
            text=True,
            errors="replace",  # sources may be any bytes
            timeout=ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
