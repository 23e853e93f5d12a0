"""Control arms: what luck alone makes of the very comparisons that decide about arms.

A control is its reference under another name, searched apart. Its difference is tested by the same procedure,
but alone: no correction for several comparisons counts controls, nor the arms beside them. So where the
intervals are right, a control differs with the probability `level`, whatever else is compared.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.report.comparisons.answers import judged, line_of, open_seeds
from orchestrator.report.comparisons.contrasts import Comparisons, Contrast
from orchestrator.report.comparisons.crossed import cross_verdicts
from orchestrator.report.results.readings import Readings
from orchestrator.report.results.statistics import rate_interval
from orchestrator.report.results.types import ArmVerdict, ControlRate
from orchestrator.trials import Record

AS_EXPECTED = "as it should be"
FALSE_DECISION = "a false decision, since nothing but luck differs"


def beside_verdicts(
    plan: Plan,
    readings: Readings,
    answer: AnswerPlan | None,
    ended: frozenset[str],
    records: Sequence[Record],
) -> dict[str, Any]:
    """Return fields of a report about its controls, and about arms at given settings."""
    if answer is None:
        return {}
    controls = tuple(control_verdicts(plan, readings, answer, ended))
    found = {"controls": controls, "control_rate": control_rate(controls, answer.level)}
    return {**found, "crossed": tuple(cross_verdicts(plan, readings, answer, records))}


def control_verdicts(
    plan: Plan, readings: Readings, answer: AnswerPlan, ended: frozenset[str]
) -> Iterator[ArmVerdict]:
    """Yield what is found of every control in every primary outcome."""
    controls = [arm for arm in plan.arms if arm.control]
    to_run = open_seeds(plan, ended)
    for metric, arm in product(answer.outcomes, controls):
        pair = (arm.name, arm.reference)
        contrast = Contrast(*pair, pairs=(pair,))
        found = Comparisons(plan, answer, readings, to_run).alone(contrast, metric)
        made = judged(plan, readings, answer, contrast, metric, found=found, to_run=to_run)
        if made.kind not in {"undecided", "no difference"}:
            made = replace(made, text=f"{made.text}: {FALSE_DECISION}")
        elif made.p is not None:
            made = replace(made, text=f"{made.kind}, {AS_EXPECTED}")
        made = replace(made, outlooks=())  # of which it is known that nothing differs
        yield replace(made, line=line_of(made, answer))


def control_rate(controls: Sequence[ArmVerdict], level: float) -> ControlRate | None:
    """Return how often controls differ; None where none has a test."""
    tested = [each for each in controls if each.p is not None]
    if not tested:
        return None
    decided = sum(each.p is not None and each.p <= each.level for each in tested)
    return ControlRate(decided, len(tested), *rate_interval(decided, len(tested)), level)
