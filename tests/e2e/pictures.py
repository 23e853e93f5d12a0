"""Pictures of pages that tests open, written to a temporary folder or to the documentation's figures.

With `pytest --retake-pictures` the tests run example sweeps, open their pages and replace the figures.
"""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from orchestrator.cli.locations import tracking_uri
from orchestrator.cli.stored_sweep import open_stored_sweep
from orchestrator.identity import SweepFolder
from orchestrator.plan.serialise import read_plan
from orchestrator.trials import Record
from tests.e2e.sweeps import Sweep
from tests.support.processes.commands import Shell

if TYPE_CHECKING:
    from playwright.sync_api import Page

FIGURES = Path("experiments/figures")
WIDTH, HEIGHT = 1000, 1500
"""Pixels: size of the window that shows the report, and greatest size of a picture."""
COLOURS = 128
"""Colours of a picture; few, so that files stay small."""
EXAMPLE_SPEC = Path("experiments/quickstart.yaml")
EXAMPLE_CHANGES = (
    *("baseline.train.steps=120", "baseline.model.width=32", "baseline.task.trees=4000"),
    *("baseline.train.report_every=40", "search.trials_per_arm=6", "search.repeats=3"),
    "confirm.halting_examples=4",
    "posthoc={model.halt.threshold: [0.3, 0.6, 0.9]}",
)
"""Overrides of the example spec: shorter training, and content for every section of the report."""
EXPERT_ATTENTION = "{experts: 6, active: 2, heads: 2, head_width: 16, window: 1}"
SPARSE_MODEL = (
    "{name: sut, width: 32, max_layers: 4, halt: {threshold: 0.999}, dropout: 0.0, attention_dropout: 0.0, "
    f"attention: {EXPERT_ATTENTION}, feedforward: {{experts: 6, active: 2, width: 64}}}}"
)
EXPERTS_CHANGES = (
    *("name=experts", "arms={}", "search=null", "answer=null", f"baseline.model={SPARSE_MODEL}"),
    "confirm={seeds: [101], splits: [near-iid], halting_examples: 2}",
)
"""Overrides of the example spec that select a model with experts."""
HALTING_PARTS: Mapping[str, tuple[str, str]] = {
    "halting": ("depth-1", "depth-1"),
    "depth-by-length": ("tokens-1", "operators-1"),
    "experts": ("experts-1", "experts-1"),
    "halting-maps": ("map-1-1", "map-1-1"),
}
"""Pictures of the section on halting, each with the ids of its first and last figure."""
FIGURE_EXTENT_JS = """([first, last]) => {
  const headings = [...document.querySelectorAll('h2, h3')].map(one => one.getBoundingClientRect());
  const [begin, end] = [first, last].map(id => document.getElementById(id).getBoundingClientRect().top);
  const top = Math.max(...headings.map(one => one.top).filter(each => each < begin));
  const below = headings.map(one => one.top).filter(each => each > end);
  return [top + scrollY, Math.min(document.body.scrollHeight, ...below.map(each => each + scrollY))];
}"""
"""JavaScript that returns top and bottom, in pixels, from the heading of one figure to the end of another."""


@dataclass(frozen=True)
class Pictures:
    """Writes pictures to `folder`."""

    folder: Path
    is_published: bool
    """Whether the pictures go to the documentation, and so must show an example sweep."""

    def save(self, name: str, png: bytes) -> None:
        """Save a picture with few colours, cut to the greatest height."""
        self.folder.mkdir(parents=True, exist_ok=True)
        image = Image.open(io.BytesIO(png)).convert("RGB")
        cropped = image.crop((0, 0, image.width, min(image.height, HEIGHT)))
        # MAXCOVERAGE keeps rare colours: by frequency, green and orange would turn grey.
        reduced = cropped.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE)
        reduced.save(self.folder / f"{name}.png", optimize=True)


def run_example_sweep(root: Path, name: str, changes: Iterable[str]) -> Sweep:
    """Run the example sweep with `changes`, which name it `name`, through the command line below `root`."""
    shell = Shell.at(root, tracked=True, draws_figures=True)
    (shell.folder / EXAMPLE_SPEC.name).write_text(EXAMPLE_SPEC.read_text(encoding="utf-8"), encoding="utf-8")
    with shell.started("launch", EXAMPLE_SPEC.name, *changes, "--driver", "inline") as process:
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    runs = shell.folder / "runs"
    folder = SweepFolder(runs / name)
    return Sweep(folder, read_plan(folder), records_of(folder), tracking_uri(None, runs))


def records_of(folder: SweepFolder) -> list[Record]:
    """Return the ledger's record of every trial."""
    with open_stored_sweep(folder.name, folder.root.parent) as sweep:
        return sweep.records()


def save_sections(pictures: Pictures, page: "Page", names: Iterable[str]) -> None:
    """Save a picture of each named section of the report in `page`, or of a part of its halting section."""
    for name in names:
        if name in HALTING_PARTS:
            top, bottom = page.evaluate(FIGURE_EXTENT_JS, list(HALTING_PARTS[name]))
            clip = {"x": 0, "y": top, "width": WIDTH, "height": min(bottom - top, HEIGHT)}
            png = page.screenshot(full_page=True, clip=clip)  # type: ignore[arg-type]
        else:
            png = page.locator("header" if name == "answer" else f"#{name}").screenshot()
        pictures.save(f"report-{name}", png)
