"""`haltsweep best`: the spec that it prints reproduces the results of the winner."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import read
from orchestrator.cli.commands import best
from orchestrator.report.results.winner import Winner
from orchestrator.spec.load import load_spec
from orchestrator.spec.scalars import dump
from orchestrator.trials import OutcomeKind, Record
from tests.support.processes.commands import TINY
from tests.support.specs.plans import make_arm
from trainables.protocol import Measurement

ARM = make_arm("baseline")
pytestmark = pytest.mark.usefixtures("untracked")


def confirmed_results(name, arm):
    """Return params and test-split results of an arm's confirm trials by seed."""
    return {
        row["seed"]: (row["settings"], row["metric.near-iid/accuracy"], row["metric.near-iid/loss"])
        for row in read.trials(name).to_pylist()
        if (row["arm"], row["phase"]) == (arm, "confirm")
    }


@pytest.mark.slow
def test_spec_of_the_winner_reproduces_its_results(haltsweep):
    Path("tiny.yaml").write_text(TINY)
    assert haltsweep("launch", "tiny.yaml", "--driver", "inline").code == 0
    result = haltsweep("best", "tiny", "--arm", "minus-gate")
    assert result.code == 0, result
    assert re.match("# minus-gate.* confirm .*near-iid/accuracy ", result.out)
    folders = [line.split(": ")[-1] for line in result.out.splitlines() if line.startswith("# Checkpoint")]
    assert len(folders) == 2
    assert all(Path(folder).is_dir() for folder in folders)
    Path("best.yaml").write_text(result.out)
    assert haltsweep("check", "best.yaml").code == 0
    assert haltsweep("launch", "best.yaml", "--driver", "inline").code == 0
    assert confirmed_results("tiny-best", "baseline") == confirmed_results("tiny", "minus-gate")


JUDGED_FIELDS = """\
answer: {metric: near-iid/accuracy, margin: 0.05, also: [near-iid/loss], level: 0.1, spread: 0.02}
posthoc: {model.halt.threshold: [0.5]}
budget: {device_hours: 9}
"""


def test_best_spec_lists_the_fields_that_apply_to_several_arms_only(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY + JUDGED_FIELDS)
    spec = load_spec(tmp_path / "tiny.yaml")
    settings = {"model": {"halt": {"threshold": 0.9}}, "train": {}}
    content = best._spec_content(spec, make_winner(settings, "near-iid/accuracy", "near-iid/loss"), ARM)
    assert content["confirm"] == {"seeds": [101, 102], "splits": ["near-iid"]}
    assert content["posthoc"] == {"model.halt.threshold": [0.5]}
    (omission,) = best._omission_comments(spec.content(), content)
    assert omission.endswith(": arms; search; budget.")
    (tmp_path / "best.yaml").write_text(dump({**content, "baseline": spec.content()["baseline"]}))
    assert load_spec(tmp_path / "best.yaml").answer == spec.answer
    winner_without_fields = make_winner({"model": {"halt": None}, "train": {}}, "near-iid/accuracy")
    content = best._spec_content(spec, winner_without_fields, ARM)
    (omission,) = best._omission_comments(spec.content(), content)
    assert omission.endswith(": arms; search; answer.also; posthoc; budget.")


def test_best_spec_keeps_the_data_seed_of_the_sweep(tmp_path):
    resampling_spec = (TINY + JUDGED_FIELDS).replace("confirm: {", "confirm: {resample_data: true, ")
    (tmp_path / "tiny.yaml").write_text(resampling_spec)
    arm = replace(ARM, settings={"task": {"data_seed": 3}})
    trained_settings = {"task": {"data_seed": 12345}, "model": {}, "train": {}}
    content = best._spec_content(
        load_spec(tmp_path / "tiny.yaml"), make_winner(trained_settings, "near-iid/accuracy"), arm
    )
    assert content["baseline"]["task"] == {"data_seed": 3}
    assert content["confirm"]["resample_data"] is True


def make_winner(settings, *metrics):
    """Return the baseline as winner, confirmed on two seeds with `metrics`."""
    records = [
        Record(
            *(f"t{seed}", "tiny", "baseline", "confirm", number, seed, 0, {"train.lr": 0.002}, {}, settings),
            *(OutcomeKind.FINISHED, "", Measurement(4, 1.0, dict.fromkeys(metrics, 0.5)), None, 0.0, 1.0, 1),
        )
        for number, seed in enumerate((101, 102))
    ]
    return Winner("baseline", "confirm", metrics[0], "max", 0.5, tuple(records), 2, 2)
