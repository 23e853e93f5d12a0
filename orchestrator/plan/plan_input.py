"""Read a spec for planning and refuse impossible sizes at once, without importing PyTorch."""

from collections.abc import Sequence
from math import prod
from pathlib import Path

from orchestrator.errors import FaultCode, OversizedSpec, SpecError
from orchestrator.plan.consistency import MAX_PLANNED_ARMS, MAX_PLANNED_TRIALS
from orchestrator.plan.faults import Faults
from orchestrator.spec.load import SpecFile, read_spec
from orchestrator.spec.types import Spec
from search_spaces.wording import format_count


def read_plannable_spec(path: Path, overrides: Sequence[str] = (), profile: str | None = None) -> SpecFile:
    """Read the spec at `path` with `profile` and `overrides` applied.

    Raises:
        OversizedSpec: The spec requests an impossible size.
        PlanError: The spec requests more arms or trials than can be planned.
        SpecError: The spec has other faults.
    """
    try:
        source = read_spec(path, overrides, profile)
    except SpecError as error:
        if any(fault.code is FaultCode.OVERSIZED_VALUE for fault in error.faults):
            raise OversizedSpec(error.faults) from None
        raise
    check_size(source.spec, Faults(source))
    return source


def count_arms(spec: Spec) -> int:
    """Return the number of arms including the baseline, over all cells of contexts and grid."""
    return (1 + len(spec.arms)) * prod(map(len, spec.axes.values()))


def check_size(spec: Spec, faults: Faults) -> None:
    """Raise `PlanError` if the spec requests too many arms or trials."""
    arms = count_arms(spec)
    if arms > MAX_PLANNED_ARMS:
        message = (
            f"must make at most {MAX_PLANNED_ARMS:,} arms of the baseline and all arms, got "
            f"{format_count(arms)}: leave some values out"
        )
        faults.add(message, "grid" if spec.grid else "contexts", code=FaultCode.OVERSIZED_VALUE)
    num_search_trials = spec.repeats * spec.search.trials_per_arm if spec.search else 0
    seeds = spec.repeats * spec.confirm.best * len(spec.confirm.seeds) if spec.confirm else 0
    trials = arms * (num_search_trials + seeds * (1 + sum(map(len, spec.posthoc.values()))))
    if trials > MAX_PLANNED_TRIALS >= arms:
        key = ("search", "trials_per_arm") if num_search_trials > seeds else ("confirm",)
        message = (
            f"must ask for at most {MAX_PLANNED_TRIALS:,} trials over all arms, got {trials:,}: ask for fewer"
        )
        faults.add(message, *key, code=FaultCode.OVERSIZED_VALUE)
    faults.raise_if_any()
