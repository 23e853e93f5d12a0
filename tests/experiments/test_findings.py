"""The claims of experiments/README.md: every number is computed from committed records."""

import pytest

from orchestrator.identity import SweepFolder
from orchestrator.plan.serialise import read_plan
from orchestrator.report.statistics import Estimate
from orchestrator.spec.load import load_spec
from tests.experiments import runtime
from tests.experiments.claims import Bounds, claims, report, studies, table, verdict
from tests.experiments.tables import EXPERIMENTS

LARGEST = 1_000_000
"""Bytes of records that a study may commit."""
STUDIES = {study.name: study for study in studies()}
DECIDED = 4
"""So many claims at least are decided."""


def test_the_table_of_claims_is_what_the_records_give():
    assert table() in (EXPERIMENTS / "README.md").read_text()


def test_the_table_of_times_is_what_the_records_give():
    assert runtime.table() in (EXPERIMENTS / "README.md").read_text()


def test_claims_are_decided_one_way_or_the_other():
    said = [row.rsplit("**", 2)[1] for row in table().splitlines()[2:]]
    assert set(said) <= {"agrees", "contradicts", "undecided"}
    assert sum(each != "undecided" for each in said) >= DECIDED


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_whole(name):
    folder = SweepFolder(STUDIES[name] / "sweep")
    assert report(STUDIES[name]).left == 0, "every trial has ended"
    assert folder.records.stat().st_size < LARGEST
    assert (STUDIES[name] / "report.md").is_file()
    assert claims(STUDIES[name])
    assert load_spec(STUDIES[name] / "spec.yaml").digest == read_plan(folder).spec_digest


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.1, 0.3, "agrees"),
        (-0.3, -0.1, "contradicts"),
        (-0.1, 0.1, "undecided"),
        (0.1, 0.6, "undecided"),
        (0.6, 0.7, "contradicts"),
        (None, None, "undecided"),
    ],
)
def test_a_verdict_needs_the_whole_interval(low, high, said):
    assert verdict(Estimate(8, 0.2, low, high), Bounds(at_least=0.0, at_most=0.5)) == said
