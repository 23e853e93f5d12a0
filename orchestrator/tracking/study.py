"""The little that a projection needs to know of a plan, from the plan itself or from its file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import StoreError
from orchestrator.plan.types import Objective, Plan


@dataclass(frozen=True, slots=True)
class ArmView:
    """One arm as people compare it."""

    name: str
    why: str
    settings: Mapping[str, Any]
    changes: tuple[str, ...]
    """One line a changed field; empty for the baseline."""


@dataclass(frozen=True, slots=True)
class Study:
    """A sweep as people compare it."""

    sweep: str
    question: str
    arms: tuple[ArmView, ...]
    """The baseline first."""
    objective: Objective | None
    """The first objective of the search."""

    @classmethod
    def of(cls, plan: Plan) -> "Study":
        """The view of a plan."""
        arms = tuple(
            ArmView(
                arm.name,
                arm.why,
                arm.settings,
                _lines([(change.path, change.before, change.after) for change in arm.changes]),
            )
            for arm in plan.arms
        )
        objective = plan.search.objectives[0] if plan.search is not None else None
        return cls(plan.name, plan.question, arms, objective)

    @classmethod
    def read(cls, plan_file: Path) -> "Study":
        """The view of a plan as launched. Raises StoreError if the file is missing or is no plan."""
        try:
            plan = json.loads(plan_file.read_text(encoding="utf-8"))
            arms = tuple(
                ArmView(
                    arm["name"],
                    arm["why"],
                    arm["settings"],
                    _lines(
                        [(change["path"], change["before"], change["after"]) for change in arm["changes"]]
                    ),
                )
                for arm in plan["arms"]
            )
            objective = Objective(**plan["search"]["objectives"][0]) if plan["search"] else None
            return cls(plan["name"], plan["question"], arms, objective)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{str(plan_file)!r} must be the plan of a launched sweep, and cannot be read "
                f"({type(error).__name__}: {error}); check the sweep's name and folder"
            ) from error


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted paths, e.g. `model.halt.threshold`; lists stay values."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def differing(arms: Sequence[ArmView]) -> frozenset[str]:
    """Dotted paths whose values are not the same in all arms."""
    flats = [flatten(arm.settings) for arm in arms]
    paths = {path for flat in flats for path in flat}
    missing = object()
    return frozenset(
        path
        for path in paths
        if any(flat.get(path, missing) != flats[0].get(path, missing) for flat in flats)
    )


def _lines(changes: Sequence[tuple[str, Any, Any]]) -> tuple[str, ...]:
    return tuple(f"{path}: {json.dumps(before)} -> {json.dumps(after)}" for path, before, after in changes)
