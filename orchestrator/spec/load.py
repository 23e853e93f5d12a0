"""From a YAML file, a profile and overrides to a `Spec`, or to every fault at once."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orchestrator.errors import Fault, SpecError
from orchestrator.files.redact import redact_setting, storable
from orchestrator.spec import checks, combine, document, field_paths, readings, scalars, sizes
from orchestrator.spec.document import Document, Keys
from orchestrator.spec.kinds import FAULTS, OWN
from orchestrator.spec.overrides import BadOverride, apply, parse, profile_overrides, said
from orchestrator.spec.retired import RETIRED
from orchestrator.spec.types import CHANGED_ARM, CONTROL_ARM, Spec, names_trainable, spec_class
from search_spaces.paths import ROOTS
from search_spaces.wording import hint, shown


@dataclass(frozen=True, slots=True)
class SpecFile:
    """A spec and where each of its values was written, so that later faults can say where."""

    spec: Spec
    document: Document

    def fault(self, message: str, *keys: str | int) -> Fault:
        """A fault at `keys`, e.g. ("arms", "minus-gate", "set", "model.gate")."""
        return self.document.fault(keys, message)


def load_spec(path: Path, overrides: Sequence[str] = (), profile: str | None = None) -> Spec:
    """The spec at `path` with `profile` and then `overrides` (`key=value`) applied. Raises `SpecError`."""
    return read_spec(path, overrides, profile).spec


def read_spec(path: Path, overrides: Sequence[str] = (), profile: str | None = None) -> SpecFile:
    """The same as `load_spec`, with the lines of every value. Raises `SpecError` with all faults."""
    written = document.read_file(path)
    if not isinstance(written.data, dict):
        raise SpecError(written.faults or [_no_spec(written)])
    found = _changed(written, overrides, profile)
    # Alone and first: every later fault may quote a part of what it is about.
    if secret := unfit(written) or unfit(found):
        raise SpecError(in_order(secret))
    _, known_faults = validate(copy.deepcopy(written))
    spec, faults = validate(found)
    faults += [found.fault(keys, message) for keys, message in combine.unused(found, written)]
    faults += _profile_faults(written, profile, [*known_faults, *faults])
    if faults or spec is None:
        raise SpecError(in_order(faults))
    return SpecFile(spec.model_copy(update={"profiles": {}}), found)


def _changed(written: Document, overrides: Sequence[str], profile: str | None) -> Document:
    found = copy.deepcopy(written)
    if profile is not None:
        _apply_profile(found, profile)
    _apply_overrides(found, overrides)
    readings.leave_out(found, written)
    return found


def profile_names(path: Path) -> tuple[str, ...]:
    """The profiles that the spec at `path` offers, in its order."""
    data = document.read_file(path).data
    profiles = data.get("profiles") if isinstance(data, dict) else None
    return tuple(profiles) if isinstance(profiles, dict) else ()


def validate(found: Document) -> tuple[Spec | None, list[Fault]]:
    """The spec that `found` describes, None if it cannot be made, and all faults of `found`."""
    spec = None
    faults = sizes.check(found)
    faults += [found.fault(keys, message) for keys, message in combine.expand(found)]
    faults += checks.check(found)
    try:
        own = names_trainable(found.data)
        spec = spec_class(found.data).model_validate(found.data, context={OWN: own})
    except ValidationError as error:
        faults = [*_faults_of(error, found), *faults]
    # What could not be read stands as null, which is rarely right: it is no second fault.
    unreadable = {fault.path for fault in found.faults if fault.path}
    return spec, [*found.faults, *(fault for fault in faults if fault.path not in unreadable)]


def _no_spec(found: Document) -> Fault:
    given = "an empty file" if found.data is None else shown(found.data)
    return found.fault((), f"must be a mapping with name, question, baseline, ..., got {given}")


def _apply_profile(found: Document, name: str) -> None:
    """Apply a profile; unless it sets a name, it adds its own to the sweep's, so that both can be run."""
    try:
        chosen = profile_overrides(found, name)
    except BadOverride as error:
        found.faults.append(found.fault(("profiles",), str(error)))
    else:
        apply(found, chosen)
        own = found.data.get("name")
        if isinstance(own, str) and "name" not in {each.key for each in chosen}:
            found.data["name"] = f"{own}-{name}"


