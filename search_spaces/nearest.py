"""How an unknown name is answered: with the nearest known one and the full list."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, upper and lower case alike; None if none is like it."""
    by_folded = {entry.casefold(): entry for entry in known}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return by_folded[found[0]] if found else None


def hint(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown `name`: "Did you mean 'lr'? Known: beta, lr"."""
    listed = tuple(known)
    near = nearest(name, listed)
    question = f"Did you mean {near!r}? " if near is not None else ""
    return f"{question}Known: {', '.join(listed) or 'none'}"
