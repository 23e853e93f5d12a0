"""`haltsweep verify` finds bundles whose files contradict each other, although their digests match."""

import json
import zipfile
from pathlib import Path

import pytest

from orchestrator.bundle import archive, contents
from tests.support.training_code.own_code import BONUS, forgotten

pytestmark = pytest.mark.usefixtures("untracked")

SPEC = """
name: agreeing
question: Do its parts agree?
trainable: agreeing:train
baseline: {bonus: 0.0}
arms: {plus: {why: bonus, set: {bonus: 0.1}}}
confirm: {seeds: [1, 2, 3], splits: [test]}
"""


def write_bundle(files, changes):
    """Write a bundle of changed files with matching digests, as a forger could, and return its path."""
    files = {**files, **changes}
    del files[contents.LIST]
    versions = {"haltsweep": "0.1.0", "code": contents.code_digest()}
    archive.write(Path("other.zip"), {**files, contents.LIST: contents.listing("agreeing", files, versions)})
    return "other.zip"


def test_verify_requires_that_spec_plan_and_data_match_the_ledger(haltsweep, tmp_path):
    Path("agreeing.yaml").write_text(SPEC)
    Path("agreeing.py").write_text(BONUS)
    with forgotten(tmp_path):
        assert haltsweep("launch", "agreeing.yaml", "--driver", "inline").code == 0
    assert haltsweep("bundle", "agreeing").code == 0
    assert haltsweep("verify", "agreeing.bundle.zip").code == 0
    with zipfile.ZipFile("agreeing.bundle.zip") as file:
        files = {name: file.read(name) for name in file.namelist()}
    plan = json.loads(files["plan.json"])
    plan["answer"]["margin"] = 0.5
    for name, content in (
        ("spec.yaml", files["spec.yaml"].replace(b"0.1", b"0.9")),
        ("plan.json", json.dumps(plan).encode()),
        ("data.json", b"[1]"),
    ):
        assert content != files[name]
        result = haltsweep("verify", write_bundle(files, {name: content}))
        assert result.code == 1
        assert name in result.out
