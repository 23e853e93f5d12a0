"""List all figures of a report in the order of the page, and provide them as images to notebooks."""

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.report.figures.curve_figures import cost_panels, curve_panels, depth_panels
from orchestrator.report.figures.interval_figures import metric_panels, outcome_panels
from orchestrator.report.figures.search_figures import search_panels
from orchestrator.report.figures.style import Panel, render_panel
from orchestrator.report.halting.map_figures import map_panels
from orchestrator.report.halting.tally_figures import binned_panels, expert_panels
from orchestrator.report.results.details import Details
from orchestrator.report.results.types import Report


def all_panels(report: Report, details: Details | None) -> Iterator[Panel]:
    """Yield all panels; without `details` only those of results."""
    yield from outcome_panels(report)
    if details is not None:
        for place, course in enumerate(details.searches, start=1):
            yield from search_panels(course, place)
        yield from cost_panels(report, details)
        yield from curve_panels(report, details)
        yield from depth_panels(details)
        yield from binned_panels(details.lengths, "tokens")
        yield from binned_panels(details.operators, "operators")
        yield from expert_panels(details.experts)
        for place, arm_maps in enumerate(details.maps.arms, start=1):
            yield from map_panels(arm_maps, place, details.maps.max_per_arm)
    yield from metric_panels(report)


@dataclass(frozen=True, slots=True, repr=False)
class Image:
    """One figure, which a notebook displays."""

    name: str
    png: bytes
    """Content of the PNG file."""

    def __repr__(self) -> str:
        return f"Image({self.name!r}, {len(self.png):,} bytes of PNG)"

    def _repr_png_(self) -> bytes:
        """Return the PNG for IPython, which calls this method."""
        return self.png


def images(report: Report) -> dict[str, Image]:
    """Return every figure of the report by the name of its file; settings of the notebook are unchanged."""
    panels = (*outcome_panels(report), *metric_panels(report))
    return {panel.name: Image(panel.name, render_panel(panel, "png")) for panel in panels}
