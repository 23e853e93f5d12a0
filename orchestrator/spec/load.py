"""Load a `Spec` from a YAML file, a profile and overrides, or report all faults together."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from orchestrator.errors import Fault, FaultCode, SpecError
from orchestrator.files.redact import escape_unstorable, is_named_secret, redact_setting
from orchestrator.spec import checks, combine, document, field_paths, published_cells, scalars, sizes
from orchestrator.spec.document import Document, Keys
from orchestrator.spec.kinds import FAULTS, IS_CUSTOM_KEY
from orchestrator.spec.overrides import BadOverride, apply, displayed_name, parse, profile_overrides
from orchestrator.spec.retired import RETIRED
from orchestrator.spec.types import CHANGED_ARM, CONTROL_ARM, ControlSpec, Spec, names_trainable, spec_class
from search_spaces.paths import ROOTS
from search_spaces.wording import format_value, hint

PYDANTIC_CODES: Final = {"extra_forbidden": FaultCode.UNKNOWN_FIELD, "missing": FaultCode.MISSING_FIELD}
"""Codes of faults by the type of pydantic's error; all other types are invalid values."""


@dataclass(frozen=True, slots=True)
class SpecFile:
    """A spec with the origin of each value, so that later faults can state their lines."""

    spec: Spec
    document: Document

    def fault(self, message: str, *keys: str | int, code: FaultCode = FaultCode.INVALID_VALUE) -> Fault:
        """Return a fault at `keys`, e.g. ("arms", "minus-gate", "set", "model.gate")."""
        return self.document.fault(keys, message, code)


def load_spec(path: Path, overrides: Sequence[str] = (), profile: str | None = None) -> Spec:
    """Return the spec at `path`.

    Args:
        path: YAML file of the spec.
        overrides: Changes as `key=value`, applied after the profile.
        profile: Name of the profile to apply.

    Raises:
        SpecError: If the spec has faults; the error contains all of them.
    """
    return read_spec(path, overrides, profile).spec


def read_spec(path: Path, overrides: Sequence[str] = (), profile: str | None = None) -> SpecFile:
    """Return the spec at `path` with the lines of all values; arguments and errors as for `load_spec`."""
    written_document = document.read_file(path)
    if not isinstance(written_document.data, dict):
        raise SpecError(written_document.faults or [_no_spec(written_document)])
    changed_document = _changed(written_document, overrides, profile)
    # Secrets are reported first and alone, because the message of any other fault may quote them.
    if secret := find_secrets(written_document) or find_secrets(changed_document):
        raise SpecError(sort_faults(secret))
    _, known_faults = validate(copy.deepcopy(written_document))
    spec, faults = validate(changed_document)
    if not faults:
        unused = combine.unused_components(changed_document, written_document)
        faults += _conflicts(changed_document, unused)
    faults += _profile_faults(written_document, profile, [*known_faults, *faults])
    if faults or spec is None:
        raise SpecError(sort_faults(faults))
    return SpecFile(spec.model_copy(update={"profiles": {}}), changed_document)


def _changed(original: Document, overrides: Sequence[str], profile: str | None) -> Document:
    document_copy = copy.deepcopy(original)
    if profile is not None:
        _apply_profile(document_copy, profile)
    _apply_overrides(document_copy, overrides)
    published_cells.remove_stale_rows(document_copy, original)
    return document_copy


def profile_names(path: Path) -> tuple[str, ...]:
    """Return the names of the profiles in the spec at `path`, in the order of the file."""
    data = document.read_file(path).data
    profiles = data.get("profiles") if isinstance(data, dict) else None
    return tuple(profiles) if isinstance(profiles, dict) else ()


def validate(document: Document) -> tuple[Spec | None, list[Fault]]:
    """Return the spec that `document` describes (None if it is invalid), and all faults of `document`."""
    spec = None
    faults = [*sizes.check(document), *_conflicts(document, combine.expand(document))]
    try:
        has_custom_code = names_trainable(document.data)
        spec = spec_class(document.data).model_validate(
            document.data, context={IS_CUSTOM_KEY: has_custom_code}
        )
    except ValidationError as error:
        faults = [*_faults_of(error, document), *faults]
    else:
        faults += _conflicts(document, checks.find_conflicts(spec))
    # Values that cannot be parsed are null in the document; the resulting errors are not second faults.
    unreadable = {fault.path for fault in document.faults if fault.path}
    return spec, [*document.faults, *(fault for fault in faults if fault.path not in unreadable)]


def _conflicts(document: Document, problems: Iterable[tuple[Keys, str]]) -> list[Fault]:
    return [document.fault(keys, message, FaultCode.CONFLICTING_FIELDS) for keys, message in problems]


def _no_spec(document: Document) -> Fault:
    content_text = "an empty file" if document.data is None else format_value(document.data)
    return document.fault((), f"must be a mapping with name, question, baseline, ..., got {content_text}")


