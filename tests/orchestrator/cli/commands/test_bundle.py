"""`haltsweep bundle` and `verify`: a bundle reproduces the report and runs no code of its author."""

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
def bundle_folder(tmp_path_factory):
    """An empty folder that the first test of this module fills."""
    return tmp_path_factory.mktemp("bundled")


@pytest.fixture
def bundled(tmp_path, haltsweep, bundle_folder):
    """Return the files of a bundle next to its sweep; all tests share one bundle."""
    if not (bundle_folder / "synthetic.bundle.zip").exists():
        finished(tmp_path, PLAN)
        result = haltsweep("bundle", "synthetic")
        assert result.code == 0, result
        shutil.copytree(tmp_path / "runs", bundle_folder / "runs")
        shutil.copy(tmp_path / "synthetic.bundle.zip", bundle_folder)
    else:
        shutil.copytree(bundle_folder, tmp_path, dirs_exist_ok=True)
    with zipfile.ZipFile("synthetic.bundle.zip") as file:
        return {name: file.read(name) for name in file.namelist()}


def write_bundle(files, code_digest=None, **changes):
    """Write a bundle of changed files with matching digests, as a forger could, and return its path."""
    files = {**files, **{name: content for name, content in changes.items() if content is not None}}
    files.pop(contents.LIST, None)
    files[contents.LIST] = contents.listing(
        "synthetic", files, {"haltsweep": "0.1.0", "code": code_digest or contents.code_digest()}
    )
    archive.write(Path("other.zip"), files)
    return "other.zip"


def test_verify_reproduces_the_report_byte_for_byte_on_another_machine(
    haltsweep, bundled, tmp_path, monkeypatch
):
    elsewhere = tmp_path / "another machine"
    elsewhere.mkdir()
    (tmp_path / "synthetic.bundle.zip").rename(elsewhere / "got.zip")
    (tmp_path / "runs").rename(tmp_path / "gone")
    monkeypatch.chdir(elsewhere)
    files_before = tree(elsewhere)
    result = haltsweep("verify", "got.zip")
    assert result.code == 0, result
    assert "report      sound   " in result.out
    assert tree(elsewhere) == files_before
    assert {"spec.yaml", "plan.json", "provenance.json", "ledger.jsonl", "data.json"} < set(bundled)
    assert "launch.json" not in bundled, "URLs with passwords stay at home"
    assert b"numpy==" in bundled["environment.txt"]


def test_verify_finds_a_report_that_contradicts_the_ledger(haltsweep, bundled):
    false_report = bundled["report/report.md"].replace(b"synthetic", b"wonderful")
    result = haltsweep("verify", write_bundle(bundled, **{"report/report.md": false_report}))
    assert result.code == 1
    assert "report/report.md" in result.out
    environment = bundled["environment.txt"].replace(b"numpy==", b"numpy==0.")
    result = haltsweep(
        "verify", write_bundle(bundled, **{"report/report.md": false_report, "environment.txt": environment})
    )
    assert result.code == 2
    assert "report      unknown" in result.out
    assert "numpy 0." in result.out
    result = haltsweep("verify", write_bundle(bundled, "another", **{"report/report.md": false_report}))
    assert "haltsweep 0.1.0" in result.out


def test_verify_finds_files_that_contradict_their_digests(haltsweep, bundled):
    archive.write(Path("other.zip"), bundled | {"provenance.json": b"{}", "extra.json": b"{}"})
    result = haltsweep("verify", "other.zip")
    assert result.code == 1
    assert "provenance.json: " in result.out
    assert "extra.json: " in result.out
    archive.write(Path("other.zip"), {name: bundled[name] for name in bundled if name != "plan.json"})
    assert "plan.json: " in haltsweep("verify", "other.zip").out
    archive.write(Path("other.zip"), {name: bundled[name] for name in bundled if name != contents.LIST})
    assert "bundle.json" in haltsweep("verify", "other.zip").out


