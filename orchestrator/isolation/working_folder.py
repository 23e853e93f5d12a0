"""Provide the working folder of a trial, with the files of the launch folder and the trial's own files.

A private working folder starts with the content of the launch folder: folders, copies of small files, and
symbolic links to large files and source files. Links next to the private folder make
paths such as `../data` readable. New files belong to the trial, and so does its version of a file of the
launch: a link becomes a copy before the trial writes to it. A trial that first reads such a file and then
writes to it ends with an error, since it may have continued from an earlier run. An absolute path denotes
the same file in all trials, so only the first trial may write that file.

Other programs and native code raise no audit events. Their changes are detected by comparing the files of the
launch folder. The cause of such a change is unknown, so the trial warns. Source files, databases and
logs are not compared.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from orchestrator.isolation.file_events import FileListener
from orchestrator.isolation.file_versions import Version, may_write_unseen, version_of, versions_below
from trainables.custom.script import METRICS

MAX_COPIED_FILE_BYTES = 1 << 20
"""Maximum size of a copied file; larger files are linked."""
MAX_COPIED_BYTES = 32 << 20
"""Maximum size of all copied files together; further files are linked."""
MAX_ENTRIES = 1_000
"""Maximum number of entries in copied folders; further folders and files are linked."""
NUM_LINKED_PARENTS = 2
"""Number of parents of the launch folder whose entries are linked."""
LINKED_FOLDER_NAMES = frozenset({"node_modules", "site-packages", "__pycache__", "mlruns", "mlartifacts"})
"""Names of linked folders; hidden folders, virtual environments and sweeps are linked, too."""
SWEEP_MARKER, VENV_MARKER = "plan.json", "pyvenv.cfg"
"""Files that mark the folder of a sweep and a virtual environment."""
SOURCE_SUFFIXES = frozenset(
    {".c", ".cfg", ".cpp", ".cu", ".css", ".h", ".html", ".ini", ".ipynb", ".jinja", ".js", ".lock", ".md"}
    | {".py", ".pyi", ".rst", ".sh", ".tex", ".toml", ".ts", ".typed", ".yaml", ".yml"}
)
"""Suffixes of source files, which trials are expected only to read."""
NATIVE_WRITE_SUFFIXES = frozenset(
    {".arrow", ".bin", ".ckpt", ".feather", ".h5", ".joblib", ".npy", ".npz", ".onnx", ".parquet", ".pickle"}
    | {".pkl", ".pt", ".pth", ".safetensors"}
)
"""Suffixes of files that libraries may write in native code, without an audit event."""
SHARED_WRITE_SUFFIXES = (".db", ".sqlite", ".sqlite3", "-journal", "-shm", "-wal", ".log")
"""Suffixes of databases and logs, which several processes may write, e.g. `| tee launch.log`."""
Mode = Literal["private", "shared"]
LOCKS_FOLDER = "written"
"""Folder of locks, next to the temporary folders of running trials."""
STARTED_PROGRAMS_FILE = "programs-started"
"""File in the temporary folder of a trial that has started other programs."""
REFUSED_WRITE_FILE = "refused-write"
"""File in a trial's temporary folder with the message of a refused write.

