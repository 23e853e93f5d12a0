"""Every spec in tests/golden/plans is well-formed, and told exactly why it cannot be planned.

After a change of wording on purpose: `python -m tests.orchestrator.plan.test_golden_plans`, read the diff.
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


def reported(name: str, plan: Callable[[SpecFile], Plan] = plan) -> str:
    """What planning the spec `name`, from inside its folder, complains of."""
    source = read_spec(Path(f"{name}.yaml"))
    with pytest.raises(PlanError) as caught:
        plan(source)
    text = str(caught.value)
    for kind in ("models", "tasks"):
        # A new model or task is no change of wording.
        text = text.replace(f"Known: {', '.join(catalog.names(kind))}", f"Known: <all {kind}>")
    return f"{text}\n"


MESSAGES = GoldenMessages(GOLDEN / "plans", reported)


def test_at_least_forty_specs_that_only_the_planner_refuses() -> None:
    MESSAGES.check_complete(40)


@pytest.mark.parametrize("name", MESSAGES.names)
def test_message(name: str) -> None:
    MESSAGES.check(name)


if __name__ == "__main__":
    MESSAGES.rewrite()
