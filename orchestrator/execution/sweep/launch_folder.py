"""Create the folder of a sweep atomically, by building it under another name and renaming it."""

import errno
import json
import shlex
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from orchestrator.errors import InputError, StoreAccessDenied, StoreError
from orchestrator.files.abandoned_folders import clear_folders
from orchestrator.files.disk_errors import disk_remedy
from orchestrator.files.file_digests import read_manifest, seal_json, unseal_json, write_manifest
from orchestrator.files.json_values import from_json_values, parse_json, to_json_values
from orchestrator.files.known_addresses import require_known
from orchestrator.files.redact import redact_url
from orchestrator.files.regular_files import read_regular
from orchestrator.files.sqlite_files import from_relative_url, sqlite_file, to_absolute_url, to_relative_url
from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import Holder
from orchestrator.plan.serialise import read_plan, to_json
from orchestrator.plan.types import Plan
from trainables.atomic import PRIVATE, PUBLIC, flush, write_atomically
from trainables.process_identity import process_label

DEFAULT_WORKLOAD = "trainables.training:Training"
SETUP_FILE = "launch.json"
LAUNCHER_FILE = "launcher.json"
"""File with the launching process; while that process lives, the folder is not treated as abandoned."""
_BUILDING_INFIX = ".launching-"
_PATH_ERRORS = (errno.EEXIST, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)
"""Error numbers for a path at which a folder cannot be created, even in a retry."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Locations of a sweep's data and stores, and its trainable; fixed at launch and read by resume."""

    data_dir: Path
    workload: str = DEFAULT_WORKLOAD
    """Trainable as `module:name`."""
    code: str | None = None
    """Folder from which the sweep was launched, which may contain custom modules."""
    storage: str | None = None
    """SQLAlchemy URL of the ledger; None for the ledger in the sweep's folder."""
    tracking_uri: str | None = None
    """URI of MLflow; None to write neither MLflow nor Parquet while the sweep runs."""
    checkpoints: str | None = None
    """URI of a folder for the checkpoints of this sweep only; None for the sweep's folder."""
    driver: Literal["ray", "inline"] = "ray"
    """Driver of the trials, unless a resume selects another driver."""
    shared: bool = field(default=False, compare=False)
    """Whether other users may enter the sweep's folder, as far as the umask allows."""
    home: str | None = field(default=None, compare=False)
    """Path at which the folder was created; None for a folder of an older haltsweep version."""

    def ledger_url(self, folder: SweepFolder) -> str:
        """Return the URL of the ledger."""
        return self.storage or folder.ledger_url


def create_sweep_folder(
    plan: Plan, folder: SweepFolder, spec: str, provenance: Mapping[str, Any], setup: Setup
) -> None:
    """Create the folder with all its files, or create nothing.

    Args:
        plan: The plan of the sweep.
        folder: Folder of the sweep.
        spec: Text to store as spec.yaml.
        provenance: Provenance of the launch.
        setup: Locations of data and stores, and the trainable.

    Raises:
        InputError: The folder already contains files, or cannot be created at that path.
        StoreError: The folder cannot be written.
    """
    root = folder.root.resolve()
    refuse_existing(plan, SweepFolder(root))
    building = SweepFolder(
        root.with_name(f".{root.name}{_BUILDING_INFIX}{process_label()}-{uuid.uuid4().hex[:8]}")
    )
    try:
        # Ledger, logs and reports contain texts of trials. A folder that other users cannot enter protects
        # them all.
        mode = 0o775 if setup.shared else 0o700
        _make_parent(root.parent, mode)
        clear_folders(root.parent, f".{root.name}{_BUILDING_INFIX}")
        building.root.mkdir(mode=mode)
        write_atomically(building.spec, spec)
        write_atomically(building.provenance, json.dumps(provenance, indent=2, sort_keys=True) + "\n")
        write_atomically(
            building.root / SETUP_FILE, seal_json(_setup_to_json(setup, root)), mode=_setup_file_mode(setup)
        )
        launcher = json.dumps(to_json_values(Holder.current()), sort_keys=True)
        write_atomically(building.root / LAUNCHER_FILE, f"{launcher}\n")
        write_atomically(building.plan, to_json(plan))
        write_manifest(building.root, [building.spec, building.provenance, building.plan])
        flush(building.root)
        building.root.rename(root)
        flush(root.parent)
    except OSError as error:
        # Another launch may have created the folder first; an empty folder would have been replaced.
        refuse_existing(plan, SweepFolder(root))
        raise StoreError(
            f"the sweep's folder {root} could not be created: {error}; {disk_remedy(error)}, or choose "
            "another one with --runs"
        ) from error
    finally:
        shutil.rmtree(building.root, ignore_errors=True)


def _make_parent(folder: Path, mode: int) -> None:
    """Create a folder. Raise `InputError` for an unusable path, and `OSError` if a retry may succeed."""
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in _PATH_ERRORS:
            raise
        raise InputError(
            f"sweeps need a folder that can be created and written, got {folder}: {error}; "
            "choose another one with --runs"
        ) from error


