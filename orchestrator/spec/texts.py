"""Texts that a spec must not hold: it is stored in many places and shown to everybody who sees the sweep."""

from collections.abc import Iterator
from typing import Any

from orchestrator.errors import Fault
from orchestrator.redact import redact
from orchestrator.spec.document import Document, Keys
from orchestrator.storable import storable


def unfit(document: Document) -> list[Fault]:
    """A fault for each text, keys included, that holds a password or cannot be stored."""
    found = []
    for keys, text in _texts(document.data, ()):
        if redact(text) != text:
            message = (
                "must hold no password or token, for a spec is stored and shown as it is, got "
                f"{redact(text)!r}; leave it out, or give it in the environment of what reads it"
            )
        elif storable(text) != text:
            message = f"must be text that can be stored, got {storable(text)!r}; leave that character out"
        else:
            continue
        found.append(document.fault(keys, message))
    return found


def _texts(value: Any, keys: Keys) -> Iterator[tuple[Keys, str]]:
    match value:
        case str():
            yield keys, value
        case dict():
            for key, each in value.items():
                yield keys, key
                yield from _texts(each, (*keys, key))
        case list():
            for place, each in enumerate(value):
                yield from _texts(each, (*keys, place))
