"""The RASP-L operations that the looped programs need, on whole sequences; each looks only backwards.

Zhou et al., "What Algorithms can Transformers Learn?". The programs are from Fan et al., "Looped Transformers
for Length Generalization", App. A. No program reads the number of a position.
"""

from collections.abc import Callable

import numpy as np

Sequence = np.ndarray


def select_value(
    query: Sequence, keys: Sequence, values: Sequence, default: int, *, first: bool = False
) -> Sequence:
    """Return at each place the value of the only (or first) place up to it whose key is the query."""
    result = np.full(len(query), default)
    for place in range(len(query)):
        matches = [earlier for earlier in range(place + 1) if keys[earlier] == query[place]]
        if matches:
            assert first or len(matches) == 1
            result[place] = values[matches[0]]
    return result


def shift_right(x: Sequence, default: int = 0) -> Sequence:
    """Move every symbol one place to the right."""
    places = np.arange(len(x))
    return select_value(places - 1, places, x, default)


def has_seen(x: Sequence, symbol: int) -> Sequence:
    """Return whether the symbol stands at or before each place."""
    return select_value(np.full(len(x), symbol), x, np.ones(len(x), dtype=int), 0, first=True).astype(bool)


def repeat(
    steps: int, body: Callable[..., tuple[Sequence, ...]], *state: Sequence
) -> list[tuple[Sequence, ...]]:
    """Return the states after 0 .. `steps` loops."""
    states = [state]
    for _ in range(steps):
        states.append(body(*states[-1]))
    return states
