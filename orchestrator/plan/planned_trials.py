"""List every trial of a plan, with ids derived from content, so that a resumed sweep can look trials up.

The id of a search trial depends on the arm's content, the search settings and the trial number. So a larger
number of trials does not change the ids of the first ones. The id of a confirm trial also depends on the
number of search trials and on the limits of the search, since these determine the winner.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, product
from typing import Any, Final

from orchestrator.files.json_values import to_json_values
from orchestrator.identity import derive_seed, digest
from orchestrator.plan.crossing import crossed_pairs
from orchestrator.plan.types import Arm, ConfirmPlan, Limits, Plan, SearchPlan
from orchestrator.trials import PlannedTrial
from search_spaces.dimensions import Value
from search_spaces.grid import NAME, count_combinations, is_finite
from search_spaces.paths import MISSING, lookup, with_value

SEARCH: Final = "search"
CONFIRM: Final = "confirm"
CROSS: Final = "cross"
POSTHOC: Final = "posthoc"
MAX_INFEASIBLE_PER_TRIAL: Final = 10
"""Number of infeasible trials per planned search trial after which the search of an arm ends."""

Identity = dict[str, Any] | None
"""Settings that determine the confirmed assignment, apart from the arm's content."""
_EXHAUSTIVE_SAMPLERS = frozenset({NAME, "bruteforce", "BruteForceSampler"})


def planned_trials(
    arms: Sequence[Arm],
    search: SearchPlan | None,
    confirm: ConfirmPlan | None,
    posthoc: Sequence[Mapping[str, Value]],
    limits: Limits | None = None,
) -> Iterator[PlannedTrial]:
    """Yield all trials, sorted by phase, then by repeat, then by arm.

    Args:
        arms: All arms.
        search: Search settings; None without a search.
        confirm: Confirmation settings; None without confirmation.
        posthoc: Overrides of each re-evaluation.
        limits: Limits of the sweep, which are part of the ids of confirm trials.
    """
    cells = [*product(range(search.repeats if search is not None else 1), arms)]
    if search is not None:
        best = confirm.best if confirm is not None else 1
        for repeat, arm in cells:
            numbers = range(count_search_trials(arm, search, best, repeat))
            yield from (search_trial(arm, search, repeat, number) for number in numbers)
    if confirm is not None:
        identities = [
            (
                _winner_identity(arm, search, repeat, limits, confirm),
                confirm_ranks_and_seeds(confirm, search, repeat),
            )
            for repeat, arm in cells
        ]
        for (repeat, arm), (identity, pairs) in zip(cells, identities, strict=True):
            yield from _confirm_trials(arm, repeat, identity, pairs)
        if search is not None and confirm.cross:
            yield from _cross_trials(arms, search, confirm, limits)
        for (repeat, arm), (cell_identity, pairs) in zip(cells, identities, strict=True):
            overrides = posthoc_overrides(arm, posthoc)
            yield from _reevaluation_trials(arm, repeat, cell_identity, pairs, overrides)


def is_grid(sampler: Mapping[str, Any]) -> bool:
    """Return whether `sampler` tries every combination exactly once."""
    return bool(sampler["name"] == NAME)


def is_exhaustive_sampler(sampler: Mapping[str, Any]) -> bool:
    """Return whether `sampler` tries every combination once before it repeats any."""
    return str(sampler["name"]).removeprefix("optuna.samplers").lstrip(".:") in _EXHAUSTIVE_SAMPLERS


def count_search_trials(arm: Arm, search: SearchPlan, num_confirmed: int = 1, repeat: int = 0) -> int:
    """Return the number of search trials of a repeat of `arm`.

    An exhaustive sampler has at most as many trials as combinations; others have `trials_per_arm`.
    An arm without searched fields has one setting. It needs only `num_confirmed` trials, and none in later
    repeats if that is 1.
    """
    if repeat and num_confirmed == 1 and not arm.space.dimensions:
        return 0
    if not arm.is_searched:
        return min(search.trials_per_arm, num_confirmed)
    points = num_points(arm) if is_exhaustive_sampler(search.sampler) else None
    return search.trials_per_arm if points is None else min(search.trials_per_arm, points)


def num_points(arm: Arm) -> int | None:
    """Return the number of different assignments of a search of `arm`; None if it is infinite."""
    if not all(is_finite(dimension.domain) for dimension in arm.space.dimensions):
        return None
    return count_combinations(arm.space, arm.settings)


def search_root_seed(search: SearchPlan, repeat: int, arm: Arm | None = None) -> int:
    """Return the seed from which all seeds of one repeat of a search derive.

    It is the same in every arm, so that repeats are paired. A control has a different one, because otherwise
    its trials would be identical to those of the baseline.
    """
    root = derive_seed(search.seed, "repeat", repeat) if repeat else search.seed
    return derive_seed(root, "control", arm.name) if arm is not None and arm.control else root


def search_seed(search: SearchPlan, number: int, repeat: int = 0, arm: Arm | None = None) -> int:
    """Return the training seed of search trial `number` of `repeat`.

    The seed is the same in every arm except controls.
    """
    return derive_seed(search_root_seed(search, repeat, arm), SEARCH, number)


def confirm_seeds(listed_seeds: Sequence[int], repeats: int) -> tuple[int, ...]:
    """Return the confirm seeds of all repeats.

    The first repeat has the seeds `listed_seeds`, the others have derived seeds.
    """
    seed_set = dict.fromkeys(listed_seeds)
    for repeat, seed in product(range(1, repeats), listed_seeds):
        derived = (derive_seed("confirm", seed, "repeat", repeat, attempt) for attempt in count())
        seed_set[next(seed for seed in derived if seed not in seed_set)] = None
    return tuple(seed_set)


