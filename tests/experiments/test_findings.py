"""The claims of experiments/README.md follow from committed records."""

import pytest

from orchestrator.identity import SweepFolder
from orchestrator.plan.serialise import read_plan
from orchestrator.report.results.statistics import Estimate
from orchestrator.spec.load import load_spec
from tests.experiments import runtime
from tests.experiments.claims import (
    NO_VERDICT,
    Bounds,
    at_training_lengths,
    claims,
    direction,
    report,
    row,
    size,
    studies,
    table,
)
from tests.experiments.tables import EXPERIMENTS

LARGEST = 1_000_000
"""Greatest size in bytes of the records of a study."""
STUDIES = {study.name: study for study in studies()}
DECIDED = 4
"""Minimum number of decided claims."""


def test_table_of_claims_equals_the_records():
    assert table() in (EXPERIMENTS / "README.md").read_text()


def test_table_of_times_equals_the_records():
    assert runtime.table() in (EXPERIMENTS / "README.md").read_text()


def test_enough_claims_are_decided():
    rows = [row(study, claim) for study in studies() for claim in claims(study).claim]
    directions = [each[6].strip("*") for each in rows]
    assert sum(each in {"agrees", "contradicts"} for each in directions) >= DECIDED


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_claims_on_longer_inputs_require_learnt_training_data(study):
    for claim in claims(study).claim:
        learnt = at_training_lengths(study, claim)
        assert bool(learnt) == claim.metric.startswith("length-")
        has_verdict = row(study, claim)[6] != f"**{NO_VERDICT}**"
        assert has_verdict == all(has_learnt for _, has_learnt in learnt.values())


@pytest.mark.parametrize("name", STUDIES)
def test_study_is_complete(name):
    folder = SweepFolder(STUDIES[name] / "sweep")
    assert report(STUDIES[name]).left == 0, "every trial must have ended"
    assert folder.records.stat().st_size < LARGEST
    assert (STUDIES[name] / "report.md").is_file()
    assert claims(STUDIES[name]).claim
    assert load_spec(STUDIES[name] / "spec.yaml").digest == read_plan(folder).spec_digest


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.1, 0.3, "agrees"),
        (-0.3, -0.1, "contradicts"),
        (-0.1, 0.1, "undecided"),
        (0.1, 0.6, "undecided"),
        (0.6, 0.7, "contradicts"),
        (None, None, "undecided"),
    ],
)
def test_verdict_requires_the_whole_interval(low, high, verdict):
    assert direction(Estimate(8, 0.2, low, high), Bounds(at_least=0.0, at_most=0.5)) == verdict


@pytest.mark.parametrize(
    ("low", "high", "published", "verdict"),
    [
        (0.01, 0.08, 0.0, "outside"),
        (0.01, 0.08, 0.05, "inside"),
        (0.01, 0.08, None, "not printed"),
        (None, None, 0.05, "undecided"),
    ],
)
def test_size_agrees_if_the_interval_contains_the_published_number(low, high, published, verdict):
    assert size(Estimate(8, 0.05, low, high), published) == verdict
