"""A page with very many arms leaves some out and says so; the other files have all of them."""

import csv
import json
import re

import pytest

from orchestrator.report.figures.panels import all_panels
from orchestrator.report.writers.first_arms import MAX_DRAWN_ARMS, MAX_SHOWN_ARMS
from orchestrator.report.writers.page import html_page
from orchestrator.report.writers.write import write_report_folder
from tests.orchestrator.report.studies import study

pytestmark = pytest.mark.usefixtures("undrawn")
FEW = {"seeds": 2, "trials": 2, "thresholds": ()}


@pytest.mark.parametrize(
    ("arms", "drawn"), [(MAX_DRAWN_ARMS, MAX_DRAWN_ARMS), (MAX_DRAWN_ARMS + 1, MAX_DRAWN_ARMS)]
)
def test_number_of_arms_with_figures_is_limited(arms, drawn):
    made = study(arms, **FEW)
    text = html_page(made.report(), made.details())
    for kind in (r"search-\d+-trials", r"curve-1-\d+"):
        assert len(set(re.findall(rf'<figure id="({kind})"', text))) == drawn
    assert ("have separate figures" in text) == (drawn < arms)
    panels = {all_panel.name for all_panel in all_panels(made.report(), made.details())}
    assert f"search-{arms}-trials" in panels


def test_page_shows_first_arms_and_files_have_all(tmp_path):
    arms = MAX_SHOWN_ARMS + 2
    made = study(arms, **FEW)
    write_report_folder(made.report(), tmp_path / "report", made.details())
    text = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert text.count('<article class="arm">') == MAX_SHOWN_ARMS
    for name in (f"arm-{MAX_SHOWN_ARMS}", f"arm-{arms - 1}"):
        assert name in text, "its verdict is shown"
        assert name in (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    with (tmp_path / "report" / "report.csv").open(encoding="utf-8", newline="") as file:
        assert len({row["arm"] for row in csv.DictReader(file)}) == arms
    kept = json.loads((tmp_path / "report" / "report.json").read_bytes())
    assert len(kept["page"]["searches"]) == arms
