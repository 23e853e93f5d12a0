"""Pictures of the report for the documentation, which `pytest --retake-pictures` takes."""

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from orchestrator.identity import SweepFolder
from tests.support.processes.commands import Shell

if TYPE_CHECKING:
    from playwright.sync_api import Page

FIGURES = Path(__file__).parents[2] / "experiments" / "figures"
WIDTH, HEIGHT = 1000, 1500
"""Pixels: size of the window that shows the report, and greatest size of a picture."""
COLOURS = 128
"""Colours of a picture; few, so that files stay small."""
EXAMPLE_SPEC = FIGURES.with_name("quickstart.yaml")
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


def save(name: str, png: bytes) -> None:
    """Save a picture with few colours, cut to the greatest height."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    cropped = image.crop((0, 0, image.width, min(image.height, HEIGHT)))
    # MAXCOVERAGE keeps rare colours: by frequency, green and orange would turn grey.
    reduced = cropped.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE)
    reduced.save(FIGURES / f"{name}.png", optimize=True)


def example_page(root: Path, name: str, changes: Iterable[str]) -> Path:
    """Run the example sweep with `changes`, which name it `name`, below `root`; return its report's page."""
    shell = Shell.at(root, drawn=True)
    (shell.folder / EXAMPLE_SPEC.name).write_text(EXAMPLE_SPEC.read_text(encoding="utf-8"), encoding="utf-8")
    answer = shell.run("launch", EXAMPLE_SPEC.name, *changes, "--driver", "inline")
    assert answer.code == 0, answer.err
    return SweepFolder(shell.folder / "runs" / name).report / "report.html"


def save_sections(page: "Page", names: Iterable[str]) -> None:
    """Save a picture of each named section of the report in `page`, or of a part of its halting section."""
    for name in names:
        if name in HALTING_PARTS:
            top, bottom = page.evaluate(FIGURE_EXTENT_JS, list(HALTING_PARTS[name]))
            clip = {"x": 0, "y": top, "width": WIDTH, "height": min(bottom - top, HEIGHT)}
            png = page.screenshot(full_page=True, clip=clip)  # type: ignore[arg-type]
        else:
            png = page.locator("header" if name == "answer" else f"#{name}").screenshot()
        save(f"report-{name}", png)
