"""The page of a report in a browser: without JavaScript, on a phone, in light and dark, and in print."""

import re
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from orchestrator.report.writers.page import html_page as page_of
from orchestrator.report.writers.write import write_report_folder
from orchestrator.trials import OutcomeKind
from tests.e2e import mlflow_page
from tests.e2e.pictures import WIDTH as PICTURE_WIDTH
from tests.e2e.pictures import save_sections
from tests.e2e.sweeps import Sweep
from tests.orchestrator.report.halting.test_halting_maps import make_example, with_examples
from tests.orchestrator.report.studies import make_study

if TYPE_CHECKING:
    pass

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(mlflow_page.missing_dependency()),
        reason=mlflow_page.missing_dependency() or "no dependency is missing",
    ),
]
PHONE_WIDTH = 375
PICTURED_SECTIONS = (
    *("answer", "outcome", "arms", "search", "compute", "curves", "metrics", "provenance", "reading"),
    *("halting", "depth-by-length", "halting-maps"),
)
"""Sections and parts of sections with a picture; the picture of experts shows another sweep."""
LONG_NAME = "minus-" + "a-very-long-name-of-a-component-" * 3
WORDS = [f"[OPERATOR-{place}" if place % 3 else str(place % 10) for place in range(50)]
RUNNING = [[100, 70, 20, 3, -1, -1][: 2 + place % 5] + [-1] * (4 - place % 5) for place in range(50)]
HALTING_DETAILS: list[dict[str, Any]] = [
    make_example(1, parts=[{"words": WORDS, "length": 312, "running": RUNNING}]),
    make_example(2, target="a long name of a label", answer="another long name of a label"),
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
"""Halting details that a trial stores."""
OVERLAPS_JS = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
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
def browser():
    """A browser in which each test opens a page."""
    with mlflow_page.new_browser() as started:
        yield started


@pytest.fixture(scope="module")
def full_study():
    """A study with every section of the report, and a long name of an arm."""
    return with_examples(make_study(["baseline", "minus-gate", LONG_NAME], 4, 12), lambda *_: HALTING_DETAILS)


@pytest.fixture(scope="module")
def report_page(full_study, tmp_path_factory):
    """The page of the report on `full_study`."""
    return write_report_folder(
        full_study.report(), tmp_path_factory.mktemp("page"), full_study.details()
    ).with_name("report.html")


def test_every_section_has_a_picture(browser, report_page, pictures, request):
    pages: dict[Path, tuple[str, ...]] = {report_page: (*PICTURED_SECTIONS, "experts")}
    if pictures.is_published:
        studies: list[Sweep] = [
            request.getfixturevalue(name) for name in ("comparison_sweep", "experts_sweep")
        ]
        comparison_page, experts_sweep = (sweep.folder.report / "report.html" for sweep in studies)
        pages = {comparison_page: PICTURED_SECTIONS, experts_sweep: ("experts",)}
    for page_file, names in pages.items():
        sections = re.findall(r'<section id="([^"]+)">', page_file.read_text(encoding="utf-8"))
        assert set(sections) <= {*PICTURED_SECTIONS}
        with mlflow_page.new_page(browser, PICTURE_WIDTH, java_script_enabled=False) as page:
            page.goto(page_file.as_uri())
            save_sections(pictures, page, names)
    for name in (*PICTURED_SECTIONS, "experts"):
        with Image.open(pictures.folder / f"report-{name}.png") as picture:
            assert picture.width > 900
            assert len(picture.getcolors() or ()) > 8, "the picture must not be empty"


@pytest.mark.parametrize("width", [PHONE_WIDTH, mlflow_page.WIDTH])
def test_page_shows_the_values_of_the_records(full_study, browser, report_page, width):
    values = {
        arm.name: {
            record.seed: record.last.metrics["near-iid/accuracy"]
            for record in full_study.records
            if (record.arm, record.phase) == (arm.name, "confirm") and record.last is not None
        }
        for arm in full_study.plan.arms
    }
    baseline = values.pop("baseline")
    with mlflow_page.new_page(browser, width, java_script_enabled=False) as page:
        page.goto(report_page.as_uri())
        forest = page.locator("#outcome-1 svg text").all_text_contents()
        table = page.get_by_role("region", name=re.compile("^near-iid.accuracy, primary outcome"))
        seeds = page.get_by_role("region", name=re.compile("^near-iid.accuracy, seed"))
        verdicts = page.locator(".verdicts li").all_inner_texts()
        (baseline_verdict,) = [line for line in verdicts if line.startswith("baseline:")]
        assert f"near-iid/accuracy {statistics.fmean(baseline.values()):.3f} [" in baseline_verdict
        for arm, arm_values in values.items():
            mean = statistics.fmean(arm_values.values())
            difference = statistics.fmean(value - baseline[seed] for seed, value in arm_values.items())
            assert any(text.startswith(f"{mean:.3f} [") for text in forest)
            row = table.get_by_role("row").filter(has_text=f"{arm} - baseline")
            assert f"{difference:+.3f} [" in row.inner_text()
            assert any(line.startswith(f"{arm}:") and f"{difference:+.3f} [" in line for line in verdicts)
            cells = seeds.get_by_role("row").filter(has_text=arm).get_by_role("cell").all_inner_texts()
            assert cells == [f"{value:.3f}" for value in arm_values.values()]


@pytest.mark.parametrize("width", [PHONE_WIDTH, mlflow_page.WIDTH])
def test_page_needs_no_javascript_and_no_network(browser, report_page, width):
    requested_urls: list[str] = []
    with mlflow_page.new_page(browser, width, java_script_enabled=False, offline=True) as page:
        page.on("request", lambda request: requested_urls.append(request.url))
        page.goto(report_page.as_uri())
        assert page.locator("svg").count() > 10
        for line in page.locator(".verdicts li").all():
            assert line.is_visible()
        assert page.get_by_role("img", name=re.compile("near-iid.accuracy.* 95%")).first.is_visible()
        assert page.get_by_role("heading", name="Provenance").is_visible()
        for name in ("map-1-1", "operators-1", "experts-1"):
            assert page.locator(f"#{name} svg").is_visible()
    assert requested_urls == [report_page.as_uri()]


@pytest.mark.parametrize("width", [PHONE_WIDTH, mlflow_page.WIDTH])
def test_page_fits_the_screen_and_texts_do_not_overlap(browser, report_page, width):
    # A phone scales down a page that declares no width.
    with mlflow_page.new_page(browser, width, is_mobile=width == PHONE_WIDTH) as page:
        page.goto(report_page.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERLAPS_JS) == []


EXTREMES = {
    "many": make_study(12, 12, 2, thresholds=()),
    "one seed": make_study(2, 1, 0, thresholds=()),
    "names": make_study([LONG_NAME, f"{LONG_NAME}2", "under_score_" * 9, "x" * 120], 2, 3, thresholds=()),
    "nothing": make_study(2, 2, 2, thresholds=(), outcome_of=lambda *_: None),
    "failures": make_study(2, 2, 2, thresholds=(), outcome_of=lambda *_: OutcomeKind.DIVERGED),
}
OVERFLOWING_JS = """() => {
  const wide = [...document.querySelectorAll('body *')].filter(one => !one.closest('.wide:not(.stacked), svg')
    && one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 80));
  const titles = [...document.querySelectorAll('caption span')].filter(one =>
    one.getBoundingClientRect().right > innerWidth).map(one => one.textContent);
  return [...wide, ...titles];
}"""

BROKEN_SCROLLING_JS = """() => [...document.querySelectorAll('.wide')]
  .filter(box => box.scrollWidth > box.clientWidth)
  .filter(box => {
    box.scrollLeft = 99;
    const seen = box.scrollLeft > 0 && getComputedStyle(box).backgroundAttachment == 'local, scroll'
      && [...box.querySelectorAll('tbody th')].every(one =>
        Math.abs(one.getBoundingClientRect().left - box.getBoundingClientRect().left) < 2);
    return !seen;
  }).map(box => box.getAttribute('aria-label'))"""
"""Wide tables that do not scroll, show no shadow, or lose the names of their rows."""
BAD_BREAKS_JS = """() => [
  ...[...document.querySelectorAll('.wide, figure, .arm')].filter(one =>
    getComputedStyle(one).breakInside != 'avoid'),
  ...[...document.querySelectorAll('section h2, section h3, section > .aside, section > dl')].filter(one =>
    one.nextElementSibling && getComputedStyle(one).breakAfter != 'avoid'),
].map(one => one.outerHTML.slice(0, 80))"""
"""Elements in which a printed page may end, and headings that may end a page."""


def test_page_of_an_extreme_study_fits_the_width(browser, tmp_path):
    page_files = {name: tmp_path / f"{name}.html" for name in EXTREMES}
    for name, full_study in EXTREMES.items():
        page_files[name].write_text(page_of(full_study.report(), full_study.details()), encoding="utf-8")
        assert page_files[name].stat().st_size < 5_000_000, name
    for width in (390, 1280):
        with mlflow_page.new_page(browser, width) as page:
            for name, page_file in page_files.items():
                page.goto(page_file.as_uri())
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
                assert page.evaluate(OVERFLOWING_JS) == [], (name, width)
                assert page.evaluate(BROKEN_SCROLLING_JS) == [], (name, width)


@pytest.mark.parametrize("settings", [{"color_scheme": "light"}, {"color_scheme": "dark"}])
def test_figures_use_the_colours_of_the_page(browser, report_page, settings):
    with mlflow_page.new_page(browser, **settings) as page:
        page.goto(report_page.as_uri())
        paper, ink = page.evaluate(
            "() => [getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('svg text')).fill]"
        )
        brightness = [
            sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(","))) for colour in (paper, ink)
        ]
        assert abs(brightness[0] - brightness[1]) > 450
        assert (brightness[0] < brightness[1]) == (settings["color_scheme"] == "dark")


def test_page_can_be_printed(browser, report_page):
    with mlflow_page.new_page(browser, color_scheme="dark") as page:
        page.goto(report_page.as_uri())
        assert page.pdf(format="A4").startswith(b"%PDF")
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate(BAD_BREAKS_JS) == []
