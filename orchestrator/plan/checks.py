"""What a plan refuses beyond settings and spaces: samplers, stoppers, splits, seeds, posthoc settings."""

from collections.abc import Sequence
from math import prod

import torch

from orchestrator.plan.bench import Bench
from orchestrator.plan.cells import search_seed
from orchestrator.plan.faults import Faults
from orchestrator.plan.optuna_names import (
    ONE_OBJECTIVE_ONLY,
    SAMPLERS,
    Chosen,
    Refused,
    chosen_sampler,
    chosen_stopper,
)
from orchestrator.plan.resolve import Resolved
from orchestrator.plan.settings import checked, leaves
from orchestrator.plan.types import SearchPlan
from orchestrator.spec.types import Search, Spec
from search_spaces.dimensions import Value
from search_spaces.paths import MISSING, lookup, with_value
from search_spaces.wording import hint, shown
from trainables.assembly import build_model
from trainables.tasks import splits

_FIRST_RUNG = {
    "SuccessiveHalvingPruner": "min_resource",
    "HyperbandPruner": "min_resource",
    "MedianPruner": "n_warmup_steps",
    "PercentilePruner": "n_warmup_steps",
    "ThresholdPruner": "n_warmup_steps",
}
"""Keyword that says before which step a stopper lets every trial live."""


MOST_ARMS = 10_000
MOST_TRIALS = 1_000_000
"""A plan names every trial: beyond this it fits neither into memory nor into a lifetime."""
_WORSE = {"loss": "max"} | dict.fromkeys(
    ("accuracy", "accuracy_last", "accuracy_whole", "exact_match", "exact_match_floor"), "min"
)
"""Goals that nobody has: the search would choose the worst trial of every arm."""


def check_size(spec: Spec, faults: Faults) -> None:
    """A plan must be one that can be made. Raises `PlanError` at once if it is not: no more is looked at."""
    arms = (1 + len(spec.arms)) * prod(map(len, spec.grid.values()))
    if arms > MOST_ARMS:
        faults.add(
            f"must make at most {MOST_ARMS:,} arms of the baseline and all arms, got {arms:,}: "
            "leave some values out",
            "grid",
        )
    searched = spec.search.trials_per_arm if spec.search else 0
    seeds = spec.confirm.best * len(spec.confirm.seeds) if spec.confirm else 0
    trials = arms * (searched + seeds * (1 + sum(map(len, spec.posthoc.values()))))
    if trials > MOST_TRIALS >= arms:
        key = ("search", "trials_per_arm") if searched > seeds else ("confirm",)
        faults.add(
            f"must ask for at most {MOST_TRIALS:,} trials over all arms, got {trials:,}: ask for fewer", *key
        )
    faults.raise_if_any()


def check_samplers(spec: Spec, faults: Faults) -> Chosen | None:
    """Note what is wrong with sampler and stopper; the stopper, if there is one."""
    search = spec.search
    if search is None:
        return None
    name = search.sampler["name"]
    if len(search.objectives) > 1 and _class_name(str(name)) in ONE_OBJECTIVE_ONLY:
        faults.add(
            f"{name} searches for one objective, got {len(search.objectives)}: choose nsga2 or tpe",
            "search",
            "sampler",
        )
    try:
        chosen_sampler(search.sampler)
    except Refused as error:
        for refusal in error.refusals:
            faults.add(refusal.message, "search", "sampler", *filter(None, [refusal.keyword]))
    if search.stopper is None:
        return None
    try:
        return chosen_stopper(search.stopper)
    except Refused as error:
        for refusal in error.refusals:
            faults.add(refusal.message, "search", "stopper", *filter(None, [refusal.keyword]))
    return None


def _class_name(sampler: str) -> str:
    return SAMPLERS[sampler].class_name if sampler in SAMPLERS else sampler


def check_stopper(stopper: Chosen | None, arm: Resolved, faults: Faults) -> None:
    """A stopper that waits for longer than the training lasts stops nothing."""
    keyword = _FIRST_RUNG.get(stopper.class_name) if stopper is not None else None
    grace = stopper.keywords.get(keyword) if stopper is not None and keyword is not None else None
    if isinstance(grace, int) and grace >= arm.system.train.steps:
        faults.add(
            f"can never stop a trial of {arm.draft.name}: it waits for step {grace} "
            f"and train.steps is {arm.system.train.steps}",
            "search",
            "stopper",
            about=("stopper", arm.system.train.steps),
        )


def check_objectives(search: Search, baseline: Resolved, bench: Bench, faults: Faults) -> None:
    """Every objective must be a metric that trials report while searching."""
    try:
        known = bench.metrics(baseline.system)
    except ValueError:
        return  # what cannot be run is refused by the proof
    for place, objective in enumerate(search.objectives):
        if objective.metric not in known:
            faults.add(
                f"no metric named {objective.metric!r}. {hint(objective.metric, known)}",
                "search",
                "objectives",
                place,
                "metric",
            )
        elif objective.goal == (worse := _WORSE.get(objective.metric.rpartition("/")[2])):
            better = "min" if worse == "max" else "max"
            faults.add(
                f"must be {better}, got {worse}: the best {objective.metric} is not the "
                f"{'largest' if worse == 'max' else 'smallest'} one",
                "search",
                "objectives",
                place,
                "goal",
            )


