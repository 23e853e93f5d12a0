"""The folder of a sweep comes into being whole: built under another name, then renamed."""

import errno
import json
import shlex
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from orchestrator.errors import InputError, NotAllowed, StoreError
from orchestrator.files.abandoned import clear_folders
from orchestrator.files.disk import remedy
from orchestrator.files.file_digests import read_manifest, sealed, unsealed, write_manifest
from orchestrator.files.json_values import from_json_values, parsed, to_json_values
from orchestrator.files.known_addresses import require_known
from orchestrator.files.redact import redact_url
from orchestrator.files.regular_files import read_ordinary
from orchestrator.files.sqlite_files import absolute, beside, file_of, from_beside
from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import Holder
from orchestrator.plan.serialise import read_plan, to_json
from orchestrator.plan.types import Plan
from trainables.atomic import PRIVATE, PUBLIC, flush, write_atomically
from trainables.process_identity import process_label

DEFAULT_WORKLOAD = "trainables.training:Training"
SETUP = "launch.json"
LAUNCHER = "launcher.json"
"""The process that launches: while it lives, nobody may take the folder for abandoned."""
_BUILDING = ".launching-"
_NO_PLACE = (errno.EEXIST, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)
"""Why a folder cannot be made where it was named, today or tomorrow."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Where a sweep keeps things and what its trials run: fixed by launch, read again by resume."""

    data_dir: Path
    workload: str = DEFAULT_WORKLOAD
    """`module:name` of the trainable."""
    code: str | None = None
    """Folder from which it was launched: modules from outside may be in it."""
    storage: str | None = None
    """SQLAlchemy URL of the ledger; None for the one in the sweep's folder."""
    tracking_uri: str | None = None
    """MLflow; None to write neither MLflow nor Parquet while the sweep runs."""
    checkpoints: str | None = None
    """URI of a place for the checkpoints of this sweep alone; None for its folder."""
    driver: Literal["ray", "inline"] = "ray"
    """What runs its trials unless resume is asked for another."""
    shared: bool = field(default=False, compare=False)
    """Whether other users may enter its folder, as far as the umask allows."""
    home: str | None = field(default=None, compare=False)
    """Where its folder was made; None of one that an older haltsweep made."""

    def ledger_url(self, folder: SweepFolder) -> str:
        """URL of the ledger."""
        return self.storage or folder.ledger_url


def publish(plan: Plan, folder: SweepFolder, spec: str, provenance: Mapping[str, Any], setup: Setup) -> None:
    """Create the folder with all its files, or nothing. Raises InputError if there is something already."""
    root = folder.root.resolve()
    refuse_existing(plan, SweepFolder(root))
    building = SweepFolder(root.with_name(f".{root.name}{_BUILDING}{process_label()}-{uuid.uuid4().hex[:8]}"))
    try:
        # Ledger, logs and reports hold texts of trials. A folder that nobody else can enter hides them all.
        mode = 0o775 if setup.shared else 0o700
        _make_parent(root.parent, mode)
        clear_folders(root.parent, f".{root.name}{_BUILDING}")
        building.root.mkdir(mode=mode)
        write_atomically(building.spec, spec)
        write_atomically(building.provenance, json.dumps(provenance, indent=2, sort_keys=True) + "\n")
        write_atomically(building.root / SETUP, sealed(_setup_to_json(setup, root)), mode=_mode_of(setup))
        write_atomically(
            building.root / LAUNCHER, json.dumps(to_json_values(Holder.current()), sort_keys=True) + "\n"
        )
        write_atomically(building.plan, to_json(plan))
        write_manifest(building.root, [building.spec, building.provenance, building.plan])
        flush(building.root)
        building.root.rename(root)
        flush(root.parent)
    except OSError as error:
        # Perhaps another launch was faster: an empty folder would have been replaced.
        refuse_existing(plan, SweepFolder(root))
        raise StoreError(
            f"the sweep's folder {root} could not be made: {error}; {remedy(error)}, or choose another "
            "one with --runs"
        ) from error
    finally:
        shutil.rmtree(building.root, ignore_errors=True)


def _make_parent(folder: Path, mode: int) -> None:
    """Raises InputError where what was named cannot be a folder; what a retry may mend stays an OSError."""
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in _NO_PLACE:
            raise
        raise InputError(
            f"sweeps must be kept in a folder that can be made and written, got {folder}: {error}; "
            "choose another one with --runs"
        ) from error


