"""Split a report by context, so that each part contains only arms of one context."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from orchestrator.report.results.types import PriorWork, Report, ReportContext
from search_spaces.dimensions import equality_key

CONTEXTS = (
    "Arms are compared inside each context alone ({contexts}): nothing is said of differences between "
    "contexts."
)
POOLED = (
    "The verdict over all contexts is on the difference of each seed, averaged over the contexts. The "
    "contexts are fixed: it says nothing of other contexts."
)


class _OfArm(Protocol):
    @property
    def arm(self) -> str: ...


T = TypeVar("T", bound=_OfArm)


def by_context(report: Report) -> list[tuple[str, Report]]:
    """Return name and report of each context; without contexts, the full report with an empty name."""
    return [(each.name, _inside(report, each)) for each in report.contexts] or [("", report)]


def titled(context: str, title: str) -> str:
    """Return the title, preceded by the context if there is one."""
    return f"{context}: {title}" if context else title


def context_notes(report: Report) -> list[str]:
    """Return the notes on contexts; empty without contexts."""
    names = "; ".join(each.name for each in report.contexts)
    return [CONTEXTS.format(contexts=names)] * bool(names) + [POOLED] * bool(report.pooled)


def only(found: Iterable[T], arms: Container[str]) -> tuple[T, ...]:
    """Return the items that belong to one of the arms."""
    return tuple(each for each in found if each.arm in arms)


def of_arms(report: Report, arms: Sequence[str]) -> Report:
    """Return the report restricted to `arms`, in the order of `arms`."""
    kept = frozenset(arms)

    def own(found: Iterable[T]) -> tuple[T, ...]:
        return only(found, kept)

    def of_context(context: ReportContext) -> ReportContext:
        return replace(context, arms=tuple(arm for arm in context.arms if arm in kept))

    cells, posthoc = own(report.cells), own(report.posthoc)
    measured = {*report.outcomes, *(cell.metric for cell in (*cells, *posthoc))}
    return replace(
        report,
        arms=tuple(arms),
        metrics=tuple(metric for metric in report.metrics if metric in measured),
        cells=cells,
        posthoc=posthoc,
        effects=own(report.effects),
        tallies=own(report.tallies),
        verdicts=own(report.verdicts),
        controls=own(report.controls),
        crossed=own(report.crossed),
        points=own(report.points),
        searched=own(report.searched),
        equal_costs=own(report.equal_costs),
        setting_effects=own(report.setting_effects),
        changes=own(report.changes),
        factorial=tuple(each for each in report.factorial if each.cell in kept),
        failed_readings=own(report.failed_readings),
        unranked={arm: many for arm, many in report.unranked.items() if arm in kept},
        contexts=tuple(each for each in map(of_context, report.contexts) if each.arms),
    )


def _inside(report: Report, context: ReportContext) -> Report:
    return replace(
        of_arms(report, context.arms),
        floors=context.floors,
        prior_work=tuple(each for each in report.prior_work if _belongs(each, context.values)),
        contexts=(),
        pooled=(),
    )


def _belongs(row: PriorWork, values: Mapping[str, object]) -> bool:
    """Return whether a published row names no other context."""
    return all(
        equality_key(value) == equality_key(values.get(path, value)) for path, value in row.cell.items()
    )
