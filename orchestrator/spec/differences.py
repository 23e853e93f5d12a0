"""List the fields in which two specs differ, for display and for rules."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.spec import scalars

ABSENT: Final = object()
MAX_CHARS = 60
CUT = "..."


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of one field, or of a section that only one of the two specs has."""

    keys: tuple[str, ...]
    before: Any
    """Value in the first spec; `ABSENT` if the first spec has none."""
    after: Any

    @property
    def path(self) -> str:
        """Return the path of the field for messages."""
        return ".".join(self.keys)

    def __str__(self) -> str:
        new_text = _shorten(self.after)
        if new_text.endswith(CUT) and (added := _appended_items(self.before, self.after)):
            new_text = f"the same and {_shorten(added)}"
        return f"{self.path}: {_shorten(self.before)} -> {new_text}"


def differences(
    old_values: Mapping[str, Any], new_values: Mapping[str, Any], inside: tuple[str, ...] = ()
) -> Iterator[Difference]:
    """Yield the differences of two contents of specs, ordered by the first, then by the second.

    Args:
        old_values: Content (`Spec.content`) of the first spec.
        new_values: Content of the second spec.
        inside: Keys of the section that contains both.
    """
    for key in dict.fromkeys((*old_values, *new_values)):
        old, new = old_values.get(key, ABSENT), new_values.get(key, ABSENT)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, (*inside, str(key)))
        elif old is ABSENT or new is ABSENT or old != new:
            yield Difference((*inside, str(key)), old, new)


def _appended_items(old: Any, new: Any) -> list[Any]:
    """Return the items that the list `new` appends to the list `old`; empty if it does not extend it."""
    if not isinstance(old, list | tuple) or not isinstance(new, list | tuple):
        return []
    return list(new[len(old) :]) if list(new[: len(old)]) == list(old) else []


def _shorten(value: Any) -> str:
    if value is ABSENT:
        return "(nothing)"
    text = scalars.dump(value, flow=True)
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - len(CUT)] + CUT
