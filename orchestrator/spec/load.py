"""From a YAML file, a profile and overrides to a `Spec`, or to every fault at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orchestrator.errors import Fault, SpecError
from orchestrator.spec import document, places
from orchestrator.spec.document import Document, Keys
from orchestrator.spec.kinds import FAULTS
from orchestrator.spec.types import Spec
from search_spaces.nearest import hint
from search_spaces.parse import shown


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
    found = document.read_file(path)
    spec, faults = validate(found)
    if faults or spec is None:
        raise SpecError(faults)
    return SpecFile(spec, found)


def validate(found: Document) -> tuple[Spec | None, list[Fault]]:
    """The spec that `found` describes, if it has no faults, and all its faults."""
    try:
        return Spec.model_validate(found.data), found.faults
    except ValidationError as error:
        unreadable = {fault.path for fault in found.faults}
        new = [
            found.fault(keys, message)
            for keys, message in _told(error)
            if document.dotted(keys) not in unreadable
        ]
        return None, [*found.faults, *new]


def _told(error: ValidationError) -> list[tuple[Keys, str]]:
    """Every error with its keys, in our words."""
    told: list[tuple[Keys, str]] = []
    for one in error.errors(include_url=False):
        keys = tuple(key for key in one["loc"] if key != "[key]")
        if one["type"] == FAULTS:
            told += [((*keys, *inner), message) for inner, message in one["ctx"]["faults"]]
        else:
            told.append((keys, _sentence(one["type"], one["msg"], one["input"], keys)))
    return told


def _sentence(kind: str, message: str, given: Any, keys: Keys) -> str:
    if kind == "extra_forbidden":
        return f"is not a known key. {hint(str(keys[-1]), places.known(places.at(keys[:-1])))}"
    wanted = {
        "model_type": "be a mapping",
        "mapping_type": "be a mapping",
        "tuple_type": "be a list",
        "too_short": "not be empty",
    }
    if kind in wanted:
        return f"must {wanted[kind]}, got {shown(given)}"
    return {"missing": "is required", "refusal": message}.get(kind, f"{message}, got {shown(given)}")
