"""Check and describe the budget of a spec: limits on device hours, FLOPs, targets and patience."""

from collections.abc import Iterable, Iterator, Sequence

from orchestrator.errors import FaultCode
from orchestrator.plan.display.format import format_amount
from orchestrator.plan.faults import Faults
from orchestrator.plan.planned_trials import CONFIRM, CROSS, SEARCH
from orchestrator.plan.types import Arm, ArmEstimate, ArmLimits, Limits, Plan, SearchPlan
from orchestrator.spec.scopes import counted_name
from orchestrator.spec.types import Spec
from search_spaces.dimensions import Fixed
from search_spaces.wording import amount as count
from search_spaces.wording import format_value
from trainables.metrics import TRAIN_FLOPS, Metric, look_up, split_and_quantity


def sweep_limits(spec: Spec) -> Limits | None:
    """Return the limits of `spec` other than wall clock; None if it has none."""
    budget = spec.budget
    if budget is None:
        return None
    limits = ArmLimits(**dict(budget.each_arm)) if budget.each_arm is not None else None
    other_limits = Limits(budget.device_hours, budget.flops, limits)
    return None if other_limits == Limits() else other_limits


def check_budget(spec: Spec, trainable: str | None, metrics: Iterable[Metric], faults: Faults) -> None:
    """Add faults for FLOPs limits without reported FLOPs, and for targets that the objective cannot have."""
    limits, known_metrics = sweep_limits(spec), tuple(metrics)
    if limits is None:
        return
    split, quantity = split_and_quantity(TRAIN_FLOPS)
    is_declared = any(metric.name == quantity and metric.split in ("", split) for metric in known_metrics)
    arm_limits = limits.each_arm or ArmLimits()
    for keys, limit in (("flops",), limits.flops), (("each_arm", "flops"), arm_limits.flops):
        if limit is not None and trainable is not None and not is_declared:
            message = (
                f"requires {TRAIN_FLOPS}, but {trainable} declares no {quantity}: report the FLOPs so far as "
                f"{TRAIN_FLOPS} and declare {quantity} in its `metrics`, or limit device_hours"
            )
            faults.add(message, "budget", *keys)
    target = arm_limits.target
    if target is None or spec.search is None:
        return
    metric = spec.search.objectives[0].metric
    low, high = look_up(known_metrics, metric).span
    if not low <= target <= high:
        message = f"must be a value that {metric} can have, {low:g} to {high:g}, got {format_value(target)}"
        faults.add(message, "budget", "each_arm", "target")
    elif target == (low if spec.search.objectives[0].goal == "max" else high):
        message = (
            f"must be better than the worst value of {metric}, got {format_value(target)}: the first trial "
            "always reaches it"
        )
        faults.add(message, "budget", "each_arm", "target")


def check_flops_limits(
    limits: Limits | None,
    arms: Sequence[Arm],
    estimates: Sequence[ArmEstimate],
    search: SearchPlan | None,
    faults: Faults,
) -> None:
    """Add faults for FLOPs limits below the cost of one trial, and for patience that cannot end a search."""
    known_limits = limits or Limits()
    _check_patience(known_limits, estimates, search, faults)
    costs = [
        estimate.train_flops_max * arm.settings["train"]["steps"]
        for arm, estimate in zip(arms, estimates, strict=True)
        if estimate.train_flops_max is not None and "train.steps" not in arm.space.paths
    ]
    flops_limit = None if known_limits.each_arm is None else known_limits.each_arm.flops
    for keys, limit in (("flops",), known_limits.flops), (("each_arm", "flops"), flops_limit):
        if limit is not None and costs and limit < min(costs):
            message = (
                f"must be at least the FLOPs of one trial, {format_amount(min(costs))} in the cheapest "
                f"arm, got {format_value(limit)}: the first trial would exceed it"
            )
            faults.add(message, "budget", *keys)


