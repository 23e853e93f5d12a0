"""The study of identical arms runs, continues and counts false decisions."""

import pytest

from tests.orchestrator.statistics.identical_arms import Design, list_designs, read_outcomes, run_study

ARMS = ("same-1", "same-2", "same-3", "same-4")


@pytest.mark.slow
def test_small_study_runs_only_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    designs = [Design("repeats", 2, 1, 1)]
    run_study(tmp_path, designs, sweeps=0, num_with_effect=1)
    (outcome,) = read_outcomes(tmp_path)
    assert (outcome.design, outcome.planted, tuple(outcome.kinds)) == ("repeats", True, ARMS)
    run_study(tmp_path, designs, sweeps=0, num_with_effect=1)
    assert read_outcomes(tmp_path) == [outcome]


def test_starter_and_long_spec_repeat_their_searches():
    assert [design.repeats >= 3 for design in list_designs()] == [True, False, True]
