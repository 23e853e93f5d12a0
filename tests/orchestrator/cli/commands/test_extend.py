"""`haltsweep extend` runs only the added trials; the results match a launch of the larger sweep."""

import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator import read
from orchestrator.cli.stored_sweep import open_stored_sweep
from orchestrator.errors import InputError, LeaseLost
from orchestrator.files.file_digests import write_manifest
from orchestrator.ledger import events as log
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Extension
from orchestrator.spec.load import load_spec
from orchestrator.tracking.parquet import read_records
from tests.support.processes.commands import TINY, tree
from tests.support.specs.plans import make_plan
from tests.support.sweeps.finished import finished
from tests.support.sweeps.launched import launched
from tests.support.training_code.own_code import forgotten

INLINE = ("--driver", "inline")
WIDE = "arms.wide={why: more room, set: {model.width: 32}}"
SMALL = ("search.trials_per_arm=1", "confirm.seeds=[101]")
"""Overrides for one trial of each phase and arm."""


@pytest.fixture
def spec():
    Path("tiny.yaml").write_text(TINY)
    return "tiny.yaml"


def count_measurements(name, runs="runs"):
    """Count the measurements of every trial, except durations."""
    counts = Counter()
    for row in read.measurements(name, runs=runs).to_pylist():
        if row["metric"] not in {"train/tokens_per_s", "train/seconds_per_epoch"}:
            counts[row["trial_id"], row["step"], row["metric"], row["value"]] += 1
    return counts


@pytest.mark.slow
def test_added_arms_and_seeds_match_a_launch_of_the_larger_sweep(haltsweep, untracked, spec):
    assert haltsweep("launch", spec, *SMALL, *INLINE).code == 0
    events_before = list(read_events("tiny"))
    result = haltsweep("extend", "tiny", "--seeds", "[103]", WIDE, *INLINE)
    assert result.code == 0, result
    assert "confirm.seeds: [101] -> [101, 103]\n" in result.out
    assert "(1 search, 4 confirm)" in result.out
    assert "exploratory" in result.err
    events_after = list(read_events("tiny"))
    assert events_after[: len(events_before)] == events_before
    earlier_trials = {event.trial_id for event in events_before if event.trial_id}
    assert not [event for event in events_after[len(events_before) :] if event.trial_id in earlier_trials], (
        "nothing ran again"
    )
    launch_options = (SMALL[0], "confirm.seeds=[101, 103]", WIDE, "--runs", "whole")
    assert haltsweep("launch", spec, *launch_options, *INLINE).code == 0
    assert count_measurements("tiny") == count_measurements("tiny", "whole")
    extended_report, launched_report = (read.report("tiny", runs=runs) for runs in ("runs", "whole"))
    assert extended_report.verdicts == launched_report.verdicts
    for part in ("cells", "effects"):
        assert exclude_timings(getattr(extended_report, part)) == exclude_timings(
            getattr(launched_report, part)
        )
    assert [extension.split()[0] for extension in extended_report.extensions] == ["Extended", "Claims"]
    assert launched_report.extensions == ()
    assert haltsweep("verify", "tiny").code == 0
    assert haltsweep("extend", "tiny", "confirm.seeds=[101, 103]", *INLINE).code == 2


@pytest.mark.slow
def test_added_repeats_match_a_launch_of_the_larger_sweep(haltsweep, untracked, spec):
    assert haltsweep("launch", spec, *SMALL, "search.repeats=2", *INLINE).code == 0
    events_before = list(read_events("tiny"))
    result = haltsweep("extend", "tiny", "--repeats", "1", *INLINE)
    assert result.code == 0, result
    assert "search.repeats: 2 -> 3\n" in result.out
    earlier_trials = {event.trial_id for event in events_before if event.trial_id}
    events_after = list(read_events("tiny"))
    assert not [event for event in events_after[len(events_before) :] if event.trial_id in earlier_trials], (
        "nothing ran again"
    )
    assert haltsweep("launch", spec, *SMALL, "search.repeats=3", "--runs", "whole", *INLINE).code == 0
    assert count_measurements("tiny") == count_measurements("tiny", "whole")
    extended_report, launched_report = (read.report("tiny", runs=runs) for runs in ("runs", "whole"))
    assert extended_report.unit_seeds == launched_report.unit_seeds
    assert exclude_timings(extended_report.cells) == exclude_timings(launched_report.cells)
    refusal = haltsweep("extend", "tiny", "search.repeats=2", *INLINE)
    assert (refusal.code, "search.repeats: 3 -> 2" in refusal.err) == (2, True)


