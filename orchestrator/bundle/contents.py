"""Define the contents of a bundle, read them without running its code, and check that they are consistent."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain as chain_of
from pathlib import Path
from typing import IO, Any, Final

import orchestrator
from orchestrator.errors import InputError, StoreError
from orchestrator.files.file_digests import digest_of, file_digest, seal_json, unseal_json
from orchestrator.files.json_values import parse_json
from orchestrator.identity import digest
from orchestrator.ledger import chain
from orchestrator.ledger.events import Event
from orchestrator.ledger.sql.rows import from_row
from orchestrator.plan.consistency import MAX_PLANNED_TRIALS
from orchestrator.plan.serialise import from_json
from orchestrator.plan.types import Plan
from orchestrator.provenance import installed_distributions

FORMAT: Final = 1
LIST_FILE: Final = "bundle.json"
"""Name of the file with the digests of all other files and of itself."""
LEDGER_FILE: Final = "ledger.jsonl"
"""Name of the ledger file: the uid of the sweep, then one event per line.

An event has the columns of `chain.CHAINED_COLUMNS` and its digest.
"""
PLAN_FILE: Final = "plan.json"
ENVIRONMENT_FILE: Final = "environment.txt"
"""Name of the list of distributions in the environment that created the bundle, as pip writes it."""
REPORT_FOLDER: Final = "report"
SOURCE_SUFFIXES: Final = frozenset({".py", ".css", ".jinja"})


MAX_EVENT_BYTES: Final = 8 * 1024**2
"""Maximum bytes of one event."""
MAX_ARMS: Final = 1000
"""Maximum number of arms of a sweep."""
MAX_CELLS: Final = 1_000_000
"""Maximum of arms times (metrics + outcomes + seeds + re-evaluations + published rows) of a report."""
MAX_VALUES: Final = 4_000_000
"""Maximum number of values in one JSON file or event; a plan of 200,000 trials has fewer."""
DATA_FILE: Final = "data.json"


def report_size_problem(plan: Plan) -> str:
    """Return why creating the report of `plan` would take too long; empty if it would not."""
    outcomes = len(plan.answer.outcomes) if plan.answer is not None else 0
    seeds = len(plan.confirm.seeds) if plan.confirm is not None else 0
    cells_per_arm = len(plan.metrics) + outcomes + seeds + len(plan.posthoc) + len(plan.published)
    if (cells := len(plan.arms) * cells_per_arm) > MAX_CELLS:
        return (
            "arms times metrics, outcomes, seeds, re-evaluations and published rows of a bundle must be at "
            f"most {MAX_CELLS:,}, got {cells:,}; share the sweep's folder instead"
        )
    if len(plan.arms) <= MAX_ARMS and len(plan.trials) <= MAX_PLANNED_TRIALS:
        return ""
    return (
        f"a bundle must have at most {MAX_ARMS:,} arms and {MAX_PLANNED_TRIALS:,} trials, got "
        f"{len(plan.arms):,} and {len(plan.trials):,}; share the sweep's folder instead"
    )


def ledger_lines(uid: str, event_rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Yield events with their digests, one per line. Raise InputError if `read_events` would refuse one."""
    for row in chain_of([[uid]], map(list, event_rows)):
        line = json.dumps(row, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        if len(line) > MAX_EVENT_BYTES:
            raise InputError(
                f"an event of a bundle must have at most {MAX_EVENT_BYTES:,} bytes, and event {row[0]} has "
                f"{len(line):,}; share the sweep's folder instead"
            )
        yield line


def environment_text() -> bytes:
    """Return the installed distributions, one per line."""
    return ("\n".join(installed_distributions()) + "\n").encode()


def code_digest() -> str:
    """Return a digest of all code that creates a report: orchestrator, search_spaces and trainables."""
    package_root = Path(orchestrator.__file__).parent.parent
    folders = ("orchestrator", "search_spaces", "trainables")
    files = [
        file
        for folder in folders
        for file in (package_root / folder).rglob("*")
        if file.suffix in SOURCE_SUFFIXES
    ]
    return digest(*sorted((str(file.relative_to(package_root)), file_digest(file)) for file in files))


def make_listing(sweep: str, files: Mapping[str, bytes | Path], extra: Mapping[str, Any]) -> bytes:
    """Return the content of bundle.json for the files of a bundle.

    Args:
        sweep: Name of the sweep.
        files: Bytes or paths of all other files by name.
        extra: Further entries.
    """
    digests = {
        name: digest_of(content) if isinstance(content, bytes) else file_digest(content)
        for name, content in sorted(files.items())
    }
    return seal_json({"format": FORMAT, "sweep": sweep, "files": digests, **extra}).encode()


def read_listing(folder: Path) -> dict[str, Any]:
    """Return the content of bundle.json in an unpacked bundle. Raise StoreError if it is invalid."""
    try:
        return _check_format(unseal_json(require_few_values((folder / LIST_FILE).read_bytes())))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"{LIST_FILE} must be as `haltsweep bundle` wrote it: {error}") from error


def _check_format(values: dict[str, Any]) -> dict[str, Any]:
    if values["format"] != FORMAT or not isinstance(values["files"], dict):
        raise ValueError(f"its format must be {FORMAT}, got {values['format']!r}")
    return values


