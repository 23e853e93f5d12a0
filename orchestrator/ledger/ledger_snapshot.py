"""The snapshot of a sweep as a value, apart from its table so that workers import no database library."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

MOST_LINE = 1 << 28
"""Bytes of a line: whoever wrote a ledger may have packed one without an end."""


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The state after the event at position `seq`."""

    seq: int
    made_for: str
    """Digest of the plan and of the format of the content: another plan or format cannot use it."""
    content: bytes
    """Compressed lines."""


def lines(content: bytes) -> Iterator[bytes]:
    """Decompress the content of a snapshot line by line. Raises ValueError or zlib.error if it is damaged."""
    unpacker, rest = zlib.decompressobj(), b""
    for start in range(0, len(content), 1 << 16):
        *found, rest = (rest + unpacker.decompress(content[start : start + (1 << 16)])).split(b"\n")
        yield from found
        if len(rest) > MOST_LINE:
            raise ValueError(f"a line of a snapshot must have at most {MOST_LINE:,} bytes")
    if rest or not unpacker.eof:
        raise ValueError("a snapshot must end with a line break")
