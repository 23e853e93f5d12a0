"""Parse and apply `key=value` overrides from the command line and from profiles.

The key is a dotted path from the root of the spec (`baseline.train.steps`, `confirm.seeds[0]`). A name with
dots, brackets or `=` may be quoted (`arms."dropout=0.5".set.dropout`). The value is YAML (`[1, 2]`, `{float:
[0, 1]}`, `3e-4`, `null`). Null removes an arm, a range, an axis of grid, contexts or posthoc, or an optional
section; elsewhere it is the value null.
"""

import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.errors import Fault, FaultCode
from orchestrator.files.redact import MASK, is_named_secret, redact_setting
from orchestrator.spec import field_paths, scalars
from orchestrator.spec.document import Document, Keys, Origin, dotted, read_text, value_at
from orchestrator.spec.types import spec_class
from search_spaces.wording import format_value, hint

_INDEX: Final = re.compile(r"\[(\d+)\]")
_FIELD: Final = re.compile(r"(?<![\w-])[\w-]{1,60}(?=['\"]?\s{0,4}:)")
"""Name of a field in a mapping that is written on one line."""
_NAME: Final = re.compile(r"\.([^.\[\]=]+)")
_QUOTED: Final = re.compile(r"""\.(?:"([^"]*)"|'([^']*)')(?=[.\[]|$)""")
_KEY: Final = re.compile(r"""((?:(?<![^.])"[^"]*"|(?<![^.])'[^']*'|[^=])*)=(.*)""", re.DOTALL)
"""Pattern that splits an override at the first `=` outside of quoted names into key and value."""
MAX_QUOTED_CHARS: Final = 200
"""Maximum number of characters of an override that a message quotes."""
_REMOVABLE: Final = {("arms",), ("grid",), ("contexts",), ("posthoc",), ("search", "also")}


@dataclass(frozen=True, slots=True)
class Override:
    """One change to a written spec."""

    key: str
    """Dotted path from the root of the spec."""
    value: Any
    origin: Origin
    """File or command line that contains the override."""


class BadOverride(ValueError):
    """Raised if an override cannot be parsed, or if its key matches no place in the spec."""

    def __init__(self, message: str, code: FaultCode = FaultCode.INVALID_OVERRIDE) -> None:
        super().__init__(message)
        self.code = code


def parse(text: str) -> Override:
    """Parse `text` (`key=value`) as an override.

    Raises:
        BadOverride: If the text cannot be parsed.
    """
    parts = _KEY.fullmatch(text)
    if parts is None or not (key := parts[1].strip()):
        raise BadOverride(f"an override must be key=value, got {text!r}")
    value = read_text(parts[2], displayed_name(text), lines=False)
    if value.faults:
        is_oversized = any(fault.code is FaultCode.OVERSIZED_VALUE for fault in value.faults)
        code = FaultCode.OVERSIZED_VALUE if is_oversized else FaultCode.INVALID_OVERRIDE
        raise BadOverride("; ".join(fault.message for fault in value.faults), code)
    return Override(key, value.data, Origin(displayed_name(text)))


def displayed_name(text: str) -> str:
    """Return the name of the override `text` for messages, with possible secrets in the value masked."""
    # Redact more text than is quoted, so that the quoted text does not end within an unmasked token.
    field, is_one, value = text[: 4 * MAX_QUOTED_CHARS].partition("=")
    if any(map(is_named_secret, (field, *_FIELD.findall(value)))):
        value = MASK
    shown_as = f"{field}{is_one}{redact_setting('', value)}"
    return (
        f"override {shown_as if len(shown_as) <= MAX_QUOTED_CHARS else f'{shown_as[:MAX_QUOTED_CHARS]}...'!r}"
    )


def render(key: str, value: Any) -> str:
    """Return the override text that `parse` reads as `key` and `value`."""
    return f"{key}={scalars.dump(value, flow=True)}"


def profile_overrides(document: Document, name: str) -> list[Override]:
    """Return the overrides of the profile `name`.

    Raises:
        BadOverride: If there is no such profile.
    """
    profiles = document.data.get("profiles")
    profiles = profiles if isinstance(profiles, dict) else {}
    if name not in profiles:
        raise BadOverride(f"no profile named {name!r}. {hint(name, profiles)}", FaultCode.UNKNOWN_NAME)
    entries = profiles[name] if isinstance(profiles[name], dict) else {}
    return [
        Override(key, copy.deepcopy(value), document.origins[("profiles", name, key)])
        for key, value in entries.items()
    ]


def apply(document: Document, overrides: Iterable[Override]) -> None:
    """Apply overrides to `document` in place; an invalid override becomes a fault, all others are applied."""
    for override in overrides:
        try:
            _apply(document, resolve(override.key, document.data), override)
        except BadOverride as error:
            origin = override.origin
            document.faults.append(Fault(str(error), override.key, origin.file, origin.line, error.code))


