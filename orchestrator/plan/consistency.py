"""Check that a plan read from a file can be run, even if it was edited or comes from another program."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orchestrator.plan.types import Plan
from search_spaces.paths import with_value

MAX_PLANNED_ARMS = 10_000
MAX_PLANNED_TRIALS = 1_000_000
"""Maximum number of trials; a plan lists every trial, so larger plans exceed memory and any runtime."""
PUBLISHED_KEYS = ("arm", "split", "metric", "value")
"""Required keys of a published row."""


def check_consistency(plan: Plan) -> None:
    """Raise ValueError for the first inconsistency of a plan."""
    for fault in _faults(plan):
        raise ValueError(fault)


def _faults(plan: Plan) -> Iterator[str]:
    if not plan.name or not plan.arms:
        yield f"a plan must have a name and arms, got the name {plan.name!r} and {len(plan.arms)} arms"
    if len(plan.arms) > MAX_PLANNED_ARMS or len(plan.trials) > MAX_PLANNED_TRIALS:
        yield (
            f"a plan must have at most {MAX_PLANNED_ARMS:,} arms and {MAX_PLANNED_TRIALS:,} trials, got "
            f"{len(plan.arms):,} and {len(plan.trials):,}"
        )
    if 2 ** len(plan.factors) > MAX_PLANNED_ARMS:
        yield f"every combination of factors must be an arm, got {len(plan.factors)} factors"
    yield from _duplicate_faults("arms", (arm.name for arm in plan.arms))
    yield from _duplicate_faults("trials", (trial.trial_id for trial in plan.trials))
    names = {arm.name for arm in plan.arms}
    for arm in plan.arms:
        if arm.reference and arm.reference not in names:
            yield f"an arm must be compared with an arm of the plan, got {arm.reference!r} for {arm.name}"
        unconditional_paths = (dimension.path for dimension in arm.space.dimensions if not dimension.when)
        yield from _unsettable_paths(arm.name, arm.settings, unconditional_paths)
    if plan.search is not None:
        components = [plan.search.sampler]
        if plan.search.stopper is not None:
            components.append(plan.search.stopper)
        are_named = all(isinstance(component.get("name"), str) for component in components)
        if not plan.search.objectives or not are_named:
            yield "a search must have objectives, and a sampler and a stopper by name"
    if plan.confirm is not None and (plan.repeats < 1 or len(plan.confirm.seeds) % plan.repeats):
        num_seeds = len(plan.confirm.seeds)
        yield f"every repeat must have as many seeds, got {num_seeds} for {plan.repeats} repeats"
    for row in plan.published:
        if any(key not in row for key in PUBLISHED_KEYS) or not isinstance(row["value"], int | float):
            yield f"a published row must have {', '.join(PUBLISHED_KEYS)}, got {dict(row)}"
    yield from _trial_faults(plan, names)


def _trial_faults(plan: Plan, arms: set[str]) -> Iterator[str]:
    yield from _duplicate_faults(
        "trials", ((trial.arm, trial.phase, trial.repeat, trial.number) for trial in plan.trials)
    )
    has_plan_by_phase = {"search": plan.search is not None}
    confirmed: set[tuple[str, int, int]] = set()
    for trial in plan.trials:
        has_phase = has_plan_by_phase.get(trial.phase, plan.confirm is not None)
        if trial.arm not in arms or trial.number < 0 or not has_phase:
            yield f"a trial must be of an arm and a phase of the plan, got {trial}"
        if not 0 <= trial.repeat < plan.repeats:
            yield f"a trial must be of a repeat below {plan.repeats}, got {trial}"
        if trial.phase == "search":
            continue
        if trial.rank is None or plan.confirm is None or not 0 <= trial.rank < plan.confirm.best:
            yield f"a trial after the search must have a rank below confirm.best, got {trial}"
            continue
        confirmation = (trial.arm, trial.rank, trial.seed)
        if trial.phase == "confirm" and confirmation in confirmed:
            yield f"a rank is confirmed once with each seed, got {trial} again"
        if trial.phase == "confirm":
            confirmed.add(confirmation)
    settings = {arm.name: arm.settings for arm in plan.arms}
    for trial in plan.trials:
        if (trial.phase == "cross") != (trial.settings_of in arms):
            yield f"only a trial of the phase cross must have the settings of another arm, got {trial}"
        yield from _unsettable_paths(trial.arm, settings[trial.arm], trial.overrides)
        if trial.phase == "posthoc" and (trial.arm, trial.rank, trial.seed) not in confirmed:
            yield f"a posthoc trial must have a confirm trial to re-evaluate, got {trial}"
        are_late_splits_valid = trial.phase == "posthoc" and set(trial.late_splits) <= set(plan.test_splits)
        if trial.late_splits and not are_late_splits_valid:
            yield f"late splits must be of confirm, in a posthoc trial, got {trial}"


def _duplicate_faults(subject: str, keys: Iterable[Any]) -> Iterator[str]:
    yield from (f"{subject} must be unique, got {key!r} twice" for key, n in Counter(keys).items() if n > 1)


def _unsettable_paths(arm: str, settings: Mapping[str, Any], paths: Iterable[str]) -> Iterator[str]:
    """Yield a message for every path at which no value can be set."""
    for path in paths:
        try:
            with_value(settings, path, None)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            yield f"the settings of {arm} must have a place for {path}: {error}"
