"""Pictures of a page, section by section: `python -m tests.e2e.report_pictures report.html --out DIR`."""

import argparse
import io
import re
from pathlib import Path

from PIL import Image

from tests.e2e import mlflow_page

WIDTH, HEIGHT = 1000, 1500
"""Pixels of a picture at most."""


def main() -> None:
    """One PNG a section, cut where it gets long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="report.html")
    parser.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    given = parser.parse_args()
    if lacking := mlflow_page.missing():
        parser.error(lacking)
    given.out.mkdir(parents=True, exist_ok=True)
    with mlflow_page.browser_page(WIDTH, java_script_enabled=False) as page:
        page.goto(given.page.resolve().as_uri())
        sections = {"answer": "header", **{each: f"#{each}" for each in _sections(given.page)}}
        for name, place in sections.items():
            taken = Image.open(io.BytesIO(page.locator(place).screenshot()))
            cut = taken.convert("RGB").crop((0, 0, taken.width, min(taken.height, HEIGHT)))
            cut.quantize(64).save(given.out / f"report-{name}.png", optimize=True)


def _sections(page: Path) -> list[str]:
    """Names of the sections that the page has."""
    return re.findall(r'<section id="([^"]+)">', page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
