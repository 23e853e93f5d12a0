"""Describe before a launch which effects the seeds can detect, and how many seeds interim looks save."""

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.plan.answer import metric_splits
from orchestrator.plan.published.published_rows import matches_cell, row_name
from orchestrator.plan.types import AnswerPlan, ConfirmPlan, Plan, Power, SearchPlan
from orchestrator.spec.checks import BASELINE
from orchestrator.spec.kinds import FROM_KEY, RESULT_KEY
from orchestrator.statistics.moderated import MIN_ARMS, MIN_UNITS
from orchestrator.statistics.power import POWER, seeds_needed, smallest_effect
from orchestrator.statistics.sequential import FIRST_LOOK, LOOK_LEVEL_SHARE, expected_seeds
from orchestrator.statistics.verdicts import MIN_VERDICT_SEEDS
from search_spaces.wording import amount

LARGE_EFFECT = 1.0
"""Effect in standard deviations for which the sentence states the required number of seeds."""
EXAMPLE_EFFECTS = (2.0, 5.0, 10.0, 20.0)
"""Example differences in standard deviations of a run over seeds."""


def power(
    confirm: ConfirmPlan,
    answer: AnswerPlan,
    stated_spread: float | Mapping[str, Any] | None = None,
    published: Sequence[Mapping[str, Any]] = (),
    baseline: Mapping[str, Any] | None = None,
    *,
    search: SearchPlan | None = None,
) -> Power:
    """Return the effects that the seeds of `confirm`, or the repeats of `search`, can detect.

    Args:
        confirm: Confirmation settings.
        answer: Primary outcomes, margin and error level.
        stated_spread: Standard deviation of the first outcome over seeds, if it is known.
        published: Rows of published tables, used if `stated_spread` is None.
        baseline: Settings of the baseline, whose published spread is preferred.
        search: Search settings; a search uses the valid split, so there is no verdict on that split.
    """
    if (power_of_no_verdict := power_without_verdict(confirm, answer, search=search)) is not None:
        return power_of_no_verdict
    (unit, seeds), family = _units(confirm, search), answer.family
    amount_text = f"{amount(seeds, unit)} and {amount(family, 'comparison')}"
    effect = smallest_effect(seeds, family, answer.level)
    if stated_spread is not None:
        spread, source = _spread_and_source(stated_spread)
    else:
        spread, source = _published_spread(confirm, answer, published, baseline or {})
    chance_text = f"found {round(10 * POWER)} times in 10 at level {answer.level:g} over all of them"
    quantity = answer.outcomes[0] if answer.outcomes else "the first quantity that is measured"
    difference = f"With {amount_text}, a difference in {quantity} of"
    if spread is None:
        needed = f"{_seeds_text(LARGE_EFFECT, answer, unit)} for one of {LARGE_EFFECT:g}"
        sentence = (
            f"{difference} {effect:.2g} standard deviations over {unit}s is {chance_text}; {needed}."
            f"{_moderation_sentence(seeds, answer)}"
        )
        return Power(seeds, family, sentence, effect)
    margin = ""
    if answer.margin is not None:
        needed = _seeds_text(answer.margin / spread, answer, unit)
        margin = f"; {needed} for the margin of {answer.margin:g}"
    sentence = (
        f"{difference} {effect * spread:.2g} is {chance_text}, with a standard deviation over {unit}s of "
        f"{spread:.3g} ({source}){margin}.{_moderation_sentence(seeds, answer)}"
    )
    return Power(seeds, family, sentence, effect, spread, source)


def power_without_verdict(
    confirm: ConfirmPlan, answer: AnswerPlan, *, search: SearchPlan | None = None
) -> Power | None:
    """Return why no verdict is possible; None if one is possible.

    Args:
        confirm: Confirmation settings.
        answer: Primary outcomes, margin and error level.
        search: Search settings; a search uses the valid split, so there is no verdict on that split.
    """
    unit, seeds = _units(confirm, search)
    if not answer.family:
        results = "a standard deviation, but no effect" if seeds > 1 else "neither of them"
        sentence = f"The plan has only the baseline, so {amount(seeds, unit)} can show {results}."
        return Power(seeds, 0, sentence)
    if seeds < MIN_VERDICT_SEEDS:
        reason = f"which needs at least {MIN_VERDICT_SEEDS} {unit}s"
    elif search is not None and not answer.outcomes and not confirm.splits:
        reason = "since all measurements are on validation data of the search"
    else:
        return None
    amount_text = f"{amount(seeds, unit)} and {amount(answer.family, 'comparison')}"
    return Power(seeds, answer.family, f"With {amount_text} there can be no verdict, {reason}.")


