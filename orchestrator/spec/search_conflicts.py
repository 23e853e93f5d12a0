"""Detects fields that an arm sets although its search varies them."""

from collections.abc import Iterator, Mapping
from typing import Any

from search_spaces.dimensions import Dimension


def conflicts_with_search(searched: Mapping[str, Dimension | None], path: str, value: Any) -> Iterator[str]:
    """Yield conflicts of an arm that sets `path` to `value` while its search varies the fields `searched`."""
    for leaf, is_parent in _leaves(path, value):
        if leaf in searched:
            yield f"sets {leaf}, which its search varies: add {leaf} to the arm's drop, or do not set it"
        for other, dimension in searched.items():
            # The planner checks dimensions with conditions, because they may not exist in this arm.
            if is_parent and other.startswith(f"{leaf}.") and dimension is not None and not dimension.when:
                yield f"leaves no {other} for its search to vary: add {other} to the arm's drop"


def _leaves(path: str, value: Any) -> Iterator[tuple[str, bool]]:
    """Yield each field that `value` at `path` sets, and whether it replaces all fields below it."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}", inner)
    else:
        yield path, not isinstance(value, dict)
