"""The report shows user texts as plain text: no HTML, no markup, no spreadsheet formula."""

import csv
import io
import os
import stat
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from orchestrator.report.results.statistics import estimate
from orchestrator.report.results.types import ArmResult, ArmTally, Report
from orchestrator.report.writers.csv_file import as_csv
from orchestrator.report.writers.write import as_markdown_report, write_report_folder
from trainables.metrics import look_up
from trainables.training.metric_catalog import declared_metrics

HOSTILE_TEXT = "<script>alert(1)</script> [x](http://evil) **bold** \x1b[2J | \u202e `code`"
CELL = ArmResult("one", "valid/accuracy", estimate([0.5, 0.75]), 0, ("a", "b"), 0.5, HOSTILE_TEXT)
REPORT = Report(
    sweep="study",
    question=f"# {HOSTILE_TEXT}\n- Is it?",
    metrics=("valid/accuracy",),
    cells=(CELL,),
    posthoc=(ArmResult("one", "valid/accuracy", CELL.estimate, 0, ("a",), setting="=1+1\x1b"),),
    effects=(),
    tallies=(ArmTally("one", {"search": {"finished": 1}}, 1.0, {"task.order": HOSTILE_TEXT}),),
    floors={},
    arms=("one",),
    power="",
    quantities=(look_up(declared_metrics(), "valid/accuracy"),),
)


@pytest.mark.parametrize("umask", [0o077, 0o022])
def test_report_files_follow_the_umask(umask: int, tmp_path: Path) -> None:
    umask_before = os.umask(umask)
    try:
        write_report_folder(REPORT, tmp_path / "report")
    finally:
        os.umask(umask_before)
    assert stat.S_IMODE((tmp_path / "report").stat().st_mode) == 0o777 & ~umask


def test_markdown_escapes_user_texts() -> None:
    text = as_markdown_report(REPORT, [])
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert not {"\x1b", "\u202e"} & set(text)
    assert not any(tag in page for tag in ("<script", "<a ", "<code"))
    assert "<strong>bold" not in page
    escaped = r"&lt;script&gt;alert(1)&lt;/script&gt; [x](http://evil) **bold** \x1b[2J | \u202e `code`"
    assert page.count(escaped) == 3, "in the question, the best assignment and the source"
    assert f"# {escaped}" in page


def test_csv_texts_are_no_formulas() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(REPORT))))
    assert [row["setting"] for row in rows] == ["", r"'=1+1\x1b"]
    assert rows[0]["published_source"].startswith("<script>")