@pytest.mark.parametrize(
    ("damage", "detail"),
    [
        (lambda lines: [lines[0], *lines[2:]], "event 2"),
        (lambda lines: [lines[0], lines[1].replace(b"c0ffee", b"beefed"), *lines[2:]], "event 1"),
        (lambda lines: [b'["other"]', *lines[1:]], "event 1"),
        (lambda lines: [lines[0], b"[1, 2]", *lines[1:]], "9 columns, got 2"),
        (lambda lines: [lines[0], b"[" * 100_000, *lines[1:]], contents.LEDGER),
        (lambda lines: [b"{}", *lines[1:]], contents.LEDGER),
    ],
)
def test_verify_refuses_a_changed_ledger(haltsweep, bundled, damage, detail):
    lines = bundled[contents.LEDGER].split(b"\n")
    result = haltsweep("verify", write_bundle(bundled, **{contents.LEDGER: b"\n".join(damage(lines))}))
    assert result.code == 1
    assert detail in result.out


def test_verify_refuses_an_event_that_exceeds_the_line_limit(haltsweep, bundled, monkeypatch):
    monkeypatch.setattr(contents, "MAX_LINE", 50_000)
    oversized_ledger = bundled[contents.LEDGER] + b"[" + b" " * 100_000
    result = haltsweep("verify", write_bundle(bundled, **{contents.LEDGER: oversized_ledger}))
    assert result.code == 1
    assert "50,000" in result.out


def test_report_keeps_only_few_events_in_memory(tmp_path):
    plan = replace(
        PLAN, confirm=None, trials=tuple(trial for trial in PLAN.trials if trial.phase == "search")
    )
    num_alive = []

    def watched_events():
        references = []
        for event in history(plan, steps=200):
            payload = Payload(event.payload)
            references.append(weakref.ref(payload))
            yield replace(event, payload=payload)
            del payload
            num_alive.append(sum(reference() is not None for reference in references))

    report_files(plan, watched_events(), tmp_path)
    assert len(num_alive) > 1000
    assert max(num_alive) < 10 + 3 * len(plan.trials), (
        "a trial's own, its last and its best measurement at most"
    )


class Payload(dict):
    """A dict that supports weak references."""


def test_verify_runs_no_code_that_a_bundle_names(haltsweep, bundled, tmp_path):
    (tmp_path / "evil.py").write_text(EVIL)
    plan = from_json(bundled["plan.json"])
    settings = {"task": {"name": "evil"}, "model": {"name": "evil", "x": 0.5}, "train": {}}
    arms = tuple(
        replace(arm, settings={**settings, "model": {**settings["model"], "shift": 0}}) for arm in plan.arms
    )
    search = replace(plan.search, sampler={"name": "evil.Sampler"}, stopper={"name": "evil.Stopper"})
    spec = b"trainable: evil:train\nsearch: {spaces: [evil]}\n"
    for trainable, metrics in (("evil:train", plan.metrics), (None, plan.metrics), (None, ())):
        hostile_plan = replace(plan, arms=arms, search=search, trainable=trainable, metrics=metrics)
        changed_files = {"plan.json": to_json(hostile_plan).encode(), "spec.yaml": spec}
        result = haltsweep("verify", write_bundle(bundled, **changed_files))
        assert result.code in {0, 1}
        assert not (tmp_path / "ran").exists()
        assert "evil" not in sys.modules


@pytest.mark.parametrize("plan", [b"", b"[]", b'{"format": 1}', b"[" * 100_000])
def test_verify_refuses_an_invalid_plan(haltsweep, bundled, plan):
    result = haltsweep("verify", write_bundle(bundled, **{"plan.json": plan}))
    assert result.code == 1


def test_verify_refuses_events_of_trials_outside_the_plan(haltsweep, bundled):
    plan = replace(from_json(bundled["plan.json"]), trials=(), arms=make_plan(1).arms)
    result = haltsweep("verify", write_bundle(bundled, **{"plan.json": to_json(plan).encode()}))
    assert result.code == 1


def test_verify_refuses_a_file_that_is_no_bundle(haltsweep, tmp_path):
    (tmp_path / "text.zip").write_text("no archive, though its name says so")
    result = haltsweep("verify", "text.zip")
    assert result.code == 2
    assert "--repair" in haltsweep("verify", "text.zip", "--repair").err


def test_bundle_refuses_an_existing_file_and_a_running_sweep(haltsweep, tmp_path):
    folder = finished(tmp_path, PLAN)
    (tmp_path / "there.zip").touch()
    result = haltsweep("bundle", "synthetic", "--to", "there.zip")
    assert result.code == 2
    assert "there.zip" in result.err
    with Ledger.open(folder.ledger_url, "synthetic") as ledger:
        ledger.claim(Holder.current())
        result = haltsweep("bundle", "synthetic")
    assert result.code == 2
    assert "is running" in result.err


