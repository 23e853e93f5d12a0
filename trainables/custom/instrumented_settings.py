"""Settings that record which of their fields training code reads, to find changed fields that it ignores.

Only trials whose results are discarded get them, because code may treat a subclass of dict differently from a
dict: `yaml.safe_dump` and OmegaConf refuse it, and PyTorch's pytrees treat it as a leaf.
"""

import copy
import mmap
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from typing import Any


class _ReadPaths:
    """Set of the paths of fields that were read, shared with forked processes such as data loaders."""

    def __init__(self, paths: Iterable[str]) -> None:
        """Create an empty set that can contain `paths`."""
        self._indices = {path: index for index, path in enumerate(paths)}
        self._is_read = mmap.mmap(-1, len(self._indices) or 1)  # its size must not be 0

    def add(self, path: str) -> None:
        """Add a path; paths that the set cannot contain are ignored."""
        if path in self._indices:
            self._is_read[self._indices[path]] = 1

    def __contains__(self, path: str) -> bool:
        return self._is_read[self._indices[path]] == 1


def _paths(settings: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in dict.items(settings):
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _paths(value, f"{prefix}{name}.")


class InstrumentedSettings(dict[str, Any]):
    """Settings that record which of their fields are read by name.

    `**settings`, `dict(settings)`, loops, `keys()`, `values()` and `items()` count as reads of all fields of
    the mapping, since it is unknown which of them the code uses. Printing counts as no read.
    """

    __slots__ = ("_fields", "_prefix", "_read_paths")  # like a dict, it has no `__dict__`

    def __init__(
        self, settings: dict[str, Any], prefix: str = "", read_paths: _ReadPaths | None = None
    ) -> None:
        """Copy the settings; none of their fields counts as read.

        Args:
            settings: JSON values by name.
            prefix: Dotted path of this mapping with a trailing dot; empty for the whole settings.
            read_paths: Paths of fields that were read; None for the whole settings.
        """
        self._prefix = prefix
        self._read_paths = _ReadPaths(_paths(settings)) if read_paths is None else read_paths
        self._fields = {name: self._instrumented(name, value) for name, value in dict.items(settings)}
        super().__init__(self._fields)

    def _instrumented(self, name: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return InstrumentedSettings(value, f"{self._prefix}{name}.", self._read_paths)

    def unread_fields(self) -> Iterator[str]:
        """Yield the paths of fields that were not read.

        Of a mapping that was not read, only its own path is yielded. Mappings of which no field was read are
        skipped, since compiled code can read a dict without calling its methods.
        """
        paths = {name: f"{self._prefix}{name}" for name in self._fields}
        if not any(path in self._read_paths for path in paths.values()):
            return
        for name, value in self._fields.items():
            if paths[name] not in self._read_paths:
                yield paths[name]
            elif isinstance(value, InstrumentedSettings):
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

    def popitem(self) -> tuple[str, Any]:
        """Remove the last field and return its name and value."""
        name, value = super().popitem()
        self._read(name)
        return name, value

    def setdefault(self, name: str, default: Any = None, /) -> Any:
        """Return the value of a field, which is set to `default` if it is missing."""
        self._read(name)
        return super().setdefault(name, default)

    def __iter__(self) -> Iterator[str]:
        self._read_all()
        return super().__iter__()

    def __reversed__(self) -> Iterator[str]:
        self._read_all()
        return super().__reversed__()

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

    def __deepcopy__(self, memo: dict[int, Any]) -> "InstrumentedSettings":
        fields = {name: copy.deepcopy(value, memo) for name, value in dict.items(self)}
        return InstrumentedSettings(fields, self._prefix, self._read_paths)

    def __reduce_ex__(self, _: Any) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)  # pickled settings are a plain dict
