"""`haltsweep extend`: only the difference runs, and the union is what a launch of all would have given."""

import json
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


@pytest.fixture
def spec():
    Path("tiny.yaml").write_text(TINY)
    return "tiny.yaml"


def measured(name, runs="runs"):
    """Everything that was measured, but for how long it took, by trial."""
    found = Counter()
    for row in read.measurements(name, runs=runs).to_pylist():
        if row["metric"] not in {"train/tokens_per_s", "train/seconds_per_epoch"}:
            found[row["trial_id"], row["step"], row["metric"], row["value"]] += 1
    return found


@pytest.mark.slow
def test_arms_and_seeds_are_what_a_launch_with_all_of_them_gives(haltsweep, spec):
    assert haltsweep("launch", spec, *INLINE).code == 0
    before = list(events("tiny"))
    shown = haltsweep("extend", "tiny", "--seeds", "[103, 104]", WIDE, *INLINE)
    assert shown.code == 0, shown
    assert "confirm.seeds: [101, 102] -> [101, 102, 103, 104]\n" in shown.out
    assert "tiny: 10 trials added to 8 (2 search, 8 confirm)\n" in shown.out
    assert "exploratory" in shown.err
    after = list(events("tiny"))
    assert after[: len(before)] == before
    known = {each.trial_id for each in before if each.trial_id}
    assert not [each for each in after[len(before) :] if each.trial_id in known], "nothing ran again"
    whole = ("confirm.seeds=[101, 102, 103, 104]", WIDE, "--runs", "whole", "--tracking", "none")
    assert haltsweep("launch", spec, *whole, *INLINE).code == 0
    assert measured("tiny") == measured("tiny", "whole")
    found, wanted = (read.report("tiny", runs=runs) for runs in ("runs", "whole"))
    assert found.verdicts == wanted.verdicts
    for part in ("cells", "effects"):
        assert steady(getattr(found, part)) == steady(getattr(wanted, part))
    assert [each.split()[0] for each in found.extensions] == ["Extended", "Claims"]
    assert wanted.extensions == ()
    assert len(read_records(folder_of("tiny"))) == 18
    assert haltsweep("verify", "tiny").code == 0, "MLflow and Parquet show the union"
    again = haltsweep("extend", "tiny", "confirm.seeds=[101, 102, 103, 104]", *INLINE)
    assert "nothing to extend: tiny already has these settings" in again.err


@pytest.mark.slow
def test_repeats_are_what_a_launch_with_all_of_them_gives(haltsweep, untracked, spec):
    assert haltsweep("launch", spec, "search.repeats=2", *INLINE).code == 0
    before = list(events("tiny"))
    shown = haltsweep("extend", "tiny", "--repeats", "1", *INLINE)
    assert shown.code == 0, shown
    assert "search.repeats: 2 -> 3\n" in shown.out
    known = {each.trial_id for each in before if each.trial_id}
    after = list(events("tiny"))
    assert not [each for each in after[len(before) :] if each.trial_id in known], "nothing ran again"
    assert haltsweep("launch", spec, "search.repeats=3", "--runs", "whole", *INLINE).code == 0
    assert measured("tiny") == measured("tiny", "whole")
    found, wanted = (read.report("tiny", runs=runs) for runs in ("runs", "whole"))
    assert found.unit_seeds == wanted.unit_seeds
    assert steady(found.cells) == steady(wanted.cells)
    refused = haltsweep("extend", "tiny", "search.repeats=2", *INLINE)
    assert (refused.code, "what was asked for stays" in refused.err) == (2, True)


@pytest.mark.slow
def test_trials_and_confirm_are_added_to_a_search(haltsweep, untracked, spec):
    assert haltsweep("launch", spec, "confirm=null", *INLINE).code == 0
    confirm = "confirm={seeds: [101, 102], splits: [near-iid]}"
    shown = haltsweep("extend", "tiny", confirm, "--trials", "3", *INLINE)
    assert shown.code == 0, shown
    assert "claims" not in shown.err
    more = ("search.trials_per_arm=3", confirm, "--runs", "whole")
    assert haltsweep("launch", spec, *more, *INLINE).code == 0
    assert measured("tiny") == measured("tiny", "whole")
    refused = haltsweep("extend", "tiny", "--trials", "4", *INLINE)
    assert refused.code == 2
    assert "search.trials_per_arm: 3 -> 4\n    test splits were already evaluated for" in refused.err


LATE = ("search=null", "posthoc={model.halt.threshold: [0.5]}")


