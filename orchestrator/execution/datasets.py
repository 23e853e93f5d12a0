"""Build and check the data of a sweep before its workers start, so that no worker waits for a build."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import InputError
from orchestrator.execution.sweep.launch_folder import DEFAULT_WORKLOAD, Setup
from orchestrator.identity import canonical, digest
from orchestrator.plan.planned_trials import with_data_seed
from orchestrator.plan.types import Plan
from orchestrator.tracking.inputs import Input, data_read, split_digest_set, split_digests
from orchestrator.trials import Record
from search_spaces.wording import amount
from trainables.data.progress import Watcher, report_to

if TYPE_CHECKING:
    from trainables.data.split import Split
    from trainables.settings import Settings
    from trainables.task_protocol import SplitInfo

OnData = Callable[[str, str, int, int], None]
"""Callback with task, split, number of ready splits and total number of splits.

It is called before each split is opened and once at the end.
"""


def build_datasets(
    plan: Plan, data_dir: Path, on_data: OnData | None = None, watcher: Watcher | None = None
) -> None:
    """Build every split that the arms of `plan` train on, validate with or are confirmed on.

    A search over task settings needs further data, which the first trial that needs them builds.

    Args:
        plan: The plan of the sweep.
        data_dir: Folder for datasets.
        on_data: Callback for progress.
        watcher: Receives the progress of each build.

    Raises:
        InputError: Data cannot be built or read with these settings.
    """
    from trainables.task_catalog import task_name

    dataset_keys = list(_stored_splits(arm_tasks(plan), plan.test_splits))
    with report_to(watcher or Watcher()):
        for ready, (config, name) in enumerate(dataset_keys):
            if on_data is not None:
                on_data(task_name(config), name, ready, len(dataset_keys))
            open_or_build_split(config, name, data_dir)
    if on_data is not None and dataset_keys:
        on_data(task_name(dataset_keys[-1][0]), dataset_keys[-1][1], len(dataset_keys), len(dataset_keys))


def arm_tasks(plan: Plan) -> Iterator[Mapping[str, Any]]:
    """Yield the task settings of all arms; with `confirm.resample_data`, of all their confirm seeds, too."""
    for arm in plan.arms:
        yield arm.settings["task"]
        if plan.confirm is not None and plan.confirm.resample_data:
            yield from (with_data_seed(seed, arm.settings)["task"] for seed in plan.confirm.seeds)


def repeated_input_warnings(plan: Plan, data_dir: Path) -> Iterator[str]:
    """Yield a warning for each evaluated split that contains training inputs; build the data first.

    Only custom tasks are checked, since splits of built-in tasks share no examples by contract.
    """
    from trainables.catalog import is_custom
    from trainables.task_catalog import task_name

    for config, infos in tasks_with_splits((arm.settings["task"] for arm in plan.arms), plan.test_splits):
        train_info = next(info for info in infos if info.role == "train")
        if train_info.streamed or not is_custom("tasks", task_name(config)):
            continue
        train = open_or_build_split(config, train_info.name, data_dir)
        for name in (info.name for info in infos if info is not train_info and not info.streamed):
            split = open_or_build_split(config, name, data_dir)
            if num_shared := split.num_repeated_in(train):
                yield (
                    f"Warning: {task_name(config)}: {num_shared:,} of {amount(len(split), 'input')} of "
                    f"{name} are in {train_info.name} too, so results there may measure memorisation"
                )


def collect_inputs(plan: Plan, data_dir: Path) -> dict[str, list[Input]]:
    """Return the splits that each arm reads, by digest of its task settings; build missing data first.

    A search over task settings reads further splits, which are not included.
    """
    from trainables.data.store import split_path
    from trainables.task_catalog import task_name

    inputs: dict[str, list[Input]] = {}
    for raw in arm_tasks(plan):
        if (key := digest(raw)) in inputs:
            continue
        ((config, infos),) = tasks_with_splits([raw], plan.test_splits)
        inputs[key] = [
            Input(
                f"{task_name(config)}/{info.name}",
                open_or_build_split(config, info.name, data_dir).content_hash,
                info.role,
                split_path(config, info.name, data_dir).relative_to(data_dir).as_posix(),
            )
            for info in infos
            if not info.streamed
        ]
    return inputs


def require_same_data(plan: Plan, records: Sequence[Record], digests: Mapping[str, str]) -> None:
    """Check that earlier trials of the sweep read splits with the same content as the current data.

    An extended sweep may read additional splits.

    Args:
        plan: The plan of the sweep.
        records: Trials in the ledger.
        digests: Digests of the current data, by task and split.

    Raises:
        InputError: The content of a split has changed.
    """
    changes = []
    for split, current_digest in sorted(digests.items()):
        earlier_digests = (data_read(record).get(split) for record in records if record.attempts)
        different_digests = [
            f"{digest} ({amount(count, 'trial')})"
            for digest, count in Counter(filter(None, earlier_digests)).items()
            if not split_digest_set(digest) <= split_digest_set(current_digest)
        ]
        if different_digests:
            changes.append(
                f"{split} had the digest {', '.join(different_digests)}, and now has {current_digest}"
            )
    if changes:
        raise InputError(
            f"trials of one sweep must read the same data, but those of {plan.name} have changed: "
            f"{'; '.join(changes)}. Choose one: (1) restore the folder of data or its sources; (2) launch "
            "a new sweep under another name; (3) continue with --changed-code, which the report states first"
        )


def require_unchanged_data(plan: Plan, records: Sequence[Record], setup: Setup) -> None:
    """Check the data that trials of `plan` read with `require_same_data`; build missing data first."""
    if setup.workload == DEFAULT_WORKLOAD:
        require_same_data(plan, records, split_digests(collect_inputs(plan, setup.data_dir)))


def require_files(plan: Plan) -> None:
    """Raise `InputError` if source files for the data of `plan` are missing, without reading any file."""
    if plan.trainable is None:
        require_task_files(arm.settings["task"] for arm in plan.arms)


def content_hashes(
    raw_tasks: Iterable[Mapping[str, Any]], confirm_splits: Sequence[str], data_dir: Path
) -> dict[str, str]:
    """Return the content hash of every split that a sweep reads, by file name; build missing data first.

    Args:
        raw_tasks: Task settings.
        confirm_splits: Names of test splits for confirm trials.
        data_dir: Folder for datasets.

    Raises:
        InputError: Data cannot be built or read with these settings.
        DataError: The disk cannot be read or written.
    """
    tasks = list(raw_tasks)
    if not tasks:  # custom training code does not need the built-in tasks, which are slow to import
        return {}
    from trainables.data.store import split_path

    hashes = {}
    for config, name in _stored_splits(tasks, confirm_splits):
        path = split_path(config, name, data_dir).relative_to(data_dir)
        hashes[str(path)] = open_or_build_split(config, name, data_dir).content_hash
    return hashes


def _stored_splits(
    raw_tasks: Iterable[Mapping[str, Any]], confirm_splits: Sequence[str]
) -> "Iterator[tuple[Settings, str]]":
    """Yield task config and name of each split that a sweep reads from a file."""
    for config, infos in tasks_with_splits(raw_tasks, confirm_splits):
        yield from ((config, info.name) for info in infos if not info.streamed)


def require_task_files(raw_tasks: Iterable[Mapping[str, Any]]) -> None:
    """Raise `InputError` if source files for the data of these task settings are missing."""
    tasks = list(raw_tasks)
    if not tasks:
        return
    from trainables.task_catalog import require_files, task_name

    for config, _ in tasks_with_splits(tasks, ()):
        try:
            require_files(config)
        except ValueError as error:
            raise InputError(f"the data of {task_name(config)} cannot be read: {error}") from error


def tasks_with_splits(
    raw_tasks: Iterable[Mapping[str, Any]], confirm_splits: Sequence[str]
) -> "Iterator[tuple[Settings, list[SplitInfo]]]":
    """Yield each distinct task config with the splits that a sweep reads, including streamed splits."""
    from trainables.task_catalog import splits, task_config

    for raw in {canonical(raw): raw for raw in raw_tasks}.values():
        config = task_config(raw)
        yield config, [info for info in splits(config) if info.role != "test" or info.name in confirm_splits]


def open_or_build_split(config: "Settings", split: str, data_dir: Path) -> "Split":
    """Return a split, building it first if it is missing.

    Raises:
        InputError: The split cannot be built with these settings.
        DataError: The disk cannot be read or written.
    """
    from trainables.data.store import open_split
    from trainables.task_catalog import task_name

    try:
        return open_split(config, split, data_dir)
    except ValueError as error:
        raise InputError(f"the split {split} of {task_name(config)} cannot be built: {error}") from error


def data_digests(plan: Plan, setup: Setup) -> dict[str, str]:
    """Return digests of the splits that the arms read, by task and split; empty for custom training code."""
    if setup.workload != DEFAULT_WORKLOAD:
        return {}
    from trainables.data.inventory import inspect_file
    from trainables.data.store import split_path
    from trainables.task_catalog import task_name

    digests_by_split: dict[str, set[str]] = defaultdict(set)
    with suppress(ValueError, LookupError):  # a custom task that is no longer installed
        for config, name in _stored_splits(arm_tasks(plan), plan.test_splits):
            if not (path := split_path(config, name, setup.data_dir)).exists():
                continue
            data_file = inspect_file(path)
            assert data_file is not None, "a file of a split must be a data file"
            digest_or_verdict = data_file.content_hash or data_file.verdict
            digests_by_split[f"{task_name(config)}/{name}"].add(digest_or_verdict)
    return {name: ", ".join(sorted(digests)) for name, digests in digests_by_split.items()}
