"""Write an extended plan into the folder of a sweep; a kill at any time leaves the old or the new plan.

Every edition of spec and plan is stored in `extensions/<number>/`; edition 0 is the launched one. The new
edition is written to that folder first. Then the manifest, a single file, is replaced atomically, which makes
the edition valid. Then the files next to the manifest are replaced. Readers in between follow the manifest
(`file_digests.read_edition`). The next session or extension finishes an interrupted replacement.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import StoreError
from orchestrator.files.disk_errors import disk_remedy
from orchestrator.files.file_digests import (
    EDITIONS,
    MANIFEST,
    digest_of,
    find_edition,
    read_edition,
    read_manifest,
    seal_json,
    write_manifest,
)
from orchestrator.files.regular_files import read_regular
from orchestrator.identity import SweepFolder
from orchestrator.plan.serialise import to_json
from orchestrator.plan.types import Plan
from trainables.atomic import clear_unfinished, flush, write_atomically

_RESTORE_ADVICE = "restore it from a backup"


def commit_extension(folder: SweepFolder, plan: Plan, spec: str, provenance: Mapping[str, Any]) -> None:
    """Make the newly extended `plan` the plan of the sweep; the caller must hold the sweep's lease.

    Args:
        folder: Folder of the sweep.
        plan: The extended plan.
        spec: Text of the extended spec.
        provenance: Provenance of the extension.

    Raises:
        StoreError: The folder cannot be written; the sweep is then unchanged.
    """
    assert plan.extended, "an extended plan lists its extensions"
    try:
        finish_extension(folder)
        number = len(plan.extended)
        if number == 1:
            _write_edition(folder, 0, {file.name: read_regular(file) for file in (folder.spec, folder.plan)})
        origin = json.dumps(provenance, indent=2, sort_keys=True) + "\n"
        files = {folder.spec.name: spec.encode(), folder.plan.name: to_json(plan).encode()}
        _write_edition(folder, number, files | {folder.provenance.name: origin.encode()})
        digests = dict(read_manifest(folder.root) or {})
        digests |= {name: digest_of(content) for name, content in files.items()}
        write_atomically(folder.root / MANIFEST, seal_json({"files": digests}))
        flush(folder.root)
        finish_extension(folder)
    except OSError as error:
        raise StoreError(
            f"the folder {folder.root} must be writable to be extended: {error}; {disk_remedy(error)}, "
            "and try again"
        ) from error


def finish_extension(folder: SweepFolder) -> None:
    """Finish an extension that was killed, if there is one. Raise `OSError` or `StoreError` on failure."""
    for file in (folder.spec, folder.plan):
        if file.is_file() and find_edition(file) != file:
            write_atomically(file, read_edition(file, _RESTORE_ADVICE))
    flush(folder.root)


def editions(folder: SweepFolder) -> list[Path]:
    """Return the folders of all editions of spec and plan, oldest first; empty without extensions."""
    paths = (folder.root / EDITIONS).glob("[0-9]*")
    return sorted((path for path in paths if path.name.isdecimal()), key=lambda path: int(path.name))


def _write_edition(folder: SweepFolder, number: int, files: Mapping[str, bytes]) -> None:
    """Write the files of an edition to disk, replacing an invalid edition with that number."""
    edition_folder = folder.root / EDITIONS / str(number)
    edition_folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        clear_unfinished(edition_folder / name)  # remove unfinished files of a killed extension
        write_atomically(edition_folder / name, content)
    write_manifest(edition_folder, [edition_folder / name for name in files])
    for path in (edition_folder, edition_folder.parent, folder.root):
        flush(path)
