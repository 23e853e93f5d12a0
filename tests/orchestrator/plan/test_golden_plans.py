"""Every spec in tests/golden/plans is well-formed, and told exactly why it cannot be planned.

After a change of wording on purpose: `python -m tests.orchestrator.plan.test_golden_plans`, read the diff.
"""

import os
from pathlib import Path

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.planner import plan
from orchestrator.spec.load import read_spec
from trainables import catalog

FOLDER = Path(__file__).parents[2] / "golden" / "plans"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def told(name: str) -> str:
    """What planning the spec `name`, from inside its folder, complains of."""
    source = read_spec(Path(f"{name}.yaml"))
    with pytest.raises(PlanError) as caught:
        plan(source)
    text = str(caught.value)
    for kind in ("models", "tasks"):
        # A new model or task is no change of wording.
        text = text.replace(f"Known: {', '.join(catalog.names(kind))}", f"Known: <all {kind}>")
    return f"{text}\n"


def test_at_least_forty_specs_that_only_the_planner_refuses() -> None:
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
