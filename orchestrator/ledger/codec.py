"""A trial as JSON and back: what an `asked` event carries."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from orchestrator.json_values import from_json_values, to_json_values
from orchestrator.trials import PlannedTrial, Trial

PLANNED = frozenset(field.name for field in fields(PlannedTrial))


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """JSON values, those of `planned` beside the others; `trial_from_json` gives an equal trial."""
    values: dict[str, Any] = to_json_values(trial)
    planned: dict[str, Any] = values.pop("planned")
    return planned | values


def trial_from_json(payload: Mapping[str, Any]) -> Trial:
    """The trial of an `asked` event. Raises ValueError for anything else."""
    planned = {name: payload[name] for name in PLANNED if name in payload}
    rest = {name: value for name, value in payload.items() if name not in PLANNED}
    return from_json_values(Trial, {**rest, "planned": planned})
