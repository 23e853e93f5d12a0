"""The models of all experiments, with the settings of their specs, in sizes that run in milliseconds."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.plan.arms import resolve_built_in_arms
from orchestrator.plan.faults import Faults
from orchestrator.spec.load import read_spec
from trainables.assembly import model_config
from trainables.settings import Settings
from trainables.testing.arms import EXIT, base, is_valid_for, mark, variations
from trainables.testing.cases import SHAPE

EXPERIMENTS = Path(__file__).parents[3] / "experiments"


@dataclass(frozen=True)
class PublishedModel:
    """Model and task of an experiment's arm."""

    label: str
    """Names of spec and arm."""
    task: dict[str, Any]
    """Settings of the task as published."""
    model: dict[str, Any]
    """Settings of the model in a small size; rates of dropout have the model's defaults."""


@cache
def published_models() -> tuple[PublishedModel, ...]:
    """Return the distinct pairs of model and task of all specs, in the order of files and arms."""
    models: dict[str, PublishedModel] = {}
    for path in sorted(EXPERIMENTS.glob("*.yaml")):
        source = read_spec(path)
        for arm in resolve_built_in_arms(source.spec, Faults(source)):
            settings = arm.system.settings
            model = PublishedModel(
                f"{path.stem}/{arm.request.name}", settings["task"], small(settings["model"])
            )
            models.setdefault(json.dumps([model.task, model.model], sort_keys=True), model)
    return tuple(models.values())


def arms_of(model: str) -> dict[str, dict[str, Any]]:
    """Return published settings of the model that set a field to a value that no earlier arm sets."""
    known_values = {value for raw in variations(base(model, {}), SHAPE).values() for value in _values(raw)}
    arms = {}
    for published in published_models():
        if published.model["name"] != model or not is_valid_for(published.model, SHAPE):
            continue
        if new_values := set(_values(published.model)) - known_values:
            known_values |= new_values
            arms[published.label] = published.model
    return arms


def _values(raw: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in raw.items():
        if isinstance(value, dict):
            yield from _values(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", repr(value)


def small(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a model's settings with every size at most that of the small version."""
    return reduced_settings(model_config(raw))


def reduced_settings(config: Settings) -> dict[str, Any]:
    """Return marked sizes, or smaller ones as they are; dropout and early exit have their defaults."""
    settings = config.model_dump(mode="json")
    for name, field in type(config).model_fields.items():
        value, size_mark = getattr(config, name), mark(type(config), name)
        if isinstance(value, Settings):
            settings[name] = reduced_settings(value)
        elif name.endswith("dropout") or name == EXIT:
            settings[name] = field.default
        elif size_mark is not None and isinstance(value, int):
            settings[name] = (
                min(value, size_mark.value) if isinstance(size_mark.value, int) else size_mark.value
            )
    return settings