def _apply_profile(document: Document, name: str) -> None:
    """Apply a profile; unless it sets a name, append the profile's name to the name of the sweep.

    Both sweeps can then be run.
    """
    try:
        overrides_of_profile = profile_overrides(document, name)
    except BadOverride as error:
        document.faults.append(document.fault(("profiles",), str(error), error.code))
    else:
        apply(document, overrides_of_profile)
        spec_name = document.data.get("name")
        if isinstance(spec_name, str) and "name" not in {override.key for override in overrides_of_profile}:
            document.data["name"] = f"{spec_name}-{name}"


def _apply_overrides(document: Document, texts: Sequence[str]) -> None:
    for text in texts:
        try:
            apply(document, [parse(text)])
        except BadOverride as error:
            document.faults.append(Fault(str(error), file=displayed_name(text), code=error.code))


def _profile_faults(original: Document, profile: str | None, known_faults: Sequence[Fault]) -> list[Fault]:
    """Return the faults of profiles other than the chosen one, except faults in `known_faults`."""
    if any(fault.code is FaultCode.OVERSIZED_VALUE for fault in known_faults):
        return []  # oversized values slow down further checks
    profiles = original.data.get("profiles")
    names = [name for name in profiles if name != profile] if isinstance(profiles, dict) else []
    return [
        replace(fault, message=f"{fault.message} (with the profile {name!r})")
        for name in names
        for fault in validate(_changed(original, (), name))[1]
        if fault not in known_faults
    ]


def sort_faults(faults: Sequence[Fault]) -> list[Fault]:
    """Return each fault once, ordered by line; faults without a line come last."""
    return sorted(dict.fromkeys(faults), key=lambda fault: (fault.line is None, fault.line or 0))


def _faults_of(error: ValidationError, document: Document) -> list[Fault]:
    """Convert the errors of pydantic to faults with messages of haltsweep."""
    faults: list[Fault] = []
    for details in error.errors(include_url=False):
        keys = tuple(key for key in details["loc"] if key not in ("[key]", CHANGED_ARM, CONTROL_ARM))
        kind, value = details["type"], details["input"]
        if CONTROL_ARM in details["loc"] and kind == "extra_forbidden":
            message = f"is not a key of a control. Known: {', '.join(ControlSpec.model_fields)}"
            faults.append(document.fault(keys, message, FaultCode.UNKNOWN_FIELD))
        elif kind == FAULTS:
            problems = details["ctx"]["faults"]
            faults += [document.fault((*keys, *inner), message) for inner, message in problems]
        elif kind != "too_short" or not value:  # otherwise the items are wrong and reported one by one
            message = _sentence(kind, details["msg"], value, keys, spec_class(document.data))
            oversized = (
                FaultCode.OVERSIZED_VALUE if sizes.is_impossible_size(value) else FaultCode.INVALID_VALUE
            )
            faults.append(document.fault(keys, message, PYDANTIC_CODES.get(kind, oversized)))
    return faults


def _sentence(kind: str, message: str, value: Any, keys: Keys, spec: type[Spec]) -> str:
    if kind == "extra_forbidden":
        if (path := ".".join(map(str, keys))) in RETIRED:
            return RETIRED[path]
        if len(keys) == 1 and keys[0] in ROOTS:
            return f"is not a known key here. Write it into baseline, as baseline.{keys[0]}"
        known_keys = field_paths.known_keys(field_paths.type_at(keys[:-1], spec))
        return f"is not a known key. {hint(str(keys[-1]), known_keys)}"
    requirements = {
        "model_type": "be a mapping",
        "dict_type": "be a mapping",
        "tuple_type": "be a list",
        "too_short": "not be empty",
    }
    if kind in requirements:
        return f"must {requirements[kind]}, got {format_value(value)}"
    return {"missing": "is required", "refusal": message}.get(kind, f"{message}, got {format_value(value)}")


def to_yaml(spec: Spec) -> str:
    """Return the YAML for the sweep's folder, after profile and overrides; `load_spec` reads it as `spec`."""
    return scalars.dump(spec.content())


def find_secrets(document: Document) -> list[Fault]:
    """Return a fault for each text or key that contains a password or cannot be stored."""
    secrets = []
    for keys, text, field in _texts(document.data, ()):
        if (shown_as := redact_setting(field, text)) != text:
            message = (
                "must not contain a password or token, because specs are stored and displayed, got "
                f"{shown_as!r}; remove it, and set an environment variable for the program that needs it"
            )
            secrets.append(document.fault(keys, message, FaultCode.SECRET))
        elif (storable := escape_unstorable(text)) != text:
            message = f"must be text that can be stored, got {storable!r}; leave that character out"
            secrets.append(document.fault(keys, message))
    return secrets


def _texts(value: Any, keys: Keys, field: str = "") -> Iterator[tuple[Keys, str, str]]:
    """Yield every text and key with its keys and the name of its field; keys have an empty field name."""
    match value:
        case str():
            yield keys, value, field
        case dict():
            for key, item in value.items():
                yield keys, key, ""
                yield from _texts(item, (*keys, key), field if is_named_secret(field) else str(key))
        case list():
            for place, item in enumerate(value):
                yield from _texts(item, (*keys, place), field)