def _units(confirm: ConfirmPlan, search: SearchPlan | None) -> tuple[str, int]:
    """Return the word for independent observations, and their number per arm."""
    if search is not None and search.repeats > 1:
        return "repeat", search.repeats
    return "seed", len(confirm.seeds)


def _moderation_sentence(seeds: int, answer: AnswerPlan) -> str:
    """Return a sentence on the effect of moderated variances; empty if they are not requested."""
    if not answer.moderated:
        return ""
    arms = answer.family // max(1, len(answer.outcomes))
    if seeds < MIN_UNITS or arms < MIN_ARMS:
        return (
            f" answer.variance: moderated changes nothing with fewer than {MIN_UNITS} seeds or repeats, or "
            f"fewer than {MIN_ARMS} comparisons in an outcome."
        )
    return " Moderated variances find more than this."


def _spread_and_source(stated_spread: float | Mapping[str, Any]) -> tuple[float | None, str]:
    """Return the spread of a spec and its source: a number, or the spread of another sweep."""
    if isinstance(stated_spread, Mapping):
        return stated_spread.get(RESULT_KEY), f"baseline of {stated_spread[FROM_KEY]}"
    return stated_spread, "stated"


def _seeds_text(effect: float, answer: AnswerPlan, unit: str) -> str:
    num_needed = seeds_needed(effect, answer.family, answer.level)
    return f"{'more than 1,000' if num_needed is None else num_needed} {unit}s would be needed"


def _published_spread(
    confirm: ConfirmPlan, answer: AnswerPlan, rows: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any]
) -> tuple[float | None, str]:
    """Return the published spread of the first primary outcome and its source.

    The row of the baseline is preferred.
    """
    outcome = next(iter(answer.outcomes), "")
    splits_by_metric = metric_splits(None, confirm, answer)
    outcome_key = (splits_by_metric.split(outcome), splits_by_metric.quantity(outcome))
    published_rows = [
        row
        for row in rows
        if (row.get("split"), row.get("metric")) == outcome_key
        and float(row.get("std") or 0.0) > 0
        and not row.get("alone")
        and not row.get("posthoc")
    ]
    if not published_rows:
        return None, ""
    # Order: the baseline in its own grid cell, the baseline in other cells, then other rows as listed.
    row = min(published_rows, key=lambda row: (row["arm"] != BASELINE, not matches_cell(row, baseline)))
    is_baseline_row = row["arm"] == BASELINE and matches_cell(row, baseline)
    return float(row["std"]), f"published{'' if is_baseline_row else f' of {row_name(row)}'}, {row['source']}"


def rounds_sentence(plan: Plan) -> str:
    """Return a description of rounds and the expected number of seeds per arm; empty without looks."""
    if plan.confirm is None or plan.confirm.stop is None or plan.answer is None:
        return ""
    seeds, answer, unit = plan.num_units, plan.answer, plan.unit
    means_text = ", ".join(
        f"{expected_seeds(effect, seeds, answer.family, answer.level):.1f} for {effect:g}"
        for effect in EXAMPLE_EFFECTS
    )
    return (
        f"{unit.capitalize()}s run in rounds, {FIRST_LOOK} and then one at a time, and a round waits for "
        f"its slowest trial. An arm whose verdict is certain at level {answer.level * LOOK_LEVEL_SHARE:g} "
        f"after a round runs no further {unit}s. Reference arms run all {seeds} {unit}s. Expected number of "
        f"{unit}s by the difference in standard deviations over {unit}s: {means_text}. "
        f"Arms that would probably stay undecided after all {unit}s also stop early."
    )