@pytest.mark.slow
def test_added_trials_and_confirm_match_a_launch_of_the_larger_sweep(haltsweep, untracked, spec):
    assert haltsweep("launch", spec, "confirm=null", *INLINE).code == 0
    confirm = "confirm={seeds: [101, 102], splits: [near-iid]}"
    result = haltsweep("extend", "tiny", confirm, "--trials", "3", *INLINE)
    assert result.code == 0, result
    assert "claims" not in result.err
    larger_options = ("search.trials_per_arm=3", confirm, "--runs", "whole")
    assert haltsweep("launch", spec, *larger_options, *INLINE).code == 0
    assert count_measurements("tiny") == count_measurements("tiny", "whole")
    refusal = haltsweep("extend", "tiny", "--trials", "4", *INLINE)
    assert refusal.code == 2
    assert "search.trials_per_arm: 3 -> 4\n" in refusal.err


LATE_OVERRIDES = ("search=null", "posthoc={model.halt.threshold: [0.5]}")


@pytest.mark.slow
def test_added_splits_are_evaluated_on_stored_checkpoints(haltsweep, spec):
    assert haltsweep("launch", spec, *LATE_OVERRIDES, *INLINE).code == 0
    events_before = list(read_events("tiny"))
    with open_stored_sweep("tiny", Path("runs")) as sweep:
        checkpoints = {
            trial.trial_id: sweep.folder.checkpoint(trial.trial_id)
            for trial in sweep.plan.trials
            if trial.phase == "confirm"
        }
    lost_trial, checkpoint = next(iter(checkpoints.items()))
    checkpoint.rename("away")
    refusal = haltsweep("extend", "tiny", "--splits", "length-20-40", *INLINE)
    assert refusal.code == 2
    assert f"baseline/confirm/0 ({lost_trial}, seed 101)" in refusal.err
    assert list(read_events("tiny")) == events_before
    Path("away").rename(checkpoint)
    result = haltsweep("extend", "tiny", "--splits", "length-20-40, near-iid", "--seeds", "[103]", *INLINE)
    assert result.code == 0, result
    assert "confirm.splits: [near-iid] -> [near-iid, length-20-40]\n" in result.out
    assert "(2 confirm, 10 posthoc)" in result.out
    events_after = list(read_events("tiny"))
    assert events_after[: len(events_before)] == events_before
    earlier_trials = {event.trial_id for event in events_before if event.trial_id}
    assert not [event for event in events_after[len(events_before) :] if event.trial_id in earlier_trials], (
        "nothing ran again"
    )
    larger_options = (
        "confirm.splits=[near-iid, length-20-40]",
        "confirm.seeds=[101, 102, 103]",
        "--runs",
        "whole",
    )
    larger_options += ("--tracking", "none")
    assert haltsweep("launch", spec, *LATE_OVERRIDES, *larger_options, *INLINE).code == 0
    extended_report, launched_report = (read.report("tiny", runs=runs) for runs in ("runs", "whole"))
    assert "length-20-40/accuracy" in extended_report.metrics
    assert extended_report.verdicts == launched_report.verdicts
    assert extended_report.unread == ()
    for part in ("cells", "effects", "posthoc"):
        assert exclude_timings(getattr(extended_report, part)) == exclude_timings(
            getattr(launched_report, part)
        )
    assert len(read_records(folder_of("tiny"))) == 20
    assert haltsweep("verify", "tiny").code == 0, "MLflow and Parquet show the union"
    second_result = haltsweep("extend", "tiny", "--splits", "length-20-40", *INLINE)
    assert second_result.code == 2
    assert "near-iid, length-20-40" in second_result.err