def _check_patience(
    limits: Limits, estimates: Sequence[ArmEstimate], search: SearchPlan | None, faults: Faults
) -> None:
    """Add a fault if `no_improvement` is at least the number of trials of a search."""
    arm_limits = limits.each_arm or ArmLimits()
    repeats = search.repeats if search is not None else 1
    num_trials = max((estimate.trials.get(SEARCH, 0) // repeats for estimate in estimates), default=0)
    patience = arm_limits.no_improvement
    if patience is not None and search is not None and patience >= num_trials:
        message = (
            f"must be fewer than the trials of a search, at most {num_trials:,}, got "
            f"{patience}: it ends no search before its last trial; lower it, or leave it out"
        )
        faults.add(message, "budget", "each_arm", "no_improvement", code=FaultCode.CONFLICTING_FIELDS)


def _unreachable_limit_warnings(plan: Plan) -> Iterator[str]:
    """Yield warnings for FLOPs limits that all trials together cannot reach."""
    limits = plan.limits or Limits()
    arm_limits = limits.each_arm or ArmLimits()
    total, one_search = 0.0, 0.0
    for arm, estimate in zip(plan.arms, plan.prices, strict=True):
        if estimate.train_flops_max is None or _searches_trial_flops(arm):
            return
        trial = estimate.train_flops_max * arm.settings["train"]["steps"]
        searched, confirmed, crossed = (estimate.trials.get(phase, 0) for phase in (SEARCH, CONFIRM, CROSS))
        total += trial * (searched + confirmed + crossed)
        one_search = max(one_search, trial * searched / plan.repeats)
    for name, limit, most_used, noun in (
        ("budget.flops", limits.flops, total, "all trials together train with at most"),
        ("budget.each_arm.flops", arm_limits.flops, one_search, "the search of no arm trains with more than"),
    ):
        if limit is not None and limit >= most_used:
            reason = f"{noun} {format_amount(most_used)}"
            yield f"Warning: the limit {name} of {format_amount(limit)} has no effect, because {reason}."


def _searches_trial_flops(arm: Arm) -> bool:
    """Return whether a search of `arm` draws a field that changes the FLOPs of a trial."""
    searched_paths = (
        dimension.path for dimension in arm.space.dimensions if not isinstance(dimension.domain, Fixed)
    )
    return any(not path.startswith("train.") or path in _FLOPS_FIELDS for path in searched_paths)


_FLOPS_FIELDS = frozenset(
    {"train.steps", "train.batch_size", "train.batch_tokens", "train.checkpoint_activations"}
)


def budget_lines(plan: Plan) -> Iterator[str]:
    """Yield sentences that describe which limits end the sweep, or the search of an arm."""
    limits, devices = plan.limits or Limits(), "GPU" if plan.resources.gpus else "CPU core"
    wall_clock = plan.wall_clock_hours
    limit_texts = [f"{_hours(wall_clock)} of wall clock"] if wall_clock is not None else []
    limit_texts += _amounts(limits.device_hours, limits.flops, devices)
    if limit_texts:
        yield f"No further trial starts after {' or '.join(limit_texts)}."
    yield from _unreachable_limit_warnings(plan)
    if limits.each_arm is None or plan.search is None:
        return
    arm_limits, metric = limits.each_arm, counted_name(plan.search.objectives[0])
    end_conditions = _amounts(arm_limits.device_hours, arm_limits.flops, devices)
    end_conditions += [f"{metric} of {arm_limits.target:g}"] if arm_limits.target is not None else []
    if arm_limits.no_improvement is not None:
        trials = count(arm_limits.no_improvement, "trial")
        end_conditions.append(f"{trials} in a row that ended without a better {metric}")
    yield (
        f"The search of each arm starts no further trial after {' or '.join(end_conditions)}. Running trials "
        "continue to their end, and the table counts the maximum number of trials."
    )


def _hours(hours: float) -> str:
    return "1 hour" if hours == 1 else f"{hours:g} hours"


def _amounts(hours: float | None, flops: float | None, devices: str) -> list[str]:
    amounts = [f"{_hours(hours)} of work times {devices}s"] if hours is not None else []
    return [*amounts, *([f"{format_amount(flops)} FLOPs of training"] if flops is not None else [])]
