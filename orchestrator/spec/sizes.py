"""Detect impossible sizes in a written spec without loading the code of models or PyTorch."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, get_args

from orchestrator.errors import Fault, FaultCode
from orchestrator.spec import combine
from orchestrator.spec.document import Document, Keys, value_at
from orchestrator.spec.types import names_trainable
from search_spaces.parse import FORMS
from search_spaces.paths import ROOTS
from trainables import catalog
from trainables.settings import DEPTHS, MAX_INTEGER, SHARED_LAYERS_MAX

WrittenValue = tuple[Keys, str, Any]
"""Place of a value in the spec, path of the field that it is for, and the value."""
MAX_COUNT: Final = 10**6
"""Limit above which no number of seeds, trials or devices is valid."""
MAX_PROFILES: Final = 100
_KINDS: Final[Mapping[str, catalog.Kind]] = {"task": "tasks", "model": "models"}


def check(document: Document) -> list[Fault]:
    """Return a fault for every impossible size in the spec `document`; no valid built-in setting is refused.

    Fields of training with fractional values have no maximum. Fields of custom models, tasks and trainables
    are validated by their own code.
    """
    problems = filter(None, (combine.too_many(document), _too_many_profiles(document)))
    faults = [document.fault(*problem, FaultCode.OVERSIZED_VALUE) for problem in problems]
    if names_trainable(document.data) or not isinstance(document.data, dict):
        return faults
    written_values = list(_written_values(document.data))
    built_in_roots = {root for root in ROOTS if not _is_outside(root, written_values)}
    for keys, path, value in written_values:
        if _is_number(value) and (limit := _max_number(path, built_in_roots)) is not None and value > limit:
            faults.append(document.fault(keys, too_large_message(limit, value), FaultCode.OVERSIZED_VALUE))
    return faults


def names_custom_model_or_task(data: Mapping[str, Any]) -> bool:
    """Return whether the data of a spec names a model or task that is not built in."""
    written_values = list(_written_values(data))
    return any(_is_outside(root, written_values) for root in _KINDS)


def _too_many_profiles(document: Document) -> tuple[Keys, str] | None:
    num_profiles = len(_mapping(document.data, "profiles"))
    if num_profiles <= MAX_PROFILES:
        return None
    message = f"must be at most {MAX_PROFILES}, as the spec is read with each, got {num_profiles:,}"
    return ("profiles",), message


def too_large_message(limit: int, value: float) -> str:
    """Return the error message for a number larger than `limit`."""
    return f"must be at most {limit:,}, got {f'{value:,}' if isinstance(value, int) else f'{value:g}'}"


def is_impossible_size(value: Any) -> bool:
    """Return whether `value` is a number that is larger than any valid number in a spec."""
    return _is_number(value) and value > MAX_COUNT


def _max_number(path: str, built_in_names: set[str]) -> int | None:
    """Return the largest valid number of the field `path`; None if it is unknown."""
    root, _, field = path.partition(".")
    if root not in built_in_names or not field or path.endswith("seed"):
        return None
    if root == "model" and field in DEPTHS:
        return SHARED_LAYERS_MAX
    return None if root == "train" and field in _fractions() else MAX_INTEGER


@cache
def _fractions() -> frozenset[str]:
    """Return the fields of training whose numbers may be fractional."""
    from trainables.training.config import TrainConfig

    fields = TrainConfig.model_fields.items()
    return frozenset(name for name, field in fields if _holds_fractions(field.annotation))


def _holds_fractions(kind: Any) -> bool:
    return kind is float or any(map(_holds_fractions, get_args(kind)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_outside(root: str, written_values: list[WrittenValue]) -> bool:
    """Return whether any task or model that the spec names is custom, not built-in."""
    names = {value for _, path, value in written_values if path == f"{root}.name" and isinstance(value, str)}
    return root in _KINDS and any(catalog.is_custom(_KINDS[root], name) for name in names)


def _written_values(data: Mapping[str, Any]) -> Iterator[WrittenValue]:
    """Yield every value that a spec gives to a field of the settings, from all places that can do so."""
    for root in ROOTS:
        yield from _values_at(data, ("baseline", root), root)
    for section in ("arms", "components"):
        for name in _mapping(data, section):
            yield from _by_path(data, (section, name, "set"))
    for section in ("grid", "contexts", "posthoc"):
        yield from _by_path(data, (section,))
    for path in _mapping(data, "search", "also"):
        for form in FORMS:
            yield from _values_at(data, ("search", "also", path, form), path)
    points = _mapping(data, "search").get("first")
    for place, _ in enumerate(points if isinstance(points, list) else ()):
        yield from _by_path(data, ("search", "first", place))


def _by_path(data: Mapping[str, Any], keys: Keys) -> Iterator[WrittenValue]:
    """Yield the values in the mapping at `keys`, whose keys are paths of fields."""
    for path in _mapping(data, *keys):
        yield from _values_at(data, (*keys, path), path)


def _values_at(data: Any, keys: Keys, path: str) -> Iterator[WrittenValue]:
    """Yield the values at `keys`: one for the field `path`, or several in mappings and lists."""
    yield from _values_inside(value_at(data, keys), keys, path)


def _values_inside(value: Any, keys: Keys, path: str) -> Iterator[WrittenValue]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _values_inside(inner, (*keys, key), f"{path}.{key}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _values_inside(inner, (*keys, place), path)
    else:
        yield keys, path, value


def _mapping(data: Any, *keys: str | int) -> Mapping[str, Any]:
    value = value_at(data, keys)
    return value if isinstance(value, dict) else {}