def require_few_values(text: bytes) -> bytes:
    """Return the JSON text unchanged. Raise ValueError if it has more than `MAX_VALUES` values.

    Values are counted before parsing, because a parsed value needs up to a hundred times the memory of its
    text: `[]` has two bytes as text and 64 in memory.
    """
    values = sum(text.count(sign) for sign in (b",", b":", b"[", b"{"))
    if values > MAX_VALUES:
        raise ValueError(f"it must have at most {MAX_VALUES:,} values, got {values:,}")
    return text


def find_differing_files(
    folder: Path, names: Iterable[str], digests: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the names of files that are missing, added or changed, with the fault of each."""
    present_names = set(names) - {LIST_FILE}
    for name in sorted(present_names | set(digests)):
        if name not in present_names:
            yield name, "the file is missing"
        elif name not in digests:
            yield name, "the file is not part of the bundle"
        elif file_digest(folder / name) != digests[name]:
            yield name, "the file was changed or damaged after haltsweep wrote it"


def read_plan(folder: Path) -> Plan:
    """Return the plan.

    Raises StoreError if the plan is invalid or too large, or if its report would need to run code.
    """
    try:
        plan = from_json(require_few_values((folder / PLAN_FILE).read_bytes()))
    except ValueError as error:
        raise StoreError(
            f"{PLAN_FILE} is too large to be read: {error}; ask for the sweep's folder"
        ) from error
    if refusal := report_size_problem(plan):
        raise StoreError(refusal)
    if not plan.metrics and plan.trainable is None:
        raise StoreError(
            "the plan must declare the metrics of its trials, but an older version wrote it without them; "
            "this command does not run the code of tasks to determine them"
        )
    return plan


def read_events(folder: Path) -> Iterator[Event]:
    """Yield all events, oldest first. Raise StoreError at the first event that was changed after writing."""
    with (folder / LEDGER_FILE).open("rb") as stream:
        try:
            (uid,) = parse_json(require_few_values(_read_line(stream)))
            previous_digest, after_seq = chain.first_digest(str(uid)), 0
            while line := _read_line(stream):
                row = _parse_event_row(line, previous_digest, after_seq)
                previous_digest, after_seq = row[-1], row[0]
                yield from_row(row)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise StoreError(f"{LEDGER_FILE} must hold events as they were written: {error}") from error


def _read_line(stream: IO[bytes]) -> bytes:
    """Return the next line; empty at the end. Raise ValueError if it exceeds the maximum length of events."""
    line = stream.readline(MAX_EVENT_BYTES + 1)
    if len(line) > MAX_EVENT_BYTES:
        raise ValueError(f"an event must have at most {MAX_EVENT_BYTES:,} bytes, and one has more")
    return line


def _parse_event_row(line: bytes, previous_digest: str, after_seq: int) -> list[Any]:
    """Return the columns of the event after position `after_seq`. Raise ValueError if its digest is wrong."""
    row = [*parse_json(require_few_values(line))]
    if len(row) != len(chain.CHAINED_COLUMNS) + 1:
        raise ValueError(f"an event must have {len(chain.CHAINED_COLUMNS) + 1} columns, got {len(row)}")
    for chain_break in chain.find_breaks(previous_digest, after_seq, [row]):
        raise ValueError(f"{chain_break.place} {chain_break.what}")
    return row


def find_disagreements(
    plan: Plan, sessions: Sequence[Mapping[str, Any]], digests: Mapping[str, Any]
) -> Iterator[str]:
    """Yield contradictions between the ledger and the plan and files of a bundle.

    The last session counts. If the sweep was extended and no session has run since, the previous edition may
    match too. Older ledgers have only the digest of the spec's content, and no digests of files.

    Args:
        plan: Plan of the bundle.
        sessions: `opened` events of the ledger, oldest first.
        digests: Digests of the files of the bundle by name.
    """
    if not sessions:
        return
    last, prefix = sessions[-1], f"extensions/{len(plan.extended) - 1}/"
    specs = {plan.spec_digest, *(extension.spec_digest for extension in plan.extended[-1:])}
    if last.get("spec_digest") not in specs:
        yield f"{PLAN_FILE} must have the spec of the ledger, {last['spec_digest']}, got {plan.spec_digest}"
    files = last.get("provenance", {}).get("files")
    for name, recorded_digest in files.items() if isinstance(files, dict) else ():
        if recorded_digest not in (digests.get(name), digests.get(prefix + name)):
            digest = digests.get(name)
            yield (
                f"{name} must be the file that the trials ran with, digest {recorded_digest} in the ledger, "
                f"got {digest}"
            )


def find_data_fault(folder: Path) -> str:
    """Return the fault of data.json if it has no digests of data; empty if it has some or is missing."""
    try:
        digests = parse_json(require_few_values((folder / DATA_FILE).read_bytes()))
    except FileNotFoundError:
        return ""
    except (ValueError, RecursionError) as error:
        return f"{DATA_FILE} must be JSON as `haltsweep bundle` writes it: {error}"
    if isinstance(digests, dict) and all(isinstance(digest, str) for digest in digests.values()):
        return ""
    return f"{DATA_FILE} must hold digests of data by name, got {json.dumps(digests)[:40]}"
