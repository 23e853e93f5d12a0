"""Snapshot of a sweep as a plain value; importing this module loads no database library."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

MAX_LINE_BYTES = 1 << 28
"""Maximum number of bytes of a line, so that a damaged or malicious snapshot cannot exhaust memory."""


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """State of a sweep after the event at position `seq`."""

    seq: int
    made_for: str
    """Digest of the plan and of the content format; a snapshot is usable only with the same digest."""
    content: bytes
    """Compressed lines of the snapshot."""


def decompressed_lines(content: bytes) -> Iterator[bytes]:
    """Yield the decompressed lines of the content of a snapshot.

    Raises:
        ValueError, zlib.error: If the content is damaged.
    """
    unpacker, partial_line = zlib.decompressobj(), b""
    for start in range(0, len(content), 1 << 16):
        *complete_lines, partial_line = (
            partial_line + unpacker.decompress(content[start : start + (1 << 16)])
        ).split(b"\n")
        yield from complete_lines
        if len(partial_line) > MAX_LINE_BYTES:
            raise ValueError(f"a line of a snapshot must have at most {MAX_LINE_BYTES:,} bytes")
    if partial_line or not unpacker.eof:
        raise ValueError("a snapshot must end with a line break")
