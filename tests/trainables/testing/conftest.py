"""Modules that a test writes into its folder can be imported, and are forgotten afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.training_code.own_code import forgotten


@pytest.fixture(autouse=True)
def importable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(tmp_path)
    with forgotten(tmp_path):
        yield
