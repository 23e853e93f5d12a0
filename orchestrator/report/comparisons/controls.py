"""Test control arms, which differ from their references only by chance.

A control is a copy of its reference under another name, with a separate search. Its difference is tested by
the procedure of the verdicts, but without correction for several comparisons. Thus, if the intervals are
correct, a control differs with probability `level`, independent of other arms.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.report.comparisons.answers import (
    make_verdict,
    open_seeds,
    too_few_differences,
    verdict_line,
)
from orchestrator.report.comparisons.contrasts import Comparisons, Contrast
from orchestrator.report.comparisons.crossed import cross_verdicts
from orchestrator.report.results.seed_results import SeedResults
from orchestrator.report.results.statistics import rate_interval
from orchestrator.report.results.types import ArmVerdict, ControlRate
from orchestrator.trials import Record

AS_EXPECTED = "as expected"
FALSE_DECISION = "a false decision, because only chance differs"


def control_fields(
    plan: Plan,
    results: SeedResults,
    answer: AnswerPlan | None,
    ended_ids: frozenset[str],
    records: Sequence[Record],
) -> dict[str, Any]:
    """Return the fields of a report about its controls, and about arms at given settings."""
    if answer is None:
        return {}
    controls = tuple(control_verdicts(plan, results, answer, ended_ids))
    fields = {"controls": controls, "control_rate": control_rate(controls, answer.level)}
    return {**fields, "crossed": tuple(cross_verdicts(plan, results, answer, records))}


def control_verdicts(
    plan: Plan, results: SeedResults, answer: AnswerPlan, ended_ids: frozenset[str]
) -> Iterator[ArmVerdict]:
    """Yield the verdict on every control in every primary outcome."""
    controls = [arm for arm in plan.arms if arm.control]
    to_run = open_seeds(plan, ended_ids)
    for metric, arm in product(answer.outcomes, controls):
        pair = (arm.name, arm.reference)
        contrast = Contrast(*pair, pairs=(pair,))
        pair_estimate = Comparisons(plan, answer, results, to_run).alone(contrast, metric)
        verdict_of_control = make_verdict(
            plan, results, answer, contrast, metric, paired=pair_estimate, to_run=to_run
        )
        if verdict_of_control.is_decided and verdict_of_control.kind != "no difference":
            verdict_of_control = replace(
                verdict_of_control, text=f"{verdict_of_control.text}: {FALSE_DECISION}"
            )
        elif verdict_of_control.p is not None:
            verdict_of_control = replace(verdict_of_control, text=f"{verdict_of_control.kind}, {AS_EXPECTED}")
        verdict_of_control = replace(
            verdict_of_control, outlooks=()
        )  # no difference can be decided: a control has none
        line = verdict_line(verdict_of_control, answer, too_few=too_few_differences(pair_estimate))
        yield replace(verdict_of_control, line=line)


def control_rate(controls: Sequence[ArmVerdict], level: float) -> ControlRate | None:
    """Return how often controls differ; None if no control has a test."""
    tested_controls = [verdict for verdict in controls if verdict.p is not None]
    if not tested_controls:
        return None
    decided = sum(verdict.p is not None and verdict.p <= verdict.level for verdict in tested_controls)
    return ControlRate(decided, len(tested_controls), *rate_interval(decided, len(tested_controls)), level)
