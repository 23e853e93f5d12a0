"""List the datasets that the trials of a sweep read, with digests of their content."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator.errors import StoreError
from orchestrator.files.file_digests import seal_json, unseal_json
from orchestrator.files.regular_files import read_regular
from orchestrator.identity import SweepFolder, digest
from orchestrator.trials import Record
from trainables.atomic import write_atomically

FILE = "data.json"
DIGEST_SEPARATOR = ", "
"""Separator between the digests of one split of a task with several settings."""
TEST_PHASES = frozenset({"confirm", "cross", "posthoc"})
"""Phases whose trials read test splits."""


class Input(NamedTuple):
    """One split of a dataset."""

    name: str
    """Task and split as `<task>/<split>`."""
    digest: str
    """Digest of the content, computed by the data store."""
    context: str
    """Use of the split: train, valid or test."""
    place: str
    """Path of the file, relative to the folder of all datasets."""

    @property
    def source(self) -> str:
        """Source of the dataset for MLflow, as JSON."""
        return json.dumps({"uri": self.place})


Inputs = Mapping[str, Sequence[Input]]
"""Splits by the digest of their task's settings."""


def inputs_for(
    inputs: Inputs, settings: Mapping[str, Any], phase: str = "confirm", splits: Collection[str] | None = None
) -> tuple[Input, ...]:
    """Return the datasets that a trial reads; empty if they are unknown.

    Args:
        inputs: Datasets of the sweep.
        settings: Settings of the trial.
        phase: Phase of the trial; only phases after the search read test splits.
        splits: Test splits that the trial reads; None for all.
    """
    datasets = inputs.get(digest(settings.get("task")), ())
    return tuple(
        dataset
        for dataset in datasets
        if dataset.context != "test"
        or (phase in TEST_PHASES and (splits is None or dataset.name.rpartition("/")[2] in splits))
    )


def split_digests(inputs: Inputs) -> dict[str, str]:
    """Return the digests by `<task>/<split>`; a task that has several settings may have several digests."""
    digests_by_split: dict[str, set[str]] = {}
    for dataset in (dataset for datasets in inputs.values() for dataset in datasets):
        digests_by_split.setdefault(dataset.name, set()).add(dataset.digest)
    return {name: DIGEST_SEPARATOR.join(sorted(digests)) for name, digests in digests_by_split.items()}


def data_read(record: Record) -> Mapping[str, str]:
    """Return the digests of the data that the trial read, as `split_digests` does; empty if unknown."""
    digests: Mapping[str, str] = record.provenance.get("data") or {}
    return digests


def split_digest_set(digests: str) -> frozenset[str]:
    """Return the separate digests in a string from `split_digests`."""
    return frozenset(digests.split(DIGEST_SEPARATOR))


def write_inputs(folder: SweepFolder, inputs: Inputs) -> None:
    """Write the list to the sweep's folder. Raise `OSError` if that fails."""
    values = {task: [list(dataset) for dataset in datasets] for task, datasets in sorted(inputs.items())}
    write_atomically(folder.root / FILE, seal_json({"inputs": values}))


def read_inputs(folder: SweepFolder) -> Inputs:
    """Return the list; empty if the file is missing. Raise `StoreError` if it is damaged."""
    try:
        values = unseal_json(read_regular(folder.root / FILE))["inputs"]
        return {
            task: tuple(Input(*map(str, dataset)) for dataset in datasets)
            for task, datasets in values.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(
            f"{folder.root / FILE} must be as haltsweep wrote it, but cannot be read "
            f"({type(error).__name__}: {error}); delete it: MLflow then lacks the data sets of trials "
            "until `haltsweep resume` of an unfinished sweep writes the file again"
        ) from error
