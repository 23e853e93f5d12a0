"""Report the origin of the numbers: code, versions, machines, seeds; each value once."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import combinations
from operator import itemgetter
from typing import Any

from orchestrator.plan.display.format import value_words
from orchestrator.plan.types import Plan
from orchestrator.provenance import PACKAGE_NAME
from orchestrator.tracking.inputs import data_read, split_digest_set
from orchestrator.trials import Record
from search_spaces.wording import amount

PROVENANCE_LABELS: Mapping[str, str] = {
    "commit": "commit of the launch folder",
    "dirty": "uncommitted changes in the launch folder",
    "code_commit": "commit of the code of haltsweep",
    "code_changes": "digest of uncommitted changes to the code of haltsweep",
    "code": "digest of the executed code",
    "code_parts": "digests of its parts",
    "python": "Python",
    "versions": "versions",
    "packages": "installed packages",
    "platform": "system",
    "cpu": "processor",
    "cpu_count": "cores",
    "devices": "GPUs",
    "host": "machine",
    "command": "command",
}
DATA_PREFIX = "data, "
"""Prefix of names of data; task and split follow."""
MAX_LISTED_VALUES = 3
"""Maximum number of different values displayed of one item."""
DIGEST_LETTERS = 8
"""Number of displayed characters of a digest."""
CODE_CAVEAT = "differences between arms may be caused by the code"
EQUAL_PHASES_CAVEAT = "within search and within confirmation all arms ran the same code"
DATA_CAVEAT = "differences between trials may be caused by the data"


def provenance_lines(plan: Plan, records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield name and text of all known provenance."""
    yield "digest of the spec", plan.spec_digest
    if plan.trainable:
        yield "training code", plan.trainable
    sessions = _sessions(records)
    for key, words in PROVENANCE_LABELS.items():
        values = (_displayed_value(key, session.get(key)) for session in sessions if session)
        if texts := list(filter(None, dict.fromkeys(map(_format_value, values)))):
            remainder = (
                f"; and {len(texts) - MAX_LISTED_VALUES} more" if len(texts) > MAX_LISTED_VALUES else ""
            )
            yield words, "; ".join(texts[:MAX_LISTED_VALUES]) + remainder
    yield from _data_digests(records)
    if plan.search is not None:
        yield "seed of the searches", str(plan.search.seed)
    if plan.confirm is not None:
        yield "seeds of confirm trials", ", ".join(map(str, plan.confirm.seeds))


def _displayed_value(key: str, value: Any) -> Any:
    """Return a command with the bare name of its program, packages as a digest, other values unchanged."""
    if key == "packages" and value:
        return f"{len(value)}, digest {_packages_digest(value)}"
    if key != "command" or not isinstance(value, list | tuple) or not value:
        return value
    return [str(value[0]).replace("\\", "/").rpartition("/")[2], *value[1:]]


def _format_value(value: Any) -> str:
    match value:
        case None | [] | ():
            return ""
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return " ".join(map(str, value))
        case Mapping():
            # Versions are texts, though many resemble numbers.
            texts = (entry if isinstance(entry, str) else value_words(entry) for entry in value.values())
            return ", ".join(f"{name} {text}" for name, text in zip(value, texts, strict=True))
        case _:
            return str(value)


def provenance_listings(records: Sequence[Record]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield installed packages and uncommitted changes of the code, which are too long for one line.

    Each is listed once, in the order of the trials, as a title and lines that the page folds.
    """
    for packages in _distinct_values("packages", records):
        yield f"installed packages, digest {_packages_digest(packages)}", tuple(map(str, packages))
    for text in _distinct_values("code_diff", records):
        yield "uncommitted changes to the code of haltsweep", tuple(str(text).split("\n"))


def _sessions(records: Sequence[Record]) -> list[Mapping[str, Any]]:
    """Return the provenance of each session; all trials of a session share one object."""
    return [*{id(record.provenance): record.provenance for record in records}.values()]


def _distinct_values(key: str, records: Sequence[Record]) -> list[Any]:
    """Return the first different values of `key`, without missing ones."""
    distinct_values: list[Any] = []
    for session in _sessions(records):
        if (value := session.get(key)) and value not in distinct_values:
            distinct_values.append(value)
    return distinct_values[:MAX_LISTED_VALUES]


def _packages_digest(packages: Sequence[Any]) -> str:
    """Return the digest of a file with one package per line."""
    return blake2b("\n".join(map(str, packages)).encode(), digest_size=8).hexdigest()


def _data_digests(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield digests of the splits that trials read."""
    digests_by_split: dict[str, dict[str, None]] = {}
    for digests in _distinct_values("data", records):
        for name, digest in digests.items():
            digests_by_split.setdefault(str(name), {})[str(digest)] = None
    for name, texts in sorted(digests_by_split.items(), key=itemgetter(0)):
        yield f"{DATA_PREFIX}{name}", "; ".join(texts)


def code_versions(records: Sequence[Record]) -> str:
    """Return one sentence if trials that ended ran different code; else empty."""
    counts_by_part: dict[str, Counter[str]] = {}
    digests_of_phases: dict[tuple[str, str], set[str]] = {}
    for record in (record for record in records if record.outcome is not None):
        for part, digest in (record.provenance.get("code_parts") or {}).items():
            counts_by_part.setdefault(str(part), Counter())[str(digest)] += 1
            digests_of_phases.setdefault((str(part), record.phase), set()).add(str(digest))
    versions = [_version_text(*item) for item in sorted(counts_by_part.items()) if len(item[1]) > 1]
    is_equal_in_phases = all(len(digests) == 1 for digests in digests_of_phases.values())
    caveat = EQUAL_PHASES_CAVEAT if is_equal_in_phases else CODE_CAVEAT
    return f"Trials ran {' and '.join(versions)}: {caveat}." if versions else ""


def data_versions(records: Sequence[Record]) -> str:
    """Return one sentence if trials that ended read different data under one name; else empty.

    A trial of an extended sweep may have read additional data, for example those of another task setting.
    """
    counts_by_split: dict[str, Counter[str]] = {}
    for record in (record for record in records if record.outcome is not None):
        for split, digests in data_read(record).items():
            counts_by_split.setdefault(split, Counter())[digests] += 1
    versions = [
        f"{amount(len(counts), 'version')} of {split} (digest {_digest_counts(counts)})"
        for split, counts in sorted(counts_by_split.items())
        if any(not (a <= b or b <= a) for a, b in combinations(map(split_digest_set, counts), 2))
    ]
    return f"Trials read {' and '.join(versions)}: {DATA_CAVEAT}." if versions else ""


def _digest_counts(counts: Counter[str]) -> str:
    return "; ".join(
        f"{digest[:DIGEST_LETTERS]}: {amount(count, 'trial')}" for digest, count in counts.items()
    )


def _version_text(part: str, counts: Counter[str]) -> str:
    code_name = {PACKAGE_NAME: PACKAGE_NAME}.get(part, f"the training code ({part})")
    return f"{len(counts)} versions of {code_name} (digest {_digest_counts(counts)})"
