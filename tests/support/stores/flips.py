"""Files with one bit that is another: what a failing disk, or a bad cable, leaves behind."""

import random
from pathlib import Path


def flip(file: Path, bit: int) -> None:
    """Turn one bit of a file over."""
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def flip_any(file: Path, stream: random.Random) -> int:
    """Turn over a bit that `stream` draws; which."""
    bit = stream.randrange(8 * file.stat().st_size)
    flip(file, bit)
    return bit
