"""`haltsweep bundle` and `verify` of one: the same report elsewhere, and no code of whoever made it."""

import json
import os
import shutil
import subprocess
import sys
import weakref
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.bundle import archive, contents
from orchestrator.cli.commands.bundle import report_files
from orchestrator.cli.stored_sweep import open_stored_sweep
from orchestrator.execution.sweep.rerun import sample_trials
from orchestrator.ledger import chain
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import from_json, to_json
from tests.support.processes.commands import TINY, tree
from tests.support.specs.plans import make_plan
from tests.support.sweeps.finished import finished
from tests.support.sweeps.histories import history
from trainables.metrics import Metric

EVIL = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
PLAN = replace(make_plan(2), metrics=(Metric("score", better="max", shown=("headline", "table")),))


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """An empty folder that the first test of this module fills."""
    return tmp_path_factory.mktemp("bundled")


@pytest.fixture
def bundled(tmp_path, haltsweep, once):
    """The files of a bundle, which lies beside the sweep; it is made once."""
    if not (once / "synthetic.bundle.zip").exists():
        finished(tmp_path, PLAN)
        shown = haltsweep("bundle", "synthetic")
        assert shown.code == 0, shown
        shutil.copytree(tmp_path / "runs", once / "runs")
        shutil.copy(tmp_path / "synthetic.bundle.zip", once)
    else:
        shutil.copytree(once, tmp_path, dirs_exist_ok=True)
    with zipfile.ZipFile("synthetic.bundle.zip") as file:
        return {name: file.read(name) for name in file.namelist()}


def again(files, code=None, **changes):
    """A bundle of other files with digests that fit, as whoever wants to can make it."""
    files = {**files, **{name: content for name, content in changes.items() if content is not None}}
    files.pop(contents.LIST, None)
    files[contents.LIST] = contents.listing(
        "synthetic", files, {"haltsweep": "0.1.0", "code": code or contents.code_digest()}
    )
    archive.write(Path("other.zip"), files)
    return "other.zip"


def test_elsewhere_the_report_comes_out_byte_for_byte(haltsweep, bundled, tmp_path, monkeypatch):
    elsewhere = tmp_path / "another machine"
    elsewhere.mkdir()
    (tmp_path / "synthetic.bundle.zip").rename(elsewhere / "got.zip")
    (tmp_path / "runs").rename(tmp_path / "gone")
    monkeypatch.chdir(elsewhere)
    before = tree(elsewhere)
    shown = haltsweep("verify", "got.zip")
    assert shown.code == 0, shown
    assert "report      sound   " in shown.out
    assert "made again from the ledger, byte for byte" in shown.out
    assert tree(elsewhere) == before
    assert {"spec.yaml", "plan.json", "provenance.json", "ledger.jsonl", "data.json"} < set(bundled)
    assert "launch.json" not in bundled, "URLs with passwords stay at home"
    assert b"numpy==" in bundled["environment.txt"]


def test_a_report_that_says_something_else_than_the_ledger(haltsweep, bundled):
    lie = bundled["report/report.md"].replace(b"synthetic", b"wonderful")
    shown = haltsweep("verify", again(bundled, **{"report/report.md": lie}))
    assert shown.code == 1
    assert (
        "report      damaged made again from the ledger other bytes come out: report/report.md" in shown.out
    )
    other = bundled["environment.txt"].replace(b"numpy==", b"numpy==0.")
    shown = haltsweep("verify", again(bundled, **{"report/report.md": lie, "environment.txt": other}))
    assert shown.code == 2
    assert "report      unknown" in shown.out
    assert "make it with numpy 0." in shown.out
    shown = haltsweep("verify", again(bundled, "another", **{"report/report.md": lie}))
    assert "make it with haltsweep 0.1.0 as it was then, as the bundle was" in shown.out


