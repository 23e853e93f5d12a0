"""Create tables of seeds and repeats as rows of text: single values, spreads, chosen settings."""

from collections.abc import Iterator, Sequence
from math import sqrt
from statistics import fmean, stdev, variance

from orchestrator.plan.display.format import setting_words
from orchestrator.report.results.number_formats import format_number
from orchestrator.report.results.types import Grid, Report
from orchestrator.statistics.decision_chance import DecisionChance
from search_spaces.wording import amount

MIN_VALUES = 2
"""Number of values that a standard deviation needs."""
DIGITS = 4
"""Digits of chosen values."""


def chosen_settings(report: Report) -> Iterator[Grid]:
    """Yield the table of the settings that every repeat of every search chose, if searches are repeated."""
    rows = [
        (tally.arm, str(repeat), setting_words(assignment, DIGITS))
        for tally in report.tallies
        for repeat, assignment in tally.chosen
        if assignment
    ]
    if rows:
        title = "settings that each repeat of the search chose"
        yield Grid(title, ("arm", "repeat", "chosen"), tuple(rows))


def seed_tables(report: Report, metric: str) -> Iterator[Grid]:
    """Yield the table of every seed's value, because a mean hides a seed that collapsed."""
    failures = {tally.arm: dict(tally.failures) for tally in report.tallies}
    texts_by_seed = {
        arm: failures.get(arm, {})
        | {seed: format_number(value) for seed, value in (cell.by_seed if cell else ())}
        for arm in report.arms
        for cell in [report.cell(arm, metric)]
    }
    known_seeds = {seed for values in texts_by_seed.values() for seed in values}
    if not known_seeds:
        return
    seeds = [
        *(seed for seed in report.confirm_seeds if seed in known_seeds),
        *sorted(known_seeds - {*report.confirm_seeds}),
    ]
    rows = tuple((arm, *(values.get(seed, "-") for seed in seeds)) for arm, values in texts_by_seed.items())
    if report.repeats == 1:
        yield Grid(f"{metric}, seed by seed", ("arm", *map(str, seeds)), rows, narrow=True)
        return
    repeat_of = {seed: repeat for repeat, unit_seeds in report.unit_seeds for seed in unit_seeds}
    seed_texts = (f"{repeat_of[seed]}: {seed}" if seed in repeat_of else str(seed) for seed in seeds)
    title = f"{metric}, seed by seed after the repeat of the search"
    yield Grid(title, ("arm", *seed_texts), rows, narrow=True)


def decision_chance_tables(report: Report, metric: str) -> Iterator[Grid]:
    """Yield the table of the chance that more seeds or repeats decide undecided arms."""
    verdicts = [verdict for verdict in report.verdicts if verdict.metric == metric and verdict.outlooks]
    if not verdicts:
        return
    numbers = sorted({chance.more for verdict in verdicts for chance in verdict.outlooks})
    rows = tuple(
        (verdict.arm, *(_format_chance(verdict.outlooks, number) for number in numbers))
        for verdict in verdicts
    )
    title = (
        f"{metric}, undecided: chance that more {report.unit}s decide, and the difference that all of them "
        "find 8 times in 10"
    )
    yield Grid(title, ("arm", *(f"{amount(number, f'more {report.unit}')}" for number in numbers)), rows)


def _format_chance(chances: Sequence[DecisionChance], additional: int) -> str:
    words = (
        f"{chance.chance:.0%}, {format_number(chance.difference)}"
        for chance in chances
        if chance.more == additional
    )
    return next(words, "-")


def deviation_tables(report: Report, metric: str) -> Iterator[Grid]:
    """Yield standard deviations between repeats of the search and between the seeds of one repeat."""
    rows = []
    for arm in report.arms if report.repeats > 1 else ():
        cell = report.cell(arm, metric)
        if cell is None or len(cell.by_unit) < MIN_VALUES:
            continue
        values, means = dict(cell.by_seed), dict(cell.by_unit)
        within = [
            variance([values[seed] for seed in seeds])
            for repeat, seeds in report.unit_seeds
            if repeat in means and len(seeds) >= MIN_VALUES
        ]
        of_seeds = format_number(sqrt(fmean(within))) if within else "one seed each"
        rows.append((arm, format_number(stdev(means.values())), of_seeds))
    if rows:
        title = f"{metric}, standard deviations: of the means of repeats, and of seeds within a repeat"
        yield Grid(title, ("arm", "between repeats", "within a repeat"), tuple(rows))
