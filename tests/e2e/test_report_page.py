"""The page of a report in a real browser: without JavaScript, on a phone, on light and dark, on paper."""

import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from orchestrator.report.writers.page import html_page as page_of
from orchestrator.report.writers.write import write_report_folder
from orchestrator.trials import OutcomeKind
from tests.e2e import mlflow_page
from tests.e2e.pictures import WIDTH as SHOWN_WIDTH
from tests.e2e.pictures import Pictures, save_sections
from tests.e2e.sweeps import Sweep
from tests.orchestrator.report.halting.test_halting_maps import example, keeping
from tests.orchestrator.report.studies import Study, study

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(mlflow_page.missing_dependency()), reason=mlflow_page.missing_dependency() or "all there"
    ),
]
PHONE = 375
PICTURED = (
    *("answer", "outcome", "arms", "search", "compute", "curves", "metrics", "provenance", "reading"),
    *("halting", "depth-by-length", "halting-maps"),
)
"""Sections and parts of sections of which there is a picture; of experts it is of another study."""
LONG = "minus-" + "a-very-long-name-of-a-component-" * 3
WORDS = [f"[OPERATOR-{place}" if place % 3 else str(place % 10) for place in range(50)]
RUNNING = [[100, 70, 20, 3, -1, -1][: 2 + place % 5] + [-1] * (4 - place % 5) for place in range(50)]
KEPT: list[dict[str, Any]] = [
    example(1, parts=[{"words": WORDS, "length": 312, "running": RUNNING}]),
    example(2, target="a long name of a label", answer="another long name of a label"),
    *(
        {
            "kind": kind,
            "split": split,
            "bins": [
                [at, at + 9, 9, 3 + at / 4, 2 + at / 4, 5 + at / 4, 1, 9]
                for at in range(start, start + 90, 10)
            ],
        }
        for kind in ("lengths", "operators")
        for start, split in ((0, "near-iid"), (90, "a-split-with-a-very-long-name-of-its-own"), (9, "far"))
    ),
    {
        "kind": "experts",
        "examples": 9,
        "mixtures": [
            {
                "name": name,
                "classes": ["operator", "a class with a long name", "START, END"],
                "uses": [[(at * 7 + row) % 11 for at in range(experts)] for row in range(3)],
                "layers": [[row + 1, [(at * 5 + row) % 13 for at in range(experts)]] for row in range(12)],
            }
            for name, experts in (("attention", 24), ("feed-forward", 8))
        ],
    },
]
"""What a trial keeps of halting."""
OVERLAPS = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
  const boxes = [...svg.querySelectorAll('text')].map(one => [one.textContent, one.getBoundingClientRect()]);
  const frame = svg.getBoundingClientRect();
  const outside = boxes.filter(([_, box]) => box.left < frame.left - 2 || box.right > frame.right + 2
    || box.top < frame.top - 2 || box.bottom > frame.bottom + 2).map(([text]) => 'outside: ' + text);
  const over = boxes.flatMap(([text, box], place) => boxes.slice(place + 1)
    .filter(([_, other]) => Math.min(box.right, other.right) - Math.max(box.left, other.left) > 2
      && Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top) > 3)
    .map(([other]) => text + ' over ' + other));
  return [...outside, ...over];
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """For a page of each test's own."""
    with mlflow_page.new_browser() as started:
        yield started


@pytest.fixture(scope="module")
def made() -> Study:
    """A study with everything in it, and a long name."""
    return keeping(study(["baseline", "minus-gate", LONG], 4, 12), lambda *_: KEPT)


