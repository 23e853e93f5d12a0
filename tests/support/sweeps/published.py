"""Every system of every experiment, as a spec has it, in sizes at which it takes milliseconds."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.plan.arms import resolve
from orchestrator.plan.faults import Faults
from orchestrator.spec.load import read_spec
from trainables.assembly import model_config
from trainables.settings import Settings
from trainables.testing.arms import EXIT, base, fits, mark, variations
from trainables.testing.cases import SHAPE

EXPERIMENTS = Path(__file__).parents[3] / "experiments"


@dataclass(frozen=True)
class System:
    """An arm of an experiment."""

    label: str
    """Spec and arm."""
    task: dict[str, Any]
    """As published."""
    model: dict[str, Any]
    """Small; rates of dropout are the model's own."""


@cache
def systems() -> tuple[System, ...]:
    """Those of all specs whose model or task differ from all before, in the order of files and arms."""
    found: dict[str, System] = {}
    for path in sorted(EXPERIMENTS.glob("*.yaml")):
        source = read_spec(path)
        for arm in resolve(source.spec, Faults(source)):
            settings = arm.system.settings
            system = System(f"{path.stem}/{arm.request.name}", settings["task"], small(settings["model"]))
            found.setdefault(json.dumps([system.task, system.model], sort_keys=True), system)
    return tuple(found.values())


def arms_of(model: str) -> dict[str, dict[str, Any]]:
    """Systems that are this model and set a field as no arm of its contract does, and no system before."""
    seen = {each for raw in variations(base(model, {}), SHAPE).values() for each in _values(raw)}
    found = {}
    for system in systems():
        if system.model["name"] != model or not fits(system.model, SHAPE):
            continue
        if new := set(_values(system.model)) - seen:
            seen |= new
            found[system.label] = system.model
    return found


def _values(raw: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in raw.items():
        if isinstance(value, dict):
            yield from _values(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", repr(value)


def small(raw: dict[str, Any]) -> dict[str, Any]:
    """A model's settings with no size above the small one."""
    return reduced(model_config(raw))


def reduced(config: Settings) -> dict[str, Any]:
    """Sizes as they are marked, or as they were where smaller; dropout and early exit as by default."""
    found = config.model_dump(mode="json")
    for name, field in type(config).model_fields.items():
        value, marked = getattr(config, name), mark(type(config), name)
        if isinstance(value, Settings):
            found[name] = reduced(value)
        elif name.endswith("dropout") or name == EXIT:
            found[name] = field.default
        elif marked is not None and isinstance(value, int):
            found[name] = min(value, marked.value) if isinstance(marked.value, int) else marked.value
    return found
