"""A password that tests search for in files and output."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

MARKER = "Kx7Marker9Zq"
USER = "ann"
_TOKEN = base64.b64encode(f"{USER}:{MARKER}".encode()).rstrip(b"=")


def with_password(url: str) -> str:
    """Return `url` with the marker as password, and with a user unless it has one."""
    scheme, _, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    return f"{scheme}://{user if at else USER}:{MARKER}@{place}"


def contains_password(content: bytes | str) -> bool:
    """Return whether the content contains the password, in plain text or in Base64."""
    searched = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    return MARKER.encode() in searched or _TOKEN in searched


def files_with_password(*roots: Path) -> Iterator[Path]:
    """Yield every file below the folders that contains the password, also in compressed Parquet columns."""
    for root in roots:
        for file in sorted(root.rglob("*")):
            if file.is_file() and (contains_password(file.read_bytes()) or _parquet_contains_password(file)):
                yield file


def _parquet_contains_password(file: Path) -> bool:
    return file.suffix == ".parquet" and contains_password(repr(pq.read_table(file).to_pylist()))