def test_files_that_were_changed_without_their_digests(haltsweep, bundled):
    archive.write(Path("other.zip"), bundled | {"provenance.json": b"{}", "extra.json": b"{}"})
    shown = haltsweep("verify", "other.zip")
    assert shown.code == 1
    assert "provenance.json: it was changed or damaged" in shown.out
    assert "extra.json: nobody wrote it" in shown.out
    archive.write(Path("other.zip"), {name: bundled[name] for name in bundled if name != "plan.json"})
    assert "plan.json: it is missing" in haltsweep("verify", "other.zip").out
    archive.write(Path("other.zip"), {name: bundled[name] for name in bundled if name != contents.LIST})
    assert "bundle.json must be as `haltsweep bundle` wrote it" in haltsweep("verify", "other.zip").out


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lines: [lines[0], *lines[2:]], "must hold events as they were written: event 2"),
        (lambda lines: [lines[0], lines[1].replace(b"c0ffee", b"beefed"), *lines[2:]], "event 1"),
        (lambda lines: [b'["other"]', *lines[1:]], "event 1"),
        (lambda lines: [lines[0], b"[1, 2]", *lines[1:]], "an event must have 9 columns, got 2"),
        (lambda lines: [lines[0], b"[" * 100_000, *lines[1:]], "nested less deeply"),
        (lambda lines: [b"{}", *lines[1:]], "must hold events as they were written"),
    ],
)
def test_a_ledger_that_is_not_as_it_was_written(haltsweep, bundled, change, why):
    lines = bundled[contents.LEDGER].split(b"\n")
    shown = haltsweep("verify", again(bundled, **{contents.LEDGER: b"\n".join(change(lines))}))
    assert shown.code == 1
    assert why in shown.out


def test_an_event_without_an_end_is_not_read_whole(haltsweep, bundled, monkeypatch):
    monkeypatch.setattr(contents, "MAX_LINE", 50_000)
    endless = bundled[contents.LEDGER] + b"[" + b" " * 100_000
    shown = haltsweep("verify", again(bundled, **{contents.LEDGER: endless}))
    assert shown.code == 1
    assert "an event must have at most 50,000 bytes, and one has more" in shown.out


def test_events_pass_by_and_are_not_kept(tmp_path):
    plan = replace(PLAN, confirm=None, trials=tuple(each for each in PLAN.trials if each.phase == "search"))
    held = []

    def passing():
        seen = []
        for event in history(plan, steps=200):
            kept = Payload(event.payload)
            seen.append(weakref.ref(kept))
            yield replace(event, payload=kept)
            del kept
            held.append(sum(each() is not None for each in seen))

    report_files(plan, passing(), tmp_path)
    assert len(held) > 1000
    assert max(held) < 10 + 3 * len(plan.trials), "a trial's own, its last and its best measurement at most"


class Payload(dict):
    """One that can be watched."""


def test_code_that_a_bundle_names_is_not_run(haltsweep, bundled, tmp_path):
    (tmp_path / "evil.py").write_text(EVIL)
    plan = from_json(bundled["plan.json"])
    settings = {"task": {"name": "evil"}, "model": {"name": "evil", "x": 0.5}, "train": {}}
    arms = tuple(
        replace(arm, settings={**settings, "model": {**settings["model"], "shift": 0}}) for arm in plan.arms
    )
    search = replace(plan.search, sampler={"name": "evil.Sampler"}, stopper={"name": "evil.Stopper"})
    spec = b"trainable: evil:train\nsearch: {spaces: [evil]}\n"
    for trainable, metrics in (("evil:train", plan.metrics), (None, plan.metrics), (None, ())):
        hostile = replace(plan, arms=arms, search=search, trainable=trainable, metrics=metrics)
        changed = {"plan.json": to_json(hostile).encode(), "spec.yaml": spec}
        shown = haltsweep("verify", again(bundled, **changed))
        assert shown.code in {0, 1}
        assert not (tmp_path / "ran").exists()
        assert "evil" not in sys.modules
    assert "does not run the code of tasks" in shown.out


@pytest.mark.parametrize("plan", [b"", b"[]", b'{"format": 1}', b"[" * 100_000])
def test_a_plan_that_is_none(haltsweep, bundled, plan):
    shown = haltsweep("verify", again(bundled, **{"plan.json": plan}))
    assert shown.code == 1
    assert "no report can be made of it: a plan must be JSON as haltsweep writes it" in shown.out


def test_events_that_no_plan_explains(haltsweep, bundled):
    plan = replace(from_json(bundled["plan.json"]), trials=(), arms=make_plan(1).arms)
    shown = haltsweep("verify", again(bundled, **{"plan.json": to_json(plan).encode()}))
    assert shown.code == 1


def test_what_is_no_bundle(haltsweep, tmp_path):
    (tmp_path / "text.zip").write_text("no archive, though its name says so")
    shown = haltsweep("verify", "text.zip")
    assert shown.code == 2
    assert "must be an archive that `haltsweep bundle` wrote" in shown.err
    assert "--repair works only on sweeps" in haltsweep("verify", "text.zip", "--repair").err


def test_nothing_is_overwritten_and_nothing_that_runs_is_bundled(haltsweep, tmp_path):
    folder = finished(tmp_path, PLAN)
    (tmp_path / "there.zip").touch()
    shown = haltsweep("bundle", "synthetic", "--to", "there.zip")
    assert shown.code == 2
    assert "there.zip exists" in shown.err
    with Ledger.open(folder.ledger_url, "synthetic") as ledger:
        ledger.claim(Holder.current())
        shown = haltsweep("bundle", "synthetic")
    assert shown.code == 2
    assert "is running" in shown.err


