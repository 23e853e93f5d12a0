"""Split a report by context, so that each part contains only arms of one context."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from orchestrator.report.results.types import PriorWork, Report, ReportContext
from search_spaces.dimensions import equality_key

CONTEXTS_NOTE = (
    "Arms are compared only inside each context ({contexts}). The report makes no claim about "
    "differences between contexts."
)
POOLED_NOTE = (
    "The verdict over all contexts is on the difference of each seed, averaged over the contexts. The "
    "contexts are fixed: the verdict holds for no other contexts."
)


ARM_FIELDS = (
    *("cells", "posthoc", "effects", "tallies", "verdicts", "controls", "crossed", "points", "searched"),
    *("equal_costs", "setting_effects", "changes", "failed_readings"),
)
"""Fields of a report whose items each belong to one arm."""


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
    return [CONTEXTS_NOTE.format(contexts=names)] * bool(names) + [POOLED_NOTE] * bool(report.pooled)


def select_by_arm(items: Iterable[T], arms: Container[str]) -> tuple[T, ...]:
    """Return the items that belong to one of the arms."""
    return tuple(item for item in items if item.arm in arms)


def select_arms(report: Report, arms: Sequence[str]) -> Report:
    """Return the report restricted to `arms`, in the order of `arms`."""
    names = frozenset(arms)
    cells, posthoc = select_by_arm(report.cells, names), select_by_arm(report.posthoc, names)
    metrics = {*report.outcomes, *(cell.metric for cell in (*cells, *posthoc))}
    contexts = (
        replace(context, arms=tuple(arm for arm in context.arms if arm in names))
        for context in report.contexts
    )
    selected: dict[str, Any] = {field: select_by_arm(getattr(report, field), names) for field in ARM_FIELDS}
    return replace(
        report,
        **selected,
        arms=tuple(arms),
        metrics=tuple(metric for metric in report.metrics if metric in metrics),
        factorial=tuple(effect for effect in report.factorial if effect.cell in names),
        unranked={arm: count for arm, count in report.unranked.items() if arm in names},
        contexts=tuple(context for context in contexts if context.arms),
    )


def _context_report(report: Report, context: ReportContext) -> Report:
    prior_work = tuple(row for row in report.prior_work if _is_in_context(row, context.values))
    part = select_arms(report, context.arms)
    return replace(part, floors=context.floors, prior_work=prior_work, contexts=(), pooled=())


def _is_in_context(row: PriorWork, values: Mapping[str, object]) -> bool:
    """Return whether a published row belongs to this context or to no particular one."""
    return all(
        equality_key(row_value) == equality_key(values.get(path, row_value))
        for path, row_value in row.cell.items()
    )