@pytest.mark.slow
def test_rerun_trials_reproduce_their_results(haltsweep, tmp_path):
    Path("tiny.yaml").write_text(TINY)
    assert haltsweep("launch", "tiny.yaml", "search=null", "--driver", "inline").code == 0
    assert haltsweep("bundle", "tiny").code == 0
    result = haltsweep("verify", "tiny.bundle.zip", "--rerun", "2", "--data", "elsewhere")
    assert result.code == 0, result
    assert result.out.count("the same, to the last digit") == 2
    with zipfile.ZipFile("tiny.bundle.zip") as file:
        files = {name: file.read(name) for name in file.namelist()}
    rows = [json.loads(line) for line in files[contents.LEDGER].splitlines()]
    for row in rows[1:]:
        row[7] = row[7].replace('"near-iid/accuracy":', '"near-iid/accuracy":0.99,"near-iid/was":')
    head = chain.first_digest(rows[0][0])
    for row in rows[1:]:
        row[-1] = head = chain.link_digest(head, row[:-1])
    files[contents.LEDGER] = b"".join(contents.ledger_lines(rows[0][0], rows[1:]))
    false_result = haltsweep("verify", write_bundle(files), "--rerun", "1", "--data", "elsewhere")
    assert false_result.code == 1
    assert "near-iid/accuracy 0.99 -> " in false_result.out


def test_rerun_draws_the_same_trials_and_requires_a_bundle(haltsweep, tmp_path):
    finished(tmp_path, PLAN)
    records = read_records("synthetic")
    assert sample_trials(records, 3) == sample_trials(list(reversed(records)), 3)
    assert {sample_trial.phase for sample_trial in sample_trials(records, 100)} == {"confirm"}
    result = haltsweep("verify", "synthetic", "--rerun", "1")
    assert result.code == 2
    assert "--rerun" in result.err


def read_records(name):
    with open_stored_sweep(name, Path("runs")) as sweep:
        return sweep.records()


BUDGET_MB = 200
"""Memory in MB that reading an untrusted bundle may take in addition to the command's own."""
READ_WITHIN_LIMIT = """
import resource, sys, tempfile
from pathlib import Path
from orchestrator.bundle import archive, contents
from orchestrator.errors import HaltsweepError
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + int(sys.argv[2]) * 10**6
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
with tempfile.TemporaryDirectory() as unpacked:
    folder = Path(unpacked)
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
    ("name", "head", "repeated_text", "count", "message"),
    [
        ("plan.json", b"[", b"[],", 10_000_000, "4,000,000 values"),
        ("plan.json", b"", b'{"":', 8_000_000, "4,000,000 values"),
        ("data.json", b"[", b"{},", 10_000_000, "4,000,000 values"),
        ("ledger.jsonl", b'["uid"]\n[', b"[],", 10_000_000, "8,388,608 bytes"),
        ("ledger.jsonl", b"", b"[", 8_000_000, "4,000,000 values"),
        ("bundle.json", b"[", b"[],", 10_000_000, "4,000,000 values"),
    ],
)
def test_verify_refuses_an_oversized_file_before_it_takes_memory(
    bundled, name, head, repeated_text, count, message
):
    files = {**bundled, name: head + repeated_text * count}
    with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for file_name, text in files.items():
            file.writestr(file_name, text)
    process = subprocess.run(
        [sys.executable, "-c", READ_WITHIN_LIMIT, "bomb.zip", str(BUDGET_MB)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(contents.__file__).parents[2])},
    )
    assert message in process.stdout, process.stderr


@pytest.mark.parametrize("limit", ["MAX_ARMS", "MOST_TRIALS", "MAX_CELLS"])
def test_bundle_and_verify_refuse_sweeps_that_exceed_a_limit(haltsweep, bundled, monkeypatch, limit):
    monkeypatch.setattr(contents, limit, 1)
    result = haltsweep("verify", "synthetic.bundle.zip")
    assert result.code == 1
    assert "at most" in result.out
    bundle_result = haltsweep("bundle", "synthetic", "--to", "more.zip")
    assert bundle_result.code == 2
    assert not Path("more.zip").exists()
