"""Arms that were decided before their last seed: their verdict is that of the look that decided it."""

from collections.abc import Mapping

from orchestrator.conductor.rounds import decisions, measured
from orchestrator.plan.types import Plan
from orchestrator.report.readings import Readings
from orchestrator.statistics.sequential import LOOK_SHARE, EarlyVerdict
from orchestrator.trials import OutcomeKind
from search_spaces.wording import amount

NOTE = (
    "Arms were looked at after each round of seeds. One that was decided then has the interval and p of its "
    "look, at level {level:g}, a twentieth of the study's; others are judged with all seeds at level "
    "{full:g}. An arm was also given up where all seeds together would hardly have decided it. Estimates of "
    "arms that stopped early lean away from 0, because chance that agrees with a difference makes a look "
    "decide it."
)


def decided(plan: Plan, readings: Readings) -> dict[str, EarlyVerdict]:
    """By arm, what was decided at a look, found again from what the trials measured."""
    if plan.confirm is None or plan.confirm.stop is None or plan.answer is None:
        return {}
    confirmed: dict[tuple[str, int], Mapping[str, float] | None] = {}
    for each in readings.records:
        if each.outcome is not None and each.outcome.final and each.outcome is not OutcomeKind.SKIPPED:
            metrics = each.last.metrics if each.last is not None else None
            confirmed[each.arm, each.seed] = measured(each.outcome, metrics)
    return decisions(plan, confirmed)


def when(plan: Plan, decision: EarlyVerdict) -> str:
    """After how many seeds, and how its interval is to be read."""
    assert plan.confirm is not None
    seeds = amount(len(plan.confirm.seeds), "seed")
    return f"ended after {decision.seeds} of {seeds}, interval at level {decision.level:g}"


def note(level: float) -> str:
    """What a reader of a study with looks must know."""
    return NOTE.format(level=level * LOOK_SHARE, full=level)
