"""Every spec in tests/golden/plans is well-formed, and planning it raises the expected errors.

To accept new wording, run `python -m tests.orchestrator.plan.test_golden_plans` and read the diff.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.types import Plan
from orchestrator.spec.load import SpecFile, read_spec
from tests.support.specs.golden import GOLDEN, GoldenMessages
from tests.support.specs.planned import plan
from trainables import catalog


def planning_errors(name: str, plan: Callable[[SpecFile], Plan] = plan) -> str:
    """Return the errors of planning the spec `name` in its folder."""
    source = read_spec(Path(f"{name}.yaml"))
    with pytest.raises(PlanError) as caught:
        plan(source)
    text = str(caught.value)
    for kind in ("models", "tasks"):
        # A new model or task must not change the messages.
        text = text.replace(f"Known: {', '.join(catalog.names(kind))}", f"Known: <all {kind}>")
    return f"{text}\n"


MESSAGES = GoldenMessages(GOLDEN / "plans", planning_errors)


def test_at_least_forty_specs_are_refused_by_the_planner() -> None:
    MESSAGES.check_complete(40)


@pytest.mark.parametrize("name", MESSAGES.names)
def test_message(name: str) -> None:
    MESSAGES.check(name)


if __name__ == "__main__":
    MESSAGES.rewrite()
