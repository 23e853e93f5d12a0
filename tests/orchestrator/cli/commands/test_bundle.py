"""`haltsweep bundle` and `verify`: a bundle reproduces the report and runs no code of its author."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.bundle import archive, contents
from orchestrator.ledger import chain
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import from_json, to_json
from tests.support.processes.commands import TINY, tree
from tests.support.specs.plans import make_plan
from tests.support.sweeps.finished import finished
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


def write_bundle(files, sweep="synthetic", **changes):
    """Write a bundle of changed files with matching digests, as a forger could, and return its path."""
    files = {name: content for name, content in {**files, **changes}.items() if name != contents.LIST_FILE}
    versions = {"haltsweep": "0.1.0", "code": contents.code_digest()}
    archive.write_archive(
        Path("other.zip"), {**files, contents.LIST_FILE: contents.make_listing(sweep, files, versions)}
    )
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
    assert re.search("^report +sound ", result.out, re.MULTILINE)
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
    assert re.search("^report +unknown ", result.out, re.MULTILINE)
    assert "numpy 0." in result.out


def test_verify_finds_files_that_contradict_their_digests(haltsweep, bundled):
    archive.write_archive(Path("other.zip"), bundled | {"provenance.json": b"{}", "extra.json": b"{}"})
    result = haltsweep("verify", "other.zip")
    assert result.code == 1
    assert "provenance.json: " in result.out
    assert "extra.json: " in result.out
    for missing in ("plan.json", contents.LIST_FILE):
        archive.write_archive(Path("other.zip"), {name: bundled[name] for name in bundled if name != missing})
        assert missing in haltsweep("verify", "other.zip").out


@pytest.mark.parametrize(
    ("damage", "detail"),
    [
        (lambda lines: [lines[0], *lines[2:]], "event 2"),
        (lambda lines: [lines[0], lines[1].replace(b"c0ffee", b"beefed"), *lines[2:]], "event 1"),
        (lambda lines: [lines[0], b"[" * 100_000, *lines[1:]], contents.LEDGER_FILE),
    ],
)
def test_verify_refuses_a_changed_ledger(haltsweep, bundled, damage, detail):
    lines = bundled[contents.LEDGER_FILE].split(b"\n")
    result = haltsweep("verify", write_bundle(bundled, **{contents.LEDGER_FILE: b"\n".join(damage(lines))}))
    assert result.code == 1
    assert detail in result.out


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


@pytest.mark.parametrize("plan", [b"[]", b"[" * 100_000])
def test_verify_refuses_an_invalid_plan(haltsweep, bundled, plan):
    result = haltsweep("verify", write_bundle(bundled, **{"plan.json": plan}))
    assert result.code == 1


def test_verify_refuses_a_file_that_is_no_bundle(haltsweep, tmp_path):
    (tmp_path / "text.zip").write_text("no archive, though its name says so")
    assert haltsweep("verify", "text.zip").code == 2


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
    assert "`haltsweep stop`" in result.err


@pytest.mark.slow
def test_rerun_trials_reproduce_their_results_and_files_agree_with_the_ledger(haltsweep, tmp_path):
    Path("tiny.yaml").write_text(TINY)
    assert haltsweep("launch", "tiny.yaml", "search=null", "--driver", "inline").code == 0
    assert haltsweep("bundle", "tiny").code == 0
    result = haltsweep("verify", "tiny.bundle.zip", "--rerun", "2", "--data", "elsewhere")
    assert result.code == 0, result
    assert len(re.findall("^rerun +sound ", result.out, re.MULTILINE)) == 2
    with zipfile.ZipFile("tiny.bundle.zip") as file:
        files = {name: file.read(name) for name in file.namelist()}
    plan = json.loads(files["plan.json"])
    plan["answer"]["margin"] = 0.5
    for name, content in (
        ("spec.yaml", files["spec.yaml"].replace(b"0.01", b"0.09")),
        ("plan.json", json.dumps(plan).encode()),
        ("data.json", b"[1]"),
    ):
        assert content != files[name]
        result = haltsweep("verify", write_bundle(files, "tiny", **{name: content}))
        assert (result.code, name in result.out) == (1, True)
    rows = [json.loads(line) for line in files[contents.LEDGER_FILE].splitlines()]
    for row in rows[1:]:
        row[7] = row[7].replace('"near-iid/accuracy":', '"near-iid/accuracy":0.99,"near-iid/was":')
    head = chain.first_digest(rows[0][0])
    for row in rows[1:]:
        row[-1] = head = chain.link_digest(head, row[:-1])
    files[contents.LEDGER_FILE] = b"".join(contents.ledger_lines(rows[0][0], rows[1:]))
    false_result = haltsweep("verify", write_bundle(files, "tiny"), "--rerun", "1", "--data", "elsewhere")
    assert false_result.code == 1
    assert "near-iid/accuracy 0.99 -> " in false_result.out


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
        archive.unpack_archive(Path(sys.argv[1]), folder)
        contents.read_listing(folder)
        contents.read_plan(folder)
        list(contents.read_events(folder))
        print(contents.find_data_fault(folder) or "read")
    except HaltsweepError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("name", "head", "message"),
    [
        ("plan.json", b"[", "4,000,000 values"),
        ("ledger.jsonl", b'["uid"]\n[', "8,388,608 bytes"),
        ("bundle.json", b"[", "4,000,000 values"),
    ],
)
def test_verify_refuses_an_oversized_file_before_it_takes_memory(bundled, name, head, message):
    with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for file_name, text in {**bundled, name: head + b"[]," * 10_000_000}.items():
            file.writestr(file_name, text)
    process = subprocess.run(
        [sys.executable, "-c", READ_WITHIN_LIMIT, "bomb.zip", str(BUDGET_MB)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(contents.__file__).parents[2])},
    )
    assert message in process.stdout, process.stderr


def test_bundle_and_verify_refuse_sweeps_that_exceed_a_limit(haltsweep, bundled, monkeypatch):
    monkeypatch.setattr(contents, "MAX_CELLS", 1)
    result = haltsweep("verify", "synthetic.bundle.zip")
    assert result.code == 1
    assert re.search("^bundle +damaged .* 1, got ", result.out, re.MULTILINE)
    bundle_result = haltsweep("bundle", "synthetic", "--to", "more.zip")
    assert bundle_result.code == 2
    assert not Path("more.zip").exists()
