"""Where the numbers come from: code, versions, machines, seeds; each value once."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.plan.format import value_words
from orchestrator.plan.types import Plan
from orchestrator.trials import Record

NAMED: Mapping[str, str] = {
    "commit": "commit of the folder it was launched from",
    "dirty": "whether tracked files there differed from it",
    "code_commit": "commit of the code of haltsweep",
    "code_changes": "digest of changes to it that are not committed",
    "code": "digest of the code that trials ran",
    "python": "Python",
    "versions": "versions",
    "platform": "system",
    "cpu": "processor",
    "cpu_count": "cores",
    "devices": "GPUs",
    "host": "machine",
    "command": "command",
}
LISTED = 3
"""Different values of one thing that are shown."""


def origin(plan: Plan, records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """What is known, and its words."""
    yield "digest of the spec", plan.spec_digest
    yield from (("training code", plan.trainable) for _ in [0] if plan.trainable)
    for key, words in NAMED.items():
        values = (_shown(key, each.provenance.get(key)) for each in records if each.provenance)
        found = list(dict.fromkeys(map(_words, values)))
        known = [each for each in found if each]
        if known:
            more = f"; and {len(known) - LISTED} more" if len(known) > LISTED else ""
            yield words, "; ".join(known[:LISTED]) + more
    if plan.search is not None:
        yield "seed of the searches", str(plan.search.seed)
    if plan.confirm is not None:
        yield "seeds of confirm trials", ", ".join(map(str, plan.confirm.seeds))


def _shown(key: str, value: Any) -> Any:
    """Of a command the program by its name: where it lies says nothing to others."""
    if key != "command" or not isinstance(value, list | tuple) or not value:
        return value
    return [str(value[0]).replace("\\", "/").rpartition("/")[2], *value[1:]]


def _words(value: Any) -> str:
    match value:
        case None | [] | ():
            return ""
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return " ".join(map(str, value))
        case Mapping():
            return ", ".join(f"{name} {value_words(each)}" for name, each in value.items())
        case _:
            return str(value)
