"""Refuse dimensions that never exist, have one value, or change how trials are measured."""

from collections.abc import Callable, Collection, Mapping, Sequence
from math import isclose
from typing import Any

from orchestrator.errors import FaultCode
from orchestrator.plan.arms import BuiltInArm, CheckedArm
from orchestrator.plan.faults import Faults
from orchestrator.plan.space_check.spaces import common_space, dimension_keys, enabling_params, sibling_fields
from orchestrator.search import space_catalog
from orchestrator.spec.types import Search
from search_spaces.algebra import drop_dimensions
from search_spaces.dimensions import Choice, Dimension, Fixed, Float, Space, Value
from search_spaces.paths import MISSING, leaves, lookup
from search_spaces.wording import format_value, hint
from trainables.task_catalog import training_only

EXAMPLE_SELECTION_FIELDS = ("train.valid_examples", "train.decode_examples")
"""Fields that select the examples on which a trial is measured."""
WEIGHT_SELECTION_FIELDS = ("train.select", "train.average_best")
"""Fields that select the weights of confirmed trials; search trials do not use them."""

REPORT_INTERVAL_FIELD = "train.report_every"
"""Field with the number of steps between measurements of a trial."""
COMPARISON_FIELD = "train.select_by"
"""Field that defines which measurement of a trial is better."""
PATIENCE_FIELDS = ("train.patience", "train.halve_after")
"""Fields that let measurements control the training of a trial."""


ReasonNotSearchable = Callable[[str], str | None]
"""Function that returns why a path must not be searched because it changes measurements; None if it may."""


def check_dimensions(
    arms: Sequence[CheckedArm[Any]],
    search: Search,
    reason_not_searchable: ReasonNotSearchable,
    faults: Faults,
) -> None:
    """Add faults for dimensions of the common space that cannot be searched.

    Args:
        arms: All valid arms.
        search: Search settings of the spec.
        reason_not_searchable: Returns why a path must not be searched, or None.
        faults: Collects the problems.
    """
    shared_space = common_space(search)
    for dimension in search.also:
        keys = dimension_keys(dimension.path, search)
        if reason := single_value_problem(dimension, search):
            faults.add(reason, *keys)
        else:
            _check_existence(dimension, arms, shared_space, search, faults)
    for dimension in shared_space.dimensions:
        if reason := reason_not_searchable(dimension.path):
            faults.add(reason, *dimension_keys(dimension.path, search))


def single_value_problem(dimension: Dimension, search: Search) -> str | None:
    """Return the problem of a range with a single value; None if there are several, or it is intended.

    A single value is intended for a dimension with conditions, or if it replaces a range of a listed space.
    """
    values = dimension.domain.values if isinstance(dimension.domain, Choice) else ()
    overrides = any(dimension.path in space_catalog.load(name).paths for name in search.spaces)
    if dimension.when or (isinstance(dimension.domain, Fixed) and overrides):
        return None
    value: Value
    if isinstance(dimension.domain, Fixed):
        value = dimension.domain.value
    elif len(values) == 1:
        value = values[0]
    elif isinstance(dimension.domain, Float) and isclose(dimension.domain.low, dimension.domain.high):
        value = dimension.domain.low
    else:
        return None
    return (
        f"must have two values or more to be searched, got {format_value(value)} alone: set "
        f"{dimension.path} in the baseline, or give it a range"
    )


def _may_be(path: str, settings: Mapping[str, Any]) -> bool:
    """Return whether the field exists, or may exist once a parent that is null has a value."""
    parents = [path.rsplit(".", num_cut_parts)[0] for num_cut_parts in range(1, path.count("."))]
    is_null = any(lookup(settings, parent) is None for parent in parents)
    return is_null or lookup(settings, path) is not MISSING


def _check_existence(
    dimension: Dimension, arms: Sequence[CheckedArm[Any]], common: Space, search: Search, faults: Faults
) -> None:
    keys = (*dimension_keys(dimension.path, search), "when")
    fields = dict.fromkeys(path for arm in arms for path, _ in leaves(arm.system.settings))
    for path in (condition.path for condition in dimension.when):
        if path not in common.paths and not any(_may_be(path, arm.system.settings) for arm in arms):
            message = f"depends on {path}, which no arm has. {hint(path, sibling_fields(path, fields))}"
            faults.add(message, *keys, code=FaultCode.UNKNOWN_FIELD)
            return
    for arm in arms:
        space = drop_dimensions(common, arm.request.drop)
        if (
            dimension.path in space.paths
            and enabling_params(dimension, space, arm.system.settings) is not None
        ):
            return
    conditions = " and ".join(
        f"{condition.path} must be {' or '.join(map(format_value, condition.values))}"
        for condition in dimension.when
    )
    message = (
        f"never exists: {conditions}, which is false in every arm that searches it; correct the condition or "
        "remove the range"
    )
    faults.add(message, *keys)


def reason_not_searchable(
    path: str, arms: Sequence[BuiltInArm], searched_paths: Collection[str]
) -> str | None:
    """Return why a field must not be searched because it changes how trials are measured; None if it may.

    Args:
        path: Path of the field.
        arms: All valid arms.
        searched_paths: All fields that the search varies.
    """
    root, _, field = path.partition(".")
    if path in EXAMPLE_SELECTION_FIELDS:
        return f"must not be searched: trials would be evaluated on different examples; set baseline.{path}"
    counts = not set(PATIENCE_FIELDS).isdisjoint(searched_paths) or any(
        _counts_validations(arm) for arm in arms
    )
    if path in WEIGHT_SELECTION_FIELDS or (path == COMPARISON_FIELD and not counts):
        return "must not be searched: it only selects weights for tests, so it cannot affect search trials"
    if path == REPORT_INTERVAL_FIELD and not counts:
        return (
            "must not be searched: it changes the step of the last report, which decides the trial's "
            f"value; set baseline.{path}"
        )
    changing = [
        arm
        for arm in arms
        if root == "task"
        and lookup(arm.system.settings, path) is not MISSING
        and path not in arm.request.drop
        and field not in training_only(arm.system.task)
    ]
    if not changing:
        return None
    free_fields = sorted(training_only(changing[0].system.task))
    return (
        "must not be searched: trials would be evaluated on different data, and the search would select the "
        f"easiest data; list its values in contexts{_searchable_task_fields(free_fields)}"
    )


def _counts_validations(arm: BuiltInArm) -> bool:
    """Return whether the number of validations affects the training of an arm."""
    return arm.system.train.patience is not None or arm.system.train.halve_after is not None


def _searchable_task_fields(fields: Sequence[str]) -> str:
    return f". Searchable task fields: {', '.join(f'task.{field}' for field in fields)}" if fields else ""
