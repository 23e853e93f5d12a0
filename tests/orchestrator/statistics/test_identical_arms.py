"""The study of whole sweeps of identical arms runs, continues, and counts false decisions."""

import pytest

from tests.orchestrator.statistics.identical_arms import (
    Design,
    Outcome,
    designs,
    outcomes,
    study,
    table,
)
from tests.orchestrator.statistics.noisy_digits import scores

ARMS = ("same-1", "same-2", "same-3", "same-4")


def _outcome(number, *, planted, **kinds):
    known = dict.fromkeys(ARMS, "undecided") | {arm.replace("_", "-"): kind for arm, kind in kinds.items()}
    return Outcome("repeats", planted, number, known, dict.fromkeys(known))


@pytest.mark.slow
def test_a_small_study_runs_and_is_not_run_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compared = [Design("repeats", 2, 1, 1)]
    study(tmp_path, compared, sweeps=0, planted=1)
    (found,) = outcomes(tmp_path)
    assert (found.design, found.planted, tuple(found.kinds)) == ("repeats", True, ARMS)
    study(tmp_path, compared, sweeps=0, planted=1)
    assert outcomes(tmp_path) == [found]


def test_specs_that_search_repeat_their_searches():
    assert [design.repeats >= 3 for design in designs()] == [True, False, True]


def test_arms_under_other_labels_share_a_seed_in_part_only():
    first, again, other = (scores(0.5, 0.001, 7, label) for label in (0, 0, 1))
    assert first == again != other


def test_the_table_counts_sweeps_and_leaves_out_the_planted_arm():
    found = [
        _outcome(0, planted=False),
        _outcome(1, planted=False, same_1="better", same_2="worse"),
        _outcome(0, planted=True, same_1="worse"),
        _outcome(1, planted=True, same_1="undecided", same_3="better"),
    ]
    null, planted = (row.split(" | ") for row in list(table(found))[2:])
    assert null[2:4] == ["2", "1 (0.50 [0.01, 0.99])"]
    assert planted[2] == "2"
    assert planted[3].startswith("1 (0.50")
    assert planted[4].startswith("1 (0.50")
