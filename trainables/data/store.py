"""Splits on disk: built once per machine, memory-mapped by every trial, identified by content.

    <data_dir>/<task>/<digest of settings and generator version>/<split>.arrow   one Arrow IPC record batch
                                                                 <split>.json    its seal
                                                                 <split>.lock    held while building

A file without its seal, or one that differs from it, is never used: the seal is written last, after the
data has reached the disk, and names the size, the digest of all bytes, the content hash and the floor: the
accuracy of always giving the commonest label, or answer. It has a digest of its own. A process reads the
bytes once, before anything else of them; what is not whole is built again.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from trainables.atomic import clear_unfinished, flush, replacing, write_atomically
from trainables.catalog import is_outside
from trainables.data.conformity import check_table
from trainables.data.files import file_digest
from trainables.data.progress import report_waiting
from trainables.data.split import Split, content_hash
from trainables.locks import locked
from trainables.settings import Settings
from trainables.task_catalog import shape as task_shape
from trainables.task_catalog import source_digest, task_module, task_name
from trainables.task_catalog import splits as task_splits

LOG = logging.getLogger(__name__)
FORMAT = 1
"""Layout of the files; part of the address."""
HASH_KEY = b"haltsweep.content_hash"
SEAL_DIGEST = "seal_digest"
WAIT_SHOWN_S = 2.0
"""Seconds to wait for another builder before the wait is reported."""
LOCK = ".lock"


class DataError(Exception):
    """A data set could not be written or read; the message says where and what to do."""


def open_split(config: Settings, split: str, data_dir: Path) -> Split:
    """The split, built first if this `data_dir` does not hold a whole copy.

    Raises `ValueError` for a split that the task does not have or a source that it cannot read, and
    `DataError` where the disk refuses.
    """
    known = tuple(info.name for info in task_splits(config))
    if split not in known:
        raise ValueError(f"{task_name(config)} has no split {split!r}. Known: {', '.join(known)}")
    path = split_path(config, split, data_dir)
    try:
        table, _ = open_sealed(path)
        if table is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path.with_suffix(LOCK), WAIT_SHOWN_S, partial(_tell_wait, path)):
                # Another process may have built it while this one waited.
                table, fault = open_sealed(path)
                if fault:
                    LOG.warning("%s is damaged (%s); building it again", path, fault)
                if table is None:
                    _write(_built(config, split, path), path, address(config))
                    table, fault = open_sealed(path)
                    assert table is not None, f"what was just written must be readable: {path}: {fault}"
    except OSError as error:
        raise DataError(
            "--data must be a folder with free space that can be written, got "
            f"{error.strerror or error} for {error.filename or path}; free some space or choose another "
            "--data"
        ) from error
    if is_outside("tasks", task_name(config)):  # what it announces may change without its VERSION
        _check(table, config, split)
    shape = task_shape(config)
    return Split(table, shape.pad_id, _hash_of(table), shape.end_id)


def _built(config: Settings, split: str, path: Path) -> pa.Table:
    """What the task makes, for `path`. Raises `ValueError`, for sources that the system refuses to read or
    that are no longer those after which `path` is called as well."""
    try:
        table = task_module(task_name(config)).build(config, split)
    except OSError as error:
        raise ValueError(
            f"the files that {task_name(config)} reads must be readable, got {error}; correct that"
        ) from error
    if path.parent.name != address_digest(address(config)):
        raise ValueError(
            f"the files that {task_name(config)} reads must not change while they are read, but did; start "
            "again when they are whole"
        )
    if not isinstance(table, pa.Table):
        raise ValueError(  # noqa: TRY004 - of a task of others, not of code of ours
            f"build(config, {split!r}) of {task_name(config)} must return a pyarrow.Table, got "
            f"{type(table).__name__}"
        )
    if not len(table):
        raise ValueError(
            f"the split {split} of {task_name(config)} must hold examples, got none; ask for more or add some"
        )
    _check(table, config, split)
    return table


def _check(table: pa.Table, config: Settings, split: str) -> None:
    """Raises `ValueError` where the task announces other examples than these."""
    (info,) = (each for each in task_splits(config) if each.name == split)
    check_table(table, task_shape(config), info)


def split_path(config: Settings, split: str, data_dir: Path) -> Path:
    """Where the split is or will be."""
    return data_dir / task_name(config) / address_digest(address(config)) / f"{split}.arrow"


def address_digest(made_from: Mapping[str, Any]) -> str:
    """Name of the folder of all splits with this address."""
    return hashlib.blake2b(json.dumps(made_from, sort_keys=True).encode(), digest_size=10).hexdigest()


def address(config: Settings) -> dict[str, Any]:
    """Everything that the content depends on."""
    module = task_module(task_name(config))
    found = {"task": config.model_dump(mode="json"), "version": module.VERSION, "format": FORMAT}
    source = source_digest(module, config)
    return found if source is None else found | {"source": source}


def read_seal(path: Path) -> dict[str, Any]:
    """What the seal of the split at `path` says. Raises `FileNotFoundError`, `ValueError` if damaged."""
    seal = json.loads(path.with_suffix(".json").read_bytes())
    if not isinstance(seal, dict) or seal.pop(SEAL_DIGEST, None) != _seal_digest(seal):
        raise ValueError("its seal must be as it was written, and is not")
    return seal


def open_sealed(path: Path) -> tuple[pa.Table | None, str]:
    """The table, memory-mapped, or None where there is no whole copy; and what is wrong with a bad one."""
    try:
        seal = read_seal(path)
        if address_digest(seal["made_from"]) != path.parent.name:
            return None, "its seal is that of other settings than its folder's"
        if fault := _unlike(seal, {"bytes": path.stat().st_size}):
            return None, fault
        # Checked before Arrow reads it: what Arrow does on damaged bytes is undefined.
        if fault := _unlike(seal, {"digest": file_digest(path)}):
            return None, fault
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        fault = _unlike(seal, {"examples": len(table), "content_hash": _hash_of(table)})
    except FileNotFoundError:
        return None, ""
    except (ValueError, KeyError, TypeError) as error:
        return None, f"{type(error).__name__}: {error}"
    return (None, fault) if fault else (table, "")


def _unlike(seal: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """The first of `found` that is not as the seal says; empty if all are."""
    return next(
        (f"{key} must be {seal[key]}, got {value}" for key, value in found.items() if seal[key] != value), ""
    )


def sealed(seal: Mapping[str, Any]) -> bytes:
    """A seal as it is stored: with a digest of its own, so that damage to it shows as well."""
    return json.dumps({**seal, SEAL_DIGEST: _seal_digest(seal)}, indent=2).encode()


def _seal_digest(seal: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(seal, sort_keys=True).encode(), digest_size=16).hexdigest()


def _hash_of(table: pa.Table) -> str:
    metadata: Mapping[bytes, bytes] = table.schema.metadata or {}
    return metadata.get(HASH_KEY, b"").decode()


def _write(table: pa.Table, path: Path, made_from: Mapping[str, Any]) -> None:
    """Data first, then the seal, each written elsewhere and renamed. The caller holds the lock."""
    for name in (path, path.with_suffix(".json")):  # their writers are dead, or they would hold the lock
        clear_unfinished(name)
    path.with_suffix(".json").unlink(missing_ok=True)
    table = table.combine_chunks()
    digest = content_hash(table)
    table = table.replace_schema_metadata({HASH_KEY: digest.encode()})
    with replacing(path) as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=max(1, len(table)))
    flush(path.parent)
    seal = {
        "content_hash": digest,
        "bytes": path.stat().st_size,
        "digest": file_digest(path),
        "examples": len(table),
        "majority_rate": Split(table, pad_id=0, content_hash=digest).majority_rate,
        "made_from": made_from,
    }
    try:
        write_atomically(path.with_suffix(".json"), sealed(seal))
        flush(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _tell_wait(path: Path, holder: str) -> None:
    """A long wait is reported, with the holder of the lock."""
    text = f"waiting for {holder}, which builds {path}"
    if not report_waiting(text):
        LOG.warning("%s", text)
