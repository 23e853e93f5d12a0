"""Record which fields of its settings training code reads, to find arms whose fields it ignores.

Only trials whose results are discarded get recorded settings. They are a subclass of dict, and code may treat
that differently from a dict: `yaml.safe_dump` and OmegaConf refuse it.
"""

import copy
import mmap
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from typing import Any


class _SharedPaths:
    """A set of paths to which forked processes, such as workers of a data loader, add too."""

    def __init__(self, paths: Iterable[str]) -> None:
        """Create an empty set that can contain `paths`."""
        self._places = {path: place for place, path in enumerate(paths)}
        self._marks = mmap.mmap(-1, len(self._places) + 1)

    def add(self, path: str) -> None:
        """Add `path` if the set can contain it."""
        if path in self._places:
            self._marks[self._places[path]] = 1

    def __contains__(self, path: str) -> bool:
        return self._marks[self._places[path]] == 1


def _paths(settings: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in dict.items(settings):
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _paths(value, f"{prefix}{name}.")


class RecordedSettings(dict[str, Any]):
    """Settings that record which of their fields are read by name.

    What happens to a copy is unknown. So `**settings`, `dict(settings)`, a loop and every other operation on
    the whole mapping count as reads of all its fields. Printing counts as no read.
    """

    def __init__(
        self, settings: dict[str, Any], prefix: str = "", read_paths: "_SharedPaths | None" = None
    ) -> None:
        """Copy the settings; none of their fields counts as read.

        Args:
            settings: JSON values by name.
            prefix: Dotted path of this mapping with a trailing dot; empty for the whole settings.
            read_paths: Paths of fields that are read; None for the whole settings.
        """
        self._prefix = prefix
        self._read_paths = _SharedPaths(_paths(settings)) if read_paths is None else read_paths
        self._fields = {name: self._recorded(name, value) for name, value in dict.items(settings)}
        super().__init__(self._fields)

    def _recorded(self, name: str, value: Any) -> Any:
        is_mapping = isinstance(value, dict)
        return RecordedSettings(value, f"{self._prefix}{name}.", self._read_paths) if is_mapping else value

    def unread_fields(self) -> Iterator[str]:
        """Yield the paths of fields that were not read; of a mapping that was not read, only its own path.

        Mappings of which no field was read are skipped: compiled code can read a dict without a record.
        """
        paths = {name: f"{self._prefix}{name}" for name in self._fields}
        if not any(path in self._read_paths for path in paths.values()):
            return
        for name, value in self._fields.items():
            if paths[name] not in self._read_paths:
                yield paths[name]
            elif isinstance(value, RecordedSettings):
                yield from value.unread_fields()

    def _read(self, name: object) -> None:
        self._read_paths.add(f"{self._prefix}{name}")

    def _read_all(self) -> None:
        for name in self._fields:
            self._read(name)

    def __getitem__(self, name: str, /) -> Any:
        self._read(name)
        return super().__getitem__(name)

    def __contains__(self, name: object, /) -> bool:
        self._read(name)
        return super().__contains__(name)

    def get(self, name: str, default: Any = None, /) -> Any:
        """Return the value of a field."""
        self._read(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        """Remove a field and return its value."""
        self._read(name)
        return super().pop(name, *default)

    def setdefault(self, name: str, default: Any = None, /) -> Any:
        """Return the value of a field, which is set to `default` if it is missing."""
        self._read(name)
        return super().setdefault(name, default)

    def __iter__(self) -> Iterator[str]:
        self._read_all()
        return super().__iter__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        """Return all names; all fields count as read."""
        self._read_all()
        return super().keys()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """Return all values; all fields count as read."""
        self._read_all()
        return super().values()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Return names and values; all fields count as read."""
        self._read_all()
        return super().items()

    def __deepcopy__(self, memo: dict[int, Any]) -> "RecordedSettings":
        fields = {name: copy.deepcopy(value, memo) for name, value in dict.items(self)}
        return RecordedSettings(fields, self._prefix, self._read_paths)

    def __reduce_ex__(self, _: Any) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)
