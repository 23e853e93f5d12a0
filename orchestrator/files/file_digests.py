"""Digests of the files we keep: made when a file is written, checked whenever it is read."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import StoreError
from orchestrator.files.json_values import parsed
from orchestrator.files.regular_files import open_ordinary, read_ordinary
from trainables.atomic import write_atomically

SEAL: Final = "digest"
"""Key of a JSON object's digest of all its other keys."""
MANIFEST: Final = "manifest.json"
SIZE: Final = 16
"""Bytes of a digest."""
EDITIONS: Final = "extensions"
"""Folder beside a manifest with earlier and later editions of its files, a folder each."""


def digest_of(content: bytes) -> str:
    """Hash of bytes."""
    return hashlib.blake2b(content, digest_size=SIZE).hexdigest()


def file_digest(file: Path) -> str:
    """Hash of the bytes of a file, in little memory. Raises OSError."""
    with open_ordinary(file) as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=SIZE)).hexdigest()


def sealed(value: Mapping[str, Any]) -> str:
    """`value` as JSON with a digest of its content, for `unsealed`."""
    assert SEAL not in value, f"{SEAL!r} is the seal's own key"
    return _text({**value, SEAL: digest_of(_text(value).encode())}) + "\n"


def unsealed(text: bytes) -> dict[str, Any]:
    """The value that was `sealed`. Raises ValueError for anything else."""
    value = parsed(text)
    if not isinstance(value, dict) or value.pop(SEAL, None) != digest_of(_text(value).encode()):
        raise ValueError("its content must have the digest that stands in it, and has another")
    return value


def write_manifest(folder: Path, files: Sequence[Path]) -> None:
    """Put the digests of `files`, which are somewhere in `folder`, into it, to the disk."""
    text = sealed({"files": {file.relative_to(folder).as_posix(): file_digest(file) for file in files}})
    write_atomically(folder / MANIFEST, text)


def read_manifest(folder: Path) -> dict[str, str] | None:
    """Digests by name; None for a folder of a haltsweep that made none.

    Raises StoreError if the manifest is damaged.
    """
    file = folder / MANIFEST
    try:
        return dict(unsealed(read_ordinary(file))["files"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{file} must be as haltsweep wrote it, and is damaged ({error}); restore it from a backup"
        ) from error


def damaged_files(folder: Path) -> dict[str, str]:
    """What is wrong with each file of the folder's manifest, by name; empty for those as they were written.

    Raises StoreError if the manifest is not there, or damaged.
    """
    digests = read_manifest(folder)
    if digests is None:
        raise StoreError(
            f"{folder / MANIFEST} must be there, with the digests of the files beside it, and is not; "
            "restore it from a backup"
        )
    return {name: _unlike(folder / name, digest) for name, digest in digests.items()}


def _unlike(file: Path, digest: str) -> str:
    try:
        return "" if file_digest(file) == digest else "it was changed or damaged since it was written"
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"


def read_sound(file: Path, remedy: str) -> bytes:
    """What is in a file, if it is what the manifest beside it says.

    Raises OSError if it cannot be read, StoreError with `remedy` if it is not as it was written.
    """
    content = read_ordinary(file)
    digests = read_manifest(file.parent)
    if digests is not None and digests.get(file.name) != digest_of(content):
        raise StoreError(f"{file} must be as it was written, and was changed or damaged since; {remedy}")
    return content


def kept_file(file: Path) -> Path:
    """Where the content of `file` is that the manifest beside it says: there, or among its editions.

    A process that was killed between the manifest and the file has left the file as it was before; whoever
    reads then gets the new edition. Where nothing fits, `file` itself. Raises OSError, StoreError.
    """
    digests = read_manifest(file.parent)
    wanted = None if digests is None else digests.get(file.name)
    if wanted is None or _unlike(file, wanted) == "":
        return file
    editions = sorted(file.parent.glob(f"{EDITIONS}/*/{file.name}"))
    return next((each for each in editions if _unlike(each, wanted) == ""), file)


def read_kept(file: Path, remedy: str) -> bytes:
    """As `read_sound`, of the file or that of its editions which the manifest beside it says."""
    try:
        return read_sound(file, remedy)
    except StoreError:
        edition = kept_file(file)
        if edition == file:
            raise
        return read_sound(edition, remedy)


def _text(value: Mapping[str, Any]) -> str:
    # Pure ASCII, so that any text can be stored.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
