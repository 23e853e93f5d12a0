"""Expect refusals of specs by codes and paths of their faults; tests/golden holds the wording."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from orchestrator.errors import FaultyInput


@contextmanager
def expect_faults(code: str, *paths: str) -> Iterator[pytest.ExceptionInfo[FaultyInput]]:
    """Check that the block is refused with faults of this code, at exactly these paths of the spec."""
    with pytest.raises(FaultyInput) as caught:
        yield caught
    assert {(fault.code, fault.path) for fault in caught.value.faults} == {(code, path) for path in paths}
