"""Which data the trials of a sweep read, with digests of what is in them: a list in the sweep's folder."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator.errors import StoreError
from orchestrator.files.file_digests import sealed, unsealed
from orchestrator.files.regular_files import read_ordinary
from orchestrator.identity import SweepFolder, digest
from orchestrator.trials import Record
from trainables.atomic import write_atomically

FILE = "data.json"
JOINT = ", "
"""Between the digests of one split of a task with several settings."""
LATE = frozenset({"confirm", "cross", "posthoc"})
"""Phases whose trials read test splits."""


class Input(NamedTuple):
    """One split of one dataset."""

    name: str
    """`<task>/<split>`."""
    digest: str
    """Of its content, as the store of data has it."""
    context: str
    """train, valid or test."""
    place: str
    """File, relative to the folder of all datasets."""

    @property
    def source(self) -> str:
        """For MLflow: JSON."""
        return json.dumps({"uri": self.place})


Inputs = Mapping[str, Sequence[Input]]
"""By digest of a task's settings."""


def inputs_for(
    inputs: Inputs, settings: Mapping[str, Any], phase: str = "confirm", splits: Collection[str] | None = None
) -> tuple[Input, ...]:
    """What a trial with these settings reads in `phase`; nothing where that is not known.

    `splits`: the test splits that it reads; else all.
    """
    known = inputs.get(digest(settings.get("task")), ())
    return tuple(
        each
        for each in known
        if each.context != "test"
        or (phase in LATE and (splits is None or each.name.rpartition("/")[2] in splits))
    )


def digests_of(inputs: Inputs) -> dict[str, str]:
    """What is in the data, by `<task>/<split>`; of a task with several settings each different digest."""
    found: dict[str, set[str]] = {}
    for each in (each for some in inputs.values() for each in some):
        found.setdefault(each.name, set()).add(each.digest)
    return {name: JOINT.join(sorted(digests)) for name, digests in found.items()}


def data_read(record: Record) -> Mapping[str, str]:
    """What was in the data when the trial read them, as `digests_of` has it; empty where it is not known."""
    found: Mapping[str, str] = record.provenance.get("data") or {}
    return found


def apart(digests: str) -> frozenset[str]:
    """The digests of which `digests_of` makes one text."""
    return frozenset(digests.split(JOINT))


def write_inputs(folder: SweepFolder, inputs: Inputs) -> None:
    """Put the list into the sweep's folder. Raises OSError."""
    values = {task: [list(each) for each in some] for task, some in sorted(inputs.items())}
    write_atomically(folder.root / FILE, sealed({"inputs": values}))


def read_inputs(folder: SweepFolder) -> Inputs:
    """The list; empty for sweeps from before there was one. Raises StoreError if it is damaged."""
    try:
        values = unsealed(read_ordinary(folder.root / FILE))["inputs"]
        return {task: tuple(Input(*map(str, each)) for each in some) for task, some in values.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(
            f"{folder.root / FILE} must be as haltsweep wrote it, and cannot be read "
            f"({type(error).__name__}: {error}); delete it: MLflow then lacks what data trials read, until "
            "`haltsweep resume` of an unfinished sweep writes it again"
        ) from error
