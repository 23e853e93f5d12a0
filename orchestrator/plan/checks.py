"""Check samplers, stoppers, splits, seeds and device settings of a spec."""

from collections.abc import Callable, Sequence
from itertools import product
from math import ceil, isfinite
from typing import TYPE_CHECKING, Final

from orchestrator.errors import FaultCode
from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.faults import Faults
from orchestrator.plan.planned_trials import confirm_seeds, search_seed
from orchestrator.plan.space_check.spaces import common_space
from orchestrator.plan.types import SearchPlan
from orchestrator.spec.types import Search, Spec
from orchestrator.trials import numbered
from search_spaces.dimensions import Choice
from search_spaces.wording import hint
from trainables.metrics import Metric, look_up
from trainables.settings import Settings
from trainables.task_catalog import splits, task_name
from trainables.training.config import ON_CUDA

if TYPE_CHECKING:
    from orchestrator.search.samplers import ComponentChoice  # this import loads Optuna


_GPU_SETTINGS: Final[Sequence[tuple[str, object, str, str]]] = (
    *(("precision", precision, precision, "choose bf16 or fp32") for precision in ON_CUDA),
    ("graph", True, "graph: true", "drop train.graph"),
)
"""Training fields with the value that requires a GPU, its name in messages, and the alternative."""


def check_samplers(search: Search, faults: Faults) -> "ComponentChoice | None":
    """Create sampler and stopper, try them, and add their faults; return the stopper or None."""
    from orchestrator.search.sampler_check import Component, check_sampler, check_stopper, run_check
    from orchestrator.search.samplers import RANDOM_TRIAL_KEYWORDS

    def add_refusals(component: str, check: "Callable[[], Component]") -> "Component | None":
        checked, refusals = run_check(check)
        for refusal in refusals:
            faults.add(refusal.message, "search", component, *filter(None, [refusal.keyword]))
        return checked

    sampler, stopper = search.sampler, search.stopper
    space = [dimension.domain for dimension in common_space(search).dimensions]
    add_refusals("sampler", lambda: check_sampler(sampler, len(search.objectives), space))
    for keyword in RANDOM_TRIAL_KEYWORDS:
        if isinstance(num_trials := sampler.get(keyword), int) and num_trials >= search.trials_per_arm > 1:
            message = (
                f"must be less than trials_per_arm, {search.trials_per_arm}, got {num_trials}: otherwise "
                "the sampler draws every trial at random"
            )
            faults.add(message, "search", "sampler", keyword, code=FaultCode.CONFLICTING_FIELDS)
    return None if stopper is None else add_refusals("stopper", lambda: check_stopper(stopper))


def check_stopper(
    stopper: "ComponentChoice | None",
    search: Search,
    arm: BuiltInArm,
    metrics: Sequence[Metric],
    faults: Faults,
) -> None:
    """Add a fault for a stopper that can never stop a trial."""
    if stopper is not None and (reason := _reason_never_stopping(stopper, search, arm, metrics)):
        message = f"can never stop a trial of {arm.name}: {reason}"
        subject = ("stopper", arm.system.train.steps, arm.system.train.report_every)
        faults.add(message, "search", "stopper", about=subject, code=FaultCode.CONFLICTING_FIELDS)


