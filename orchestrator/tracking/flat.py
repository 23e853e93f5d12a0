"""Settings as MLflow shows them: dotted paths, and which of them tell arms apart."""

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.plan.types import Arm


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted paths, e.g. `model.halt.threshold`; lists and empty mappings stay values."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def differing(arms: Sequence[Arm]) -> frozenset[str]:
    """Dotted paths that are not the same in all arms, or not in all of them."""
    flats = [flatten(arm.settings) for arm in arms]
    paths = {path for flat in flats for path in flat}
    missing = object()
    return frozenset(path for path in paths if len({repr(flat.get(path, missing)) for flat in flats}) > 1)
