"""What a bundle holds of a sweep, read again without running code of its maker; whether its parts agree."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain as chain_of
from pathlib import Path
from typing import IO, Any, Final

import orchestrator
from orchestrator.errors import InputError, StoreError
from orchestrator.files.file_digests import digest_of, file_digest, sealed, unsealed
from orchestrator.files.json_values import parsed
from orchestrator.identity import digest
from orchestrator.ledger import chain
from orchestrator.ledger.events import Event
from orchestrator.ledger.sql.rows import from_row
from orchestrator.plan.consistency import MOST_TRIALS
from orchestrator.plan.serialise import from_json
from orchestrator.plan.types import Plan
from orchestrator.provenance import installed

FORMAT: Final = 1
LIST: Final = "bundle.json"
"""Digests of all other files, with its own in it."""
LEDGER: Final = "ledger.jsonl"
"""The sweep's uid, then one event a line: the columns of `chain.CHAINED`, and its digest."""
PLAN: Final = "plan.json"
ENVIRONMENT: Final = "environment.txt"
"""Distributions of the environment that made the bundle, as pip writes them."""
REPORT: Final = "report"
SOURCES: Final = frozenset({".py", ".css", ".jinja"})


MAX_LINE: Final = 8 * 1024**2
"""Bytes of one event."""
MAX_ARMS: Final = 1000
"""Arms of a sweep."""
MAX_CELLS: Final = 1_000_000
"""Arms times metrics, outcomes, seeds, re-evaluations and published rows: a report has values for each."""
MAX_VALUES: Final = 4_000_000
"""Values of one file of JSON, and of one event: the plan of 200,000 trials has fewer."""
SPEC: Final = "spec.yaml"
DATA: Final = "data.json"


def oversized(plan: Plan) -> str:
    """Return why the report of a plan would take too long to be made again; empty if it would not."""
    outcomes = len(plan.answer.outcomes) if plan.answer is not None else 0
    seeds = len(plan.confirm.seeds) if plan.confirm is not None else 0
    each = len(plan.metrics) + outcomes + seeds + len(plan.posthoc) + len(plan.published)
    if (cells := len(plan.arms) * each) > MAX_CELLS:
        return (
            "arms times metrics, outcomes, seeds, re-evaluations and published rows of a bundle must be at "
            f"most {MAX_CELLS:,}, got {cells:,}; hand on the sweep's folder instead"
        )
    if len(plan.arms) <= MAX_ARMS and len(plan.trials) <= MOST_TRIALS:
        return ""
    return (
        f"a bundle must have at most {MAX_ARMS:,} arms and {MOST_TRIALS:,} trials, got {len(plan.arms):,} "
        f"and {len(plan.trials):,}; hand on the sweep's folder instead"
    )


