"""Every trial of a plan, each with an id made from content alone, so that resuming is a look-up.

A search trial's id knows the arm's content, how it is searched, and its number: more trials leave the ids of
the first ones as they are. A confirm trial's id knows the number of trials its winner was chosen from, and
what may end the search before, since that decides what is confirmed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from orchestrator.identity import derive_seed, digest
from orchestrator.json_values import to_json_values
from orchestrator.plan.types import Arm, ConfirmPlan, Limits, Plan, SearchPlan
from orchestrator.trials import PlannedTrial
from search_spaces.dimensions import Fixed, Value
from search_spaces.grid import NAME, count_combinations, is_finite
from search_spaces.paths import MISSING, lookup

SEARCH: Final = "search"
CONFIRM: Final = "confirm"
POSTHOC: Final = "posthoc"
INFEASIBLE_MAX: Final = 10
"""Number of infeasible trials per planned search trial after which the search of an arm ends."""


_EXHAUSTIVE = frozenset({NAME, "bruteforce", "BruteForceSampler"})


def planned_trials(
    arms: Sequence[Arm],
    search: SearchPlan | None,
    confirm: ConfirmPlan | None,
    posthoc: Sequence[Mapping[str, Value]],
    limits: Limits | None = None,
) -> Iterator[PlannedTrial]:
    """All trials: phase by phase, in each phase arm by arm."""
    if search is not None:
        seeds = [search_seed(search, number) for number in range(search.trials_per_arm)]
        for arm in arms:
            yield from _searched(arm, search, seeds, confirm.best if confirm is not None else 1)
    if confirm is not None:
        for arm in arms:
            yield from _confirmed(arm, search, confirm, limits)
        for arm in arms:
            yield from _reread(arm, search, confirm, posthoc, limits)


def is_grid(sampler: Mapping[str, Any]) -> bool:
    """Whether `sampler` of a search tries every combination, each once."""
    return bool(sampler["name"] == NAME)


def tries_each_once(sampler: Mapping[str, Any]) -> bool:
    """Whether `sampler` tries every combination once before it repeats one, and the space can be counted."""
    return str(sampler["name"]).removeprefix("optuna.samplers").lstrip(".:") in _EXHAUSTIVE


def num_searched(arm: Arm, search: SearchPlan, best: int = 1) -> int:
    """Search trials of `arm`: as many as are asked for, but no combination twice where each is tried once.

    An arm that searches nothing has one setting, so that nothing is chosen: as many as are confirmed.
    """
    if all(isinstance(each.domain, Fixed) for each in arm.space.dimensions):
        return min(search.trials_per_arm, best)
    points = num_points(arm) if tries_each_once(search.sampler) else None
    return search.trials_per_arm if points is None else min(search.trials_per_arm, points)


def num_points(arm: Arm) -> int | None:
    """Different assignments that a search of `arm` can try; None where they cannot be counted."""
    if not all(is_finite(each.domain) for each in arm.space.dimensions):
        return None
    return count_combinations(arm.space, arm.settings)


def search_seed(search: SearchPlan, number: int) -> int:
    """Seed of search trial `number`, the same in every arm."""
    return derive_seed(search.seed, SEARCH, number)


def rereads(arm: Arm, posthoc: Sequence[Mapping[str, Value]]) -> list[Mapping[str, Value]]:
    """The posthoc settings that `arm` can be read under: an arm without the field has nothing to read."""
    return [
        overrides
        for overrides in posthoc
        if all(lookup(arm.settings, path) is not MISSING for path in overrides)
    ]


def _searched(arm: Arm, search: SearchPlan, seeds: Sequence[int], best: int) -> Iterator[PlannedTrial]:
    identity = _identity(search, arm)
    for number, seed in enumerate(seeds[: num_searched(arm, search, best)]):
        yield _search_trial(arm, identity, number, seed)


def _search_trial(arm: Arm, identity: Mapping[str, Any], number: int, seed: int) -> PlannedTrial:
    trial_id = digest(arm.digest, identity, SEARCH, number)
    return PlannedTrial(trial_id, arm.name, SEARCH, number, seed)


def replacement(arm: Arm, search: SearchPlan, number: int) -> PlannedTrial:
    """Return search trial `number` of `arm`, which replaces an infeasible trial."""
    return _search_trial(arm, _identity(search, arm), number, search_seed(search, number))


def replacements(plan: Plan) -> Iterator[PlannedTrial]:
    """Yield all trials that may replace infeasible search trials of `plan`."""
    planned = Counter(each.arm for each in plan.trials if each.phase == SEARCH)
    for arm in plan.arms if plan.search is not None else ():
        assert plan.search is not None
        for number in range(planned[arm.name], planned[arm.name] * (1 + INFEASIBLE_MAX) + 1):
            yield replacement(arm, plan.search, number)


def _confirmed(
    arm: Arm, search: SearchPlan | None, confirm: ConfirmPlan, limits: Limits | None
) -> Iterator[PlannedTrial]:
    identity = _chosen_from(search, arm, limits)
    pairs = ((rank, seed) for rank in range(confirm.best) for seed in confirm.seeds)
    for number, (rank, seed) in enumerate(pairs):
        trial_id = digest(arm.digest, identity, CONFIRM, rank, seed)
        yield PlannedTrial(trial_id, arm.name, CONFIRM, number, seed, rank)


def _reread(
    arm: Arm,
    search: SearchPlan | None,
    confirm: ConfirmPlan,
    posthoc: Sequence[Mapping[str, Value]],
    limits: Limits | None,
) -> Iterator[PlannedTrial]:
    identity = _chosen_from(search, arm, limits)
    known = rereads(arm, posthoc)
    cells = ((rank, seed, each) for rank in range(confirm.best) for seed in confirm.seeds for each in known)
    for number, (rank, seed, overrides) in enumerate(cells):
        trial_id = digest(arm.digest, identity, POSTHOC, rank, seed, overrides)
        yield PlannedTrial(trial_id, arm.name, POSTHOC, number, seed, rank, overrides)


def _identity(search: SearchPlan, arm: Arm) -> dict[str, Any]:
    """What the course of a search follows from, but for the arm's content and the number of trials."""
    first = {"first": [dict(each) for each in arm.first]} if arm.first else {}
    return first | {
        "sampler": dict(search.sampler),
        "stopper": None if search.stopper is None else dict(search.stopper),
        "objectives": [
            [each.metric, each.goal, *([each.scope] if each.scope != "last" else [])]
            for each in search.objectives
        ],
        "seed": search.seed,
    }


def _chosen_from(search: SearchPlan | None, arm: Arm, limits: Limits | None) -> dict[str, Any] | None:
    """What decides which assignment is confirmed, but for the arm's content."""
    if search is None:
        return None
    found = {**_identity(search, arm), "trials_per_arm": search.trials_per_arm}
    if limits is not None and limits.each_arm is not None:
        found["each_arm"] = to_json_values(limits.each_arm)
    return found
