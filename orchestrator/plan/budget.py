"""What a spec's budget limits, and whether those limits can be kept."""

from collections.abc import Iterable, Iterator, Sequence

from orchestrator.plan.faults import Faults
from orchestrator.plan.format import amount
from orchestrator.plan.types import Arm, ArmLimits, ArmPrice, Limits, Plan
from orchestrator.spec.types import Spec
from search_spaces.wording import amount as count
from search_spaces.wording import shown
from trainables.metrics import TRAIN_FLOPS, Metric, look_up


def limits_of(spec: Spec) -> Limits | None:
    """The limits of `spec` beside wall clock; None where there are none."""
    asked = spec.budget
    if asked is None:
        return None
    each = ArmLimits(**dict(asked.each_arm)) if asked.each_arm is not None else None
    found = Limits(asked.device_hours, asked.flops, each)
    return None if found == Limits() else found


def check_budget(spec: Spec, trainable: str | None, metrics: Iterable[Metric], faults: Faults) -> None:
    """FLOPs must be known where they are limited, and a target must be a value that there can be."""
    limits, known = limits_of(spec), tuple(metrics)
    if limits is None:
        return
    split, _, quantity = TRAIN_FLOPS.partition("/")
    declared = any(each.name == quantity and each.split in ("", split) for each in known)
    each = limits.each_arm or ArmLimits()
    for keys, given in (("flops",), limits.flops), (("each_arm", "flops"), each.flops):
        if given is not None and trainable is not None and not declared:
            faults.add(
                f"needs {TRAIN_FLOPS}, and {trainable} declares no {quantity}: report those so "
                f"far under that name and declare {quantity} in its `metrics`, or limit device_hours",
                "budget",
                *keys,
            )
    target = each.target
    if target is None or spec.search is None:
        return
    metric = spec.search.objectives[0].metric
    low, high = look_up(known, metric).span
    if not low <= target <= high:
        faults.add(
            f"must be a value that {metric} can have, {low:g} to {high:g}, got {shown(target)}",
            "budget",
            "each_arm",
            "target",
        )
    elif target == (low if spec.search.objectives[0].goal == "max" else high):
        faults.add(
            f"must be better than the worst value of {metric}, got {shown(target)}: the first trial reaches "
            "it, whatever it finds",
            "budget",
            "each_arm",
            "target",
        )


def check_afforded(
    limits: Limits | None, arms: Sequence[Arm], prices: Sequence[ArmPrice], faults: Faults
) -> None:
    """What is known to be used must leave room for a trial of the arm that needs least."""
    asked = limits or Limits()
    costs = [
        price.train_flops_max * arm.settings["train"]["steps"]
        for arm, price in zip(arms, prices, strict=True)
        if price.train_flops_max is not None and "train.steps" not in arm.space.paths
    ]
    each = None if asked.each_arm is None else asked.each_arm.flops
    for keys, given in (("flops",), asked.flops), (("each_arm", "flops"), each):
        if given is not None and costs and given < min(costs):
            faults.add(
                f"must be at least the FLOPs of one trial, {amount(min(costs))} in the arm that needs least, "
                f"got {shown(given)}: it would be used up by the first one",
                "budget",
                *keys,
            )


def budget_lines(plan: Plan) -> Iterator[str]:
    """What ends the sweep, or the search of an arm, before its last trial; for people."""
    limits, devices = plan.limits or Limits(), "GPU" if plan.resources.gpus else "CPU core"
    whole = [f"{plan.wall_clock_hours:g} hours of wall clock"] if plan.wall_clock_hours is not None else []
    whole += _amounts(limits.device_hours, limits.flops, devices)
    if whole:
        yield f"Nothing more begins after {' or '.join(whole)}."
    if limits.each_arm is None or plan.search is None:
        return
    each, metric = limits.each_arm, plan.search.objectives[0].metric
    ends = _amounts(each.device_hours, each.flops, devices)
    ends += [f"{metric} of {each.target:g}"] if each.target is not None else []
    if each.no_improvement is not None:
        ends.append(f"{count(each.no_improvement, 'trial')} in a row that ended without a better {metric}")
    yield (
        f"The search of each arm begins no further trial after {' or '.join(ends)}; trials that run by then "
        "go on to their end, and the table counts the most there can be."
    )


def _amounts(hours: float | None, flops: float | None, devices: str) -> list[str]:
    found = [f"{hours:g} hours of work times {devices}s"] if hours is not None else []
    return [*found, *([f"{amount(flops)} FLOPs of training"] if flops is not None else [])]