def test_extend_refuses_a_forbidden_change(haltsweep, tmp_path):
    write_other_spec(finished(tmp_path, make_plan(1)))
    result = haltsweep("extend", "synthetic", "--trials", "9")
    assert (result.code, result.out) == (2, "")
    assert "search.trials_per_arm: 2 -> 9" in result.err


def test_extend_draws_no_new_seeds_while_earlier_seeds_have_not_run(haltsweep, tmp_path, monkeypatch):
    """A user who repeats a killed `extend` command means the same seeds."""
    extension = Extension(1.0, "haltsweep extend synthetic --seeds 1", "0", (), ("one", "two"), (1, 2), {})
    plan = replace(make_plan(2, seeds=(1, 2, 3)), extended=(extension,))
    write_other_spec(launched(tmp_path, plan))
    result = haltsweep("extend", "synthetic", "--seeds", "1")
    assert (result.code, result.out) == (2, "")
    assert "`haltsweep resume synthetic`" in result.err

    def raise_this_far(*_):
        raise InputError("this far")

    monkeypatch.setattr("orchestrator.cli.commands.extend._plan_extended_spec", raise_this_far)
    assert haltsweep("extend", "synthetic", "--seeds", "[7]").err == "this far\n"
    write_other_spec(finished(tmp_path / "elsewhere", plan))
    result = haltsweep("extend", "synthetic", "--seeds", "1", "--runs", str(tmp_path / "elsewhere" / "runs"))
    assert result.err == "this far\n", "the earlier trials have ended"


def write_other_spec(folder):
    """Add a spec to a synthetic sweep; the spec differs from the plan."""
    folder.spec.write_text(TINY)
    write_manifest(folder.root, [folder.spec, folder.plan])
    return folder


def exclude_timings(rows):
    """Return the rows whose values do not depend on the speed of the machine."""
    return [number for number in rows if not number.metric.startswith("train/")]


def folder_of(name):
    with open_stored_sweep(name, Path("runs")) as sweep:
        return sweep.folder


def read_events(name):
    with open_stored_sweep(name, Path("runs")) as sweep:
        yield from [event for event in sweep.ledger.events() if event.kind is not EventKind.OPENED]


@pytest.mark.slow
def test_dry_run_with_a_larger_spec_lists_the_added_trials(haltsweep, untracked, spec):
    assert haltsweep("launch", spec, "search=null", *INLINE).code == 0
    Path("more.yaml").write_text(TINY.replace("seeds: [101, 102]", "seeds: [101, 102, 7]"))
    files_before = tree(Path("runs/tiny"))
    result = haltsweep("extend", "tiny", "more.yaml", "search=null", "--dry-run")
    assert result.code == 0, result
    assert result.out.endswith("tiny: 2 trials added to 4 (2 confirm)\nnothing was written\n")
    assert tree(Path("runs/tiny")) == files_before
    Path("arms.yaml").write_text(TINY.replace("arms:\n", f"arms:\n  {WIDE[5:].replace('=', ': ', 1)}\n"))
    result = haltsweep("extend", "tiny", "arms.yaml", "--arms", "wide", "--seeds", "[7]", "--dry-run")
    assert result.code == 0, result
    assert result.out.endswith("tiny: 5 trials added to 4 (5 confirm)\nnothing was written\n")
    refusal = haltsweep("extend", "tiny", "more.yaml", "baseline.train.steps=2", "--dry-run")
    assert refusal.code == 2
    assert "baseline.train.steps: 4 -> 2\n" in refusal.err
    assert "search: (nothing) -> " in refusal.err


def test_running_sweep_is_extended_only_with_take_over(haltsweep, tmp_path, monkeypatch):
    plan = make_plan(1)
    folder = write_other_spec(launched(tmp_path, plan))
    extended_spec = SimpleNamespace(spec=load_spec(folder.spec))
    monkeypatch.setattr(
        "orchestrator.cli.commands.extend._plan_extended_spec", lambda *_: (extended_spec, plan)
    )
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        lease = ledger.claim(Holder.current())
        ledger.append([log.closed(1.0, "done")], lease)
        result = haltsweep("extend", "synthetic", "--seeds", "1")
        assert result.code == 2
        assert f"process {os.getpid()} " in result.err
        result = haltsweep("extend", "synthetic", "--seeds", "1", "--take-over")
        assert f"session {lease.token}" in " ".join(result.err.split())
        with pytest.raises(LeaseLost):
            ledger.append([log.closed(2.0, "done")], lease)


