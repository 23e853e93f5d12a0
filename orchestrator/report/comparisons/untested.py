"""Detect comparisons that cannot be tested: arms with different test sets, outcomes fixed by settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from orchestrator.plan.answer import metric_splits
from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.report.results.seed_results import SeedResults, mean_by_seed
from orchestrator.spec.metric_splits import MetricSplits
from orchestrator.statistics.paired import are_equal
from orchestrator.statistics.verdicts import SEEDS_LEAST
from trainables.metrics import DIGEST, metric_name

Code = Literal["different-test-sets", "fixed-by-construction"]
Digests = Mapping[int, frozenset[str]]
"""By seed, the digests of one split's examples that trials reported."""
DIGEST_LENGTH: Final = 8
"""Number of characters of a digest in texts."""


@dataclass(frozen=True, slots=True)
class UntestedReason:
    """The reason why a comparison has no verdict, independent of its values."""

    code: Code
    text: str

    @property
    def name(self) -> str:
        """Return the code as words."""
        return self.code.replace("-", " ")


def find_untested_reason(
    plan: Plan, pairs: Sequence[tuple[str, str]], metric: str, results: SeedResults
) -> UntestedReason | None:
    """Return why a comparison in a primary outcome cannot be tested; None if it can.

    Args:
        plan: Plan of the sweep.
        pairs: Arm and reference, one pair for each context of the comparison.
        metric: The outcome.
        results: Confirm trials that have ended.
    """
    splits = metric_splits(plan.search, plan.confirm, plan.answer)
    split = splits.split(metric)
    for pair in pairs:
        own_texts, reference_texts = (results.texts(arm_name, digest_name(split)) for arm_name in pair)
        if text := test_set_difference(split, pair, own_texts, reference_texts):
            return UntestedReason("different-test-sets", text)
    for pair in pairs:
        fixed = [words for arm in pair if (words := _fixed_cost_text(plan, arm, metric, splits, results))]
        if fixed:
            return UntestedReason("fixed-by-construction", " and ".join(fixed))
    return None


def unchecked_splits(plan: Plan, answer: AnswerPlan | None, results: SeedResults) -> tuple[str, ...]:
    """Return the splits of primary outcomes whose digests some compared arm did not report.

    Empty for built-in tasks: the planner compares their settings.
    """
    if answer is None or plan.trainable is None or not any(arm.reference for arm in plan.arms):
        return ()
    splits = metric_splits(plan.search, plan.confirm, plan.answer)
    finished_arms = [arm.name for arm in plan.arms if results.finished_seeds(arm.name)]
    outcome_splits = dict.fromkeys(map(splits.split, answer.outcomes))
    return tuple(
        split
        for split in outcome_splits
        if any(not results.texts(arm, digest_name(split)) for arm in finished_arms)
    )


def digest_name(split: str) -> str:
    """Return the name of the text that identifies the examples of a split."""
    return metric_name(split, DIGEST)


def test_set_difference(
    split: str, names: tuple[str, str], arm_digests: Digests, reference_digests: Digests
) -> str:
    """Return the digest of `split` that differs between two arms on one seed; empty if none does.

    Args:
        split: The split that was measured.
        names: Names of both arms in the text.
        arm_digests: Digests of the first arm's trials, by seed.
        reference_digests: Digests of the second arm's trials.
    """
    for seed in arm_digests.keys() & reference_digests.keys():
        # The text after a space names the form of the examples. Digests of different forms are not
        # comparable.
        forms = [
            {text.partition(" ")[2] for text in digests[seed]} for digests in (arm_digests, reference_digests)
        ]
        if forms[0] == forms[1] and arm_digests[seed] != reference_digests[seed]:
            first, second = (
                " and ".join(map(_short_digest, sorted(digests[seed])))
                for digests in (arm_digests, reference_digests)
            )
            data = f"examples of {split}" if split else "data"
            return f"{names[0]} was measured on other {data} (digest {first}) than {names[1]} ({second})"
    return ""


def _short_digest(text: str) -> str:
    digest, _, form = text.partition(" ")
    content, slash, some = digest.partition("/")
    return " ".join(filter(None, (f"{content[:DIGEST_LENGTH]}{slash}{some}", form)))


def _fixed_cost_text(plan: Plan, arm: str, metric: str, splits: MetricSplits, results: SeedResults) -> str:
    """Return a sentence if the settings of `arm` alone determine a cost; else empty.

    A cost is fixed if nothing halts in the arm, as far as the plan states, and one of two conditions holds:
    it is the same in every seed and on every split, or it is in every seed the greatest value that the arm's
    settings allow.
    """
    metric_info = results.known(metric)
    proof = next((arm_check for arm_check in plan.proofs if arm_check.arm == arm), None)
    halts = proof is not None and proof.flops_min is not None and proof.flops_min != proof.flops_max
    if halts or not (metric_info.is_cost or metric_info.moves_with):
        return ""
    values = mean_by_seed(results.by_seed(arm, metric))
    if len(values) < SEEDS_LEAST:
        return ""
    quantity, split = splits.quantity(metric), splits.split(metric)
    names = {name for name in results.names if splits.quantity(name) == quantity}
    every = [value for name in names for value in mean_by_seed(results.by_seed(arm, name)).values()]
    if are_equal(every):
        return f"{metric} of {arm} is {every[0]:g} in every seed"
    bounds = mean_by_seed(results.by_seed(arm, metric_name(split, metric_info.high_from)))
    at_bound = metric_info.high_from and all(
        seed in bounds and are_equal((value, bounds[seed])) for seed, value in values.items()
    )
    return (
        f"{metric} of {arm} is {metric_name(split, metric_info.high_from)} in every seed" if at_bound else ""
    )
