"""A page with very many arms omits some of them; the other files contain all arms."""

import csv
import json

import pytest

from orchestrator.report.writers.first_arms import MAX_SHOWN_ARMS
from orchestrator.report.writers.write import write_report_folder
from tests.orchestrator.report.studies import make_study

pytestmark = pytest.mark.usefixtures("undrawn")
SMALL_STUDY = {"seeds": 2, "trials": 2, "thresholds": ()}


def test_page_shows_first_arms_and_files_have_all(tmp_path):
    arms = MAX_SHOWN_ARMS + 2
    large_study = make_study(arms, **SMALL_STUDY)
    write_report_folder(large_study.report(), tmp_path / "report", large_study.details())
    text = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert text.count('<article class="arm">') == MAX_SHOWN_ARMS
    for name in (f"arm-{MAX_SHOWN_ARMS}", f"arm-{arms - 1}"):
        assert name in text, "the page shows the verdict"
        assert name in (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    with (tmp_path / "report" / "report.csv").open(encoding="utf-8", newline="") as file:
        assert len({row["arm"] for row in csv.DictReader(file)}) == arms
    report_json = json.loads((tmp_path / "report" / "report.json").read_bytes())
    assert len(report_json["page"]["searches"]) == arms
