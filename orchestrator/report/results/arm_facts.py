"""Collect facts about each arm: its reason, size and cost, and how its trials ended."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.plan.display.format import value_words
from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind, Record, by_arm
from search_spaces.paths import leaves, overlap

MAX_REASONS = 5
"""Maximum number of different failure reasons displayed per arm."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Trials of a phase that failed with the same outcome and reason."""

    phase: str
    outcome: OutcomeKind
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class ArmFacts:
    """Facts about one arm."""

    arm: str
    why: str
    reference: str
    parameters: int | None
    forward_flops: tuple[float, float] | None
    """FLOPs of one forward pass on the input named in `flops_of`, at the least and the greatest depth."""
    flops_of: str
    """Input on which `forward_flops` were counted."""
    step_flops: tuple[float, float] | None
    """FLOPs of one training step, at the least and the greatest depth."""
    ended: Mapping[str, Mapping[str, int]]
    """Number of trials by phase and outcome."""
    planned: Mapping[str, int]
    """Number of planned trials by phase."""
    failures: tuple[Failures, ...]
    """The most frequent failures first."""
    more_failures: int
    """Number of failed trials with reasons that `failures` does not list."""
    device_s: float
    """Seconds of work of all trials of the arm, times the devices of one trial."""


def arm_facts(plan: Plan, records: Sequence[Record]) -> Iterator[ArmFacts]:
    """Yield the facts about each arm, the baseline first."""
    checks = {check.arm: check for check in plan.proofs}
    estimates = {estimate.arm: estimate for estimate in plan.prices}
    devices = plan.resources.gpus or plan.resources.cpus
    input_text = "one sequence of the longest training length" if plan.trainable is None else "its example"
    records_by_arm, planned = by_arm(records), by_arm(plan.trials)
    for arm in plan.arms:
        arm_records, check, estimate = records_by_arm[arm.name], checks.get(arm.name), estimates.get(arm.name)
        kinds = Counter(
            (record.phase, record.outcome, record.reason)
            for record in arm_records
            if record.outcome is not None and record.outcome.is_failure
        )
        sorted_kinds = sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0]))
        failures = tuple(Failures(*key, count) for key, count in sorted_kinds[:MAX_REASONS])
        yield ArmFacts(
            arm=arm.name,
            why=arm.why,
            reference=arm.reference,
            parameters=check.parameters if check else None,
            forward_flops=_value_range(check.flops_min, check.flops_max) if check else None,
            flops_of=input_text,
            step_flops=_value_range(estimate.train_flops_min, estimate.train_flops_max) if estimate else None,
            ended=_outcome_counts(arm_records),
            planned=dict(Counter(trial.phase for trial in planned[arm.name])),
            failures=failures,
            more_failures=kinds.total() - sum(failure.count for failure in failures),
            device_s=sum(record.last.seconds for record in arm_records if record.last) * devices,
        )


def baseline_settings(plan: Plan) -> Iterator[str]:
    """Yield each setting of the first arm; fields that its search sets are marked as searched."""
    arm = plan.arms[0]
    for path, value in leaves(arm.settings):
        is_searched = any(overlap(path, searched_path) for searched_path in arm.space.paths)
        yield f"{path}: {'searched' if is_searched else value_words(value)}"


def _value_range(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)


def _outcome_counts(records: Sequence[Record]) -> Mapping[str, Mapping[str, int]]:
    by_phase: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        by_phase[record.phase][record.outcome.value if record.outcome else "open"] += 1
    return {phase: dict(sorted(counts.items())) for phase, counts in by_phase.items()}
