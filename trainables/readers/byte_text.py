"""Text as the bytes it is written in, as in Long Range Arena: id = byte + 1, and 0 pads."""

from array import array
from collections.abc import Sequence

import numpy as np

PAD = 0
SEPARATOR = 257
IDS = 257
"""Padding and 256 bytes."""


def ids(text: bytes) -> "array[int]":
    """One id a byte."""
    found = array("H")
    found.frombytes((np.frombuffer(text, dtype=np.uint8).astype(np.uint16) + 1).tobytes())
    return found


def decode(tokens: Sequence[int]) -> str:
    """The text; a pair with `<sep>` in its middle, and what is no UTF-8 as `\\xff`."""
    parts: list[bytearray] = [bytearray()]
    for token in tokens:
        if token == SEPARATOR:
            parts.append(bytearray())
        else:
            parts[-1].append(token - 1)
    return " <sep> ".join(part.decode("utf-8", "backslashreplace") for part in parts)
