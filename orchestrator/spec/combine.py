"""Create arms from named components: every combination that `combine` requests, with name and reason.

The baseline has all components; the overrides under a component's `set` switch that component off. Created
arms are added to the document like written arms, so that all other code treats both equally. A spec that
already contains them is not changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations
from math import comb
from typing import Any, Final

from orchestrator.spec.document import Document, Keys
from orchestrator.spec.types import Spec
from search_spaces.paths import overlap
from search_spaces.wording import format_count, hint

COMPONENTS: Final = "components"
COMBINE: Final = "combine"
WAYS: Final = ("leave-one-out", "add-one-in", "pairs", "all")
ALL: Final = "minus-all"
MAX_ARMS: Final = 255
"""Maximum number of arms: all combinations of eight components."""
_SHORT: Final = 64
"""Maximum number of characters of a name."""
Problem = tuple[Keys, str]


def removed_sets(names: Sequence[str], way: str) -> Iterator[tuple[str, ...]]:
    """Yield the set of components that each arm removes, in the order of the arms."""
    sizes = {
        "leave-one-out": [1],
        "pairs": [2],
        "add-one-in": [len(names), len(names) - 1],
        "all": range(1, len(names) + 1),
    }
    return chain.from_iterable(combinations(names, size) for size in sizes[way] if size > 0)


def arm_name(removed: Sequence[str], names: Sequence[str], way: str) -> str:
    """Return the name of the arm that removes the components `removed`."""
    if len(removed) == len(names) > 1:
        return ALL
    if way == "add-one-in" and len(names) > 1:
        return f"only-{next(name for name in names if name not in removed)}"
    return f"minus-{'-and-'.join(removed)}"


def removed_components(spec: Spec) -> dict[str, tuple[str, ...]]:
    """Return the components that each created arm removes, by the name of the arm."""
    if spec.combine is None:
        return {}
    names, way = spec.combine.of, spec.combine.way
    return {arm_name(removed, names, way): removed for removed in removed_sets(names, way)}


def expand(document: Document) -> list[Problem]:
    """Add the requested arms to `document`; return the problems that prevent their creation."""
    data = document.data
    components = data.get(COMPONENTS) if isinstance(data, dict) else None
    if not isinstance(_section(document), Mapping):
        message = "requires the section combine, which selects the arms to create"
        return [((COMPONENTS,), message)] if components else []
    component_section = components if isinstance(components, Mapping) else {}
    listed_names = _section(document).get("of")
    unknown: list[Problem] = [
        ((COMBINE, "of", place), f"no component named {name!r}. {hint(name, component_section)}")
        for place, name in enumerate(listed_names if isinstance(listed_names, list) else ())
        if isinstance(name, str) and name not in component_section
    ]
    if unknown or (request := _requested_components(document)) is None:
        return unknown  # all other problems are reported as faults of the section
    names, way = request
    least = 2 if way in {"pairs", "all", "add-one-in"} else 1
    if len(names) < least:
        return [((COMBINE, "of"), f"must name at least {least} components for {way}, got {len(names)}")]
    if too_many(document) or not all(_is_arm(component_section[name]) for name in names):
        return []
    sets = removed_sets(names, way)
    return [entry for removed in sets for entry in _add(document, component_section, removed, names, way)]


def too_many(document: Document) -> Problem | None:
    """Return the problem if `document` requests too many arms; else None."""
    if (request := _requested_components(document)) is None:
        return None
    names, way = request
    if (arms := _count(len(names), way)) <= MAX_ARMS:
        return None
    limit = (
        f"must make at most {MAX_ARMS} arms, got {format_count(arms)} of {len(names)} components with {way}"
    )
    return (COMBINE, "of"), f"{limit}; name fewer components, or choose another way"


def _section(document: Document) -> Any:
    return document.data.get(COMBINE) if isinstance(document.data, dict) else None


def _requested_components(document: Document) -> tuple[list[str], str] | None:
    """Return the names of the components and the way to combine them; None if either is invalid."""
    section = _section(document)
    names, way = (section.get("of"), section.get("as")) if isinstance(section, Mapping) else (None, None)
    if not isinstance(names, list) or way not in WAYS or not all(isinstance(name, str) for name in names):
        return None
    return names, way


def unused_components(expanded: Document, original: Document) -> Iterator[Problem]:
    """Yield components that no combination contains, neither in `expanded` nor in `original`, the file.

    Both are read because profiles and overrides may combine fewer components than the file.
    """
    named_components = {*combined_components(expanded.data), *combined_components(original.data)}
    components = expanded.data.get(COMPONENTS) if isinstance(expanded.data, dict) else None
    for name in components if named_components and isinstance(components, Mapping) else ():
        if name not in named_components:
            message = (
                f"must be in combine.of, otherwise no arm uses it: add {name} to combine.of, or delete it"
            )
            yield (COMPONENTS, name), message


def combined_components(data: Any) -> Sequence[str]:
    """Return the names of the components under `combine` in the spec `data`."""
    section = data.get(COMBINE) if isinstance(data, dict) else None
    names = section.get("of") if isinstance(section, Mapping) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _count(num_components: int, way: str) -> int:
    """Return the number of arms that `way` creates from `num_components` components."""
    return {
        "leave-one-out": num_components,
        "add-one-in": num_components + 1,
        "pairs": comb(num_components, 2),
        "all": (1 << num_components) - 1,
    }[way]


def _is_arm(component: Any) -> bool:
    return (
        isinstance(component, Mapping)
        and isinstance(component.get("set"), Mapping)
        and bool(component["set"])
        and isinstance(component.get("drop", []), list)
    )


def _add(
    document: Document, components: Mapping[str, Any], removed: Sequence[str], names: Sequence[str], way: str
) -> list[Problem]:
    """Add the arm without the components `removed` to the document, or return the problems that arise."""
    name = arm_name(removed, names, way)
    if len(name) > _SHORT:
        message = (
            f"names of arms must have at most {_SHORT} characters, got {name}: shorten names of components"
        )
        return [((COMBINE, "of"), message)]
    if clash := _clash(components, removed):
        return [clash]
    arm: dict[str, Any] = {
        "why": _describe_removal(components, removed, names, way),
        "set": {path: value for component in removed for path, value in components[component]["set"].items()},
    }
    drop = dict.fromkeys(path for component in removed for path in components[component].get("drop", []))
    if drop:
        arm["drop"] = list(drop)
    arms = document.data.get("arms")
    if arms is None:
        arms = document.data["arms"] = {}
    if not isinstance(arms, dict):
        return []
    if name in arms:
        is_same = isinstance(arms[name], Mapping) and {"drop": [], **arms[name]} == {"drop": [], **arm}
        message = (
            f"is also created by combine, which removes {' and '.join(removed)}, with other settings; "
            "delete one of the two arms"
        )
        return [] if is_same else [(("arms", name), message)]
    arms[name] = arm
    document.origins[("arms", name)] = document.origins.get((COMBINE,), document.origin)
    for component in removed:
        for path in components[component]["set"]:
            place = (COMPONENTS, component, "set", path)
            if place in document.origins:
                document.origins[("arms", name, "set", path)] = document.origins[place]
    return []


def _clash(components: Mapping[str, Any], removed: Sequence[str]) -> Problem | None:
    """Return the problem if two components set the same field, so that both cannot be removed together."""
    for first, second in combinations(removed, 2):
        for path in components[first]["set"]:
            for rival in components[second]["set"]:
                if overlap(str(path), str(rival)):
                    conflict = f"{path}, which {first} sets" if path != rival else f"what {first} sets"
                    message = (
                        f"must not set {conflict}, because an arm removes both components: "
                        "choose other components"
                    )
                    return (COMPONENTS, second, "set", rival), message
    return None


def _describe_removal(
    components: Mapping[str, Any], removed: Sequence[str], names: Sequence[str], way: str
) -> str:
    reasons = "; ".join(f"{component}: {components[component].get('why')}" for component in removed)
    kept_names = [name for name in names if name not in removed]
    if way == "add-one-in" and len(kept_names) == 1:
        return f"{kept_names[0]} alone, without {reasons}"
    return f"without {reasons}"
