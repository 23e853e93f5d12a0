"""kill -9 of `haltsweep extend`: what was there stays as it was, and what was added is done once."""

import json
from collections import Counter

import pytest

from orchestrator.cli.stored_sweep import open_stored_sweep
from orchestrator.ledger.events import EventKind
from tests.support.processes.commands import TINY, Shell, wait_for

pytestmark = pytest.mark.slow
SPEC = TINY.replace("steps: 4", "steps: 60").replace("report_every: 2", "report_every: 20")


def read(shell):
    """Plan and events, sessions aside."""
    with open_stored_sweep("tiny", shell.folder / "runs") as sweep:
        return sweep.plan, [each for each in sweep.ledger.events() if each.trial_id is not None]


def killed_and_resumed(shell, asked, *, after, at_most):
    """Plans before the extension and with it, where it was killed `after` so many of its trials had ended
    and went on to its end: what was there is untouched, and each new trial ran and measured once."""
    shown = shell.run("launch", "tiny.yaml", "--driver", "inline")
    assert shown.code == 0, shown
    plan, before = read(shell)
    known = {each.trial_id for each in plan.trials}

    def ended():
        return sum(each.kind is EventKind.ENDED for each in read(shell)[1][len(before) :])

    with shell.started("extend", "tiny", *asked) as process:
        wait_for(lambda: ended() >= after, process)
        process.kill()
        process.wait()
    extended, half = read(shell)
    assert known < {each.trial_id for each in extended.trials}
    killed = sum(each.kind is EventKind.ENDED for each in half[len(before) :])
    assert killed < at_most, "it was killed half-way"
    shown = shell.run("resume", "tiny", "--driver", "inline")
    assert shown.code == 0, shown

    whole, events = read(shell)
    assert whole == extended
    assert events[: len(half)] == half
    assert half[: len(before)] == before
    assert [each for each in whole.trials if each.trial_id in known] == list(plan.trials)
    new = events[len(before) :]
    assert not [each for each in new if each.trial_id in known], "no trial that was there is touched"
    final = Counter(
        each.trial_id for each in new if each.kind is EventKind.ENDED and each.payload["kind"] == "finished"
    )
    assert final == Counter(each.trial_id for each in whole.trials if each.trial_id not in known)
    measured = Counter(
        (each.trial_id, each.payload["step"]) for each in new if each.kind is EventKind.MEASURED
    )
    assert set(measured.values()) == {1}
    assert {step for _, step in measured} == {20, 40, 60}
    assert shell.run("verify", "tiny").code == 0, "MLflow, where it is written, and Parquet show the union"
    return plan, whole


def cells(shell):
    """Of the report's JSON file."""
    report = json.loads((shell.folder / "runs/tiny/report/report.json").read_text(encoding="utf-8"))
    return report["cells"]


def test_an_extension_that_is_killed_goes_on_and_changes_nothing_that_was_there(tmp_path):
    shell = Shell.at(tmp_path, SPEC, tracked=True)
    asked = ("--seeds", "4", "--splits", "length-20-40")
    plan, whole = killed_and_resumed(shell, asked, after=2, at_most=10)
    late = [(each.arm, each.seed, each.late_splits) for each in whole.trials if each.phase == "posthoc"]
    confirmed = [(each.arm, each.seed) for each in plan.trials if each.phase == "confirm"]
    assert sorted(late) == sorted((*each, ("length-20-40",)) for each in confirmed)
    for each in cells(shell):
        if each["metric"].endswith("accuracy") and not each["metric"].startswith("valid/"):
            assert each["estimate"]["n"] == 6, f"{each['metric']}: those measured and those read again"
    assert "length-20-40/accuracy" in {each["metric"] for each in cells(shell)}


def test_an_added_arm_whose_launch_is_killed_in_one_process_is_searched_and_confirmed_once(tmp_path):
    shell = Shell.at(tmp_path, SPEC)
    wide = "arms.wide={why: more room, set: {model.width: 32}}"
    plan, whole = killed_and_resumed(shell, (wide, "--driver", "inline"), after=1, at_most=4)
    added = {each.trial_id for each in whole.trials} - {each.trial_id for each in plan.trials}
    kinds = Counter((each.arm, each.phase) for each in whole.trials if each.trial_id in added)
    assert kinds == {("wide", "search"): 2, ("wide", "confirm"): 2}
    [accuracy] = [
        each for each in cells(shell) if (each["arm"], each["metric"]) == ("wide", "near-iid/accuracy")
    ]
    assert accuracy["estimate"]["n"] == 2
