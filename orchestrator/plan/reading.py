"""Reads what is to be planned. Without PyTorch, so that what nobody could plan is refused at once: specs that
are none, sizes that nothing could have, plans of more trials than a lifetime holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from orchestrator.errors import Fault, OversizedSpec, SpecError
from orchestrator.plan.consistency import MOST_ARMS, MOST_TRIALS
from orchestrator.plan.faults import Faults
from orchestrator.spec.document import Document
from orchestrator.spec.kinds import Component
from orchestrator.spec.load import SpecFile, changed_document, in_order, read_spec
from orchestrator.spec.salvage import Rest, sound_part
from orchestrator.spec.types import Spec
from search_spaces.wording import counted

_COMPONENT: Final[TypeAdapter[Any]] = TypeAdapter(Component)


@dataclass(frozen=True, slots=True)
class Salvaged:
    """A faulty spec of which something is left that can be planned: so its faults are reported as well."""

    error: SpecError
    rest: Rest


def read_to_plan(
    path: Path, overrides: Sequence[str] = (), profile: str | None = None
) -> SpecFile | Salvaged:
    """The spec at `path` with `profile` and `overrides` applied.

    Raises `OversizedSpec` or `PlanError` for such a size; else `SpecError` where there is nothing to plan.
    """
    try:
        source = read_spec(path, overrides, profile)
    except SpecError as error:
        if any(fault.oversized for fault in error.faults):
            raise OversizedSpec(error.faults) from None
        rest = sound_part(path, overrides, profile, error.faults)
        if rest is None or rest.source.spec.search is None:
            written = changed_document(path, overrides, profile)
            error = SpecError(in_order([*error.faults, *_sampler_faults(written, error.faults)]))
        if rest is None:
            raise error from None
        return Salvaged(error, rest)
    check_size(source.spec, Faults(source))
    return source


def _sampler_faults(written: Document, known: Sequence[Fault]) -> list[Fault]:
    """What is wrong with sampler and stopper of a search that has too many faults to be planned."""
    search = written.data.get("search") if isinstance(written.data, dict) else None
    if not isinstance(search, dict):
        return []
    objectives = search.get("objectives")
    several = len(objectives) if isinstance(objectives, list) and objectives else 1
    faulty = {".".join(fault.path.replace("[", ".").split(".")[:2]) for fault in known}
    found: list[Fault] = []
    for component in ("sampler", "stopper"):
        if search.get(component) is None or f"search.{component}" in faulty:
            continue
        from orchestrator.sampler_check import check_sampler, check_stopper, or_refusals  # which load Optuna

        given = _COMPONENT.validate_python(search[component])
        check = (
            partial(check_sampler, given, several)
            if component == "sampler"
            else partial(check_stopper, given)
        )
        for refusal in or_refusals(check)[1]:
            keys = ("search", component, *filter(None, [refusal.keyword]))
            found.append(written.fault(keys, refusal.message))
    return found


def number_of_arms(spec: Spec) -> int:
    """Return the baseline and all arms, each in every cell of contexts and grid."""
    return (1 + len(spec.arms)) * prod(map(len, spec.axes.values()))


def check_size(spec: Spec, faults: Faults) -> None:
    """A plan must be one that can be made. Raises `PlanError` at once if it is not: no more is looked at."""
    arms = number_of_arms(spec)
    if arms > MOST_ARMS:
        faults.add(
            f"must make at most {MOST_ARMS:,} arms of the baseline and all arms, got {counted(arms)}: "
            "leave some values out",
            "grid" if spec.grid else "contexts",
        )
    repeats = spec.search.repeats if spec.search else 1
    searched = repeats * spec.search.trials_per_arm if spec.search else 0
    seeds = repeats * spec.confirm.best * len(spec.confirm.seeds) if spec.confirm else 0
    trials = arms * (searched + seeds * (1 + sum(map(len, spec.posthoc.values()))))
    if trials > MOST_TRIALS >= arms:
        key = ("search", "trials_per_arm") if searched > seeds else ("confirm",)
        faults.add(
            f"must ask for at most {MOST_TRIALS:,} trials over all arms, got {trials:,}: ask for fewer", *key
        )
    faults.raise_if_any()