def read_launched_plan(folder: SweepFolder) -> Plan:
    """Return the plan as launched.

    Raises:
        InputError: The folder contains no sweep.
        StoreError: The file is damaged.
    """
    if not folder.plan.is_file():
        raise InputError(
            f"{folder.root} contains no launched sweep to resume; see `haltsweep status`, or launch it"
        )
    return read_plan(folder)


def read_setup(folder: SweepFolder) -> Setup:
    """Return the setup with which the sweep was launched.

    Raises:
        StoreError: The file is missing or damaged.
        StoreAccessDenied: Only the owner may read the file.
        InputError: The ledger is on a server that must not receive this user's credentials.
    """
    try:
        content = read_regular(folder.root / SETUP_FILE)
        # A folder without a manifest was created by a haltsweep version without digests.
        values = parse_json(content) if read_manifest(folder.root) is None else unseal_json(content)
        tracking = values.get("tracking_uri")
        tracking_uri = tracking if tracking is None else from_relative_url(tracking, folder.root)
        setup = from_json_values(Setup, values | {"tracking_uri": tracking_uri})
    except PermissionError as error:
        raise StoreAccessDenied(
            f"{folder.root / SETUP_FILE} is readable only for its "
            f"owner{_owner_text(folder.root / SETUP_FILE)}: it may hold passwords; run the command as that "
            "user, or ask for a `haltsweep bundle`"
        ) from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise StoreError(
            f"{folder.root / SETUP_FILE} must be as haltsweep wrote it, but cannot be read ({reason}); "
            "restore the folder from a backup"
        ) from error
    require_known(setup.storage, "--storage")
    return setup


def _owner_text(file: Path) -> str:
    """Return the name of the owner in brackets; empty if it is unknown."""
    try:
        return f" ({file.owner()})"
    except (OSError, KeyError):
        return ""


STORE_FIELDS = ("storage", "checkpoints", "tracking_uri")
"""Fields of a setup with the locations of a sweep's stores."""


def refuse_copy(folder: SweepFolder, setup: Setup, kinds: Sequence[str] = STORE_FIELDS) -> None:
    """Raise `InputError` if the folder is a copy whose original uses one of the same stores.

    If one of them extends its plan, the other cannot read the ledger. Each could delete measurements of the
    other, and both would use the same runs in MLflow.

    Args:
        folder: Folder of the sweep.
        setup: Setup of the sweep.
        kinds: Fields of the setup to compare.
    """
    home = SweepFolder(Path(setup.home)) if setup.home is not None else folder
    try:
        if home.name != folder.name or not home.plan.is_file() or home.root.samefile(folder.root):
            return
    except PermissionError:  # the original is not readable for this user
        return
    try:
        original = read_setup(home)
    except StoreError:
        original = setup
    location_pairs = [(getattr(setup, kind), getattr(original, kind)) for kind in kinds]
    if shared_locations := [
        url for url, original_url in location_pairs if url is not None and url == original_url
    ]:
        raise InputError(
            f"the stores of a sweep must belong to one folder, but {folder.root} is a copy of {home.root}: "
            f"both use {' and '.join(map(redact_url, shared_locations))}; use that folder, or move it away "
            "first. The files of the copy can be deleted with `rm -r` without losing measurements"
        )


def _setup_file_mode(setup: Setup) -> int:
    """Return the file mode of launch.json: private unless all its URLs denote files without passwords.

    URLs may contain passwords. The file includes its own digest, with which readers could test guessed
    passwords.
    """
    urls = filter(None, (setup.storage, setup.tracking_uri, setup.checkpoints))
    return PUBLIC if all(sqlite_file(url) is not None and redact_url(url) == url for url in urls) else PRIVATE


def _setup_to_json(setup: Setup, root: Path) -> dict[str, Any]:
    """Return the setup with locations that do not depend on the working directory.

    The location of an MLflow store next to the sweep is relative to the folder. Otherwise a copy of both
    would write to the original store, and `remove --mlflow` would delete runs of the original.
    """
    absolute_setup = replace(setup, data_dir=setup.data_dir.resolve(), home=str(root))
    values: dict[str, Any] = to_json_values(absolute_setup)
    if setup.tracking_uri is not None:
        values["tracking_uri"] = to_relative_url(to_absolute_url(setup.tracking_uri), root)
    if setup.storage is not None:
        values["storage"] = to_absolute_url(setup.storage)
    return values


def refuse_existing(plan: Plan, folder: SweepFolder) -> None:
    """Raise `InputError` if files exist at the path of the sweep of `plan`."""
    if folder.plan.is_file():
        is_same_spec = read_plan(folder).spec_digest == plan.spec_digest
        remedy = (
            f"continue it with `haltsweep resume {shlex.quote(str(folder.root))}`"
            if is_same_spec
            else "it was launched from another spec: choose another name, or use `haltsweep extend`"
        )
        raise InputError(f"sweep {folder.name!r} already exists in {folder.root}; {remedy}")
    if folder.root.is_file() or (folder.root.is_dir() and any(folder.root.iterdir())):
        raise InputError(
            f"a sweep needs a separate folder, but {folder.root} contains other files; "
            "choose another name, or move them"
        )
