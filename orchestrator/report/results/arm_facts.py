"""What every arm is and what became of its trials: why it is there, its size, its cost, its failures."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.plan.display.format import value_words
from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind, Record, by_arm
from search_spaces.paths import leaves, overlap

REASONS = 5
"""Different reasons of failures that are shown of an arm."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Trials of a phase that failed alike."""

    phase: str
    outcome: OutcomeKind
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class ArmFacts:
    """One arm."""

    arm: str
    why: str
    reference: str
    parameters: int | None
    forward_flops: tuple[float, float] | None
    """Of what `flops_of` names, at the least and the greatest depth."""
    flops_of: str
    """What was run to count `forward_flops`."""
    step_flops: tuple[float, float] | None
    """Of one training step."""
    ended: Mapping[str, Mapping[str, int]]
    """Phase to outcome to trials."""
    planned: Mapping[str, int]
    """Phase to trials of the plan."""
    failures: tuple[Failures, ...]
    """The commonest first."""
    more_failures: int
    """Trials that failed for reasons beyond those."""
    device_s: float
    """Seconds of work of its trials, times the devices of one."""


def arm_facts(plan: Plan, records: Sequence[Record]) -> Iterator[ArmFacts]:
    """One an arm, the baseline first."""
    proofs = {each.arm: each for each in plan.proofs}
    prices = {each.arm: each for each in plan.prices}
    devices = plan.resources.gpus or plan.resources.cpus
    input_run = "one sequence of the longest training length" if plan.trainable is None else "its example"
    of_arms, planned = by_arm(records), by_arm(plan.trials)
    for arm in plan.arms:
        own = of_arms[arm.name]
        proof, price = proofs.get(arm.name), prices.get(arm.name)
        failed = Counter(
            (each.phase, each.outcome, each.reason)
            for each in own
            if each.outcome is not None and each.outcome.failed
        )
        commonest = sorted(failed.items(), key=lambda pair: (-pair[1], pair[0]))
        named = tuple(Failures(*key, count) for key, count in commonest[:REASONS])
        yield ArmFacts(
            arm=arm.name,
            why=arm.why,
            reference=arm.reference,
            parameters=proof.parameters if proof else None,
            forward_flops=_range(proof.flops_min, proof.flops_max) if proof else None,
            flops_of=input_run,
            step_flops=_range(price.train_flops_min, price.train_flops_max) if price else None,
            ended=_ended(own),
            planned=dict(Counter(each.phase for each in planned[arm.name])),
            failures=named,
            more_failures=failed.total() - sum(each.count for each in named),
            device_s=sum(each.last.seconds for each in own if each.last) * devices,
        )


def first_settings(plan: Plan) -> Iterator[str]:
    """Every setting of the first arm; a value that its search replaces is nobody's."""
    arm = plan.arms[0]
    for path, value in leaves(arm.settings):
        searched = any(overlap(path, each) for each in arm.space.paths)
        yield f"{path}: {'searched' if searched else value_words(value)}"


def _range(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)


def _ended(own: Sequence[Record]) -> Mapping[str, Mapping[str, int]]:
    found: dict[str, Counter[str]] = {}
    for each in own:
        found.setdefault(each.phase, Counter())[each.outcome.value if each.outcome else "open"] += 1
    return {phase: dict(sorted(counts.items())) for phase, counts in found.items()}
