"""The figures of a report as objects that a notebook shows by itself."""

from dataclasses import dataclass

from orchestrator.report.figures import metric_panels, outcome_panels
from orchestrator.report.style import rendered
from orchestrator.report.types import Report


@dataclass(frozen=True, slots=True, repr=False)
class Image:
    """One figure."""

    name: str
    png: bytes
    """The bytes of its file."""

    def __repr__(self) -> str:
        return f"Image({self.name!r}, {len(self.png):,} bytes of PNG)"

    def _repr_png_(self) -> bytes:
        """IPython's own name for it."""
        return self.png


def images(report: Report) -> dict[str, Image]:
    """Every figure that the report has, by the name of its file; the notebook's own settings stay."""
    panels = (*outcome_panels(report), *metric_panels(report))
    return {each.name: Image(each.name, rendered(each, "png")) for each in panels}
