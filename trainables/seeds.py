"""Derive the seeds of named random streams, without importing torch or NumPy."""

import hashlib


def derive(seed: int, *name: str | int) -> int:
    """Return a 63-bit seed that depends only on `seed` and the parts of `name`."""
    text = "\x1f".join([str(seed), *map(str, name)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
