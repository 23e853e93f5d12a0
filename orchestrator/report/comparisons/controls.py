"""Test control arms, which differ from their references only by chance.

A control is a copy of its reference under another name, with a separate search. Its difference is tested by
the procedure of the verdicts, but without correction for several comparisons. Thus, if the intervals are
correct, a control differs with probability `level`, independent of other arms.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from orchestrator.report.comparisons.answers import make_verdict, too_few_differences, verdict_line
from orchestrator.report.comparisons.contrasts import Comparisons, Contrast
from orchestrator.report.results.statistics import rate_interval
from orchestrator.report.results.types import ArmVerdict, ControlRate

EXPECTED_RESULT = "as expected"
FALSE_DECISION_CLAUSE = "a false decision, because only chance differs"


def control_verdicts(comparisons: Comparisons) -> Iterator[ArmVerdict]:
    """Yield the verdict on every control in every primary outcome."""
    controls = [arm for arm in comparisons.plan.arms if arm.control]
    for metric, arm in product(comparisons.answer.outcomes, controls):
        pair = (arm.name, arm.reference)
        contrast = Contrast(*pair, pairs=(pair,))
        paired = comparisons.test_single(contrast, metric)
        verdict = make_verdict(comparisons, contrast, metric, paired)
        text = verdict.text
        if verdict.is_decided and verdict.kind != "no difference":
            text = f"{text}: {FALSE_DECISION_CLAUSE}"
        elif verdict.p is not None:
            text = f"{verdict.kind}, {EXPECTED_RESULT}"
        verdict = replace(verdict, text=text, outlooks=())  # no difference can be decided: there is none
        line = verdict_line(verdict, comparisons.margin(metric), too_few=too_few_differences(paired))
        yield replace(verdict, line=line)


def control_rate(controls: Sequence[ArmVerdict], level: float) -> ControlRate | None:
    """Return how often controls differ; None if no control has a test."""
    are_decided = [verdict.p <= verdict.level for verdict in controls if verdict.p is not None]
    if not are_decided:
        return None
    decided_and_tested = sum(are_decided), len(are_decided)
    return ControlRate(*decided_and_tested, *rate_interval(*decided_and_tested), level)
