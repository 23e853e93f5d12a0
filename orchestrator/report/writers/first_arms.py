"""Limit the arms of a page, so that it is drawn and opened in seconds even with thousands of arms."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.report.results.contexts import select_arms, select_by_arm
from orchestrator.report.results.details import Details
from orchestrator.report.results.types import Report

MAX_SHOWN_ARMS = 100
"""Maximum number of arms on a page."""
MAX_DRAWN_ARMS = 25
"""Maximum number of arms with separate figures."""
OMITTED_ARMS_NOTE = (
    "Cards, tables and figures show the first {shown} of {arms:,} arms; report.md, report.csv and "
    "report.json contain all arms."
)
UNDRAWN_ARMS_NOTE = (
    "Only the first {drawn} arms have separate figures; `haltsweep report --figures svg` writes the figures "
    "of all arms."
)


def limit_arms(report: Report, details: Details | None) -> tuple[Report, Details | None]:
    """Return report and details, restricted to the arms on the page."""
    if len(report.arms) <= MAX_SHOWN_ARMS:
        return report, details
    part = select_arms(report, report.arms[:MAX_SHOWN_ARMS])
    return part, None if details is None else _select_details(details, part.arms, ("arms", "costs"))


def limit_figures(report: Report, details: Details) -> Details:
    """Return the details of the arms with separate figures."""
    arms = report.arms[:MAX_DRAWN_ARMS]
    costs = (
        curve if curve.arm in arms else replace(curve, path="", points=curve.points[:1])
        for curve in details.costs
    )
    return replace(_select_details(details, arms), costs=tuple(costs))


def figures_note(report: Report) -> tuple[str, ...]:
    """Return a sentence about arms without separate figures; empty if all have some."""
    return (UNDRAWN_ARMS_NOTE.format(drawn=MAX_DRAWN_ARMS),) if len(report.arms) > MAX_DRAWN_ARMS else ()


def omission_notes(report: Report) -> list[str]:
    """Return a sentence about arms that the page of `report` leaves out; empty if it has all."""
    arms = len(report.arms)
    return [OMITTED_ARMS_NOTE.format(shown=MAX_SHOWN_ARMS, arms=arms)] if arms > MAX_SHOWN_ARMS else []


def _select_details(details: Details, arms: Iterable[str], other_fields: Sequence[str] = ()) -> Details:
    """Return the details with only the items of `arms` in the fields with figures and in `other_fields`."""
    names = frozenset(arms)
    fields = ("searches", "curves", "depths", "lengths", "operators", "experts", *other_fields)
    selected: dict[str, Any] = {field: select_by_arm(getattr(details, field), names) for field in fields}
    maps = replace(details.maps, arms=select_by_arm(details.maps.arms, names))
    return replace(details, **selected, maps=maps)
