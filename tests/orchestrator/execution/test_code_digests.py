"""Digests of training code."""

from orchestrator.execution.code_digests import code_parts
from tests.support.sweeps.workloads import PATH


def test_digest_covers_every_byte_of_the_package_and_the_workload(tmp_path, monkeypatch):
    (tmp_path / "mine_for_needs.py").write_text("class One: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    parts = code_parts("mine_for_needs:One")
    assert parts != code_parts(PATH)
    (tmp_path / "mine_for_needs.py").write_text("class One: .. .\n")
    assert code_parts("mine_for_needs:One") != parts
