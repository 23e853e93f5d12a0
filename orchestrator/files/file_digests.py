"""Store digests of files when they are written, and verify them whenever they are read."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import StoreError
from orchestrator.files.json_values import parse_json
from orchestrator.files.regular_files import open_regular, read_regular
from trainables.atomic import write_atomically

SEAL: Final = "digest"
"""Key of a JSON object under which the digest of all other keys is stored."""
MANIFEST: Final = "manifest.json"
SIZE: Final = 16
"""Number of bytes of a digest."""
EDITIONS: Final = "extensions"
"""Folder next to a manifest that contains earlier and later editions of its files, one folder each."""


def digest_of(content: bytes) -> str:
    """Return the digest of bytes."""
    return hashlib.blake2b(content, digest_size=SIZE).hexdigest()


def file_digest(file: Path) -> str:
    """Return the digest of a file, read in blocks.

    Raises:
        OSError: If the file cannot be read.
    """
    with open_regular(file) as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=SIZE)).hexdigest()


def seal_json(value: Mapping[str, Any]) -> str:
    """Return `value` as JSON with a digest of its content, to be read by `unseal_json`."""
    assert SEAL not in value, f"{SEAL!r} is the seal's own key"
    return _text({**value, SEAL: digest_of(_text(value).encode())}) + "\n"


def unseal_json(text: bytes) -> dict[str, Any]:
    """Return the value that `seal_json` wrote as `text`.

    Raises:
        ValueError: If the text is not such JSON, or its digest does not match.
    """
    value = parse_json(text)
    if not isinstance(value, dict) or value.pop(SEAL, None) != digest_of(_text(value).encode()):
        raise ValueError("its content does not match the digest stored in it")
    return value


def write_manifest(folder: Path, files: Sequence[Path]) -> None:
    """Write the digests of `files`, which are in `folder` or below, to the manifest of `folder`."""
    text = seal_json({"files": {file.relative_to(folder).as_posix(): file_digest(file) for file in files}})
    write_atomically(folder / MANIFEST, text)


def read_manifest(folder: Path) -> dict[str, str] | None:
    """Return the digests by file name; None if the folder has no manifest, as older versions wrote none.

    Raises:
        StoreError: If the manifest is damaged.
    """
    file = folder / MANIFEST
    try:
        return dict(unseal_json(read_regular(file))["files"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{file} must be as haltsweep wrote it, and is damaged ({error}); restore it from a backup"
        ) from error


def damaged_files(folder: Path) -> dict[str, str]:
    """Return the fault of each file in the manifest of the folder, by name; empty for an undamaged file.

    Raises:
        StoreError: If the manifest is missing or damaged.
    """
    digests = read_manifest(folder)
    if digests is None:
        raise StoreError(
            f"{folder / MANIFEST} is missing; it must contain the digests of the files next to it; "
            "restore it from a backup"
        )
    return {name: _difference_of_file(folder / name, digest) for name, digest in digests.items()}


def _difference_of_file(file: Path, digest: str) -> str:
    try:
        is_same = file_digest(file) == digest
        return "" if is_same else "the file was changed or damaged after haltsweep wrote it"
    except OSError as error:
        return f"the file cannot be read: {error.strerror or error}"


def read_verified(file: Path, remedy: str) -> bytes:
    """Return the content of a file after verifying it against the manifest in its folder.

    Raises:
        OSError: If the file cannot be read.
        StoreError: If the content differs from the manifest; the message includes `remedy`.
    """
    content = read_regular(file)
    digests = read_manifest(file.parent)
    if digests is not None and digests.get(file.name) != digest_of(content):
        raise StoreError(
            f"{file} must have the content that haltsweep wrote, but was changed or damaged; {remedy}"
        )
    return content


def find_edition(file: Path) -> Path:
    """Return the path whose content matches the manifest: `file` or one of its editions.

    A process that was killed between writing the manifest and the file left the earlier content in `file`.
    Readers then get the new edition. If no content matches, the result is `file`.

    Raises:
        OSError, StoreError: If the manifest cannot be read.
    """
    digests = read_manifest(file.parent)
    expected_digest = None if digests is None else digests.get(file.name)
    if expected_digest is None or _difference_of_file(file, expected_digest) == "":
        return file
    editions = sorted(file.parent.glob(f"{EDITIONS}/*/{file.name}"))
    return next((path for path in editions if _difference_of_file(path, expected_digest) == ""), file)


def read_edition(file: Path, remedy: str) -> bytes:
    """Return the verified content of `file`, or of the edition that matches the manifest.

    Raises the errors of `read_verified`.
    """
    try:
        return read_verified(file, remedy)
    except StoreError:
        edition = find_edition(file)
        if edition == file:
            raise
        return read_verified(edition, remedy)


def _text(value: Mapping[str, Any]) -> str:
    # ASCII only, so that any text can be stored.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
