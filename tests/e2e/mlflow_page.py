"""Operate the MLflow UI in a headless Chromium as a person would, and read its comparison of runs."""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

WIDTH, HEIGHT = 1560, 1000
TIMEOUT_MS = 60_000
"""Longest wait for an element to appear, on a machine that is busy with other tests."""
ROW_HEIGHT = 45
"""Height of a row of the table of metrics, in pixels."""
SCROLL = 5 * ROW_HEIGHT
"""Pixels of one scroll step, less than the table's height, because the table holds only visible rows."""


@dataclass(frozen=True)
class Comparison:
    """Texts of MLflow's page that compares runs, by row and run name."""

    runs: tuple[str, ...]
    params: dict[str, dict[str, str]]
    metrics: dict[str, dict[str, str]]


def missing_dependency() -> str:
    """Return the missing dependency of a browser, or an empty string."""
    if find_spec("playwright") is None:
        return "Playwright is not installed"
    return "" if _chromium() else "Chromium is not installed"


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def new_browser() -> Iterator["Browser"]:
    """A headless Chromium without any history."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def new_page(browser: "Browser", width: int = WIDTH, **settings: Any) -> Iterator["Page"]:
    """Open a page with a fresh context; `settings` are Playwright's."""
    with browser.new_page(viewport={"width": width, "height": HEIGHT}, **settings) as page:
        page.set_default_timeout(TIMEOUT_MS)
        yield page


def open_arms(page: "Page", url: str, arms: Sequence[str]) -> None:
    """Open the list of arms and close the assistant chat that MLflow shows."""
    page.goto(url, wait_until="commit")
    for arm in arms:
        page.get_by_role("link", name=arm, exact=True).wait_for()
    close_assistant(page)


def close_assistant(page: "Page") -> None:
    """Close the assistant chat that a new browser shows."""
    close = page.locator("[data-component-id='mlflow.assistant.chat_panel.close']")
    close.click()
    close.wait_for(state="hidden")


def compare_all(page: "Page") -> None:
    """Select every run of the list and press Compare."""
    page.get_by_role("checkbox").first.check()
    page.get_by_role("button", name="Compare", exact=True).click()
    wait_for_comparison(page)


def wait_for_comparison(page: "Page") -> None:
    """Wait until the comparison is loaded."""
    page.get_by_text(re.compile(r"^Comparing \d+ Runs")).wait_for()
    _grids(page)[1].locator("span").first.wait_for()


def show_differences_only(page: "Page") -> None:
    """Hide the plots and the parameters with equal values in all runs."""
    page.get_by_text("Visualizations", exact=True).click()
    page.get_by_text("Show diff only").first.click()
    page.get_by_text("Parallel Coordinates Plot").wait_for(state="hidden")


def read_comparison(page: "Page") -> Comparison:
    """Read all parameters and metrics of the comparison."""
    details, params = page.locator("table.mlflow-compare-table").all()[:2]
    runs = tuple(_read_table(details)["Run Name:"])
    return Comparison(
        runs,
        {name: dict(zip(runs, values, strict=True)) for name, values in _read_table(params).items()},
        {name: dict(zip(runs, values, strict=True)) for name, values in _read_metrics(page).items()},
    )


def _read_table(table: "Locator") -> dict[str, list[str]]:
    rows = table.locator("tr").all()
    return {
        row.locator("th").first.inner_text().strip(): [
            cell.inner_text().strip() for cell in row.locator("td").all()
        ]
        for row in rows
    }


def _grids(page: "Page") -> tuple["Locator", "Locator"]:
    """Return the grids of the metrics table: names, and values."""
    grids = page.get_by_role("grid")
    return grids.nth(0), grids.nth(1)


def _read_metrics(page: "Page") -> dict[str, list[str]]:
    """Scroll through the table and read all rows."""
    names: dict[float, str] = {}
    values: dict[float, dict[float, str]] = {}
    lowest = _grids(page)[1].evaluate("grid => grid.scrollHeight - grid.clientHeight")
    for top in [*range(0, lowest, SCROLL), lowest, 0]:
        _scroll(page, top)
        names_grid, values_grid = _grids(page)
        names |= {y: text for _, y, text in _read_cells(names_grid)}
        for x, y, text in _read_cells(values_grid):
            values.setdefault(y, {})[x] = text
    assert names.keys() == values.keys(), "every row must have been seen on both sides"
    return {names[y]: [text for _, text in sorted(row.items())] for y, row in sorted(values.items())}


def _scroll(page: "Page", top: int) -> None:
    """Scroll the table of metrics to `top` pixels and wait until MLflow has drawn the visible rows.

    In MLflow 3.17 the names follow one scroll event late, so the last of them moves by a single pixel.
    """
    names, values = (grid.element_handle() for grid in _grids(page))
    for position in (top - 1 if top else 1, top):
        reached = values.evaluate("(grid, top) => { grid.scrollTop = top; return grid.scrollTop }", position)
        page.wait_for_timeout(100)
    names_follow = "([names, top]) => Math.abs(names.scrollTop - top) <= 1"
    page.wait_for_function(names_follow, arg=[names, reached])


def _read_cells(grid: "Locator") -> list[tuple[float, float, str]]:
    """Return left, top and text of the drawn cells."""
    cells: list[tuple[float, float, str]] = grid.evaluate(
        """grid => [...grid.firstElementChild.children].map(
            cell => [parseFloat(cell.style.left), parseFloat(cell.style.top), cell.innerText.trim()])"""
    )
    return cells


def column_headers(page: "Page") -> list[str]:
    """Return the visible headers of the list of runs."""
    headers = page.get_by_role("columnheader").all_inner_texts()
    return [text.strip() for text in headers if text.strip()]


def take_arms(page: "Page", arms: int) -> bytes:
    """Take a picture of the list of `arms` runs, as high as the list."""
    page.wait_for_timeout(500)  # until the page has settled
    return page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": 370 + 32 * arms})


def take_comparison(page: "Page", metric: str) -> bytes:
    """Take a picture of the comparison, scrolled so that `metric` is the first visible metric."""
    position = list(_read_metrics(page)).index(metric)
    names, _ = _grids(page)
    box = names.bounding_box()
    page.set_viewport_size({"width": WIDTH, "height": round(box["y"] + box["height"]) + 40})
    page.wait_for_timeout(500)  # until the page has settled into its new size
    _scroll(page, position * ROW_HEIGHT)
    return page.screenshot()
