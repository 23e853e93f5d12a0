"""What is left of a faulty spec: the planner looks at it, so that its faults are told with the file's own."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import Fault
from orchestrator.spec.document import Document
from orchestrator.spec.load import SpecFile, changed_document, validate

OPTIONAL = frozenset({"sampler", "stopper", "seed", "constraints", "first"})
"""Parts of a search that have defaults, and that no other part refers to."""
PLACEHOLDERS = {"name": "unnamed", "question": "-"}
"""Parts that every spec must have and the planner does not look at."""


def sound_part(
    path: Path, overrides: Sequence[str], profile: str | None, faults: Sequence[Fault]
) -> SpecFile | None:
    """The spec at `path` without the arms and sections that `faults` are about; None if nothing is left."""
    found = changed_document(path, overrides, profile)
    if not isinstance(found.data, dict) or any(_section(fault) == "baseline" for fault in faults):
        return None
    found = Document(copy.deepcopy(found.data), found.origin, found.origins)
    for fault in faults:
        _take_out(found.data, fault)
    _mend(found.data)
    spec, left = validate(found)
    return (
        SpecFile(spec.model_copy(update={"profiles": {}}), found) if spec is not None and not left else None
    )


def _section(fault: Fault) -> str:
    return fault.path.replace("[", ".").split(".")[0]


def _take_out(data: dict[str, Any], fault: Fault) -> None:
    section = _section(fault)
    arms = data.get("arms")
    name = fault.path.split(".")[1] if section == "arms" and "." in fault.path else None
    if section in PLACEHOLDERS:
        data[section] = PLACEHOLDERS[section]
    elif name is not None and isinstance(arms, dict):
        arms.pop(name, None)
    elif section == "search" and _take_out_of_search(data, fault.path.removeprefix("search").lstrip(".")):
        pass
    else:
        data.pop(section, None)


def _take_out_of_search(data: dict[str, Any], path: str) -> bool:
    """Take out what is at `path` of the search; whether the rest can do without it."""
    search = data.get("search")
    if not isinstance(search, dict):
        return False
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
    return False


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
    if "confirm" not in data:
        data.pop("posthoc", None)
        if "search" not in data:
            data["confirm"] = {"seeds": [0]}
