"""Create tables of seeds and repeats as rows of text: single values, spreads, chosen settings."""

from collections.abc import Iterator
from math import sqrt
from statistics import fmean, stdev, variance

from orchestrator.plan.display.format import setting_words
from orchestrator.report.results.number_formats import format_number
from orchestrator.report.results.types import Report, TextTable
from orchestrator.statistics.decision_chance import DecisionChance
from search_spaces.wording import amount

MIN_DEVIATION_VALUES = 2
"""Number of values that a standard deviation needs."""
NUM_DIGITS = 4
"""Digits of chosen values."""


def chosen_settings_table(report: Report) -> Iterator[TextTable]:
    """Yield the table of the settings that every repeat of every search chose, if searches are repeated."""
    rows = [
        (tally.arm, str(repeat), setting_words(assignment, NUM_DIGITS))
        for tally in report.tallies
        for repeat, assignment in tally.chosen
        if assignment
    ]
    if rows:
        title = "settings that each repeat of the search chose"
        yield TextTable(title, ("arm", "repeat", "chosen"), tuple(rows))


def seed_tables(report: Report, metric: str) -> Iterator[TextTable]:
    """Yield the table of every seed's value, because a mean hides a seed that collapsed."""
    failures = {tally.arm: dict(tally.failures) for tally in report.tallies}
    texts_by_arm: dict[str, dict[int, str]] = {}
    for arm in report.arms:
        cell = report.cell(arm, metric)
        values = {seed: format_number(value) for seed, value in (cell.by_seed if cell else ())}
        texts_by_arm[arm] = failures.get(arm, {}) | values
    known_seeds = {seed for texts in texts_by_arm.values() for seed in texts}
    if not known_seeds:
        return
    planned_seeds = [seed for seed in report.confirm_seeds if seed in known_seeds]
    seeds = [*planned_seeds, *sorted(known_seeds.difference(planned_seeds))]
    rows = tuple((arm, *(texts.get(seed, "-") for seed in seeds)) for arm, texts in texts_by_arm.items())
    title, names = f"{metric}, seed by seed", {seed: str(seed) for seed in seeds}
    if report.repeats > 1:
        title += " after the repeat of the search"
        repeat_of = {seed: repeat for repeat, unit_seeds in report.unit_seeds for seed in unit_seeds}
        names |= {seed: f"{repeat_of[seed]}: {seed}" for seed in seeds if seed in repeat_of}
    yield TextTable(title, ("arm", *names.values()), rows, narrow=True)


def decision_chance_tables(report: Report, metric: str) -> Iterator[TextTable]:
    """Yield the table of the chance that more seeds or repeats decide undecided arms."""
    chances = {
        verdict.arm: {chance.more: chance for chance in reversed(verdict.outlooks)}
        for verdict in report.verdicts
        if verdict.metric == metric and verdict.outlooks
    }
    numbers = sorted({number for by_number in chances.values() for number in by_number})
    rows = tuple(
        (arm, *(_format_chance(by_number.get(number)) for number in numbers))
        for arm, by_number in chances.items()
    )
    title = (
        f"{metric}, undecided: chance that more {report.unit}s decide, and the difference that all of them "
        "find 8 times in 10"
    )
    if rows:
        yield TextTable(title, ("arm", *(amount(number, f"more {report.unit}") for number in numbers)), rows)


def _format_chance(chance: DecisionChance | None) -> str:
    return "-" if chance is None else f"{chance.chance:.0%}, {format_number(chance.difference)}"


def deviation_tables(report: Report, metric: str) -> Iterator[TextTable]:
    """Yield standard deviations between repeats of the search and between the seeds of one repeat."""
    rows = []
    for arm in report.arms if report.repeats > 1 else ():
        cell = report.cell(arm, metric)
        if cell is None or len(cell.by_unit) < MIN_DEVIATION_VALUES:
            continue
        values, means = dict(cell.by_seed), dict(cell.by_unit)
        variances_within_repeats = [
            variance([values[seed] for seed in seeds])
            for repeat, seeds in report.unit_seeds
            if repeat in means and len(seeds) >= MIN_DEVIATION_VALUES
        ]
        deviation_of_seeds = (
            format_number(sqrt(fmean(variances_within_repeats)))
            if variances_within_repeats
            else "one seed each"
        )
        rows.append((arm, format_number(stdev(means.values())), deviation_of_seeds))
    if rows:
        title = f"{metric}, standard deviations: of the means of repeats, and of seeds within a repeat"
        yield TextTable(title, ("arm", "between repeats", "within a repeat"), tuple(rows))
