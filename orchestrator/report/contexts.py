"""Splits a report by context, so that arms of different contexts never share a table."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

from orchestrator.report.types import PriorWork, Report, ReportContext
from search_spaces.dimensions import key_of

CONTEXTS = "Arms are compared only within each context ({contexts}), never across contexts."
POOLED = (
    "The verdict over all contexts tests the difference of each seed, averaged over the contexts. The "
    "contexts are fixed, so the verdict does not extend to other contexts."
)


class _OfArm(Protocol):
    @property
    def arm(self) -> str: ...


T = TypeVar("T", bound=_OfArm)


def by_context(report: Report) -> list[tuple[str, Report]]:
    """Return the report of each context by name; without contexts the whole report."""
    return [(each.name, _inside(report, each)) for each in report.contexts] or [("", report)]


def titled(context: str, title: str) -> str:
    """Return a title with the name of its context, if any."""
    return f"{context}: {title}" if context else title


def context_notes(report: Report) -> list[str]:
    """Explain how contexts are compared; empty without contexts."""
    names = "; ".join(each.name for each in report.contexts)
    return [CONTEXTS.format(contexts=names)] * bool(names) + [POOLED] * bool(report.pooled)


def _inside(report: Report, context: ReportContext) -> Report:
    def own(found: Iterable[T]) -> tuple[T, ...]:
        return tuple(each for each in found if each.arm in context.arms)

    cells, posthoc = own(report.cells), own(report.posthoc)
    measured = {*report.outcomes, *(cell.metric for cell in (*cells, *posthoc))}
    return replace(
        report,
        arms=context.arms,
        metrics=tuple(metric for metric in report.metrics if metric in measured),
        cells=cells,
        posthoc=posthoc,
        effects=own(report.effects),
        tallies=own(report.tallies),
        floors=context.floors,
        prior_work=tuple(each for each in report.prior_work if _belongs(each, context.values)),
        verdicts=own(report.verdicts),
        points=own(report.points),
        searched=own(report.searched),
        equal_costs=own(report.equal_costs),
        setting_effects=own(report.setting_effects),
        changes=own(report.changes),
        factorial=tuple(each for each in report.factorial if each.cell in context.arms),
        failed_readings=own(report.failed_readings),
        unranked={arm: many for arm, many in report.unranked.items() if arm in context.arms},
        contexts=(),
        pooled=(),
    )


def _belongs(row: PriorWork, values: Mapping[str, object]) -> bool:
    """Return whether a published row belongs to this context."""
    return all(key_of(value) == key_of(values.get(path, value)) for path, value in row.cell.items())