@pytest.fixture(scope="module")
def file(made: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its page."""
    return write_report_folder(made.report(), tmp_path_factory.mktemp("page"), made.details()).with_name(
        "report.html"
    )


def test_pictures_are_taken_of_every_section(
    browser: "Browser", file: Path, pictures: Pictures, request: pytest.FixtureRequest
) -> None:
    pages: dict[Path, tuple[str, ...]] = {file: (*PICTURED, "experts")}
    if pictures.kept:
        studies: list[Sweep] = [request.getfixturevalue(name) for name in ("compared", "sparse")]
        shown, experts_sweep = (each.folder.report / "report.html" for each in studies)
        pages = {shown: PICTURED, experts_sweep: ("experts",)}
    for place, names in pages.items():
        sections = re.findall(r'<section id="([^"]+)">', place.read_text(encoding="utf-8"))
        assert set(sections) <= {*PICTURED}
        with mlflow_page.new_page(browser, SHOWN_WIDTH, java_script_enabled=False) as page:
            page.goto(place.as_uri())
            save_sections(pictures, page, names)
    for name in (*PICTURED, "experts"):
        with Image.open(pictures.folder / f"report-{name}.png") as picture:
            assert picture.width > 900
            assert len(picture.getcolors() or ()) > 8, "more than an empty page"


@pytest.mark.parametrize("width", [PHONE, mlflow_page.WIDTH])
def test_the_page_shows_the_values_of_the_records(
    made: Study, browser: "Browser", file: Path, width: int
) -> None:
    values = {
        arm.name: {
            each.seed: each.last.metrics["near-iid/accuracy"]
            for each in made.records
            if (each.arm, each.phase) == (arm.name, "confirm") and each.last is not None
        }
        for arm in made.plan.arms
    }
    baseline = values.pop("baseline")
    with mlflow_page.new_page(browser, width, java_script_enabled=False) as page:
        page.goto(file.as_uri())
        forest = page.locator("#outcome-1 svg text").all_text_contents()
        table = page.get_by_role("region", name=re.compile("primary outcome: mean difference"))
        seeds = page.get_by_role("region", name="near-iid/accuracy, seed by seed")
        said = page.locator(".verdicts li").all_inner_texts()
        (of_baseline,) = [line for line in said if line.startswith("baseline:")]
        assert f"near-iid/accuracy {statistics.fmean(baseline.values()):.3f} [" in of_baseline
        for arm, own in values.items():
            mean = statistics.fmean(own.values())
            difference = statistics.fmean(value - baseline[seed] for seed, value in own.items())
            assert any(text.startswith(f"{mean:.3f} [") for text in forest)
            row = table.get_by_role("row").filter(has_text=f"{arm} - baseline")
            assert f"{difference:+.3f} [" in row.inner_text()
            assert any(line.startswith(f"{arm}:") and f"{difference:+.3f} [" in line for line in said)
            cells = seeds.get_by_role("row").filter(has_text=arm).get_by_role("cell").all_inner_texts()
            assert cells == [f"{value:.3f}" for value in own.values()]


@pytest.mark.parametrize("width", [PHONE, mlflow_page.WIDTH])
def test_the_page_needs_no_javascript_and_no_network(browser: "Browser", file: Path, width: int) -> None:
    asked: list[str] = []
    with mlflow_page.new_page(browser, width, java_script_enabled=False, offline=True) as page:
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        assert page.locator("svg").count() > 10
        for line in page.locator(".verdicts li").all():
            assert line.is_visible()
        assert page.get_by_role("img", name="near-iid/accuracy, mean with 95% interval").is_visible()
        assert page.get_by_role("heading", name="Provenance").is_visible()
        for name in ("map-1-1", "operators-1", "experts-1"):
            assert page.locator(f"#{name} svg").is_visible()
    assert asked == [file.as_uri()]


@pytest.mark.parametrize("width", [PHONE, mlflow_page.WIDTH])
def test_the_page_fits_the_screen_and_texts_do_not_overlap(
    browser: "Browser", file: Path, width: int
) -> None:
    # A phone shows a page that does not say how wide it is as on a desk, and small.
    with mlflow_page.new_page(browser, width, is_mobile=width == PHONE) as page:
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERLAPS) == []


EXTREMES = {
    "many": study(16, 16, 3, thresholds=()),
    "one seed": study(2, 1, 0, thresholds=()),
    "names": study([LONG, f"{LONG}2", "under_score_" * 9, "x" * 120], 2, 3, thresholds=()),
    "nothing": study(2, 2, 2, thresholds=(), fate=lambda *_: None),
    "failures": study(2, 2, 2, thresholds=(), fate=lambda *_: OutcomeKind.DIVERGED),
}
CUT = """() => {
  const wide = [...document.querySelectorAll('body *')].filter(one => !one.closest('.wide:not(.stacked), svg')
    && one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 80));
  const titles = [...document.querySelectorAll('caption span')].filter(one =>
    one.getBoundingClientRect().right > innerWidth).map(one => one.textContent);
  return [...wide, ...titles];
}"""

SCROLLED = """() => [...document.querySelectorAll('.wide')].filter(box => box.scrollWidth > box.clientWidth)
  .filter(box => {
    box.scrollLeft = 99;
    const seen = box.scrollLeft > 0 && getComputedStyle(box).backgroundAttachment == 'local, scroll'
      && [...box.querySelectorAll('tbody th')].every(one =>
        Math.abs(one.getBoundingClientRect().left - box.getBoundingClientRect().left) < 2);
    return !seen;
  }).map(box => box.getAttribute('aria-label'))"""
"""Tables wider than their box that do not move in it, show no shadow, or lose the names of their rows."""
PARTED = """() => [
  ...[...document.querySelectorAll('.wide, figure, .arm')].filter(one =>
    getComputedStyle(one).breakInside != 'avoid'),
  ...[...document.querySelectorAll('section h2, section h3, section > .aside, section > dl')].filter(one =>
    one.nextElementSibling && getComputedStyle(one).breakAfter != 'avoid'),
].map(one => one.outerHTML.slice(0, 80))"""
"""What a page of paper may end in the middle of, and headings that it may end with."""


def test_no_study_makes_a_page_that_scrolls_sideways_or_hides_a_title(
    browser: "Browser", tmp_path: Path
) -> None:
    places = {name: tmp_path / f"{name}.html" for name in EXTREMES}
    for name, made in EXTREMES.items():
        places[name].write_text(page_of(made.report(), made.details()), encoding="utf-8")
        assert places[name].stat().st_size < 5_000_000, name
    for width in (390, 1280):
        with mlflow_page.new_page(browser, width) as page:
            for name, place in places.items():
                page.goto(place.as_uri())
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
                assert page.evaluate(CUT) == [], (name, width)
                assert page.evaluate(SCROLLED) == [], (name, width)


@pytest.mark.parametrize("settings", [{"color_scheme": "light"}, {"color_scheme": "dark"}])
def test_figures_take_the_colours_of_the_page(
    browser: "Browser", file: Path, settings: dict[str, Any]
) -> None:
    with mlflow_page.new_page(browser, **settings) as page:
        page.goto(file.as_uri())
        paper, ink = page.evaluate(
            "() => [getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('svg text')).fill]"
        )
        brightness = [
            sum(map(int, each.removeprefix("rgb(").removesuffix(")").split(","))) for each in (paper, ink)
        ]
        assert abs(brightness[0] - brightness[1]) > 450
        assert (brightness[0] < brightness[1]) == (settings["color_scheme"] == "dark")


def test_the_page_can_be_printed(browser: "Browser", file: Path) -> None:
    with mlflow_page.new_page(browser, color_scheme="dark") as page:
        page.goto(file.as_uri())
        assert page.pdf(format="A4").startswith(b"%PDF")
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate(PARTED) == []
