"""Plans as canonical JSON and back: equal plans give equal bytes, and reading them gives the plan again."""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from orchestrator.errors import StoreError
from orchestrator.file_digests import read_sound
from orchestrator.identity import SweepFolder, canonical
from orchestrator.plan.types import Plan
from search_spaces.dimensions import Choice, Domain, Fixed, Float, Int

FORMAT: Final = 1
"""Raised whenever older plans can no longer be read."""
_DOMAINS: Final[Mapping[str, type]] = {"choice": Choice, "fixed": Fixed, "float": Float, "int": Int}
_KINDS: Final = {domain: kind for kind, domain in _DOMAINS.items()}
_Reader = Callable[[Any], Any]


def to_json(plan: Plan) -> str:
    """`plan` as one line of JSON with sorted keys."""
    return canonical({"format": FORMAT, **plain(plan)})


def from_json(text: str | bytes) -> Plan:
    """The plan that `to_json` wrote. Raises StoreError for anything else."""
    try:
        data = json.loads(text)
        written = data.pop("format")
        plan = _reader(Plan)(data) if written == FORMAT else None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise StoreError(f"a plan must be JSON as haltsweep writes it, got {reason}") from error
    if plan is None:
        raise StoreError(f"a plan must have format {FORMAT}, got {written!r}: another version wrote it")
    assert isinstance(plan, Plan)
    return plan


def read_plan(folder: SweepFolder) -> Plan:
    """The plan as launched. Raises StoreError if there is none, or something else."""
    try:
        text = read_sound(
            folder.plan,
            f"`haltsweep verify {shlex.quote(str(folder.root))} --repair` makes it again from spec.yaml, or "
            "restore it from a backup",
        )
        return _parsed(folder, text)
    except OSError as error:
        raise StoreError(
            f"{str(folder.plan)!r} must hold the plan of a sweep and cannot be read "
            f"({error.strerror or error}); check the name of the sweep and the folder of the runs"
        ) from error


def _parsed(folder: SweepFolder, text: bytes) -> Plan:
    try:
        return from_json(text)
    except StoreError as error:
        raise StoreError(
            f"{folder.plan}: {error}; restore the file from a backup, or name the folder of a sweep"
        ) from error


def plain(value: Any) -> Any:
    """`value` as JSON values: dataclasses as mappings, domains of dimensions with their `kind`."""
    if is_dataclass(value) and not isinstance(value, type):
        kind = {"kind": _KINDS[type(value)]} if type(value) in _KINDS else {}
        return {**kind, **{name: plain(getattr(value, name)) for name in _names(type(value))}}
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


@cache
def _reader(kind: Any) -> _Reader:
    """What turns JSON into a value of type `kind`."""
    if kind == Domain:
        return _domain
    if get_origin(kind) in {Union, UnionType}:
        return _optional(kind)
    if get_origin(kind) is tuple:
        item = _reader(get_args(kind)[0])
        return lambda data: tuple(map(item, data))
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass_reader(kind)
    return _same


def _same(data: Any) -> Any:
    return data


def _optional(kind: Any) -> _Reader:
    """Of `X | None`; a union of JSON scalars needs no reading."""
    others = [each for each in get_args(kind) if each is not NoneType]
    inner = _reader(others[0]) if len(others) == 1 else _same
    return _same if inner is _same else lambda data: None if data is None else inner(data)


def _dataclass_reader(kind: type) -> _Reader:
    hints = get_type_hints(kind)
    readers = {name: reader for name in _names(kind) if (reader := _reader(hints[name])) is not _same}

    def read(data: dict[str, Any]) -> Any:
        for name, reader in readers.items():
            if name in data:
                data[name] = reader(data[name])
        return kind(**data)

    return read


def _domain(data: dict[str, Any]) -> Any:
    return _dataclass_reader(_DOMAINS[data.pop("kind")])(data)
