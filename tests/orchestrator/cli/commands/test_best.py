"""`haltsweep best`: what it writes is a spec that gives the same again."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator import read
from orchestrator.cli.commands import best
from orchestrator.report.results.winner import Winner
from orchestrator.spec.load import load_spec
from orchestrator.spec.scalars import dump
from orchestrator.trials import OutcomeKind, Record
from tests.support.processes.commands import TINY
from tests.support.specs.plans import make_arm
from trainables.metrics import Metric
from trainables.protocol import Measurement

ARM = make_arm("baseline")
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
    result = haltsweep("best", "tiny", "--arm", "minus-gate")
    assert result.code == 0, result
    assert result.out.startswith("# minus-gate, by its confirm trials: mean near-iid/accuracy ")
    places = [line.split(": ")[-1] for line in result.out.splitlines() if line.startswith("# Checkpoint")]
    assert len(places) == 2
    assert all(Path(place).is_dir() for place in places)
    Path("best.yaml").write_text(result.out)
    assert haltsweep("check", "best.yaml").code == 0
    assert haltsweep("launch", "best.yaml", "--driver", "inline").code == 0
    assert measured("tiny-best", "baseline") == measured("tiny", "minus-gate")


@pytest.mark.slow
def test_by_search_alone_it_says_so_and_can_be_run(haltsweep):
    Path("tiny.yaml").write_text(TINY)
    assert haltsweep("launch", "tiny.yaml", "confirm=null", "--driver", "inline").code == 0
    result = haltsweep("best", "tiny")
    assert "by its search alone: valid/accuracy" in result.out
    assert "# Search trials store no checkpoint." in result.out
    Path("best.yaml").write_text(result.out)
    found = haltsweep("check", "best.yaml")
    assert found.code == 0, found


JUDGED = """\
answer: {metric: near-iid/accuracy, margin: 0.05, also: [near-iid/loss], level: 0.1, spread: 0.02}
posthoc: {model.halt.threshold: [0.5]}
budget: {device_hours: 9}
"""


def test_what_holds_of_one_arm_stays_in_its_spec_and_what_does_not_is_said(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY + JUDGED)
    spec = load_spec(tmp_path / "tiny.yaml")
    kept = {"seeds": [101, 102], "splits": ["near-iid"]}
    answer = {
        "metric": "near-iid/accuracy",
        "margin": 0.05,
        "level": 0.1,
        "spread": 0.02,
        "also": ["near-iid/loss"],
    }
    settings = {"model": {"halt": {"threshold": 0.9}}, "train": {}}
    whole = best._content(spec, chosen(settings, "near-iid/accuracy", "near-iid/loss"), ARM)
    assert (whole["confirm"], whole["answer"]) == (kept, answer)
    assert whole["posthoc"] == {"model.halt.threshold": [0.5]}
    assert list(best._left_out(spec.content(), whole)) == [
        "Left out of the sweep's spec, since this spec has one arm with fixed params: arms; search; budget."
    ]
    (tmp_path / "best.yaml").write_text(dump({**whole, "baseline": spec.content()["baseline"]}))
    assert load_spec(tmp_path / "best.yaml").answer == spec.answer
    # What the winner did not measure, or has no setting for, cannot be asked for.
    content = best._content(spec, chosen({"model": {"halt": None}, "train": {}}, "near-iid/accuracy"), ARM)
    del answer["also"]
    assert content["answer"] == answer
    assert "posthoc" not in content
    (shown,) = best._left_out(spec.content(), content)
    assert shown.endswith(": arms; search; answer.also; posthoc; budget.")


def test_the_data_of_seeds_are_drawn_from_the_data_seed_of_the_spec(tmp_path):
    resampled = (TINY + JUDGED).replace("confirm: {", "confirm: {resample_data: true, ")
    (tmp_path / "tiny.yaml").write_text(resampled)
    arm = replace(ARM, settings={"task": {"data_seed": 3}})
    trained = {"task": {"data_seed": 12345}, "model": {}, "train": {}}
    content = best._content(load_spec(tmp_path / "tiny.yaml"), chosen(trained, "near-iid/accuracy"), arm)
    assert content["baseline"]["task"] == {"data_seed": 3}
    assert content["confirm"]["resample_data"] is True


def test_the_seeds_are_those_of_the_repeat_that_is_printed(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    found = replace(chosen({"train": {}}, "near-iid/accuracy"), repeat=1, seeds=(7, 9))
    content = best._content(load_spec(tmp_path / "tiny.yaml"), found, ARM)
    assert content["confirm"]["seeds"] == [7, 9]


@pytest.mark.parametrize(("better", "expected"), [(None, 1), ("max", 0)])
def test_a_goal_that_only_the_search_told_is_said_to_be_gone(better, expected):
    report = SimpleNamespace(quantity=lambda metric: Metric(metric, better=better))
    lines = list(best._goal_left_out(chosen({}, "near-iid/accuracy"), report))
    assert len(lines) == expected
    assert all('better="max" for the metric accuracy' in line for line in lines)


@pytest.mark.parametrize(
    ("assignments", "points", "rank", "of"),
    [
        (1, (), 0, ""),
        (2, (), 1, ", on the mean over all confirmed params of baseline, not on these params"),
        (2, ("some",), 1, ", on point 1 of its front, not on these params"),
        (2, ("some",), 0, ""),
    ],
)
def test_a_verdict_is_said_to_be_of_what_it_is_of(assignments, points, rank, of, monkeypatch):
    monkeypatch.setattr(
        "orchestrator.report.caveats.warning_texts.warning_texts", lambda _, of_verdicts: ["Mind the code."]
    )
    found = chosen({}, "near-iid/accuracy")
    found = replace(found, records=tuple(replace(record, rank=rank) for record in found.records))
    verdict = SimpleNamespace(line="baseline: better")
    report = SimpleNamespace(left=0, assignments=assignments, points=points, verdict=lambda _: verdict)
    assert list(best._state(found, report)) == [
        f"Verdict in the report{of}: baseline: better",
        "Mind the code.",
    ]


def chosen(settings, *metrics):
    """The baseline, confirmed on both seeds, where it measured `metrics`."""
    records = [
        Record(
            *(f"t{seed}", "tiny", "baseline", "confirm", number, seed, 0),
            assignment={"train.lr": 0.002},
            overrides={},
            settings=settings,
            outcome=OutcomeKind.FINISHED,
            reason="",
            last=Measurement(4, 1.0, dict.fromkeys(metrics, 0.5)),
            best=None,
            started_at=0.0,
            ended_at=1.0,
            attempts=1,
        )
        for number, seed in enumerate((101, 102))
    ]
    return Winner("baseline", "confirm", metrics[0], "max", 0.5, tuple(records), 2, 2)
