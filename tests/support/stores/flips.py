"""Flip bits of files, as a failing disk or cable does."""

import random
from pathlib import Path


def flip(file: Path, bit: int) -> None:
    """Flip one bit of a file."""
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def flip_random_bit(file: Path, stream: random.Random) -> int:
    """Flip a bit that `stream` chooses, and return its position."""
    bit = stream.randrange(8 * file.stat().st_size)
    flip(file, bit)
    return bit
