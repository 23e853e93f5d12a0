"""Detect comparisons that cannot be tested: arms with different test sets, outcomes fixed by settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from orchestrator.plan.answer import metric_splits
from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.report.results.readings import Readings, by_seed_alone
from orchestrator.spec.metric_splits import MetricSplits
from orchestrator.statistics.paired import same
from orchestrator.statistics.verdicts import SEEDS_LEAST
from trainables.metrics import DIGEST, metric_name

Code = Literal["different-test-sets", "fixed-by-construction"]
Digests = Mapping[int, frozenset[str]]
"""By seed, the digests of one split's examples that trials reported."""
SHOWN: Final = 8
"""Number of characters of a digest in texts."""


@dataclass(frozen=True, slots=True)
class Untested:
    """The reason why a comparison has no verdict, independent of its values."""

    code: Code
    text: str

    @property
    def name(self) -> str:
        """Return the code as words."""
        return self.code.replace("-", " ")


def why_untested(
    plan: Plan, pairs: Sequence[tuple[str, str]], metric: str, readings: Readings
) -> Untested | None:
    """Return why a comparison in a primary outcome cannot be tested; None if it can.

    Args:
        plan: Plan of the sweep.
        pairs: Arm and reference, one pair for each context of the comparison.
        metric: The outcome.
        readings: Confirm trials that have ended.
    """
    splits = metric_splits(plan.search, plan.confirm, plan.answer)
    split = splits.split(metric)
    for pair in pairs:
        own, theirs = (readings.texts(each, digest_of(split)) for each in pair)
        if text := unlike_tests(split, pair, own, theirs):
            return Untested("different-test-sets", text)
    for pair in pairs:
        fixed = [words for arm in pair if (words := _fixed(plan, arm, metric, splits, readings))]
        if fixed:
            return Untested("fixed-by-construction", " and ".join(fixed))
    return None


def unchecked_splits(plan: Plan, answer: AnswerPlan | None, readings: Readings) -> tuple[str, ...]:
    """Return the splits of primary outcomes for which some compared arm reported no digest.

    Empty for built-in tasks: the planner compares their settings.
    """
    if answer is None or plan.trainable is None or not any(arm.reference for arm in plan.arms):
        return ()
    splits = metric_splits(plan.search, plan.confirm, plan.answer)
    finished = [arm.name for arm in plan.arms if readings.finished_seeds(arm.name)]
    wanted = dict.fromkeys(map(splits.split, answer.outcomes))
    return tuple(
        split for split in wanted if any(not readings.texts(arm, digest_of(split)) for arm in finished)
    )


def digest_of(split: str) -> str:
    """Return the name of the text that identifies the examples of a split."""
    return metric_name(split, DIGEST)


def unlike_tests(split: str, names: tuple[str, str], own: Digests, theirs: Digests) -> str:
    """Return in which digest of `split` two arms differ on one seed; empty if they differ on none.

    Args:
        split: The split that was measured.
        names: Names of both arms in the text.
        own: Digests of the first arm's trials, by seed.
        theirs: Digests of the second arm's trials.
    """
    for seed in own.keys() & theirs.keys():
        # The text after a space names the form of the examples. Digests of different forms are not
        # comparable.
        forms = [{text.partition(" ")[2] for text in each[seed]} for each in (own, theirs)]
        if forms[0] == forms[1] and own[seed] != theirs[seed]:
            first, second = (" and ".join(map(_short, sorted(each[seed]))) for each in (own, theirs))
            data = f"examples of {split}" if split else "data"
            return f"{names[0]} was measured on other {data} (digest {first}) than {names[1]} ({second})"
    return ""


def _short(text: str) -> str:
    digest, _, form = text.partition(" ")
    content, slash, some = digest.partition("/")
    return " ".join(filter(None, (f"{content[:SHOWN]}{slash}{some}", form)))


def _fixed(plan: Plan, arm: str, metric: str, splits: MetricSplits, readings: Readings) -> str:
    """Return that the settings of `arm` fix a cost; empty if they do not.

    A cost is fixed if nothing halts in the arm, as far as the plan states, and one of two conditions holds:
    it is the same in every seed and on every split, or it is in every seed the greatest value that the arm's
    settings allow.
    """
    known = readings.known(metric)
    proof = next((each for each in plan.proofs if each.arm == arm), None)
    halts = proof is not None and proof.flops_min is not None and proof.flops_min != proof.flops_max
    if halts or not (known.is_cost or known.moves_with):
        return ""
    values = by_seed_alone(readings.by_seed(arm, metric))
    if len(values) < SEEDS_LEAST:
        return ""
    quantity, split = splits.quantity(metric), splits.split(metric)
    names = {each for each in readings.names if splits.quantity(each) == quantity}
    every = [value for name in names for value in by_seed_alone(readings.by_seed(arm, name)).values()]
    if same(every):
        return f"{metric} of {arm} is {every[0]:g} in every seed"
    bounds = by_seed_alone(readings.by_seed(arm, metric_name(split, known.high_from)))
    at_bound = known.high_from and all(
        seed in bounds and same((value, bounds[seed])) for seed, value in values.items()
    )
    return f"{metric} of {arm} is {metric_name(split, known.high_from)} in every seed" if at_bound else ""
