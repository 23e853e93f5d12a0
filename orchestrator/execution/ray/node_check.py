"""Check whether a machine can run trials of a sweep, before it receives a trial."""

import json
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from orchestrator.errors import InputError, StoreError
from orchestrator.execution.checkpoints.checkpoint_stores import ExternalStore
from orchestrator.execution.code_digests import code_parts, custom_modules, task_names, tasks_and_models
from orchestrator.execution.datasets import content_hashes, require_task_files
from orchestrator.execution.ray.sent_code import code_to_send
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.execution.trial.worker import load_workload
from orchestrator.files.json_values import from_json_values, to_json_values
from orchestrator.files.redact import redact
from orchestrator.identity import SweepFolder
from orchestrator.plan.types import Plan

PINNED_LIBRARIES = ("torch", "numpy")
"""Libraries whose versions change the last digits of results."""
MARKER_PREFIX = ".haltsweep-shared-"
NODE_ID_LABEL = "ray.io/node-id"
"""Label of Ray for the id of a node."""


@dataclass(frozen=True, slots=True)
class NodeRequirements:
    """Requirements of the trials of one sweep on a machine, as JSON values."""

    workload: str
    code: Mapping[str, str]
    """Digests of `code_parts` on the launching machine."""
    versions: Mapping[str, str]
    data_dir: str
    tasks: tuple[Mapping[str, Any], ...]
    """Settings of every task; empty for a custom trainable."""
    models: tuple[str, ...]
    """Names of every model; empty for a custom trainable."""
    splits: tuple[str, ...]
    """Names of test splits that confirm trials read."""
    sent: Mapping[str, str]
    """Modules and packages sent to every node by `code_to_send` because they are not installed."""
    store: str | None
    """URI of the checkpoint store; None if checkpoints are in the folder of sweeps, which must be shared."""
    mark: str = ""
    """Path of a marker file in the folder of sweeps."""
    nonce: str = ""
    """Content of the marker file."""
    data: Mapping[str, str] | None = None
    """Content hashes of the data on the launching machine; None if the data are not built yet."""

    def to_json(self) -> str:
        """Return the requirements as JSON for `from_json` on another machine."""
        return json.dumps(to_json_values(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the requirements from a string created by `to_json`."""
        return from_json_values(cls, json.loads(text))


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Result of a check of a machine against `NodeRequirements`."""

    problems: tuple[str, ...] = ()
    """Clauses that state why the machine cannot run trials."""
    lacks_shared_folder: bool = False
    """Whether one reason is that the machine does not share the folder of sweeps."""
    differences: tuple[str, ...] = ()
    """Clauses that state differences that may change the last digits of results."""


def node_requirements(plan: Plan, setup: Setup) -> NodeRequirements:
    """Return the requirements of the trials of `plan`, with versions and code of this machine."""
    tasks, models = tasks_and_models(plan, setup)
    modules = custom_modules(setup.workload, tasks, models)
    return NodeRequirements(
        workload=setup.workload,
        code=code_parts(setup.workload, task_names(tasks), models),
        versions=_library_versions(),
        data_dir=str(setup.data_dir.resolve()),
        tasks=tasks,
        models=models,
        splits=plan.test_splits,
        sent={} if setup.code is None else code_to_send(modules, Path(setup.code)),
        store=setup.checkpoints,
    )


@contextmanager
def create_marker_file(needs: NodeRequirements, folder: Path) -> Iterator[NodeRequirements]:
    """Yield `needs` with a marker file in `folder`, by which machines check that they share the folder.

    The file is deleted afterwards. No file is created if checkpoints are in an external store.

    Raises:
        StoreError: The folder is not writable.
    """
    if needs.store is not None:
        yield needs
        return
    mark, nonce = folder.resolve() / f"{MARKER_PREFIX}{secrets.token_hex(8)}", secrets.token_hex(16)
    try:
        mark.write_text(nonce, encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"the folder of sweeps must be writable, got {folder}: {error}; choose another one with --runs"
        ) from error
    try:
        yield replace(needs, mark=str(mark), nonce=nonce)
    finally:
        mark.unlink(missing_ok=True)


@contextmanager
def requirements_with_data(plan: Plan, setup: Setup, folder: SweepFolder) -> Iterator[NodeRequirements]:
    """Build the data and yield the requirements; the folder of the sweep contains a marker file meanwhile."""
    for stale_marker in folder.root.glob(f"{MARKER_PREFIX}*"):
        stale_marker.unlink(missing_ok=True)
    needs = node_requirements(plan, setup)
    hashes = content_hashes(needs.tasks, needs.splits, setup.data_dir)
    with create_marker_file(replace(needs, data=hashes), folder.root) as complete_needs:
        yield complete_needs


def check_node(needs: NodeRequirements) -> NodeReport:
    """Check this machine; build its data first if the launching machine has built its data."""
    try:
        load_workload(needs.workload)
        code = code_parts(needs.workload, task_names(needs.tasks), needs.models)
    except InputError as error:
        return NodeReport((str(error),))
    if different := [part for part, digest in needs.code.items() if code.get(part) != digest]:
        return NodeReport((f"its code of {', '.join(different)} differs from the launching machine's",))
    folder_fault = "" if needs.store is not None else _check_shared_folder(Path(needs.mark), needs.nonce)
    faults = [folder_fault, _check_store(needs.store), _check_data(needs)]
    own_versions = _library_versions()
    pairs = [(name, version, own_versions.get(name)) for name, version in needs.versions.items()]
    differences = [
        f"{name} {own_version} instead of {version}"
        for name, version, own_version in pairs
        if own_version != version
    ]
    return NodeReport(tuple(filter(None, faults)), bool(folder_fault), tuple(differences))


def _library_versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in PINNED_LIBRARIES}


def is_marker_readable(mark: Path, nonce: str) -> bool:
    """Return whether this machine can read the marker file with the content `nonce`."""
    try:
        return mark.read_text(encoding="utf-8") == nonce
    except OSError:
        return False


def _check_shared_folder(mark: Path, nonce: str) -> str:
    folder = mark.parent
    if not is_marker_readable(mark, nonce):
        return f"it cannot read the folder {folder} of the launching machine"
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"it cannot write to {folder} ({error.strerror or error})"


def _check_store(uri: str | None) -> str:
    if uri is None:
        return ""
    try:
        ExternalStore(uri).probe()
    except (InputError, StoreError) as error:
        return f"it cannot use the store of checkpoints ({redact(error)})"
    return ""


def _check_data(needs: NodeRequirements) -> str:
    folder = Path(needs.data_dir)
    try:
        if needs.data is not None:
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=next(path for path in (folder, *folder.parents) if path.exists())):
            pass
        require_task_files(needs.tasks)
        if needs.data is None:
            return ""
        hashes = content_hashes(needs.tasks, needs.splits, folder)
    except OSError as error:
        return f"it cannot write to {folder} ({error.strerror or error}): choose another --data"
    except Exception as error:  # any error with the data would also stop trials
        return f"{redact(error)}"
    different = ", ".join(name for name, content in needs.data.items() if hashes.get(name) != content)
    return f"its data differ from the launching machine's: {different}" if different else ""