def resolve(key: str, data: Any) -> Keys:
    """Return the keys of the place in the spec `data` that the dotted `key` names.

    Keys with dots, such as field paths under `set`, are treated as one key.

    Raises:
        BadOverride: If there is no such place.
    """
    keys: Keys = ()
    kind: Any = field_paths.type_at((), spec_class(data))
    rest = f".{key}"
    while rest:
        inside = value_at(data, keys)
        part, rest = _next(kind, inside, rest)
        kind = _kind_below(kind, inside, part, keys, data, last=not rest)
        keys = (*keys, part)
    return keys


def _next(kind: Any, inside: Any, rest: str) -> tuple[str | int, str]:
    """Return the first part of `rest`, and the rest after it; `rest` begins with a dot or an index."""
    if index := _INDEX.match(rest):
        return int(index[1]), rest[index.end() :]
    if quoted := _QUOTED.match(rest):
        return quoted[1] if quoted[1] is not None else quoted[2], rest[quoted.end() :]
    rest_of_path = rest[1:]
    fields = inside if isinstance(inside, dict) else {}
    fits = [key for key in fields if rest_of_path == key or rest_of_path.startswith((f"{key}.", f"{key}["))]
    if fits or field_paths.has_dotted_keys(kind):
        part = max(fits, key=len, default=rest_of_path)
        return part, rest_of_path[len(part) :]
    name = _NAME.match(rest)
    if name is not None and isinstance(inside, list) and name[1].isdecimal():
        return int(name[1]), rest[name.end() :]
    if name is None:
        raise BadOverride(f"must be names joined by single dots and positions like [0], got {rest[:40]!r}")
    return name[1], rest[name.end() :]


def _kind_below(kind: Any, inside: Any, part: str | int, keys: Keys, spec: Any, *, last: bool) -> Any:
    """Return the type at `part`. Raise `BadOverride` for a place that does not exist or cannot be changed."""
    kind_of_part = field_paths.type_below(kind, part)
    place_text = f"{dotted(keys)} " if keys else "a spec "
    if kind_of_part is None and (names := field_paths.known_keys(kind)):
        likely = None if keys else _path_elsewhere(str(part), spec)
        raise BadOverride(f"{place_text}has no key {str(part)!r}. {hint(str(part), names, likely)}")
    if isinstance(part, str) and isinstance(inside, list):
        raise BadOverride(f"{place_text}is {format_value(inside)}: select an item by a position like [0]")
    if kind_of_part is None or (inside is not None and not isinstance(inside, dict | list)):
        raise BadOverride(f"{place_text}is {format_value(inside)} and has no fields: set the whole value")
    if isinstance(part, int) and not (isinstance(inside, list) and part < len(inside)):
        raise BadOverride(f"{place_text}has no position {part}: its value is {format_value(inside)}")
    if keys == ("arms",) and not last and part not in (inside or {}):
        raise BadOverride(f"no arm named {part!r}. {hint(str(part), inside or {})}")
    return kind_of_part


def _path_elsewhere(name: str, spec: Any) -> str | None:
    """Return the path that begins with `name` if its section was omitted; None if there is none.

    Examples: `baseline.train` for `train`, `baseline.train.lr` for `lr`, `search.sampler` for `sampler`.
    """
    kind = spec_class(spec)
    for section in field_paths.known_keys(kind):
        if name in field_paths.known_keys(field_paths.type_below(kind, section)):
            return f"{section}.{name}"
    baseline = value_at(spec, ("baseline",))
    parts = baseline if isinstance(baseline, dict) else {}
    if name in parts:
        return f"baseline.{name}"
    holder = next((key for key, fields in parts.items() if isinstance(fields, dict) and name in fields), None)
    return None if holder is None else f"baseline.{holder}.{name}"


def _apply(document: Document, keys: Keys, override: Override) -> None:
    *outer, last = keys
    inside: Any = document.data
    for length, key in enumerate(outer, start=1):
        if isinstance(inside, dict) and inside.get(key) is None:
            document.added.add(keys[:length])
            inside[key] = {}
            document.origins[keys[:length]] = override.origin
        inside = inside[key]
    if override.value is None and tuple(outer) in _REMOVABLE:
        if last not in inside:
            raise BadOverride(f"{dotted(tuple(outer))} has no {last!r} to remove. {hint(str(last), inside)}")
        del inside[last]
        return
    if isinstance(inside, dict) and last not in inside:
        document.added.add(keys)
    for inner in [keys_of_value for keys_of_value in document.origins if keys_of_value[: len(keys)] == keys]:
        del document.origins[inner]
    document.origins[keys] = override.origin
    inside[last] = override.value
