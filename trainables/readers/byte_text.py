"""Represent text as bytes, as in Long Range Arena: the id is byte + 1, and 0 is padding."""

from array import array
from collections.abc import Sequence

import numpy as np

PAD = 0
SEPARATOR = 257
IDS = 257
"""Number of ids: padding and 256 bytes."""


def ids(text: bytes) -> "array[int]":
    """Return one id per byte."""
    tokens = array("H")
    tokens.frombytes((np.frombuffer(text, dtype=np.uint8).astype(np.uint16) + 1).tobytes())
    return tokens


def decode(tokens: Sequence[int]) -> str:
    r"""Return the text of `tokens`, with `<sep>` between the texts of a pair and invalid UTF-8 as `\\xff`."""
    parts: list[bytearray] = [bytearray()]
    for token in tokens:
        if token == SEPARATOR:
            parts.append(bytearray())
        else:
            parts[-1].append(token - 1)
    return " <sep> ".join(part.decode("utf-8", "backslashreplace") for part in parts)