@pytest.mark.parametrize("store", ["storage", "tracking"])
@pytest.mark.parametrize("command", [["extend", "--seeds", "1"], ["resume"]])
def test_copy_that_shares_a_store_with_its_original_is_refused(
    haltsweep, tmp_path, monkeypatch, store, command
):
    plan, url = make_plan(1), f"sqlite:///{tmp_path / 'team.db'}"
    folder = write_other_spec(launched(tmp_path, plan, **{store: url}))
    shutil.copytree(tmp_path / "runs", tmp_path / "copied")
    monkeypatch.setattr("orchestrator.cli.commands.extend._plan_extended_spec", lambda *_: (None, plan))
    result = haltsweep(command[0], "synthetic", *command[1:], "--runs", str(tmp_path / "copied"))
    assert result.code == 2
    assert f"{folder.root}: both use {url}" in result.err


def test_copy_syncs_only_to_a_separate_mlflow_store(haltsweep, tmp_path):
    plan, url = make_plan(1), f"sqlite:///{tmp_path / 'team.db'}"
    folder = write_other_spec(launched(tmp_path, plan, tracking=url))
    shutil.copytree(tmp_path / "runs", tmp_path / "copied")
    sync = ["sync", "synthetic", "--runs", str(tmp_path / "copied")]
    result = haltsweep(*sync)
    assert result.code == 2
    assert f"{folder.root}: both use {url}" in result.err
    assert not (tmp_path / "team.db").exists()
    assert "both have" not in haltsweep(*sync, "--tracking", f"sqlite:///{tmp_path / 'other.db'}").err


@pytest.mark.parametrize("seeds", ["many", "0", "[1"])
def test_extend_refuses_invalid_seeds(haltsweep, tmp_path, seeds):
    finished(tmp_path, make_plan(1))
    result = haltsweep("extend", "synthetic", "--seeds", seeds)
    assert result.code == 2
    assert "--seeds" in result.err


def test_added_seeds_continue_the_fixed_list_of_seeds():
    from orchestrator.cli.commands.extend import _seed_and_trial_overrides
    from orchestrator.identity import derive_seed

    fixed_seeds = [derive_seed("confirm", number) for number in range(4)]
    plan = make_plan(1, seeds=tuple(fixed_seeds[:2]))
    assert _seed_and_trial_overrides(plan, (), "2", 5) == [
        "search.trials_per_arm=5",
        f"confirm.seeds={json.dumps(fixed_seeds)}",
    ]


SLOW_CODE = """\
import time

def train(settings, trial):
    time.sleep(0.4)
    trial.report(1, {"valid/accuracy": 0.5})
"""
SLOW_SPEC = """\
name: slow
question: Does a matter?
trainable: slow_of_extend:train
baseline: {a: 1}
arms: {two: {why: another, set: {a: 2}}}
confirm: {seeds: 3}
budget: {device_hours: 0.0003}
"""


def test_extend_reports_the_unfinished_trials_of_the_sweep(haltsweep, untracked, tmp_path, monkeypatch):
    """A raised budget adds no trial but lets the remaining trials run."""
    monkeypatch.chdir(tmp_path)
    Path("slow_of_extend.py").write_text(SLOW_CODE)
    Path("slow.yaml").write_text(SLOW_SPEC)
    with forgotten(tmp_path):
        haltsweep("launch", "slow.yaml", *INLINE)
        result = haltsweep("extend", "slow", "budget.device_hours=1", "--dry-run")
        assert result.code == 0, result
        assert "slow: 0 trials added to 6\n" in result.out
        num_unfinished = int(result.out.partition(" of the 6 earlier trials have not ended")[0].split()[-1])
        assert 0 < num_unfinished < 6
        assert haltsweep("extend", "slow", "budget.device_hours=1").code == 0
        result = haltsweep("extend", "slow", "--seeds", "1", "--dry-run")
        assert "have not ended" not in result.out
