"""Arguments of the fixtures of the pytest plug-in are checked before a sweep starts."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.testing.chaos import chaos
from orchestrator.testing.spec_under_test import as_texts


@pytest.mark.parametrize(("kill_at", "error"), [([], ValueError), ([1, "2"], TypeError)])
def test_invalid_events_to_kill_at_are_refused(kill_at: Any, error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        chaos("any", kill_at, tmp_path, tmp_path, sessions=None)  # type: ignore[arg-type]


def test_invalid_overrides_are_refused() -> None:
    invalid: Any = {"baseline.lr": 3j}
    with pytest.raises(TypeError):
        as_texts(invalid)
