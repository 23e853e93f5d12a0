"""Check published values: each must correspond to one evaluation of the sweep, in the same unit."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.errors import FaultCode
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.answer import primary_outcomes
from orchestrator.plan.arms import BuiltInArm, CheckedArm
from orchestrator.plan.faults import Faults
from orchestrator.spec.checks import BASELINE
from orchestrator.spec.metric_splits import SELECTION_SPLIT, declared_split, outcome_split
from orchestrator.spec.types import Published, Spec
from search_spaces.paths import MISSING, lookup
from search_spaces.wording import format_value, hint
from trainables.metrics import Metric, look_up
from trainables.task_catalog import splits


def check_built_in(
    spec: Spec, arms: Sequence[BuiltInArm], probe: Probe, metrics: Sequence[Metric], faults: Faults
) -> None:
    """Check published values as `check_published` does, and that their quantities are measured."""
    split_names = [split.name for arm in arms for split in splits(arm.system.task)]
    check_published(spec, arms, split_names, metrics, faults)
    _check_quantities(spec, arms[0], probe, faults)


def check_published(
    spec: Spec,
    arms: Sequence[CheckedArm[Any]],
    split_names: Iterable[str],
    metrics: Sequence[Metric],
    faults: Faults,
) -> None:
    """Add faults for published values that are ambiguous, out of range, or match no evaluation of the sweep.

    Args:
        spec: The spec.
        arms: All valid arms.
        split_names: Splits that trials may measure, in addition to those of the spec.
        metrics: Declared metrics, for the ranges of values.
        faults: Collects the problems.
    """
    _check_splits(spec, split_names, faults)
    _check_value_ranges(spec, metrics, faults)
    _check_duplicates(spec, faults)
    for place, row in enumerate(spec.published):
        if row.arm is None:
            _check_system_name(place, row, spec, faults)
        else:
            _check_reevaluated_fields(place, row, arms, faults)


def _check_splits(spec: Spec, split_names: Iterable[str], faults: Faults) -> None:
    known_splits = {SELECTION_SPLIT, *split_names, *_declared_splits(spec)}
    for place, row in enumerate(spec.published):
        for split in row.values:
            if split not in known_splits:
                keys = ("published", place, "values", split)
                message = f"no split named {split!r}. {hint(split, sorted(known_splits))}"
                faults.add(message, *keys, code=FaultCode.UNKNOWN_NAME)


def _declared_splits(spec: Spec) -> Iterator[str]:
    """Yield all splits that the spec names, including those of objectives and answer."""
    yield from spec.test_splits
    for objective in spec.objectives:
        yield declared_split(objective.metric, objective.split, spec.test_splits)
    if spec.answer is not None:
        for _, outcome in primary_outcomes(spec.answer):
            yield outcome_split(outcome, spec.answer.split, spec.test_splits)


def _check_value_ranges(spec: Spec, metrics: Sequence[Metric], faults: Faults) -> None:
    for place, row in enumerate(spec.published):
        low, high = (metric := look_up(metrics, row.metric)).span
        is_share, keys = (low, high) == (0, 1), ("published", place, "values")
        remedy = ": divide percentages by 100" if is_share else ""
        for split, entry in row.values.items():
            if not low <= entry.value <= high:
                range_text = "a share from 0 to 1" if is_share else _range_text(metric)
                requirement = f"must be {range_text}, like the metric {row.metric}"
                faults.add(f"{requirement}, got {format_value(entry.value)}{remedy}", *keys, split)
        for split, entry in row.values.items():
            if entry.std is not None and entry.std > high - low:
                requirement = f"must be at most {high - low:g}, the whole range of {row.metric}"
                faults.add(f"{requirement}, got {format_value(entry.std)}{remedy}", *keys, split, "std")


def _range_text(metric: Metric) -> str:
    """Return the range of a metric in words."""
    if metric.low is None or metric.high is None:
        return f"at least {metric.low:g}" if metric.low is not None else f"at most {metric.high:g}"
    return f"from {metric.low:g} to {metric.high:g}"


def _check_duplicates(spec: Spec, faults: Faults) -> None:
    """Add a fault for two published values of the same evaluation, since only one could be displayed."""
    place_by_key: dict[tuple[Any, ...], int] = {}
    for place, row in enumerate(spec.published):
        system_key = row.arm is None, row.name, _key(row.cell), _key(row.posthoc)
        for split in row.values:
            value_key = *system_key, row.metric, row.statistic, split
            if (earlier_place := place_by_key.setdefault(value_key, place)) != place:
                # Two papers may have measured the same system, but the report displays one value per arm.
                remedy = "" if row.arm is not None else ": distinguish papers by reference.variant"
                message = (
                    f"{row.metric} of {row.name} must be given once, also in "
                    f"published[{earlier_place}]{remedy}"
                )
                faults.add(message, "published", place, "values", split, code=FaultCode.DUPLICATE_KEY)


def _key(values: Mapping[str, Any]) -> frozenset[tuple[str, bool, Any]]:
    """Return a hashable key of values by path; 1 and 1.0 have the same key, True and 1 do not."""
    return frozenset((path, isinstance(value, bool), value) for path, value in values.items())


def _check_system_name(index: int, row: Published, spec: Spec, faults: Faults) -> None:
    """Add a fault for a published system named like an arm, since their rows would be indistinguishable."""
    if row.name in (BASELINE, *spec.arms):
        message = (
            f"must not have the name of the arm {row.name}: write arm: {row.name} if the row is of that arm, "
            "else distinguish it by reference.variant"
        )
        faults.add(message, "published", index, "reference", "system", code=FaultCode.CONFLICTING_FIELDS)


def _check_reevaluated_fields(
    index: int, row: Published, arms: Sequence[CheckedArm[Any]], faults: Faults
) -> None:
    """Add faults for rows with a posthoc field that the row's arm does not have."""
    row_arms = [arm for arm in arms if arm.request.label == row.arm]
    for path in row.posthoc:
        if row_arms and all(lookup(arm.system.settings, path) is MISSING for arm in row_arms):
            message = (
                f"{row.arm} has no field {path}, so no re-evaluation of it can be compared with the "
                "published value: leave the row out, or name the arm that it belongs to"
            )
            faults.add(message, "published", index, "posthoc", path, code=FaultCode.UNKNOWN_FIELD)


def _check_quantities(spec: Spec, baseline: BuiltInArm, probe: Probe, faults: Faults) -> None:
    if not spec.published:
        return
    try:
        reported_names = probe.metrics(baseline.system)
    except ValueError:
        return  # the ablation check refuses arms that cannot be run
    for place, row in enumerate(spec.published):
        for split in row.values:
            # Training metrics begin with train/. Metrics of all other splits equal those of validation.
            prefix = "train/" if split == "train" else "valid/"
            quantity_names = [name.removeprefix(prefix) for name in reported_names if name.startswith(prefix)]
            if row.metric not in quantity_names:
                split_text = " of train" if split == "train" else ""
                message = f"no quantity{split_text} named {row.metric!r}. {hint(row.metric, quantity_names)}"
                faults.add(message, "published", place, "metric", code=FaultCode.UNKNOWN_NAME)
