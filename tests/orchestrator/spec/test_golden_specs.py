"""Every bad spec in tests/golden/specs is told exactly what is wrong with it.

After a change of wording on purpose: `python -m tests.orchestrator.spec.test_golden_specs`, read the diff.
"""

from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.load import load_spec
from tests.support.specs.golden import GOLDEN, GoldenMessages


def reported(name: str) -> str:
    """What reading the spec `name`, from inside its folder, complains of."""
    with pytest.raises(SpecError) as caught:
        load_spec(Path(f"{name}.yaml"))
    return f"{caught.value}\n"


MESSAGES = GoldenMessages(GOLDEN / "specs", reported)


def test_at_least_forty_bad_specs() -> None:
    MESSAGES.check_complete(40)


@pytest.mark.parametrize("name", MESSAGES.names)
def test_message(name: str) -> None:
    MESSAGES.check(name)


if __name__ == "__main__":
    MESSAGES.rewrite()
