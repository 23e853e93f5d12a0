"""Reads messages of a child piece by piece, so that a child that stops within a message blocks nobody."""

import os
import struct
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

CHUNK_BYTES = 1 << 20
LENGTH, LONG_LENGTH = struct.Struct("!i"), struct.Struct("!Q")
"""Headers of `Connection.send`: the length of the message, or -1 followed by the length of a long one."""


class Incoming:
    """Buffer for received bytes of messages."""

    def __init__(self) -> None:
        """Create an empty buffer."""
        self._bytes = bytearray()

    def read(self, connection: Connection) -> None:
        """Append the available bytes of a connection that is ready.

        Raises:
            EOFError: The other end is closed.
            OSError: The connection is broken.
        """
        if not (chunk := os.read(connection.fileno(), CHUNK_BYTES)):
            raise EOFError("the other end is closed")
        self._bytes += chunk

    @property
    def is_complete(self) -> bool:
        """Whether the first message has arrived completely."""
        return self._bounds() is not None

    def take(self) -> Any:
        """Return the first message, which must be complete, and remove it from the buffer."""
        bounds = self._bounds()
        assert bounds is not None, "the message must be complete"
        begin, end = bounds
        message = ForkingPickler.loads(self._bytes[begin:end])
        del self._bytes[:end]
        return message

    def _bounds(self) -> tuple[int, int] | None:
        """Return the begin and end of the first message in the buffer; None if it is incomplete."""
        begin = LENGTH.size
        if len(self._bytes) < begin:
            return None
        (length,) = LENGTH.unpack_from(self._bytes)
        if length == -1:
            begin += LONG_LENGTH.size
            if len(self._bytes) < begin:
                return None
            (length,) = LONG_LENGTH.unpack_from(self._bytes, LENGTH.size)
        return (begin, begin + length) if len(self._bytes) >= begin + length else None
