"""The figures of a report as objects that a notebook shows by itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.report.figures import draw, figured
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
    """Every figure that the report has, by name."""
    with TemporaryDirectory(prefix="haltsweep-figures-") as folder, _backend_kept():
        made = {}
        for name in figured(report):
            file = Path(folder) / "figure.png"
            if draw(report, name, file):
                made[name] = Image(name, file.read_bytes())
        return made


@contextmanager
def _backend_kept() -> Iterator[None]:
    """Matplotlib draws into files within, and then again where the notebook's other cells draw."""
    import matplotlib as mpl

    before = mpl.get_backend()
    try:
        yield
    finally:
        mpl.use(before)
