"""`haltsweep best`: what it writes is a spec that gives the same again."""

from pathlib import Path

import pytest

from orchestrator import read
from tests.support.commands import TINY

pytestmark = pytest.mark.usefixtures("untracked")


def measured(name, arm):
    """Of an arm's confirm trials, by seed: settings and what they measured on the test split."""
    return {
        row["seed"]: (row["settings"], row["metric.near-iid/accuracy"], row["metric.near-iid/loss"])
        for row in read.trials(name).to_pylist()
        if (row["arm"], row["phase"]) == (arm, "confirm")
    }


@pytest.mark.slow
def test_the_spec_of_the_winner_gives_the_same_numbers_again(haltsweep):
    Path("tiny.yaml").write_text(TINY)
    assert haltsweep("launch", "tiny.yaml", "--driver", "inline").code == 0
    told = haltsweep("best", "tiny", "--arm", "minus-gate")
    assert told.code == 0, told
    assert told.out.startswith("# minus-gate, by its confirm trials: mean near-iid/accuracy ")
    places = [line.split(": ")[-1] for line in told.out.splitlines() if line.startswith("# Checkpoint")]
    assert len(places) == 2
    assert all(Path(place).is_dir() for place in places)
    Path("best.yaml").write_text(told.out)
    assert haltsweep("check", "best.yaml").code == 0
    assert haltsweep("launch", "best.yaml", "--driver", "inline").code == 0
    assert measured("tiny-best", "baseline") == measured("tiny", "minus-gate")


@pytest.mark.slow
def test_by_search_alone_it_says_so_and_can_be_run(haltsweep):
    Path("tiny.yaml").write_text(TINY)
    assert haltsweep("launch", "tiny.yaml", "confirm=null", "--driver", "inline").code == 0
    told = haltsweep("best", "tiny")
    assert "by its search alone: valid/accuracy" in told.out
    assert "# Search trials keep no checkpoint." in told.out
    Path("best.yaml").write_text(told.out)
    found = haltsweep("check", "best.yaml")
    assert found.code == 0, found
