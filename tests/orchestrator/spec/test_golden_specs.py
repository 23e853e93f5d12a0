"""Every bad spec in tests/golden/specs is told exactly what is wrong with it.

After a change of wording on purpose: `python tests/orchestrator/spec/test_golden_specs.py`, read the diff.
"""

import os
from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.load import load_spec

FOLDER = Path(__file__).parents[2] / "golden" / "specs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def told(name: str) -> str:
    """What reading the spec `name`, from inside its folder, complains of."""
    with pytest.raises(SpecError) as caught:
        load_spec(Path(f"{name}.yaml"))
    return f"{caught.value}\n"


def test_at_least_forty_bad_specs() -> None:
    assert len(NAMES) >= 40
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_message(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    assert told(name) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    os.chdir(FOLDER)
    for each in NAMES:
        Path(f"{each}.txt").write_text(told(each), encoding="utf-8")
