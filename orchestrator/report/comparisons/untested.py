"""Detect comparisons that cannot be tested: arms with different test sets, outcomes fixed by settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from orchestrator.plan.answer import metric_splits
from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.report.results.seed_results import Pairs, SeedResults, mean_by_seed
from orchestrator.spec.metric_splits import MetricSplits
from orchestrator.statistics.paired import are_equal
from orchestrator.statistics.verdicts import MIN_VERDICT_SEEDS
from trainables.metrics import DIGEST, metric_name

UntestedCode = Literal["different-test-sets", "fixed-by-construction"]
Digests = Mapping[int, frozenset[str]]
"""By seed, the digests of one split's examples that trials reported."""
SHORT_DIGEST_LENGTH: Final = 8
"""Number of characters of a digest in texts."""


@dataclass(frozen=True, slots=True)
class UntestedReason:
    """The reason why a comparison has no verdict, independent of its values."""

    code: UntestedCode
    text: str

    @property
    def name(self) -> str:
        """Return the code as words."""
        return self.code.replace("-", " ")


def find_untested_reason(
    plan: Plan, pairs: Pairs, metric: str, results: SeedResults
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
        own_texts, reference_texts = (results.texts(arm, digest_name(split)) for arm in pair)
        if text := test_set_difference(split, pair, own_texts, reference_texts):
            return UntestedReason("different-test-sets", text)
    for pair in pairs:
        fixed_cost_texts = [
            words for arm in pair if (words := _fixed_cost_text(plan, arm, metric, splits, results))
        ]
        if fixed_cost_texts:
            return UntestedReason("fixed-by-construction", " and ".join(fixed_cost_texts))
    return None


def unchecked_splits(plan: Plan, answer: AnswerPlan, results: SeedResults) -> tuple[str, ...]:
    """Return the splits of primary outcomes whose digests some compared arm did not report.

    Empty for built-in tasks: the planner compares their settings.
    """
    if plan.trainable is None or not any(arm.reference for arm in plan.arms):
        return ()
    splits = metric_splits(plan.search, plan.confirm, plan.answer)
    arms = [arm.name for arm in plan.arms if results.finished_seeds(arm.name)]
    names = dict.fromkeys(map(splits.split, answer.outcomes))
    return tuple(name for name in names if any(not results.texts(arm, digest_name(name)) for arm in arms))


def digest_name(split: str) -> str:
    """Return the name of the attribute with the digest of the examples of a split."""
    return metric_name(split, DIGEST)


def test_set_difference(split: str, names: tuple[str, str], first: Digests, second: Digests) -> str:
    """Return the digest of `split` that differs between two arms on one seed; empty if none does.

    Args:
        split: The split that was measured.
        names: Names of both arms in the text.
        first: Digests of the first arm's trials, by seed.
        second: Digests of the second arm's trials.
    """
    for seed in first.keys() & second.keys():
        pair = first[seed], second[seed]
        # The text after a space names the form of the examples. Digests of different forms are not
        # comparable.
        first_forms, second_forms = ({text.partition(" ")[2] for text in texts} for texts in pair)
        if first_forms == second_forms and pair[0] != pair[1]:
            first_digest, second_digest = (" and ".join(map(_short_digest, sorted(texts))) for texts in pair)
            data = f"examples of {split}" if split else "data"
            measured = f"{names[0]} was measured on other {data} (digest {first_digest})"
            return f"{measured} than {names[1]} ({second_digest})"
    return ""


def _short_digest(text: str) -> str:
    digest, _, form = text.partition(" ")
    content, slash, seed_part = digest.partition("/")
    return " ".join(filter(None, (f"{content[:SHORT_DIGEST_LENGTH]}{slash}{seed_part}", form)))


def _fixed_cost_text(plan: Plan, arm: str, metric: str, splits: MetricSplits, results: SeedResults) -> str:
    """Return a sentence if the settings of `arm` alone determine a cost; else empty.

    A cost is fixed if the plan states that nothing halts in the arm, and one of two conditions holds. Either
    the cost is the same in every seed and on every split, or in every seed it is the greatest value that the
    arm's settings allow.
    """
    declared = results.declaration(metric)
    proof = next((check for check in plan.proofs if check.arm == arm), None)
    can_halt = proof is not None and proof.flops_min is not None and proof.flops_min != proof.flops_max
    values = mean_by_seed(results.by_seed(arm, metric))
    if can_halt or not (declared.is_cost or declared.moves_with) or len(values) < MIN_VERDICT_SEEDS:
        return ""
    names = {name for name in results.names if splits.quantity(name) == splits.quantity(metric)}
    all_values = [value for name in names for value in mean_by_seed(results.by_seed(arm, name)).values()]
    if are_equal(all_values):
        return f"{metric} of {arm} is {all_values[0]:g} in every seed"
    greatest = metric_name(splits.split(metric), declared.high_from)
    bounds = mean_by_seed(results.by_seed(arm, greatest))
    is_at_bound = all(seed in bounds and are_equal((value, bounds[seed])) for seed, value in values.items())
    return f"{metric} of {arm} is {greatest} in every seed" if declared.high_from and is_at_bound else ""