def confirm_ranks_and_seeds(
    confirm: ConfirmPlan, search: SearchPlan | None, repeat: int
) -> list[tuple[int, int]]:
    """Return rank and seed of all confirm trials of one repeat of an arm."""
    num_seeds = len(confirm.seeds) // (search.repeats if search is not None else 1)
    seeds = confirm.seeds[repeat * num_seeds : (repeat + 1) * num_seeds]
    return [*product(range(confirm.best), seeds)]


def with_data_seed(seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` with the data seed of one confirm seed; equal data seeds of arms remain equal."""
    path = "task.data_seed"
    return with_value(settings, path, derive_seed("data", lookup(settings, path), seed))


def posthoc_overrides(arm: Arm, posthoc: Sequence[Mapping[str, Value]]) -> list[Mapping[str, Value]]:
    """Return those entries of `posthoc` whose fields all exist in the settings of `arm`."""
    return [entry for entry in posthoc if all(lookup(arm.settings, path) is not MISSING for path in entry)]


def search_trial(arm: Arm, search: SearchPlan, repeat: int, number: int) -> PlannedTrial:
    """Return search trial `number` of a repeat of `arm`; it may replace an infeasible trial."""
    trial_id = digest(arm.digest, _identity(search, arm, repeat), SEARCH, number)
    seed = search_seed(search, number, repeat, arm)
    return PlannedTrial(trial_id, arm.name, SEARCH, number, seed, repeat=repeat)


def replacement_trials(plan: Plan) -> Iterator[PlannedTrial]:
    """Yield all trials that may replace infeasible search trials of `plan`."""
    if plan.search is None:
        return
    planned = Counter((trial.repeat, trial.arm) for trial in plan.trials if trial.phase == SEARCH)
    for (repeat, name), num_trials in planned.items():
        for number in range(num_trials, num_trials * (1 + MAX_INFEASIBLE_PER_TRIAL) + 1):
            yield search_trial(plan.arm(name), plan.search, repeat, number)


def _confirm_trials(
    arm: Arm, repeat: int, identity: Identity, pairs: Sequence[tuple[int, int]]
) -> Iterator[PlannedTrial]:
    for number, (rank, seed) in enumerate(pairs):
        trial_id = digest(arm.digest, identity, CONFIRM, rank, seed)
        yield PlannedTrial(trial_id, arm.name, CONFIRM, number, seed, rank, repeat=repeat)


def _cross_trials(
    arms: Sequence[Arm], search: SearchPlan, confirm: ConfirmPlan, limits: Limits | None
) -> Iterator[PlannedTrial]:
    """Yield trials of every arm with the winners of the arms with which it is compared."""
    pairs = [*crossed_pairs(arms)]
    for repeat, arm in product(range(search.repeats), arms):
        other_arms = [reference for first, reference in pairs if first.name == arm.name]
        other_arms += [first for first, reference in pairs if reference.name == arm.name]
        own_identity = _winner_identity(arm, search, repeat, limits, confirm)
        combinations = product(other_arms, confirm_ranks_and_seeds(confirm, search, repeat))
        for number, (other_arm, (rank, seed)) in enumerate(combinations):
            identity_parts = [other_arm.digest, _winner_identity(other_arm, search, repeat, limits, confirm)]
            name = digest(arm.digest, own_identity, CROSS, identity_parts, seed)
            trial = PlannedTrial(name, arm.name, CROSS, number, seed, rank, repeat=repeat)
            yield replace(trial, settings_of=other_arm.name)


def _reevaluation_trials(
    arm: Arm,
    repeat: int,
    identity: Identity,
    pairs: Sequence[tuple[int, int]],
    posthoc: Sequence[Mapping[str, Value]],
) -> Iterator[PlannedTrial]:
    for number, ((rank, seed), overrides) in enumerate(product(pairs, posthoc)):
        trial_id = digest(arm.digest, identity, POSTHOC, rank, seed, overrides)
        yield PlannedTrial(trial_id, arm.name, POSTHOC, number, seed, rank, overrides, repeat=repeat)


def _identity(search: SearchPlan, arm: Arm, repeat: int) -> dict[str, Any]:
    """Return the settings that determine a search, except for the arm's content and the number of trials."""
    first_points: dict[str, Any] = {"first": [dict(params) for params in arm.first]} if arm.first else {}
    first_points |= {"repeat": repeat} if repeat else {}
    return first_points | {
        "sampler": dict(search.sampler),
        "stopper": None if search.stopper is None else dict(search.stopper),
        "objectives": [
            [objective.metric, objective.goal, *([objective.scope] if objective.scope != "last" else [])]
            for objective in search.objectives
        ],
        "seed": search.seed,
    }


def _winner_identity(
    arm: Arm, search: SearchPlan | None, repeat: int, limits: Limits | None, confirm: ConfirmPlan
) -> Identity:
    """Return the settings that determine the winner and its data, except for the arm's content."""
    resampled = {"resample_data": True} if confirm.resample_data else {}
    if search is None:
        return resampled or None
    content = resampled | {**_identity(search, arm, repeat), "trials_per_arm": search.trials_per_arm}
    if limits is not None and limits.each_arm is not None:
        content["each_arm"] = to_json_values(limits.each_arm)
    return content
