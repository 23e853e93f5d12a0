"""The few RASP-L operations that the looped programs need, on whole sequences, each looking back only.

Zhou et al., "What Algorithms can Transformers Learn?"; the programs: Fan et al., "Looped Transformers for
Length Generalization", App. A. Written from the definitions: no program sees a position by its number.
"""

from collections.abc import Callable

import numpy as np

Sequence = np.ndarray


def look(query: Sequence, keys: Sequence, values: Sequence, default: int, *, first: bool = False) -> Sequence:
    """At each place the value of the only (or the first) place up to it whose key equals the query."""
    found = np.full(len(query), default)
    for place in range(len(query)):
        matches = [earlier for earlier in range(place + 1) if keys[earlier] == query[place]]
        if matches:
            assert first or len(matches) == 1
            found[place] = values[matches[0]]
    return found


def shift_right(x: Sequence, default: int = 0) -> Sequence:
    """Everything one place further on."""
    places = np.arange(len(x))
    return look(places - 1, places, x, default)


def has_seen(x: Sequence, symbol: int) -> Sequence:
    """Whether the symbol stands at a place or before it."""
    return look(np.full(len(x), symbol), x, np.ones(len(x), dtype=int), 0, first=True).astype(bool)


def repeat(
    steps: int, body: Callable[..., tuple[Sequence, ...]], *state: Sequence
) -> list[tuple[Sequence, ...]]:
    """The states after 0 .. `steps` loops."""
    states = [state]
    for _ in range(steps):
        states.append(body(*states[-1]))
    return states
