"""Resolve the argument of `haltsweep data` to the data of a task, or to all data of a spec."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError
from orchestrator.execution.datasets import tasks_with_splits
from orchestrator.plan.arms import resolve_built_in_arms
from orchestrator.plan.faults import Faults
from orchestrator.plan.training_code.settings import part_faults
from orchestrator.spec.load import read_spec
from orchestrator.spec.overrides import BadOverride, parse
from search_spaces.paths import with_value
from trainables import catalog
from trainables.custom.extensions import BadName
from trainables.custom.source_files import is_existing_file
from trainables.settings import Settings
from trainables.task_catalog import splits, task_config, task_name
from trainables.task_protocol import SplitInfo
from trainables.training.config import TrainConfig

SPEC_SUFFIXES = (".yaml", ".yml")
DEFAULT_STEPS = 10**6
"""Training step for tasks without a spec, after the end of every curriculum."""


@dataclass(frozen=True, slots=True)
class TaskData:
    """Data of one task."""

    config: Settings
    splits: tuple[SplitInfo, ...]
    batch_size: int
    steps: int
    """Number of optimizer steps of a training."""
    batch_tokens: int | None = None
    """Tokens per batch; None if batch sizes are not measured in tokens."""

    @property
    def name(self) -> str:
        """Name of the task."""
        return task_name(self.config)


def resolve_data(
    task_or_spec: str, overrides: Sequence[str], profile: str | None, split_names: Sequence[str] = ()
) -> list[TaskData]:
    """Return the data for a task's name or the path of a spec.

    Args:
        task_or_spec: Name of a task, or path of a spec.
        overrides: Settings of the task, or overrides of the spec.
        profile: Profile of the spec to apply.
        split_names: Names of splits to select; empty for all.

    Raises:
        InputError: The argument is neither a task nor a spec, or a setting is invalid.
    """
    is_file = is_existing_file(task_or_spec)
    is_known = task_or_spec in catalog.names("tasks") or (
        catalog.is_named("tasks", task_or_spec) and not is_file
    )
    is_task = Path(task_or_spec).suffix not in SPEC_SUFFIXES and is_known
    if not is_task and not is_file:
        raise InputError(_unknown_name_message(task_or_spec))
    if not is_task:
        task_data = _read_spec(Path(task_or_spec), overrides, profile, tests=bool(split_names))
    elif profile is None:
        task_data = [_read_task(task_or_spec, overrides)]
    else:
        raise InputError(
            f"--profile requires a spec, got the task {task_or_spec!r} and --profile {profile}; drop it"
        )
    return [_select_splits(subject, split_names) for subject in task_data] if split_names else task_data


def _unknown_name_message(task_or_spec: str) -> str:
    if Path(task_or_spec).suffix in SPEC_SUFFIXES:
        return f"the spec {task_or_spec} does not exist; name a spec or a task"
    try:
        catalog.load("tasks", task_or_spec)
    except BadName as error:
        return f"{error}; or name a spec file"
    raise AssertionError(f"{task_or_spec} must be no task")


def _read_task(name: str, overrides: Sequence[str]) -> TaskData:
    raw: dict[str, Any] = {"name": name}
    for text in overrides:
        try:
            override = parse(text)
            raw = with_value(raw, override.key, override.value)
        except BadOverride as error:
            raise InputError(str(error)) from error
        except ValueError as error:
            raise InputError(f"override {text!r}: {error}") from error
    if problems := part_faults("task", raw):
        raise InputError("\n".join(f"{problem.path}: {problem.message}" for problem in problems))
    config = task_config(raw)
    batch_size: int = TrainConfig.model_fields["batch_size"].default
    return TaskData(config, splits(config), batch_size, DEFAULT_STEPS)


def _read_spec(path: Path, overrides: Sequence[str], profile: str | None, *, tests: bool) -> list[TaskData]:
    """Return all distinct data of the spec's arms, with unconfirmed test splits if `tests` is True."""
    by_config: dict[Settings, TaskData] = {}
    source = read_spec(path, overrides, profile)
    if source.spec.trainable is not None:
        raise InputError(
            f"{path}: must be a spec of built-in tasks, got trainable {source.spec.trainable}, which manages "
            "its own data"
        )
    faults = Faults(source)
    arms = resolve_built_in_arms(source.spec, faults)
    faults.raise_if_any()
    confirmed = source.spec.confirm.splits if source.spec.confirm is not None else ()
    for arm in arms:
        train = arm.system.train
        ((config, needed_splits),) = tasks_with_splits([arm.system.settings["task"]], confirmed)
        infos = splits(config) if tests else tuple(needed_splits)
        subject = TaskData(config, infos, train.batch_size, train.steps, train.batch_tokens)
        by_config.setdefault(config, subject)
    return list(by_config.values())


def _select_splits(task_data: TaskData, split_names: Sequence[str]) -> TaskData:
    by_name = {info.name: info for info in task_data.splits}
    for name in split_names:
        if name not in by_name:
            raise InputError(f"{task_data.name} has no split {name!r}. Known: {', '.join(by_name)}")
    return replace(task_data, splits=tuple(by_name[name] for name in dict.fromkeys(split_names)))