def _reason_never_stopping(
    stopper: "ComponentChoice", search: Search, arm: BuiltInArm, metrics: Sequence[Metric]
) -> str | None:
    """Return why `stopper` can never stop a trial; None if it can.

    A stopper is idle if it waits longer than the training or search lasts, or if its bounds exceed all values
    of the objective.
    """
    from orchestrator.search.samplers import stopper_patience

    steps, steps_between_reports = arm.system.train.steps, arm.system.train.report_every
    conditions, reason = stopper_patience(stopper), None
    grace, metric = conditions.steps, search.objectives[0].metric
    low, high = look_up(metrics, metric).span
    if grace >= steps:
        reason = f"it waits for step {grace} and train.steps is {steps}"
    elif steps_between_reports >= steps:
        reason = f"a trial is measured only once, at its last step, {steps}; lower train.report_every"
    elif steps_between_reports * max(1, ceil(grace / steps_between_reports)) >= steps:
        reason = (
            f"it reports every {steps_between_reports} steps, and its first report"
            f"{f' from step {grace} on' if grace else ''} is at its last step, {steps}; "
            "lower train.report_every"
        )
    elif conditions.trials >= search.trials_per_arm:
        reason = (
            f"it waits for {conditions.trials} trials, and trials_per_arm is {search.trials_per_arm}; let "
            "it wait for fewer, or let every trial run to its end (stopper: null)"
        )
    elif conditions.never_stops:
        reason = "percentile 100 stops no trial; lower it"
    elif conditions.bounds and conditions.bounds[0] <= low and conditions.bounds[1] >= high:
        named_bounds = zip(("below", "above"), conditions.bounds, strict=True)
        bounds_text = " or ".join(
            f"{bound_name} {end:g}" for bound_name, end in named_bounds if isfinite(end)
        )
        reason = f"{metric} is never {bounds_text}; narrow its bounds"
    return reason


def check_gpu_settings(spec: Spec, arm: BuiltInArm, faults: Faults) -> None:
    """Add faults for precisions and CUDA graphs that require a GPU if trials have no GPU."""
    if spec.resources.gpus:
        return
    for field, value, written_value, remedy in _GPU_SETTINGS:
        path = f"train.{field}"
        dimensions = () if spec.search is None or path in arm.request.drop else spec.search.also
        ranges = [dimension.domain for dimension in dimensions if dimension.path == path]
        is_drawn = any(isinstance(domain, Choice) and value in domain.values for domain in ranges)
        if not is_drawn and getattr(arm.system.train, field) != value:
            continue
        is_set_by_arm = path in arm.request.changes or path in arm.request.cell
        keys = arm.request.keys(path) if is_set_by_arm else ("baseline", "train", field)
        keys = ("search", "also", path) if is_drawn else keys
        message = (
            f"{written_value} must run on a CUDA device, and resources.gpus is 0: give each trial one or a "
            f"part of it (resources.gpus: 0.25), or {remedy}"
        )
        faults.add(message, *keys, about=(field, *keys), code=FaultCode.CONFLICTING_FIELDS)


def check_ranks(spec: Spec, arm: BuiltInArm, faults: Faults) -> None:
    """Add a fault if the number of ranks differs from the number of GPUs of a trial."""
    gpus, ranks, keys = spec.resources.gpus, arm.system.train.ranks, arm.request.keys("train.ranks")
    if gpus and ranks != max(1, gpus):
        message = (
            f"train.ranks must be the GPUs of a trial, got ranks={ranks} and resources.gpus={gpus:g} in "
            f"{arm.name}: leave train.ranks out and set resources.gpus"
        )
        faults.add(message, *keys, about=("ranks", *keys), code=FaultCode.CONFLICTING_FIELDS)


def check_splits(spec: Spec, task: Settings, faults: Faults) -> None:
    """Add a fault for each confirm split that is not a test split of the task."""
    if spec.confirm is None:
        return
    test_splits = [split.name for split in splits(task) if split.role == "test"]
    for place, name in enumerate(spec.confirm.splits):
        if name not in test_splits:
            message = f"the task {task_name(task)} has no test split {name!r}. {hint(name, test_splits)}"
            faults.add(message, "confirm", "splits", place, code=FaultCode.UNKNOWN_NAME)


def check_seeds(spec: Spec, search: SearchPlan | None, faults: Faults) -> None:
    """Add a fault for each confirm seed that the search uses, too."""
    if spec.confirm is None or search is None:
        return
    confirm_seeds_listed = spec.confirm.seeds
    places = {seed: place for place, seed in enumerate(confirm_seeds(confirm_seeds_listed, search.repeats))}
    for repeat, number in product(range(search.repeats), range(search.trials_per_arm)):
        if (seed := search_seed(search, number, repeat)) in places:
            message = (
                f"must be unseen by the search, whose trial {numbered(repeat, number)} has the seed {seed}: "
                "choose another"
            )
            keys = ("confirm", "seeds", places[seed] % len(confirm_seeds_listed))
            faults.add(message, *keys, code=FaultCode.CONFLICTING_FIELDS)
