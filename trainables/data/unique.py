"""Drops repeated examples."""

from collections.abc import Hashable, Iterable


def first_unseen(keys: Iterable[Hashable], seen: set[Hashable], missing: int) -> list[int]:
    """Indices of the first `missing` keys, or fewer, that are not in `seen`, to which they are added."""
    new: list[int] = []
    for index, key in enumerate(keys):
        if key not in seen:
            seen.add(key)
            new.append(index)
            if len(new) == missing:
                break
    return new