@pytest.mark.slow
def test_splits_are_read_of_kept_checkpoints_as_the_trials_themselves_would_have(haltsweep, spec):
    assert haltsweep("launch", spec, *LATE, *INLINE).code == 0
    before = list(events("tiny"))
    with open_stored_sweep("tiny", Path("runs")) as sweep:
        checkpoints = {
            each.trial_id: sweep.folder.checkpoint(each.trial_id)
            for each in sweep.plan.trials
            if each.phase == "confirm"
        }
    lost, place = next(iter(checkpoints.items()))
    place.rename("away")
    refused = haltsweep("extend", "tiny", "--splits", "length-20-40", *INLINE)
    assert refused.code == 2
    assert f"baseline/confirm/0 ({lost}, seed 101): no checkpoint of step 4\nPut back what is" in refused.err
    assert list(events("tiny")) == before
    Path("away").rename(place)
    shown = haltsweep("extend", "tiny", "--splits", "length-20-40, near-iid", "--seeds", "[103]", *INLINE)
    assert shown.code == 0, shown
    assert "confirm.splits: [near-iid] -> [near-iid, length-20-40]\n" in shown.out
    assert "tiny: 12 trials added to 8 (2 confirm, 10 posthoc)\n" in shown.out
    after = list(events("tiny"))
    assert after[: len(before)] == before
    known = {each.trial_id for each in before if each.trial_id}
    assert not [each for each in after[len(before) :] if each.trial_id in known], "nothing ran again"
    both = ("confirm.splits=[near-iid, length-20-40]", "confirm.seeds=[101, 102, 103]", "--runs", "whole")
    both += ("--tracking", "none")
    assert haltsweep("launch", spec, *LATE, *both, *INLINE).code == 0
    found, wanted = (read.report("tiny", runs=runs) for runs in ("runs", "whole"))
    assert "length-20-40/accuracy" in found.metrics
    assert found.verdicts == wanted.verdicts
    assert found.unread == ()
    for part in ("cells", "effects", "posthoc"):
        assert steady(getattr(found, part)) == steady(getattr(wanted, part))
    assert haltsweep("verify", "tiny").code == 0, "MLflow and Parquet show the union"
    again = haltsweep("extend", "tiny", "--splits", "length-20-40", *INLINE)
    assert again.code == 2
    assert "tiny evaluates near-iid, length-20-40" in again.err


def test_a_forbidden_change_is_refused(haltsweep, tmp_path):
    with_spec(finished(tmp_path, make_plan(1)))
    shown = haltsweep("extend", "synthetic", "--trials", "9")
    assert (shown.code, shown.out) == (2, "")
    assert "search.trials_per_arm: 2 -> 9" in shown.err


def test_a_count_of_seeds_is_not_drawn_again_while_those_before_have_not_run(
    haltsweep, tmp_path, monkeypatch
):
    """Who was killed while extending repeats the command, and means the same seeds."""
    before = Extension(1.0, "haltsweep extend synthetic --seeds 1", "0", (), ("one", "two"), (1, 2), {})
    plan = replace(make_plan(2, seeds=(1, 2, 3)), extended=(before,))
    with_spec(launched(tmp_path, plan))
    shown = haltsweep("extend", "synthetic", "--seeds", "1")
    assert (shown.code, shown.out) == (2, "")
    assert "2 confirm trials left. Continue them with `haltsweep resume synthetic`" in shown.err

    def planned(*_):
        raise InputError("this far")

    monkeypatch.setattr("orchestrator.cli.commands.extend._plan_extended_spec", planned)
    assert haltsweep("extend", "synthetic", "--seeds", "[7]").err == "this far\n"
    with_spec(finished(tmp_path / "elsewhere", plan))
    shown = haltsweep("extend", "synthetic", "--seeds", "1", "--runs", str(tmp_path / "elsewhere" / "runs"))
    assert shown.err == "this far\n", "they have ended"


def with_spec(folder):
    """A made-up sweep with a spec: what it asks for is not what the plan holds."""
    folder.spec.write_text(TINY)
    write_manifest(folder.root, [folder.spec, folder.plan])
    return folder


def steady(numbers):
    """Without what depends on how fast the machine is."""
    return [each for each in numbers if not each.metric.startswith("train/")]


def folder_of(name):
    with open_stored_sweep(name, Path("runs")) as sweep:
        return sweep.folder


def events(name):
    with open_stored_sweep(name, Path("runs")) as sweep:
        yield from [each for each in sweep.ledger.events() if each.kind is not EventKind.OPENED]


@pytest.mark.slow
def test_a_spec_of_its_own_and_a_dry_run(haltsweep, untracked, spec):
    assert haltsweep("launch", spec, "search=null", *INLINE).code == 0
    Path("more.yaml").write_text(TINY.replace("seeds: [101, 102]", "seeds: [101, 102, 7]"))
    before = tree(Path("runs/tiny"))
    shown = haltsweep("extend", "tiny", "more.yaml", "search=null", "--dry-run")
    assert shown.code == 0, shown
    assert shown.out.endswith("tiny: 2 trials added to 4 (2 confirm)\nnothing was written\n")
    assert tree(Path("runs/tiny")) == before
    Path("arms.yaml").write_text(TINY.replace("arms:\n", f"arms:\n  {WIDE[5:].replace('=', ': ', 1)}\n"))
    shown = haltsweep("extend", "tiny", "arms.yaml", "--arms", "wide", "--seeds", "[7]", "--dry-run")
    assert shown.code == 0, shown
    assert shown.out.endswith("tiny: 5 trials added to 4 (5 confirm)\nnothing was written\n")
    refused = haltsweep("extend", "tiny", "more.yaml", "baseline.train.steps=2", "--dry-run")
    assert refused.code == 2
    assert "baseline.train.steps: 4 -> 2\n    the settings of every arm follow from it" in refused.err
    assert "search: (nothing) -> " in refused.err


