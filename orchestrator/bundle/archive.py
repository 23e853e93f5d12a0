"""Write and unpack archives of a few named files; equal files give equal bytes.

An archive may come from an untrusted person, so unpacking runs and unpickles nothing. Every file name must be
one that `write` uses, so that no file is written outside the folder. Links, devices and folders are refused.
The bytes are counted while they are written, independent of the sizes that the archive states.
"""

import io
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from orchestrator.errors import InputError
from orchestrator.files.regular_files import describe_non_file, open_regular
from trainables.atomic import open_replacement

MAX_FILES: Final = 2000
MAX_BYTES: Final = 4 * 1024**3
"""Maximum bytes of an archive, and of all its files together."""
MAX_FILE: Final = 256 * 1024**2
"""Maximum bytes of a file that is read into memory whole; only the ledger is read in parts."""
MAX_RATIO: Final = 40
FREE_BYTES: Final = 32 * 1024**2
"""Bytes allowed for all files together, in addition to `MAX_RATIO` times the bytes of the archive.

Sweeps of 10 to 1,500 trials gave ratios from 3 to 6, single files up to 16.
"""
MAX_DIRECTORY: Final = 1024**2
"""Maximum bytes of the archive's directory of files."""
_NAME = re.compile(
    r"[a-z]+\.(?:yaml|json|jsonl|txt)|report/[\w-]+\.\w+|extensions/\d+/[a-z]+\.(?:yaml|json)", re.ASCII
)
_END, _END_64, _END_BYTES, _LOCATOR_BYTES = b"PK\x05\x06", b"PK\x06\x07", 22, 20
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
)
"""Errors that `zipfile` raises for invalid archives."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_PIECE = 1024**2


def write(path: Path, files: Mapping[str, bytes | Path]) -> None:
    """Write an archive of `files`; after an error, `path` is unchanged.

    A file given as a path is read piece by piece.

    Args:
        path: File of the archive.
        files: Bytes or paths of the files by their names in the archive.

    Raises:
        OSError: A file cannot be read or written.
        InputError: `unpack` would refuse the files.
    """
    _refuse_unreadable(files)
    with open_replacement(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            assert _NAME.fullmatch(name), f"{name} must be a name that is unpacked again"
            member = zipfile.ZipInfo(name, _EPOCH)
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            content = files[name]
            with archive.open(member, "w", force_zip64=True) as target, _open_content(content) as source:
                shutil.copyfileobj(source, target, _PIECE)
        archive.close()
        total, max_bytes = (
            sum(zip_member.file_size for zip_member in archive.infolist()),
            max_unpacked_bytes(stream.tell()),
        )
        if total > max_bytes:
            raise InputError(
                f"the files of a bundle of {stream.tell():,} bytes must have at most {max_bytes:,} "
                "together, or "
                f"`haltsweep verify` would not read it, got {total:,}; hand on the sweep's folder instead"
            )


def _refuse_unreadable(files: Mapping[str, bytes | Path]) -> None:
    sizes = {
        name: len(content) if isinstance(content, bytes) else content.stat().st_size
        for name, content in sorted(files.items())
    }
    for name, size in sizes.items():
        if size > max_file_bytes(name):
            raise InputError(
                f"{name} must have at most {max_file_bytes(name):,} bytes, or `haltsweep verify` would not "
                f"read it, and has {size:,}; hand on the sweep's folder instead"
            )
    if len(files) > MAX_FILES or sum(sizes.values()) > MAX_BYTES:
        raise InputError(
            f"a bundle must hold at most {MAX_FILES:,} files of {MAX_BYTES:,} bytes together, got "
            f"{len(files):,} of {sum(sizes.values()):,}; hand on the sweep's folder instead"
        )


def _open_content(content: bytes | Path) -> IO[bytes]:
    return io.BytesIO(content) if isinstance(content, bytes) else open_regular(content)


def unpack(path: Path, folder: Path) -> list[str]:
    """Unpack the archive at `path` into the empty `folder` and return the names of its files.

    Raises InputError for an archive that `write` cannot have written; files unpacked by then remain in
    `folder`.
    """
    _check_archive_end(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            max_bytes = max_unpacked_bytes(path.stat().st_size)
            _refuse_members(path, members, max_bytes)
            bytes_left = max_bytes
            for member in members:
                bytes_left -= _put(archive, member, folder / member.filename, bytes_left, path)
    except _UNREADABLE as error:
        raise _refused(path, f"it cannot be read ({type(error).__name__}: {error})") from error
    return [member.filename for member in members]


def _check_archive_end(path: Path) -> None:
    """Check the end of the archive, which states the size of its directory, before the directory is read."""
    if kind := describe_non_file(path):
        raise _refused(path, f"it is {kind}")
    size = path.stat().st_size
    if not _END_BYTES <= size <= MAX_BYTES:
        raise _refused(path, f"it has {size:,} bytes")
    with path.open("rb") as stream:
        stream.seek(max(0, size - _END_BYTES - _LOCATOR_BYTES))
        tail = stream.read()
    end = tail[-_END_BYTES:]
    if not end.startswith(_END) or end[-2:] != b"\0\0" or tail.startswith(_END_64):
        raise _refused(path, "it does not end as one")
    if int.from_bytes(end[12:16], "little") > MAX_DIRECTORY:
        raise _refused(path, "its list of files is too long")


def max_unpacked_bytes(size: int) -> int:
    """Return the maximum total size in bytes of the files in an archive of `size` bytes."""
    return min(MAX_BYTES, FREE_BYTES + MAX_RATIO * size)


def _refuse_members(path: Path, members: list[zipfile.ZipInfo], max_bytes: int) -> None:
    if len(members) > MAX_FILES:
        raise _refused(path, f"it holds {len(members):,} files")
    if sum(member.file_size for member in members) > max_bytes:
        raise _too_much(path, max_bytes)
    names = [member.filename.casefold() for member in members]
    for member in members:
        if not _NAME.fullmatch(member.filename) or member.orig_filename != member.filename:
            raise _refused(path, f"it holds {member.orig_filename!r}")
        if names.count(member.filename.casefold()) > 1:
            raise _refused(path, f"it holds {member.filename!r} twice")
        mode = member.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG) or member.flag_bits & 1:
            raise _refused(path, f"{member.filename!r} must be a regular file that every user may read")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _refused(path, f"{member.filename!r} has an unsupported compression method")
        if member.file_size > max_file_bytes(member.filename):
            raise _too_long(path, member.filename)


def max_file_bytes(name: str) -> int:
    """Return the maximum size in bytes of the file called `name`."""
    return MAX_BYTES if name.endswith(".jsonl") else MAX_FILE


def _too_much(path: Path, max_bytes: int) -> InputError:
    return _refused(path, f"it would need more than {max_bytes:,} bytes unpacked")


def _too_long(path: Path, name: str) -> InputError:
    return _refused(path, f"{name!r} has more than {max_file_bytes(name):,} bytes")


def _put(archive: zipfile.ZipFile, member: zipfile.ZipInfo, file: Path, bytes_left: int, path: Path) -> int:
    """Write one member of at most `bytes_left` bytes to `file` and return the number of its bytes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    num_written = 0
    with archive.open(member) as source, file.open("xb") as target:
        while piece := source.read(_PIECE):
            num_written += len(piece)
            if num_written > max_file_bytes(member.filename):
                raise _too_long(path, member.filename)
            if num_written > bytes_left:
                raise _too_much(path, max_unpacked_bytes(path.stat().st_size))
            target.write(piece)
    return num_written


def _refused(path: Path, reason: str) -> InputError:
    return InputError(
        f"{path} must be an archive that `haltsweep bundle` wrote: {reason}; ask its author for another copy"
    )
