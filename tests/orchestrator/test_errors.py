"""Faults are printed one in a line, with their location; every error has an exit code."""

import pytest

from orchestrator.errors import ExecutorError, Fault, InputError, LeaseLost, PlanError, SpecError, StoreError


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault("is wrong"), "is wrong"),
        (Fault("is wrong", path="a.b"), "a.b: is wrong"),
        (Fault("is wrong", file="s.yaml"), "s.yaml: is wrong"),
        (Fault("is wrong", "a.b", "s.yaml", 3), "s.yaml:3: a.b: is wrong"),
        (Fault("is\nwrong", path="a\rb é"), r"a\rb é: is\nwrong"),
    ],
)
def test_fault_is_one_line(fault: Fault, text: str) -> None:
    assert str(fault) == text


def test_all_faults_are_printed() -> None:
    error = SpecError([Fault("one", line=1, file="s"), Fault("two")])
    assert str(error) == "s:1: one\ntwo"
    assert len(error.faults) == 2


def test_only_the_first_of_thousands_of_faults_are_printed() -> None:
    error = SpecError([Fault(f"fault {number}") for number in range(60_000)])
    *_, last_fault, rest = str(error).splitlines()
    assert (last_fault, "59,800" in rest) == ("fault 199", True)
    assert len(error.faults) == 60_000
    assert str(SpecError(error.faults[:200])).splitlines()[-1] == "fault 199"


def test_exit_codes() -> None:
    assert [SpecError.exit_code, PlanError.exit_code, InputError.exit_code] == [2, 2, 2]
    assert [StoreError.exit_code, ExecutorError.exit_code, LeaseLost.exit_code] == [1, 1, 1]


def test_messages_mask_the_password_of_a_url() -> None:
    for kind in (InputError, StoreError, ExecutorError, LeaseLost):
        assert str(kind("got 'http://ann:secret@host'; fix it")) == "got 'http://ann:***@host'; fix it"
    assert str(SpecError([Fault("got http://ann:secret@host")])) == "got http://ann:***@host"