def test_a_sweep_that_runs_is_extended_only_if_taken_over(haltsweep, tmp_path, monkeypatch):
    plan = make_plan(1)
    folder = with_spec(launched(tmp_path, plan))
    asked = SimpleNamespace(spec=load_spec(folder.spec))
    monkeypatch.setattr("orchestrator.cli.commands.extend._plan_extended_spec", lambda *_: (asked, plan))
    with Ledger.open(folder.ledger_url, plan.name) as ledger:
        lease = ledger.claim(Holder.current())
        ledger.append([log.closed(1.0, "done")], lease)
        shown = haltsweep("extend", "synthetic", "--seeds", "1")
        assert shown.code == 2
        assert "must have one holder at a time" in shown.err
        shown = haltsweep("extend", "synthetic", "--seeds", "1", "--take-over")
        assert f"taken over from session {lease.token}" in " ".join(shown.err.split())
        with pytest.raises(LeaseLost):
            ledger.append([log.closed(2.0, "done")], lease)


@pytest.mark.parametrize("where", ["storage", "tracking"])
@pytest.mark.parametrize("asked", [["extend", "--seeds", "1"], ["resume"]])
def test_a_copy_that_shares_a_store_of_its_original_does_not_go_on(
    haltsweep, tmp_path, monkeypatch, where, asked
):
    plan, url = make_plan(1), f"sqlite:///{tmp_path / 'team.db'}"
    folder = with_spec(launched(tmp_path, plan, **{where: url}))
    shutil.copytree(tmp_path / "runs", tmp_path / "copied")
    monkeypatch.setattr("orchestrator.cli.commands.extend._plan_extended_spec", lambda *_: (None, plan))
    shown = haltsweep(asked[0], "synthetic", *asked[1:], "--runs", str(tmp_path / "copied"))
    assert shown.code == 2
    assert f"is a copy of {folder.root}: both use {url}; use that folder" in shown.err


def test_a_copy_is_brought_into_an_mlflow_of_its_own(haltsweep, tmp_path):
    plan, url = make_plan(1), f"sqlite:///{tmp_path / 'team.db'}"
    folder = with_spec(launched(tmp_path, plan, tracking=url))
    shutil.copytree(tmp_path / "runs", tmp_path / "copied")
    sync = ["sync", "synthetic", "--runs", str(tmp_path / "copied")]
    shown = haltsweep(*sync)
    assert shown.code == 2
    assert f"is a copy of {folder.root}: both use {url}; use that folder" in shown.err
    assert not (tmp_path / "team.db").exists()
    assert "both have" not in haltsweep(*sync, "--tracking", f"sqlite:///{tmp_path / 'other.db'}").err


@pytest.mark.parametrize(
    ("seeds", "why"),
    [
        ("many", "--seeds must be a number of seeds or a list of new seeds such as '[105, 106]', got many"),
        ("0", "--seeds must be a number"),
        ("[1", "--seeds: "),
    ],
)
def test_seeds_that_are_none(haltsweep, tmp_path, seeds, why):
    finished(tmp_path, make_plan(1))
    shown = haltsweep("extend", "synthetic", "--seeds", seeds)
    assert shown.code == 2
    assert why in shown.err


def test_further_seeds_are_those_of_the_list_that_is_the_same_for_ever():
    from orchestrator.cli.commands.extend import _seed_and_trial_overrides
    from orchestrator.identity import derive_seed

    drawn = [derive_seed("confirm", number) for number in range(4)]
    plan = make_plan(1, seeds=tuple(drawn[:2]))
    assert _seed_and_trial_overrides(plan, (), "2", 5) == [
        "search.trials_per_arm=5",
        f"confirm.seeds={json.dumps(drawn)}",
    ]


SLOW = """\
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


def test_what_was_left_of_the_sweep_is_told_too(haltsweep, untracked, tmp_path, monkeypatch):
    """As where a budget that was used up is raised: nothing is added, and much is run."""
    monkeypatch.chdir(tmp_path)
    Path("slow_of_extend.py").write_text(SLOW)
    Path("slow.yaml").write_text(SLOW_SPEC)
    with forgotten(tmp_path):
        haltsweep("launch", "slow.yaml", *INLINE)
        shown = haltsweep("extend", "slow", "budget.device_hours=1", "--dry-run")
        assert shown.code == 0, shown
        assert "slow: 0 trials added to 6\n" in shown.out
        left = int(shown.out.partition(" of the 6 earlier trials have not ended")[0].split()[-1])
        assert 0 < left < 6
        assert haltsweep("extend", "slow", "budget.device_hours=1").code == 0
        shown = haltsweep("extend", "slow", "--seeds", "1", "--dry-run")
        assert "have not ended" not in shown.out
