"""Check that a plan read from a file can be run, even if it was edited or comes from another program."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orchestrator.plan.types import Plan
from search_spaces.paths import with_value

MOST_ARMS = 10_000
MOST_TRIALS = 1_000_000
"""Maximum number of trials; a plan lists every trial, so larger plans exceed memory and any runtime."""
PUBLISHED = ("arm", "split", "metric", "value")
"""Required keys of a published row."""


def check_consistency(plan: Plan) -> None:
    """Raise ValueError for the first inconsistency of a plan."""
    for fault in _faults(plan):
        raise ValueError(fault)


def _faults(plan: Plan) -> Iterator[str]:
    if not plan.name or not plan.arms:
        yield f"a plan must have a name and arms, got the name {plan.name!r} and {len(plan.arms)} arms"
    if len(plan.arms) > MOST_ARMS or len(plan.trials) > MOST_TRIALS:
        yield (
            f"a plan must have at most {MOST_ARMS:,} arms and {MOST_TRIALS:,} trials, got {len(plan.arms):,} "
            f"and {len(plan.trials):,}"
        )
    if 2 ** len(plan.factors) > MOST_ARMS:
        yield f"every combination of factors must be an arm, got {len(plan.factors)} factors"
    yield from _repeated("arms", (each.name for each in plan.arms))
    yield from _repeated("trials", (each.trial_id for each in plan.trials))
    names = {each.name for each in plan.arms}
    for arm in plan.arms:
        if arm.reference and arm.reference not in names:
            yield f"an arm must be compared with an arm of the plan, got {arm.reference!r} for {arm.name}"
        always = (each.path for each in arm.space.dimensions if not each.when)
        yield from _unsettable(arm.name, arm.settings, always)
    if plan.search is not None:
        named = [plan.search.sampler, *([plan.search.stopper] if plan.search.stopper is not None else [])]
        if not plan.search.objectives or not all(isinstance(each.get("name"), str) for each in named):
            yield "a search must have objectives, and a sampler and a stopper by name"
    if plan.confirm is not None and (plan.repeats < 1 or len(plan.confirm.seeds) % plan.repeats):
        given = len(plan.confirm.seeds)
        yield f"every repeat must have as many seeds, got {given} for {plan.repeats} repeats"
    for row in plan.published:
        if any(key not in row for key in PUBLISHED) or not isinstance(row["value"], int | float):
            yield f"a published row must have {', '.join(PUBLISHED)}, got {dict(row)}"
    yield from _of_trials(plan, names)


def _of_trials(plan: Plan, arms: set[str]) -> Iterator[str]:
    yield from _repeated("trials", ((each.arm, each.phase, each.repeat, each.number) for each in plan.trials))
    of_phase = {"search": plan.search is not None}
    confirmed: set[tuple[str, int, int]] = set()
    for each in plan.trials:
        if each.arm not in arms or each.number < 0 or not of_phase.get(each.phase, plan.confirm is not None):
            yield f"a trial must be of an arm and a phase of the plan, got {each}"
        if not 0 <= each.repeat < plan.repeats:
            yield f"a trial must be of a repeat below {plan.repeats}, got {each}"
        if each.phase == "search":
            continue
        if each.rank is None or plan.confirm is None or not 0 <= each.rank < plan.confirm.best:
            yield f"a trial after the search must have a rank below confirm.best, got {each}"
            continue
        place = (each.arm, each.rank, each.seed)
        if each.phase == "confirm" and place in confirmed:
            yield f"a rank is confirmed once with each seed, got {each} again"
        if each.phase == "confirm":
            confirmed.add(place)
    settings = {each.name: each.settings for each in plan.arms}
    for each in plan.trials:
        if (each.phase == "cross") != (each.settings_of in arms):
            yield f"a trial of the phase cross alone must be at the settings of another arm, got {each}"
        yield from _unsettable(each.arm, settings[each.arm], each.overrides)
        if each.phase == "posthoc" and (each.arm, each.rank, each.seed) not in confirmed:
            yield f"a posthoc trial must have a confirm trial to read again, got {each}"
        known = plan.confirm.splits if plan.confirm is not None else ()
        if each.late_splits and (each.phase != "posthoc" or not set(each.late_splits) <= set(known)):
            yield f"late splits must be those of a posthoc trial and of confirm, got {each}"


def _repeated(what: str, keys: Iterable[Any]) -> Iterator[str]:
    yield from (f"{what} must be unique, got {key!r} twice" for key, n in Counter(keys).items() if n > 1)


def _unsettable(arm: str, settings: Mapping[str, Any], paths: Iterable[str]) -> Iterator[str]:
    """Yield a message for every path at which no value can be set."""
    for path in paths:
        try:
            with_value(settings, path, None)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            yield f"the settings of {arm} must have a place for {path}: {error}"
