"""Resolve the argument of `haltsweep data` to the data of a task, or to all data of a spec."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError
from orchestrator.execution.datasets import tasks_with_splits
from orchestrator.plan.arms import resolve
from orchestrator.plan.faults import Faults
from orchestrator.plan.training_code.settings import part_problems
from orchestrator.spec.load import read_spec
from orchestrator.spec.overrides import BadOverride, parse
from search_spaces.paths import with_value
from trainables import catalog
from trainables.custom.extensions import BadName
from trainables.custom.source_files import names_file
from trainables.settings import Settings
from trainables.task_catalog import splits, task_config, task_name
from trainables.task_protocol import SplitInfo
from trainables.training.config import TrainConfig

SPEC_SUFFIXES = (".yaml", ".yml")
STEPS_UNKNOWN = 10**6
"""Training step for tasks without a spec, after the end of every curriculum."""


@dataclass(frozen=True, slots=True)
class Subject:
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


def subjects(
    what: str, overrides: Sequence[str], profile: str | None, only: Sequence[str] = ()
) -> list[Subject]:
    """Return the data for a task's name or the path of a spec.

    Args:
        what: Name of a task, or path of a spec.
        overrides: Settings of the task, or overrides of the spec.
        profile: Profile of the spec to apply.
        only: Names of splits to select; empty for all.

    Raises:
        InputError: The argument is neither a task nor a spec, or a setting is invalid.
    """
    is_file = names_file(what)
    known = what in catalog.names("tasks") or (catalog.is_named("tasks", what) and not is_file)
    is_task = Path(what).suffix not in SPEC_SUFFIXES and known
    if not is_task and not is_file:
        raise InputError(_nothing(what))
    if not is_task:
        found = _of_spec(Path(what), overrides, profile, tests=bool(only))
    elif profile is None:
        found = [_of_task(what, overrides)]
    else:
        raise InputError(
            f"--profile goes with a spec, got the task {what!r} and --profile {profile}; drop it"
        )
    return [_restricted(each, only) for each in found] if only else found


def _nothing(what: str) -> str:
    if Path(what).suffix in SPEC_SUFFIXES:
        return f"a spec must be there to be read, and {what} is not; name a spec or a task"
    try:
        catalog.load("tasks", what)
    except BadName as error:
        return f"{error}; or name a spec file"
    raise AssertionError(f"{what} must be no task")


def _of_task(name: str, overrides: Sequence[str]) -> Subject:
    raw: dict[str, Any] = {"name": name}
    for text in overrides:
        try:
            override = parse(text)
            raw = with_value(raw, override.key, override.value)
        except BadOverride as error:
            raise InputError(str(error)) from error
        except ValueError as error:
            raise InputError(f"override {text!r}: {error}") from error
    if problems := part_problems("task", raw):
        raise InputError("\n".join(f"{problem.path}: {problem.message}" for problem in problems))
    config = task_config(raw)
    batch_size: int = TrainConfig.model_fields["batch_size"].default
    return Subject(config, splits(config), batch_size, STEPS_UNKNOWN)


def _of_spec(path: Path, overrides: Sequence[str], profile: str | None, *, tests: bool) -> list[Subject]:
    """Return all distinct data of the spec's arms, with unconfirmed test splits if `tests` is True."""
    found: dict[Settings, Subject] = {}
    source = read_spec(path, overrides, profile)
    faults = Faults(source)
    arms = resolve(source.spec, faults)
    faults.raise_if_any()
    confirmed = source.spec.confirm.splits if source.spec.confirm is not None else ()
    for arm in arms:
        train = arm.system.train
        ((config, infos),) = tasks_with_splits([arm.system.settings["task"]], confirmed)
        chosen = splits(config) if tests else tuple(infos)
        found.setdefault(config, Subject(config, chosen, train.batch_size, train.steps, train.batch_tokens))
    return list(found.values())


def _restricted(subject: Subject, only: Sequence[str]) -> Subject:
    known = {info.name: info for info in subject.splits}
    for name in only:
        if name not in known:
            raise InputError(f"{subject.name} has no split {name!r}. Known: {', '.join(known)}")
    return replace(subject, splits=tuple(known[name] for name in dict.fromkeys(only)))
