"""`haltsweep best`: the spec that it prints reproduces the results of the winner."""

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
    assert result.out.startswith("# minus-gate, by its confirm trials: mean near-iid/accuracy ")
    folders = [line.split(": ")[-1] for line in result.out.splitlines() if line.startswith("# Checkpoint")]
    assert len(folders) == 2
    assert all(Path(folder).is_dir() for folder in folders)
    Path("best.yaml").write_text(result.out)
    assert haltsweep("check", "best.yaml").code == 0
    assert haltsweep("launch", "best.yaml", "--driver", "inline").code == 0
    assert confirmed_results("tiny-best", "baseline") == confirmed_results("tiny", "minus-gate")


@pytest.mark.slow
def test_best_spec_without_confirm_trials_names_the_search_and_passes_the_check(haltsweep):
    Path("tiny.yaml").write_text(TINY)
    assert haltsweep("launch", "tiny.yaml", "confirm=null", "--driver", "inline").code == 0
    result = haltsweep("best", "tiny")
    assert "by its search alone: valid/accuracy" in result.out
    assert "# Search trials store no checkpoint." in result.out
    Path("best.yaml").write_text(result.out)
    check_result = haltsweep("check", "best.yaml")
    assert check_result.code == 0, check_result


JUDGED_FIELDS = """\
answer: {metric: near-iid/accuracy, margin: 0.05, also: [near-iid/loss], level: 0.1, spread: 0.02}
posthoc: {model.halt.threshold: [0.5]}
budget: {device_hours: 9}
"""


def test_best_spec_lists_the_fields_that_apply_to_several_arms_only(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY + JUDGED_FIELDS)
    spec = load_spec(tmp_path / "tiny.yaml")
    confirm = {"seeds": [101, 102], "splits": ["near-iid"]}
    answer = {
        "metric": "near-iid/accuracy",
        "margin": 0.05,
        "level": 0.1,
        "spread": 0.02,
        "also": ["near-iid/loss"],
    }
    settings = {"model": {"halt": {"threshold": 0.9}}, "train": {}}
    full_content = best._content(spec, make_winner(settings, "near-iid/accuracy", "near-iid/loss"), ARM)
    assert (full_content["confirm"], full_content["answer"]) == (confirm, answer)
    assert full_content["posthoc"] == {"model.halt.threshold": [0.5]}
    assert list(best._left_out(spec.content(), full_content)) == [
        "Left out of the sweep's spec, since this spec has one arm with fixed params: arms; search; budget."
    ]
    (tmp_path / "best.yaml").write_text(dump({**full_content, "baseline": spec.content()["baseline"]}))
    assert load_spec(tmp_path / "best.yaml").answer == spec.answer
    # Metrics and settings that the winner lacks cannot appear in its spec.
    content = best._content(
        spec, make_winner({"model": {"halt": None}, "train": {}}, "near-iid/accuracy"), ARM
    )
    del answer["also"]
    assert content["answer"] == answer
    assert "posthoc" not in content
    (omission,) = best._left_out(spec.content(), content)
    assert omission.endswith(": arms; search; answer.also; posthoc; budget.")


def test_best_spec_keeps_the_data_seed_of_the_sweep(tmp_path):
    resampling_spec = (TINY + JUDGED_FIELDS).replace("confirm: {", "confirm: {resample_data: true, ")
    (tmp_path / "tiny.yaml").write_text(resampling_spec)
    arm = replace(ARM, settings={"task": {"data_seed": 3}})
    trained_settings = {"task": {"data_seed": 12345}, "model": {}, "train": {}}
    content = best._content(
        load_spec(tmp_path / "tiny.yaml"), make_winner(trained_settings, "near-iid/accuracy"), arm
    )
    assert content["baseline"]["task"] == {"data_seed": 3}
    assert content["confirm"]["resample_data"] is True


def test_best_spec_has_the_seeds_of_the_winning_repeat(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    winner = replace(make_winner({"train": {}}, "near-iid/accuracy"), repeat=1, seeds=(7, 9))
    content = best._content(load_spec(tmp_path / "tiny.yaml"), winner, ARM)
    assert content["confirm"]["seeds"] == [7, 9]


@pytest.mark.parametrize(("better", "expected"), [(None, 1), ("max", 0)])
def test_best_reports_a_goal_that_only_the_search_declared(better, expected):
    report = SimpleNamespace(quantity=lambda metric: Metric(metric, better=better))
    lines = list(best._goal_left_out(make_winner({}, "near-iid/accuracy"), report))
    assert len(lines) == expected
    assert all('better="max" for the metric accuracy' in line for line in lines)


@pytest.mark.parametrize(
    ("assignments", "front_points", "rank", "scope"),
    [
        (1, (), 0, ""),
        (2, (), 1, ", on the mean over all confirmed params of baseline, not on these params"),
        (2, ("some",), 1, ", on point 1 of its front, not on these params"),
        (2, ("some",), 0, ""),
    ],
)
def test_best_states_the_scope_of_a_verdict(assignments, front_points, rank, scope, monkeypatch):
    monkeypatch.setattr(
        "orchestrator.report.caveats.warning_texts.warning_texts", lambda _, of_verdicts: ["Mind the code."]
    )
    winner = make_winner({}, "near-iid/accuracy")
    winner = replace(winner, records=tuple(replace(record, rank=rank) for record in winner.records))
    verdict = SimpleNamespace(line="baseline: better")
    report = SimpleNamespace(left=0, assignments=assignments, points=front_points, verdict=lambda _: verdict)
    assert list(best._state(winner, report)) == [
        f"Verdict in the report{scope}: baseline: better",
        "Mind the code.",
    ]


def make_winner(settings, *metrics):
    """Return the baseline as winner, confirmed on two seeds with `metrics`."""
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
