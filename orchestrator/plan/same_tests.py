"""Refuse settings of an arm that change valid or test splits, so that all arms use the same examples."""

from collections.abc import Iterator, Sequence
from typing import Final

from orchestrator.errors import FaultCode
from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.faults import Faults
from orchestrator.spec.types import Spec
from trainables.field_effects import find_split_mark, presentation_fields
from trainables.settings import Settings
from trainables.task_catalog import settled, source_digest, splits, task_module, task_name, training_only

DATA_SEED_FIELD: Final = "data_seed"
"""Field of a task that seeds its data."""


def check_same_tests(arms: Sequence[BuiltInArm], tests: Sequence[str], faults: Faults) -> None:
    """Add a fault for every arm whose valid or test examples differ from those of its reference.

    Args:
        arms: All arms with valid settings. Arms are compared only within their context.
        tests: Test splits that confirm trials read; the valid split is always read.
        faults: Collects the problems.
    """
    by_name = {arm.name: arm for arm in arms}
    for arm in arms:
        reference = by_name.get(arm.reference)
        if reference is None or arm.system.task == reference.system.task:
            continue
        for field, names in changed_splits(reference.system.task, arm.system.task, tests):
            keys = arm.request.keys(f"task.{field}")
            new, old = (getattr(built_in_arm.system.task, field, None) for built_in_arm in (arm, reference))
            message = (
                f"task.{field} changes the examples of {', '.join(names)}, got {new!r} for {arm.name} and "
                f"{old!r} for {reference.name}, but arms must be evaluated on the same examples. To run all "
                f"arms on both, write contexts: {{task.{field}: [...]}}"
            )
            faults.add(message, *keys, code=FaultCode.DIFFERENT_TEST_DATA, about=("same tests", *keys))


def check_resampled(spec: Spec, arms: Sequence[BuiltInArm], faults: Faults) -> None:
    """Add a fault for every task whose data do not depend on its seed, if `confirm.resample_data` is set."""
    if spec.confirm is None or not spec.confirm.resample_data:
        return
    for name, task in {task_name(arm.system.task): arm.system.task for arm in arms}.items():
        if not _depends_on_data_seed(task):
            message = (
                f"must be false for {name} with these settings, got true: its data are files or do not "
                "depend on task.data_seed. Delete resample_data, or choose a generated task"
            )
            keys, about = ("confirm", "resample_data"), ("resampled", name)
            faults.add(message, *keys, code=FaultCode.CONFLICTING_FIELDS, about=about)


def _depends_on_data_seed(task: Settings) -> bool:
    if DATA_SEED_FIELD not in type(task).model_fields:
        return False
    settings_by_seed = [settled(task.model_copy(update={DATA_SEED_FIELD: seed})) for seed in (0, 1)]
    try:
        reads_files = source_digest(task_module(task_name(task)), task) is not None
    except ValueError:  # the files are missing
        return False
    return settings_by_seed[0] != settings_by_seed[1] and not reads_files


def changed_splits(
    old_settings: Settings, new_settings: Settings, tests: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the fields that differ between two tasks, with the valid and test splits that they may change.

    Fields that only affect training data, step counts or the form of examples are left out.
    """
    if type(old_settings) is not type(new_settings):
        yield "name", _measured_splits(new_settings, tests)
        return
    old, new = (settled(task).model_dump(mode="json") for task in (old_settings, new_settings))
    irrelevant_fields = training_only(new_settings) | presentation_fields(new_settings)
    for field in [name for name in old if name not in irrelevant_fields]:
        split_condition = find_split_mark(type(new_settings), field)
        names = _measured_splits(new_settings, tests)
        if split_condition is not None:
            names = [name for name in names if split_condition.affects_any([name])]
            if split_condition.read(old[field], names) == split_condition.read(new[field], names):
                continue
        if names and old[field] != new[field]:
            yield field, names


def _measured_splits(task: Settings, tests: Sequence[str]) -> list[str]:
    return [info.name for info in splits(task) if info.role == "valid" or info.name in tests]
