"""What is left of a faulty spec: the planner looks at it, so that its faults are told with the file's own."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import Fault
from orchestrator.spec.document import Document
from orchestrator.spec.load import SpecFile, changed_document, validate

CHANGING = frozenset({"set", "drop"})
"""Parts of an arm that say what it changes."""
OPTIONAL = frozenset({"sampler", "stopper", "seed", "constraints", "first"})
"""Parts of a search that have defaults, and that no other part refers to."""
PLACEHOLDERS = {"name": "unnamed", "question": "-"}
"""Parts that every spec must have and the planner does not look at."""
UNREADABLE: dict[str, dict[str, Any]] = {"task": {"name": "-"}, "model": {"name": "-"}, "train": {}}
"""What stands for a part of the baseline that is not there or no mapping: the planner looks at the others."""
EXHAUSTIVE = ("grid", "bruteforce", "BruteForceSampler")
"""Samplers that must have as many trials as there are combinations."""
TRIALS = 1_000
"""What stands for a wrong number of trials: as many as any other part can ask for."""
SEEDS = [0, 1, 2]
"""What stands for seeds that are wrong: as many as any plan can do with."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of a faulty spec."""

    source: SpecFile
    assumed: tuple[str, ...] = ()
    """Paths of what stands there for a faulty part: what is wrong with it has been told."""

    def new(self, faults: Sequence[Fault]) -> list[Fault]:
        """Those of `faults` that are of the file as it was written."""
        return [
            fault
            for fault in faults
            if not any(fault.path == path or fault.path.startswith(f"{path}.") for path in self.assumed)
        ]


def sound_part(
    path: Path, overrides: Sequence[str], profile: str | None, faults: Sequence[Fault]
) -> Rest | None:
    """The spec at `path` without the arms and sections that `faults` are about; None if nothing is left."""
    found = changed_document(path, overrides, profile)
    if not isinstance(found.data, dict) or any(_keys(fault) == ["baseline"] for fault in faults):
        return None
    found = Document(copy.deepcopy(found.data), found.origin, found.origins)
    assumed = []
    for fault in faults:
        assumed += _take_out(found.data, fault)
    _mend(found.data)
    spec, left = validate(found)
    if spec is None or left:
        return None
    return Rest(SpecFile(spec.model_copy(update={"profiles": {}}), found), tuple(assumed))


def _keys(fault: Fault) -> list[str]:
    return fault.path.replace("[", ".").split(".")


def _take_out(data: dict[str, Any], fault: Fault) -> list[str]:
    """Take out what `fault` is about, with all that the planner could misunderstand then.

    Returns the path of what stands in its place and can be planned no better, if anything does.
    """
    section, *inner = _keys(fault)
    if section in PLACEHOLDERS:
        data[section] = PLACEHOLDERS[section]
    elif section == "baseline":
        return _take_out_of_baseline(data, inner[0])
    elif section == "arms" and inner and isinstance(data.get("arms"), dict):
        _take_out_of_arms(data["arms"], fault.path.split(".")[1:])
    elif section == "search":
        _take_out_of_search(data, fault.path.removeprefix("search").lstrip("."))
    elif section == "confirm":
        _take_out_of_confirm(data, inner)
    else:
        data.pop(section, None)
    return []


def _take_out_of_baseline(data: dict[str, Any], part: str) -> list[str]:
    if part not in UNREADABLE:
        data["baseline"].pop(part, None)
        return []
    data["baseline"][part] = UNREADABLE[part]
    return [f"baseline.{part}"]


def _take_out_of_arms(arms: dict[str, Any], path: Sequence[str]) -> None:
    """An arm is nothing without a change that it makes; the rest of it can be planned without."""
    name, *inner = path
    arm = arms.get(name)
    if not isinstance(arm, dict) or not inner or inner[0] in CHANGING or not CHANGING & arm.keys():
        arms.pop(name, None)
    elif inner == ["why"]:
        arm["why"] = PLACEHOLDERS["question"]
    else:
        arm.pop(inner[0], None)


def _take_out_of_confirm(data: dict[str, Any], inner: Sequence[str]) -> None:
    """The rest can do without what is `inner` of it where it is seeds, or how many are confirmed."""
    confirm = data.get("confirm")
    if isinstance(confirm, dict) and inner and inner[0] == "seeds":
        confirm["seeds"] = SEEDS
    elif isinstance(confirm, dict) and inner and inner[0] == "best":
        confirm.pop("best", None)
    else:
        data.pop("confirm", None)


def _take_out_of_search(data: dict[str, Any], path: str) -> None:
    """Take out what is at `path` of the search, or all of it where the rest cannot do without."""
    search = data.get("search")
    if not isinstance(search, dict) or not _can_do_without(data, search, path):
        data.pop("search", None)


def _can_do_without(data: dict[str, Any], search: dict[str, Any], path: str) -> bool:
    key = path.replace("[", ".").split(".")[0]
    also = search.get("also")
    if key == "also" and isinstance(also, dict):
        inner = path.removeprefix("also.")
        for field in [each for each in also if inner == each or inner.startswith((f"{each}.", f"{each}["))]:
            del also[field]
            _forget_drop(data, field)
            return True
    if key in OPTIONAL:
        search.pop(key, None)
        return True
    if key == "trials_per_arm" and _name(search.get("sampler")) not in EXHAUSTIVE:
        search[key] = TRIALS
        return True
    return False


def _name(component: Any) -> Any:
    return component.get("name") if isinstance(component, dict) else component


def _forget_drop(data: dict[str, Any], field: str) -> None:
    """An arm cannot drop what is searched no more."""
    arms = data.get("arms")
    for arm in arms.values() if isinstance(arms, dict) else ():
        if isinstance(arm, dict) and isinstance(arm.get("drop"), list):
            arm["drop"] = [each for each in arm["drop"] if each != field]


def _mend(data: dict[str, Any]) -> None:
    """Take out what refers to parts that are gone."""
    for absent, needed in PLACEHOLDERS.items():
        data.setdefault(absent, needed)
    data.pop("profiles", None)
    data.pop("published", None)
    if "search" not in data:
        for arm in (data.get("arms") or {}).values():
            if isinstance(arm, dict):
                arm.pop("drop", None)
        if isinstance(data.get("confirm"), dict):
            data["confirm"].pop("best", None)
    if "confirm" not in data:
        data.pop("posthoc", None)
        if "search" not in data:
            data["confirm"] = {"seeds": [0]}
