"""Write and unpack archives of a few named files; equal files give equal bytes.

An archive may come from an untrusted person, so unpacking runs and unpickles nothing. Every file name must be
one that `write_archive` uses, so that no file is written outside the folder. Links, devices and folders are
refused. Unpacking counts the written bytes itself, and does not rely on the sizes that the archive states.
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
MAX_FILE_BYTES: Final = 256 * 1024**2
"""Maximum bytes of a file; only the ledger may be larger, since it is read in parts."""
MAX_COMPRESSION_RATIO: Final = 40
EXTRA_BYTES: Final = 32 * 1024**2
"""Bytes allowed for all files, in addition to `MAX_COMPRESSION_RATIO` times the bytes of the archive.

Sweeps of 10 to 1,500 trials gave ratios from 3 to 6, single files up to 16.
"""
MAX_DIRECTORY_BYTES: Final = 1024**2
"""Maximum bytes of the archive's directory of files."""
_FILE_NAME = re.compile(
    r"[a-z]+\.(?:yaml|json|jsonl|txt)|report/[\w-]+\.\w+|extensions/\d+/[a-z]+\.(?:yaml|json)", re.ASCII
)
_END_MARK, _END_64_MARK, _END_BYTES, _LOCATOR_BYTES = b"PK\x05\x06", b"PK\x06\x07", 22, 20
_ARCHIVE_ERRORS = (
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
_FILE_DATE = (1980, 1, 1, 0, 0, 0)
_PIECE_BYTES = 1024**2


def write_archive(path: Path, files: Mapping[str, bytes | Path]) -> None:
    """Write an archive of `files`; after an error, `path` is unchanged.

    A file given as a path is read piece by piece.

    Args:
        path: File of the archive.
        files: Bytes or paths of the files by their names in the archive.

    Raises:
        OSError: A file cannot be read or written.
        InputError: `unpack_archive` would refuse the files.
    """
    _refuse_oversized_files(files)
    with open_replacement(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            assert _FILE_NAME.fullmatch(name), f"{name} must be a name that is unpacked again"
            member = zipfile.ZipInfo(name, _FILE_DATE)
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            content = files[name]
            with archive.open(member, "w", force_zip64=True) as target, _open_content(content) as source:
                shutil.copyfileobj(source, target, _PIECE_BYTES)
        archive.close()
        total, max_bytes = (
            sum(zip_member.file_size for zip_member in archive.infolist()),
            max_unpacked_bytes(stream.tell()),
        )
        if total > max_bytes:
            raise InputError(
                f"the files of a bundle of {stream.tell():,} bytes must have at most {max_bytes:,} "
                "together, or "
                f"`haltsweep verify` would not read it, got {total:,}; share the sweep's folder instead"
            )


def _refuse_oversized_files(files: Mapping[str, bytes | Path]) -> None:
    sizes = {
        name: len(content) if isinstance(content, bytes) else content.stat().st_size
        for name, content in sorted(files.items())
    }
    for name, size in sizes.items():
        if size > max_file_bytes(name):
            raise InputError(
                f"{name} must have at most {max_file_bytes(name):,} bytes, or `haltsweep verify` would not "
                f"read it, and has {size:,}; share the sweep's folder instead"
            )
    if len(files) > MAX_FILES or sum(sizes.values()) > MAX_BYTES:
        raise InputError(
            f"a bundle must hold at most {MAX_FILES:,} files of {MAX_BYTES:,} bytes together, got "
            f"{len(files):,} of {sum(sizes.values()):,}; share the sweep's folder instead"
        )


def _open_content(content: bytes | Path) -> IO[bytes]:
    return io.BytesIO(content) if isinstance(content, bytes) else open_regular(content)


def unpack_archive(path: Path, folder: Path) -> list[str]:
    """Unpack the archive at `path` into the empty `folder` and return the names of its files.

    Raises InputError for an archive that `write_archive` cannot have written; files unpacked by then remain
    in `folder`.
    """
    _check_archive_end(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            max_bytes = max_unpacked_bytes(path.stat().st_size)
            _refuse_members(path, members, max_bytes)
            bytes_left = max_bytes
            for member in members:
                bytes_left -= _unpack_member(archive, member, folder / member.filename, bytes_left, path)
    except _ARCHIVE_ERRORS as error:
        raise _archive_error(path, f"it cannot be read ({type(error).__name__}: {error})") from error
    return [member.filename for member in members]


def _check_archive_end(path: Path) -> None:
    """Check the end of the archive, which states the size of its directory, before the directory is read."""
    if kind := describe_non_file(path):
        raise _archive_error(path, f"it is {kind}")
    size = path.stat().st_size
    if not _END_BYTES <= size <= MAX_BYTES:
        raise _archive_error(path, f"it has {size:,} bytes")
    with path.open("rb") as stream:
        stream.seek(max(0, size - _END_BYTES - _LOCATOR_BYTES))
        tail = stream.read()
    end = tail[-_END_BYTES:]
    if not end.startswith(_END_MARK) or end[-2:] != b"\0\0" or tail.startswith(_END_64_MARK):
        raise _archive_error(path, "its end is not that of an archive")
    if int.from_bytes(end[12:16], "little") > MAX_DIRECTORY_BYTES:
        raise _archive_error(path, "its list of files is too long")


def max_unpacked_bytes(size: int) -> int:
    """Return the maximum total size in bytes of the files in an archive of `size` bytes."""
    return min(MAX_BYTES, EXTRA_BYTES + MAX_COMPRESSION_RATIO * size)


def _refuse_members(path: Path, members: list[zipfile.ZipInfo], max_bytes: int) -> None:
    if len(members) > MAX_FILES:
        raise _archive_error(path, f"it holds {len(members):,} files")
    if sum(member.file_size for member in members) > max_bytes:
        raise _oversized_archive_error(path, max_bytes)
    names = [member.filename.casefold() for member in members]
    for member in members:
        if not _FILE_NAME.fullmatch(member.filename) or member.orig_filename != member.filename:
            raise _archive_error(path, f"it holds {member.orig_filename!r}")
        if names.count(member.filename.casefold()) > 1:
            raise _archive_error(path, f"it holds {member.filename!r} twice")
        mode = member.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG) or member.flag_bits & 1:
            raise _archive_error(path, f"{member.filename!r} must be a regular file that every user may read")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _archive_error(path, f"{member.filename!r} has an unsupported compression method")
        if member.file_size > max_file_bytes(member.filename):
            raise _oversized_file_error(path, member.filename)


def max_file_bytes(name: str) -> int:
    """Return the maximum size in bytes of the file called `name`."""
    return MAX_BYTES if name.endswith(".jsonl") else MAX_FILE_BYTES


def _oversized_archive_error(path: Path, max_bytes: int) -> InputError:
    return _archive_error(path, f"it would need more than {max_bytes:,} bytes unpacked")


def _oversized_file_error(path: Path, name: str) -> InputError:
    return _archive_error(path, f"{name!r} has more than {max_file_bytes(name):,} bytes")


def _unpack_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, file: Path, bytes_left: int, path: Path
) -> int:
    """Write one member of at most `bytes_left` bytes to `file` and return the number of its bytes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    num_written = 0
    with archive.open(member) as source, file.open("xb") as target:
        while piece := source.read(_PIECE_BYTES):
            num_written += len(piece)
            if num_written > max_file_bytes(member.filename):
                raise _oversized_file_error(path, member.filename)
            if num_written > bytes_left:
                raise _oversized_archive_error(path, max_unpacked_bytes(path.stat().st_size))
            target.write(piece)
    return num_written


def _archive_error(path: Path, reason: str) -> InputError:
    return InputError(
        f"{path} must be an archive that `haltsweep bundle` wrote: {reason}; ask its author for another copy"
    )