def ledger_lines(uid: str, rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Events as they are chained, a line each. Raises InputError for one that `read_events` would refuse."""
    for row in chain_of([[uid]], map(list, rows)):
        line = json.dumps(row, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        if len(line) > MAX_LINE:
            raise InputError(
                f"an event of a bundle must have at most {MAX_LINE:,} bytes, and event {row[0]} has "
                f"{len(line):,}; hand on the sweep's folder instead"
            )
        yield line


def environment() -> bytes:
    """What is installed here, one distribution a line."""
    return ("\n".join(installed()) + "\n").encode()


def code_digest() -> str:
    """Hash of all that makes a report: the sources of the orchestrator and what it takes from beside it."""
    home = Path(orchestrator.__file__).parent.parent
    folders = ("orchestrator", "search_spaces", "trainables")
    files = [file for folder in folders for file in (home / folder).rglob("*") if file.suffix in SOURCES]
    return digest(*sorted((str(file.relative_to(home)), file_digest(file)) for file in files))


def listing(sweep: str, files: Mapping[str, bytes | Path], more: Mapping[str, Any]) -> bytes:
    """The list of a bundle: which sweep, and the digest of every file, given as bytes or where it lies."""
    digests = {
        name: digest_of(content) if isinstance(content, bytes) else file_digest(content)
        for name, content in sorted(files.items())
    }
    return sealed({"format": FORMAT, "sweep": sweep, "files": digests, **more}).encode()


def read_listing(folder: Path) -> dict[str, Any]:
    """The list of an unpacked bundle. Raises StoreError."""
    try:
        return _of_this_format(unsealed(bounded((folder / LIST).read_bytes())))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"{LIST} must be as `haltsweep bundle` wrote it: {error}") from error


def _of_this_format(values: dict[str, Any]) -> dict[str, Any]:
    if values["format"] != FORMAT or not isinstance(values["files"], dict):
        raise ValueError(f"its format must be {FORMAT}, got {values['format']!r}")
    return values


def bounded(text: bytes) -> bytes:
    """Return the JSON text. Raises ValueError for more than `MAX_VALUES` values, which is counted unparsed.

    A value needs up to a hundred times the memory of its text: `[]` has two bytes there and 64 here.
    """
    values = sum(text.count(sign) for sign in (b",", b":", b"[", b"{"))
    if values > MAX_VALUES:
        raise ValueError(f"it must have at most {MAX_VALUES:,} values, got {values:,}")
    return text


def unlike(folder: Path, names: Iterable[str], digests: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Files that are not as they were written, and why."""
    there = set(names) - {LIST}
    for name in sorted(there | set(digests)):
        if name not in there:
            yield name, "it is missing"
        elif name not in digests:
            yield name, "nobody wrote it"
        elif file_digest(folder / name) != digests[name]:
            yield name, "it was changed or damaged since it was written"


def read_plan(folder: Path) -> Plan:
    """The plan. Raises StoreError for what is none, and for one whose report would need code to be run."""
    try:
        plan = from_json(bounded((folder / PLAN).read_bytes()))
    except ValueError as error:
        raise StoreError(
            f"{PLAN} is too large to be looked at: {error}; ask for the sweep's folder"
        ) from error
    if refusal := oversized(plan):
        raise StoreError(refusal)
    if not plan.metrics and plan.trainable is None:
        raise StoreError(
            "the plan must declare what its trials measure, and is from before plans did: nothing but the "
            "code of its tasks can tell, which is not run here"
        )
    return plan


def read_events(folder: Path) -> Iterator[Event]:
    """Every event, oldest first. Raises StoreError for the first that is not as it was written."""
    with (folder / LEDGER).open("rb") as stream:
        try:
            (uid,) = parsed(bounded(_line(stream)))
            previous, after = chain.first(str(uid)), 0
            while line := _line(stream):
                row = _row(line, previous, after)
                previous, after = row[-1], row[0]
                yield from_row(row)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise StoreError(f"{LEDGER} must hold events as they were written: {error}") from error


def _line(stream: IO[bytes]) -> bytes:
    """The next line; empty at the end. Raises ValueError for one that is longer than any event."""
    line = stream.readline(MAX_LINE + 1)
    if len(line) > MAX_LINE:
        raise ValueError(f"an event must have at most {MAX_LINE:,} bytes, and one has more")
    return line


def _row(line: bytes, previous: str, after: int) -> list[Any]:
    """The columns of the event that follows position `after`. Raises ValueError for what was not written."""
    row = [*parsed(bounded(line))]
    if len(row) != len(chain.CHAINED) + 1:
        raise ValueError(f"an event must have {len(chain.CHAINED) + 1} columns, got {len(row)}")
    for broken in chain.breaks(previous, after, [row]):
        raise ValueError(f"{broken.place} {broken.what}")
    return row


def disagreements(
    plan: Plan, sessions: Sequence[Mapping[str, Any]], digests: Mapping[str, Any]
) -> Iterator[str]:
    """What `plan` and the files of these `digests` say otherwise than the `opened` events `sessions`.

    The last session counts; where the sweep was extended and nothing has run since, the edition before.
    Ledgers from before sessions kept digests of both files know that of the spec's content alone.
    """
    if not sessions:
        return
    last, before = sessions[-1], f"extensions/{len(plan.extended) - 1}/"
    specs = {plan.spec_digest, *(each.spec_digest for each in plan.extended[-1:])}
    if last.get("spec_digest") not in specs:
        yield f"the spec of {PLAN} must be that of the ledger, {last['spec_digest']}, got {plan.spec_digest}"
    files = last.get("provenance", {}).get("files")
    for name, known in files.items() if isinstance(files, dict) else ():
        if known not in (digests.get(name), digests.get(before + name)):
            here = digests.get(name)
            yield f"{name} must be that by which trials ran, digest {known} in the ledger, got {here}"


def data_fault(folder: Path) -> str:
    """Why data.json holds no digests of data; empty if it does, or is not there."""
    try:
        found = parsed(bounded((folder / DATA).read_bytes()))
    except FileNotFoundError:
        return ""
    except (ValueError, RecursionError) as error:
        return f"{DATA} must be JSON as `haltsweep bundle` writes it: {error}"
    if isinstance(found, dict) and all(isinstance(each, str) for each in found.values()):
        return ""
    return f"{DATA} must hold digests of data by name, got {json.dumps(found)[:40]}"
