"""Limit the arms of a page, so that it is drawn and opened in seconds even with thousands of arms."""

from collections.abc import Container
from dataclasses import replace

from orchestrator.report.results.contexts import of_arms, only
from orchestrator.report.results.details import Details
from orchestrator.report.results.types import Report

SHOWN = 100
"""Maximum number of arms on a page."""
DRAWN = 25
"""Maximum number of arms with separate figures."""
LEFT_OUT = (
    "Cards, tables and figures are of the first {shown} of {arms:,} arms; report.md, report.csv and "
    "report.json have all of them."
)
NOT_DRAWN = (
    "Only the first {drawn} arms have figures of their own; `haltsweep report` with `--figures svg` writes "
    "those of all."
)


def shown_arms(report: Report, details: Details | None) -> tuple[Report, Details | None]:
    """Return report and details, restricted to the arms on the page."""
    if len(report.arms) <= SHOWN:
        return report, details
    part = of_arms(report, report.arms[:SHOWN])
    if details is None:
        return part, None
    arms = frozenset(part.arms)
    own = _details_of(details, arms)
    return part, replace(own, arms=only(details.arms, arms), costs=only(details.costs, arms))


def drawn_arms(report: Report, details: Details) -> Details:
    """Return the details of the arms with separate figures."""
    arms = frozenset(report.arms[:DRAWN])
    costs = (
        each if each.arm in arms else replace(each, path="", points=each.points[:1]) for each in details.costs
    )
    return replace(_details_of(details, arms), costs=tuple(costs))


def not_drawn(report: Report) -> tuple[str, ...]:
    """Return a sentence about arms without separate figures; empty if all have some."""
    return (NOT_DRAWN.format(drawn=DRAWN),) if len(report.arms) > DRAWN else ()


def left_out(report: Report) -> list[str]:
    """Return a sentence about arms that the page of `report` leaves out; empty if it has all."""
    arms = len(report.arms)
    return [LEFT_OUT.format(shown=SHOWN, arms=arms)] if arms > SHOWN else []


def _details_of(details: Details, arms: Container[str]) -> Details:
    return replace(
        details,
        searches=only(details.searches, arms),
        curves=only(details.curves, arms),
        depths=only(details.depths, arms),
        maps=replace(details.maps, arms=only(details.maps.arms, arms)),
        lengths=only(details.lengths, arms),
        operators=only(details.operators, arms),
        experts=only(details.experts, arms),
    )
