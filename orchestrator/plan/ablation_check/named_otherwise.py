"""Detect contradictions between the words of an arm (name and why) and its changes.

Words are weak evidence, so the result is a note in the plan and never an error.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.ablation_check.structure import reshaped_share
from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.training_code.settings import checked
from orchestrator.plan.types import Change
from search_spaces.paths import MISSING, leaves, lookup, with_value

MOST = 0.5
"""A field that reshapes more than this share of the common weights is a size of the complete model."""
_TAKES_AWAY = re.compile(r"^(?:minus|no|without)[-_](.+)$")


def named_otherwise(arm: BuiltInArm, reference: BuiltInArm, probe: Probe) -> tuple[str, ...]:
    """Return warnings about the words of `arm`, one sentence each.

    Raises:
        ValueError: A system cannot be built.
    """
    return (*_named_otherwise(arm, reference), *_unnamed_sizes(arm, reference, probe))


def _named_otherwise(arm: BuiltInArm, reference: BuiltInArm) -> Iterator[str]:
    """Yield a warning if an arm named after a removed field does not change it; names may be swapped."""
    taken = _TAKES_AWAY.match(arm.request.label)
    if taken is None or not arm.changes:
        return
    named = _words(taken.group(1)) & _field_words(arm.system.settings, reference.system.settings)
    touched = set[str]().union(*(_touched(each.path, each.before, each.after) for each in arm.changes))
    if named and (not named & touched or not _takes_away(taken.group(1), named, arm.changes)):
        paths = ", ".join(change.path for change in arm.changes)
        yield (
            f"it is named for taking away {' and '.join(sorted(named))} and changes {paths}; were two arms "
            "swapped?"
        )


def _unnamed_sizes(arm: BuiltInArm, reference: BuiltInArm, probe: Probe) -> Iterator[str]:
    """Yield a warning if an arm changes a size of the complete model together with something else."""
    paths = [path for path in arm.request.changes if path.startswith("model.") and path != "model.name"]
    if len(paths) < 2 or "model.name" in arm.request.changes:
        return
    sizes = [path for path in paths if _is_size(path, arm, reference, probe)]
    words = _words(f"{arm.request.label} {arm.request.why}")
    for path in sizes if len(sizes) < len(paths) else ():
        if path.rsplit(".", 1)[-1] not in words:
            others = ", ".join(each for each in paths if each not in sizes)
            yield (
                f"it changes {path}, and with it most weights, beside {others}; what it shows could come "
                "from either"
            )


def _is_size(path: str, arm: BuiltInArm, reference: BuiltInArm, probe: Probe) -> bool:
    """Return whether `path` alone reshapes most of the remaining weights."""
    before = lookup(reference.system.settings, path)
    if before is MISSING or not any(map(_is_number, (before, arm.request.changes[path]))):
        return False
    without = checked(with_value(arm.system.settings, path, before))
    if isinstance(without, list):
        return False
    return reshaped_share(probe.structure(without).shapes, probe.structure(arm.system).shapes) > MOST


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _takes_away(name: str, fields: set[str], changes: Sequence[Change]) -> bool:
    """Return whether an arm named after a field changes that field itself, not only fields inside it."""
    return name not in fields or any(name in _words(change.path.rsplit(".", 1)[-1]) for change in changes)


def _touched(path: str, *values: Any) -> set[str]:
    found = _words(path)
    for value in values:
        if isinstance(value, Mapping):
            found |= _field_words({"": value})
        elif isinstance(value, str):
            found |= _words(value)
    return found


def _field_words(*settings: Mapping[str, Any]) -> set[str]:
    fields = (path for each in settings for path, _ in leaves(each))
    return {word for path in fields for word in _words(path.partition(".")[2])} - {"name"}


def _words(text: str) -> set[str]:
    """Return the words of a name, path or sentence; `max_layers` gives `max_layers`, `max` and `layers`."""
    whole = set(re.findall(r"[a-z0-9_]+", text.lower()))
    return whole | {part for word in whole for part in word.split("_") if part}
