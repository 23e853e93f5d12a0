"""`haltsweep extend` runs only the added trials; the results match a launch of the larger sweep."""

import os
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator import read
from orchestrator.cli.commands import extend
from orchestrator.cli.stored_sweep import open_stored_sweep
from orchestrator.errors import InputError, LeaseLost
from orchestrator.files.file_digests import write_manifest
from orchestrator.identity import derive_seed
from orchestrator.ledger import events as log
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Extension
from orchestrator.spec.load import load_spec
from tests.support.processes.commands import TINY, tree
from tests.support.specs.plans import make_plan
from tests.support.stores.parquet_records import read_records
from tests.support.sweeps.finished import finished
from tests.support.sweeps.launched import launched

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
    events_before, files_before = read_events(), tree(Path("runs/tiny"))
    dry_run = haltsweep("extend", "tiny", spec, SMALL[0], "--dry-run")
    assert re.search(r"^tiny: 2 .* 4 \(2 confirm\)$", dry_run.out, re.MULTILINE)
    assert tree(Path("runs/tiny")) == files_before
    result = haltsweep("extend", "tiny", "--seeds", "[103]", WIDE, *INLINE)
    assert result.code == 0, result
    assert "(1 search, 4 confirm)" in result.out
    check_that_no_trial_ran_again(events_before)
    launch_options = (SMALL[0], "confirm.seeds=[101, 103]", WIDE, "--runs", "whole")
    assert haltsweep("launch", spec, *launch_options, *INLINE).code == 0
    assert count_measurements("tiny") == count_measurements("tiny", "whole")
    report = check_that_reports_agree("cells", "effects")
    assert [extension.split()[0] for extension in report.extensions] == ["Extended", "Claims"]
    assert haltsweep("verify", "tiny").code == 0
    assert haltsweep("extend", "tiny", "confirm.seeds=[101, 103]", *INLINE).code == 2


@pytest.mark.slow
def test_added_trials_and_confirm_match_a_launch_of_the_larger_sweep(haltsweep, untracked, spec):
    assert haltsweep("launch", spec, "confirm=null", *INLINE).code == 0
    confirm = "confirm={seeds: [101, 102], splits: [near-iid]}"
    result = haltsweep("extend", "tiny", confirm, "--trials", "3", *INLINE)
    assert result.code == 0, result
    larger_options = ("search.trials_per_arm=3", confirm, "--runs", "whole")
    assert haltsweep("launch", spec, *larger_options, *INLINE).code == 0
    assert count_measurements("tiny") == count_measurements("tiny", "whole")


@pytest.mark.slow
def test_added_repeats_match_a_launch_of_the_larger_sweep(haltsweep, untracked, spec):
    assert haltsweep("launch", spec, *SMALL, "search.repeats=2", *INLINE).code == 0
    events_before = read_events()
    assert haltsweep("extend", "tiny", "--repeats", "1", *INLINE).code == 0
    check_that_no_trial_ran_again(events_before)
    assert haltsweep("launch", spec, *SMALL, "search.repeats=3", "--runs", "whole", *INLINE).code == 0
    assert count_measurements("tiny") == count_measurements("tiny", "whole")
    assert read.report("tiny").unit_seeds == read.report("tiny", runs="whole").unit_seeds


LATE_OVERRIDES = ("search=null", "posthoc={model.halt.threshold: [0.5]}")


