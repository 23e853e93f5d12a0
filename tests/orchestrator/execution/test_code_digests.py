"""Digests of training code."""

import pytest

from orchestrator.errors import InputError
from orchestrator.execution import code_digests
from orchestrator.execution.code_digests import code_parts
from tests.support.sweeps.workloads import PATH


def test_a_task_whose_package_is_missing_is_an_error():
    with pytest.raises(InputError):
        code_parts(PATH, ["gone"])


def test_the_digest_sees_every_byte_of_ours_and_of_the_workload(tmp_path, monkeypatch):
    (tmp_path / "mine_for_needs.py").write_text("class One: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = code_parts("mine_for_needs:One")
    assert before != code_parts(PATH)
    (tmp_path / "mine_for_needs.py").write_text("class One: .. .\n")
    assert code_parts("mine_for_needs:One") != before
    monkeypatch.setattr(code_digests, "OURS", ("orchestrator", "no_such_package"))
    with pytest.raises(InputError):
        code_parts("mine_for_needs:One")
