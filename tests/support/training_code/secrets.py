"""A password that can be searched for, and the search."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

MARKER = "Kx7Marker9Zq"
USER = "ann"
_TOKEN = base64.b64encode(f"{USER}:{MARKER}".encode()).rstrip(b"=")


def with_password(url: str) -> str:
    """`url` with a user, unless it has one, and the marker as password."""
    scheme, _, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    return f"{scheme}://{user if at else USER}:{MARKER}@{place}"


def leaked(content: bytes | str) -> bool:
    """Whether the password is in it, as it is or as it goes over the wire."""
    searched = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    return MARKER.encode() in searched or _TOKEN in searched


def files_that_tell(*roots: Path) -> Iterator[Path]:
    """Every file below that holds the password; what is compressed in Parquet files is read."""
    for root in roots:
        for file in sorted(root.rglob("*")):
            if file.is_file() and (leaked(file.read_bytes()) or _parquet_tells(file)):
                yield file


def _parquet_tells(file: Path) -> bool:
    return file.suffix == ".parquet" and leaked(repr(pq.read_table(file).to_pylist()))
