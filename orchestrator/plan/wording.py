"""How messages name what was probably meant and what there is."""

import difflib
from collections.abc import Iterable
from typing import Any


def nearest(given: Any, names: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or nothing when no name is close."""
    found = difflib.get_close_matches(str(given), list(names), n=1)
    return f" Did you mean {found[0]!r}?" if found else ""


def known(names: Iterable[str]) -> str:
    """`Known: a, b`."""
    return f"Known: {', '.join(names) or 'none'}"