def _apply_overrides(found: Document, texts: Sequence[str]) -> None:
    for text in texts:
        try:
            apply(found, [parse(text)])
        except BadOverride as error:
            found.faults.append(Fault(str(error), file=said(text), oversized=error.oversized))


def _profile_faults(written: Document, chosen: str | None, known: Sequence[Fault]) -> list[Fault]:
    """What the profiles that were not chosen would do wrong, beyond the faults that are `known`."""
    profiles = written.data.get("profiles")
    messages: list[Fault] = []
    if any(fault.oversized for fault in known):  # reported before what takes longer
        return []
    for name in profiles if isinstance(profiles, dict) else ():
        if name != chosen:
            found = _changed(written, (), name)
            new = [fault for fault in validate(found)[1] if fault not in known]
            messages += [
                replace(fault, message=f"{fault.message} (with the profile {name!r})") for fault in new
            ]
    return messages


def in_order(faults: Sequence[Fault]) -> list[Fault]:
    """Each fault once, from the top of the file to its end, what has no line last."""
    return sorted(dict.fromkeys(faults), key=lambda fault: (fault.line is None, fault.line or 0))


def _faults_of(error: ValidationError, found: Document) -> list[Fault]:
    """Every error as a fault, in our words."""
    faults: list[Fault] = []
    for one in error.errors(include_url=False):
        keys = tuple(key for key in one["loc"] if key not in ("[key]", CHANGED_ARM, CONTROL_ARM))
        given = one["input"]
        if one["type"] == FAULTS:
            faults += [found.fault((*keys, *inner), message) for inner, message in one["ctx"]["faults"]]
        elif one["type"] != "too_short" or not given:  # else its items are wrong, reported one by one
            message = _sentence(one["type"], one["msg"], given, keys, spec_class(found.data))
            faults.append(found.fault(keys, message, oversized=sizes.is_absurd(given)))
    return faults


def _sentence(kind: str, message: str, given: Any, keys: Keys, spec: type[Spec]) -> str:
    if kind == "extra_forbidden":
        if (path := ".".join(map(str, keys))) in RETIRED:
            return RETIRED[path]
        if len(keys) == 1 and keys[0] in ROOTS:
            return f"is not a known key here. Write it into baseline, as baseline.{keys[0]}"
        return (
            f"is not a known key. {hint(str(keys[-1]), field_paths.known(field_paths.at(keys[:-1], spec)))}"
        )
    wanted = {
        "model_type": "be a mapping",
        "dict_type": "be a mapping",
        "tuple_type": "be a list",
        "too_short": "not be empty",
    }
    if kind in wanted:
        return f"must {wanted[kind]}, got {shown(given)}"
    return {"missing": "is required", "refusal": message}.get(kind, f"{message}, got {shown(given)}")


def to_yaml(spec: Spec) -> str:
    """The YAML of a sweep's folder, profile and overrides applied: what `load_spec` reads back as `spec`."""
    return scalars.dump(spec.content())


def unfit(document: Document) -> list[Fault]:
    """A fault for each text, keys included, that holds a password or cannot be stored."""
    found = []
    for keys, text, field in _texts(document.data, ()):
        if (shown_as := redact_setting(field, text)) != text:
            message = (
                "must hold no password or token, for a spec is stored and shown as it is, got "
                f"{shown_as!r}; leave it out, or give it in the environment of what reads it"
            )
        elif storable(text) != text:
            message = f"must be text that can be stored, got {storable(text)!r}; leave that character out"
        else:
            continue
        found.append(document.fault(keys, message))
    return found


def _texts(value: Any, keys: Keys, field: str = "") -> Iterator[tuple[Keys, str, str]]:
    """Every text, where it stands and of what field it is a value; keys are of none."""
    match value:
        case str():
            yield keys, value, field
        case dict():
            for key, each in value.items():
                yield keys, key, ""
                yield from _texts(each, (*keys, key), str(key))
        case list():
            for place, each in enumerate(value):
                yield from _texts(each, (*keys, place), field)