@pytest.mark.slow
def test_added_splits_are_evaluated_on_stored_checkpoints(haltsweep, spec):
    assert haltsweep("launch", spec, *LATE_OVERRIDES, *INLINE).code == 0
    events_before = read_events()
    with open_stored_sweep("tiny", Path("runs")) as sweep:
        lost_trial = next(trial.trial_id for trial in sweep.plan.trials if trial.phase == "confirm")
        folder, checkpoint = sweep.folder, sweep.folder.checkpoint(lost_trial)
    checkpoint.rename("away")
    refusal = haltsweep("extend", "tiny", "--splits", "length-20-40", *INLINE)
    assert refusal.code == 2
    assert f"baseline/confirm/0 ({lost_trial}, seed 101)" in refusal.err
    assert read_events() == events_before
    Path("away").rename(checkpoint)
    result = haltsweep("extend", "tiny", "--splits", "length-20-40, near-iid", "--seeds", "[103]", *INLINE)
    assert result.code == 0, result
    assert "(2 confirm, 10 posthoc)" in result.out
    check_that_no_trial_ran_again(events_before)
    larger = (
        "confirm.splits=[near-iid, length-20-40]",
        "confirm.seeds=[101, 102, 103]",
        "--tracking",
        "none",
    )
    assert haltsweep("launch", spec, *LATE_OVERRIDES, *larger, "--runs", "whole", *INLINE).code == 0
    report = check_that_reports_agree("cells", "effects", "posthoc")
    assert "length-20-40/accuracy" in report.metrics
    assert report.unread == ()
    assert len(read_records(folder)) == 20
    assert haltsweep("verify", "tiny").code == 0, "MLflow and Parquet show the union"


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


def write_other_spec(folder):
    """Add a spec to a synthetic sweep; the spec differs from the plan."""
    folder.spec.write_text(TINY)
    write_manifest(folder.root, [folder.spec, folder.plan])
    return folder


def exclude_timings(rows):
    """Return the rows whose values do not depend on the speed of the machine."""
    return [number for number in rows if not number.metric.startswith("train/")]


def read_events():
    with open_stored_sweep("tiny", Path("runs")) as sweep:
        return [event for event in sweep.ledger.events() if event.kind is not EventKind.OPENED]


def check_that_no_trial_ran_again(events_before):
    events = read_events()
    assert events[: len(events_before)] == events_before
    earlier_trials = {event.trial_id for event in events_before if event.trial_id}
    assert not [event for event in events[len(events_before) :] if event.trial_id in earlier_trials]


def check_that_reports_agree(*parts):
    """Compare the extended sweep with the launched sweep in `whole`, and return the extended report."""
    extended, launched = (read.report("tiny", runs=runs) for runs in ("runs", "whole"))
    assert extended.verdicts == launched.verdicts
    for part in parts:
        assert exclude_timings(getattr(extended, part)) == exclude_timings(getattr(launched, part))
    return extended


def test_running_sweep_is_extended_only_with_take_over(haltsweep, tmp_path, monkeypatch):
    plan = make_plan(1)
    folder = write_other_spec(launched(tmp_path, plan))
    extended_spec = SimpleNamespace(spec=load_spec(folder.spec))
    monkeypatch.setattr(
        "orchestrator.cli.commands.extend._plan_extended_spec", lambda *_: (extended_spec, plan)
    )
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        lease = ledger.claim(Holder.current())
        ledger.append([log.release_event(1.0, "done")], lease)
        result = haltsweep("extend", "synthetic", "--seeds", "1")
        assert result.code == 2
        assert f"process {os.getpid()} " in result.err
        result = haltsweep("extend", "synthetic", "--seeds", "1", "--take-over")
        assert f"session {lease.token}" in " ".join(result.err.split())
        with pytest.raises(LeaseLost):
            ledger.append([log.release_event(2.0, "done")], lease)


@pytest.mark.parametrize("store", ["storage", "tracking"])
def test_copy_that_shares_a_store_with_its_original_is_refused(haltsweep, tmp_path, store):
    url = f"sqlite:///{tmp_path / 'team.db'}"
    folder = launched(tmp_path, make_plan(1), **{store: url})
    shutil.copytree(tmp_path / "runs", tmp_path / "copied")
    result = haltsweep("resume", "synthetic", "--runs", str(tmp_path / "copied"))
    assert result.code == 2
    assert re.search(f"{folder.root}.*{url}", result.err)


def test_added_seeds_continue_the_fixed_list_of_seeds():
    fixed_seeds = [derive_seed("confirm", number) for number in range(4)]
    plan = make_plan(1, seeds=tuple(fixed_seeds[:2]))
    assert extend._seed_and_trial_overrides(plan, (), "2", None) == [f"confirm.seeds={fixed_seeds}"]
