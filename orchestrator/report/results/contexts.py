"""Split a report by context, so that each part contains only arms of one context."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from orchestrator.report.results.types import PriorWork, Report, ReportContext
from search_spaces.dimensions import equality_key

CONTEXTS = (
    "Arms are compared only inside each context ({contexts}). The report makes no claim about "
    "differences between contexts."
)
POOLED = (
    "The verdict over all contexts is on the difference of each seed, averaged over the contexts. The "
    "contexts are fixed: the verdict holds for no other contexts."
)


class _HasArm(Protocol):
    @property
    def arm(self) -> str: ...


T = TypeVar("T", bound=_HasArm)


def split_by_context(report: Report) -> list[tuple[str, Report]]:
    """Return name and report of each context; without contexts, the full report with an empty name."""
    return [(context.name, _context_report(report, context)) for context in report.contexts] or [("", report)]


def prefix_context(context: str, title: str) -> str:
    """Return the title, preceded by the context if there is one."""
    return f"{context}: {title}" if context else title


def context_notes(report: Report) -> list[str]:
    """Return the notes on contexts; empty without contexts."""
    names = "; ".join(context.name for context in report.contexts)
    return [CONTEXTS.format(contexts=names)] * bool(names) + [POOLED] * bool(report.pooled)


def select_by_arm(items: Iterable[T], arms: Container[str]) -> tuple[T, ...]:
    """Return the items that belong to one of the arms."""
    return tuple(item for item in items if item.arm in arms)


def select_arms(report: Report, arms: Sequence[str]) -> Report:
    """Return the report restricted to `arms`, in the order of `arms`."""
    arm_names = frozenset(arms)

    def select(items: Iterable[T]) -> tuple[T, ...]:
        return select_by_arm(items, arm_names)

    def restrict_context(context: ReportContext) -> ReportContext:
        return replace(context, arms=tuple(arm for arm in context.arms if arm in arm_names))

    cells, posthoc = select(report.cells), select(report.posthoc)
    measured_metrics = {*report.outcomes, *(cell.metric for cell in (*cells, *posthoc))}
    return replace(
        report,
        arms=tuple(arms),
        metrics=tuple(metric for metric in report.metrics if metric in measured_metrics),
        cells=cells,
        posthoc=posthoc,
        effects=select(report.effects),
        tallies=select(report.tallies),
        verdicts=select(report.verdicts),
        controls=select(report.controls),
        crossed=select(report.crossed),
        points=select(report.points),
        searched=select(report.searched),
        equal_costs=select(report.equal_costs),
        setting_effects=select(report.setting_effects),
        changes=select(report.changes),
        factorial=tuple(effect for effect in report.factorial if effect.cell in arm_names),
        failed_readings=select(report.failed_readings),
        unranked={arm: num_unranked for arm, num_unranked in report.unranked.items() if arm in arm_names},
        contexts=tuple(
            report_context for report_context in map(restrict_context, report.contexts) if report_context.arms
        ),
    )


def _context_report(report: Report, context: ReportContext) -> Report:
    return replace(
        select_arms(report, context.arms),
        floors=context.floors,
        prior_work=tuple(
            prior_work for prior_work in report.prior_work if _is_in_context(prior_work, context.values)
        ),
        contexts=(),
        pooled=(),
    )


def _is_in_context(row: PriorWork, values: Mapping[str, object]) -> bool:
    """Return whether a published row belongs to this context or to no particular one."""
    return all(
        equality_key(value) == equality_key(values.get(path, value)) for path, value in row.cell.items()
    )