@pytest.mark.slow
def test_trials_that_run_again_measure_the_same(haltsweep, tmp_path):
    Path("tiny.yaml").write_text(TINY)
    assert haltsweep("launch", "tiny.yaml", "search=null", "--driver", "inline").code == 0
    assert haltsweep("bundle", "tiny").code == 0
    shown = haltsweep("verify", "tiny.bundle.zip", "--rerun", "2", "--data", "elsewhere")
    assert shown.code == 0, shown
    assert shown.out.count("the same, to the last digit") == 2
    with zipfile.ZipFile("tiny.bundle.zip") as file:
        files = {name: file.read(name) for name in file.namelist()}
    rows = [json.loads(line) for line in files[contents.LEDGER].splitlines()]
    for row in rows[1:]:
        row[7] = row[7].replace('"near-iid/accuracy":', '"near-iid/accuracy":0.99,"near-iid/was":')
    head = chain.first_digest(rows[0][0])
    for row in rows[1:]:
        row[-1] = head = chain.link_digest(head, row[:-1])
    files[contents.LEDGER] = b"".join(contents.ledger_lines(rows[0][0], rows[1:]))
    lied = haltsweep("verify", again(files), "--rerun", "1", "--data", "elsewhere")
    assert lied.code == 1
    assert "near-iid/accuracy 0.99 -> " in lied.out


def test_what_is_run_again_is_drawn_the_same_every_time_and_only_of_bundles(haltsweep, tmp_path):
    finished(tmp_path, PLAN)
    records = read_all("synthetic")
    assert sample_trials(records, 3) == sample_trials(list(reversed(records)), 3)
    assert {each.phase for each in sample_trials(records, 100)} == {"confirm"}
    shown = haltsweep("verify", "synthetic", "--rerun", "1")
    assert shown.code == 2
    assert "--rerun works only on bundles, but synthetic is not a file" in shown.err


def read_all(name):
    with open_stored_sweep(name, Path("runs")) as sweep:
        return sweep.records()


BUDGET_MB = 200
"""Memory that a bundle of anybody may take beyond that of the command itself."""
OVERSIZED = """
import resource, sys, tempfile
from pathlib import Path
from orchestrator.bundle import archive, contents
from orchestrator.errors import HaltsweepError
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + int(sys.argv[2]) * 10**6
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
with tempfile.TemporaryDirectory() as place:
    folder = Path(place)
    try:
        archive.unpack(Path(sys.argv[1]), folder)
        contents.read_listing(folder)
        contents.read_plan(folder)
        list(contents.read_events(folder))
        print(contents.data_fault(folder) or "read")
    except HaltsweepError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("name", "before", "piece", "times", "why"),
    [
        ("plan.json", b"[", b"[],", 10_000_000, "must have at most 4,000,000 values"),
        ("plan.json", b"", b'{"":', 8_000_000, "must have at most 4,000,000 values"),
        ("data.json", b"[", b"{},", 10_000_000, "must have at most 4,000,000 values"),
        ("ledger.jsonl", b'["uid"]\n[', b"[],", 10_000_000, "must have at most 8,388,608 bytes"),
        ("ledger.jsonl", b"", b"[", 8_000_000, "must have at most 4,000,000 values"),
        ("bundle.json", b"[", b"[],", 10_000_000, "must have at most 4,000,000 values"),
    ],
)
def test_an_oversized_file_is_refused_before_it_takes_memory(bundled, name, before, piece, times, why):
    files = {**bundled, name: before + piece * times}
    with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for each, text in files.items():
            file.writestr(each, text)
    done = subprocess.run(
        [sys.executable, "-c", OVERSIZED, "bomb.zip", str(BUDGET_MB)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(contents.__file__).parents[2])},
    )
    assert why in done.stdout, done.stderr


@pytest.mark.parametrize("limit", ["MAX_ARMS", "MOST_TRIALS", "MAX_CELLS"])
def test_more_arms_or_trials_than_a_report_is_made_of(haltsweep, bundled, monkeypatch, limit):
    monkeypatch.setattr(contents, limit, 1)
    shown = haltsweep("verify", "synthetic.bundle.zip")
    assert shown.code == 1
    assert "at most" in shown.out
    made = haltsweep("bundle", "synthetic", "--to", "more.zip")
    assert made.code == 2
    assert not Path("more.zip").exists()
