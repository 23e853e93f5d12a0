"""Builds the data of a sweep before its workers start, so that they do not all wait for one of them."""

from collections.abc import Callable
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.identity import canonical
from orchestrator.plan.types import Plan

OnData = Callable[[str, str, int, int], None]
"""Called with task, split, splits ready and splits in all: before each is opened, and once at the end."""


def build_datasets(plan: Plan, data_dir: Path, on_data: OnData | None = None) -> None:
    """Every split that the arms of `plan` train on, validate with or are confirmed on.

    A search over settings of the task makes more data, which the trial that needs it first builds.
    Raises InputError for data that cannot be made or read as asked.
    """
    from trainables.data.store import open_split
    from trainables.tasks import splits, task_config, task_name

    tasks = {canonical(arm.settings["task"]): arm.settings["task"] for arm in plan.arms}
    confirmed = plan.confirm.splits if plan.confirm is not None else ()
    wanted = []
    for raw in tasks.values():
        config = task_config(raw)
        stored = [info for info in splits(config) if not info.streamed]
        wanted += [(config, each.name) for each in stored if each.role != "test" or each.name in confirmed]
    for ready, (config, name) in enumerate(wanted):
        if on_data is not None:
            on_data(task_name(config), name, ready, len(wanted))
        try:
            open_split(config, name, data_dir)
        except ValueError as error:
            raise InputError(f"the split {name} of {task_name(config)} cannot be made: {error}") from error
    if on_data is not None and wanted:
        on_data(task_name(wanted[-1][0]), wanted[-1][1], len(wanted), len(wanted))
