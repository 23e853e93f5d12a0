"""The page says what the report says, and nothing in it is anybody's mark-up."""

from dataclasses import replace
from html.parser import HTMLParser

from orchestrator.report.page import page
from orchestrator.report.summary import summarise
from orchestrator.report.tables import grids
from tests.orchestrator.report.test_answers import plan, records

EVIL = "<script>alert(1)</script>\x1b[2J"


class Reader(HTMLParser):
    """Tags and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader


def test_verdicts_tables_figures_and_notes_are_there() -> None:
    found = summarise(plan(), records(good=(103,)))
    seen = read(page(found, {"accuracy": b"png"}))
    for each in found.verdicts:
        assert each.line in seen.text
    for grid in grids(found):
        assert grid.title in seen.text
        assert all(cell in seen.text for row in grid.rows for cell in row)
    assert "Look at the seeds one by one." in seen.text
    assert seen.tags.count("table") == len(grids(found))
    assert seen.tags.count("img") == 1


def test_texts_of_others_are_no_mark_up() -> None:
    found = summarise(replace(plan(), name="study", question=EVIL), records())
    seen = read(page(found, {}))
    assert "script" not in seen.tags
    assert r"<script>alert(1)</script>\x1b[2J" in seen.text
