"""Pictures that tests take of what they open: in a folder of their own, or where README and notes show them.

`pytest --retake-pictures` has the tests run studies of the box, look at those, and keep the pictures.
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
"""Pixels of a picture of the report: the window's, and of a picture at most."""
COLOURS = 128
"""Of a picture: files stay small."""
BOX = Path("experiments/quickstart.yaml")
STUDY = (
    *("baseline.train.steps=120", "baseline.model.width=32", "baseline.task.trees=4000"),
    *("baseline.train.report_every=40", "search.trials_per_arm=6", "search.repeats=3"),
    "confirm.halting_examples=4",
    "posthoc={model.halt.threshold: [0.3, 0.6, 0.9]}",
)
"""What is changed of it: it trains for less long, and has something to show in every section."""
EXPERTS = "{experts: 6, active: 2, heads: 2, head_width: 16, window: 1}"
SPARSE_MODEL = (
    "{name: sut, width: 32, max_layers: 4, halt: {threshold: 0.999}, dropout: 0.0, attention_dropout: 0.0, "
    f"attention: {EXPERTS}, feedforward: {{experts: 6, active: 2, width: 64}}}}"
)
SPARSE = (
    *("name=experts", "arms={}", "search=null", "answer=null", f"baseline.model={SPARSE_MODEL}"),
    "confirm={seeds: [101], splits: [near-iid], halting_examples: 2}",
)
"""The same task for a model that has experts."""
PARTS: Mapping[str, tuple[str, str]] = {
    "halting": ("depth-1", "depth-1"),
    "depth-by-length": ("tokens-1", "operators-1"),
    "experts": ("experts-1", "experts-1"),
    "halting-maps": ("map-1-1", "map-1-1"),
}
"""Of the section on halting, which has several: a picture, and the figures that it begins and ends with."""
EXTENT = """([first, last]) => {
  const headings = [...document.querySelectorAll('h2, h3')].map(one => one.getBoundingClientRect());
  const [begin, end] = [first, last].map(id => document.getElementById(id).getBoundingClientRect().top);
  const top = Math.max(...headings.map(one => one.top).filter(each => each < begin));
  const below = headings.map(one => one.top).filter(each => each > end);
  return [top + scrollY, Math.min(document.body.scrollHeight, ...below.map(each => each + scrollY))];
}"""
"""From the heading before one figure to the heading behind another, in pixels of the page."""


@dataclass(frozen=True)
class Pictures:
    """Where pictures go, and what they are of."""

    folder: Path
    kept: bool
    """Whether they are shown to others, and taken of a study of the box."""

    def keep(self, name: str, png: bytes) -> None:
        """A picture as a small file, cut where it gets long."""
        self.folder.mkdir(parents=True, exist_ok=True)
        taken = Image.open(io.BytesIO(png)).convert("RGB")
        cut = taken.crop((0, 0, taken.width, min(taken.height, HEIGHT)))
        # So that rare ones stay: by how many pixels have them, green and orange turn grey.
        few = cut.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE)
        few.save(self.folder / f"{name}.png", optimize=True)


def box_study(root: Path, name: str, changes: Iterable[str]) -> Sweep:
    """The study of the box with `changes`, called `name` by them, launched below `root` as people do."""
    shell = Shell.at(root, tracked=True, drawn=True)
    (shell.folder / BOX.name).write_text(BOX.read_text(encoding="utf-8"), encoding="utf-8")
    with shell.started("launch", BOX.name, *changes, "--driver", "inline") as process:
        _, said = process.communicate()
    assert process.returncode == 0, said
    runs = shell.folder / "runs"
    folder = SweepFolder(runs / name)
    return Sweep(folder, read_plan(folder), records_of(folder), tracking_uri(None, runs))


def records_of(folder: SweepFolder) -> list[Record]:
    """What the ledger holds of every trial."""
    with open_stored_sweep(folder.name, folder.root.parent) as sweep:
        return sweep.records()


def of_sections(pictures: Pictures, page: "Page", names: Iterable[str]) -> None:
    """One of each section called so, or part of the section on halting; `page` shows the report."""
    for name in names:
        if name in PARTS:
            top, bottom = page.evaluate(EXTENT, list(PARTS[name]))
            clip = {"x": 0, "y": top, "width": WIDTH, "height": min(bottom - top, HEIGHT)}
            png = page.screenshot(full_page=True, clip=clip)  # type: ignore[arg-type]
        else:
            png = page.locator("header" if name == "answer" else f"#{name}").screenshot()
        pictures.keep(f"report-{name}", png)
