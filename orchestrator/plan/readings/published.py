"""What a plan refuses of published values: each must belong to one reading of ours, in its unit."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.answer import primary_outcomes
from orchestrator.plan.arms import BuiltInArm, CheckedArm
from orchestrator.plan.faults import Faults
from orchestrator.spec.checks import BASELINE
from orchestrator.spec.metric_splits import SELECTION_SPLIT, declared_split, outcome_split
from orchestrator.spec.types import Published, Spec
from search_spaces.paths import MISSING, lookup
from search_spaces.wording import hint, shown
from trainables.metrics import Metric, look_up
from trainables.task_catalog import splits


def check_built_in(
    spec: Spec, arms: Sequence[BuiltInArm], probe: Probe, metrics: Sequence[Metric], faults: Faults
) -> None:
    """As `check_published`; of models and tasks of the box it is known what they measure."""
    check_published(
        spec, arms, [each.name for arm in arms for each in splits(arm.system.task)], metrics, faults
    )
    _check_quantities(spec, arms[0], probe, faults)


def check_published(
    spec: Spec,
    arms: Sequence[CheckedArm[Any]],
    named: Iterable[str],
    metrics: Sequence[Metric],
    faults: Faults,
) -> None:
    """Published values must be told apart, and stand beside a reading of their arm, on a split that is
    measured or among those `named`, and lie where values of the quantity can."""
    _check_splits(spec, named, faults)
    _check_spans(spec, metrics, faults)
    _check_distinct(spec, faults)
    for place, row in enumerate(spec.published):
        if row.arm is None:
            _check_system(place, row, spec, faults)
        else:
            _check_read_again(place, row, arms, faults)


def _check_splits(spec: Spec, named: Iterable[str], faults: Faults) -> None:
    known = {SELECTION_SPLIT, *named, *_declared_splits(spec)}
    for place, row in enumerate(spec.published):
        for split in row.values:
            if split not in known:
                keys = ("published", place, "values", split)
                faults.add(f"no split named {split!r}. {hint(split, sorted(known))}", *keys)


def _declared_splits(spec: Spec) -> Iterator[str]:
    """Return all splits that the spec names, those of objectives and answer included."""
    tests = spec.confirm.splits if spec.confirm else ()
    yield from tests
    for objective in spec.search.objectives if spec.search else ():
        yield declared_split(objective.metric, objective.split, tests)
    for _, outcome in primary_outcomes(spec.answer) if spec.answer else ():
        yield outcome_split(outcome, spec.answer.split if spec.answer else None, tests)


def _check_spans(spec: Spec, metrics: Sequence[Metric], faults: Faults) -> None:
    for place, row in enumerate(spec.published):
        low, high = (known := look_up(metrics, row.metric)).span
        for split, value in ((split, each.value) for split, each in row.values.items()):
            if low <= value <= high:
                continue
            what = f"a share from {low:g} to {high:g}" if (low, high) == (0, 1) else _between(known)
            remedy = ": divide percentages by 100" if (low, high) == (0, 1) else ""
            keys = ("published", place, "values", split)
            faults.add(f"must be {what} as our {row.metric} is, got {shown(value)}{remedy}", *keys)
        for split, std in ((split, each.std) for split, each in row.values.items()):
            if std is not None and std > high - low:
                remedy = ": divide percentages by 100" if (low, high) == (0, 1) else ""
                wanted = f"must be at most {high - low:g}, how far values of {row.metric} can lie apart"
                faults.add(
                    f"{wanted}, got {shown(std)}{remedy}", *("published", place, "values", split, "std")
                )


def _between(metric: Metric) -> str:
    """In words, between what values of a quantity lie."""
    if metric.low is None or metric.high is None:
        return f"at least {metric.low:g}" if metric.low is not None else f"at most {metric.high:g}"
    return f"from {metric.low:g} to {metric.high:g}"


def _check_distinct(spec: Spec, faults: Faults) -> None:
    """Of two values of one reading only one could be shown."""
    seen: dict[tuple[Any, ...], int] = {}
    for place, row in enumerate(spec.published):
        whose = row.arm is None, row.name, _key(row.cell), _key(row.posthoc)
        for split in row.values:
            belongs = *whose, row.metric, row.statistic, split
            if (before := seen.setdefault(belongs, place)) != place:
                # Two papers may have measured one system; beside an arm only one value can stand.
                remedy = "" if row.arm is not None else ": tell papers apart by reference.variant"
                faults.add(
                    f"{row.metric} of {row.name} must be given once, also in published[{before}]{remedy}",
                    *("published", place, "values", split),
                )


def _key(values: Mapping[str, Any]) -> frozenset[tuple[str, bool, Any]]:
    """Of values by path, what is equal exactly where each two of them are `same`: 1 as 1.0, True not as 1."""
    return frozenset((path, isinstance(value, bool), value) for path, value in values.items())


def _check_system(place: int, row: Published, spec: Spec, faults: Faults) -> None:
    """A system that no arm is must not be called as one: their rows would have one name."""
    if row.name in (BASELINE, *spec.arms):
        faults.add(
            f"must not be called as the arm {row.name} is: write arm: {row.name} if the row is of that arm, "
            "else tell it apart by reference.variant",
            *("published", place, "reference", "system"),
        )


def _check_read_again(place: int, row: Published, arms: Sequence[CheckedArm[Any]], faults: Faults) -> None:
    """An arm without a field is not read again with values of it."""
    own = [arm for arm in arms if arm.request.label == row.arm]
    for path in row.posthoc:
        if own and all(lookup(arm.system.settings, path) is MISSING for arm in own):
            faults.add(
                f"{row.arm} has no field {path}, so that it is never read again with one and the value would "
                "stand beside nothing: leave the row out, or give the arm that it belongs to",
                *("published", place, "posthoc", path),
            )


def _check_quantities(spec: Spec, baseline: BuiltInArm, probe: Probe, faults: Faults) -> None:
    if not spec.published:
        return
    try:
        reported = probe.metrics(baseline.system)
    except ValueError:
        return  # what cannot be run is refused by the proof
    for place, row in enumerate(spec.published):
        for split in row.values:
            # What is measured in training is known by its own name, of any other split by validation.
            measured = "train/" if split == "train" else "valid/"
            known = [name.removeprefix(measured) for name in reported if name.startswith(measured)]
            if row.metric not in known:
                of_training = " of train" if split == "train" else ""
                faults.add(
                    f"no quantity{of_training} named {row.metric!r}. {hint(row.metric, known)}",
                    *("published", place, "metric"),
                )