def check_splits(spec: Spec, arm: Resolved, faults: Faults) -> None:
    """Every split to confirm on must be a test split of the arm's task."""
    if spec.confirm is None:
        return
    known = [each.name for each in splits(arm.system.task) if each.role == "test"]
    for place, name in enumerate(spec.confirm.splits):
        if name not in known:
            faults.add(
                f"the task {lookup(arm.system.settings, 'task.name')} has no test split {name!r}. "
                f"{hint(name, known)}",
                "confirm",
                "splits",
                place,
            )


def check_seeds(spec: Spec, search: SearchPlan | None, faults: Faults) -> None:
    """Seeds to confirm on must be unseen by the search."""
    if spec.confirm is None or search is None:
        return
    wanted = set(spec.confirm.seeds)
    for number in range(search.trials_per_arm):
        if (seed := search_seed(search, number)) in wanted:
            faults.add(
                f"must be unseen by the search, whose trial {number} has the seed {seed}: choose another",
                "confirm",
                "seeds",
                spec.confirm.seeds.index(seed),
            )


def check_published(spec: Spec, arms: Sequence[Resolved], bench: Bench, faults: Faults) -> None:
    """Published figures must stand beside a split and a quantity that are measured, in the same unit."""
    measured = {"valid", *(spec.confirm.splits if spec.confirm else ())}
    known = {each.name for arm in arms for each in splits(arm.system.task)} | measured
    for place, row in enumerate(spec.published):
        for split in row.values:
            if split not in known:
                keys = ("published", place, "values", split)
                faults.add(f"no split named {split!r}. {hint(split, sorted(known))}", *keys)
    _check_quantities(spec, arms[0], bench, faults)


def _check_quantities(spec: Spec, baseline: Resolved, bench: Bench, faults: Faults) -> None:
    if not spec.published:
        return
    try:
        reported = bench.metrics(baseline.system)
    except ValueError:
        return  # what cannot be run is refused by the proof
    known = [name.partition("/")[2] for name in reported if name.startswith("valid/")]
    seen: dict[tuple[str, str, str], int] = {}
    for place, row in enumerate(spec.published):
        for split in row.values:
            if (before := seen.setdefault((row.arm, row.metric, split), place)) != place:
                keys = ("published", place, "values", split)
                faults.add(
                    f"{row.metric} of {row.arm} must be given once, also in published[{before}]", *keys
                )
        if row.metric not in known:
            faults.add(
                f"no quantity named {row.metric!r}. {hint(row.metric, known)}", "published", place, "metric"
            )
        for split, value in row.values.items() if _WORSE.get(row.metric) == "min" else ():
            if not 0 <= value <= 1:
                keys = ("published", place, "values", split)
                faults.add(
                    f"must be a share from 0 to 1 as our {row.metric} is, got {shown(value)}: "
                    "divide percentages by 100",
                    *keys,
                )


def check_posthoc(spec: Spec, arms: Sequence[Resolved], faults: Faults) -> None:
    """Posthoc settings must exist in the baseline and leave every weight as it is."""
    for path, values in spec.posthoc.items():
        if lookup(arms[0].system.settings, path) is MISSING:
            known = [field for field, _ in leaves(arms[0].system.settings) if not field.startswith("train.")]
            faults.add(f"the baseline has no field {path}. {hint(path, known)}", "posthoc", path)
            continue
        for arm in arms:
            if lookup(arm.system.settings, path) is MISSING:
                continue
            for place, value in enumerate(values):
                if why := _unreadable(arm, path, value):
                    faults.add(f"{arm.draft.name} {why}", "posthoc", path, place, about=(path, place, why))


def _unreadable(arm: Resolved, path: str, value: Value) -> str | None:
    """Why a checkpoint of `arm` cannot be read with `value` at `path`, said of the arm."""
    found = checked(with_value(arm.system.settings, path, value))
    if isinstance(found, list):
        told = "; ".join(problem.message for problem in found)
        return f"cannot have {path} = {shown(value)}: {told}"
    meta = torch.device("meta")
    before = build_model(arm.system.model, arm.system.shape, 0, meta).state_dict()
    try:
        after = build_model(found.model, found.shape, 0, meta).state_dict()
    except ValueError as error:
        return f"cannot be built with {path} = {shown(value)}: {error}"
    if {name: tensor.shape for name, tensor in before.items()} != {
        name: tensor.shape for name, tensor in after.items()
    }:
        return (
            f"has other weights with {path} = {shown(value)}, "
            "so a trained checkpoint cannot be read with it: make it an arm"
        )
    return None