def launched_plan(folder: SweepFolder) -> Plan:
    """The plan as launched. Raises InputError if there is no sweep, StoreError if the file is damaged."""
    if not folder.plan.is_file():
        raise InputError(
            f"a sweep must have been launched before it is resumed, and {folder.root} holds none; "
            "see `haltsweep status`, or launch it"
        )
    return read_plan(folder)


def read_setup(folder: SweepFolder) -> Setup:
    """How the sweep was launched. Raises StoreError if the file is missing or damaged, NotAllowed if it is
    for its owner alone, InputError if its ledger is on a server that must not get this user's credentials.
    """
    try:
        content = read_ordinary(folder.root / SETUP)
        # A folder of a haltsweep that made no digests has no manifest.
        values = parsed(content) if read_manifest(folder.root) is None else unsealed(content)
        tracking = values.get("tracking_uri")
        found = tracking if tracking is None else from_beside(tracking, folder.root)
        setup = from_json_values(Setup, values | {"tracking_uri": found})
    except PermissionError as error:
        raise NotAllowed(
            f"{folder.root / SETUP} must be readable, and is for its owner alone"
            f"{_owner(folder.root / SETUP)}: "
            "it may hold passwords; run the command as that user, or ask for a `haltsweep bundle`"
        ) from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise StoreError(
            f"{folder.root / SETUP} must be as haltsweep wrote it, and cannot be read ({why}); restore the "
            "folder from a backup"
        ) from error
    require_known(setup.storage, "--storage")
    return setup


def _owner(file: Path) -> str:
    """The name of the user, in brackets; empty where it is not to be had."""
    try:
        return f" ({file.owner()})"
    except (OSError, KeyError):
        return ""


STORES = ("storage", "checkpoints", "tracking_uri")
"""Fields of a setup that say where a sweep keeps what it writes."""


def refuse_copy(folder: SweepFolder, setup: Setup, kinds: Sequence[str] = STORES) -> None:
    """Raises InputError where the folder is a copy and shares one of these stores with the original.

    By a plan that one of them extends the other cannot be read, and what one deletes the other has measured.
    Of MLflow's runs both take those of the other for their own.
    """
    home = SweepFolder(Path(setup.home)) if setup.home is not None else folder
    try:
        if home.name != folder.name or not home.plan.is_file() or home.root.samefile(folder.root):
            return
    except PermissionError:  # another user's by now: nobody knows what is there
        return
    try:
        original = read_setup(home)
    except StoreError:
        original = setup
    places = [(getattr(setup, kind), getattr(original, kind)) for kind in kinds]
    if shared := [ours for ours, theirs in places if ours is not None and ours == theirs]:
        raise InputError(
            f"what a sweep keeps must belong to one folder, and {folder.root} is a copy of {home.root}: both "
            f"have {' and '.join(map(redact_url, shared))}; use that folder, or move it away first. Of the "
            "copy the files alone can be deleted by `rm -r`: no measurement goes with them"
        )


def _mode_of(setup: Setup) -> int:
    """Who may read launch.json: others, where it names nothing but files, for all else there they may read.

    URLs may hold passwords. Its digest is in it: one that all can read would let them try passwords.
    """
    urls = filter(None, (setup.storage, setup.tracking_uri, setup.checkpoints))
    return PUBLIC if all(file_of(url) is not None and redact_url(url) == url for url in urls) else PRIVATE


def _setup_to_json(setup: Setup, root: Path) -> dict[str, Any]:
    """With places that do not depend on the working directory, nor, of an MLflow beside the sweep, on any.

    Otherwise a copy of both would write, and `remove --mlflow` delete, what is the original's.
    """
    settled = replace(setup, data_dir=setup.data_dir.resolve(), home=str(root))
    values: dict[str, Any] = to_json_values(settled)
    if setup.tracking_uri is not None:
        values["tracking_uri"] = beside(absolute(setup.tracking_uri), root)
    if setup.storage is not None:
        values["storage"] = absolute(setup.storage)
    return values


def refuse_existing(plan: Plan, folder: SweepFolder) -> None:
    """Raises InputError if there is something where the sweep of `plan` would be."""
    if folder.plan.is_file():
        same = read_plan(folder).spec_digest == plan.spec_digest
        remedy = (
            f"continue it with `haltsweep resume {shlex.quote(str(folder.root))}`"
            if same
            else "it was launched from another spec: choose another name"
        )
        raise InputError(f"a sweep is launched once, and {folder.name!r} exists in {folder.root}; {remedy}")
    if folder.root.is_file() or (folder.root.is_dir() and any(folder.root.iterdir())):
        raise InputError(
            f"a sweep must get a folder of its own, and {folder.root} holds files that are no sweep; "
            "choose another name, or move them"
        )
