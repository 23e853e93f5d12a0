"""A headless Chromium that opens pages of reports."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTH, HEIGHT = 1560, 1000


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
        yield page
