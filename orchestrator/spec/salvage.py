"""What is left of a faulty spec: the planner looks at it too, so that all faults are reported at once."""

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import Fault
from orchestrator.spec import combine
from orchestrator.spec.document import Document
from orchestrator.spec.field_paths import known
from orchestrator.spec.load import SpecFile, changed_document, unfit, validate
from orchestrator.spec.types import Search, names_trainable
from search_spaces.formulas import BadFormula, parsed
from search_spaces.paths import overlap

CHANGING = frozenset({"set", "drop"})
"""Parts of an arm that say what it changes."""
BY_KEY = frozenset({"answer", "budget", "resources", "grid", "contexts", "posthoc"})
"""Sections of which every key can be left out alone."""
PLACEHOLDERS = {"name": "unnamed", "question": "-"}
"""Parts that every spec must have and the planner does not look at."""
UNREADABLE: dict[str, dict[str, Any]] = {"task": {"name": "-"}, "model": {"name": "-"}, "train": {}}
"""What stands for a part of the baseline that is not there or no mapping: the planner looks at the others."""
TRIALS = 1_000
"""What stands for a wrong number of trials: as many as any other part can ask for."""
SEEDS = list(range(16))
"""What stands for seeds that are wrong: as many as any plan can do with."""
OBJECTIVES = [{"metric": "valid/-", "goal": "max"}]
"""What stands for objectives that are wrong or not there."""
ROUNDS = 6
"""What is taken out may leave others that refer to it, which are then taken out: that ends after a few."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of a faulty spec."""

    source: SpecFile
    assumed: tuple[str, ...] = ()
    """Paths of what stands there for a faulty part: what is wrong with it has been reported."""
    taken: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Places of the items that were taken out of lists, one after the other, by the path of the list."""

    def new(self, faults: Sequence[Fault]) -> list[Fault]:
        """Those of `faults` that are of the file as it was written, with their paths there."""
        own = [fault for fault in faults if not any(_within(fault.path, path) for path in self.assumed)]
        return [replace(fault, path=self._written(fault.path)) for fault in own]

    def _written(self, path: str) -> str:
        for listed, places in self.taken.items():
            if found := re.match(re.escape(listed) + r"\[(\d+)\]", path):
                place = int(found[1])
                for each in reversed(places):
                    place += place >= each
                return f"{listed}[{place}]{path[found.end() :]}"
        return path


def sound_part(
    path: Path, overrides: Sequence[str], profile: str | None, faults: Sequence[Fault]
) -> Rest | None:
    """The spec at `path` without what is faulty in it and what refers to that; None if nothing is left.

    `faults` are those that are reported of it, what its profiles would do wrong among them.
    """
    found = changed_document(path, overrides, profile)
    if not isinstance(found.data, dict):
        return None
    # What a profile would do wrong is nothing that has to go; where a secret stands has to, wherever that is.
    left = list(faults) if unfit(found) else validate(copy.deepcopy(found))[1]
    found = Document(copy.deepcopy(found.data), found.origin, found.origins)
    remover = _Remover(found)
    for _ in range(ROUNDS):
        if any(fault.path in {"baseline", "trainable"} for fault in left):
            return None
        # The last of a list first, so that those before it stay where they are said to be.
        for each in sorted({fault.path for fault in left}, key=_place, reverse=True):
            remover.take_out(each)
        remover.mend()
        if unfit(found):
            return None
        spec, left = validate(found)
        # A search that has nothing left to vary still has objectives to be looked at.
        if spec is not None and all(fault.path == "search" for fault in left):
            source = SpecFile(spec.model_copy(update={"profiles": {}}), found)
            return Rest(source, tuple(dict.fromkeys(remover.assumed)), remover.taken)
    return None


def _keys(path: str) -> list[str]:
    return path.replace("[", ".").replace("]", "").split(".")


def _place(path: str) -> list[tuple[int, str]]:
    """What puts the tenth of a list after the second."""
    return [(int(key) if key.isdecimal() else 0, key) for key in _keys(path)]


def _within(path: str, outer: str) -> bool:
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


def _key_of(section: Any, path: str) -> str | None:
    """The key of the mapping `section` that `path`, which begins inside it, goes through: keys have dots."""
    if not isinstance(section, dict):
        return None
    return max((key for key in map(str, section) if _within(path, key)), key=len, default=None)


def _mapping(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    """What is at `key`, an empty mapping where there is none."""
    found = data.get(key)
    return found if isinstance(found, dict) else {}


class _Remover:
    """Takes out of a spec what is faulty, with all that the planner could misunderstand then."""

    def __init__(self, found: Document) -> None:
        self._found = found
        self._data: dict[str, Any] = found.data
        self.assumed: list[str] = []
        self.taken: dict[str, list[int]] = {}

    def take_out(self, path: str) -> None:
        """Take out what is at `path`, or put what can be planned in its place."""
        section = _keys(path)[0]
        inner = path[len(section) :].removeprefix(".")
        if section in PLACEHOLDERS:
            self._data[section] = PLACEHOLDERS[section]
        elif section == "baseline":
            self._take_out_of_baseline(*inner.partition(".")[::2])
        elif section == "arms" and inner:
            self._take_out_of_arms(inner)
        elif section in {combine.COMBINE, combine.COMPONENTS}:
            self._take_out_components(section, inner)
        elif section == "search":
            self._take_out_of_search(inner)
        elif section == "confirm":
            self._take_out_of_confirm(inner)
        elif path == "posthoc" and self._data.get("confirm") is None and _mapping(self._data, path):
            self._confirm_something()
        elif section in BY_KEY and (key := _key_of(self._data.get(section), inner)):
            del self._data[section][key]
            self._forget(f"{section}.{key}" if section == "answer" else key)
        elif not self._without_item(self._data, path, section):
            self._data.pop(section, None)

    def mend(self) -> None:
        """Take out what refers to parts that are gone."""
        data = self._data
        for absent, needed in PLACEHOLDERS.items():
            data.setdefault(absent, needed)
        data.pop("profiles", None)
        if data.get("search") is None:
            for arm in _mapping(data, "arms").values():
                if isinstance(arm, dict):
                    arm.pop("drop", None)
            _mapping(data, "confirm").pop("best", None)
        if data.get("search") is None and data.get("confirm") is None:
            self._confirm_something()

    def _confirm_something(self) -> None:
        self._data["confirm"] = {"seeds": SEEDS}
        self._data.pop("answer", None)
        self.assumed.append("confirm")

    def _take_out_of_baseline(self, part: str, inner: str) -> None:
        baseline = self._data["baseline"]
        own = names_trainable(self._data)
        key = None if own else _key_of(baseline.get(part), inner)
        if key is not None:
            del baseline[part][key]
            part = f"{part}.{key}"
        elif part in UNREADABLE and not own:
            baseline[part] = UNREADABLE[part]
        else:
            baseline.pop(part, None)
        self.assumed.append(f"baseline.{part}")

    def _take_out_of_arms(self, inner: str) -> None:
        name = _key_of(self._data.get("arms"), inner) or inner.partition(".")[0]
        inside = inner[len(name) :].removeprefix(".")
        if name in combine.made(self._found):  # the others that are made stay, as if they were written
            combine.expand(self._found)
            self._data.pop(combine.COMBINE)
            self._data.pop(combine.COMPONENTS, None)
        self._take_out_of_arm("arms", name, inside)

    def _without_item(self, section: dict[str, Any], path: str, *keys: str) -> bool:
        """Take the item that `path`, as `splits[0].more`, goes through out of a list; whether it did.

        The list is that at the last of `keys` in `section`, and at all of them in the spec.
        """
        listed, depth = section.get(keys[-1]), len(keys)
        found = re.match(r"\[(\d+)\]", path[len(keys[-1]) :])
        if found is None or not isinstance(listed, list) or len(listed) <= int(found[1]):
            return False
        place = int(found[1])
        del listed[place]
        self.taken.setdefault(".".join(keys), []).append(place)
        origins = self._found.origins
        inside = [each for each in origins if each[:depth] == keys and len(each) > depth]
        moved = [(each[depth], each[depth + 1 :], origins.pop(each)) for each in inside]
        for at, rest, origin in moved:  # those after it are still named by where they are written
            if isinstance(at, int) and at != place:
                origins[(*keys, at - (at > place), *rest)] = origin
        return True

    def _take_out_of_arm(self, section: str, name: str, inside: str) -> None:
        """An arm is nothing without a change that it makes; the rest of it can be planned without."""
        arms = _mapping(self._data, section)
        arm = arms.get(name)
        if isinstance(arm, dict) and self._without_item(arm, inside, section, name, "drop"):
            return
        key = _keys(inside)[0]
        if not isinstance(arm, dict) or not key or key in CHANGING or not CHANGING & arm.keys():
            arms.pop(name, None)
        elif key == "why":
            arm["why"] = PLACEHOLDERS["question"]
        else:
            arm.pop(inside if inside in arm else key, None)

    def _take_out_components(self, section: str, inner: str) -> None:
        """Without one of them, or how they are combined, the others are looked at as arms without each."""
        combined, components = self._data.get(combine.COMBINE), _mapping(self._data, combine.COMPONENTS)
        if section == combine.COMPONENTS:
            name, _, inside = inner.partition(".")
            self._take_out_of_arm(section, name, inside)
            if name in components:
                return
        elif isinstance(combined, dict) and inner and _keys(inner)[0] not in {"of", "as"}:
            combined.pop(inner, None)
            return
        way = combined.get("as") if isinstance(combined, dict) else None
        names = [name for name in components if name in combine.combined(self._data)]
        if way in {"leave-one-out", "all"} and names:
            self._data[combine.COMBINE] = {"of": names, "as": "leave-one-out"}
        else:
            self._data.pop(combine.COMBINE, None)
            self._data.pop(combine.COMPONENTS, None)

    def _take_out_of_confirm(self, inner: str) -> None:
        """The rest can do without any part of it where seeds stand in."""
        confirm = self._data.get("confirm")
        if not isinstance(confirm, dict) or not inner:
            self._confirm_something()
        elif (key := _keys(inner)[0]) == "seeds":
            confirm["seeds"] = SEEDS
            self.assumed.append("confirm.seeds")
        elif not self._without_item(confirm, inner, "confirm", key):
            confirm.pop(inner if inner in confirm else key, None)

    def _take_out_of_search(self, inner: str) -> None:
        """Take out what is at `inner` of the search, or all of it where the rest cannot do without."""
        search, key = self._data.get("search"), _keys(inner)[0]
        if not isinstance(search, dict) or not inner:
            self._data.pop("search", None)
        elif key == "also":
            field = _key_of(search.get("also"), inner.removeprefix("also."))
            if field is None:
                self._data.pop("search")
            else:
                self._forget(field)
        elif key == "trials_per_arm":
            search[key] = TRIALS
            self.assumed.append(f"search.{key}")
        elif key == "objectives":
            self._take_out_of_objectives(search, inner)
        elif key == "spaces":
            if not self._without_item(search, inner, "search", key):
                search.pop(key, None)
            for naming in ("constraints", "first"):  # what it would have varied is not known
                search.pop(naming, None)
        elif not self._without_item(search, inner, "search", key):
            search.pop(key if key in known(Search) else inner, None)

    def _take_out_of_objectives(self, search: dict[str, Any], inner: str) -> None:
        """An objective that names a metric is looked at, whatever its goal."""
        listed, keys = search.get("objectives"), _keys(inner)
        given = listed[int(keys[1])] if isinstance(listed, list) and len(keys) == 3 else None
        if isinstance(given, dict) and keys[2] == "goal" and "metric" in given:
            given["goal"] = "max"
            self.assumed.append(f"search.{inner}")
        elif isinstance(given, dict) and keys[2] not in {"goal", "metric"}:
            given.pop(keys[2], None)
        else:
            search["objectives"] = copy.deepcopy(OBJECTIVES)
            self.assumed.append("search.objectives")

    def _forget(self, path: str) -> None:
        """Take out the range of `path`, and what says something of what varies at `path`."""
        if path == "answer.metric":
            _mapping(self._data, "confirm").pop("stop", None)
        search = _mapping(self._data, "search")
        also = _mapping(search, "also")
        also.pop(path, None)
        # How many combinations there are is known no more.
        self.assumed.append("search.trials_per_arm")
        for arm in _mapping(self._data, "arms").values():
            if isinstance(arm, dict) and isinstance(arm.get("drop"), list):
                arm["drop"] = [each for each in arm["drop"] if each != path]
        if isinstance(search.get("constraints"), list):
            search["constraints"] = [each for each in search["constraints"] if not _compares(each, path)]
        for point in search["first"] if isinstance(search.get("first"), list) else ():
            if isinstance(point, dict):
                point.pop(path, None)
        for other, given in list(also.items()):
            if isinstance(given, dict) and path in _mapping(given, "when"):
                self._forget(other)


def _compares(constraint: Any, path: str) -> bool:
    """Whether `constraint`, as written, is about the field at `path`."""
    try:
        fields = parsed(constraint).fields.values() if isinstance(constraint, str) else ()
    except BadFormula:
        return False
    return any(overlap(field, path) for field in fields)
