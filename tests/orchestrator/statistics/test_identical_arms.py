"""The study of identical arms runs, continues and counts false decisions."""

import pytest

from tests.orchestrator.statistics.identical_arms import (
    Design,
    Outcome,
    list_designs,
    make_table,
    read_outcomes,
    run_study,
)
from tests.orchestrator.statistics.noisy_digits import train_and_score

ARMS = ("same-1", "same-2", "same-3", "same-4")


def _make_outcome(number, *, has_effect, **kinds):
    all_kinds = dict.fromkeys(ARMS, "undecided") | {
        arm.replace("_", "-"): kind for arm, kind in kinds.items()
    }
    return Outcome("repeats", has_effect, number, all_kinds, dict.fromkeys(all_kinds))


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


def test_scores_depend_on_the_label():
    first_scores, repeated_scores, other_scores = (
        train_and_score(0.5, 0.001, 7, label) for label in (0, 0, 1)
    )
    assert first_scores == repeated_scores != other_scores


def test_table_counts_sweeps_without_the_arm_with_an_effect():
    sweep_outcomes = [
        _make_outcome(0, has_effect=False),
        _make_outcome(1, has_effect=False, same_1="better", same_2="worse"),
        _make_outcome(0, has_effect=True, same_1="worse"),
        _make_outcome(1, has_effect=True, same_1="undecided", same_3="better"),
    ]
    null_row, effect_row = (row.split(" | ") for row in list(make_table(sweep_outcomes))[2:])
    assert null_row[2:4] == ["2", "1 (0.50 [0.01, 0.99])"]
    assert effect_row[2] == "2"
    assert effect_row[3].startswith("1 (0.50")
    assert effect_row[4].startswith("1 (0.50")
