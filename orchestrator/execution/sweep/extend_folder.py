"""Puts an extended plan into the folder of a sweep: a kill at any moment leaves the old or the new one.

Every edition of spec and plan is kept in `extensions/<number>/`, 0 as launched. The new edition is written
there first; then the manifest, which is one file and replaced at once, says that it is valid; then the files
beside it are replaced. Who reads between goes by the manifest (`file_digests.read_kept`), and whoever runs or
extends the sweep next replaces what is left.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import StoreError
from orchestrator.files.disk import remedy
from orchestrator.files.file_digests import (
    EDITIONS,
    MANIFEST,
    digest_of,
    kept_file,
    read_kept,
    read_manifest,
    sealed,
    write_manifest,
)
from orchestrator.files.regular_files import read_ordinary
from orchestrator.identity import SweepFolder
from orchestrator.plan.serialise import to_json
from orchestrator.plan.types import Plan
from trainables.atomic import clear_unfinished, flush, write_atomically

_RESTORE = "restore it from a backup"


def commit(folder: SweepFolder, plan: Plan, spec: str, provenance: Mapping[str, Any]) -> None:
    """Make `plan`, which is extended once more, the sweep's; the lease of the sweep must be held.

    Raises StoreError if the folder cannot be written; the sweep is then as it was.
    """
    assert plan.extended, "an extended plan says by what"
    try:
        complete(folder)
        number = len(plan.extended)
        if number == 1:
            _keep(folder, 0, {file.name: read_ordinary(file) for file in (folder.spec, folder.plan)})
        origin = json.dumps(provenance, indent=2, sort_keys=True) + "\n"
        made = {folder.spec.name: spec.encode(), folder.plan.name: to_json(plan).encode()}
        _keep(folder, number, made | {folder.provenance.name: origin.encode()})
        digests = dict(read_manifest(folder.root) or {})
        digests |= {name: digest_of(content) for name, content in made.items()}
        write_atomically(folder.root / MANIFEST, sealed({"files": digests}))
        flush(folder.root)
        complete(folder)
    except OSError as error:
        raise StoreError(
            f"the folder {folder.root} must be writable to be extended: {error}; {remedy(error)}, and try "
            "again"
        ) from error


def complete(folder: SweepFolder) -> None:
    """Finish what a killed extension left undone, if there is any. Raises OSError, StoreError."""
    for file in (folder.spec, folder.plan):
        if file.is_file() and kept_file(file) != file:
            write_atomically(file, read_kept(file, _RESTORE))
    flush(folder.root)


def editions(folder: SweepFolder) -> list[Path]:
    """Folders of all editions of spec and plan, as launched first; none where nothing was extended."""
    found = (folder.root / EDITIONS).glob("[0-9]*")
    return sorted((each for each in found if each.name.isdecimal()), key=lambda each: int(each.name))


def _keep(folder: SweepFolder, number: int, files: Mapping[str, bytes]) -> None:
    """Files of an edition, on the disk. One of that number that never came to be valid is replaced."""
    place = folder.root / EDITIONS / str(number)
    place.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        clear_unfinished(place / name)  # of an extension that was killed
        write_atomically(place / name, content)
    write_manifest(place, [place / name for name in files])
    for each in (place, place.parent, folder.root):
        flush(each)
