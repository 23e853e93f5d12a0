"""Seeds of named random streams. Loads neither torch nor NumPy: workers that need neither stay light."""

import hashlib


def derive(seed: int, *name: str | int) -> int:
    """A 63-bit seed, a pure function of `seed` and the parts of `name`."""
    text = "\x1f".join([str(seed), *map(str, name)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