User code may catch the exception of the refusal, so the message is also stored.
"""
SYSTEM_FOLDERS = ("/dev", "/proc", "/run", "/sys", sys.prefix, sys.base_prefix)
"""Folders whose files all processes may write."""
LOCK_SUFFIX = ".lock"
"""Suffix of files that many processes open for writing to lock another file."""
PRIVATE_REMEDY = (
    "write to a relative path, which is private to each trial, or set resources.working_folder: shared"
)


class SharedFileWritten(Exception):
    """Raised if a trial writes a file of other trials, or continues from a file of an earlier run."""


@dataclass(slots=True)
class LaunchFiles:
    """Content of the launch folder when the session began, by relative path."""

    root: Path
    folders: list[str] = field(default_factory=list)
    """Folders to create, parents first."""
    copied: list[str] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    """Files and folders to link."""

    @classmethod
    def of(cls, root: Path) -> "LaunchFiles":
        """Return the content of `root`, breadth first; a missing folder counts as empty."""
        launch_files = cls(root)
        bytes_left, entries_left = MAX_COPIED_BYTES, MAX_ENTRIES
        large_folders: set[str] = set()
        waiting = [""]
        while waiting:
            folder = waiting.pop(0)
            entries = _entries(root / folder)
            top = folder.partition(os.sep)[0]
            if folder and (len(entries) > entries_left or top in large_folders):
                large_folders.add(top)
                continue
            if folder:
                launch_files.folders.append(folder)
            entries_left -= len(entries)
            holds_sweeps = any(map(_is_sweep, entries))
            copies = entries_left >= 0 and not holds_sweeps
            for entry in entries:
                path = os.path.join(folder, entry.name)
                if path == METRICS:  # a script's reports from an earlier run
                    continue
                size = _size_of_file(entry)
                if entry.is_dir(follow_symlinks=False) and not (holds_sweeps or _is_program(entry)):
                    waiting.append(path)
                elif copies and 0 <= size <= min(MAX_COPIED_FILE_BYTES, bytes_left) and not _is_source(entry):
                    bytes_left -= size
                    launch_files.copied.append(path)
                elif size >= 0 or os.path.isdir(entry.path):
                    launch_files.linked.append(path)
        # Linked as a whole: `Path.rglob` and `os.walk` would not follow a link to a subfolder.
        for paths in (launch_files.folders, launch_files.copied, launch_files.linked):
            paths[:] = [path for path in paths if path.partition(os.sep)[0] not in large_folders]
        launch_files.linked += sorted(large_folders)
        launch_files._link_above(entries_left)
        return launch_files

    def _link_above(self, max_entries: int) -> None:
        """Link at most `max_entries` entries of the parent folders, for paths such as `../data`.

        If a folder next to the launch folder contains only files, the trial gets a real folder with links to
        the files. New files in that folder then belong to the trial.
        """
        real_root = self.root.resolve()
        for level in range(1, NUM_LINKED_PARENTS + 1 if real_root.is_dir() else 0):
            entries = [entry for entry in _entries(real_root.parent) if entry.name != real_root.name]
            real_root = real_root.parent
            if len(entries) > max_entries:
                return
            max_entries -= len(entries)
            for entry in entries:
                path = os.path.join(*[os.pardir] * level, entry.name)
                is_private = level == 1 and entry.is_dir(follow_symlinks=False) and not _is_program(entry)
                inside = _entries(Path(entry.path)) if is_private else []
                if (
                    is_private
                    and len(inside) <= max_entries
                    and all(os.path.isfile(each.path) for each in inside)
                ):
                    max_entries -= len(inside)
                    self.folders.append(path)
                    self.linked += [os.path.join(path, each.name) for each in inside]
                else:
                    self.linked.append(path)


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        return sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []


def _size_of_file(entry: "os.DirEntry[str]") -> int:
    """Return the size in bytes of a regular file or a link to one; -1 for anything else."""
    try:
        return entry.stat().st_size if entry.is_file() else -1
    except OSError:
        return -1


def _is_source(entry: "os.DirEntry[str]") -> bool:
    return os.path.splitext(entry.name)[1].lower() in SOURCE_SUFFIXES


def _is_program(entry: "os.DirEntry[str]") -> bool:
    return _is_tool(entry.name) or os.path.lexists(os.path.join(entry.path, VENV_MARKER))


def _is_sweep(entry: "os.DirEntry[str]") -> bool:
    return os.path.lexists(os.path.join(entry.path, SWEEP_MARKER))


@dataclass
class WorkingFolder:
    """Working folder of the trial that this process runs."""

    files: LaunchFiles
    mode: Mode
    scratch: Path
    """Temporary folder of the trial."""
    exempt: tuple[Path, ...] = ()
    """Files and folders that all processes may write: the sweep's folder, the datasets' folder, open logs."""
    _versions: dict[str, Version] = field(default_factory=dict)
    """Versions of the copied files at the start of the trial, by relative path."""
    _before: dict[str, Version] = field(default_factory=dict)
    """Versions of the launch folder's files at the last comparison, by absolute path."""
    _read: set[str] = field(default_factory=set)
    """Absolute paths of the files in the private folder and in the launch folder that the trial has read."""
    read_from_others: dict[str, None] = field(default_factory=dict)
    """Names of the files that another trial of the sweep wrote and this trial has read, in order."""
    _held: dict[str, int] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Working directory of the trial."""
        if self.mode == "shared":
            return self.files.root
        above = self.files.root.resolve().parts[1:][-NUM_LINKED_PARENTS - 1 :]
        return self.scratch.joinpath("work", *above)

    def enter(self) -> None:
        """Create the folder and make it the working directory of this process."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        (self.scratch / REFUSED_WRITE_FILE).unlink(missing_ok=True)
        if self.mode == "private":
            self._fill()
        os.chdir(self.path)
        if self.mode == "shared":
            FileListener(_ignore, self._check_shared, self._check_shared, _ignore, _ignore).listen()
            return
        self._before = self._versions_now()
        self._redirect()
        record_program = (self.scratch / STARTED_PROGRAMS_FILE).touch
        FileListener(
            self._record_read,
            self._check_private,
            self._check_replaced,
            self._record_database,
            record_program,
        ).listen()

    def _redirect(self) -> None:
        """Let `os.chdir` and `Popen(cwd=...)` enter the trial's copy of a folder in place of the original.

        Only folders inside the launch folder have copies. Many scripts change to the folder of their own file
        and then write to relative paths.
        """
        chdir, start_program = os.chdir, subprocess.Popen.__init__

        def private_chdir(path: Any) -> None:
            chdir(self._private_path(path))

        def start_privately(program: Any, *arguments: Any, **options: Any) -> None:
            if options.get("cwd") is not None:
                options["cwd"] = self._private_path(options["cwd"])
            start_program(program, *arguments, **options)

        os.chdir = private_chdir
        subprocess.Popen.__init__ = start_privately  # type: ignore[assignment, method-assign]

    def _private_path(self, folder: Any) -> Any:
        """Return the private counterpart of a folder, or the folder itself if it has none."""
        real = "" if isinstance(folder, int) else os.path.realpath(os.fsdecode(folder))
        if not real or not _is_below(real, self._root) or _is_below(real, os.path.realpath(self.scratch)):
            return folder
        return self._counterpart(os.path.relpath(real, self._root)) or folder

    def _counterpart(self, folder: str) -> str:
        """Return the private path of a subfolder, or an empty text. Links on the path become real folders."""
        path = str(self.path)
        for part in folder.split(os.sep):
            path = os.path.normpath(os.path.join(path, part))
            if os.path.islink(path) and os.path.isdir(path):
                source = os.path.realpath(path)
                os.unlink(path)
                os.mkdir(path)
                for entry in _entries(Path(source)):
                    os.symlink(entry.path, os.path.join(path, entry.name))
        return path if os.path.isdir(path) else ""

    def _fill(self) -> None:
        source, target = str(self.files.root), str(self.path)
        os.makedirs(target)
        for folder in self.files.folders:
            os.mkdir(os.path.join(target, folder))
        for path in self.files.copied:
            try:
                shutil.copy2(os.path.join(source, path), os.path.join(target, path))
            except OSError:  # deleted, not readable for the trial either, or the disk is full
                Path(target, path).unlink(missing_ok=True)  # the part that was copied
                os.symlink(os.path.join(source, path), os.path.join(target, path))
                continue
            self._versions[path] = version_of(os.path.join(target, path))
        for path in self.files.linked:
            os.symlink(os.path.join(source, path), os.path.join(target, path))

    def check_writes(self) -> None:
        """Check the changes of the launch folder since the last comparison; warn on stderr of unknown causes.

        Raises:
            SharedFileWritten: A write was refused. Or the trial has read a file that changed for an unknown
                cause while another trial ran, so it may have read the data of the other trial.
        """
        if (self.scratch / REFUSED_WRITE_FILE).is_file():
            raise SharedFileWritten((self.scratch / REFUSED_WRITE_FILE).read_text(encoding="utf-8"))
        if self.mode == "shared":
            return
        programs_ran = os.path.lexists(self.scratch / STARTED_PROGRAMS_FILE) or may_write_unseen()
        now = self._versions_now()
        for path, version in now.items():
            is_suspect = programs_ran or os.path.splitext(path)[1].lower() in NATIVE_WRITE_SUFFIXES
            if not is_suspect or version == self._before.get(path) or self._record_writer(path, b""):
                continue
            change = (
                f"{os.path.relpath(path, self._root)} in the launch folder changed while the trial ran, by "
                "native code or a program of a trial or by another process"
            )
            if path in self._read and self._has_neighbours():
                raise SharedFileWritten(
                    f"{change}. The trial has read the file, which may contain data of another trial; "
                    f"{PRIVATE_REMEDY}"
                )
            print(f"warning: {change}; if it was a trial, {PRIVATE_REMEDY}", file=sys.stderr)
        self._before = now

    def _has_neighbours(self) -> bool:
        """Return whether other trials are running, or have run in this session."""
        own, entries = (self.scratch.name, LOCKS_FOLDER), _entries(self.scratch.parent)
        return any(entry.is_dir() and entry.name not in own for entry in entries)

    def _versions_now(self) -> dict[str, Version]:
        return versions_below(Path(self._root), self._is_ignored, MAX_ENTRIES)

    def _is_ignored(self, entry: "os.DirEntry[str]") -> bool:
        """Return whether changes of a file or folder in the launch folder are allowed."""
        if not self._is_shared(entry.path) or _is_tool(entry.name):
            return True
        if entry.is_dir():
            return any(map(_is_sweep, _entries(Path(entry.path)))) or _is_sweep(entry)
        return _is_source(entry) or entry.name.endswith(SHARED_WRITE_SUFFIXES)

    def _record_read(self, path: str) -> None:
        absolute_path = os.path.abspath(path)
        if _is_below(absolute_path, str(self.path)) or _is_below(absolute_path, self._root):
            self._read.add(absolute_path)
        real = os.path.realpath(path)
        with suppress(OSError):  # no trial has written the file
            if self._lock_file(real).read_bytes() not in (b"", self._trial_key):
                self.read_from_others[self._name(real)] = None

    def _record_database(self, path: str) -> None:
        """Record a database, and whether it has changed since another trial of the sweep opened it first."""
        real = os.path.realpath(path)
        is_of_tool = any(map(_is_tool, Path(self._name(real)).parts))
        if _is_below(real, os.path.realpath(self.scratch)) or self._is_exempt(real) or is_of_tool:
            return
        opened = f"{version_of(real) if os.path.exists(real) else None} ".encode()
        first_opened = self._record_writer(f"{real} as database", opened + self._trial_key)
        if (
            first_opened
            and not first_opened.startswith(opened)
            and not first_opened.endswith(self._trial_key)
        ):
            self.read_from_others[self._name(real)] = None

    def is_of_trial(self, path: str) -> bool:
        """Return whether the trial wrote the file at `path`; otherwise it is a copy from the launch folder.

        Args:
            path: Path of a file, relative to the working folder.
        """
        return version_of(os.path.join(self.path, path)) != self._versions.get(path)

    def _check_private(self, path: str) -> None:
        """Make the file at `path` the trial's own, or claim a file outside the private folder for the trial.

        Raises:
            SharedFileWritten: Another trial has written the file, or the trial has read it before.
        """
        real = os.path.realpath(path)
        if self._is_in_scratch(path, real):
            self._make_own(os.path.abspath(path))
        elif not _is_below(real, os.path.realpath(self.scratch)):
            self._claim(real)

    def _check_replaced(self, path: str) -> None:
        """Check an entry of a folder before the trial replaces or removes it."""
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if self._is_in_scratch(path, real):
            absolute_path = os.path.abspath(path)
            self._require_unread(absolute_path)
            self._counterpart(os.path.relpath(os.path.dirname(absolute_path), self.path))
        # Caches replace their files at other absolute paths.
        elif not _is_below(real, os.path.realpath(self.scratch)) and (
            _is_below(real, self._root) or os.path.splitext(real)[1] in NATIVE_WRITE_SUFFIXES
        ):
            self._claim(real)

    def _is_in_scratch(self, path: str, real_path: str) -> bool:
        """Return whether a path denotes a file of the trial, possibly by a link to the launch folder.

        Libraries such as MLflow write by absolute paths to folders of tools that all trials share.
        """
        is_of_tool = any(map(_is_tool, Path(self._name(real_path)).parts))
        is_shared = os.path.isabs(path) and _is_below(real_path, self._root) and is_of_tool
        return _is_below(os.path.abspath(path), os.path.realpath(self.scratch)) and not is_shared

    def _make_own(self, full_path: str) -> None:
        """Replace links on the path of a file of the private folder by folders and by a copy of the file."""
        self._require_unread(full_path)
        self._counterpart(os.path.relpath(os.path.dirname(full_path), self.path))
        if os.path.islink(full_path) and os.path.isfile(full_path):
            source = os.path.realpath(full_path)
            os.unlink(full_path)
            shutil.copy2(source, full_path)

    def _require_unread(self, full_path: str) -> None:
        """Raise SharedFileWritten before a change of a launch file that the trial has read."""
        if full_path not in self._read or not os.path.isfile(full_path):
            return
        name = os.path.relpath(full_path, self.path)
        is_linked = not _is_below(os.path.realpath(full_path), os.path.realpath(self.scratch))
        if is_linked or (name in self._versions and not self.is_of_trial(name)):
            self._refuse(
                f"{name} existed in the launch folder when the session began. The trial read it, then tried "
                "to write to it, so it may have continued from an earlier run. Delete or rename "
                f"{name} in the launch folder, write to another name, or set resources.working_folder: shared"
            )

    def _check_shared(self, path: str) -> None:
        """Raise `SharedFileWritten` if another running trial has written the file."""
        real = os.path.realpath(path)
        if not self._is_shared(real) or real in self._held:
            return
        lock = self._lock_of(real)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            self._refuse(
                f"{os.path.relpath(real, self.files.root)} must be written by one trial at a time, but "
                "another running trial has written it; write to a name that no other trial uses, or set "
                "resources.working_folder: private"
            )
        self._held[real] = lock

    def _claim(self, real_path: str) -> None:
        """Record the trial as the writer of a file. Raise `SharedFileWritten` if another trial wrote it."""
        name = self._name(real_path)
        if self._is_exempt(real_path) or any(map(_is_tool, Path(name).parts)) or name.endswith(LOCK_SUFFIX):
            return
        is_of_system = name == real_path and any(_is_below(real_path, folder) for folder in SYSTEM_FOLDERS)
        if is_of_system or os.path.isdir(real_path):
            return  # a folder is opened for writing to create an unnamed temporary file
        if self._record_writer(real_path, self._trial_key) not in (b"", self._trial_key):
            self._refuse(
                f"{name} was already written by another trial, and its absolute path names the same file in "
                f"all trials; {PRIVATE_REMEDY}"
            )

    def _refuse(self, message: str) -> NoReturn:
        """Raise `SharedFileWritten` now and, by a stored message, when the trial ends."""
        (self.scratch / REFUSED_WRITE_FILE).write_text(message, encoding="utf-8")
        raise SharedFileWritten(message)

    @property
    def _trial_key(self) -> bytes:
        """Id of the trial, the same for each attempt."""
        return self.scratch.name.rpartition("-")[0].encode()

    def _record_writer(self, real_path: str, writer: bytes) -> bytes:
        """Record the writer of a file unless one is recorded; return the earlier record, empty if none.

        Args:
            real_path: Absolute path of the file.
            writer: Id of the writing trial; empty to record nothing.
        """
        lock = self._lock_of(real_path)
        fcntl.flock(lock, fcntl.LOCK_EX)
        earlier_writer = os.read(lock, 1000)
        if not earlier_writer:
            os.write(lock, writer)
        os.close(lock)
        return earlier_writer

    @functools.cached_property
    def _root(self) -> str:
        return os.path.realpath(self.files.root)

    @functools.cached_property
    def _exempt_paths(self) -> tuple[str, ...]:
        return tuple(map(os.path.realpath, (*self.exempt, self.scratch.parent / LOCKS_FOLDER)))

    def _is_shared(self, real_path: str) -> bool:
        return _is_below(real_path, self._root) and not self._is_exempt(real_path)

    def _is_exempt(self, real_path: str) -> bool:
        return any(_is_below(real_path, folder) for folder in self._exempt_paths)

    def _name(self, real_path: str) -> str:
        """Return a path relative to the launch folder; a path outside of it stays absolute."""
        return os.path.relpath(real_path, self._root) if _is_below(real_path, self._root) else real_path

    def _lock_of(self, real_path: str) -> int:
        """Open the lock file of `real_path`, which all trials of the sweep on this machine share."""
        lock_file = self._lock_file(real_path)
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        return os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _lock_file(self, real_path: str) -> Path:
        name = hashlib.blake2b(os.fsencode(real_path), digest_size=16).hexdigest()
        return self.scratch.parent / LOCKS_FOLDER / name


def _ignore(*_: str) -> None:
    """Allow an operation."""


def _is_tool(name: str) -> bool:
    """Return whether a folder of this name contains caches or settings of tools."""
    return name in LINKED_FOLDER_NAMES or name.startswith(".")


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def matching_files(patterns: Sequence[str], folders: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Yield files below `folders` that match a pattern, each with its path relative to the folder."""
    for folder in folders:
        real = folder.resolve()
        for pattern in patterns:
            for path in sorted(folder.glob(pattern)):
                if path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(real):
                    yield path, path.relative_to(folder)
