"""List the contents of a data folder: every split, compared with its seal, and other files."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from trainables.custom.extensions import BadModule, UnknownName
from trainables.data.progress import report
from trainables.data.split import content_hash
from trainables.data.store import LOCK, address, open_sealed, read_seal
from trainables.locks import is_held
from trainables.task_catalog import splits, task_config

Integrity = Literal["whole", "damaged", "unsealed", "stale", "unknown", "being built"]
"""State of a file. `damaged`: differs from its seal. `unsealed`: left by an interrupted build. `stale`:
intact, but its settings, generator or source files have changed. `unknown`: not written by haltsweep, or
cannot be checked now, e.g. because source files are missing.
"""
REMOVABLE = frozenset({"damaged", "unsealed", "stale"})
FOLDER = re.compile("[0-9a-f]{20}")
"""Pattern of the result of `store.address_digest`."""
DATA, SEAL, UNFINISHED = ".arrow", ".json", ".tmp"


@dataclass(frozen=True, slots=True)
class DataFile:
    """State of one split, or of one file that belongs to no split."""

    path: Path
    verdict: Integrity
    reason: str = ""
    content_hash: str = ""
    size: int = 0
    """Size in bytes."""

    def remove(self) -> None:
        """Delete the file, its seal first, so that an interrupted removal leaves nothing trusted."""
        assert self.verdict in REMOVABLE, f"state must be one of {sorted(REMOVABLE)}, got {self.verdict}"
        if self.path.suffix == DATA:
            self.path.with_suffix(SEAL).unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)


def inspect(data_dir: Path) -> Iterator[DataFile]:
    """Yield all contents of `data_dir`, in order of name; reads all data sets and writes nothing.

    Other top-level entries, for example published files, are listed as one item each and not read.
    """
    by_entry: dict[Path, list[Path]] = {}
    for path in sorted(path for path in data_dir.rglob("*") if path.is_file()):
        by_entry.setdefault(data_dir / path.relative_to(data_dir).parts[0], []).append(path)
    data_files = {path for files in by_entry.values() for path in files if _is_store_file(path, data_dir)}
    total, bytes_read = sum(map(_size, data_files)), 0
    for top, files in by_entry.items():
        if data_files.isdisjoint(files):
            reason = f"no data set: {len(files):,} file{'s' * (len(files) > 1)}"
            yield DataFile(top, "unknown", reason, size=sum(map(_size, files)))
            continue
        for path in files:
            if path not in data_files:
                yield DataFile(path, "unknown", "not where data sets are", size=_size(path))
                continue
            report("bytes", bytes_read, total)
            bytes_read += _size(path)
            if (state := inspect_file(path)) is not None:
                yield state


def _is_store_file(path: Path, data_dir: Path) -> bool:
    """Return whether `path` is named like a file of the store: <task>/<digest>/<file>."""
    parts = path.relative_to(data_dir).parts
    return len(parts) == 3 and FOLDER.fullmatch(parts[1]) is not None


def inspect_file(path: Path) -> DataFile | None:
    """Return the state of a file; None for a file that is checked together with its data."""
    if path.suffix == LOCK or (path.suffix == SEAL and path.with_suffix(DATA).exists()):
        return None
    # Unfinished files are named `.<split>.<suffix>.<process and random letters>.tmp`.
    final_path = Path(path.name[1:]).with_suffix("").with_suffix("") if path.suffix == UNFINISHED else path
    split = final_path.stem
    try:
        is_locked = is_held(path.with_name(f"{split}{LOCK}"))
    except OSError as error:
        return DataFile(
            path, "unknown", f"its lock cannot be read: {error.strerror or error}", size=_size(path)
        )
    if is_locked:
        return DataFile(path, "being built", "another process holds its lock")
    if path.suffix == DATA:
        return _inspect_split(path)
    return _inspect_stray(path)


def _inspect_stray(path: Path) -> DataFile:
    size = _size(path)
    if path.suffix == UNFINISHED:
        return DataFile(path, "unsealed", "left by a build that was cut off", size=size)
    if path.suffix == SEAL:
        return DataFile(path, "damaged", f"its data file {path.with_suffix(DATA).name} is missing", size=size)
    return DataFile(path, "unknown", "not part of a data set", size=size)


def _inspect_split(path: Path) -> DataFile:
    """Return the state of the split at `path`."""
    size = _size(path)
    if not path.with_suffix(SEAL).exists():
        return DataFile(path, "unsealed", "its build was cut off before the seal", size=size)
    try:
        table, fault = open_sealed(path)
        made_from = read_seal(path)["made_from"]
        if table is not None and (table_hash := content_hash(table)) != read_seal(path)["content_hash"]:
            fault = f"content_hash must be {read_seal(path)['content_hash']}, got {table_hash}"
    except OSError as error:
        # An unreadable file may be intact, so it is not deleted.
        return DataFile(path, "unknown", f"cannot be read: {error.strerror or error}", size=size)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        table, fault = None, f"{type(error).__name__}: {error}"
    if fault or table is None:
        return DataFile(path, "damaged", fault or "cannot be read", size=size)
    try:
        staleness = _staleness(path, made_from)
    except (ValueError, OSError) as error:
        return DataFile(path, "unknown", f"its source cannot be read: {error}", table_hash, size)
    return DataFile(path, "stale" if staleness else "whole", staleness, table_hash, size)


def _staleness(path: Path, made_from: Mapping[str, Any]) -> str:
    """Return the reason why no spec can use the split any more; an empty text if a spec can use it.

    Raises:
        ValueError, OSError: Its source files cannot be read.
    """
    try:
        config = task_config(made_from["task"])
        current = _address(config)
    except UnknownName as error:
        return f"its task is gone: {error}"
    except BadModule as error:
        raise ValueError(str(error)) from error
    except ValidationError:
        return "its settings are no longer allowed"
    if current != made_from:
        changed = sorted(key for key in current | dict(made_from) if current.get(key) != made_from.get(key))
        return f"created with another {' and '.join(changed)}"
    is_known = path.stem in {info.name for info in splits(config)}
    return "" if is_known else f"the task has no split {path.stem!r}"


_address = cache(address)


def _size(path: Path) -> int:
    """Return the size in bytes; 0 for a file that no longer exists."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
