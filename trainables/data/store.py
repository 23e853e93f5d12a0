"""Store splits on disk: built once per machine, memory-mapped by every trial, identified by content.

    <data_dir>/<task>/<digest of settings and generator version>/<split>.arrow   one Arrow IPC record batch
                                                                 <split>.json    its seal
                                                                 <split>.lock    held while building

A file without a seal, or one that differs from its seal, is never used. The seal is written last, after the
data is on disk. It contains the size, the digest of all bytes, the content hash and the floor: the accuracy
of always predicting the most common label or answer. It also contains a digest of the seal itself. A process
reads all bytes once to verify them before any other use. A split that fails is built again.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from trainables.atomic import clear_unfinished, flush, open_replacement, write_atomically
from trainables.catalog import is_custom
from trainables.data.conformity import check_table
from trainables.data.files import file_digest
from trainables.data.progress import report_waiting
from trainables.data.split import Split, content_hash
from trainables.locks import hold_lock
from trainables.settings import Settings
from trainables.task_catalog import shape as task_shape
from trainables.task_catalog import source_digest, task_module, task_name
from trainables.task_catalog import splits as task_splits

LOG = logging.getLogger(__name__)
FORMAT = 1
"""Version of the file layout; part of the address."""
HASH_KEY = b"haltsweep.content_hash"
SEAL_DIGEST = "seal_digest"
SILENT_WAIT_S = 2.0
"""Seconds to wait for another builder before the wait is reported."""
LOCK = ".lock"


class DataError(Exception):
    """A data set cannot be written or read; the message names the place and a remedy."""


def open_split(config: Settings, split: str, data_dir: Path) -> Split:
    """Return the split; build it first if `data_dir` has no intact copy.

    Raises:
        ValueError: The task has no such split, or cannot read its source files.
        DataError: The disk cannot be read or written.
    """
    stored_splits = tuple(info.name for info in task_splits(config) if not info.streamed)
    if split not in stored_splits:
        raise ValueError(f"{task_name(config)} has no split {split!r}. Known: {', '.join(stored_splits)}")
    path = split_path(config, split, data_dir)
    try:
        table, _ = open_sealed(path)
        if table is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with hold_lock(path.with_suffix(LOCK), SILENT_WAIT_S, partial(_report_wait, path)):
                # Another process may have built the split during the wait.
                table, fault = open_sealed(path)
                if fault:
                    LOG.warning("%s is damaged (%s); building it again", path, fault)
                if table is None:
                    _write(_build(config, split, path), path, address(config))
                    table, fault = open_sealed(path)
                    assert table is not None, f"a new split must be readable: {path}: {fault}"
    except FileExistsError as error:
        raise DataError(f"{error}; delete it") from error
    except OSError as error:
        raise DataError(
            "--data must be a folder with free space that can be written, got "
            f"{error.strerror or error} for {error.filename or path}; free some space or choose another "
            "--data"
        ) from error
    # the declarations of such a task may change without a new VERSION
    if is_custom("tasks", task_name(config)):
        _check(table, config, split)
    shape = task_shape(config)
    return Split(table, shape.pad_id, _stored_hash(table), shape.end_id)


def _build(config: Settings, split: str, path: Path) -> pa.Table:
    """Build a split and return its table, which will be stored at `path`.

    Raises:
        ValueError: Source files cannot be read, or no longer match the address in `path`.
    """
    try:
        table = task_module(task_name(config)).build(config, split)
    except OSError as error:
        raise ValueError(
            f"the files that {task_name(config)} reads must be readable, got {error}; correct that"
        ) from error
    if path.parent.name != address_digest(address(config)):
        raise ValueError(
            f"the files that {task_name(config)} reads must not change while they are read, but did; "
            "start again when they are complete"
        )
    if not isinstance(table, pa.Table):
        raise ValueError(  # noqa: TRY004 - a fault of a custom task
            f"build(config, {split!r}) of {task_name(config)} must return a pyarrow.Table, got "
            f"{type(table).__name__}"
        )
    if not len(table):
        raise ValueError(
            f"the split {split} of {task_name(config)} must contain examples, got none; request more or "
            "add some"
        )
    _check(table, config, split)
    return table


def _check(table: pa.Table, config: Settings, split: str) -> None:
    """Raise `ValueError` if the examples differ from the declarations of the task."""
    (info,) = (candidate for candidate in task_splits(config) if candidate.name == split)
    check_table(table, task_shape(config), info)


def split_path(config: Settings, split: str, data_dir: Path) -> Path:
    """Return the path of the split, which may not exist yet."""
    return data_dir / task_name(config) / address_digest(address(config)) / f"{split}.arrow"


def address_digest(made_from: Mapping[str, Any]) -> str:
    """Return the name of the folder of all splits with the address `made_from`."""
    return hashlib.blake2b(json.dumps(made_from, sort_keys=True).encode(), digest_size=10).hexdigest()


def address(config: Settings) -> dict[str, Any]:
    """Return all values that determine the contents of the splits of `config`."""
    module = task_module(task_name(config))
    values = {"task": config.model_dump(mode="json"), "version": module.VERSION, "format": FORMAT}
    source = source_digest(module, config)
    return values if source is None else values | {"source": source}


def read_seal(path: Path) -> dict[str, Any]:
    """Return the contents of the seal of the split at `path`.

    Raises:
        FileNotFoundError: There is no seal.
        ValueError: The seal is damaged.
    """
    seal = json.loads(path.with_suffix(".json").read_bytes())
    if not isinstance(seal, dict) or seal.pop(SEAL_DIGEST, None) != _seal_digest(seal):
        raise ValueError("its seal was changed or damaged")
    return seal


def open_sealed(path: Path) -> tuple[pa.Table | None, str]:
    """Return the memory-mapped table (None if no copy is intact), and the fault of a damaged copy."""
    try:
        seal = read_seal(path)
        if address_digest(seal["made_from"]) != path.parent.name:
            return None, "its seal belongs to other settings than its folder"
        if fault := _first_difference(seal, {"bytes": path.stat().st_size}):
            return None, fault
        # Check before Arrow reads the file: its behaviour on damaged bytes is undefined.
        if fault := _first_difference(seal, {"digest": file_digest(path)}):
            return None, fault
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        fault = _first_difference(seal, {"examples": len(table), "content_hash": _stored_hash(table)})
    except FileNotFoundError:
        return None, ""
    except (ValueError, KeyError, TypeError) as error:
        return None, f"{type(error).__name__}: {error}"
    return (None, fault) if fault else (table, "")


def _first_difference(seal: Mapping[str, Any], actual: Mapping[str, Any]) -> str:
    """Return a message for the first value in `actual` that differs from the seal; empty if all are equal."""
    return next(
        (f"{key} must be {seal[key]}, got {value}" for key, value in actual.items() if seal[key] != value), ""
    )


def seal_bytes(seal: Mapping[str, Any]) -> bytes:
    """Return the stored form of a seal, including a digest of the seal that reveals damage to it."""
    return json.dumps({**seal, SEAL_DIGEST: _seal_digest(seal)}, indent=2).encode()


def _seal_digest(seal: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(seal, sort_keys=True).encode(), digest_size=16).hexdigest()


def _stored_hash(table: pa.Table) -> str:
    metadata: Mapping[bytes, bytes] = table.schema.metadata or {}
    return metadata.get(HASH_KEY, b"").decode()


def _write(table: pa.Table, path: Path, made_from: Mapping[str, Any]) -> None:
    """Write the data, then the seal, each to a temporary file that is renamed. The caller holds the lock."""
    # writers of unfinished files are dead, or they would hold the lock
    for name in (path, path.with_suffix(".json")):
        clear_unfinished(name)
    path.with_suffix(".json").unlink(missing_ok=True)
    table = table.combine_chunks()
    digest = content_hash(table)
    table = table.replace_schema_metadata({HASH_KEY: digest.encode()})
    with open_replacement(path) as file, pa.ipc.new_file(file, table.schema) as writer:
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
        write_atomically(path.with_suffix(".json"), seal_bytes(seal))
        flush(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _report_wait(path: Path, holder: str) -> None:
    """Report a long wait, with the holder of the lock."""
    text = f"waiting for {holder}, which builds {path}"
    if not report_waiting(text):
        LOG.warning("%s", text)
