"""The page shows the content of the report and escapes all markup."""

import os
import re
import statistics
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from orchestrator.report.writers.page import html_page
from orchestrator.report.writers.tables import answer_tables, cost_tables, metric_tables
from orchestrator.report.writers.write import write_report_folder
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.studies import Study, make_study

HOSTILE_HTML = "<script>alert(1)</script>\x1b[2J"


class PageParser(HTMLParser):
    """Collects tags, attributes and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def labels(self, name: str) -> str:
        """Return the accessible labels of the figures whose label contains `name`."""
        return " ".join(
            value
            for tag, key, value in self.attributes
            if tag == "svg" and key == "aria-label" and name in value
        )


def parse_html(html: str) -> PageParser:
    reader = PageParser()
    reader.feed(html)
    return reader


def parse_page(study: Study) -> PageParser:
    return parse_html(html_page(study.report(), study.details()))


def test_user_texts_are_escaped() -> None:
    hostile = make_study([HOSTILE_HTML, f"$\\frac{{{HOSTILE_HTML}"], seeds=3, trials=3)
    page_study = replace(hostile, plan=replace(hostile.plan, question=HOSTILE_HTML))
    html = html_page(page_study.report(), page_study.details())
    assert "script" not in parse_html(html).tags
    assert "\x1b" not in html
    assert r"<script>alert(1)</script>\x1b[2J" in parse_html(html).text


def test_page_is_self_contained() -> None:
    html = html_page((page_study := make_study()).report(), page_study.details())
    page = parse_html(html)
    assert not {"script", "link", "iframe", "img"} & set(page.tags)
    assert not [
        attribute
        for attribute in page.attributes
        if attribute[1] in ("src", "srcset") or attribute[1].startswith("on")
    ]
    targets = [value for _, name, value in page.attributes if name in ("href", "xlink:href")]
    assert targets
    assert all(target.startswith("#") for target in targets)
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)), "ids must be unique"
    assert {target.removeprefix("#") for target in targets} <= set(ids)
    assert set(re.findall(r"url\(#([^)]*)\)", html)) <= set(ids)
    assert len(html) < 5_000_000


@pytest.mark.usefixtures("undrawn")
def test_page_numbers_match_the_records() -> None:
    page_study = make_study(
        outcome_of=lambda arm, seed: OutcomeKind.CRASHED if (arm, seed) == (2, 1) else OutcomeKind.FINISHED
    )
    page = parse_page(page_study)
    for arm in (arm.name for arm in page_study.plan.arms):
        arm_records = [record for record in page_study.records if record.arm == arm]
        confirm_records = [
            record
            for record in arm_records
            if record.phase == "confirm" and record.outcome is OutcomeKind.FINISHED
        ]
        values = [record.last.metrics["near-iid/accuracy"] for record in confirm_records if record.last]
        assert f"{arm} {statistics.fmean(values):.3f} [" in page.labels("near-iid/accuracy")
        curve = [record.last.metrics["valid/accuracy"] for record in confirm_records if record.last]
        curve_end = f"{len(curve)} seeds at step 300 {statistics.fmean(curve):.4g}"
        assert curve_end in page.labels(f"valid/accuracy of {arm}")
        hours = (
            sum(record.last.seconds for record in arm_records if record.last)
            * page_study.plan.resources.cpus
            / 3600
        )
        assert f"{hours:.3g} device hours" in page.text
    assert "1 crashed, 4 finished" in page.text
    assert all(verdict.line in page.text for verdict in page_study.report().verdicts)
    for table in (
        *answer_tables(page_study.report()),
        *metric_tables(page_study.report()),
        *cost_tables(page_study.report()),
    ):
        assert table.title in page.text
        assert all(cell in page.text for row in table.rows for cell in row)


@pytest.mark.parametrize("outcome", [None, OutcomeKind.DIVERGED])
def test_page_without_finished_trials_has_no_empty_figure(outcome: OutcomeKind | None) -> None:
    page = parse_page(make_study(3, 3, 0, thresholds=(), outcome_of=lambda *_: outcome))
    assert ("arm-1: undecided" in page.text) == (outcome is not None)
    assert "0 of 3 seeds" in page.text
    assert ("9 not ended" in page.text) == (outcome is None)
    assert "95%" not in page.labels("")
    assert "nan" not in page.text.casefold().split()


def test_page_exists_before_the_first_trial() -> None:
    page_study = replace(make_study(2, 0, 3, thresholds=()), records=(), measured={})
    assert page_study.plan.name in parse_page(page_study).text


WRITE_SCRIPT = """
import sys
from pathlib import Path
from orchestrator.report.writers.write import write_report_folder
from tests.orchestrator.report.studies import make_study
page_study = make_study(2, 2, 2, thresholds=())
write_report_folder(page_study.report(), Path(sys.argv[1]), page_study.details())
"""


@pytest.mark.slow
def test_page_bytes_depend_only_on_the_records(tmp_path) -> None:
    """Another process iterates over sets in another order."""
    page_study = make_study(2, 2, 2, thresholds=())
    write_report_folder(page_study.report(), tmp_path / "one", page_study.details())
    environment = os.environ | {"PYTHONHASHSEED": "3", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", WRITE_SCRIPT, str(tmp_path / "two")], env=environment, check=True)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name
